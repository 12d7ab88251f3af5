//! A scenario's result as charts and tables.

use clew_report::{Chart, Row, Sheet, Skipped, TIMES, Table};

use super::{Added, ArmResult, PartResult, ScenarioResult};
use crate::arms::ArmKind;
use crate::arms::wait::Wait;

const ADDED: &str = "added: the time of a visit minus that of the same visit in memory (dram); sum: of all measured \
    visits; x kernel: that sum / kernel-zram's; CPU: of everything, after the fill; mean, peak: memory in use; disk: written by swapping; \
    the kernel's is held by a hard limit, Clew's by its budget alone. Bars: median / 95th percentile / worst, ms.";

/// All parts, an arm a line, and what the columns mean.
pub fn sheet(result: &ScenarioResult) -> Sheet {
    let wrong = result.wrong_answers();
    let verdicts: Vec<String> = result.parts.iter().filter_map(verdict).collect();
    let mut facts = vec![result.machine.shown(), format!("seed {}", result.seed)];
    facts.extend(result.commit.clone());
    let answers = result.parts.iter().flat_map(|part| &part.arms).map(|arm| arm.answers);
    facts.push(format!("{wrong} wrong of {} answers", answers.sum::<u64>()));
    let mut tables = Vec::new();
    for part in &result.parts {
        tables.push(visits(part));
        tables.push(costs(part));
        tables.extend(part.arms.iter().filter(|arm| !arm.waits.is_empty()).map(waits));
    }
    let mut notes: Vec<String> = result.parts.iter().map(memory).collect();
    notes.extend(result.parts.iter().flat_map(|part| &part.arms).filter_map(lent));
    if !result.parts.is_empty() {
        notes.push(ADDED.to_string());
    }
    notes.extend(result.skipped.iter().map(not_run));
    Sheet {
        title: format!("Clew scenario: {}", result.scenario),
        verdict: match wrong {
            0 => verdicts.join(" "),
            wrong => format!("{wrong} answers were wrong."),
        },
        is_bad: wrong > 0,
        facts: facts.join(", "),
        charts: result.parts.iter().map(chart).collect(),
        tables,
        notes,
    }
}

/// What did not run.
pub(super) fn not_run(one: &Skipped) -> String {
    format!("not run: {}: {}", one.name, one.reason)
}

fn named_part(part: &PartResult) -> String {
    format!("{} ({})", part.title, part.programs.join(", "))
}

fn memory(part: &PartResult) -> String {
    let (total, need) = (part.total_bytes >> 20, part.need_bytes >> 20);
    format!("{}: {total} MiB for each arm, {need} were used in memory", part.title)
}

/// Who lends memory to an arm, where somebody does.
pub(super) fn lender(arm: &str, scheme: &str) -> Option<String> {
    let is_lent = matches!(arm.parse(), Ok(ArmKind::Donor(_)));
    is_lent.then(|| format!("{arm}: {scheme}"))
}

/// The same, and how much of it lay there.
fn lent(arm: &ArmResult) -> Option<String> {
    let lender = lender(&arm.name, &arm.scheme)?;
    Some(format!("{lender}; {} MiB lay there", arm.kept?.donor_bytes >> 20))
}

/// What swapping adds in sum, with Clew and with the kernel's zram.
fn verdict(part: &PartResult) -> Option<String> {
    let sum_s = |name: &str| {
        let arm = part.arms.iter().find(|arm| arm.name == name)?;
        // Where there is one for all who return, it is that and who is in front.
        let all = arm.added.iter().any(|one| one.program == "all");
        let counted = arm.added.iter().filter(|one| !all || one.is_front || one.program == "all");
        Some(counted.map(|one| one.added_sum_ms).sum::<f64>() / 1e3)
    };
    let (clew, kernel) = (sum_s("clew")?, sum_s("kernel-zram")?);
    let title = &part.title;
    Some(format!(
        "{title}: swapping adds {clew:.1} s with clew, {kernel:.1} s with the kernel's zram."
    ))
}

