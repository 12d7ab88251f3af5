//! Sweeps: traces x schemes x parameters x budgets x flash, from a TOML file.
//!
//! ```toml
//! traces = ["day.clew"]                 # as seen from the file's directory
//! schemes = ["zram", "ariadne"]         # presets, or TOML files
//! budgets = ["40%", "60%", "256MiB"]
//! flash = ["none", "2GiB"]              # how much there is, if other than none
//! flash_used = [20, 90]                 # per cent of its device in use
//! time = "modelled"                     # or "measured"
//! pages = "real"                        # or "weightless", with ratio = 2.8 if sizes are uniform
//!
//! [parameters.ariadne]                  # of one scheme: every combination
//! "packing.sizes" = ["1K-2K-16K", "512B-4K-32K"]
//! ```
//!
//! Every replay is a row, in a file of its own named by a digest of everything that it depends on
//! (the trace's end, which holds its counts and is checked; scheme, budget, costs). A row that is there
//! is not replayed again, so a sweep that was interrupted goes on where it was. All files are whole
//! or not there.

use clew_policy::schemes::toml_error;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clew_core::ByteSize;
use clew_policy::Scheme;
use clew_report::{Arm, json};
use clew_trace::write_whole;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::compare::{in_parallel, one};
use crate::costs::{Clock, Costs};
use crate::device::Device;
use crate::error::LabError;
use crate::input::{Input, Memory};
use crate::kept::{self, identity, key};
use crate::replay::{Pages, Settings};

pub mod parquet;
pub mod shard;

/// The file, as written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    traces: Vec<PathBuf>,
    schemes: Vec<String>,
    budgets: Vec<String>,
    #[serde(default)]
    flash: Vec<String>,
    #[serde(default)]
    flash_used: Vec<u32>,
    #[serde(default)]
    time: Option<String>,
    #[serde(default)]
    pages: Option<String>,
    #[serde(default)]
    ratio: Option<f64>,
    #[serde(default)]
    costs: Option<PathBuf>,
    #[serde(default)]
    device: Option<String>,
    #[serde(default)]
    parameters: BTreeMap<String, BTreeMap<String, Vec<Value>>>,
}

/// Rows of one trace, at most.
const MAX_ROWS: usize = 1 << 16;
const TOO_MANY: &str = "more than 65536 rows of one trace";

/// A scheme with the parameters that make it this one.
#[derive(Clone, Debug)]
struct Variant {
    scheme: Scheme,
    parameters: BTreeMap<String, String>,
}

/// How much flash there is, bytes, and how much of its device is in use, per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OnFlash {
    bytes: Option<u64>,
    used_pct: u32,
}

/// A sweep that was read.
#[derive(Clone, Debug)]
pub struct Sweep {
    traces: Vec<PathBuf>,
    variants: Vec<Variant>,
    budgets: Vec<Memory>,
    flash: Vec<OnFlash>,
    clock: Clock,
    pages: Pages,
}

/// One replay of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The trace's file name.
    pub trace: String,
    /// The budget as it was asked for.
    pub budget: String,
    /// Parameters that were changed, by their path in the scheme.
    pub parameters: BTreeMap<String, String>,
    /// The same in bytes.
    pub budget_bytes: u64,
    /// How much flash there was, bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash_bytes: Option<u64>,
    /// How much of its device was in use, per cent.
    #[serde(default)]
    pub flash_used_pct: u32,
    /// What came of it.
    pub outcome: Arm,
}

/// What [`Sweep::run`] tells while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A trace is being read.
    Reading(&'a Path),
    /// So many rows of so many are there.
    Done {
        /// Rows there, of which `kept` were there before.
        rows: usize,
        /// Found from before.
        kept: usize,
        /// All.
        of: usize,
    },
}

