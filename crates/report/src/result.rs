//! The result of a comparison. The names are a promise: docs/formats.md describes them, and other
//! programs read them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facts::{Breakdown, Layout, ProgramFacts, ProgramResult, Sample, TotalPoint};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::replay::Replay;
use crate::statistics::{Crossing, Estimate, Summary};

/// The version of a result file.
pub const FORMAT: u32 = 2;

/// What a result says of its format: [`FORMAT`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Format(u32);

impl Default for Format {
    fn default() -> Format {
        Format(FORMAT)
    }
}

/// What `clew demo`, `clew demo --full`, `clew replay` and `clew compare` give.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    pub format: Format,
    /// What was compared.
    pub title: String,
    /// Absent where all time is modelled: then it does not matter.
    pub machine: Option<Machine>,
    /// The version that was measured, where it is known.
    pub commit: Option<String>,
    pub seed: Option<u64>,
    /// Of all runs together; absent where time is modelled.
    pub duration_seconds: Option<f64>,
    /// What was asked for.
    pub settings: BTreeMap<String, Value>,
    pub programs: Vec<ProgramFacts>,
    /// Every point, the base point first.
    pub points: Vec<PointResult>,
    /// Each arm beside each of its peers, at every point and for each group of programs.
    pub comparisons: Vec<Comparison>,
    /// How much memory an arm needs to be as good as a peer, at the similarity of the base point.
    pub memory_for_equal_p95: Vec<EqualMemory>,
    /// Arms, runs and programs that did not run, and why.
    pub skipped: Vec<Skipped>,
    /// What the kernel could do in principle and this one cannot.
    pub kernel_cannot: Vec<String>,
    /// What has to be known to read the figures.
    pub notes: Vec<String>,
    /// How it was measured.
    pub method: Vec<String>,
}

/// What did not run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    pub name: String,
    pub reason: String,
}

/// How much memory there is, and how alike two relaunches are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Part of what all pages take; absent where nobody found out how much that is.
    pub total_part: Option<f64>,
    /// Part of a working set that is the same each time; absent where it is not known.
    pub similarity: Option<f64>,
}

/// One point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    pub point: Point,
    /// Memory of every arm that is limited: programs, compressed data, page tables, daemons. Zero
    /// where nobody found out how much is needed.
    pub total_bytes: u64,
    /// In the order in which they were asked for.
    pub arms: Vec<Arm>,
}

/// What an arm is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// As much memory as the programs want.
    Unlimited,
    /// The kernel's own swap.
    Kernel,
    /// Clew.
    Clew,
    /// Clew without one of its mechanisms.
    Ablation,
    /// A scheme that is replayed.
    #[default]
    Scheme,
}

/// How an arm's time is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Time {
    /// What it took.
    #[default]
    Measured,
    /// By a table of costs.
    Modelled,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Time::Measured => "measured",
            Time::Modelled => "modelled",
        })
    }
}

/// One arm, or one scheme, at one point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub name: String,
    pub role: Role,
    /// What governed its memory.
    pub scheme: String,
    /// What this version lacks of the system that it is named after.
    pub missing: Vec<String>,
    pub time: Time,
    /// From the moment of the switch to the last answer; of apps that were alive.
    pub relaunch_ms: Summary,
    /// By group of programs, with intervals.
    pub groups: Vec<GroupResult>,
    pub per_program: Vec<ProgramResult>,
    /// Processor time of everything in the arm, kernel threads that swapped for it included.
    pub cpu_ms: Option<f64>,
    /// The part of it that was spent until all programs were filled.
    pub fill_cpu_ms: Option<f64>,
    /// What swapping cost.
    pub swapping_cpu_ms: Option<f64>,
    /// Most memory used at once.
    pub total_bytes_peak: u64,
    /// The same by part.
    pub peak: Option<Memory>,
    /// Where memory was, as the mean over the measured switches, just before each.
    pub kept: Option<Memory>,
    /// Original bytes / bytes that the store used for them.
    pub ratio: Option<f64>,
    pub disk_bytes_written: u64,
    /// Faults that had to wait for a stored page.
    pub faults: u64,
    pub wrong_answers: u64,
    /// All answers that were compared. A replay ends at the first page that is wrong.
    pub answers: u64,
    /// Every measured switch; at the base point only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<Sample>,
    /// Total memory over time; of a single run only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub totals: Vec<TotalPoint>,
    /// How long the programs took to start and to fill.
    pub fill_seconds: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<Replay>,
}

