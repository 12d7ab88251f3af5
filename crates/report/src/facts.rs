//! What real programs did, switch by switch and as a whole.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Summary;

/// How the data that one interaction touches lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// In runs of several pages: arrays, buffers, tables in the order of their keys.
    Clustered,
    /// Single pages anywhere: small objects, hash tables.
    Scattered,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Layout::Clustered => "clustered",
            Layout::Scattered => "scattered",
        })
    }
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramFacts {
    pub name: String,
    /// As measured, or else as it is known.
    pub layout: Layout,
    pub description: String,
    /// Anonymous memory when it is filled.
    pub anonymous_bytes: Option<u64>,
    /// Anonymous memory that one interaction touches.
    pub touched_bytes: Option<u64>,
    /// What its relaunches were seen to touch; absent where that was not measured.
    pub label: Option<Touched>,
}

/// What relaunches of a program touched after everything was paged out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Touched {
    pub program: String,
    /// What it is called from here on.
    pub layout: Layout,
    /// Part of the touched pages that have a touched neighbour, 0 to 1.
    pub adjacent_share: f64,
    /// Mean length of a run of touched neighbours.
    pub run_pages: f64,
    /// Pages that a relaunch touches, of those that can be swapped out.
    pub touched_pages: f64,
    /// All that can be swapped out.
    pub data_bytes: u64,
    /// Part of a relaunch's pages that the relaunch before had touched too (Ariadne 3: |H1 and H2| /
    /// |H2|).
    pub similarity: f64,
}

/// One program in one arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramResult {
    pub name: String,
    pub layout: Layout,
    pub relaunch_ms: Summary,
    pub wrong_answers: u64,
}

/// One switch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub switch: usize,
    pub program: String,
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

/// One point of the total over time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TotalPoint {
    pub at_ms: u64,
    pub bytes: u64,
}

/// Where the time of a relaunch goes, and where its pages were: means of one relaunch, so that the
/// parts add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    pub relaunch_ms: f64,
    /// What the same switches take in `dram`: the program's own work, with every page mapped.
    pub work_ms: f64,
    /// The call that says that the app comes, inside the clock.
    pub call_ms: f64,
    /// Codec on behalf of faults that the program waited for, where the arm can tell.
    pub codec_ms: Option<f64>,
    /// The rest of what the daemon did for those faults.
    pub handler_ms: Option<f64>,
    /// What is left: waiting to be woken, and sharing the processors with restores. For arms of the
    /// kernel, all that its faults cost.
    pub wait_ms: f64,
    /// Pages that a relaunch touches (measured once, see [`Touched`]), if that is known.
    pub touched_pages: Option<f64>,
    /// Of the program's pages, those that it waited for in a fault, and those restored ahead.
    pub faulted_pages: f64,
    pub restored_pages: f64,
    /// Touched pages that were neither: they were mapped. At least; what is restored ahead may not
    /// have been touched.
    pub mapped_pages: Option<f64>,
}
