//! What a record may ask of those who follow a trace page by page: a few of its bytes must not cost more
//! memory than there is, nor hours.

use clew_core::{PageId, PageRun};
use clew_trace::{Note, Record};

use crate::error::LabError;

/// Pages that are sampled, or found unused, together, at most: far more than a daemon watches at a time.
const WATCHED_PAGES: u32 = 1 << 12;

/// Checks the record of this number, where `most` pages can be there.
///
/// # Errors
/// [`LabError::Record`] if no program does that.
#[inline]
pub fn check(number: u64, record: &Record, most: u64) -> Result<(), LabError> {
    // Most records are of one page.
    match record {
        Record::Access { .. } | Record::Contents { .. } | Record::Candidate { .. } => Ok(()),
        record => check_run(number, record, most),
    }
}

fn check_run(number: u64, record: &Record, most: u64) -> Result<(), LabError> {
    let bad =
        |field, why: &str| Err(LabError::Record { record: number, field, why: why.to_string() });
    match *record {
        Record::Resident { run } if u64::from(run.count) > most => {
            bad("pages", &format!("{} pages at once", run.count))
        }
        Record::Note(Note::Sample { run } | Note::Used { run } | Note::Unused { run })
            if run.count > WATCHED_PAGES =>
        {
            bad("pages", &format!("{} pages are watched together", run.count))
        }
        Record::Moved { from, to } if from.first.space() != to.space() => {
            bad("moved", "from one space to another")
        }
        Record::Moved { from, to } if overlap(from, to) => {
            bad("moved", "to where it overlaps itself")
        }
        _ => Ok(()),
    }
}

/// Whether a run that moves goes partly to where it is.
fn overlap(from: PageRun, to: PageId) -> bool {
    let end = |first: PageId| first.raw() + u64::from(from.count);
    from.first.raw() < end(to) && to.raw() < end(from.first)
}