impl Sweep {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Sweep, LabError> {
        let text = LabError::or_text(path)?;
        let bad = |why: String| LabError::Setting { what: path.display().to_string(), why };
        let file: File = toml::from_str(&text).map_err(|error| bad(toml_error(&error)))?;
        let beside = path.parent().unwrap_or(Path::new("."));
        for (field, is_empty) in [
            ("traces", file.traces.is_empty()),
            ("schemes", file.schemes.is_empty()),
            ("budgets", file.budgets.is_empty()),
        ] {
            if is_empty {
                return Err(bad(format!("{field} names none")));
            }
        }
        let unused = file.parameters.keys().find(|name| !file.schemes.contains(name));
        if let Some(name) = unused {
            return Err(bad(format!("parameters.{name}: schemes does not name it")));
        }
        let mut variants = Vec::new();
        for name in &file.schemes {
            let none = BTreeMap::new();
            let parameters = file.parameters.get(name).unwrap_or(&none);
            let scheme = load_scheme(name, beside)?;
            variants.extend(varied(&scheme, parameters).map_err(&bad)?);
            if variants.len() > MAX_ROWS {
                return Err(bad(TOO_MANY.to_string()));
            }
        }
        let flash = on_flash(&file.flash, &file.flash_used).map_err(&bad)?;
        let rows = variants.len().checked_mul(file.budgets.len());
        if rows.and_then(|rows| rows.checked_mul(flash.len())).is_none_or(|rows| rows > MAX_ROWS) {
            return Err(bad(TOO_MANY.to_string()));
        }
        let needs = variants.iter().find(|variant| variant.scheme.needs_flash());
        if let Some(needs) = needs
            && flash.iter().any(|flash| flash.bytes.is_none())
        {
            return Err(bad(format!("{} needs flash: say how much", needs.scheme.name)));
        }
        let budgets: Result<Vec<Memory>, String> =
            file.budgets.iter().map(|budget| budget.parse()).collect();
        let mut costs = match &file.costs {
            Some(costs) => Costs::read(&beside.join(costs))?,
            None => Costs::reference(),
        };
        if let Some(device) = &file.device {
            costs = Device::named(device)?.costs(costs)?;
        }
        let clock = match file.time.as_deref() {
            None | Some("modelled") => Clock::Modelled(costs),
            Some("measured") => Clock::Measured(costs),
            Some(other) => {
                return Err(bad(format!("time = \"{other}\": \"modelled\" or \"measured\"")));
            }
        };
        let pages = match (file.pages.as_deref(), file.ratio) {
            (None | Some("real"), None) => Pages::Real,
            (Some("weightless"), None) => Pages::Weightless { ratio: None },
            (Some("weightless"), Some(ratio)) if ratio.is_finite() && ratio >= 1.0 => {
                Pages::Weightless { ratio: Some(ratio) }
            }
            (Some("weightless"), Some(ratio)) => {
                return Err(bad(format!("ratio = {ratio}: 1 or more")));
            }
            (None | Some("real"), Some(_)) => {
                return Err(bad("ratio needs pages = \"weightless\"".to_string()));
            }
            (Some(other), _) => {
                return Err(bad(format!("pages = \"{other}\": \"real\" or \"weightless\"")));
            }
        };
        Ok(Sweep {
            traces: file.traces.iter().map(|trace| beside.join(trace)).collect(),
            variants,
            budgets: budgets.map_err(|why| bad(format!("budgets: {why}")))?,
            flash,
            clock,
            pages,
        })
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.traces.len() * self.variants.len() * self.budgets.len() * self.flash.len()
    }

    /// Rows of one trace.
    fn rows_of_a_trace(&self) -> usize {
        self.variants.len() * self.budgets.len() * self.flash.len()
    }

