//! The full comparison as plain text, at most 100 columns wide.

use super::table::{aligned, wrapped};
use super::{mib, ms};
use crate::arms::ArmKind;
use crate::bootstrap::Estimate;
use crate::crossing::Crossing;
use crate::full::{FullResult, Group, GroupResult, PointArm, percent};

/// Every point, then ratios to the peers at the base point, then memory for equal p95.
pub fn full_table(result: &FullResult) -> String {
    let mut text = String::new();
    for point in &result.points {
        if point.arms.is_empty() {
            continue;
        }
        text += &format!(
            "total {} MiB ({} %), {} % alike; p50/p95 in ms\n",
            mib(point.total_bytes),
            percent(point.point.total_part),
            percent(point.point.similarity)
        );
        let header = [
            "arm",
            "clustered",
            "scattered",
            "n",
            "swap s",
            "peak MiB",
            "ratio",
            "faults",
            "disk MiB",
            "wrong",
        ];
        let rows: Vec<Vec<String>> = point.arms.iter().map(row).collect();
        text += &aligned(&header.map(String::from), &rows, 1);
        text.push('\n');
    }
    text += &ratios(result);
    text += &equal_memory(result);
    for skipped in &result.skipped {
        text += &wrapped(&format!("not run: {}: {}", skipped.name, skipped.reason));
    }
    if !result.kernel_cannot.is_empty() {
        let cannot = result.kernel_cannot.join("; ");
        text += &wrapped(&format!("This kernel cannot: {cannot}."));
    }
    text += &wrapped(&format!(
        "Linux {}, {} CPUs, seed {}, {:.0} min. Intervals cover {} %.",
        result.host.kernel,
        result.host.cpus,
        result.seed,
        result.duration_seconds / 60.0,
        crate::bootstrap::COVERAGE
    ));
    text
}

fn row(arm: &PointArm) -> Vec<String> {
    let times = |group: Group| {
        let found = arm.groups.iter().find(|one| one.group == group);
        let both = |one: &GroupResult| format!("{}/{}", ms(one.p50_ms.value), ms(one.p95_ms.value));
        found.map_or("-".to_string(), both)
    };
    vec![
        arm.name.to_string(),
        times(Group::Clustered),
        times(Group::Scattered),
        arm.relaunch_ms.n.to_string(),
        arm.swapping_cpu_seconds.map_or("-".to_string(), |seconds| format!("{seconds:.1}")),
        mib(arm.total_bytes_peak),
        arm.ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
        arm.faults.to_string(),
        mib(arm.disk_bytes_written),
        arm.wrong_answers.to_string(),
    ]
}

/// A ratio with its interval, narrow.
fn interval(estimate: &Estimate) -> String {
    let number = |value: f64| {
        if value < 9.995 { format!("{value:.2}") } else { format!("{value:.0}") }
    };
    format!("{} {}-{}", number(estimate.value), number(estimate.low), number(estimate.high))
}

fn ratios(result: &FullResult) -> String {
    let here = result.comparisons.iter().filter(|one| one.point == result.base);
    let rows: Vec<Vec<String>> = here
        .filter(|one| one.arm.is_clew() && !matches!(one.arm, ArmKind::Without(_)))
        .filter(|one| one.peer != ArmKind::SwapFile)
        .map(|one| {
            vec![
                format!("{} / {}", one.arm, one.peer),
                one.group.to_string(),
                interval(&one.p50),
                interval(&one.p95),
                one.swapping_cpu.as_ref().map_or("-".to_string(), interval),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["ratio at the base point", "programs", "p50", "p95", "swap CPU"];
    aligned(&header.map(String::from), &rows, 2) + "\n"
}

fn equal_memory(result: &FullResult) -> String {
    let rows: Vec<Vec<String>> = result
        .memory_for_equal_p95
        .iter()
        .filter(|one| one.group != Group::All && Some(one.arm) == result.ours())
        .filter(|one| one.peer != ArmKind::SwapFile)
        .map(|one| {
            let needed = match one.needed_part {
                Crossing::At(part) => format!("{:.0} %", percent(part)),
                Crossing::AtMost(part) => format!("at most {:.0} %", percent(part)),
                Crossing::MoreThan(part) => format!("more than {:.0} %", percent(part)),
            };
            vec![
                format!("{} as {}", one.arm, one.peer),
                one.group.to_string(),
                format!("{:.0} %", percent(one.peer_total_part)),
                needed,
                interval(&one.ratio),
            ]
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let header = ["memory for equal p95", "programs", "peer has", "arm needs", "ratio"];
    aligned(&header.map(String::from), &rows, 2) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full::derive::tests::example;

    #[test]
    fn fits_a_terminal_and_names_everything() {
        let result = example();
        let text = full_table(&result);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "too wide: {line}");
        }
        for arm in &result.points[0].arms {
            assert!(text.contains(arm.name.name()));
        }
        assert!(
            text.contains("clew-zram / kernel-zram ") && text.contains("0.75 0.75-0.75"),
            "{text}"
        );
        assert!(text.contains("at most 40 %") && text.contains("43 %"), "{text}");
    }
}