/// The visits of each program, with each arm.
fn chart(part: &PartResult) -> Chart {
    let count = part.arms.first().map_or(0, |arm| arm.added.len());
    let mut rows = Vec::new();
    for number in 0..count {
        for arm in &part.arms {
            let one = &arm.added[number];
            let name = format!("{}, {}", one.program, arm.name);
            rows.push(Row::times(name, one.in_memory_ms.p50, &one.visit_ms));
        }
    }
    rows.retain(|row| !row.name.starts_with("all,"));
    Chart { title: named_part(part), unit: "ms", parts: TIMES, rows }
}

/// A table of what is there already.
pub(super) fn table(title: String, keys: usize, header: &[&str], rows: Vec<Vec<String>>) -> Table {
    let header = header.iter().map(|head| head.to_string()).collect();
    Table { title, note: "", keys, header, rows, detail: false }
}

/// What each program's visits took, and what swapping added.
fn visits(part: &PartResult) -> Table {
    let header =
        ["program", "arm", "visits", "p50 ms", "p95", "added p50", "p95", "sum s", "x kernel"];
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
    table(named_part(part), 2, &header, rows)
}

fn named(one: &Added) -> String {
    match one.is_front {
        true => format!("{}, in front", one.program),
        false => one.program.clone(),
    }
}

/// What the arms cost.
fn costs(part: &PartResult) -> Table {
    let header =
        ["arm", "CPU s", "mean MiB", "peak", "ratio", "faults", "disk MiB", "answers", "wrong"];
    let row = |arm: &ArmResult| {
        vec![
            arm.name.clone(),
            arm.cpu_ms.map_or("-".to_string(), |ms| format!("{:.1}", ms / 1e3)),
            (arm.total_bytes_mean >> 20).to_string(),
            (arm.total_bytes_peak >> 20).to_string(),
            arm.ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
            arm.faults.to_string(),
            (arm.disk_bytes_written >> 20).to_string(),
            arm.answers.to_string(),
            arm.wrong_answers.to_string(),
        ]
    };
    table(String::new(), 1, &header, part.arms.iter().map(row).collect())
}

/// What the faults of an arm waited for.
fn waits(arm: &ArmResult) -> Table {
    let first = format!("{}: waits for", arm.name);
    let header = [&first, "faults", "sum s", "mean us", "slow", "sum s"];
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
    table(String::new(), 1, &header, arm.waits.iter().map(row).collect())
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
    use clew_report::{Machine, Memory, Skipped};

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
                disk_bytes_written: 987 << 20,
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
        let kept = Some(Memory { donor_bytes: 300 << 20, ..Memory::default() });
        let scheme = "mobileswap, a donor behind a link of 920 Mbit/s".to_string();
        let far = ArmResult { kept, scheme, ..result.parts[0].arms[2].clone() };
        let far = ArmResult { name: "clew-mobileswap".to_string(), ..far };
        assert!(lent(&far).is_some_and(|note| note.ends_with("920 Mbit/s; 300 MiB lay there")));
        assert_eq!(lent(&ArmResult { name: "clew".to_string(), ..far }), None);
        let sheet = sheet(&result);
        assert_eq!(
            sheet.verdict,
            "in front: the same data again and again: swapping adds 2.0 s with clew, 4.0 s with the \
             kernel's zram."
        );
        assert_eq!(sheet.charts[0].rows.len(), 6);
        assert!(sheet.page().contains("jupyter, in front"));
        let text = sheet.text();
        assert!(text.contains("jupyter, in front") && text.contains("0.50"), "{text}");
        assert!(text.contains("clew: waits for"), "{text}");
        assert!(text.contains("123.5") && text.contains("not run: x: none"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        assert_eq!(ratio(5.0, Some(0.0)), "-");
    }
}
