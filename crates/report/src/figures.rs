//! Which charts a result has.

use plotters::style::{Color, RGBAColor, RGBColor};

use crate::chart::{
    BLUE, BROWN, Bar, Bars, CLAY, Curves, Dots, GREY, Line, MOSS, ORANGE, RED, SKY, TEAL, VIOLET,
    key, picture as drawn,
};
use crate::facts::{Breakdown, Layout};
use crate::percent;
use crate::result::{Arm, Group, GroupResult, Point, Results, Role};
use crate::statistics::{Estimate, Summary};
use crate::tables::{breakdown_rows, facts, mib, named, number};

/// A heading with its charts, which may be none.
pub struct Figure {
    pub title: &'static str,
    pub note: String,
    /// As HTML.
    pub keys: String,
    pub charts: Vec<String>,
}

impl Figure {
    fn of(
        title: &'static str,
        note: &str,
        keys: &[(RGBAColor, &str)],
        charts: Vec<String>,
    ) -> Figure {
        let keys = keys.iter().map(|(ink, text)| key(*ink, text)).collect();
        Figure { title, note: note.to_string(), keys, charts }
    }
}

/// All of them.
pub fn figures(results: &Results) -> Vec<Figure> {
    let mut all = vec![
        relaunches(results),
        over_points(results, true),
        over_points(results, false),
        times(results),
        pages(results),
        cpu(results),
        memory(results),
        every_relaunch(results),
        totals(results),
    ];
    all.retain(|figure| figure.charts.iter().any(|chart| !chart.is_empty()));
    all
}

/// The colour of each arm at any point: grey without a limit, warm ones for the kernel.
fn inks(results: &Results) -> Vec<(&str, RGBColor)> {
    let mut inks: Vec<(&str, RGBColor)> = Vec::new();
    let (warm, cool) = ([ORANGE, BROWN, CLAY], [BLUE, TEAL, VIOLET, SKY, MOSS]);
    let mut used = (0, 0);
    for arm in results.points.iter().flat_map(|point| &point.arms) {
        if inks.iter().any(|(name, _)| *name == arm.name) {
            continue;
        }
        let ink = match arm.role {
            Role::Unlimited => GREY,
            Role::Kernel => {
                used.0 += 1;
                warm[(used.0 - 1) % warm.len()]
            }
            _ => {
                used.1 += 1;
                cool[(used.1 - 1) % cool.len()]
            }
        };
        inks.push((&arm.name, ink));
    }
    inks
}

fn legend(results: &Results) -> String {
    let ablations = |name: &str| {
        let arms = results.base_arms();
        arms.iter().any(|arm| arm.name == name && arm.role == Role::Ablation)
    };
    let inks = inks(results).into_iter().filter(|(name, _)| !ablations(name));
    inks.map(|(name, ink)| key(ink.mix(1.0), name)).collect()
}

/// A bar from zero to the median, on to the 95th percentile, on to the worst.
fn relaunch_bar(name: &str, own: f64, of: &Summary) -> Bar {
    let own = own.min(of.p50);
    let parts = vec![
        (own, GREY.mix(1.0)),
        (of.p50 - own, BLUE.mix(1.0)),
        (of.p95 - of.p50, BLUE.mix(0.5)),
        (of.max - of.p95, BLUE.mix(0.2)),
    ];
    let note = format!("{} / {} / {}", number(of.p50), number(of.p95), number(of.max));
    Bar { name: name.to_string(), parts, note }
}

/// What a relaunch takes without any swapping, where the arm knows.
fn own_ms(arm: &Arm) -> f64 {
    arm.replay.as_ref().map_or(0.0, |one| one.own_ms.p50)
}

fn relaunch_bars(
    results: &Results,
    title: &str,
    of: impl Fn(&Arm) -> Option<(f64, Summary)>,
) -> Bars {
    let row = |arm: &Arm| of(arm).map(|(own, summary)| relaunch_bar(&arm.name, own, &summary));
    let rows = results.base_arms().iter().filter_map(row).collect();
    Bars { title: title.to_string(), unit: "ms", rows, limit: None }
}

fn relaunches(results: &Results) -> Figure {
    let mut charts = Vec::new();
    let all = relaunch_bars(results, "all relaunches", |arm| Some((own_ms(arm), arm.relaunch_ms)));
    if !all.rows.is_empty() {
        charts.push(all.svg());
    }
    for program in &results.programs {
        let title = format!("{}, {}", program.name, program.layout);
        let bars = relaunch_bars(results, &title, |arm| {
            let one = arm.per_program.iter().find(|one| one.name == program.name)?;
            Some((0.0, one.relaunch_ms))
        });
        charts.push(bars.svg());
    }
    let keys = [
        (GREY.mix(1.0), "the program itself, where it is known"),
        (BLUE.mix(1.0), "to the median"),
        (BLUE.mix(0.5), "to the 95th percentile"),
        (BLUE.mix(0.2), "to the worst"),
    ];
    let note = "From the switch to the last answer, in milliseconds; shorter is better. A bar that is far \
                beyond all others is cut.";
    Figure::of("How long until a program in the background answers again?", note, &keys, charts)
}

