//! Results that are kept in files, each named by a digest of all that it depends on, so that nothing is
//! replayed twice.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use clew_trace::{Trace, regular};
use serde::de::DeserializeOwned;
use twox_hash::XxHash3_128;

use crate::costs::Clock;
use crate::error::LabError;
use crate::replay::Settings;

/// Bytes of a result that was kept, at most.
const MOST_BYTES: u64 = 1 << 20;

/// Digest of the last bytes of a trace, where its counts and the places of its contents are, with
/// their checksum; and of its length.
pub(crate) fn identity(trace: &Trace) -> Result<String, LabError> {
    const END_BYTES: u64 = 64 << 10;
    let path = trace.path();
    let failed = LabError::file;
    let length = trace.file_bytes();
    let mut file = std::fs::File::open(path).map_err(failed(path))?;
    file.seek(SeekFrom::Start(length.saturating_sub(END_BYTES))).map_err(failed(path))?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).map_err(failed(path))?;
    Ok(format!("{length} {:032x}", XxHash3_128::oneshot(&end)))
}

/// Of a trace of that identity, replayed like this.
pub(crate) fn key(identity: &str, settings: &Settings) -> String {
    // Every one of them: a result of other settings is not this one's.
    let Settings {
        scheme,
        budget_bytes,
        watermarks,
        clock,
        pages,
        flash_bytes,
        flash_used_pct,
        donors,
        kernel_zram,
        windows,
        hides_touches,
    } = settings;
    let (time, costs) = match clock {
        Clock::Measured(costs) => ("measured", costs),
        Clock::Modelled(costs) => ("modelled", costs),
    };
    let donors = donors.as_ref().map_or(String::new(), |donors| format!(" {donors:?}"));
    let windows = if *windows { " windows" } else { "" };
    let hidden = if *hides_touches { " hidden touches" } else { "" };
    let all = format!(
        "{}\n{identity}\n{}\n{budget_bytes} {watermarks:?} {pages:?} {flash_bytes:?} \
         {flash_used_pct} {kernel_zram}{windows}{hidden}{donors}\n{time}\n{}",
        env!("CARGO_PKG_VERSION"),
        scheme.to_toml(),
        costs.to_toml()
    );
    format!("{:032x}", XxHash3_128::oneshot(all.as_bytes()))
}

/// The result of an earlier run, if it is there and sound.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_str(&regular::read_text(path, MOST_BYTES, 0).ok()?).ok()
}
