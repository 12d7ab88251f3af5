//! Relaunch times over totals and over similarities: a plot for each percentile and each group of
//! programs, a line an arm, with whiskers for intervals. Both axes tell ratios: time is logarithmic.

use super::svg::{Anchor, Svg, log_ticks};
use super::{class, ms};
use crate::arms::ArmKind;
use crate::bootstrap::Estimate;
use crate::full::{FullResult, Group, GroupResult, Point, percent};

const WIDTH: f64 = 450.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 40.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 40.0;
/// Distance between the whiskers of two arms at the same point.
const DODGE: f64 = 3.5;

/// One arm's line: where, how long, between what.
struct Line {
    arm: ArmKind,
    points: Vec<(f64, Estimate)>,
}

/// Over the memory that there is, at the similarity of the base point.
pub fn over_totals(result: &FullResult) -> String {
    let here = |point: &Point| point.similarity == result.base.similarity;
    plots(result, &here, &|point| percent(point.total_part), "% of the memory of dram")
}

/// Over how alike two relaunches are, at the total of the base point.
pub fn over_similarities(result: &FullResult) -> String {
    let here = |point: &Point| point.total_part == result.base.total_part;
    plots(result, &here, &|point| percent(point.similarity), "% of a working set the same again")
}

fn plots(
    result: &FullResult,
    here: &dyn Fn(&Point) -> bool,
    at: &dyn Fn(&Point) -> f64,
    axis: &str,
) -> String {
    let mut text = String::new();
    for (name, of) in [("p50", median as fn(&GroupResult) -> Estimate), ("p95", tail)] {
        for group in [Group::Clustered, Group::Scattered] {
            let lines = lines(result, here, at, group, of);
            if lines.iter().any(|line| line.arm != ArmKind::Dram) {
                let title = format!("{group} programs, {name}");
                text += &format!("<div class=\"card\">{}</div>", plot(&lines, &title, axis));
            }
        }
    }
    text
}

fn median(group: &GroupResult) -> Estimate {
    group.p50_ms
}

fn tail(group: &GroupResult) -> Estimate {
    group.p95_ms
}

