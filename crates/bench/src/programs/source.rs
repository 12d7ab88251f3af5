//! Source files, and places in them at which somebody may ask what stands there.

use std::fs;
use std::path::{Path, PathBuf};

use clew_core::Seeded;

use crate::error::{BenchError, file_error};

/// A place of a text, both from 0; columns in bytes, so that only lines of ASCII are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// Up to `count` places of `text` at which a name begins, seldom in a comment.
pub fn names(text: &str, seeded: &mut Seeded, count: usize) -> Vec<Place> {
    const SHORTEST: usize = 4;
    let mut all = Vec::new();
    for (line, words) in text.lines().enumerate() {
        let code = words.trim_start();
        if !words.is_ascii() || words.len() > 300 || code.starts_with(['/', '*', '#', '"', '\'']) {
            continue;
        }
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let mut begin = None;
        for (column, byte) in words.bytes().chain([b' ']).enumerate() {
            match (is_part(&byte), begin) {
                (true, None) => begin = Some(column),
                (false, Some(from)) => {
                    let is_name = !words.as_bytes()[from].is_ascii_digit();
                    if is_name && column - from >= SHORTEST {
                        all.push(Place { line, column: from });
                    }
                    begin = None;
                }
                _ => {}
            }
        }
    }
    (0..count)
        .filter_map(|_| all.get(seeded.below(all.len().max(1) as u64) as usize).copied())
        .collect()
}

/// All files below `directory` whose name ends so and that have between `bytes.0` and `bytes.1`
/// bytes, sorted by name. Links are not followed.
pub fn files(
    directory: &Path,
    ending: &str,
    bytes: (u64, u64),
) -> Result<Vec<PathBuf>, BenchError> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_path_buf()];
    while let Some(here) = left.pop() {
        for entry in fs::read_dir(&here).map_err(file_error("read", &here))? {
            let entry = entry.map_err(file_error("read", &here))?;
            let path = entry.path();
            let kind = entry.file_type().map_err(file_error("read", &path))?;
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() && path.to_string_lossy().ends_with(ending) {
                let length = entry.metadata().map_err(file_error("read", &path))?.len();
                if (bytes.0..=bytes.1).contains(&length) {
                    found.push(path);
                }
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The text of a file; what is no UTF-8 in it is replaced.
pub fn text(path: &Path) -> Result<String, BenchError> {
    let bytes = fs::read(path).map_err(file_error("read", path))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_where_they_begin() {
        let text = "// comment words\n\n  let value = other(12345);\n\u{e9} name\n";
        let found = names(text, &mut Seeded::of(1, &[]), 50);
        assert!(!found.is_empty());
        for place in found {
            assert!([(2, 6), (2, 14)].contains(&(place.line, place.column)), "{place:?}");
        }
        assert!(names("", &mut Seeded::of(1, &[]), 3).is_empty());
    }

    #[test]
    fn files_are_found_by_ending_and_size_in_one_order() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, bytes) in [("b.c", 10), ("a.c", 10), ("a.h", 10), ("large.c", 99)] {
            fs::write(directory.path().join(name), vec![b'x'; bytes]).expect("written");
        }
        let found = files(directory.path(), ".c", (1, 50)).expect("it can be read");
        let names: Vec<_> = found.iter().filter_map(|path| path.file_name()).collect();
        assert_eq!(names, ["a.c", "b.c"]);
    }
}
