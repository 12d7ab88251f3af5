//! The result of the full comparison. The names are a promise: they are documented, and other
//! programs read them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::breakdown::Breakdown;
use super::schedule::Point;
use crate::arms::{ArmKind, Kept};
use crate::bootstrap::Estimate;
use crate::crossing::Crossing;
use crate::programs::{Kind, Layout};
use crate::result::{ArmResult, Host, ProgramFacts, ProgramResult, Skipped};
use crate::statistics::Summary;
use crate::survey::Touched;

/// `clew demo --full --format json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullResult {
    /// The arms at the base point, with every switch; `dram` first.
    pub arms: Vec<ArmResult>,
    pub base: Point,
    /// Every point, the base point first.
    pub points: Vec<PointResult>,
    /// Each arm beside each of its peers, at every point and for each group of programs.
    pub comparisons: Vec<Comparison>,
    /// How much memory an arm needs to be as good as a peer, at the similarity of the base point.
    pub memory_for_equal_p95: Vec<EqualMemory>,
    /// What relaunches were seen to touch; empty where that could not be measured.
    pub labels: Vec<Touched>,
    pub programs: Vec<ProgramFacts>,
    /// Runs and programs that did not run, and why.
    pub skipped: Vec<Skipped>,
    /// What the kernel could do in principle and this one cannot.
    pub kernel_cannot: Vec<String>,
    pub host: Host,
    pub seed: u64,
    pub commit: Option<String>,
    pub settings: FullSettings,
    /// Of all runs together, also those that were made before.
    pub duration_seconds: f64,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FullSettings {
    pub total_parts: Vec<f64>,
    pub similarities: Vec<f64>,
    /// Measured relaunches of each arm at each point.
    pub relaunches: usize,
    pub rounds: usize,
    pub data_bytes: u64,
    pub headroom_bytes: u64,
    pub updates: f64,
    pub pause_ms: u64,
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

/// One point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointResult {
    pub point: Point,
    /// Memory of every arm but `dram`.
    pub total_bytes: u64,
    /// `dram` is in it too.
    pub arms: Vec<PointArm>,
}

/// One arm at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointArm {
    pub name: ArmKind,
    pub scheme: String,
    pub relaunch_ms: Summary,
    pub groups: Vec<GroupResult>,
    pub per_program: Vec<ProgramResult>,
    pub cpu_seconds: f64,
    pub swapping_cpu_seconds: Option<f64>,
    pub total_bytes_peak: u64,
    pub ratio: Option<f64>,
    pub disk_bytes_written: u64,
    pub faults: u64,
    pub wrong_answers: u64,
    pub answers: u64,
    pub kept: Kept,
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
    pub arm: ArmKind,
    pub peer: ArmKind,
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
    pub arm: ArmKind,
    pub peer: ArmKind,
    pub group: Group,
    pub peer_total_part: f64,
    /// As a part of what `dram` uses, interpolated between the totals that were measured.
    pub needed_part: Crossing,
    /// `needed_part` / `peer_total_part`. Where the crossing lies beyond the measured totals, the
    /// last of those stands for it.
    pub ratio: Estimate,
}

impl FullResult {
    /// An arm at a point, if it ran.
    pub fn at(&self, point: Point, arm: ArmKind) -> Option<&PointArm> {
        let found = self.points.iter().find(|one| one.point == point)?;
        found.arms.iter().find(|one| one.name == arm)
    }

    /// A comparison at a point, if both ran.
    pub fn comparison(
        &self,
        point: Point,
        arm: ArmKind,
        peer: ArmKind,
        group: Group,
    ) -> Option<&Comparison> {
        self.comparisons
            .iter()
            .find(|one| (one.point, one.arm, one.peer, one.group) == (point, arm, peer, group))
    }

    /// Wrong answers in all arms at all points. `dram` is counted once a similarity.
    pub fn wrong_answers(&self) -> u64 {
        self.every_arm().map(|arm| arm.wrong_answers).sum()
    }

    /// Answers that were compared, likewise.
    pub fn answers(&self) -> u64 {
        self.every_arm().map(|arm| arm.answers).sum()
    }

    fn every_arm(&self) -> impl Iterator<Item = &PointArm> {
        let mut seen = Vec::new();
        self.points.iter().flat_map(move |point| {
            let new = !seen.contains(&point.point.similarity);
            seen.push(point.point.similarity);
            point.arms.iter().filter(move |arm| new || arm.name != ArmKind::Dram)
        })
    }

    /// The arm that stands for Clew: the first of these that ran at the base point.
    pub fn ours(&self) -> Option<ArmKind> {
        let ours = [ArmKind::Clew, ArmKind::ClewAriadne, ArmKind::ClewZram];
        ours.into_iter().find(|&arm| self.at(self.base, arm).is_some())
    }

    /// How a program is labelled: as measured, or else as it is known.
    pub fn layout_of(&self, program: Kind) -> Layout {
        layout_of(&self.labels, program)
    }
}

/// As [`FullResult::layout_of`].
pub fn layout_of(labels: &[Touched], program: Kind) -> Layout {
    let measured = labels.iter().find(|one| one.program == program);
    measured.map_or(program.layout(), |one| one.layout)
}
