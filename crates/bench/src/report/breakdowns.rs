//! Stacked bars at the base point: where the time of a relaunch goes, where its pages came from, and
//! where memory is between relaunches.

use super::svg::{Anchor, Svg, ticks};
use super::{mib, ms};
use crate::full::{FullResult, Group, PointArm};

const WIDTH: f64 = 920.0;
const NAMES: f64 = 210.0;
const ROW: f64 = 26.0;

/// A part of a bar: its class, its size, what it is.
struct Part {
    class: &'static str,
    size: f64,
    tip: String,
}

struct Row {
    name: String,
    parts: Vec<Part>,
    note: String,
}

/// Time by part, for both groups of programs.
pub fn times(result: &FullResult) -> String {
    of_groups(result, "ms", |arm, group| {
        let found = arm.groups.iter().find(|one| one.group == group)?.breakdown;
        let part = |class, size: f64, what: &str| Part {
            class,
            size,
            tip: format!("{}: {what}: {} ms", arm.name, ms(size)),
        };
        // Where faults are answered inside the kernel, nobody can tell codec from waiting.
        let rest = if found.codec_ms.is_some() { "waiting and the rest" } else { "faults" };
        let rest_class = if found.codec_ms.is_some() { "part-wait" } else { "part-kernel" };
        Some(Row {
            name: arm.name.to_string(),
            parts: vec![
                part("part-work", found.work_ms.min(found.relaunch_ms), "the program's own work"),
                part("part-call", found.call_ms, "telling that the app comes"),
                part("part-codec", found.codec_ms.unwrap_or(0.0), "codec of faults"),
                part("part-handler", found.handler_ms.unwrap_or(0.0), "handling of faults"),
                part(rest_class, found.wait_ms, rest),
            ],
            note: ms(found.relaunch_ms),
        })
    })
}

/// Pages that a relaunch touches, by where they were.
pub fn pages(result: &FullResult) -> String {
    of_groups(result, "pages", |arm, group| {
        let found = arm.groups.iter().find(|one| one.group == group)?.breakdown;
        let mapped = found.mapped_pages.unwrap_or(0.0);
        let part = |class, size: f64, what: &str| Part {
            class,
            size,
            tip: format!("{}: {what}: {size:.0} pages", arm.name),
        };
        Some(Row {
            name: arm.name.to_string(),
            parts: vec![
                part("part-mapped", mapped, "in memory already"),
                part("part-restored", found.restored_pages, "brought back ahead"),
                part("part-faulted", found.faulted_pages, "waited for in a fault"),
            ],
            note: format!("{:.0} faults", found.faulted_pages),
        })
    })
}

fn of_groups(
    result: &FullResult,
    unit: &str,
    row: impl Fn(&PointArm, Group) -> Option<Row>,
) -> String {
    let Some(point) = result.points.first() else { return String::new() };
    let mut text = String::new();
    for group in [Group::Clustered, Group::Scattered] {
        let rows: Vec<Row> = point.arms.iter().filter_map(|arm| row(arm, group)).collect();
        if !rows.is_empty() {
            text += &stacked(&rows, &format!("{group} programs"), unit, None);
        }
    }
    text
}

/// Memory between relaunches.
pub fn kept(result: &FullResult) -> String {
    let Some(point) = result.points.first() else { return String::new() };
    let in_mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let rows: Vec<Row> = point
        .arms
        .iter()
        .map(|arm| {
            let kept = arm.kept;
            let part = |class, bytes: u64, what: &str| Part {
                class,
                size: in_mib(bytes),
                tip: format!("{}: {what}: {} MiB", arm.name, mib(bytes)),
            };
            let note = match (kept.pool_bytes, kept.disk_bytes) {
                (0, 0) => String::new(),
                (0, disk) => format!("{} on disk", mib(disk)),
                (pool, _) => format!("{} in {}", mib(kept.stored_bytes), mib(pool)),
            };
            Row {
                name: arm.name.to_string(),
                parts: vec![
                    part("part-mapped", kept.resident_bytes, "in the programs"),
                    part("part-pool", kept.pool_bytes, "compressed pages"),
                    part("part-daemon", kept.daemon_bytes, "the daemon"),
                ],
                note,
            }
        })
        .collect();
    stacked(&rows, "between two relaunches", "MiB", Some(in_mib(point.total_bytes)))
}

fn stacked(rows: &[Row], title: &str, unit: &str, limit: Option<f64>) -> String {
    let bottom = 24.0 + ROW * rows.len() as f64;
    let mut svg = Svg::new(WIDTH, bottom + 34.0);
    svg.text("strong", NAMES, 14.0, Anchor::Start, title);
    let whole = |row: &Row| row.parts.iter().map(|part| part.size).sum::<f64>();
    let most = rows.iter().map(whole).fold(limit.unwrap_or(0.0), f64::max);
    // Where one arm is far beyond all others, its bar is cut: the others are to be seen.
    let mut sizes: Vec<f64> = rows.iter().map(whole).collect();
    sizes.sort_by(f64::total_cmp);
    let second = sizes.iter().rev().nth(1).copied().unwrap_or(most);
    let cut = if most > second * 2.5 { second * 1.15 } else { most };
    let ticks = ticks(cut, 6);
    let end = ticks.last().copied().unwrap_or(1.0);
    let plot = WIDTH - NAMES - 130.0;
    let x = |value: f64| NAMES + (value / end).min(1.0) * plot;
    for &tick in &ticks {
        svg.line("grid", (x(tick), 22.0), (x(tick), bottom));
        svg.text("soft small", x(tick), bottom + 15.0, Anchor::Middle, &format!("{tick:.0}"));
    }
    svg.text("soft small", x(end), bottom + 30.0, Anchor::End, unit);
    for (number, row) in rows.iter().enumerate() {
        let y = 24.0 + ROW * number as f64;
        svg.text("", NAMES - 10.0, y + 17.0, Anchor::End, &row.name);
        let mut from = 0.0;
        for part in &row.parts {
            let to = from + part.size;
            if x(to) - x(from) > 0.05 {
                svg.tipped_rect(
                    part.class,
                    x(from),
                    y + 4.0,
                    x(to) - x(from),
                    ROW - 8.0,
                    &part.tip,
                );
            }
            from = to;
        }
        let note = if from > end { format!("→ {}", row.note) } else { row.note.clone() };
        svg.text("", x(from) + 8.0, y + 17.0, Anchor::Start, &note);
    }
    if let Some(limit) = limit {
        svg.line("limit", (x(limit), 18.0), (x(limit), bottom));
        svg.text("soft small", x(limit) - 4.0, 14.0, Anchor::End, "total of all arms but dram");
    }
    svg.finish(title, None)
}