/// Over the memory that there is, at the similarity of the base point; or the other way round.
fn over_points(results: &Results, is_total: bool) -> Figure {
    let base = results.base();
    let place = |point: &Point| match is_total {
        true => point.total_part.filter(|_| point.similarity == base.similarity),
        false => point.similarity.filter(|_| point.total_part == base.total_part),
    };
    let mut charts = Vec::new();
    type Of = fn(&GroupResult) -> Estimate;
    let kinds: [(&str, Of); 2] = [("p50", |one| one.p50_ms), ("p95", |one| one.p95_ms)];
    for ((percentile, of), group) in
        kinds.iter().flat_map(|kind| Group::OF_LAYOUTS.map(|g| (kind, g)))
    {
        let mut lines: Vec<Line> = Vec::new();
        for (name, ink) in inks(results) {
            let mut points: Vec<(f64, Estimate)> = Vec::new();
            for point in &results.points {
                let arm = results.at(point.point, name).filter(|arm| arm.role != Role::Ablation);
                let found = arm.and_then(|arm| arm.group(group));
                points
                    .extend(place(&point.point).zip(found).map(|(at, one)| (percent(at), of(one))));
            }
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            if !points.is_empty() {
                lines.push(Line { name: name.to_string(), ink, points });
            }
        }
        // A point alone is no curve.
        if lines.iter().any(|line| line.points.len() > 1) {
            let curves = Curves {
                title: format!("{group} programs, {percentile}"),
                across: if is_total {
                    "% of the memory"
                } else {
                    "% of a working set the same again"
                },
                up: "ms; less is better",
                is_logarithmic: true,
                limit: None,
                lines,
            };
            charts.push(curves.svg());
        }
    }
    let note =
        "Whiskers are 95 % intervals. The scale is logarithmic: equal distances are equal ratios.";
    let title = if is_total {
        "Who wins, when? Over the memory that there is"
    } else {
        "The same over how much of a working set is the same at each return"
    };
    Figure { keys: legend(results), ..Figure::of(title, note, &[], charts) }
}

/// A chart for each group of programs at the base point.
fn of_groups(
    results: &Results,
    unit: &'static str,
    row: impl Fn(&Arm, &Breakdown) -> Option<(Vec<(f64, RGBAColor)>, String)>,
) -> Vec<String> {
    let chart = |group: Group| {
        let here = breakdown_rows(results).filter(|(_, one)| one.group == group);
        let rows: Vec<Bar> = here
            .filter_map(|(arm, one)| {
                let (parts, note) = row(arm, &one.breakdown)?;
                Some(Bar { name: arm.name.clone(), parts, note })
            })
            .collect();
        let title = format!("{group} programs");
        (!rows.is_empty()).then(|| Bars { title, unit, rows, limit: None }.svg())
    };
    Group::OF_LAYOUTS.into_iter().filter_map(chart).collect()
}

fn times(results: &Results) -> Figure {
    let keys = [
        (GREY.mix(1.0), "the program's own work"),
        (VIOLET.mix(1.0), "telling that the app comes"),
        (TEAL.mix(1.0), "codec of faults"),
        (BLUE.mix(1.0), "handling of faults"),
        (SKY.mix(1.0), "waking, waiting, the rest"),
        (ORANGE.mix(1.0), "faults inside the kernel"),
    ];
    let charts = of_groups(results, "ms", |_, one| {
        // Where faults are answered inside the kernel, nobody can tell codec from waiting.
        let rest = if one.codec_ms.is_some() { SKY } else { ORANGE };
        let parts = vec![
            (one.work_ms.min(one.relaunch_ms), GREY.mix(1.0)),
            (one.call_ms, VIOLET.mix(1.0)),
            (one.codec_ms.unwrap_or(0.0), TEAL.mix(1.0)),
            (one.handler_ms.unwrap_or(0.0), BLUE.mix(1.0)),
            (one.wait_ms, rest.mix(1.0)),
        ];
        Some((parts, number(one.relaunch_ms)))
    });
    let note = "Mean of one relaunch at the base point. The program's own work is what the same switches took \
                in dram. For the kernel's arms, all that a fault costs is one part: codec and handling \
                are inside the program's own fault.";
    Figure::of("Why? Where the time goes", note, &keys, charts)
}

