//! What a worker is told and what it answers: one JSON object a line, over its standard streams.

use serde::{Deserialize, Serialize};

/// Which pages of a worker's region hold data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// All.
    Dense,
    /// Runs of five pages on average: the neighbour of 80 % of the pages holds data too.
    Clustered,
    /// Single pages; hardly any has a neighbour.
    Scattered,
}

/// One order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum Order {
    /// Make the region: `pages` pages of data.
    Map { seed: u64, layout: Layout, pages: u64 },
    /// Read from `count` pages of data (all if there are fewer), single pages or runs in random
    /// order, with `gap_ns` of work between two touches. With `willneed` the kernel is told first.
    Touch { seed: u64, count: u64, gap_ns: u64, willneed: bool },
    /// Read from random pages of data, `count` times, with `gap_ns` of work between two, and tell of
    /// those reads that met a fault.
    Wander { seed: u64, count: u64, gap_ns: u64 },
    /// Read from these pages of the region.
    Visit { pages: Vec<u64> },
    /// Write to every page of data.
    Write,
    /// Tell the kernel to page the region out.
    PageOut,
    /// Compare every page of data with what it must hold.
    Verify,
    /// Read pages of the region and write to them, at random, so many times.
    Work { seed: u64, operations: u64 },
}

/// What an order gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Answer {
    /// Where the region is.
    Mapped { address: u64, region_pages: u64 },
    /// How long single touches took.
    Touched { p50_ns: f64, p99_ns: f64 },
    /// Reads that met a fault, and how long they took.
    Faulted { faults: u64, p50_ns: f64, p99_ns: f64, p999_ns: f64, slow_share: f64 },
    /// How long it took.
    Done { wall_ns: u64 },
    /// Pages that held something else.
    Verified { wrong: u64 },
    /// It could not be done.
    Failed { reason: String },
}