    /// Runs what is missing in `out` on `jobs` threads, and writes `sweep.csv` and `sweep.json` there
    /// when all rows are. With measured time rows run one after the other.
    pub fn run(
        &self,
        out: &Path,
        jobs: usize,
        progress: &(dyn Fn(Step<'_>) + Sync),
    ) -> Result<Vec<Row>, LabError> {
        let rows = self.run_range(0..self.rows(), out, jobs, progress)?;
        write_tables(out, &rows)?;
        Ok(rows)
    }

    /// Rows of `range`, in their order; of traces that have none of them nothing is read.
    fn run_range(
        &self,
        range: Range<usize>,
        out: &Path,
        jobs: usize,
        progress: &(dyn Fn(Step<'_>) + Sync),
    ) -> Result<Vec<Row>, LabError> {
        let kept_in = out.join("rows");
        std::fs::create_dir_all(&kept_in).map_err(LabError::file(&kept_in))?;
        let jobs = if matches!(self.clock, Clock::Measured(_)) { 1 } else { jobs };
        let mut rows = Vec::new();
        let there = std::sync::Mutex::new((0usize, 0usize));
        let of = range.len();
        for (at, trace) in self.traces.iter().enumerate() {
            let first = at * self.rows_of_a_trace();
            let last = first + self.rows_of_a_trace();
            let wanted = range.start.max(first)..range.end.min(last);
            if wanted.is_empty() {
                continue;
            }
            progress(Step::Reading(trace));
            let input = Input::open(trace)?;
            let identity = identity(&input.trace)?;
            let budgets: Vec<(Memory, u64)> = self
                .budgets
                .iter()
                .map(|budget| Ok((*budget, budget.bytes(&input)?)))
                .collect::<Result<_, LabError>>()?;
            let mut points: Vec<(&Variant, (Memory, u64), OnFlash)> = Vec::new();
            for variant in &self.variants {
                for budget in &budgets {
                    points.extend(self.flash.iter().map(|flash| (variant, *budget, *flash)));
                }
            }
            let points = &points[wanted.start - first..wanted.end - first];
            rows.extend(in_parallel(points.len(), jobs, |at| {
                let (variant, (budget, budget_bytes), flash) = points[at];
                let settings = Settings {
                    scheme: variant.scheme.clone(),
                    clock: self.clock.clone(),
                    pages: self.pages,
                    flash_bytes: flash.bytes,
                    flash_used_pct: flash.used_pct,
                    ..Settings::new(variant.scheme.clone(), budget_bytes)
                };
                let key = key(&identity, &settings);
                let before = kept::read(&kept_in, &key);
                let was_kept = before.is_some();
                let outcome = match before {
                    Some(outcome) => outcome,
                    None => {
                        let outcome = one(&input, &settings, &mut |_, _| {})?;
                        kept::write(&kept_in, &key, &outcome)?;
                        outcome
                    }
                };
                // What is kept may have been asked for under other names.
                let row = Row {
                    trace: input.name(),
                    budget: budget.to_string(),
                    parameters: variant.parameters.clone(),
                    budget_bytes,
                    flash_bytes: flash.bytes,
                    flash_used_pct: flash.used_pct,
                    outcome,
                };
                let mut there = there.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                there.0 += 1;
                there.1 += usize::from(was_kept);
                progress(Step::Done { rows: there.0, kept: there.1, of });
                Ok(row)
            })?);
        }
        Ok(rows)
    }
}

/// Writes `sweep.json` and `sweep.csv`.
fn write_tables(out: &Path, rows: &[Row]) -> Result<(), LabError> {
    for (name, text) in [("sweep.json", json(&rows)?), ("sweep.csv", csv(rows)?)] {
        let path = out.join(name);
        write_whole(&path, &text).map_err(LabError::file(&path))?;
    }
    Ok(())
}

/// Every size of flash with every share in use. Of what is not there nothing is in use.
fn on_flash(sizes: &[String], used: &[u32]) -> Result<Vec<OnFlash>, String> {
    if let Some(pct) = used.iter().find(|pct| **pct > 100) {
        return Err(format!("flash_used: {pct} is more than 100 per cent"));
    }
    if !used.is_empty() && sizes.iter().all(|size| size == "none") {
        return Err("flash_used: there is no flash".to_string());
    }
    let none = OnFlash { bytes: None, used_pct: 0 };
    let mut all = Vec::new();
    for size in sizes {
        if size == "none" {
            all.push(none);
            continue;
        }
        let bytes: ByteSize = size.parse().map_err(|why| format!("flash: {size}: {why}"))?;
        let used = if used.is_empty() { &[0][..] } else { used };
        all.extend(used.iter().map(|&used_pct| OnFlash { bytes: Some(bytes.0), used_pct }));
    }
    Ok(if sizes.is_empty() { vec![none] } else { all })
}

/// A preset, or a file beside the sweep's.
fn load_scheme(name: &str, beside: &Path) -> Result<Scheme, LabError> {
    if !name.ends_with(".toml") {
        return Ok(Scheme::preset(name)?);
    }
    let path = beside.join(name);
    let text = LabError::or_text(&path)?;
    Scheme::from_toml(&text).map_err(|error| LabError::Setting {
        what: path.display().to_string(),
        why: error.to_string(),
    })
}

/// The scheme with every combination of its parameters.
fn varied(
    scheme: &Scheme,
    parameters: &BTreeMap<String, Vec<Value>>,
) -> Result<Vec<Variant>, String> {
    let mut variants = vec![(BTreeMap::new(), scheme.to_toml())];
    let combinations = parameters.values().try_fold(1usize, |all, v| all.checked_mul(v.len()));
    if combinations.is_none_or(|all| all > MAX_ROWS) {
        return Err(format!("parameters.{}: {TOO_MANY}", scheme.name));
    }
    for (path, values) in parameters {
        let mut next = Vec::new();
        for (known, text) in &variants {
            for value in values {
                let mut table: Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
                set(&mut table, path, value.clone())
                    .map_err(|why| format!("parameters.{}.\"{path}\": {why}", scheme.name))?;
                let mut known = known.clone();
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_string);
                known.insert(path.clone(), shown);
                next.push((known, table.to_string()));
            }
        }
        variants = next;
    }
    let read = |(parameters, text): (BTreeMap<String, String>, String)| {
        let scheme = Scheme::from_toml(&text).map_err(|error| error.to_string())?;
        Ok(Variant { scheme, parameters })
    };
    variants.into_iter().map(read).collect()
}

/// Sets `path` of `[scheme]`, which must be there already.
pub(crate) fn set(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let mut at = table;
    let mut steps = ["scheme"].into_iter().chain(path.split('.')).peekable();
    while let Some(step) = steps.next() {
        let known = || at.keys().cloned().collect::<Vec<_>>().join(", ");
        if steps.peek().is_none() {
            // Limits are absent until they are set.
            if !at.contains_key(step) && !["disksize_pages", "mem_limit_bytes"].contains(&step) {
                return Err(format!("there is no {step}; there are {}", known()));
            }
            at.insert(step.to_string(), value);
            return Ok(());
        }
        let missing = format!("there is no table {step}; there are {}", known());
        at = at.get_mut(step).and_then(Value::as_table_mut).ok_or(missing)?;
    }
    Err("it is empty".to_string())
}

/// The cells of a row by column, besides trace, scheme and budget; nested names are joined by dots.
fn flat(row: &Row) -> BTreeMap<String, serde_json::Value> {
    let mut cells = BTreeMap::new();
    flatten("", serde_json::to_value(&row.outcome).unwrap_or_default(), &mut cells);
    cells.remove("name");
    cells.remove("scheme");
    cells.insert("budget_bytes".to_string(), row.budget_bytes.into());
    if let Some(bytes) = row.flash_bytes {
        cells.insert("flash_bytes".to_string(), bytes.into());
        cells.insert("flash_used_pct".to_string(), row.flash_used_pct.into());
    }
    for (path, value) in &row.parameters {
        cells.insert(format!("parameter.{path}"), value.clone().into());
    }
    cells
}

fn flatten(path: &str, value: serde_json::Value, cells: &mut BTreeMap<String, serde_json::Value>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                flatten(&path, value, cells);
            }
        }
        serde_json::Value::Null | serde_json::Value::Array(_) => {}
        other => {
            cells.insert(path.to_string(), other);
        }
    }
}

