//! The result as plain text, at most 100 columns wide.

use std::fmt::Write;

use super::{mib, ms};
use crate::result::DemoResult;

const WIDTH: usize = 100;

/// The table, what did not run, and the verdict.
pub fn table(result: &DemoResult) -> String {
    let header = [
        "arm", "p50 ms", "p95 ms", "max ms", "n", "CPU s", "swap s", "peak MiB", "ratio", "faults",
        "disk MiB", "wrong",
    ];
    let rows: Vec<Vec<String>> = result
        .arms
        .iter()
        .map(|arm| {
            vec![
                arm.name.to_string(),
                ms(arm.relaunch_ms.p50),
                ms(arm.relaunch_ms.p95),
                ms(arm.relaunch_ms.max),
                arm.relaunch_ms.n.to_string(),
                format!("{:.1}", arm.cpu_seconds),
                arm.swapping_cpu_seconds.map_or("-".to_string(), |seconds| format!("{seconds:.1}")),
                mib(arm.total_bytes_peak),
                arm.ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
                arm.faults.to_string(),
                mib(arm.disk_bytes_written),
                arm.wrong_answers.to_string(),
            ]
        })
        .collect();
    let mut text = aligned(&header.map(String::from), &rows, 1);

    let mut header = vec!["program".to_string(), "layout".to_string()];
    header.extend(result.arms.iter().map(|arm| format!("{} p50/p95", arm.name)));
    let rows: Vec<Vec<String>> = result
        .programs
        .iter()
        .map(|program| {
            let mut row = vec![program.name.to_string(), program.layout.to_string()];
            row.extend(result.arms.iter().map(|arm| {
                let one = arm.per_program.iter().find(|one| one.name == program.name);
                one.map_or("-".to_string(), |one| {
                    format!("{}/{}", ms(one.relaunch_ms.p50), ms(one.relaunch_ms.p95))
                })
            }));
            row
        })
        .collect();
    text.push('\n');
    text += &aligned(&header, &rows, 2);
    text.push('\n');
    for skipped in &result.skipped {
        text += &wrapped(&format!("not run: {}: {}", skipped.name, skipped.reason));
    }
    let total = match result.settings.total_fraction {
        Some(fraction) => format!("{:.0} % of what dram used", fraction * 100.0),
        None => "as given".to_string(),
    };
    let total = match result.total_bytes {
        0 => String::new(),
        bytes => format!("Equal totals: {} MiB ({total}). ", mib(bytes)),
    };
    text += &wrapped(&format!(
        "{total}Linux {}, {} CPUs, seed {}, {:.0} s.",
        result.host.kernel, result.host.cpus, result.seed, result.duration_seconds
    ));
    text += &wrapped(&format!("{}.", result.verdict()));
    text
}

/// Columns two spaces apart: the first `left` to the left, numbers to the right.
pub fn aligned(header: &[String], rows: &[Vec<String>], left: usize) -> String {
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].len());
            cells.chain([header[column].len()]).max().unwrap_or_default()
        })
        .collect();
    let mut text = String::new();
    for row in std::iter::once(header).chain(rows.iter().map(Vec::as_slice)) {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let gap = if column == 0 { "" } else { "  " };
            // Writing to a String does not fail.
            let _ = match column < left {
                true => write!(line, "{gap}{cell:<width$}"),
                false => write!(line, "{gap}{cell:>width$}"),
            };
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Lines of at most [`WIDTH`] columns; a longer word has a line of its own.
pub fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            column = 0;
        }
        if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::{example, full_example};
    use super::*;

    #[test]
    fn fits_a_terminal_and_names_everything() {
        for result in [example(), full_example(0.5)] {
            let text = table(&result);
            for line in text.lines() {
                assert!(line.chars().count() <= WIDTH, "too wide: {line}");
            }
            for arm in &result.arms {
                assert!(text.contains(arm.name.name()));
            }
        }
        let text = table(&example());
        assert!(text.contains("not run: clew: no <userfaultfd> here"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("clew ")), "an arm that did not run");
    }
}
