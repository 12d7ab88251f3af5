//! The page: one file that opens offline, in light and dark.

use std::fmt::Write;

use super::svg::{Row, bars, escaped};
use super::{hits, notes, number, optional, percent};
use crate::compare::Comparison;
use crate::replay::Outcome;

const TEMPLATE: &str = include_str!("template.htm");

/// The whole page.
pub fn page(comparison: &Comparison) -> String {
    let outcomes = &comparison.outcomes;
    let notes = notes(comparison);
    let items: String = notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
    let values = [
        ("trace", escaped(&comparison.trace)),
        ("notes", items),
        ("relaunch", relaunch(outcomes)),
        ("cpu", cpu(outcomes)),
        ("memory", memory(outcomes)),
        ("pages", pages(outcomes)),
        ("rows", table(outcomes)),
    ];
    filled(TEMPLATE, &values)
}

/// Puts each value in its `{{place}}`, in one pass: what a value contains is not looked at again.
fn filled(template: &str, values: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, behind)) = after.split_once("}}") else { break };
        text += before;
        if let Some((_, value)) = values.iter().find(|(one, _)| *one == name) {
            text += value;
        }
        rest = behind;
    }
    text + rest
}

fn relaunch(outcomes: &[Outcome]) -> String {
    let row = |outcome: &Outcome| {
        let (own, all) = (outcome.own_ms, outcome.relaunch_ms);
        let own = own.p50.min(all.p50);
        let parts = vec![
            ("own", own),
            ("p50", all.p50 - own),
            ("p95", all.p95 - all.p50),
            ("max", all.max - all.p95),
        ];
        let label = format!("{} / {} / {} ms", number(all.p50), number(all.p95), number(all.max));
        Row { name: outcome.scheme.clone(), parts, label }
    };
    bars("Relaunch time by scheme", "ms", &outcomes.iter().map(row).collect::<Vec<_>>())
}

fn cpu(outcomes: &[Outcome]) -> String {
    let row = |outcome: &Outcome| Row {
        name: outcome.scheme.clone(),
        parts: vec![
            ("out", outcome.compress_ms),
            ("back", outcome.decompress_ms),
            ("kernel", outcome.kernel_ms),
        ],
        label: format!("{} ms", number(outcome.cpu_ms)),
    };
    bars("CPU time of swapping by scheme", "ms", &outcomes.iter().map(row).collect::<Vec<_>>())
}

fn memory(outcomes: &[Outcome]) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let row = |outcome: &Outcome| {
        let peak = &outcome.peak;
        let parts = vec![
            ("resident", mib(peak.resident_bytes)),
            ("parked", mib(peak.parked_bytes)),
            ("pool", mib(peak.pool_bytes)),
            ("tables", mib(peak.tables_bytes)),
        ];
        let label = format!("{} MiB", number(mib(outcome.peak_bytes)));
        Row { name: outcome.scheme.clone(), parts, label }
    };
    bars("Most memory by scheme", "MiB", &outcomes.iter().map(row).collect::<Vec<_>>())
}

fn pages(outcomes: &[Outcome]) -> String {
    let thousands = |pages: u64| pages as f64 / 1e3;
    let row = |outcome: &Outcome| {
        let early = &outcome.prefetch;
        let parts = vec![
            ("fault", thousands(outcome.faults)),
            ("used", thousands(early.used)),
            ("unused", thousands(early.pages.saturating_sub(early.used))),
        ];
        let all = outcome.faults + early.pages;
        Row { name: outcome.scheme.clone(), parts, label: format!("{all} pages") }
    };
    let rows: Vec<Row> = outcomes.iter().map(row).collect();
    bars("Pages brought back by scheme", "thousand", &rows)
}

fn table(outcomes: &[Outcome]) -> String {
    let mut rows = String::new();
    for o in outcomes {
        let cells = [
            number(o.relaunch_ms.p50),
            number(o.relaunch_ms.p95),
            number(o.relaunch_ms.max),
            o.relaunch_ms.n.to_string(),
            o.kills.to_string(),
            o.cold_launches.to_string(),
            number(o.compress_ms),
            number(o.decompress_ms),
            number(o.kernel_ms),
            optional(o.ratio),
            o.flash_read_bytes.to_string(),
            o.flash_written_bytes.to_string(),
            percent(hits(o)),
            o.faults.to_string(),
            percent(o.prefetch.accuracy),
            percent(o.prefetch.coverage),
            optional(o.read_amplification),
            o.belady.map_or("-".to_string(), |bound| bound.pages.to_string()),
        ];
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let _ = write!(rows, "<tr><th>{}</th>{cells}</tr>", escaped(&o.scheme));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::tests::example;
    use super::*;

    #[test]
    fn opens_offline_and_shows_every_scheme() {
        let text = page(&example());
        assert!(!text.contains("{{") && !text.contains("NaN"), "{text}");
        let outside = text.replace("http://www.w3.org/2000/svg", "");
        for forbidden in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!outside.contains(forbidden), "the page refers to {forbidden}");
        }
        assert_eq!(text.matches("<svg").count(), 4);
        for name in ["zram", "&lt;mine&gt;"] {
            assert_eq!(text.matches(&format!("<th>{name}</th>")).count(), 1);
        }
        assert!(!text.contains("<mine>") && text.contains("a &amp; b.clew"));
        assert!(text.contains("<td>4711</td>") && text.contains("lacks: flash"));
    }

    #[test]
    fn values_are_not_templates() {
        let values = [("a", "{{b}}".to_string()), ("b", "x".to_string())];
        assert_eq!(filled("1 {{a}} 2 {{b}}", &values), "1 {{b}} 2 x");
    }
}