/// Which programs a figure is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    All,
    Clustered,
    Scattered,
}

impl Group {
    pub const EACH: [Group; 3] = [Group::All, Group::Clustered, Group::Scattered];
    /// Those that have a layout in common.
    pub const OF_LAYOUTS: [Group; 2] = [Group::Clustered, Group::Scattered];

    /// Whether programs of this layout belong to it.
    pub fn has(self, layout: Layout) -> bool {
        match self {
            Group::All => true,
            Group::Clustered => layout == Layout::Clustered,
            Group::Scattered => layout == Layout::Scattered,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Group::All => "all",
            Group::Clustered => "clustered",
            Group::Scattered => "scattered",
        })
    }
}

/// One group of programs in one arm at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupResult {
    pub group: Group,
    pub n: usize,
    pub p50_ms: Estimate,
    pub p95_ms: Estimate,
    pub breakdown: Breakdown,
}

/// An arm beside a peer: ratios, below 1 where the arm is better, from the same switches in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub point: Point,
    pub arm: String,
    pub peer: String,
    pub group: Group,
    pub p50: Estimate,
    pub p95: Estimate,
    /// The geometric mean of the programs' own ratios of medians: no program counts for more
    /// because its relaunches are longer.
    pub p50_by_program: Estimate,
    /// Processor time of swapping; for all programs together only.
    pub swapping_cpu: Option<Estimate>,
    /// Compression ratio of the arm / that of the peer, above 1 where the arm is better; for all
    /// programs together only.
    pub ratio: Option<f64>,
}

/// The total from which on an arm's p95 is as low as a peer's at `peer_total_part`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EqualMemory {
    pub arm: String,
    pub peer: String,
    pub group: Group,
    pub peer_total_part: f64,
    /// As a part of what is needed, interpolated between the totals that were measured.
    pub needed_part: Crossing,
    /// `needed_part` / `peer_total_part`. Where the crossing lies beyond the measured totals, the
    /// last of those stands for it.
    pub ratio: Estimate,
}

impl Arm {
    /// Processor time after the fill.
    pub fn switching_cpu_ms(&self) -> Option<f64> {
        Some(self.cpu_ms? - self.fill_cpu_ms?)
    }

    /// That group of programs.
    pub fn group(&self, group: Group) -> Option<&GroupResult> {
        self.groups.iter().find(|one| one.group == group)
    }
}

impl Results {
    /// The base point.
    pub fn base(&self) -> Point {
        self.points.first().map_or_else(Point::default, |first| first.point)
    }

    /// The arms at the base point.
    pub fn base_arms(&self) -> &[Arm] {
        self.points.first().map_or(&[], |first| &first.arms)
    }

    /// An arm at a point, if it ran.
    pub fn at(&self, point: Point, arm: &str) -> Option<&Arm> {
        let found = self.points.iter().find(|one| one.point == point)?;
        found.arms.iter().find(|one| one.name == arm)
    }

    /// A comparison at a point, if both ran.
    pub fn comparison(
        &self,
        point: Point,
        arm: &str,
        peer: &str,
        group: Group,
    ) -> Option<&Comparison> {
        self.comparisons.iter().find(|one| {
            (one.point, one.group) == (point, group) && one.arm == arm && one.peer == peer
        })
    }

    /// Wrong answers in all arms at all points. Where nothing is limited, a similarity is one run,
    /// whose arm counts once.
    pub fn wrong_answers(&self) -> u64 {
        self.every_arm().map(|arm| arm.wrong_answers).fold(0, u64::saturating_add)
    }

    /// Answers that were compared, likewise.
    pub fn answers(&self) -> u64 {
        self.every_arm().map(|arm| arm.answers).fold(0, u64::saturating_add)
    }

    fn every_arm(&self) -> impl Iterator<Item = &Arm> {
        let mut seen = Vec::new();
        self.points.iter().flat_map(move |point| {
            let new = !seen.contains(&point.point.similarity);
            seen.push(point.point.similarity);
            point.arms.iter().filter(move |arm| new || arm.role != Role::Unlimited)
        })
    }

    /// Whether no arm ran at all.
    pub fn is_empty(&self) -> bool {
        self.points.iter().all(|point| point.arms.is_empty())
    }
}
