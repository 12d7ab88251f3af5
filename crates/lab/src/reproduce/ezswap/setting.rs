//! The board, the apps and the arms of ezswap's evaluation (IV-A and IV-B).

use std::sync::Arc;

use clew_core::{ByteSize, CodecKind, Tier};
use clew_trace::generate::Workload;
use clew_trace::generate::profile::MOBILE_2019;
use toml::Value;

use crate::costs::{Clock, Costs};
use crate::device::Device;
use crate::error::LabError;
use crate::replay::{Mark, Settings};
use crate::reproduce::desk::{Desk, Run, Workbench, scheme};
use crate::reproduce::launches::{Launch, each};

/// The arms, by the paper's names and by ours; the one that all are compared with first.
pub const ARMS: [(&str, &str); 7] = [
    ("swap", "flash-swap"),
    ("zswap", "zswap"),
    ("SA+CA", "ezswap-sa-ca"),
    ("APA", "ezswap-apa"),
    ("APA+SA", "ezswap-apa-sa"),
    ("APA+CA", "ezswap-apa-ca"),
    ("ezswap", "ezswap"),
];
/// Apps of the paper's usual experiment.
pub const APPS: usize = 14;

const MIB: f64 = (1u64 << 20) as f64;
/// IV-A: "The compressed swap pool size was set to 100 MB".
const POOL_MIB: f64 = 100.0;
/// Flash for swap. The paper names no size, and does not say that it was ever full.
const FLASH_MIB: f64 = 4096.0;

/// DRAM for a trace that was given, as a part of its anonymous memory and of all that it reads of files. Of the generated
/// trace's the published DRAM is 0.3, but there much is read once only.
const GIVEN_DRAM: f64 = 0.5;
/// The pool as a part of DRAM, as published.
const POOL_PART: f64 = POOL_MIB / MOBILE_2019.dram_mib;

/// Of 1 GB a kernel keeps a few MiB free, per cent; a replay keeps 2 and 4 MiB of its part at the least.
const WATERMARKS: (f64, f64) = (0.1, 0.2);

/// What came of the arms.
pub struct Arms {
    pub bench: Arc<Workbench>,
    runs: Vec<(&'static str, Run)>,
}

impl Arms {
    /// The run of an arm, by the paper's name.
    pub fn run(&self, shown: &str) -> Option<&Run> {
        self.runs.iter().find(|(name, _)| *name == shown).map(|(_, run)| run)
    }

    /// What `of` says of an arm.
    pub fn of(&self, shown: &str, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        of(self.run(shown)?)
    }

    /// The part of `peer` that `shown` has of what `of` says.
    pub fn part(&self, shown: &str, peer: &str, of: impl Fn(&Run) -> Option<f64>) -> Option<f64> {
        Some(of(self.run(shown)?)? / of(self.run(peer)?)?)
    }

    /// All arms, with what `of` says of them.
    pub fn each<'a>(
        &'a self,
        of: impl Fn(&Run) -> Option<f64> + 'a,
    ) -> impl Iterator<Item = (String, f64)> + 'a {
        let said = move |(name, run): &(&str, Run)| Some((name.to_string(), of(run)?));
        self.runs.iter().filter_map(said)
    }
}

/// So many apps of the paper's list.
pub fn workload(desk: &Desk<'_>, apps: usize) -> Workload {
    let scale = if desk.quick { 0.02 } else { 0.25 };
    Workload { scale, apps, contents: true, ..Workload::new(&MOBILE_2019, 1) }
}

/// The trace of the fourteen apps, or the one that was given.
pub fn usual(desk: &mut Desk<'_>) -> Result<Arc<Workbench>, LabError> {
    let workload = workload(desk, APPS);
    desk.usual(&workload)
}

/// The arms of these names on the paper's usual workload.
pub fn arms(desk: &mut Desk<'_>, names: &[&str]) -> Result<Arms, LabError> {
    let bench = usual(desk)?;
    arms_on(desk, bench, names)
}

/// The same on another trace.
pub fn arms_on(desk: &Desk<'_>, bench: Arc<Workbench>, names: &[&str]) -> Result<Arms, LabError> {
    let wanted: Vec<(&str, &str)> =
        ARMS.into_iter().filter(|(shown, _)| names.contains(shown)).collect();
    let each = wanted.iter().map(|(_, name)| settings(&bench, name));
    let runs = desk.runs(&bench, &each.collect::<Result<Vec<_>, _>>()?)?;
    let runs = wanted.iter().map(|(shown, _)| *shown).zip(runs).collect();
    Ok(Arms { bench, runs })
}

/// The table of costs, with the speed of the board's flash: everything, the device too, takes as much longer as a
/// page of the trace stands for.
pub fn costs(grain: f64) -> Result<Costs, LabError> {
    let board = Device::named("odroid-xu4")?;
    let byte_ns = |field| Ok::<f64, LabError>(1e9 / board.need(field, "launches need it")?);
    let mut costs = Costs::reference().slowed(grain, &format!("one page for {grain:.0}"));
    if let Some(flash) = &mut costs.flash {
        flash.read_ns *= grain;
        flash.read_byte_ns = byte_ns("flash_read_bytes_per_second")? * grain;
        flash.write_byte_ns = byte_ns("flash_write_bytes_per_second")? * grain;
    }
    Ok(costs)
}