/// One line a row.
fn csv(rows: &[Row]) -> Result<String, LabError> {
    let flat: Vec<_> = rows.iter().map(flat).collect();
    let mut columns: Vec<&String> = flat.iter().flat_map(BTreeMap::keys).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut text = "trace,scheme,budget".to_string();
    columns.iter().for_each(|column| text += &format!(",{}", quoted(column)));
    text += "\n";
    for (row, cells) in rows.iter().zip(&flat) {
        text += &[&row.trace, &row.outcome.name, &row.budget].map(|cell| quoted(cell)).join(",");
        for column in &columns {
            text += ",";
            text += &match cells.get(*column) {
                None => String::new(),
                Some(serde_json::Value::String(text)) => quoted(text),
                Some(other) => other.to_string(),
            };
        }
        text += "\n";
    }
    Ok(text)
}

fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_make_every_combination_and_wrong_ones_are_named() {
        let zram = Scheme::preset("zram").expect("a preset");
        let values = |text: &[&str]| text.iter().map(|t| Value::String(t.to_string())).collect();
        let mut parameters = BTreeMap::new();
        parameters.insert("packing.chunk".to_string(), values(&["1KiB", "4KiB"]));
        parameters.insert("retain".to_string(), vec![Value::Boolean(true), Value::Boolean(false)]);
        let variants = varied(&zram, &parameters).expect("four schemes");
        assert_eq!(variants.len(), 4);
        assert!(
            variants.iter().any(|v| !v.scheme.retain && v.parameters["packing.chunk"] == "1KiB")
        );
        let wrong = |path: &str| {
            let parameters = BTreeMap::from([(path.to_string(), values(&["x"]))]);
            varied(&zram, &parameters).expect_err(path)
        };
        assert!(wrong("packing.chunks").contains("packing.chunks"));
        assert!(wrong("nothing.chunk").contains("no table nothing"));
        assert!(wrong("packing.chunk").contains("scheme.packing.chunk"));
        // A file of a few lines is a billion of them.
        let ten = vec![Value::Boolean(true); 10];
        let bomb = ["a", "b", "c", "d", "e"].map(|path| (path.to_string(), ten.clone())).into();
        assert!(varied(&zram, &bomb).expect_err("too many").contains("more than 65536 rows"));
    }

    #[test]
    fn an_error_in_a_scheme_names_its_file() {
        let dir = std::env::temp_dir().join(format!("clew-sweep-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        std::fs::write(dir.join("mine.toml"), "[scheme]\nname = 5\n").expect("written");
        let error = load_scheme("mine.toml", &dir).expect_err("a number is no name");
        assert!(error.is_bad_input());
        let error = error.to_string();
        assert!(error.contains("mine.toml: ") && error.contains("name"), "{error}");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn flash_is_every_size_with_every_share_in_use() {
        let sizes = |sizes: &[&str]| sizes.iter().map(|size| size.to_string()).collect::<Vec<_>>();
        let none = OnFlash { bytes: None, used_pct: 0 };
        let of = |mib: u64, used_pct| OnFlash { bytes: Some(mib << 20), used_pct };
        assert_eq!(on_flash(&[], &[]), Ok(vec![none]));
        let all = on_flash(&sizes(&["none", "1MiB", "2MiB"]), &[20, 90]);
        assert_eq!(all, Ok(vec![none, of(1, 20), of(1, 90), of(2, 20), of(2, 90)]));
        assert_eq!(on_flash(&sizes(&["1MiB"]), &[]), Ok(vec![of(1, 0)]));
        for (sizes, used, word) in [
            (sizes(&["1MiB"]), vec![101], "101"),
            (sizes(&["none"]), vec![20], "no flash"),
            (sizes(&["much"]), vec![], "much"),
        ] {
            assert!(on_flash(&sizes, &used).expect_err(word).contains(word));
        }
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("a"), "a");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
