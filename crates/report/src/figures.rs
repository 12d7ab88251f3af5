//! Which charts a result has.

use plotters::style::{Color, RGBAColor, RGBColor};

use crate::chart::{
    BLUE, BROWN, Bar, Bars, CLAY, Curves, GREY, Line, MOSS, ORANGE, RED, SKY, TEAL, VIOLET, key,
    picture as drawn,
};
use crate::facts::{Breakdown, Layout};
use crate::memory::Memory;
use crate::percent;
use crate::replay::Prefetched;
use crate::result::{Arm, Group, GroupResult, Point, Results, Role};
use crate::shown::{mib, number};
use crate::statistics::{Estimate, Summary};
use crate::tables::{breakdown_rows, facts, named};

/// A heading with its charts.
pub struct Figure {
    pub title: &'static str,
    pub note: &'static str,
    /// As HTML.
    pub keys: String,
    pub charts: Vec<String>,
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
    for figure in &mut all {
        figure.charts.retain(|chart| !chart.is_empty());
    }
    all.retain(|figure| !figure.charts.is_empty());
    all
}

/// A part of bars: its colour, what it is, its size in each of them.
type Part<'a, T> = (RGBAColor, &'a str, fn(&T) -> f64);

/// What parts are, for a page.
fn keys<T>(parts: &[Part<'_, T>]) -> String {
    parts.iter().map(|(ink, what, _)| key(*ink, what)).collect()
}

/// Bars of such parts; a row has a name, what its parts are taken from, and a note.
fn bars<T>(
    title: &str,
    unit: &'static str,
    parts: &[Part<'_, T>],
    rows: impl IntoIterator<Item = (String, T, String)>,
) -> Bars {
    let row = |(name, of, note): (String, T, String)| {
        let parts = parts.iter().map(|(ink, _, size)| (size(&of), *ink)).collect();
        Bar { name, parts, note, ..Bar::default() }
    };
    let rows = rows.into_iter().map(row).collect();
    Bars { title: title.to_string(), unit, rows, limit: None }
}

const fn solid(ink: RGBColor) -> RGBAColor {
    pale(ink, 1.0)
}

const fn pale(RGBColor(red, green, blue): RGBColor, part: f64) -> RGBAColor {
    RGBAColor(red, green, blue, part)
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

/// Of the time without any swapping, where the arm knows, and of all relaunches.
const RELAUNCH: [Part<'_, (f64, Summary)>; 4] = [
    (solid(GREY), "the program itself, where it is known", |(own, of)| own.min(of.p50)),
    (solid(BLUE), "to the median", |(own, of)| of.p50 - own.min(of.p50)),
    (pale(BLUE, 0.5), "to the 95th percentile", |(_, of)| of.p95 - of.p50),
    (pale(BLUE, 0.2), "to the worst", |(_, of)| of.max - of.p95),
];

fn relaunch_bars(
    results: &Results,
    title: &str,
    of: impl Fn(&Arm) -> Option<(f64, Summary)>,
) -> Bars {
    let rows = results.base_arms().iter().filter_map(|arm| {
        let (own, all) = of(arm)?;
        let note = format!("{} / {} / {}", number(all.p50), number(all.p95), number(all.max));
        Some((arm.name.clone(), (own, all), note))
    });
    bars(title, "ms", &RELAUNCH, rows)
}

fn all_relaunches(results: &Results, title: &str) -> Bars {
    let own = |arm: &Arm| arm.replay.as_ref().map_or(0.0, |one| one.own_ms.p50);
    relaunch_bars(results, title, |arm| Some((own(arm), arm.relaunch_ms)))
}

fn relaunches(results: &Results) -> Figure {
    let mut charts = vec![all_relaunches(results, "all relaunches")];
    charts.extend(results.programs.iter().map(|program| {
        relaunch_bars(results, &format!("{}, {}", program.name, program.layout), |arm| {
            let one = arm.per_program.iter().find(|one| one.name == program.name)?;
            Some((0.0, one.relaunch_ms))
        })
    }));
    Figure {
        title: "How long until a program in the background answers again?",
        note: "From the switch to the last answer, in milliseconds; shorter is better. A bar that is far \
               beyond all others is cut.",
        keys: keys(&RELAUNCH),
        charts: charts.iter().map(Bars::svg).collect(),
    }
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
    Figure {
        title: match is_total {
            true => "Who wins, when? Over the memory that there is",
            false => "The same over how much of a working set is the same at each return",
        },
        note: "Whiskers are 95 % intervals. The scale is logarithmic: equal distances are equal ratios.",
        keys: legend(results),
        charts,
    }
}

/// A chart for each group of programs at the base point.
fn of_groups(
    results: &Results,
    unit: &'static str,
    parts: &[Part<'_, Breakdown>],
    note: fn(&Breakdown) -> String,
) -> Vec<String> {
    let chart = |group: Group| {
        let here = breakdown_rows(results).filter(|(_, one)| one.group == group);
        let rows = here.map(|(arm, one)| (arm.name.clone(), one.breakdown, note(&one.breakdown)));
        bars(&format!("{group} programs"), unit, parts, rows).svg()
    };
    Group::OF_LAYOUTS.into_iter().map(chart).collect()
}

fn times(results: &Results) -> Figure {
    // Where faults are answered inside the kernel, nobody can tell codec from waiting.
    let parts: [Part<'_, Breakdown>; 6] = [
        (solid(GREY), "the program's own work", |one| one.work_ms.min(one.relaunch_ms)),
        (solid(VIOLET), "telling that the app comes", |one| one.call_ms),
        (solid(TEAL), "codec of faults", |one| one.codec_ms.unwrap_or(0.0)),
        (solid(BLUE), "handling of faults", |one| one.handler_ms.unwrap_or(0.0)),
        (solid(SKY), "waking, waiting, the rest", |one| one.codec_ms.map_or(0.0, |_| one.wait_ms)),
        (solid(ORANGE), "faults inside the kernel", |one| match one.codec_ms {
            Some(_) => 0.0,
            None => one.wait_ms,
        }),
    ];
    Figure {
        title: "Why? Where the time goes",
        note: "Mean of one relaunch at the base point. The program's own work is what the same switches \
               took in dram. For the kernel's arms, all that a fault costs is one part: codec and \
               handling are inside the program's own fault.",
        keys: keys(&parts),
        charts: of_groups(results, "ms", &parts, |one| number(one.relaunch_ms)),
    }
}

/// Of demos by group; of replays in all.
fn pages(results: &Results) -> Figure {
    const AHEAD: (RGBAColor, &str) = (solid(TEAL), "brought back ahead");
    const FAULT: (RGBAColor, &str) = (solid(RED), "waited for in a fault");
    let seen: [Part<'_, Breakdown>; 3] = [
        (solid(GREY), "in memory already", |one| one.mapped_pages.unwrap_or(0.0)),
        (AHEAD.0, AHEAD.1, |one| one.restored_pages),
        (FAULT.0, FAULT.1, |one| one.faulted_pages),
    ];
    let replayed: [Part<'_, (Prefetched, u64)>; 3] = [
        (AHEAD.0, AHEAD.1, |(early, _)| early.used as f64),
        (solid(SKY), "ahead, and not used", |(early, _)| {
            early.pages.saturating_sub(early.used) as f64
        }),
        (FAULT.0, FAULT.1, |(_, faults)| *faults as f64),
    ];
    let faults = |one: &Breakdown| format!("{:.0} faults", one.faulted_pages);
    let mut charts = of_groups(results, "pages", &seen, faults);
    let keys = if charts[0].is_empty() { keys(&replayed) } else { keys(&seen) };
    let rows = results.base_arms().iter().filter_map(|arm| {
        let early = arm.replay.as_ref()?.prefetch;
        let note = format!("{} pages", arm.faults.saturating_add(early.pages));
        Some((arm.name.clone(), (early, arm.faults), note))
    });
    charts.push(bars("pages brought back", "pages", &replayed, rows).svg());
    Figure {
        title: "Where the pages of relaunches were",
        note: "Of a demo, those that one relaunch touches. What came back ahead may be more than what was \
               touched; then less was in memory already than is shown.",
        keys,
        charts,
    }
}

fn cpu(results: &Results) -> Figure {
    let parts: [Part<'_, Arm>; 4] = [
        (solid(BLUE), "out: hash, compress, store", |arm| {
            arm.replay.as_ref().map_or(0.0, |one| one.compress_ms)
        }),
        (solid(TEAL), "back: find, decompress, check", |arm| {
            arm.replay.as_ref().map_or(0.0, |one| one.decompress_ms)
        }),
        (solid(ORANGE), "crossings to the kernel", |arm| {
            arm.replay.as_ref().map_or(0.0, |one| one.kernel_ms)
        }),
        (solid(GREY), "all that it cost, where the parts are not known", |arm| match arm.replay {
            Some(_) => 0.0,
            None => arm.swapping_cpu_ms.unwrap_or(0.0),
        }),
    ];
    let rows = results.base_arms().iter().filter_map(|arm| {
        let all = arm.swapping_cpu_ms?;
        Some((arm.name.clone(), arm.clone(), format!("{} ms", number(all))))
    });
    Figure {
        title: "Processor time of swapping",
        note: "At the base point.",
        keys: keys(&parts),
        charts: vec![bars("", "ms", &parts, rows).svg()],
    }
}

fn of_mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The total of the base point, as a line across a chart.
fn limit(results: &Results) -> Option<(f64, &'static str)> {
    let total = results.points.first().map_or(0, |point| point.total_bytes);
    (total > 0).then(|| (of_mib(total), "total of all that are limited"))
}

fn memory(results: &Results) -> Figure {
    let parts: [Part<'_, Memory>; 6] = [
        (solid(GREY), "in the programs", |held| of_mib(held.resident_bytes)),
        (solid(SKY), "parked", |held| of_mib(held.parked_bytes)),
        (solid(BLUE), "compressed pages", |held| of_mib(held.pool_bytes)),
        (solid(MOSS), "lent to the kernel's zram", |held| of_mib(held.kernel_bytes)),
        (solid(ORANGE), "page tables", |held| of_mib(held.tables_bytes)),
        (solid(VIOLET), "the daemon", |held| of_mib(held.daemon_bytes)),
    ];
    let rows = results.base_arms().iter().filter_map(|arm| {
        let held = arm.kept.or(arm.peak)?;
        let note = match (arm.kept, held.pool_bytes, held.disk_bytes) {
            (None, ..) => format!("{} MiB", mib(arm.total_bytes_peak)),
            _ if held.donor_bytes > 0 => format!("{} at donors", mib(held.donor_bytes)),
            (_, 0, 0) => String::new(),
            (_, 0, disk) => format!("{} on disk", mib(disk)),
            (_, pool, _) => format!("{} in {}", mib(held.stored_bytes), mib(pool)),
        };
        Some((arm.name.clone(), held, note))
    });
    let bars = bars("", "MiB", &parts, rows);
    Figure {
        title: "What was kept where",
        note: "Of a demo just before a relaunch, the mean over all of them; behind each bar what is not in \
               the programs, and in how much memory that is. Of a replay when it was most.",
        keys: keys(&parts),
        charts: vec![Bars { limit: limit(results), ..bars }.svg()],
    }
}

fn every_relaunch(results: &Results) -> Figure {
    let inks = inks(results);
    let mut rows = Vec::new();
    for program in &results.programs {
        for (name, ink) in &inks {
            let samples = results.at(results.base(), name).map_or(&[][..], |arm| &arm.samples);
            let own = samples.iter().filter(|sample| sample.program == program.name);
            let dots: Vec<_> = own.map(|one| (one.relaunch_ms, pale(*ink, 0.6))).collect();
            if !dots.is_empty() {
                let name = format!("{}: {name}", program.name);
                rows.push(Bar { name, dots, ..Bar::default() });
            }
        }
    }
    Figure {
        title: "Every relaunch",
        note: "One dot a switch, the stroke is the median.",
        keys: legend(results),
        charts: vec![Bars { title: String::new(), unit: "ms", rows, limit: None }.svg()],
    }
}

fn totals(results: &Results) -> Figure {
    let line = |(name, ink): (&str, RGBColor)| {
        let arm = results.at(results.base(), name)?;
        let exact = |value: f64| Estimate { value, low: value, high: value };
        let at = |point: &crate::TotalPoint| (point.at_ms as f64 / 1e3, exact(of_mib(point.bytes)));
        let points: Vec<(f64, Estimate)> = arm.totals.iter().map(at).collect();
        (!points.is_empty()).then(|| Line { name: name.to_string(), ink, points })
    };
    let curves = Curves {
        title: String::new(),
        across: "seconds",
        up: "MiB",
        is_logarithmic: false,
        limit: limit(results),
        lines: inks(results).into_iter().filter_map(line).collect(),
    };
    Figure {
        title: "Memory over time",
        note: "Programs, compressed data, page tables and daemons together, from the first start to the \
               last answer of the first round.",
        keys: legend(results),
        charts: vec![curves.svg()],
    }
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
        parts.push(all_relaunches(results, &results.title));
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
