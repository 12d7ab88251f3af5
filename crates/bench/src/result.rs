//! The result of the demo. The names are a promise: they are documented, and other programs read
//! them.

use serde::{Deserialize, Serialize};

use crate::arms::{ArmKind, Kept};
use crate::programs::{Kind, Layout};
use crate::statistics::Summary;
use crate::totals::TotalPoint;

/// `clew demo --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DemoResult {
    /// The arms that ran, in the order in which they ran.
    pub arms: Vec<ArmResult>,
    /// Arms and programs that did not run, and why.
    pub skipped: Vec<Skipped>,
    /// The memory that every arm but `dram` had: programs, compressed data, page tables, daemons.
    pub total_bytes: u64,
    pub host: Host,
    pub seed: u64,
    /// The version that was measured, where it is known.
    pub commit: Option<String>,
    pub settings: Settings,
    pub programs: Vec<ProgramFacts>,
    pub duration_seconds: f64,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `total_bytes` as a part of what the `dram` arm used; absent where the total was given.
    pub total_fraction: Option<f64>,
    /// Part of `total_bytes` kept free for the next relaunch.
    pub headroom_bytes: u64,
    /// Measured switches; one visit to each program comes before them.
    pub switches: usize,
    /// Part of an interaction's working set that is the same each time.
    pub similarity: f64,
    /// Part of the queries that change data.
    pub updates: f64,
    /// Rest between two switches.
    pub pause_ms: u64,
}

/// The machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub kernel: String,
    pub cpus: usize,
    pub memory_bytes: u64,
}

/// What did not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    pub name: String,
    pub reason: String,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramFacts {
    pub name: Kind,
    pub layout: Layout,
    pub description: String,
    /// Anonymous memory after the fill in the `dram` arm.
    pub anonymous_bytes: Option<u64>,
    /// Anonymous memory that one interaction touched in the `dram` arm.
    pub touched_bytes: Option<u64>,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArmResult {
    pub name: ArmKind,
    pub scheme: String,
    /// From the moment of the switch to the last answer, as the client saw it.
    pub relaunch_ms: Summary,
    /// Processor time of everything in the arm, kernel threads that swapped for it included.
    pub cpu_seconds: f64,
    /// The part of it that was spent until all programs were filled.
    pub fill_cpu_seconds: f64,
    /// What was spent after the fill, minus the same of the `dram` arm: the price of swapping.
    pub swapping_cpu_seconds: Option<f64>,
    /// Highest sum of the arm's group and of memory that is not charged to it.
    pub total_bytes_peak: u64,
    /// Original bytes / bytes that the store used for them, when it used most.
    pub ratio: Option<f64>,
    pub disk_bytes_written: u64,
    /// Faults that had to wait for a stored page, during the measured switches.
    pub faults: u64,
    pub wrong_answers: u64,
    /// All answers that were compared.
    pub answers: u64,
    /// Where memory was, as the mean over the measured switches, just before each.
    pub kept: Kept,
    pub per_program: Vec<ProgramResult>,
    /// Every measured switch.
    pub samples: Vec<Sample>,
    /// Total memory over time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<TotalPoint>,
    /// How long the programs took to start and to fill.
    pub fill_seconds: f64,
}

/// One program in one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    pub name: Kind,
    pub layout: Layout,
    pub relaunch_ms: Summary,
    pub wrong_answers: u64,
}

/// One switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub switch: usize,
    pub program: Kind,
    pub relaunch_ms: f64,
    /// The part of it until the program could be asked: the call that says it comes.
    pub call_ms: f64,
    /// Processor time of everything in the arm from just before this switch to just before the
    /// next one.
    pub cpu_ms: f64,
    /// Pages of this program that it waited for in a fault.
    pub faulted_pages: u64,
    /// Pages of it that came back ahead of it.
    pub restored_pages: u64,
    /// Time that its faults took inside the daemon, where there is one, and the codec's part.
    pub fault_ms: Option<f64>,
    pub fault_codec_ms: Option<f64>,
    pub wrong_answers: u64,
}

impl ArmResult {
    /// Processor time after the fill.
    pub fn switching_cpu_seconds(&self) -> f64 {
        self.cpu_seconds - self.fill_cpu_seconds
    }
}

impl DemoResult {
    /// The arm of that kind, if it ran.
    pub fn arm(&self, kind: ArmKind) -> Option<&ArmResult> {
        self.arms.iter().find(|arm| arm.name == kind)
    }

    /// Wrong answers in all arms.
    pub fn wrong_answers(&self) -> u64 {
        self.arms.iter().map(|arm| arm.wrong_answers).sum()
    }

    /// The result in a sentence: who answers how much faster than the kernel's zram.
    pub fn verdict(&self) -> String {
        let wrong = self.wrong_answers();
        if wrong > 0 {
            return format!("{wrong} answers were wrong: the times mean nothing");
        }
        let (Some(ours), Some(peer)) = (self.arm(ArmKind::Clew), self.arm(ArmKind::KernelZram))
        else {
            let missing: Vec<&str> = [ArmKind::Clew, ArmKind::KernelZram]
                .into_iter()
                .filter(|&kind| self.arm(kind).is_none())
                .map(ArmKind::name)
                .collect();
            return format!("There is nothing to compare: {} did not run", missing.join(" and "));
        };
        let phrase = |ours: f64, peer: f64| {
            let factor = if ours > 0.0 { peer / ours } else { f64::INFINITY };
            match factor {
                f if f >= 1.05 => format!("{f:.1} times faster"),
                f if f <= 0.95 => format!("{:.1} times slower", 1.0 / f),
                _ => "as fast as".to_string(),
            }
        };
        let (ours, peer) = (ours.relaunch_ms, peer.relaunch_ms);
        let median = phrase(ours.p50, peer.p50);
        let than = if median == "as fast as" { "" } else { " than" };
        // So few relaunches say nothing about a 95th percentile.
        format!(
            "Clew brings programs back {median}{than} the kernel's zram at the median \
             ({:.0} ms, {:.0} ms), in equal memory",
            ours.p50, peer.p50
        )
    }
}
