//! A program's own time in a relaunch: what it takes if nothing is swapped.
//!
//! A generated trace tells it as the response. A recorded response includes what the recording system
//! made the program wait. That is not in the trace; it is taken to be what the table says of the
//! demand faults that it notes.

use clew_core::CodecKind;
use clew_trace::{Note, Source};

use crate::costs::Costs;

pub(super) struct OwnTime {
    /// What one recorded demand fault took; zero if responses are the program's own.
    fault_ns: f64,
    faults: u64,
}

impl OwnTime {
    pub fn new(source: Source, costs: &Costs, page_bytes: u32) -> OwnTime {
        let back = costs.codec(CodecKind::Lz4, page_bytes, page_bytes).map_or(0.0, |c| c.back_ns);
        let fault_ns = match source {
            Source::Recorded => costs.fault_ns + back,
            Source::Generated | Source::Imported => 0.0,
        };
        OwnTime { fault_ns, faults: 0 }
    }

    /// A relaunch begins.
    pub fn begin(&mut self) {
        self.faults = 0;
    }

    /// The recording system noted something.
    #[inline]
    pub fn note(&mut self, note: &Note) {
        if matches!(note, Note::PageIn { demand: true, .. }) {
            self.faults += 1;
        }
    }

    /// The program's own part of a response of the trace.
    pub fn of(&self, response_ns: u64) -> f64 {
        (response_ns as f64 - self.faults as f64 * self.fault_ns).max(0.0)
    }
}
