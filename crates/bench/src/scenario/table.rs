//! A scenario's result as text, at most 100 columns wide.

use clew_report::aligned;

use super::{Added, ArmResult, PartResult, ScenarioResult};
use crate::arms::wait::Wait;

const LEGEND: &str = "added: the time of a visit minus that of the same visit in memory (dram);\n\
    sum: of all measured visits; x kernel: that sum / kernel-zram's; CPU: of everything, after the fill;\nmean, peak: memory in use; the kernel's is held by a hard limit, Clew's by its budget alone\n";

/// All parts, an arm a line, and what the columns mean.
pub fn text(result: &ScenarioResult) -> String {
    let mut text = format!("Clew scenario: {}\n\n", result.scenario);
    for part in &result.parts {
        text += &format!(
            "{} ({}):\n{} MiB for each arm, {} were used in memory\n\n",
            part.title,
            part.programs.join(", "),
            part.total_bytes >> 20,
            part.need_bytes >> 20
        );
        text += &visits(part);
        text.push('\n');
        text += &costs(part);
        text.push('\n');
        for arm in part.arms.iter().filter(|arm| !arm.waits.is_empty()) {
            text += &waits(arm);
            text.push('\n');
        }
    }
    if !result.parts.is_empty() {
        text += LEGEND;
    }
    for one in &result.skipped {
        text += &format!("not run: {}: {}\n", one.name, one.reason);
    }
    text
}

/// What each program's visits took, and what swapping added.
fn visits(part: &PartResult) -> String {
    let header =
        ["program", "arm", "visits", "p50 ms", "p95", "added p50", "p95", "sum s", "x kernel"]
            .map(String::from);
    let count = part.arms.first().map_or(0, |arm| arm.added.len());
    let mut rows = Vec::new();
    for number in 0..count {
        let kernel = part.arms.iter().find(|arm| arm.name == "kernel-zram");
        let kernel = kernel.map(|arm| arm.added[number].added_sum_ms);
        for (position, arm) in part.arms.iter().enumerate() {
            let one = &arm.added[number];
            let mut row = vec![
                if position == 0 { named(one) } else { String::new() },
                arm.name.clone(),
                one.visit_ms.n.to_string(),
                ms(one.visit_ms.p50),
                ms(one.visit_ms.p95),
            ];
            // Nothing is added to what is in memory.
            row.extend(match position {
                0 => vec!["-".to_string(); 4],
                _ => vec![
                    ms(one.added_ms.p50),
                    ms(one.added_ms.p95),
                    format!("{:.2}", one.added_sum_ms / 1e3),
                    ratio(one.added_sum_ms, kernel),
                ],
            });
            rows.push(row);
        }
    }
    aligned(&header, &rows, 2)
}

fn named(one: &Added) -> String {
    match one.is_front {
        true => format!("{}, in front", one.program),
        false => one.program.clone(),
    }
}

/// What the arms cost.
fn costs(part: &PartResult) -> String {
    let header = ["arm", "CPU s", "mean MiB", "peak", "ratio", "faults", "answers", "wrong"]
        .map(String::from);
    let row = |arm: &ArmResult| {
        vec![
            arm.name.clone(),
            arm.cpu_ms.map_or("-".to_string(), |ms| format!("{:.1}", ms / 1e3)),
            (arm.total_bytes_mean >> 20).to_string(),
            (arm.total_bytes_peak >> 20).to_string(),
            arm.ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
            arm.faults.to_string(),
            arm.answers.to_string(),
            arm.wrong_answers.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = part.arms.iter().map(row).collect();
    aligned(&header, &rows, 1)
}

/// What the faults of an arm waited for.
fn waits(arm: &ArmResult) -> String {
    let header =
        [&format!("{}: waits for", arm.name), "faults", "sum s", "mean us", "slow", "sum s"]
            .map(|name| name.to_string());
    let row = |wait: &Wait| {
        let mean_us = wait.seconds * 1e6 / wait.faults.max(1) as f64;
        vec![
            wait.cause.clone(),
            wait.faults.to_string(),
            format!("{:.2}", wait.seconds),
            format!("{mean_us:.1}"),
            wait.slow_faults.to_string(),
            format!("{:.2}", wait.slow_seconds),
        ]
    };
    let rows: Vec<Vec<String>> = arm.waits.iter().map(row).collect();
    aligned(&header, &rows, 1)
}

fn ms(ms: f64) -> String {
    format!("{ms:.0}")
}

/// Where the kernel's swapping adds nothing, no ratio says anything.
fn ratio(sum_ms: f64, kernel_ms: Option<f64>) -> String {
    match kernel_ms {
        Some(kernel_ms) if kernel_ms >= 1.0 => format!("{:.2}", sum_ms / kernel_ms),
        _ => "-".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use clew_report::{Machine, Skipped};

    use super::super::Scenario;
    use super::super::paired::Pair;
    use super::*;

    #[test]
    fn fits_a_terminal_and_says_who_is_in_front() {
        let arm = |name: &str, ms: f64| {
            let pairs = ["jupyter", "tsserver"].map(|program| Pair {
                program: program.to_string(),
                in_memory_ms: 1_000.0,
                ms,
            });
            let programs = ["jupyter", "tsserver"].map(String::from);
            ArmResult {
                name: name.to_string(),
                scheme: name.to_string(),
                added: Added::of_each(&programs, Some("jupyter"), &pairs),
                cpu_ms: Some(123_456.0),
                total_bytes_mean: 1 << 29,
                total_bytes_peak: 1 << 30,
                ratio: Some(3.456),
                faults: 123_456_789,
                answers: 100,
                wrong_answers: 0,
                kept: None,
                visits: Vec::new(),
                waits: vec![Wait { cause: "lock".to_string(), faults: 4, ..Wait::default() }],
            }
        };
        let arms = vec![arm("dram", 1_000.0), arm("kernel-zram", 3_000.0), arm("clew", 2_000.0)];
        let part = PartResult {
            title: "in front: the same data again and again".to_string(),
            programs: ["jupyter", "tsserver"].map(String::from).to_vec(),
            front: Some("jupyter".to_string()),
            need_bytes: 2 << 30,
            total_bytes: 1 << 30,
            arms,
        };
        let result = ScenarioResult {
            scenario: Scenario::Pressure,
            commit: None,
            seed: 1,
            machine: Machine::here(),
            parts: vec![part],
            skipped: vec![Skipped { name: "x".to_string(), reason: "none".to_string() }],
        };
        let text = text(&result);
        assert!(text.contains("jupyter, in front") && text.contains("0.50"), "{text}");
        assert!(text.contains("clew: waits for"), "{text}");
        assert!(text.contains("123.5") && text.contains("not run: x: none"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(ratio(5.0, Some(0.0)), "-");
    }
}