/// Of demos by group; of replays in all.
fn pages(results: &Results) -> Figure {
    let keys = [
        (GREY.mix(1.0), "in memory already"),
        (TEAL.mix(1.0), "brought back ahead"),
        (SKY.mix(1.0), "ahead, and not used"),
        (RED.mix(1.0), "waited for in a fault"),
    ];
    let mut charts = of_groups(results, "pages", |_, one| {
        let parts = vec![
            (one.mapped_pages.unwrap_or(0.0), GREY.mix(1.0)),
            (one.restored_pages, TEAL.mix(1.0)),
            (one.faulted_pages, RED.mix(1.0)),
        ];
        Some((parts, format!("{:.0} faults", one.faulted_pages)))
    });
    let replayed = |arm: &Arm| {
        let early = arm.replay.as_ref()?.prefetch;
        let parts = vec![
            (early.used as f64, TEAL.mix(1.0)),
            (early.pages.saturating_sub(early.used) as f64, SKY.mix(1.0)),
            (arm.faults as f64, RED.mix(1.0)),
        ];
        let note = format!("{} pages", arm.faults + early.pages);
        Some(Bar { name: arm.name.clone(), parts, note })
    };
    let rows: Vec<Bar> = results.base_arms().iter().filter_map(replayed).collect();
    if !rows.is_empty() {
        let title = "pages brought back".to_string();
        charts.push(Bars { title, unit: "pages", rows, limit: None }.svg());
    }
    let note = "Of a demo, those that one relaunch touches. What came back ahead may be more than what was \
                touched; then less was in memory already than is shown.";
    Figure::of("Where the pages of relaunches were", note, &keys, charts)
}

fn cpu(results: &Results) -> Figure {
    let keys = [
        (BLUE.mix(1.0), "out: hash, compress, store"),
        (TEAL.mix(1.0), "back: find, decompress, check"),
        (ORANGE.mix(1.0), "crossings to the kernel"),
        (GREY.mix(1.0), "all that swapping cost, where the parts are not known"),
    ];
    let row = |arm: &Arm| {
        let all = arm.swapping_cpu_ms?;
        let parts = match &arm.replay {
            Some(one) => vec![
                (one.compress_ms, BLUE.mix(1.0)),
                (one.decompress_ms, TEAL.mix(1.0)),
                (one.kernel_ms, ORANGE.mix(1.0)),
            ],
            None => vec![(all, GREY.mix(1.0))],
        };
        Some(Bar { name: arm.name.clone(), parts, note: format!("{} ms", number(all)) })
    };
    let rows: Vec<Bar> = results.base_arms().iter().filter_map(row).collect();
    let title = "at the base point".to_string();
    let charts = match rows.is_empty() {
        true => Vec::new(),
        false => vec![Bars { title, unit: "ms", rows, limit: None }.svg()],
    };
    Figure::of("Processor time of swapping", "", &keys, charts)
}

fn memory(results: &Results) -> Figure {
    let keys = [
        (GREY.mix(1.0), "in the programs"),
        (SKY.mix(1.0), "parked"),
        (BLUE.mix(1.0), "compressed pages"),
        (ORANGE.mix(1.0), "page tables"),
        (VIOLET.mix(1.0), "the daemon"),
    ];
    let of_mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let row = |arm: &Arm| {
        let held = arm.kept.or(arm.peak)?;
        let parts = vec![
            (of_mib(held.resident_bytes), GREY.mix(1.0)),
            (of_mib(held.parked_bytes), SKY.mix(1.0)),
            (of_mib(held.pool_bytes), BLUE.mix(1.0)),
            (of_mib(held.tables_bytes), ORANGE.mix(1.0)),
            (of_mib(held.daemon_bytes), VIOLET.mix(1.0)),
        ];
        let note = match (arm.kept.is_some(), held.pool_bytes, held.disk_bytes) {
            (false, ..) => format!("{} MiB", mib(arm.total_bytes_peak)),
            (_, 0, 0) => String::new(),
            (_, 0, disk) => format!("{} on disk", mib(disk)),
            (_, pool, _) => format!("{} in {}", mib(held.stored_bytes), mib(pool)),
        };
        Some(Bar { name: arm.name.clone(), parts, note })
    };
    let rows: Vec<Bar> = results.base_arms().iter().filter_map(row).collect();
    let limit = results.points.first().map_or(0, |point| point.total_bytes);
    let bars = Bars {
        title: String::new(),
        unit: "MiB",
        rows,
        limit: (limit > 0).then(|| (of_mib(limit), "total of all that are limited")),
    };
    let charts = if bars.rows.is_empty() { Vec::new() } else { vec![bars.svg()] };
    let note = "Of a demo just before a relaunch, the mean over all of them; behind each bar what is not in the \
                programs, and in how much memory that is. Of a replay when it was most.";
    Figure::of("What was kept where", note, &keys, charts)
}

