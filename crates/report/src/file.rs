//! Result files: written whole or not at all, and read back by whoever knows their format.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clew_trace::{regular, write_whole};
use serde::{Deserialize, Serialize};

use crate::page::page;
use crate::result::{FORMAT, Results};
use crate::sheet::Sheet;

/// Bytes of a result file, at most.
const MOST_BYTES: u64 = 64 << 20;

/// What a result is looked at for first: the rest of one that is none takes no memory.
#[derive(Deserialize)]
struct Head {
    format: Option<u32>,
}

/// Why a result could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot {action} {path}: {source}")]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot write a result as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("{path} is no result: {why}")]
    NoResult { path: PathBuf, why: String },
    #[error("{path} has {found}; this version reads format {FORMAT}: make it anew")]
    Format { path: PathBuf, found: String },
}

/// As JSON, with the documented names.
pub fn json(value: &impl Serialize) -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Writes NAME.json, NAME.html and NAME.svg into `directory` and tells where they are.
pub fn write_all(
    results: &Results,
    directory: &Path,
    name: &str,
) -> Result<Vec<PathBuf>, ReportError> {
    let picture = crate::figures::picture(results);
    write_three(directory, name, [json(results)?, page(results), picture])
}

/// The same of a result whose JSON is that text, and which is shown as that sheet.
pub fn write_sheet(
    json: String,
    sheet: &Sheet,
    directory: &Path,
    name: &str,
) -> Result<Vec<PathBuf>, ReportError> {
    write_three(directory, name, [json, sheet.page(), sheet.picture()])
}

fn write_three(
    directory: &Path,
    name: &str,
    texts: [String; 3],
) -> Result<Vec<PathBuf>, ReportError> {
    let failed = |action, path: &Path| {
        let path = path.to_path_buf();
        move |source| ReportError::File { action, path, source }
    };
    fs::create_dir_all(directory).map_err(failed("create", directory))?;
    ["json", "html", "svg"]
        .into_iter()
        .zip(texts)
        .map(|(ending, text)| {
            let path = directory.join(format!("{name}.{ending}"));
            write_whole(&path, &text).map_err(failed("write", &path))?;
            Ok(path)
        })
        .collect()
}

/// Reads the result at `path`. One of another format is refused.
pub fn read(path: &Path) -> Result<Results, ReportError> {
    let file = |source| ReportError::File { action: "read", path: path.to_path_buf(), source };
    let text = regular::read_text(path, MOST_BYTES, 0).map_err(file)?;
    let no_result = |error: serde_json::Error| ReportError::NoResult {
        path: path.to_path_buf(),
        why: error.to_string(),
    };
    // Older versions wrote lists.
    let is_list = text.trim_start().starts_with('[');
    let format = match is_list {
        true => None,
        false => serde_json::from_str::<Head>(&text).map_err(no_result)?.format,
    };
    let found = match format {
        Some(FORMAT) => return serde_json::from_str(&text).map_err(no_result),
        Some(format) => format!("format {format}"),
        None => "no format, as results of older versions".to_string(),
    };
    Err(ReportError::Format { path: path.to_path_buf(), found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{demo, replay};
    use crate::{Crossing, Estimate};

    #[test]
    fn what_was_written_is_read_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut demo = demo();
        // What nobody could divide is written as null.
        demo.comparisons[0].p95.high = f64::INFINITY;
        for (name, results) in [("demo", demo), ("compare", replay())] {
            let paths = write_all(&results, directory.path(), name).expect("they can be written");
            assert_eq!(paths.len(), 3);
            assert!(paths.iter().all(|path| path.is_file()));
            let mut back = read(&paths[0]).expect("what was written");
            if let Some(one) = back.comparisons.first_mut() {
                assert!(one.p95.high.is_nan());
                one.p95.high = f64::INFINITY;
            }
            assert_eq!(back, results);
        }
    }

    #[test]
    fn all_files_are_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let paths = write_all(&demo(), directory.path(), "demo").expect("they can be written");
        // Others may have made the directory, with links in it to what is not theirs.
        let elsewhere = directory.path().join("elsewhere");
        fs::write(&elsewhere, "precious").expect("it can be written");
        fs::remove_file(&paths[0]).expect("it is there");
        std::os::unix::fs::symlink(&elsewhere, &paths[0]).expect("a link");
        write_all(&demo(), directory.path(), "demo").expect("they can be written");
        assert_eq!(fs::read_to_string(&elsewhere).expect("still there"), "precious");
    }

    #[test]
    fn files_of_other_formats_are_refused_by_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("old.json");
        for (text, words) in [
            (
                "{\"arms\": []}",
                "no format, as results of older versions; this version reads format",
            ),
            ("[{\"scheme\": \"zram\"}]", "no format, as results of older versions"),
            ("{\"format\": 1}", "has format 1; this version reads format 2"),
            ("{\"format\": 3}", "has format 3"),
            ("{\"format\": 2}", "is no result: missing field"),
            ("format", "is no result: expected"),
        ] {
            fs::write(&path, text).expect("it can be written");
            let error = read(&path).expect_err(text).to_string();
            assert!(error.contains("old.json") && error.contains(words), "{text}: {error}");
        }
        let error = read(&directory.path().join("none")).expect_err("it is not there").to_string();
        assert!(error.contains("cannot read"), "{error}");
    }

    #[test]
    fn what_else_is_in_a_file_of_another_format_is_not_taken_for_that() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("old.json");
        // Nobody takes lists that deep.
        let deep = ["[".repeat(1000), "]".repeat(1000)].concat();
        fs::write(&path, format!("{{\"a\": {deep}, \"format\": 1}}")).expect("it can be written");
        let error = read(&path).expect_err("it is of an older version").to_string();
        assert!(error.contains("has format 1"), "{error}");
    }

    #[test]
    fn the_json_has_the_documented_names() {
        let value = serde_json::to_value(demo()).expect("it is data");
        assert_eq!((&value["format"], &value["seed"]), (&2.into(), &1.into()));
        assert_eq!(value["points"][0]["total_bytes"], 300 << 20);
        let arm = &value["points"][0]["arms"][1];
        assert_eq!((&arm["name"], &arm["role"]), (&"kernel-zram".into(), &"kernel".into()));
        for name in [
            "scheme",
            "relaunch_ms",
            "cpu_ms",
            "total_bytes_peak",
            "ratio",
            "disk_bytes_written",
            "faults",
            "wrong_answers",
            "per_program",
            "samples",
            "time",
        ] {
            assert!(!arm[name].is_null(), "{name} is missing");
        }
        for name in ["p50", "p95", "max", "n"] {
            assert!(arm["relaunch_ms"][name].is_number(), "{name} is missing");
        }
        assert_eq!(value["skipped"][0]["name"], "java");
        for name in ["kernel", "cpus", "memory_bytes"] {
            assert!(!value["machine"][name].is_null(), "{name} is missing");
        }
        let estimate = serde_json::to_value(Estimate::default()).expect("it is data");
        assert_eq!(estimate["low"], 0.0);
        let crossing = serde_json::to_value(Crossing::AtMost(0.4)).expect("it is data");
        assert_eq!(crossing["kind"], "at-most");
    }
}
