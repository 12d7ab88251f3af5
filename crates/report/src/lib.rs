//! What a comparison found: one model of a result file for the demo, the full demo and the lab, its
//! writer and reader, a table for the terminal, a page that opens offline, and a picture.
//!
//! [`Results`] has no figure that its writer did not measure or model. Everything here follows from
//! it, and shows what is there: a replay knows no programs, a demo no hot lists.
#![forbid(unsafe_code)]

mod chart;
#[cfg(test)]
mod example;
mod facts;
mod figures;
mod file;
mod html;
mod machine;
mod memory;
mod page;
mod replay;
mod result;
mod sheet;
mod shown;
mod statistics;
mod study;
mod table;
mod tables;
mod verdict;

pub use facts::{Breakdown, Layout, ProgramFacts, ProgramResult, Sample, TotalPoint, Touched};
pub use figures::picture;
pub use file::{ReportError, json, read, write_all, write_sheet};
pub use machine::Machine;
pub use memory::{Classes, Memory};
pub use page::page;
pub use replay::{Belady, Files, HotSets, Prefetched, Replay};
pub use result::{
    Arm, Comparison, EqualMemory, FORMAT, Group, GroupResult, Point, PointResult, Results, Role,
    Skipped, Time,
};
pub use sheet::{Chart, Part, Row, Shade, Sheet, TIMES};
pub use statistics::{COVERAGE, Crossing, Estimate, Summary, percentile};
pub use study::{Section, Study};
pub use table::{Column, Table, aligned};
pub use tables::text;
pub use verdict::verdict;

/// A part, 0 to 1, as percent.
pub fn percent(part: f64) -> f64 {
    (part * 1e4).round() / 100.0
}