fn every_relaunch(results: &Results) -> Figure {
    let inks = inks(results);
    let mut rows = Vec::new();
    for program in &results.programs {
        for arm in results.base_arms().iter().filter(|arm| arm.role != Role::Ablation) {
            let own = arm.samples.iter().filter(|sample| sample.program == program.name);
            let times: Vec<f64> = own.map(|sample| sample.relaunch_ms).collect();
            if times.is_empty() {
                continue;
            }
            let ink = inks.iter().find(|one| one.0 == arm.name).map_or(GREY, |one| one.1);
            let median = Summary::of(&times).p50;
            rows.push((format!("{}: {}", program.name, arm.name), ink, times, median));
        }
    }
    let title = "every relaunch by program and arm".to_string();
    let charts = match rows.is_empty() {
        true => Vec::new(),
        false => vec![Dots { title, unit: "ms", rows }.svg()],
    };
    let note = "One dot a switch, the stroke is the median.";
    Figure { keys: legend(results), ..Figure::of("Every relaunch", note, &[], charts) }
}

fn totals(results: &Results) -> Figure {
    let of_mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let line = |(name, ink): (&str, RGBColor)| {
        let arm = results.at(results.base(), name)?;
        let exact = |value: f64| Estimate { value, low: value, high: value };
        let at = |point: &crate::TotalPoint| (point.at_ms as f64 / 1e3, exact(of_mib(point.bytes)));
        let points: Vec<(f64, Estimate)> = arm.totals.iter().map(at).collect();
        (!points.is_empty()).then(|| Line { name: name.to_string(), ink, points })
    };
    let limit = results.points.first().map_or(0, |point| point.total_bytes);
    let curves = Curves {
        title: String::new(),
        across: "seconds",
        up: "MiB",
        is_logarithmic: false,
        limit: (limit > 0).then(|| (of_mib(limit), "total of all that are limited")),
        lines: inks(results).into_iter().filter_map(line).collect(),
    };
    let note = "Programs, compressed data, page tables and daemons together, from the first start to the last \
                answer.";
    let figure = Figure::of("Memory over time", note, &[], vec![curves.svg()]);
    Figure { keys: legend(results), ..figure }
}

/// One picture that says it all, for a README: relaunch times by arm, by layout where programs have
/// one. A standalone SVG for light and dark surroundings.
pub fn picture(results: &Results) -> String {
    let of_layout = |layout: Layout| {
        let names: Vec<&str> = results
            .programs
            .iter()
            .filter(|program| program.layout == layout)
            .map(|program| program.name.as_str())
            .collect();
        let title = format!("{layout} working sets ({})", names.join(", "));
        relaunch_bars(results, &title, |arm| {
            let own = arm.samples.iter().filter(|one| names.contains(&one.program.as_str()));
            let times: Vec<f64> = own.map(|sample| sample.relaunch_ms).collect();
            (!times.is_empty()).then(|| (0.0, Summary::of(&times)))
        })
    };
    let mut parts = vec![of_layout(Layout::Clustered), of_layout(Layout::Scattered)];
    parts.retain(|bars| !bars.rows.is_empty());
    if parts.is_empty() {
        let title = results.title.as_str();
        parts.push(relaunch_bars(results, title, |arm| Some((own_ms(arm), arm.relaunch_ms))));
    }
    let point = results.points.first().map(named).unwrap_or_default();
    let facts = format!("median / p95 / worst in ms; {point}; {}", facts(results));
    drawn("Time until a program in the background answers again", &facts, &parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{demo, replay};

    #[test]
    fn a_picture_stands_alone() {
        for (results, name) in [(demo(), "clew"), (replay(), "&lt;mine&gt;")] {
            let text = picture(&results);
            assert!(
                text.starts_with("<svg") && text.contains("<style>") && text.contains(name),
                "{text}"
            );
            assert!(!text.contains("href") && !text.contains("NaN"));
        }
    }

    #[test]
    fn figures_are_those_of_the_result() {
        let count = |results: &Results| {
            let figures = figures(results);
            let charts = figures.iter().map(|figure| figure.charts.len());
            (figures.len(), charts.sum::<usize>())
        };
        // All relaunches and those of four programs; p50 and p95 of two groups, over totals and
        // similarities; two breakdowns of two groups; CPU, memory, dots, totals.
        assert_eq!(count(&demo()), (9, 5 + 2 * 4 + 2 * 2 + 4));
        assert_eq!(count(&replay()), (4, 4));
        let mut one = demo();
        one.points.truncate(1);
        assert_eq!(count(&one), (7, 5 + 2 * 2 + 4));
        assert_eq!(count(&Results::default()), (0, 0));
    }
}
