//! Records as CSV, one a row.

use std::collections::BTreeMap;
use std::io::Write;

use clew_core::{AppId, DeviceFacts, PageRun, Trigger};

use crate::error::TraceError;
use crate::reader::Reader;
use crate::record::{Note, Record, Stamped};
use crate::totals::Kind;

/// The columns. `page` is a page number: the address divided by the size of a page. `flag` is
/// `write`, `file`, `urgent`, `demand`, `hit`, `used` or `siblings` where the record says yes to
/// that, else empty.
/// `detail` is what only this kind of record has, as `name=value` separated by blanks.
pub const COLUMNS: [&str; 9] =
    ["ns", "record", "app", "space", "page", "pages", "flag", "contents", "detail"];

/// Writes all records of `reader` to `out`, with a header row, and returns how many. `progress` is
/// told after each 65,536 of them how many bytes of the trace are done.
pub fn csv<R: std::io::Read>(
    mut reader: Reader<R>,
    out: impl Write,
    mut progress: impl FnMut(u64),
) -> Result<u64, TraceError> {
    let mut out = csv::Writer::from_writer(out);
    let failed = |error: csv::Error| {
        let source = match error.into_kind() {
            csv::ErrorKind::Io(source) => source,
            other => std::io::Error::other(format!("{other:?}")),
        };
        TraceError::Write { offset: 0, source }
    };
    out.write_record(COLUMNS).map_err(failed)?;
    let mut rows = 0u64;
    while let Some(stamped) = reader.next() {
        out.write_record(row(&stamped?, reader.apps())).map_err(failed)?;
        rows += 1;
        if rows.is_multiple_of(1 << 16) {
            progress(reader.position());
        }
    }
    out.flush().map_err(|source| TraceError::Write { offset: 0, source })?;
    Ok(rows)
}

fn row(stamped: &Stamped, apps: &BTreeMap<AppId, String>) -> [String; 9] {
    let Stamped { at, record } = stamped;
    let mut row: [String; 9] = std::array::from_fn(|_| String::new());
    row[0] = at.0.to_string();
    row[1] = Kind::of(record).name().to_string();
    if let Some(app) = record.app() {
        row[2] = apps.get(&app).cloned().unwrap_or_default();
    }
    if let Some(PageRun { first, count }) = record.pages() {
        row[3] = first.space().0.to_string();
        row[4] = first.vpn().0.to_string();
        row[5] = count.to_string();
    }
    let (flag, detail) = match *record {
        Record::Access { write: true, .. } => ("write", String::new()),
        Record::SpaceStart { space, file, .. } => {
            row[3] = space.0.to_string();
            (if file { "file" } else { "" }, String::new())
        }
        Record::SpaceEnd { space } => {
            row[3] = space.0.to_string();
            ("", String::new())
        }
        Record::Contents { content, .. } => {
            row[7] = content.0.to_string();
            ("", String::new())
        }
        Record::ResponseComplete { response_ns, .. } => ("", format!("response_ns={response_ns}")),
        Record::Moved { to, .. } => {
            ("", format!("to_space={} to_page={}", to.space().0, to.vpn().0))
        }
        Record::Note(note) => detail(note),
        _ => ("", String::new()),
    };
    row[6] = flag.to_string();
    row[8] = detail;
    row
}

fn detail(note: Note) -> (&'static str, String) {
    match note {
        Note::AskedPages { pages, urgent } | Note::Pressure { pages, urgent } => {
            (if urgent { "urgent" } else { "" }, format!("wanted={pages}"))
        }
        Note::Group { pages, tier, codec, chunk_bytes, hotness, park_siblings } => {
            let hotness = hotness.map_or(String::new(), |class| format!(" hotness={class:?}"));
            let flag = if park_siblings { "siblings" } else { "" };
            let group = format!(
                "victims={pages} tier={tier:?} codec={codec:?} chunk_bytes={chunk_bytes}{hotness}"
            );
            (flag, group.to_lowercase())
        }
        Note::Stored { tier, bytes, .. } => {
            ("", format!("tier={tier:?} bytes={bytes}").to_lowercase())
        }
        Note::PageIn { tier, demand, .. } => {
            (if demand { "demand" } else { "" }, format!("tier={tier:?}").to_lowercase())
        }
        Note::Dropped { tier, .. } => ("", format!("tier={tier:?}").to_lowercase()),
        Note::TierUse { tier, used_bytes, pages } => {
            let used = format!("tier={tier:?} used_bytes={used_bytes} stored_pages={pages}");
            ("", used.to_lowercase())
        }
        Note::AskedSamples { pages, run_pages, .. } => {
            ("", format!("wanted={pages} run_pages={run_pages}"))
        }
        Note::DeviceSample { device } => {
            let DeviceFacts { used_bytes, total_bytes, written_bytes } = device;
            let sizes = format!("used_bytes={used_bytes} total_bytes={total_bytes}");
            ("", format!("{sizes} written_bytes={written_bytes}"))
        }
        Note::Donor { donor, state } => {
            ("", format!("donor={} state={state:?}", donor.number()).to_lowercase())
        }
        Note::JobDone { job } => ("", format!("job={job}")),
        Note::AskedPrefetch { trigger: Trigger::Hit(_) } => ("hit", String::new()),
        Note::PrefetchUsed { .. } => ("used", String::new()),
        Note::AskedApp { .. }
        | Note::AskedPrefetch { .. }
        | Note::PrefetchExpired { .. }
        | Note::Unused { .. }
        | Note::Sample { .. }
        | Note::Spared { .. }
        | Note::Victim { .. }
        | Note::Prefetch { .. }
        | Note::EndApp { .. }
        | Note::Tick
        | Note::Stayed { .. } => ("", String::new()),
    }
}
