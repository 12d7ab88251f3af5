//! One mechanism at a time, beside the kernel's own: Clew and its peer do the same work in the same
//! run, in turn, and the result is their ratio.
//!
//! Both sides are [`side::Side`]s: a worker process with pages of realistic content, managed by a
//! Clew daemon or swapped by the kernel to its zram. Workers are never pinned.

mod admission;
mod clew_side;
mod codec;
mod density;
mod donors;
mod fault;
mod fault_under_load;
mod flash;
mod idle;
mod kernel_side;
mod liblzo2;
mod lottery;
mod measured;
pub mod mount;
mod objects;
mod orders;
mod page_samples;
mod region;
mod restore;
mod sensor;
mod side;
mod swap_out;
pub mod table;
pub mod worker;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub use measured::{Costs, Measured, Peer};

use crate::error::{BenchError, file_error};
use crate::interrupt::InterruptGuard;
use crate::progress::Progress;
use crate::scratch::Scratch;

/// The flag with which the command becomes a [`worker`].
pub const WORKER_FLAG: &str = "--touch-worker";

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// One demand fault.
    Fault,
    /// Demand faults while pages of the same program leave and come back.
    FaultUnderLoad,
    /// Processor time of taking pages out.
    SwapOut,
    /// Time until many pages are back.
    Restore,
    /// Codecs and chunk sizes on pages of live programs.
    Codec,
    /// What being managed costs while nothing is swapped.
    Idle,
    /// How well it is learned what relaunches use.
    Sensor,
    /// Writing to flash and reading from it.
    Flash,
    /// Swapping to another machine.
    Donors,
    /// What a victim of ezswap's lottery costs.
    Lottery,
    /// What ezswap's admission costs.
    Admission,
    /// Pages a MiB of each pool.
    Density,
    /// Reads of a mount.
    Mount,
}

impl Case {
    /// All, in the order in which they run.
    pub const ALL: [Case; 13] = [
        Case::Fault,
        Case::FaultUnderLoad,
        Case::SwapOut,
        Case::Restore,
        Case::Codec,
        Case::Idle,
        Case::Sensor,
        Case::Flash,
        Case::Donors,
        Case::Lottery,
        Case::Admission,
        Case::Density,
        Case::Mount,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Case::Fault => "fault",
            Case::FaultUnderLoad => "fault-under-load",
            Case::SwapOut => "swap-out",
            Case::Restore => "restore",
            Case::Codec => "codec",
            Case::Idle => "idle",
            Case::Sensor => "sensor",
            Case::Flash => "flash",
            Case::Donors => "donors",
            Case::Lottery => "lottery",
            Case::Admission => "admission",
            Case::Density => "density",
            Case::Mount => "mount",
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One case, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cases(pub Vec<Case>);

impl FromStr for Cases {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Cases, BenchError> {
        if text == "all" {
            return Ok(Cases(Case::ALL.to_vec()));
        }
        let found = Case::ALL.into_iter().find(|case| case.name() == text);
        found.map(|case| Cases(vec![case])).ok_or_else(|| {
            let names = Case::ALL.map(Case::name).join(", ");
            BenchError::Setting(format!("there is no case '{text}' (there are {names}, all)"))
        })
    }
}

/// How to measure.
#[derive(Clone, Debug)]
pub struct MicroConfig {
    /// The `clew` command: daemon, launcher and worker.
    pub clew_exe: PathBuf,
    /// Scheme of the daemon.
    pub scheme: String,
    /// Repetitions, Clew and peer in turn.
    pub repetitions: usize,
    /// Pages of a worker.
    pub pages: u64,
    /// Seed of contents and of the order of touches.
    pub seed: u64,
    /// Where files are that are measured; the directory for temporary files if there is none.
    pub dir: Option<PathBuf>,
}

impl MicroConfig {
    /// The usual measurement with the command `clew_exe`.
    pub fn new(clew_exe: PathBuf) -> MicroConfig {
        MicroConfig {
            clew_exe,
            scheme: "zram".into(),
            repetitions: 7,
            pages: 25_600,
            seed: 1,
            dir: None,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let fail = |text: &str| Err(BenchError::Setting(text.to_string()));
        if self.repetitions == 0 {
            return fail("at least one repetition is needed");
        }
        if self.pages < 4_096 {
            return fail("fewer than 4096 pages are smaller than what the daemon manages");
        }
        Ok(())
    }
}

/// Measures one case.
pub fn measure(
    case: Case,
    config: &MicroConfig,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    config.check()?;
    let _interrupts = InterruptGuard::new();
    let parent = config.dir.clone().unwrap_or_else(std::env::temp_dir);
    let scratch = Scratch::below(&parent, "clew-bench-")?;
    match case {
        Case::Fault => fault::measure(config, scratch.path(), progress),
        Case::FaultUnderLoad => fault_under_load::measure(config, scratch.path(), progress),
        Case::SwapOut => swap_out::measure(config, scratch.path(), progress),
        Case::Restore => restore::measure(config, scratch.path(), progress),
        Case::Codec => codec::measure(config, scratch.path(), progress),
        Case::Idle => idle::measure(config, scratch.path(), progress),
        Case::Sensor => sensor::measure(config, scratch.path(), progress),
        Case::Flash => flash::measure(config, scratch.path(), progress),
        Case::Donors => donors::measure(config, scratch.path(), progress),
        Case::Lottery => lottery::measure(config, progress),
        Case::Admission => admission::measure(config, scratch.path(), progress),
        Case::Density => density::measure(config, scratch.path(), progress),
        Case::Mount => mount::measure(config, scratch.path(), progress),
    }
}

/// A directory of its own for one part of a case.
fn place(scratch: &Path, name: &str) -> Result<PathBuf, BenchError> {
    let path = scratch.join(name);
    fs::create_dir_all(&path).map_err(file_error("create", &path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_names() {
        assert_eq!("all".parse::<Cases>().expect("known").0.len(), 13);
        assert_eq!("swap-out".parse::<Cases>().expect("known").0, [Case::SwapOut]);
        let error = "swapout".parse::<Cases>().expect_err("unknown");
        assert!(error.to_string().contains("swap-out"), "{error}");
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        let fine = MicroConfig::new(PathBuf::from("clew"));
        assert!(fine.check().is_ok());
        assert!(MicroConfig { repetitions: 0, ..fine.clone() }.check().is_err());
        assert!(MicroConfig { pages: 10, ..fine }.check().is_err());
    }
}
