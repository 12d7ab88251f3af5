//! A sweep in shards: each a part of its rows, on whatever machine, and one table of all of them at the end.
//!
//! In a sweep's directory a shard has two files, whole or not there: `jobs/3-of-8.json` says which rows it
//! is to replay, and is written when it begins; `results/3-of-8.json` has them, and is written when all are
//! there. Each row is kept in `rows/` meanwhile, as of any sweep, so a shard that was interrupted goes on
//! where it was. Both name the sweep by a digest of everything that its rows depend on: files of several
//! machines can be put into one directory, and what does not belong together is noticed.
//!
//! Rows are cut into consecutive parts, trace after trace: a shard reads few traces.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clew_report::json;
use clew_trace::{Trace, regular, write_whole};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use super::{Row, Step, Sweep, write_tables};
use crate::costs::Clock;
use crate::error::LabError;
use crate::kept::identity;

/// Shards of a sweep, at most.
const MAX_SHARDS: usize = 1 << 16;
/// Rows of a sweep, at most: more than any has.
const MAX_ROWS: usize = u32::MAX as usize;
/// Bytes of the results of a shard, at most.
const MOST_BYTES: u64 = 256 << 20;

/// One of several shards, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// Which one.
    pub number: usize,
    /// Of how many.
    pub of: usize,
}

