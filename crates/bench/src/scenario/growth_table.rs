//! What *growth* gave as text, at most 100 columns wide.

use clew_report::aligned;

use super::growth::{GrowthArm, GrowthResult, GrowthStep};

const LEGEND: &str = "usable: swapping adds at most a fifth to a visit, or 0.1 s; worst: what it added to the slowest\n\
    start: until the new program was ready; used: memory after the visits. The kernel's is held by a\n\
    hard limit, Clew's by its budget alone\n";

/// A start a line, arms beside each other, and what the columns mean.
pub fn text(result: &GrowthResult) -> String {
    let mut text = format!(
        "Clew scenario: {}\n\n{} MiB for each arm; all {} programs used {} in memory\n\n",
        result.scenario,
        result.total_bytes >> 20,
        result.programs.len(),
        result.need_bytes >> 20
    );
    text += &starts(result);
    text.push('\n');
    text += &summary(result);
    text.push('\n');
    text += LEGEND;
    for arm in &result.arms {
        if let Some(reason) = &arm.gave {
            text += &format!("{} gave: {reason}\n", arm.name);
        }
    }
    for one in &result.skipped {
        text += &format!("not run: {}: {}\n", one.name, one.reason);
    }
    text
}

fn starts(result: &GrowthResult) -> String {
    let header = ["programs", "started", "arm", "usable", "worst added ms", "start s", "used MiB"]
        .map(String::from);
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
    aligned(&header, &rows, 3)
}

fn worst(step: &GrowthStep) -> String {
    format!("{:.0}", step.added_ms.iter().copied().fold(0.0, f64::max))
}

fn summary(result: &GrowthResult) -> String {
    let header = ["arm", "ran", "each usable up to", "most usable", "peak MiB", "answers", "wrong"]
        .map(String::from);
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
    let rows: Vec<Vec<String>> = result.arms.iter().map(row).collect();
    aligned(&header, &rows, 1)
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
        let text = text(&result);
        for part in ["98765", "123.5", "kernel-zram+hint gave: pyright", "not run: x: none"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }
}
