//! What *growth* gave as charts and tables.

use clew_report::{Chart, Part, Row, Shade, Sheet, Table};

use super::growth::{GrowthArm, GrowthResult, GrowthStep};
use super::sheet::{lender, not_run, table};

const USABLE: &str = "usable: swapping adds at most a fifth to a visit, or 0.1 s; worst: what it added to the slowest; \
    start: until the new program was ready; used: memory after the visits. The kernel's is held by a hard limit, \
    Clew's by its budget alone.";
const PROGRAMS: &[Part] = &[
    Part { name: "usable", shade: Shade::Full },
    Part { name: "running, but slowed down", shade: Shade::Faint },
];

/// A start a line, arms beside each other, and what the columns mean.
pub fn sheet(result: &GrowthResult) -> Sheet {
    let wrong = result.wrong_answers();
    let answers: u64 = result.arms.iter().map(|arm| arm.answers).sum();
    let mut facts = vec![result.machine.shown(), format!("seed {}", result.seed)];
    facts.extend(result.commit.clone());
    facts.push(format!("{wrong} wrong of {answers} answers"));
    let gave =
        |arm: &GrowthArm| arm.gave.as_ref().map(|reason| format!("{} gave: {reason}", arm.name));
    let mut notes = vec![USABLE.to_string()];
    notes.extend(result.arms.iter().filter_map(|arm| lender(&arm.name, &arm.scheme)));
    notes.extend(result.arms.iter().filter_map(gave));
    notes.extend(result.skipped.iter().map(not_run));
    let usable: Vec<String> =
        result.arms.iter().map(|arm| format!("{} {}", arm.name, arm.most_usable)).collect();
    Sheet {
        title: format!("Clew scenario: {}", result.scenario),
        verdict: match wrong {
            0 => format!("Most programs usable at once: {}.", usable.join(", ")),
            wrong => format!("{wrong} answers were wrong."),
        },
        is_bad: wrong > 0,
        facts: facts.join(", "),
        charts: vec![chart(result)],
        tables: vec![starts(result), summary(result)],
        notes,
    }
}

/// How many run and are usable after each start.
fn chart(result: &GrowthResult) -> Chart {
    let mut rows = Vec::new();
    for number in 0..result.programs.len() {
        for arm in &result.arms {
            let Some(step) = arm.steps.get(number) else { continue };
            rows.push(Row {
                name: format!("{}, {}", step.running, arm.name),
                sizes: vec![step.usable as f64, (step.running - step.usable) as f64],
                note: format!("{} of {}", step.usable, step.running),
            });
        }
    }
    let title = "programs that are usable, after each start".to_string();
    Chart { title, unit: "programs", parts: PROGRAMS, rows }
}

fn starts(result: &GrowthResult) -> Table {
    let header = ["programs", "started", "arm", "usable", "worst added ms", "start s", "used MiB"];
    let mut rows = Vec::new();
    for (number, program) in result.programs.iter().enumerate() {
        for (position, arm) in result.arms.iter().enumerate() {
            let Some(step) = arm.steps.get(number) else { continue };
            rows.push(vec![
                if position == 0 { (number + 1).to_string() } else { String::new() },
                if position == 0 { program.clone() } else { String::new() },
                arm.name.clone(),
                step.usable.to_string(),
                worst(step),
                format!("{:.1}", step.start_ms / 1e3),
                (step.used_bytes >> 20).to_string(),
            ]);
        }
    }
    let title = format!(
        "{} MiB for each arm; all {} programs used {} in memory",
        result.total_bytes >> 20,
        result.programs.len(),
        result.need_bytes >> 20
    );
    table(title, 3, &header, rows)
}

fn worst(step: &GrowthStep) -> String {
    format!("{:.0}", step.added_ms.iter().copied().fold(0.0, f64::max))
}

fn summary(result: &GrowthResult) -> Table {
    let header = ["arm", "ran", "each usable up to", "most usable", "peak MiB", "answers", "wrong"];
    let row = |arm: &GrowthArm| {
        vec![
            arm.name.clone(),
            arm.steps.len().to_string(),
            arm.all_usable.to_string(),
            arm.most_usable.to_string(),
            (arm.total_bytes_peak >> 20).to_string(),
            arm.answers.to_string(),
            arm.wrong_answers.to_string(),
        ]
    };
    table(String::new(), 1, &header, result.arms.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use clew_report::{Machine, Skipped};

    use super::super::Scenario;
    use super::*;

    #[test]
    fn fits_a_terminal_and_says_what_gave() {
        let step = |running: usize| GrowthStep {
            program: "tsserver".to_string(),
            start_ms: 123_456.0,
            running,
            usable: running - 1,
            added_ms: vec![-5.0, 98_765.0],
            used_bytes: 1 << 40,
        };
        let arm = |name: &str| GrowthArm {
            name: name.to_string(),
            scheme: "zram".to_string(),
            steps: vec![step(1), step(2)],
            gave: Some("pyright: it ended".to_string()),
            all_usable: 1,
            most_usable: 2,
            total_bytes_peak: 1 << 40,
            answers: 1_000_000,
            wrong_answers: 0,
        };
        let result = GrowthResult {
            scenario: Scenario::Growth,
            commit: None,
            seed: 1,
            machine: Machine::here(),
            programs: ["tsserver", "jupyter"].map(String::from).to_vec(),
            need_bytes: 2 << 30,
            total_bytes: 1 << 30,
            arms: ["dram", "kernel-zram+hint"].map(arm).to_vec(),
            skipped: vec![Skipped { name: "x".to_string(), reason: "none".to_string() }],
        };
        let sheet = sheet(&result);
        assert_eq!(sheet.verdict, "Most programs usable at once: dram 2, kernel-zram+hint 2.");
        assert!(sheet.page().contains("1 of 2") && sheet.picture().contains("2, dram"));
        let text = sheet.text();
        for part in ["98765", "123.5", "kernel-zram+hint gave: pyright", "not run: x: none"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}
