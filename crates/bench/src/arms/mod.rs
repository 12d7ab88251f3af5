//! The arms of the demo: ways to give the same programs, doing the same work, the same memory.

mod ablation;
mod clew;
mod donor;
mod dram;
mod flash;
mod govern;
mod kernel;
pub(crate) mod limit;
pub mod wait;

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use clew_report::{Memory, Role};
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::error::BenchError;
use crate::kernel_pool::KernelPool;
use crate::process_memory::major_faults;
use crate::programs::Kind;

pub use ablation::Ablation;
pub use donor::DonorScheme;
pub use flash::FlashScheme;
pub use govern::Keep;
use wait::Wait;

/// The arms there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum ArmKind {
    /// As much memory as the programs want.
    Dram,
    /// The kernel's zram at its best.
    KernelZram,
    /// The same, told by hints which app comes and goes and what its last relaunch used.
    KernelZramHint,
    /// The same kernel, governed by Clew's policies from outside.
    Governed(Keep),
    /// A plain swap file on the disk.
    SwapFile,
    /// The same behind the kernel's zswap.
    KernelZswap,
    /// Clew with the scheme that was asked for.
    Clew,
    /// Clew with the scheme `zram`.
    ClewZram,
    /// Clew with the scheme `ariadne`.
    ClewAriadne,
    /// The same, and nobody tells it which app comes and goes.
    ClewAriadneNoCalls,
    /// Clew with the scheme `archer`.
    ClewArcher,
    /// Clew with a scheme that puts on flash what does not fit.
    Flash(FlashScheme),
    /// Clew with a scheme that puts on another machine what does not fit.
    Donor(DonorScheme),
    /// Clew with `ariadne` but for one mechanism.
    Without(Ablation),
}

impl ArmKind {
    /// Those of the quick comparison, in the order in which they run: the first one finds out what
    /// the programs need.
    pub const QUICK: [ArmKind; 3] = [ArmKind::Dram, ArmKind::KernelZram, ArmKind::Clew];

    /// Those of the full comparison.
    pub const FULL: [ArmKind; 8] = [
        ArmKind::Dram,
        ArmKind::KernelZram,
        ArmKind::KernelZramHint,
        ArmKind::SwapFile,
        ArmKind::ClewZram,
        ArmKind::ClewAriadne,
        ArmKind::ClewAriadneNoCalls,
        ArmKind::Clew,
    ];

    /// All.
    pub fn all() -> Vec<ArmKind> {
        let mut all = ArmKind::FULL.to_vec();
        all.extend(Keep::ALL.map(ArmKind::Governed));
        all.push(ArmKind::KernelZswap);
        all.push(ArmKind::ClewArcher);
        all.extend(FlashScheme::ALL.map(ArmKind::Flash));
        all.extend(DonorScheme::ALL.map(ArmKind::Donor));
        all.extend(Ablation::ALL.map(ArmKind::Without));
        all
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ArmKind::Dram => "dram",
            ArmKind::KernelZram => "kernel-zram",
            ArmKind::KernelZramHint => "kernel-zram+hint",
            ArmKind::Governed(keep) => keep.arm_name(),
            ArmKind::SwapFile => "swap-file",
            ArmKind::KernelZswap => "kernel-zswap",
            ArmKind::Flash(scheme) => scheme.arm_name(),
            ArmKind::Donor(scheme) => scheme.arm_name(),
            ArmKind::Clew => "clew",
            ArmKind::ClewZram => "clew-zram",
            ArmKind::ClewAriadne => "clew-ariadne",
            ArmKind::ClewAriadneNoCalls => "clew-ariadne-no-calls",
            ArmKind::ClewArcher => "clew-archer",
            ArmKind::Without(ablation) => ablation.arm_name(),
        }
    }

    /// What it is there for.
    pub fn role(self) -> Role {
        match self {
            ArmKind::Dram => Role::Unlimited,
            ArmKind::KernelZram
            | ArmKind::KernelZramHint
            | ArmKind::KernelZswap
            | ArmKind::SwapFile => Role::Kernel,
            ArmKind::Without(_) => Role::Ablation,
            _ => Role::Clew,
        }
    }

    /// Whether it runs Clew.
    pub fn is_clew(self) -> bool {
        matches!(self.role(), Role::Clew | Role::Ablation)
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
        let all = ArmKind::all();
        all.iter().copied().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|kind| kind.name()).collect();
            let names = names.join(", ");
            BenchError::Setting(format!("there is no arm '{text}' (there are {names})"))
        })
    }
}

impl From<ArmKind> for String {
    fn from(kind: ArmKind) -> String {
        kind.name().to_string()
    }
}

impl TryFrom<String> for ArmKind {
    type Error = BenchError;

    fn try_from(text: String) -> Result<ArmKind, BenchError> {
        text.parse()
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
    /// Whether programs fill before anything limits them ([`crate::run::Work::fills_freely`]).
    pub fills_freely: bool,
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
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Faults that had to wait for a stored page, so far.
    pub faults: u64,
    /// Compression ratio, where the arm itself knows it.
    pub ratio: Option<f64>,
    /// What faults waited for, so far, where the arm itself knows it.
    pub waits: Vec<Wait>,
}

/// What brought the pages of one app back, since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moved {
    /// Pages that the program waited for in a fault.
    pub faulted_pages: u64,
    /// Pages that came back ahead of the program.
    pub restored_pages: u64,
    /// Time that faults took inside the daemon, from their being read to their answer; of it, the
    /// time in the codec. `None` where the arm cannot tell.
    pub fault_ns: Option<u64>,
    pub fault_codec_ns: Option<u64>,
}

