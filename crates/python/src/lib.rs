//! The Python module: traces as Arrow tables, replays and comparisons as dicts.
//!
//! What is computed here is the lab's; this crate only carries it over. `python/clew` has what is
//! easier to say in Python.

mod records;

use std::path::{Path, PathBuf};

use clew_core::ByteSize;
use clew_lab::{Input, LabError, Memory, Pages, Settings};
use clew_policy::Scheme;
use clew_trace::regular;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use serde::Serialize;

/// A trace of what programs do with their memory.
#[pyclass(frozen, module = "clew")]
struct Trace {
    trace: clew_trace::Trace,
}

#[pymethods]
impl Trace {
    /// Where it is.
    #[getter]
    fn path(&self) -> PathBuf {
        self.trace.path().to_path_buf()
    }

    /// Bytes of a page.
    #[getter]
    fn page_bytes(&self) -> u32 {
        self.trace.header().page_bytes
    }

    /// How many records it has.
    fn __len__(&self) -> usize {
        self.trace.totals().records() as usize
    }

    fn __repr__(&self) -> String {
        format!("<clew.Trace {}: {} records>", self.trace.path().display(), self.__len__())
    }

    /// Its records as a stream of record batches, by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // A wish, which need not be heeded.
        let _ = requested_schema;
        let failed = |error: clew_trace::TraceError| PyOSError::new_err(error.to_string());
        let stream = records::stream(&self.trace).map_err(failed)?;
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// Opens the trace at `path`.
#[pyfunction]
fn read_trace(path: PathBuf) -> PyResult<Trace> {
    let trace = clew_trace::Trace::open(&path)
        .map_err(|error| PyOSError::new_err(format!("{}: {error}", path.display())))?;
    Ok(Trace { trace })
}

/// What a replay is told besides its scheme.
struct Told {
    budget: String,
    policy_only: bool,
    ratio: Option<f64>,
    flash: Option<String>,
}

/// Replays the trace at `path` under each scheme; each result as JSON.
fn results(path: PathBuf, schemes: &[String], told: &Told, jobs: usize) -> PyResult<String> {
    let bad = |what: &str, why: String| PyValueError::new_err(format!("{what}: {why}"));
    let schemes: Vec<Scheme> = schemes.iter().map(|name| scheme(name)).collect::<PyResult<_>>()?;
    let Some(first) = schemes.first().cloned() else {
        return Err(PyValueError::new_err("schemes: none is named"));
    };
    let memory: Memory = told.budget.parse().map_err(|why| bad("budget", why))?;
    let flash = told.flash.as_ref().map(|size| size.parse::<ByteSize>());
    let flash = flash.transpose().map_err(|why| bad("flash", why.to_string()))?;
    let pages = match (told.policy_only, told.ratio) {
        (true, Some(ratio)) if !(ratio.is_finite() && ratio >= 1.0) => {
            return Err(bad("ratio", format!("{ratio}: 1 or more")));
        }
        (true, ratio) => Pages::Weightless { ratio },
        (false, None) => Pages::Real,
        (false, Some(_)) => return Err(bad("ratio", "it needs policy_only".to_string())),
    };
    let input = Input::open(&path).map_err(failure)?;
    let settings = Settings {
        pages,
        flash_bytes: flash.map(|size| size.0),
        ..Settings::new(first, memory.bytes(&input).map_err(failure)?)
    };
    let compared =
        clew_lab::compare(&input, &schemes, &settings, jobs, &|_, _, _| {}).map_err(failure)?;
    let arms: Vec<_> = compared.points.iter().flat_map(|point| &point.arms).collect();
    json(&arms)
}

fn json(what: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(what).map_err(|error| PyRuntimeError::new_err(error.to_string()))
}

fn failure(error: LabError) -> PyErr {
    match error.is_bad_input() {
        true => PyValueError::new_err(error.to_string()),
        false => PyRuntimeError::new_err(error.to_string()),
    }
}

/// Most bytes of a scheme's file.
const MAX_SCHEME_BYTES: u64 = 1 << 20;

/// A preset, or a file.
fn scheme(name: &str) -> PyResult<Scheme> {
    let read = match name.ends_with(".toml") {
        false => Scheme::preset(name),
        true => Scheme::from_toml(&regular::read_text(Path::new(name), MAX_SCHEME_BYTES, 0)?),
    };
    read.map_err(|error| PyValueError::new_err(format!("scheme {name}: {error}")))
}

/// Replays a trace under several schemes in equal memory; a list of arms, as JSON.
#[pyfunction]
#[pyo3(signature = (path, schemes, budget, policy_only, ratio, flash, jobs))]
#[expect(clippy::too_many_arguments, reason = "Python's function has names for them")]
fn compare_json(
    py: Python<'_>,
    path: PathBuf,
    schemes: Vec<String>,
    budget: String,
    policy_only: bool,
    ratio: Option<f64>,
    flash: Option<String>,
    jobs: usize,
) -> PyResult<String> {
    let told = Told { budget, policy_only, ratio, flash };
    // Other threads of Python go on meanwhile.
    py.detach(|| results(path, &schemes, &told, jobs.max(1)))
}

/// Every scheme by name.
#[pyfunction]
fn schemes() -> Vec<String> {
    clew_policy::schemes::all().into_iter().map(|scheme| scheme.name).collect()
}

#[pymodule]
fn _clew(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Trace>()?;
    module.add_function(wrap_pyfunction!(read_trace, module)?)?;
    module.add_function(wrap_pyfunction!(compare_json, module)?)?;
    module.add_function(wrap_pyfunction!(schemes, module)?)
}
