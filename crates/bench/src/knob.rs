//! A setting of the kernel that is changed for a while and comes back with the guard's end.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{BenchError, file_error};

/// A changed setting.
#[derive(Debug)]
pub struct Knob {
    path: PathBuf,
    former: String,
}

impl Knob {
    /// Writes `value` to `path` until the guard ends.
    pub fn set(path: &Path, value: &str) -> Result<Knob, BenchError> {
        let former = fs::read_to_string(path).map_err(file_error("read", path))?.trim().to_string();
        fs::write(path, value).map_err(file_error("write to", path))?;
        Ok(Knob { path: path.to_path_buf(), former })
    }

    /// Turns zswap off, where the kernel has it.
    pub fn without_zswap() -> Result<Option<Knob>, BenchError> {
        let enabled = Path::new("/sys/module/zswap/parameters/enabled");
        enabled.exists().then(|| Knob::set(enabled, "N")).transpose()
    }
}

impl Drop for Knob {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.former) {
            eprintln!("{} could not be set back to {}: {error}", self.path.display(), self.former);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back() {
        let path = std::env::temp_dir().join(format!("clew-knob-{}", std::process::id()));
        fs::write(&path, "3\n").expect("a temporary file");
        let knob = Knob::set(&path, "0").expect("the file is there");
        assert_eq!(fs::read_to_string(&path).expect("still there"), "0");
        drop(knob);
        assert_eq!(fs::read_to_string(&path).expect("still there"), "3");
        fs::remove_file(&path).expect("still there");
        assert!(Knob::set(&path, "1").is_err());
    }
}