fn lines(
    result: &FullResult,
    here: &dyn Fn(&Point) -> bool,
    at: &dyn Fn(&Point) -> f64,
    group: Group,
    of: fn(&GroupResult) -> Estimate,
) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for point in result.points.iter().filter(|point| here(&point.point)) {
        for arm in point.arms.iter().filter(|arm| !matches!(arm.name, ArmKind::Without(_))) {
            let Some(found) = arm.groups.iter().find(|one| one.group == group) else { continue };
            let position = match lines.iter().position(|line| line.arm == arm.name) {
                Some(position) => position,
                None => {
                    lines.push(Line { arm: arm.name, points: Vec::new() });
                    lines.len() - 1
                }
            };
            lines[position].points.push((at(&point.point), of(found)));
        }
    }
    for line in &mut lines {
        line.points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

/// All lines but one that is so far above all others that they could not be told apart any more.
fn within_sight(lines: &[Line]) -> (Vec<&Line>, Option<&Line>) {
    const FAR: f64 = 2.5;
    let lowest =
        |line: &Line| line.points.iter().map(|(_, time)| time.value).fold(f64::INFINITY, f64::min);
    let highest = |line: &Line| line.points.iter().map(|(_, time)| time.value).fold(0.0, f64::max);
    let worst = lines.iter().max_by(|one, other| lowest(one).total_cmp(&lowest(other)));
    let beyond = worst.filter(|worst| {
        let others = lines.iter().filter(|line| line.arm != worst.arm && line.arm != ArmKind::Dram);
        let mut others = others.peekable();
        others.peek().is_some() && others.all(|line| highest(line) * FAR < lowest(worst))
    });
    let near = lines.iter().filter(|line| Some(line.arm) != beyond.map(|line| line.arm));
    (near.collect(), beyond)
}

fn plot(lines: &[Line], title: &str, axis: &str) -> String {
    let mut svg = Svg::new(WIDTH, HEIGHT);
    svg.text("strong", 0.0, 14.0, Anchor::Start, title);
    svg.text("soft small", WIDTH, 14.0, Anchor::End, "ms; less is better");
    let (lines, beyond) = within_sight(lines);
    let all = || lines.iter().flat_map(|line| &line.points);
    let lowest = all().map(|(_, time)| time.low).fold(f64::INFINITY, f64::min).max(0.1);
    let highest = all().map(|(_, time)| time.high).fold(lowest * 2.0, f64::max);
    let (bottom, top) = (lowest / 1.15, highest * 1.15);
    let mut places: Vec<f64> = all().map(|(place, _)| *place).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let (first, last) = (places.first().copied().unwrap_or(0.0), places.last().copied());
    let span = (last.unwrap_or(0.0) - first).max(1e-9);
    let x = |place: f64| match places.len() {
        0 | 1 => (LEFT + WIDTH - RIGHT) / 2.0,
        _ => LEFT + 26.0 + (place - first) / span * (WIDTH - LEFT - RIGHT - 52.0),
    };
    let y = |time: f64| {
        let part = (time.max(bottom) / bottom).ln() / (top / bottom).ln();
        HEIGHT - BOTTOM - part * (HEIGHT - BOTTOM - TOP)
    };
    for tick in log_ticks(bottom, top) {
        svg.line("grid", (LEFT, y(tick)), (WIDTH - RIGHT, y(tick)));
        svg.text("soft small", LEFT - 6.0, y(tick) + 4.0, Anchor::End, &format!("{tick}"));
    }
    for &place in &places {
        svg.line("grid", (x(place), TOP), (x(place), HEIGHT - BOTTOM));
        svg.text("soft small", x(place), HEIGHT - 22.0, Anchor::Middle, &format!("{place}"));
    }
    svg.text("soft small", WIDTH - RIGHT, HEIGHT - 6.0, Anchor::End, axis);
    if let Some(line) = beyond {
        let range = line.points.iter().map(|(_, time)| time.value);
        let (low, high) = (range.clone().fold(f64::INFINITY, f64::min), range.fold(0.0, f64::max));
        let said = match low == high {
            true => format!("{}: {}", line.arm, ms(low)),
            false => format!("{}: {} to {}", line.arm, ms(low), ms(high)),
        };
        svg.text("soft small", 0.0, HEIGHT - 6.0, Anchor::Start, &said);
    }
    let middle = (lines.len() as f64 - 1.0) / 2.0;
    for (number, line) in lines.iter().enumerate() {
        let class = class(line.arm);
        let shift = (number as f64 - middle) * DODGE;
        let line_class =
            if line.arm == ArmKind::Dram { format!("{class} dashed") } else { class.clone() };
        svg.path(
            &line_class,
            line.points.iter().map(|(place, time)| (x(*place) + shift, y(time.value))),
        );
        for (place, time) in &line.points {
            let at = x(*place) + shift;
            svg.line(&format!("whisker {class}"), (at, y(time.low)), (at, y(time.high)));
            let tip = format!(
                "{} at {place} %: {} ms ({} to {})",
                line.arm,
                ms(time.value),
                ms(time.low),
                ms(time.high)
            );
            svg.dot(&class, at, y(time.value), &tip);
        }
    }
    svg.finish(title, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(arm: ArmKind, times: &[f64]) -> Line {
        let at = |(place, &value): (usize, &f64)| {
            (place as f64, Estimate { value, low: value, high: value })
        };
        Line { arm, points: times.iter().enumerate().map(at).collect() }
    }

    #[test]
    fn an_arm_that_is_far_above_is_said_and_not_drawn() {
        let near = [
            line(ArmKind::Dram, &[1.0]),
            line(ArmKind::KernelZram, &[40.0, 30.0]),
            line(ArmKind::ClewZram, &[50.0, 20.0]),
        ];
        assert!(within_sight(&near).1.is_none());
        let mut far = near.into_iter().collect::<Vec<_>>();
        far.push(line(ArmKind::SwapFile, &[900.0, 600.0]));
        let (drawn, beyond) = within_sight(&far);
        assert_eq!((drawn.len(), beyond.map(|line| line.arm)), (3, Some(ArmKind::SwapFile)));
        let text = plot(&far, "title", "axis");
        assert!(text.contains("swap-file: 600 to 900") && !text.contains("whisker swap-file"));
        // Two arms alone, one of them dram: there is nobody to hide.
        assert!(within_sight(&far[..2]).1.is_none());
    }
}
