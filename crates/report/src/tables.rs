//! What tables there are, and the result as plain text, at most 100 columns wide.

use crate::facts::ProgramFacts;
use crate::memory::Classes;
use crate::percent;
use crate::replay::{HotSets, Replay};
use crate::result::{Arm, Comparison, Group, GroupResult, PointResult, Results, Role};
use crate::shown::{interval, mib, number, ratio};
use crate::statistics::Estimate;
use crate::table::{Column, Table, wrapped};
use crate::verdict::{needed, ours, peers, verdict};

fn share(part: Option<f64>) -> Option<String> {
    part.map(|part| format!("{:.1} %", part * 100.0))
}

/// A point in words.
pub fn named(point: &PointResult) -> String {
    let mut words = Vec::new();
    let part = point.point.total_part.map(|part| format!("{} %", percent(part)));
    match (point.total_bytes, part) {
        (0, None) => {}
        (0, Some(part)) => words.push(format!("{part} of the memory")),
        (bytes, None) => words.push(format!("total {} MiB", mib(bytes))),
        (bytes, Some(part)) => words.push(format!("total {} MiB ({part})", mib(bytes))),
    }
    if let Some(similarity) = point.point.similarity {
        words.push(format!("{} % alike", percent(similarity)));
    }
    words.join(", ")
}

/// Every table, in the order in which they are shown.
pub fn tables(results: &Results) -> Vec<Table> {
    let mut all = Vec::new();
    for point in results.points.iter().filter(|point| !point.arms.is_empty()) {
        all.push(numbers(point));
        all.push(by_layout(point));
    }
    all.extend([
        ratios(results),
        equal_memory(results),
        per_program(results),
        ablations(results),
        replays(results),
        hot_sets(results),
        breakdowns(results),
        memory(results),
        programs(results),
    ]);
    all.retain(|table| !table.is_empty());
    all
}

fn name(arm: &Arm) -> String {
    if arm.missing.is_empty() { arm.name.clone() } else { format!("{}*", arm.name) }
}

fn numbers(point: &PointResult) -> Table {
    let of_replay =
        |of: fn(&Replay) -> Option<String>| move |arm: &&Arm| of(arm.replay.as_ref()?);
    let seconds = |ms: Option<f64>| ms.map(|ms| number(ms / 1e3));
    let columns: [Column<'_, &Arm>; 15] = [
        ("arm", &|arm| Some(name(arm))),
        ("p50", &|arm| Some(number(arm.relaunch_ms.p50))),
        ("p95", &|arm| Some(number(arm.relaunch_ms.p95))),
        ("max", &|arm| Some(number(arm.relaunch_ms.max))),
        ("n", &|arm| Some(arm.relaunch_ms.n.to_string())),
        ("cold", &of_replay(|one| Some(format!("{}/{}", one.cold_launches, one.kills)))),
        ("swap s", &|arm| seconds(arm.swapping_cpu_ms)),
        ("peak MiB", &|arm| Some(mib(arm.total_bytes_peak))),
        ("ratio", &|arm| arm.ratio.map(ratio)),
        ("faults", &|arm| Some(arm.faults.to_string())),
        ("hits", &|arm| {
            let old = arm.replay.as_ref()?.hits.saturating_add(arm.faults);
            share((old > 0).then(|| (old - arm.faults) as f64 / old as f64))
        }),
        ("wrong", &|arm| arm.replay.is_none().then(|| arm.wrong_answers.to_string())),
        ("disk MiB", &|arm| arm.replay.is_none().then(|| mib(arm.disk_bytes_written))),
        ("CPU s", &|arm| seconds(arm.cpu_ms)),
        ("time", &|arm| arm.replay.as_ref().map(|_| arm.time.to_string())),
    ];
    let mut table =
        Table::of(format!("{}; relaunches in ms", named(point)), 1, &point.arms, &columns);
    table.note = "Relaunches from the switch to the last answer. CPU: everything in the arm and the \
                  kernel threads that swapped for it; swap: what swapping cost of it (in a demo what \
                  was spent after the fill, minus the same of dram). Ratio: original bytes / bytes of \
                  the store. Faults: those that waited for a stored page. Cold: launched cold / ended \
                  for want of memory. Hits: of accesses to pages that held something.";
    table
}