/// One look at an arm, between two switches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    pub kept: Memory,
    /// Of each app, in the order of [`Arm::look`]'s argument.
    pub moved: Vec<Moved>,
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

    /// A program is about to be started and filled.
    fn filling(&mut self) {}

    /// While more than this is in use (the kernel's pool included), the fill waits: programs that grow
    /// without pause outrun whoever makes room for them.
    fn fill_ceiling_bytes(&self) -> Option<u64> {
        None
    }

    /// A pool of the kernel whose memory counts and is not charged to the group.
    fn kernel_pool(&self) -> Option<KernelPool> {
        None
    }

    /// All programs are running (as these processes) and filled; nobody is in front.
    fn filled(&mut self, _apps: &[(Kind, u32)]) -> Result<(), BenchError> {
        Ok(())
    }

    /// `app` is about to come to the foreground. Outside the clock.
    fn before_foreground(&mut self, _app: Kind) -> Result<(), BenchError> {
        Ok(())
    }

    /// `app` comes to the foreground. Inside the clock.
    fn to_foreground(&mut self, _app: Kind) -> Result<(), BenchError> {
        Ok(())
    }

    /// `app` has given its last answer, so long after the switch. Outside the clock.
    fn responded(&mut self, _app: Kind, _after: Duration) -> Result<(), BenchError> {
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

    /// Looks where memory is and what came back so far. Outside the clock.
    fn look(&mut self, apps: &[(Kind, u32)]) -> Result<Look, BenchError>;

    /// What was counted so far.
    fn tally(&mut self) -> Result<Tally, BenchError>;

    /// Bytes that swapping wrote to disks.
    fn swap_bytes_written(&mut self) -> Result<u64, BenchError> {
        Ok(0)
    }

    /// Processor time spent for the arm outside its group.
    fn outside_cpu(&self) -> Duration {
        Duration::ZERO
    }
}

/// A look at programs that the kernel swaps: it counts their major faults.
fn look_of_kernel(
    ground: &Ground,
    apps: &[(Kind, u32)],
    pool: Option<&KernelPool>,
    on_disk: bool,
) -> Result<Look, BenchError> {
    let in_pool = pool.map(KernelPool::now).unwrap_or_default();
    let swapped = ground.group.swapped_bytes()?;
    let kept = Memory {
        resident_bytes: ground.group.anonymous_bytes()?,
        stored_bytes: swapped,
        pool_bytes: in_pool.used_bytes,
        disk_bytes: match on_disk {
            true => swapped.saturating_sub(in_pool.original_bytes),
            false => 0,
        },
        ..Memory::default()
    };
    let moved = |&(_, pid): &(Kind, u32)| Moved {
        faulted_pages: major_faults(pid).unwrap_or_default(),
        ..Moved::default()
    };
    Ok(Look { kept, moved: apps.iter().map(moved).collect() })
}

/// What arms need to be made.
#[derive(Clone, Debug)]
pub struct ArmSettings {
    /// The `clew` command.
    pub clew_exe: Option<PathBuf>,
    /// The scheme of the `clew` arm.
    pub clew_scheme: String,
    /// Further options of its daemon.
    pub daemon_options: Vec<OsString>,
}

impl ArmSettings {
    /// The command of Clew.
    ///
    /// # Errors
    /// Nobody said where it is, or it is not there.
    fn clew(&self) -> Result<PathBuf, BenchError> {
        let unavailable = |reason| BenchError::Unavailable { what: "clew", reason };
        match &self.clew_exe {
            None => Err(unavailable("the path of its command was not given".to_string())),
            Some(exe) if exe.is_file() => Ok(exe.clone()),
            Some(exe) => Err(unavailable(format!("there is no file {}", exe.display()))),
        }
    }
}

/// Makes an arm.
pub fn make(kind: ArmKind, settings: &ArmSettings) -> Result<Box<dyn Arm>, BenchError> {
    Ok(match kind {
        ArmKind::Dram => Box::new(dram::Dram::default()),
        ArmKind::KernelZram
        | ArmKind::KernelZramHint
        | ArmKind::KernelZswap
        | ArmKind::SwapFile => Box::new(kernel::KernelSwap::new(kind)),
        ArmKind::Governed(keep) => Box::new(kernel::KernelSwap::governed(settings.clew()?, keep)),
        _ => Box::new(clew::Clew::new(kind, settings)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_distinct() {
        let all = ArmKind::all();
        for (position, kind) in all.iter().enumerate() {
            assert_eq!(kind.name().parse::<ArmKind>().ok(), Some(*kind));
            assert!(all[..position].iter().all(|other| other.name() != kind.name()));
            let json = serde_json::to_string(kind).expect("a name");
            assert_eq!(json, format!("\"{}\"", kind.name()));
        }
        assert!("vram".parse::<ArmKind>().is_err());
    }
}
