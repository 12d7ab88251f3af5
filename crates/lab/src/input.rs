//! What a replay reads: a trace, and what had to be known of it before.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use clew_core::ByteSize;
use clew_trace::Trace;

use crate::error::LabError;
use crate::world::Lookahead;

/// A trace, read once.
pub struct Input {
    /// The trace.
    pub trace: Trace,
    /// What pages hold before the trace tells it.
    pub lookahead: Lookahead,
}

impl Input {
    /// Opens the trace at `path` and reads its records once.
    pub fn open(path: &Path) -> Result<Input, LabError> {
        let trace = Trace::open(path).map_err(LabError::trace(path))?;
        let lookahead = Lookahead::of(&trace)?;
        Ok(Input { trace, lookahead })
    }

    /// Its file name, for results.
    pub fn name(&self) -> String {
        let name = self.trace.path().file_name().unwrap_or(self.trace.path().as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Memory that all its pages take together, at most, if none is stored.
    pub fn footprint_bytes(&self) -> u64 {
        self.lookahead.peak_pages() * u64::from(self.trace.header().page_bytes)
    }
}

/// How much memory there is: a size, or a part of what a trace's pages take together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Memory {
    /// Bytes.
    Size(ByteSize),
    /// Per cent of [`Input::footprint_bytes`].
    Percent(f64),
}

/// Less makes no sense: the marks of the budget take half of it.
const LEAST_BYTES: u64 = 8 << 20;

impl Memory {
    /// Bytes of it for `input`.
    pub fn bytes(self, input: &Input) -> Result<u64, LabError> {
        let bytes = match self {
            Memory::Size(size) => size.0,
            Memory::Percent(part) => (input.footprint_bytes() as f64 * part / 100.0) as u64,
        };
        if bytes < LEAST_BYTES {
            return Err(LabError::Setting {
                what: format!("budget {self} for {}", input.name()),
                why: format!("{} is less than {}", ByteSize(bytes), ByteSize(LEAST_BYTES)),
            });
        }
        Ok(bytes)
    }
}

impl FromStr for Memory {
    type Err = String;

    fn from_str(text: &str) -> Result<Memory, String> {
        match text.strip_suffix('%') {
            Some(number) => match number.trim().parse::<f64>() {
                Ok(part) if part > 0.0 && part <= 1000.0 => Ok(Memory::Percent(part)),
                _ => Err(format!("'{text}' is no share (write 60%)")),
            },
            None => text.parse().map(Memory::Size).map_err(|error: clew_core::units::SizeError| {
                format!("{error}, or a share of what the trace's pages take: 60%")
            }),
        }
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Memory::Size(size) => size.fmt(f),
            Memory::Percent(part) => write!(f, "{part}%"),
        }
    }
}