fn by_layout(point: &PointResult) -> Table {
    let of = |group: Group, of: fn(&GroupResult) -> Estimate| {
        move |arm: &&Arm| arm.group(group).map(|one| interval(&of(one), number))
    };
    let (p50, p95) = (|one: &GroupResult| one.p50_ms, |one: &GroupResult| one.p95_ms);
    let columns: [Column<'_, &Arm>; 5] = [
        ("arm", &|arm| Some(name(arm))),
        ("clustered p50 ms", &of(Group::Clustered, p50)),
        ("p95 ms", &of(Group::Clustered, p95)),
        ("scattered p50 ms", &of(Group::Scattered, p50)),
        ("p95 ms", &of(Group::Scattered, p95)),
    ];
    let title = match named(point).as_str() {
        "" => "by layout".to_string(),
        point => format!("by layout, {point}"),
    };
    Table::of(title, 1, &point.arms, &columns)
}

fn ratios(results: &Results) -> Table {
    let base = results.base();
    let is_clew = |arm: &str| results.at(base, arm).is_some_and(|arm| arm.role == Role::Clew);
    let here = results.comparisons.iter().filter(|one| one.point == base && is_clew(&one.arm));
    let columns: [Column<'_, &Comparison>; 7] = [
        ("arm / peer", &|one| Some(format!("{} / {}", one.arm, one.peer))),
        ("programs", &|one| Some(one.group.to_string())),
        ("p50", &|one| Some(interval(&one.p50, ratio))),
        ("p95", &|one| Some(interval(&one.p95, ratio))),
        ("p50 by program", &|one| Some(interval(&one.p50_by_program, ratio))),
        ("swap CPU", &|one| one.swapping_cpu.map(|one| interval(&one, ratio))),
        ("ratio", &|one| one.ratio.map(ratio)),
    ];
    let mut table = Table::of("ratios at the base point", 2, here, &columns);
    table.note = "Below 1 the arm is better; of the compression ratio, above 1.";
    table
}

fn equal_memory(results: &Results) -> Table {
    let ours = ours(results).map(|arm| arm.name.as_str());
    let peers: Vec<&str> = peers(results).collect();
    let wanted = results
        .memory_for_equal_p95
        .iter()
        .filter(|one| Some(one.arm.as_str()) == ours && peers.contains(&one.peer.as_str()));
    let columns: [Column<'_, &crate::result::EqualMemory>; 5] = [
        ("memory for equal p95", &|one| Some(format!("{} as {}", one.arm, one.peer))),
        ("programs", &|one| Some(one.group.to_string())),
        ("peer has", &|one| Some(format!("{:.0} %", percent(one.peer_total_part)))),
        ("arm needs", &|one| Some(needed(one.needed_part))),
        ("arm / peer", &|one| Some(interval(&one.ratio, ratio))),
    ];
    let mut table = Table::of("", 2, wanted, &columns);
    table.note = "The least memory with which the arm is as fast as the peer at p95, by its curve over \
                  the totals, linear between points.";
    table
}

fn per_program(results: &Results) -> Table {
    let arms = results.base_arms();
    let of_arm = |arm: &Arm, program: &str| {
        let one = arm.per_program.iter().find(|one| one.name == program)?;
        Some(format!("{}/{}", number(one.relaunch_ms.p50), number(one.relaunch_ms.p95)))
    };
    let heads: Vec<String> = arms.iter().map(|arm| arm.name.clone()).collect();
    let cells: Vec<_> =
        arms.iter().map(|arm| move |one: &&ProgramFacts| of_arm(arm, &one.name)).collect();
    let mut columns: Vec<Column<'_, &ProgramFacts>> = vec![
        ("program", &|one| Some(one.name.clone())),
        ("layout", &|one| Some(one.layout.to_string())),
    ];
    for (head, cell) in heads.iter().zip(&cells) {
        columns.push((head, cell));
    }
    Table::of("p50/p95 in ms by program", 2, &results.programs, &columns)
}

