//! One picture that says it all, for a README: relaunch times by arm, overall and by layout.

use super::plots::bars;
use super::svg::{Anchor, Svg};
use super::{COLOURS, mib};
use crate::programs::Layout;
use crate::result::{ArmResult, DemoResult};
use crate::statistics::Summary;

/// A standalone SVG for light and dark surroundings.
pub fn picture(result: &DemoResult) -> String {
    const WIDTH: f64 = 880.0;
    let of_layout = |arm: &ArmResult, layout: Layout| {
        let times: Vec<f64> = arm
            .samples
            .iter()
            .filter(|sample| sample.program.layout() == layout)
            .map(|sample| sample.relaunch_ms)
            .collect();
        Summary::of(&times)
    };
    let block = 38.0 * result.arms.len() as f64 + 74.0;
    let mut svg = Svg::new(WIDTH, 66.0 + block * 2.0);
    svg.rect("paper", 0.0, 0.0, WIDTH, 66.0 + block * 2.0);
    svg.text(
        "title",
        16.0,
        28.0,
        Anchor::Start,
        "Time until a program in the background answers again",
    );
    let facts = format!(
        "median and p95 in ms; {} programs in {} MiB, {} relaunches an arm; Linux {}, {} CPUs",
        result.programs.len(),
        mib(result.total_bytes),
        result.settings.switches,
        result.host.kernel,
        result.host.cpus
    );
    svg.text("soft", 16.0, 48.0, Anchor::Start, &facts);
    for (position, layout) in [Layout::Clustered, Layout::Scattered].into_iter().enumerate() {
        let rows: Vec<(&str, Summary)> =
            result.arms.iter().map(|arm| (arm.name.name(), of_layout(arm, layout))).collect();
        let names: Vec<&str> = result
            .programs
            .iter()
            .filter(|program| program.layout == layout)
            .map(|program| program.name.name())
            .collect();
        let top = 66.0 + block * position as f64;
        let title = format!("{layout} working sets ({})", names.join(", "));
        svg.text("strong", 16.0, top + 14.0, Anchor::Start, &title);
        let max = rows.iter().map(|(_, summary)| summary.p95).fold(0.0, f64::max);
        bars(&mut svg, &rows, 16.0, top + 22.0, WIDTH - 32.0, max);
    }
    svg.finish("Relaunch times of programs in the background", Some(COLOURS))
}

#[cfg(test)]
mod tests {
    use super::super::tests::full_example;
    use super::*;

    #[test]
    fn stands_alone() {
        let text = picture(&full_example(0.5));
        assert!(text.starts_with("<svg") && text.contains("<style>") && text.contains("clew"));
        assert!(!text.contains("href") && !text.contains("NaN"));
    }
}
