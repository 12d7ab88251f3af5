//! Results that are kept in files, each named by a digest of all that it depends on, so that nothing is
//! replayed twice.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use clew_report::{ReportError, json};
use clew_trace::{Trace, regular, write_whole};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
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
    let mut file =
        regular::open(path, std::fs::File::options().read(true), 0).map_err(failed(path))?;
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
    digest(&all)
}

/// What a file holds. It says itself what it depends on: a file of another name is another's.
#[derive(Serialize, Deserialize)]
struct Kept {
    key: String,
    /// Of the result's text.
    digest: String,
    result: Box<RawValue>,
}

fn digest(text: &str) -> String {
    format!("{:032x}", XxHash3_128::oneshot(text.as_bytes()))
}

fn path_of(directory: &Path, key: &str) -> PathBuf {
    directory.join(format!("{key}.json"))
}

/// The result of an earlier run, if it is there, sound, and of this key.
pub(crate) fn read<T: DeserializeOwned>(directory: &Path, key: &str) -> Option<T> {
    let text = regular::read_text(&path_of(directory, key), MOST_BYTES, 0).ok()?;
    let Kept { key: of, digest: told, result } = serde_json::from_str(&text).ok()?;
    let is_sound = of == key && told == digest(result.get());
    is_sound.then(|| serde_json::from_str(result.get()).ok())?
}

/// Keeps a result.
///
/// # Errors
/// [`LabError::File`].
pub(crate) fn write<T: Serialize>(directory: &Path, key: &str, result: &T) -> Result<(), LabError> {
    let path = path_of(directory, key);
    let result = to_raw_value(result).map_err(ReportError::from)?;
    let text = json(&Kept { key: key.to_string(), digest: digest(result.get()), result })?;
    write_whole(&path, &text).map_err(LabError::file(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_of_its_key_whatever_its_file_is_called() {
        let dir = std::env::temp_dir().join(format!("clew-lab-kept-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        assert_eq!(read::<u64>(&dir, "one"), None);
        write(&dir, "one", &7u64).expect("written");
        assert_eq!(read(&dir, "one"), Some(7u64));
        std::fs::rename(path_of(&dir, "one"), path_of(&dir, "two")).expect("it is ours");
        assert_eq!((read::<u64>(&dir, "two"), read::<u64>(&dir, "one")), (None, None));
        std::fs::write(path_of(&dir, "one"), "7").expect("written");
        assert_eq!(read::<u64>(&dir, "one"), None, "of an earlier version");
        write(&dir, "one", &7u64).expect("written");
        let text = std::fs::read_to_string(path_of(&dir, "one")).expect("it is there");
        let damaged = text.replace("\"result\": 7", "\"result\": 3");
        assert_ne!(text, damaged);
        std::fs::write(path_of(&dir, "one"), damaged).expect("written");
        assert_eq!(read::<u64>(&dir, "one"), None, "of a digit");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }
}