/// What each mechanism is worth: the arm without it / the whole of Ariadne.
fn ablations(results: &Results) -> Table {
    let whole = results.at(results.base(), "clew-ariadne");
    let without = results.base_arms().iter().filter(|arm| arm.role == Role::Ablation);
    let beside = |group: Group| {
        move |arm: &&Arm| {
            let (with, without) = (whole?.group(group)?, arm.group(group)?);
            let (p50, p95) = ((with.p50_ms, without.p50_ms), (with.p95_ms, without.p95_ms));
            Some(format!(
                "{} → {} ({:.2}×), p95 {:.2}×",
                number(p50.0.value),
                number(p50.1.value),
                p50.1.value / p50.0.value,
                p95.1.value / p95.0.value
            ))
        }
    };
    let columns: [Column<'_, &Arm>; 5] = [
        ("ablation", &|arm| Some(arm.name.clone())),
        ("scheme", &|arm| Some(arm.scheme.clone())),
        ("clustered p50 ms, with → without", &beside(Group::Clustered)),
        ("scattered", &beside(Group::Scattered)),
        ("ratio", &|arm| arm.ratio.map(ratio)),
    ];
    Table::of("what each mechanism is worth", 1, without, &columns)
        .detail("Ariadne without one of its mechanisms, at the base point.")
}

fn replays(results: &Results) -> Table {
    let all = results.base_arms().iter().filter_map(|arm| Some((arm, arm.replay.as_ref()?)));
    type Of<'a> = (&'a Arm, &'a Replay);
    let columns: [Column<'_, Of<'_>>; 12] = [
        ("scheme", &|(arm, _)| Some(name(arm))),
        ("own ms", &|(_, one)| Some(number(one.own_ms.p50))),
        ("out ms", &|(_, one)| Some(number(one.compress_ms))),
        ("back ms", &|(_, one)| Some(number(one.decompress_ms))),
        ("kernel ms", &|(_, one)| Some(number(one.kernel_ms))),
        ("waited ms", &|(_, one)| Some(number(one.waited_for_room_ms))),
        ("early", &|(_, one)| Some(one.prefetch.pages.to_string())),
        ("accuracy", &|(_, one)| share(one.prefetch.accuracy)),
        ("coverage", &|(_, one)| share(one.prefetch.coverage)),
        ("amplif.", &|(_, one)| one.read_amplification.map(number)),
        ("flash", &|(arm, one)| {
            let (read, written) = (one.flash_read_bytes, arm.disk_bytes_written);
            (read > 0 || written > 0).then(|| format!("{read}/{written}"))
        }),
        ("Belady", &|(_, one)| Some(format!("{} at {}", one.belady?.pages, one.belady?.ratio))),
    ];
    let mut table =
        Table::of("CPU time of swapping, and pages that came back early", 1, all, &columns);
    table.note = "Own: relaunches without any swapping, at the median. Out: hash, compress, store. Back: find, \
                  decompress, check. Waited: programs for memory. Early: pages that came back without \
                  having been asked for; accuracy: of these, used; coverage: of stored pages that were \
                  used, those. Flash: bytes read and written. Amplif.: pages brought back for each that was used. Belady: no scheme brings back fewer at this ratio.";
    table
}

/// What relaunches use again, and what a hot list knows of it.
fn hot_sets(results: &Results) -> Table {
    let all =
        results.base_arms().iter().filter_map(|arm| Some((arm, arm.replay.as_ref()?.hot_sets)));
    let columns: [Column<'_, (&Arm, HotSets)>; 5] = [
        ("scheme", &|(arm, _)| Some(name(arm))),
        ("alike (Ariadne, figure 5)", &|(_, one)| share(one.similarity)),
        ("used again", &|(_, one)| share(one.reuse)),
        ("hot list's coverage (figure 14)", &|(_, one)| share(one.coverage)),
        ("accuracy", &|(_, one)| share(one.accuracy)),
    ];
    let mut table = Table::of("what relaunches use again", 1, all, &columns);
    table.note = "Alike: of what a relaunch uses, what the one before used. Used again: of what the one before \
                  used. Coverage: of what a relaunch uses, what was on the hot list. Accuracy: of what was \
                  on it, what is used.";
    table
}

/// Where time and pages go, by group.
pub fn breakdown_rows(results: &Results) -> impl Iterator<Item = (&Arm, &GroupResult)> {
    Group::OF_LAYOUTS
        .into_iter()
        .flat_map(|group| results.base_arms().iter().map(move |arm| (arm, arm.group(group))))
        .filter_map(|(arm, group)| Some((arm, group?)))
}

