//! The arms of the demo: ways to give the same programs, doing the same work, the same memory.

mod clew;
mod dram;
mod kernel_zram;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::error::BenchError;
use crate::programs::Kind;

/// The arms there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArmKind {
    /// As much memory as the programs want.
    Dram,
    /// The kernel's zram at its best.
    KernelZram,
    /// Clew.
    Clew,
}

impl ArmKind {
    /// All, in the order in which they run: the first one finds out what the programs need.
    pub const ALL: [ArmKind; 3] = [ArmKind::Dram, ArmKind::KernelZram, ArmKind::Clew];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ArmKind::Dram => "dram",
            ArmKind::KernelZram => "kernel-zram",
            ArmKind::Clew => "clew",
        }
    }
}

impl fmt::Display for ArmKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ArmKind {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<ArmKind, BenchError> {
        ArmKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = ArmKind::ALL.map(ArmKind::name).join(", ");
            BenchError::Setting(format!("there is no arm '{text}' (there are {names})"))
        })
    }
}

/// What an arm stands on.
#[derive(Clone)]
pub struct Ground {
    /// Holds everything that belongs to the arm.
    pub group: Arc<Cgroup>,
    /// The memory it may use; `None` for as much as it wants.
    pub total_bytes: Option<u64>,
    /// What it should keep free for the next relaunch.
    pub headroom_bytes: u64,
    /// A directory for its files.
    pub scratch: PathBuf,
}

impl Ground {
    /// The total, for arms that have one.
    fn total(&self) -> Result<u64, BenchError> {
        self.total_bytes.ok_or(BenchError::NoTotal)
    }
}

/// What an arm counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Faults that had to wait for a stored page, so far.
    pub faults: u64,
    /// Compression ratio, where the arm itself knows it.
    pub ratio: Option<f64>,
}

/// One arm. Its end puts back whatever it changed.
pub trait Arm {
    /// Which one.
    fn kind(&self) -> ArmKind;

    /// What governs its memory.
    fn scheme(&self) -> String;

    /// Gets ready, before any program starts.
    fn begin(&mut self, ground: &Ground) -> Result<(), BenchError>;

    /// What stands in front of a program's own command.
    fn launcher(&self, _app: Kind) -> Vec<OsString> {
        Vec::new()
    }

    /// While more than this is in use (zram's memory included), the fill waits: programs that grow
    /// without pause outrun whoever makes room for them.
    fn fill_ceiling_bytes(&self) -> Option<u64> {
        None
    }

    /// `mm_stat` of a zram device whose memory counts and is not charged to the group.
    fn mm_stat(&self) -> Option<PathBuf> {
        None
    }

    /// All programs are running and filled; nobody is in front.
    fn filled(&mut self, _apps: &[Kind]) -> Result<(), BenchError> {
        Ok(())
    }

    /// `app` comes to the foreground. Inside the clock.
    fn to_foreground(&mut self, _app: Kind) -> Result<(), BenchError> {
        Ok(())
    }

    /// `app` goes to the background. Outside the clock.
    fn to_background(&mut self, _app: Kind) -> Result<(), BenchError> {
        Ok(())
    }

    /// Makes room for the next relaunch, where nobody does so by himself. Outside the clock.
    fn make_room(&mut self) -> Result<(), BenchError> {
        Ok(())
    }

    /// What was counted so far.
    fn tally(&mut self) -> Result<Tally, BenchError>;

    /// Processor time spent for the arm outside its group.
    fn outside_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

/// What arms need to be made.
#[derive(Clone, Debug)]
pub struct ArmSettings {
    /// The `clew` command.
    pub clew_exe: Option<PathBuf>,
    /// The scheme of the `clew` arm.
    pub clew_scheme: String,
}

/// Makes an arm.
pub fn make(kind: ArmKind, settings: &ArmSettings) -> Result<Box<dyn Arm>, BenchError> {
    Ok(match kind {
        ArmKind::Dram => Box::new(dram::Dram::default()),
        ArmKind::KernelZram => Box::new(kernel_zram::KernelZram::default()),
        ArmKind::Clew => Box::new(clew::Clew::new(settings)?),
    })
}
