//! The plots of the page: bars, dots, and totals over time. Widths and heights are pixels of the
//! drawing; pages scale it.

use super::ms;
use super::svg::{Anchor, Svg, ticks};
use crate::programs::Kind;
use crate::result::{ArmResult, DemoResult};
use crate::statistics::Summary;

const NAMES: f64 = 104.0;

/// A vertical axis line with its number for each tick, between `top` and `bottom`.
fn scale(svg: &mut Svg, ticks: &[f64], x: impl Fn(f64) -> f64, top: f64, bottom: f64, unit: &str) {
    for &tick in ticks {
        svg.line("grid", (x(tick), top), (x(tick), bottom));
        let number = if tick.fract() == 0.0 { format!("{tick:.0}") } else { format!("{tick:.1}") };
        svg.text("soft small", x(tick), bottom + 16.0, Anchor::Middle, &number);
    }
    let end = x(ticks.last().copied().unwrap_or_default());
    svg.text("soft small", end, bottom + 32.0, Anchor::End, unit);
}

/// A pair of bars an arm: the median solid, the 95th percentile pale behind it.
pub fn bars(svg: &mut Svg, rows: &[(&str, Summary)], left: f64, top: f64, width: f64, max: f64) {
    const ROW: f64 = 38.0;
    let ticks = ticks(max, 5);
    let end = ticks.last().copied().unwrap_or(1.0);
    // Numbers stand behind the bars.
    let plot = width - NAMES - 96.0;
    let x = |value: f64| left + NAMES + value / end * plot;
    let bottom = top + ROW * rows.len() as f64;
    scale(svg, &ticks, x, top, bottom, "ms");
    for (row, (name, summary)) in rows.iter().enumerate() {
        let y = top + ROW * row as f64;
        svg.text("strong", left + NAMES - 10.0, y + 24.0, Anchor::End, name);
        svg.rect(&format!("{name} pale"), x(0.0), y + 8.0, x(summary.p95) - x(0.0), 22.0);
        svg.rect(name, x(0.0), y + 8.0, x(summary.p50) - x(0.0), 22.0);
        let numbers = format!("{} / {}", ms(summary.p50), ms(summary.p95));
        svg.text("", x(summary.p95.max(summary.p50)) + 8.0, y + 24.0, Anchor::Start, &numbers);
    }
}

fn rows(result: &DemoResult, of: impl Fn(&ArmResult) -> Option<Summary>) -> Vec<(&str, Summary)> {
    result.arms.iter().filter_map(|arm| Some((arm.name.name(), of(arm)?))).collect()
}

/// All relaunches, by arm.
pub fn overall(result: &DemoResult) -> String {
    let rows = rows(result, |arm| Some(arm.relaunch_ms));
    let mut svg = Svg::new(920.0, 38.0 * rows.len() as f64 + 44.0);
    let max = rows.iter().map(|(_, summary)| summary.p95).fold(0.0, f64::max);
    bars(&mut svg, &rows, 0.0, 4.0, 920.0, max);
    svg.finish("Relaunch time by arm, median and 95th percentile", None)
}

/// One program's relaunches, by arm.
pub fn of_program(result: &DemoResult, kind: Kind) -> String {
    let rows = rows(result, |arm| {
        arm.per_program.iter().find(|program| program.name == kind).map(|one| one.relaunch_ms)
    });
    let mut svg = Svg::new(450.0, 38.0 * rows.len() as f64 + 44.0);
    let max = rows.iter().map(|(_, summary)| summary.p95).fold(0.0, f64::max);
    bars(&mut svg, &rows, 0.0, 4.0, 450.0, max);
    svg.finish(&format!("Relaunch time of {kind} by arm"), None)
}

/// Every relaunch as a dot, the median as a stroke.
pub fn dots(result: &DemoResult) -> String {
    const ROW: f64 = 20.0;
    const GAP: f64 = 12.0;
    const LEFT: f64 = 190.0;
    const WIDTH: f64 = 920.0;
    let block = ROW * result.arms.len() as f64 + GAP;
    let bottom = block * result.programs.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 40.0);
    let max = result.arms.iter().map(|arm| arm.relaunch_ms.max).fold(0.0, f64::max);
    let ticks = ticks(max, 8);
    let end = ticks.last().copied().unwrap_or(1.0);
    let x = |value: f64| LEFT + value / end * (WIDTH - LEFT - 16.0);
    scale(&mut svg, &ticks, x, 0.0, bottom, "ms");
    for (position, program) in result.programs.iter().enumerate() {
        let top = block * position as f64 + GAP / 2.0;
        svg.text("strong", 0.0, top + 14.0, Anchor::Start, program.name.name());
        svg.text("soft small", 0.0, top + 30.0, Anchor::Start, &program.layout.to_string());
        for (row, arm) in result.arms.iter().enumerate() {
            let name = arm.name.name();
            let y = top + ROW * (row as f64 + 0.5);
            svg.text("soft small", LEFT - 10.0, y + 4.0, Anchor::End, name);
            for sample in arm.samples.iter().filter(|sample| sample.program == program.name) {
                let tip = format!("switch {}: {} ms", sample.switch, ms(sample.relaunch_ms));
                svg.dot(name, x(sample.relaunch_ms), y, &tip);
            }
            if let Some(one) = arm.per_program.iter().find(|one| one.name == program.name) {
                let median = x(one.relaunch_ms.p50);
                svg.line("tick", (median, y - 7.0), (median, y + 7.0));
            }
        }
    }
    svg.finish("Every relaunch by program and arm", None)
}

/// What each arm used over time, and the limit.
pub fn totals(result: &DemoResult) -> String {
    const HEIGHT: f64 = 220.0;
    const LEFT: f64 = 48.0;
    const WIDTH: f64 = 920.0;
    let mut svg = Svg::new(WIDTH, HEIGHT + 52.0);
    let points = || result.arms.iter().flat_map(|arm| &arm.totals);
    let highest =
        points().map(|point| point.bytes).max().unwrap_or_default().max(result.total_bytes);
    let longest = points().map(|point| point.at_ms).max().unwrap_or_default();
    let memory = ticks(highest as f64 / f64::from(1 << 20), 5);
    let time = ticks(longest as f64 / 1e3, 8);
    let top_mib = memory.last().copied().unwrap_or(1.0);
    let end_s = time.last().copied().unwrap_or(1.0);
    let y = |mib: f64| 12.0 + (1.0 - mib / top_mib) * (HEIGHT - 12.0);
    let x = |seconds: f64| LEFT + seconds / end_s * (WIDTH - LEFT - 16.0);
    for &mib in &memory {
        svg.line("grid", (LEFT, y(mib)), (WIDTH - 16.0, y(mib)));
        svg.text("soft small", LEFT - 8.0, y(mib) + 4.0, Anchor::End, &format!("{mib:.0}"));
    }
    scale(&mut svg, &time, x, HEIGHT, HEIGHT + 4.0, "seconds; vertical: MiB");
    for arm in &result.arms {
        let curve = arm.totals.iter();
        svg.path(
            arm.name.name(),
            curve.map(|point| {
                (x(point.at_ms as f64 / 1e3), y(point.bytes as f64 / f64::from(1 << 20)))
            }),
        );
    }
    let limit = y(result.total_bytes as f64 / f64::from(1 << 20));
    svg.line("limit", (LEFT, limit), (WIDTH - 16.0, limit));
    svg.text("soft small", WIDTH - 18.0, limit - 6.0, Anchor::End, "total of all arms but dram");
    svg.finish("Total memory of each arm over time", None)
}