fn breakdowns(results: &Results) -> Table {
    let pages = |pages: f64| format!("{pages:.0}");
    let columns: [Column<'_, (&Arm, &GroupResult)>; 12] = [
        ("arm", &|(arm, _)| Some(arm.name.clone())),
        ("programs", &|(_, one)| Some(one.group.to_string())),
        ("relaunch ms", &|(_, one)| Some(number(one.breakdown.relaunch_ms))),
        ("work", &|(_, one)| Some(number(one.breakdown.work_ms))),
        ("call", &|(_, one)| Some(number(one.breakdown.call_ms))),
        ("codec", &|(_, one)| one.breakdown.codec_ms.map(number)),
        ("handling", &|(_, one)| one.breakdown.handler_ms.map(number)),
        ("the rest", &|(_, one)| Some(number(one.breakdown.wait_ms))),
        ("touched pages", &|(_, one)| one.breakdown.touched_pages.map(pages)),
        ("in memory", &|(_, one)| one.breakdown.mapped_pages.map(pages)),
        ("brought ahead", &|(_, one)| Some(pages(one.breakdown.restored_pages))),
        ("faulted", &|(_, one)| Some(pages(one.breakdown.faulted_pages))),
    ];
    Table::of("one relaunch, on average", 2, breakdown_rows(results), &columns).detail(
        "Work: what the same switches took in dram. Call: telling that the app comes. For the kernel's \
         arms the rest is all that a fault costs: codec and handling are inside the program's own fault.",
    )
}

fn memory(results: &Results) -> Table {
    let held = results.base_arms().iter().filter_map(|arm| Some((arm, arm.kept.or(arm.peak)?)));
    type Of<'a> = (&'a Arm, crate::Memory);
    let some = |bytes: u64| (bytes > 0).then(|| mib(bytes));
    let class = |of: fn(&Classes) -> u64| {
        move |(_, held): &Of<'_>| held.classes.as_ref().map(|classes| mib(of(classes)))
    };
    let columns: [Column<'_, Of<'_>>; 17] = [
        ("arm", &|(arm, _)| Some(name(arm))),
        ("resident", &|(_, held)| Some(mib(held.resident_bytes))),
        ("parked", &|(_, held)| some(held.parked_bytes)),
        ("compressed", &|(_, held)| some(held.pool_bytes)),
        ("kernel's zram", &|(_, held)| some(held.kernel_bytes)),
        ("page tables", &|(_, held)| some(held.tables_bytes)),
        ("daemon", &|(_, held)| some(held.daemon_bytes)),
        ("stored, uncompressed", &|(_, held)| some(held.stored_bytes)),
        ("on disk", &|(_, held)| some(held.disk_bytes)),
        ("at donors", &|(_, held)| some(held.donor_bytes)),
        ("policies", &|(_, held)| some(held.policies_bytes)),
        ("hot resident", &class(|of| of.hot_resident_bytes)),
        ("warm", &class(|of| of.warm_resident_bytes)),
        ("cold", &class(|of| of.cold_resident_bytes)),
        ("hot stored", &class(|of| of.hot_stored_bytes)),
        ("warm", &class(|of| of.warm_stored_bytes)),
        ("cold", &class(|of| of.cold_stored_bytes)),
    ];
    Table::of("memory, MiB", 1, held, &columns).detail(
        "In a demo just before a relaunch, the mean over all of them; in a replay when it was most. Hot, \
         warm and cold: uncompressed, of arms whose schemes know them.",
    )
}

fn programs(results: &Results) -> Table {
    let columns: [Column<'_, &ProgramFacts>; 9] = [
        ("program", &|one| Some(one.name.clone())),
        ("layout", &|one| Some(one.layout.to_string())),
        ("data MiB", &|one| one.anonymous_bytes.map(mib)),
        ("touched MiB", &|one| one.touched_bytes.map(mib)),
        ("touched pages", &|one| Some(format!("{:.0}", one.label.as_ref()?.touched_pages))),
        ("adjacent", &|one| share(Some(one.label.as_ref()?.adjacent_share))),
        ("run", &|one| Some(format!("{:.1}", one.label.as_ref()?.run_pages))),
        ("alike", &|one| share(Some(one.label.as_ref()?.similarity))),
        ("what it does", &|one| Some(one.description.clone())),
    ];
    Table::of("the programs", 2, &results.programs, &columns).detail(
        "What a relaunch was seen to touch: how many pages, how many of them beside another, the mean \
         length of a run, and how much of it the relaunch before had touched too.",
    )
}