fn settings(bench: &Workbench, name: &str) -> Result<Settings, LabError> {
    let part = |mib: f64| (mib * MIB / bench.grain) as u64;
    let dram_bytes = dram_bytes(bench);
    // Any kernel drops clean pages of files first; what is there for other papers has no files.
    let files = Value::Table([("kind".to_string(), "files-first".into())].into_iter().collect());
    let mut scheme = scheme(name, &[("reclaim", files)])?;
    if scheme.uses(Tier::Pool) {
        scheme.mem_limit_bytes = Some(ByteSize((dram_bytes as f64 * POOL_PART) as u64));
    }
    Ok(Settings {
        clock: Clock::Modelled(costs(bench.grain)?),
        flash_bytes: Some(part(FLASH_MIB)),
        watermarks: WATERMARKS,
        ..Settings::new(scheme, dram_bytes)
    })
}

/// What the apps of a trace have for themselves.
pub fn dram_bytes(bench: &Workbench) -> u64 {
    match bench.is_of(&MOBILE_2019) {
        true => (MOBILE_2019.dram_mib * MIB / bench.grain) as u64,
        false => {
            let pages = bench.input.lookahead.peak_pages() + bench.input.lookahead.file_pages();
            (pages as f64 * bench.page_bytes() as f64 * GIVEN_DRAM) as u64
        }
    }
}

/// What the sums of a run grew by after every app was there once: from then on the paper counts.
pub fn counted(run: &Run, of: impl Fn(&Mark) -> u64) -> Option<f64> {
    let marks = &run.watched.marks;
    let (first, last) = (marks.get(first_return(marks)?)?, marks.last()?);
    Some(of(last).checked_sub(of(first))? as f64)
}

/// The first mark of an app that has been there before.
fn first_return(marks: &[Mark]) -> Option<usize> {
    let is_return = |at: &usize| {
        marks[*at].app.is_some() && marks[..*at].iter().any(|mark| mark.app == marks[*at].app)
    };
    (0..marks.len()).find(is_return)
}

/// The marks after every app was there once.
pub fn marks(run: &Run) -> &[Mark] {
    let marks = &run.watched.marks;
    first_return(marks).map_or(&[], |first| &marks[first..])
}

/// Mean time of a return, milliseconds.
pub fn launch_ms(run: &Run) -> Option<f64> {
    each(run, Launch::Hot, u32::MAX, |switch| switch.took_ms)
}

/// Read from flash, bytes.
pub fn read(run: &Run) -> Option<f64> {
    counted(run, |mark| mark.flash_read_bytes)
}

/// Written to flash, bytes.
pub fn written(run: &Run) -> Option<f64> {
    counted(run, |mark| mark.flash_written_bytes)
}

/// Pages compressed.
pub fn compressed(run: &Run) -> Option<f64> {
    counted(run, |mark| mark.compressed_pages)
}

/// Processor time of looking at pages and compressing them, milliseconds, by the table of costs.
pub fn compression_ms(run: &Run, grain: f64) -> Option<(f64, f64)> {
    let costs = costs(grain).ok()?;
    let page = costs.codec(CodecKind::Lzo, 4096, 4096).ok()?;
    let sampled = counted(run, |mark| mark.sampled_pages)?;
    Some((sampled * costs.sample_ns / 1e6, compressed(run)? * page.out_ns / 1e6))
}

/// Of what a policy has counted.
pub fn metric(run: &Run, name: &str) -> Option<f64> {
    run.arm.replay.as_ref()?.policies.get(name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::Watched;

    #[test]
    fn what_happens_until_every_app_was_there_once_does_not_count() {
        let mark = |app, out_pages| Mark { app, out_pages, ..Mark::default() };
        let marks = vec![mark(Some(0), 0), mark(Some(1), 10), mark(Some(0), 25), mark(None, 100)];
        let watched = Watched { marks, ..Watched::default() };
        let run = Run { arm: clew_report::Arm::default(), watched };
        assert_eq!(counted(&run, |mark| mark.out_pages), Some(75.0));
        assert_eq!(super::marks(&run).len(), 2);
        let once = Watched { marks: vec![mark(Some(0), 0), mark(None, 9)], ..Watched::default() };
        let run = Run { watched: once, ..run };
        assert_eq!(counted(&run, |mark| mark.out_pages), None);
    }

    #[test]
    fn a_page_that_stands_for_four_costs_four_times_as_much_of_everything() {
        let [one, four] = [1.0, 4.0].map(|grain| costs(grain).expect("the board is known"));
        let [one, four] =
            [one, four].map(|all| (all.sample_ns, all.flash.expect("flash").read(4096)));
        assert_eq!((one.0 * 4.0, one.1.device_ns * 4.0), (four.0, four.1.device_ns));
    }
}
