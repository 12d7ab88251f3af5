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
        let enabled = zswap("enabled");
        enabled.exists().then(|| Knob::set(&enabled, "N")).transpose()
    }

    /// Turns zswap on, with a pool of at most `pool_bytes`, which is said in whole per cent of this machine's
    /// memory. What is oldest goes on to the disk where the pool is full.
    pub fn with_zswap(pool_bytes: u64, memory_bytes: u64) -> Result<Vec<Knob>, BenchError> {
        if !zswap("enabled").exists() {
            return Err(BenchError::Unavailable {
                what: "zswap",
                reason: "this kernel was built without it".to_string(),
            });
        }
        let percent = (pool_bytes.saturating_mul(100) / memory_bytes.max(1)).min(100);
        if percent == 0 {
            let (least, most) = ((memory_bytes / 100) >> 20, pool_bytes >> 20);
            let reason = format!(
                "its smallest pool is 1 % of this machine's memory, {least} MiB, and {most} MiB are to be had"
            );
            return Err(BenchError::Unavailable { what: "zswap", reason });
        }
        let mut knobs = vec![Knob::set(&zswap("max_pool_percent"), &percent.to_string())?];
        if zswap("shrinker_enabled").exists() {
            knobs.push(Knob::set(&zswap("shrinker_enabled"), "Y")?);
        }
        // Last, so that it goes off first.
        knobs.push(Knob::set(&zswap("enabled"), "Y")?);
        Ok(knobs)
    }
}

fn zswap(parameter: &str) -> PathBuf {
    Path::new("/sys/module/zswap/parameters").join(parameter)
}

impl Drop for Knob {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.path, &self.former) {
            clew_core::remark!(
                "{} could not be set back to {}: {error}",
                self.path.display(),
                self.former
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_would_be_too_large_is_refused() {
        let error = Knob::with_zswap(200 << 20, 24 << 30).expect_err("less than a per cent");
        assert!(error.to_string().contains("zswap"), "{error}");
    }

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
