//! Where `scripts/natural.sh` puts what is no package of the system: `$XDG_CACHE_HOME/clew/programs`, or
//! `~/.cache/clew/programs`.

use std::path::{Path, PathBuf};

use clew_live::control::trusted_path;

use crate::error::BenchError;

/// That file or directory of the cache, which `program` needs.
///
/// # Errors
/// If it is not there, or others than its user could have put something in its place.
pub fn place(program: &'static str, relative: &str) -> Result<PathBuf, BenchError> {
    let missing = |path: &Path| BenchError::NotFetched { program, path: path.to_path_buf() };
    let of_home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home);
    let cache = cache.unwrap_or_default().join("clew/programs");
    let path = cache.join(relative);
    if !path.is_absolute() || !path.exists() {
        return Err(missing(&path));
    }
    trusted_path::check(&cache).map_err(|error| BenchError::Unavailable {
        what: "the cache of programs",
        reason: error.to_string(),
    })?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said_with_the_way_to_get_it() {
        let error = place("tsserver", "no-such/directory").expect_err("nobody made it");
        let text = error.to_string();
        assert!(text.contains("scripts/natural.sh tsserver"), "{text}");
    }
}