impl Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/');
        let shard = parts.and_then(|(number, of)| {
            Some(Shard { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        shard
            .filter(|shard| shard.is_sound())
            .ok_or_else(|| format!("'{text}' is no shard: I/N, with 1 <= I <= N <= {MAX_SHARDS}"))
    }
}

impl Shard {
    fn is_sound(self) -> bool {
        (1..=self.of).contains(&self.number) && self.of <= MAX_SHARDS
    }

    /// Its part of so many rows.
    fn range(self, rows: usize) -> Range<usize> {
        rows * (self.number - 1) / self.of..rows * self.number / self.of
    }

    fn file(self, out: &Path, what: &str) -> PathBuf {
        out.join(what).join(format!("{}-of-{}.json", self.number, self.of))
    }
}

/// What a shard is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Jobs {
    /// Digest of the sweep.
    sweep: String,
    shard: Shard,
    /// Rows of the sweep.
    of_rows: usize,
    /// Which of them are this shard's: from the first, to before the last.
    rows: [usize; 2],
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Results {
    jobs: Jobs,
    rows: Vec<Row>,
}

impl Sweep {
    /// How many rows it has, or one of its shards.
    pub fn rows_of(&self, shard: Option<Shard>) -> usize {
        shard.map_or(self.rows(), |shard| shard.range(self.rows()).len())
    }

    /// A digest of everything that its rows depend on. Reads the ends of all traces.
    fn digest(&self) -> Result<String, LabError> {
        let mut all = env!("CARGO_PKG_VERSION").to_string();
        for path in &self.traces {
            let trace = Trace::open(path).map_err(LabError::trace(path))?;
            all += &format!("\n{}", identity(&trace)?);
        }
        for variant in &self.variants {
            all += &format!("\n{}", variant.scheme.to_toml());
        }
        let (Clock::Modelled(costs) | Clock::Measured(costs)) = &self.clock;
        let (budgets, flash) = (&self.budgets, &self.flash);
        all += &format!("\n{budgets:?} {flash:?} {:?}\n{}", self.pages, costs.to_toml());
        Ok(format!("{:032x}", XxHash3_128::oneshot(all.as_bytes())))
    }

    /// Runs what is missing of a shard in `out`, on `jobs` threads, and leaves its results there.
    ///
    /// # Errors
    /// As [`Sweep::run`]; [`LabError::Setting`] with measured time, which is none beside other shards.
    pub fn run_shard(
        &self,
        shard: Shard,
        out: &Path,
        jobs: usize,
        progress: &(dyn Fn(Step<'_>) + Sync),
    ) -> Result<Vec<Row>, LabError> {
        if matches!(self.clock, Clock::Measured(_)) {
            let why = "shards run beside each other, on machines that differ: only modelled time \
                       means the same in each";
            return Err(LabError::Setting {
                what: "time = \"measured\" of a shard".to_string(),
                why: why.to_string(),
            });
        }
        let range = shard.range(self.rows());
        let jobs_of = Jobs {
            sweep: self.digest()?,
            shard,
            of_rows: self.rows(),
            rows: [range.start, range.end],
        };
        write(&shard.file(out, "jobs"), &jobs_of)?;
        let rows = self.run_range(range, out, jobs, progress)?;
        let results = Results { jobs: jobs_of, rows };
        write(&shard.file(out, "results"), &results)?;
        Ok(results.rows)
    }
}

fn write(path: &Path, what: &impl Serialize) -> Result<(), LabError> {
    let failed = LabError::file(path);
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| write_whole(path, &json(what).map_err(std::io::Error::other)?))
        .map_err(failed)
}

/// Puts the results of all shards in `out` together: `sweep.json` and `sweep.csv`, as if one command had run
/// all rows.
///
/// # Errors
/// [`LabError::Setting`] that says which shards are missing, or which file is of another sweep.
pub fn merge(out: &Path) -> Result<Vec<Row>, LabError> {
    let bad =
        |what: &Path, why: String| LabError::Setting { what: what.display().to_string(), why };
    let mut found: BTreeMap<Shard, Results> = BTreeMap::new();
    let directory = out.join("results");
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(LabError::file(&directory))? {
        paths.push(entry.map_err(LabError::file(&directory))?.path());
    }
    // Whose is refused does not depend on the directory's order. Drafts of who is writing are no results.
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
    paths.sort();
    let mut first: Option<(PathBuf, Jobs)> = None;
    for path in paths {
        let text = regular::read_text(&path, MOST_BYTES, 0).map_err(LabError::file(&path))?;
        let results: Results = serde_json::from_str(&text)
            .map_err(|error| bad(&path, format!("these are no results of a shard: {error}")))?;
        let Jobs { sweep, shard, of_rows, rows: [from, to] } = &results.jobs;
        let is_sound = shard.is_sound() && *of_rows <= MAX_ROWS;
        let range = is_sound.then(|| shard.range(*of_rows));
        if range != Some(*from..*to) || results.rows.len() != to - from {
            return Err(bad(&path, "its rows are not those of its shard: is it damaged?".into()));
        }
        let (of, jobs) = first.get_or_insert_with(|| (path.clone(), results.jobs.clone()));
        if (&jobs.sweep, jobs.of_rows) != (sweep, *of_rows) {
            let of = of.display();
            return Err(bad(
                &path,
                format!("it is of another sweep than {of}: remove one of them"),
            ));
        }
        if jobs.shard.of != shard.of {
            let why = format!(
                "it is one of {} shards, {} is one of {}: remove one of them",
                shard.of,
                of.display(),
                jobs.shard.of
            );
            return Err(bad(&path, why));
        }
        found.insert(*shard, results);
    }
    let Some((_, Jobs { shard: Shard { of, .. }, .. })) = first else {
        return Err(bad(&directory, "no shard has left results there".to_string()));
    };
    let missing: Vec<String> = (1..=of)
        .map(|number| Shard { number, of })
        .filter(|shard| !found.contains_key(shard))
        .map(|shard| {
            let begun = if shard.file(out, "jobs").exists() { " (begun)" } else { "" };
            format!("{shard}{begun}")
        })
        .collect();
    if !missing.is_empty() {
        let why = format!("missing are {}: run them with --shard", missing.join(", "));
        return Err(bad(&directory, why));
    }
    let rows: Vec<Row> = found.into_values().flat_map(|results| results.rows).collect();
    write_tables(out, &rows)?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_have_each_row_once_and_in_order() {
        for rows in [0, 1, 7, 64] {
            for of in [1, 3, 8, 100] {
                let all: Vec<usize> =
                    (1..=of).flat_map(|number| Shard { number, of }.range(rows)).collect();
                assert_eq!(all, (0..rows).collect::<Vec<_>>(), "{rows} rows, {of} shards");
            }
        }
    }

    #[test]
    fn rows_that_no_sweep_has_are_refused() {
        let out = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(out.path().join("results")).expect("a directory");
        let shard = Shard { number: 2, of: 2 };
        let path = shard.file(out.path(), "results");
        // The last is what the range would be if nobody noticed that it is too large.
        for (of_rows, from, to) in [(usize::MAX, 0, 0), (1 << 63, 1 << 62, 0)] {
            let jobs = Jobs { sweep: "x".to_string(), shard, of_rows, rows: [from, to] };
            write(&path, &Results { jobs, rows: Vec::new() }).expect("it is written");
            let error = merge(out.path()).expect_err("they are absurd").to_string();
            assert!(error.contains("2-of-2.json"), "{error}");
            assert!(error.contains("not those of its shard"), "{error}");
        }
    }

    #[test]
    fn what_is_no_shard_is_refused() {
        assert_eq!("3/8".parse(), Ok(Shard { number: 3, of: 8 }));
        for text in ["0/8", "9/8", "1/0", "8", "1/70000", "a/b", "-1/2"] {
            assert!(text.parse::<Shard>().expect_err(text).contains(text));
        }
    }
}
