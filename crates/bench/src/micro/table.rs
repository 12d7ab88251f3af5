//! Measurements as plain text, at most 100 columns wide.

use std::fmt::Write;

use super::measured::{Costs, Measured};

/// A table for each benchmark, one line a measurement, and what the columns mean.
pub fn table(measured: &[Measured]) -> String {
    let mut text = String::new();
    for part in measured.chunk_by(|a, b| a.bench == b.bench) {
        text += &match part[0].bench.as_str() {
            "sensor" => of_the_sensor(part),
            bench => one_bench(bench, part),
        };
        text.push('\n');
    }
    text +=
        "ratio: Clew / peer at p50, smaller is better; density: compression ratio, Clew / peer\n";
    text
}

fn one_bench(bench: &str, measured: &[Measured]) -> String {
    let header = [bench, "clew p50", "p99", "peer", "peer p50", "p99", "ratio", "density"];
    let rows: Vec<[String; 8]> = measured
        .iter()
        .map(|one| {
            [
                one.case.clone(),
                time(one.clew.p50_us),
                time(one.clew.p99_us),
                one.peer.name.clone(),
                time(one.peer.costs.p50_us),
                time(one.peer.costs.p99_us),
                format!("{:.2}", one.ratio),
                compression(&one.clew, &one.peer.costs),
            ]
        })
        .collect();
    aligned(header, &rows)
}

/// What was learned, and what it cost.
fn of_the_sensor(measured: &[Measured]) -> String {
    let header =
        ["sensor", "relaunch p50", "worst", "peer", "peer p50", "coverage", "accuracy", "touches"];
    let more = |one: &Measured, name: &str| one.clew.more.get(name).copied().unwrap_or_default();
    let rows: Vec<[String; 8]> = measured
        .iter()
        .map(|one| {
            [
                one.case.clone(),
                time(one.clew.p50_us),
                time(one.clew.max_us),
                one.peer.name.clone(),
                time(one.peer.costs.p50_us),
                format!("{:.0} %", more(one, "coverage_pct")),
                format!("{:.0} %", more(one, "accuracy_pct")),
                format!("{:.0}", more(one, "touches")),
            ]
        })
        .collect();
    let note = "coverage: of what a relaunch used, the share that was held for hot before it;\n\
                accuracy: of what was held for hot, the share that was used; touches: of samples\n";
    aligned(header, &rows) + note
}

fn aligned(header: [&str; 8], rows: &[[String; 8]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.chain([header[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let mut text = String::new();
    let rows = rows.iter().map(|row| row.each_ref().map(String::as_str));
    for row in std::iter::once(header).chain(rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            // Writing to a String does not fail.
            let _ = match matches!(column, 0 | 3) {
                true => write!(line, "{gap}{cell:<width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

fn compression(clew: &Costs, peer: &Costs) -> String {
    let of = |costs: &Costs| costs.more.get("compression_ratio").copied();
    match (of(clew), of(peer)) {
        (Some(clew), Some(peer)) => format!("{clew:.2}/{peer:.2}"),
        _ => "-".to_string(),
    }
}

fn time(us: f64) -> String {
    match us {
        us if us < 99.95 => format!("{us:.1} us"),
        us if us < 9_950.0 => format!("{us:.0} us"),
        us => format!("{:.0} ms", us / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_a_terminal() {
        let costs = Costs { p50_us: 123_456.0, p99_us: 5_321.4, ..Costs::default() };
        let costs = costs.with("compression_ratio", 2.511);
        let peer = ("kernel-zram-willneed", costs.clone());
        let one = Measured::of("restore", "clustered-overlapped", "all pages", costs, peer);
        let text = table(&[one]);
        assert!(text.contains("123 ms") && text.contains("1.00"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}