/// The machine and the run in a line.
pub fn facts(results: &Results) -> String {
    let mut facts = Vec::new();
    if !results.programs.is_empty() {
        facts.push(format!("{} programs", results.programs.len()));
    }
    facts.extend(results.machine.as_ref().map(|machine| machine.shown()));
    facts.extend(results.seed.map(|seed| format!("seed {seed}")));
    facts.extend(results.duration_seconds.map(|seconds| match seconds {
        long if long >= 600.0 => format!("{:.0} min", long / 60.0),
        short => format!("{short:.0} s"),
    }));
    facts.extend(results.commit.clone());
    if results.answers() > 0 {
        facts.push(format!("{} wrong of {} answers", results.wrong_answers(), results.answers()));
    }
    facts.join(", ")
}

/// What did not run, and what this kernel cannot.
pub fn missing(results: &Results) -> Vec<String> {
    let skipped =
        results.skipped.iter().map(|one| format!("not run: {}: {}", one.name, one.reason));
    let mut all: Vec<String> = skipped.collect();
    if !results.kernel_cannot.is_empty() {
        let cannot = results.kernel_cannot.join("; ");
        all.push(format!("this kernel cannot, so no arm stands for it: {cannot}"));
    }
    for arm in results.base_arms().iter().filter(|arm| !arm.missing.is_empty()) {
        all.push(format!("* {} lacks: {}", arm.name, arm.missing.join("; ")));
    }
    all
}

/// Everything for a terminal.
pub fn text(results: &Results) -> String {
    let shown = tables(results).into_iter().filter(|table| !table.detail);
    let mut text: String = shown.map(|table| table.text() + "\n").collect();
    for line in results.notes.iter().chain(&missing(results)) {
        text += &wrapped(line);
    }
    let facts = facts(results);
    if !facts.is_empty() {
        text += &wrapped(&format!("{facts}."));
    }
    if let Some((verdict, _)) = verdict(results) {
        text += &wrapped(&format!("{verdict}."));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{demo, replay};

    #[test]
    fn fits_a_terminal_and_names_everything() {
        let mut gone = demo();
        for point in &mut gone.points {
            point.arms.retain(|arm| arm.name != "clew");
        }
        for results in [demo(), gone, replay()] {
            let text = text(&results);
            for line in text.lines() {
                assert!(line.chars().count() <= 100, "too wide: {line}");
            }
            for arm in results.base_arms() {
                assert!(text.contains(&arm.name));
            }
            let ran = results.base_arms().iter().any(|arm| arm.name == "clew");
            assert_eq!(text.lines().any(|line| line.starts_with("clew ")), ran, "{text}");
        }
        let text = text(&demo());
        for words in [
            "not run: java: no <java> here",
            "this kernel cannot, so no arm stands for it: zram with zstd",
            "clew / kernel-zram ",
            "0.25 (0.20-0.30)",
            "at most 40 %",
            "43 %",
            "4.00 (3.00-5.00)",
            "total 300 MiB (60 %), 70 % alike",
            "Equal totals",
            "0 wrong of",
        ] {
            assert!(text.contains(words), "'{words}' is missing: {text}");
        }
    }

    #[test]
    fn figures_that_cannot_be_are_shown_too() {
        let mut results = demo();
        for arm in &mut results.points[0].arms {
            (arm.answers, arm.wrong_answers, arm.faults) = (u64::MAX, u64::MAX, u64::MAX);
            (arm.relaunch_ms.p50, arm.ratio) = (1e308, Some(-1e308));
        }
        let text = text(&results);
        assert!(text.contains("18446744073709551615 answers were wrong"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(crate::page(&results).contains("1.00e308"));
    }

    #[test]
    fn a_replay_has_a_row_a_scheme_with_everything_it_counted() {
        let text = text(&replay());
        for words in [
            "zram ",
            "<mine>* ",
            "30.0",
            "60.0",
            "90.0",
            "2.50",
            "4711",
            "<mine> lacks: flash",
            "modelled",
            "75.0 %",
            "70.0 %",
            "98.0 %",
            "71.0 %",
            "92.0 %",
            "3/4",
            "1.23",
        ] {
            assert!(text.contains(words), "'{words}' is missing: {text}");
        }
        assert!(!text.contains("wrong") && !text.contains("CPU s"), "{text}");
    }
}
