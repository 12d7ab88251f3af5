//! From runs to figures: percentiles with intervals, ratios to the peers, memory for equal p95.

use std::collections::{BTreeMap, BTreeSet};

use clew_report::{
    Arm, Comparison, EqualMemory, Estimate, Group, GroupResult, Layout, Machine, Memory, Point,
    PointResult, ProgramFacts, ProgramResult, Results, Sample, Summary,
};

use super::breakdown;
use super::schedule::Run;
use crate::arms::ArmKind;
use crate::bootstrap::{Resamples, percentile_at};
use crate::crossing::from_where_below;
use crate::programs::Kind;
use crate::run::{program_result, times};

/// Whom Clew is compared with.
const PEERS: [ArmKind; 3] = [ArmKind::KernelZram, ArmKind::KernelZramHint, ArmKind::SwapFile];

/// All rounds of one arm at one point.
struct Merged {
    kind: ArmKind,
    point: Point,
    result: Arm,
    /// What the same switches took in `dram`, if it made all of them.
    dram: Option<Vec<Sample>>,
}

/// Everything that follows from `runs` of `programs` at these points with these totals, the base
/// point first. The seed is that of the intervals.
pub fn results(
    seed: u64,
    points: &[(Point, u64)],
    arms: &[ArmKind],
    programs: &[(Kind, ProgramFacts)],
    runs: &[(Run, Arm)],
) -> Results {
    let mut arms = arms.to_vec();
    arms.retain(|&arm| arm != ArmKind::Dram);
    arms.insert(0, ArmKind::Dram);
    let mut merged: Vec<Merged> = Vec::new();
    for &(point, _) in points {
        for &kind in &arms {
            let Some(mut result) = of_arm(runs, kind, point, programs, |_| true) else { continue };
            // What the same switches take without swapping: of the rounds that this arm has.
            let its = runs.iter().filter(|(run, _)| run.is_at(kind, point));
            let rounds: BTreeSet<usize> = its.map(|(run, _)| run.round).collect();
            let has = |round| rounds.contains(&round);
            let dram = of_arm(runs, ArmKind::Dram, point, programs, has);
            let same = dram.as_ref().filter(|dram| same_switches(&dram.samples, &result.samples));
            if kind != ArmKind::Dram {
                let both =
                    same.and_then(|dram| result.switching_cpu_ms().zip(dram.switching_cpu_ms()));
                result.swapping_cpu_ms = both.map(|(ours, alone)| ours - alone);
            }
            let dram = same.map(|dram| dram.samples.clone());
            merged.push(Merged { kind, point, result, dram });
        }
    }
    let deriver = Deriver { seed, programs };
    let base = points[0].0;
    let point_results = points.iter().map(|&(point, total_bytes)| PointResult {
        point,
        total_bytes,
        arms: merged
            .iter()
            .filter(|one| one.point == point)
            .map(|one| deriver.point_arm(one, point == base))
            .collect(),
    });
    Results {
        machine: Some(Machine::here()),
        seed: Some(seed),
        programs: programs.iter().map(|(_, facts)| facts.clone()).collect(),
        points: point_results.collect(),
        comparisons: deriver.comparisons(&merged),
        memory_for_equal_p95: deriver.equal_memory(&merged, base),
        kernel_cannot: kernel_cannot(),
        ..Results::default()
    }
}

/// Those rounds of one arm at one point as one result; `None` if there is none.
fn of_arm(
    runs: &[(Run, Arm)],
    arm: ArmKind,
    point: Point,
    programs: &[(Kind, ProgramFacts)],
    is_wanted: impl Fn(usize) -> bool,
) -> Option<Arm> {
    let here = |run: &Run| run.is_at(arm, point) && is_wanted(run.round);
    let mut rounds = runs.iter().filter(|(run, _)| here(run)).map(|(_, result)| result);
    let mut all = rounds.next()?.clone();
    let both = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
    let (mut kept, mut number) = (vec![all.kept.unwrap_or_default()], 1.0);
    for round in rounds {
        let before = all.samples.len();
        let later = round.samples.iter().cloned();
        all.samples.extend(later.map(|one| Sample { switch: before + one.switch, ..one }));
        all.cpu_ms = both(all.cpu_ms, round.cpu_ms);
        all.fill_cpu_ms = both(all.fill_cpu_ms, round.fill_cpu_ms);
        all.total_bytes_peak = all.total_bytes_peak.max(round.total_bytes_peak);
        all.ratio = both(all.ratio, round.ratio);
        all.disk_bytes_written += round.disk_bytes_written;
        all.faults += round.faults;
        all.wrong_answers += round.wrong_answers;
        all.answers += round.answers;
        all.fill_seconds = both(all.fill_seconds, round.fill_seconds);
        kept.push(round.kept.unwrap_or_default());
        number += 1.0;
    }
    all.ratio = all.ratio.map(|sum| sum / number);
    all.kept = Some(Memory::mean_of(&kept));
    all.relaunch_ms = Summary::of(&times(&all.samples, None));
    let result = |(kind, facts): &(Kind, ProgramFacts)| ProgramResult {
        layout: facts.layout,
        ..program_result(*kind, &all.samples)
    };
    all.per_program = programs.iter().map(result).collect();
    Some(all)
}

fn same_switches(one: &[Sample], other: &[Sample]) -> bool {
    let programs = |samples: &[Sample]| -> Vec<String> {
        samples.iter().map(|sample| sample.program.clone()).collect()
    };
    programs(one) == programs(other)
}

struct Deriver<'a> {
    seed: u64,
    programs: &'a [(Kind, ProgramFacts)],
}

impl Deriver<'_> {
    fn layout_of(&self, program: &str) -> Option<Layout> {
        self.programs.iter().find(|(_, one)| one.name == program).map(|(_, one)| one.layout)
    }

    /// The positions of a group's switches, by program.
    fn strata(&self, samples: &[Sample], group: Group) -> Vec<Vec<usize>> {
        let mut strata: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (position, sample) in samples.iter().enumerate() {
            if self.layout_of(&sample.program).is_some_and(|layout| group.has(layout)) {
                strata.entry(&sample.program).or_default().push(position);
            }
        }
        strata.into_values().collect()
    }

    fn groups_of(&self, samples: &[Sample]) -> Vec<Group> {
        let filled = |group: &Group| !self.strata(samples, *group).is_empty();
        Group::EACH.into_iter().filter(filled).collect()
    }

    /// Single switches and totals over time are kept of the base point alone.
    fn point_arm(&self, one: &Merged, is_base: bool) -> Arm {
        let arm = &one.result;
        let all = times(&arm.samples, None);
        let group = |group: Group| {
            let strata = self.strata(&arm.samples, group);
            let positions: Vec<usize> = strata.iter().flatten().copied().collect();
            let resamples = Resamples::new(self.seed, strata);
            let at = |samples: &'_ [Sample]| -> Vec<Sample> {
                positions.iter().map(|&position| samples[position].clone()).collect()
            };
            let (here, dram) = (at(&arm.samples), one.dram.as_deref().map(at));
            let estimate =
                |percent| resamples.estimate(|positions| percentile_at(&all, positions, percent));
            GroupResult {
                group,
                n: here.len(),
                p50_ms: estimate(50.0),
                p95_ms: estimate(95.0),
                breakdown: breakdown::of(&here, dram.as_deref(), self.programs),
            }
        };
        let groups = self.groups_of(&arm.samples).into_iter().map(group).collect();
        let mut arm = Arm { groups, ..arm.clone() };
        if !is_base {
            arm.samples.clear();
            arm.totals.clear();
        }
        arm
    }

    /// Every arm that is limited beside every peer that is another one.
    fn comparisons(&self, merged: &[Merged]) -> Vec<Comparison> {
        let mut all = Vec::new();
        for one in merged.iter().filter(|one| one.kind != ArmKind::Dram) {
            for peer in PEERS.into_iter().filter(|&peer| peer != one.kind) {
                let peer = merged.iter().find(|other| {
                    other.point == one.point
                        && other.kind == peer
                        && same_switches(&other.result.samples, &one.result.samples)
                });
                let Some(peer) = peer else { continue };
                let groups = self.groups_of(&one.result.samples);
                all.extend(groups.into_iter().map(|group| self.comparison(one, peer, group)));
            }
        }
        all
    }

    fn comparison(&self, one: &Merged, peer: &Merged, group: Group) -> Comparison {
        let strata = self.strata(&one.result.samples, group);
        let resamples = Resamples::new(self.seed, strata);
        let (ours, theirs) = (times(&one.result.samples, None), times(&peer.result.samples, None));
        let ratio = |percent| {
            resamples.estimate(|positions| {
                percentile_at(&ours, positions, percent)
                    / percentile_at(&theirs, positions, percent)
            })
        };
        let by_program = |positions: &[usize]| {
            let mut of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
            for &position in positions {
                of.entry(&one.result.samples[position].program).or_default().push(position);
            }
            let logs = of.values().map(|positions| {
                let medians = [&ours, &theirs].map(|times| percentile_at(times, positions, 50.0));
                (medians[0] / medians[1]).ln()
            });
            (logs.sum::<f64>() / of.len() as f64).exp()
        };
        let swapping = |result: &Arm, dram: &[Sample], positions: &[usize]| -> f64 {
            positions
                .iter()
                .map(|&position| result.samples[position].cpu_ms - dram[position].cpu_ms)
                .sum()
        };
        let dram = one.dram.as_deref().filter(|_| group == Group::All);
        Comparison {
            point: one.point,
            arm: one.result.name.clone(),
            peer: peer.result.name.clone(),
            group,
            p50: ratio(50.0),
            p95: ratio(95.0),
            p50_by_program: resamples.estimate(by_program),
            swapping_cpu: dram.map(|dram| {
                resamples.estimate(|positions| {
                    swapping(&one.result, dram, positions) / swapping(&peer.result, dram, positions)
                })
            }),
            ratio: match group {
                Group::All => {
                    one.result.ratio.zip(peer.result.ratio).map(|(ours, theirs)| ours / theirs)
                }
                _ => None,
            },
        }
    }

    /// For each total of each peer: the total from which on each other arm is as good.
    fn equal_memory(&self, merged: &[Merged], base: Point) -> Vec<EqualMemory> {
        let curve = |arm: ArmKind| {
            let mut curve: Vec<&Merged> = merged
                .iter()
                .filter(|one| one.kind == arm && one.point.similarity == base.similarity)
                .collect();
            curve.sort_by(|a, b| total_of(a).total_cmp(&total_of(b)));
            curve
        };
        let mut arms: Vec<ArmKind> = merged.iter().map(|one| one.kind).collect();
        arms.sort_by_key(|arm| arm.name());
        arms.dedup();
        arms.retain(|arm| arm.is_clew());
        let mut all = Vec::new();
        for (arm, peer) in arms.iter().flat_map(|&arm| PEERS.map(|peer| (arm, peer))) {
            let curve_of_arm = curve(arm);
            if curve_of_arm.len() < 2 {
                continue;
            }
            for peer in curve(peer) {
                let fits = |one: &&Merged| same_switches(&one.result.samples, &peer.result.samples);
                if !curve_of_arm.iter().all(fits) {
                    continue;
                }
                for group in self.groups_of(&peer.result.samples) {
                    all.push(self.equal(&curve_of_arm, peer, group));
                }
            }
        }
        all
    }

    fn equal(&self, curve: &[&Merged], peer: &Merged, group: Group) -> EqualMemory {
        let strata = self.strata(&peer.result.samples, group);
        let everyone: Vec<usize> = strata.iter().flatten().copied().collect();
        let level_times = times(&peer.result.samples, None);
        let curve_times: Vec<(f64, Vec<f64>)> =
            curve.iter().map(|one| (total_of(one), times(&one.result.samples, None))).collect();
        let crossing = |positions: &[usize]| {
            let level = percentile_at(&level_times, positions, 95.0);
            let curve: Vec<(f64, f64)> = curve_times
                .iter()
                .map(|(total, times)| (*total, percentile_at(times, positions, 95.0)))
                .collect();
            from_where_below(&curve, level)
        };
        let part = total_of(peer);
        let ratio: Estimate = Resamples::new(self.seed, strata)
            .estimate(|positions| crossing(positions).number() / part);
        EqualMemory {
            arm: curve[0].result.name.clone(),
            peer: peer.result.name.clone(),
            group,
            peer_total_part: part,
            needed_part: crossing(&everyone),
            ratio,
        }
    }
}

/// The part of memory that an arm on a curve has.
fn total_of(one: &Merged) -> f64 {
    one.point.total_part.unwrap_or_default()
}

/// What this kernel cannot do that others can, which matters for what its arms stand for.
fn kernel_cannot() -> Vec<String> {
    use std::fs::read_to_string;
    let mut cannot = Vec::new();
    let device = "/sys/block/zram0";
    if let Ok(algorithms) = read_to_string(format!("{device}/comp_algorithm"))
        && !algorithms.contains("zstd")
    {
        let known = algorithms.replace(['[', ']'], "");
        cannot.push(format!("zram with zstd: it offers {}", known.trim()));
    }
    for (file, what) in [
        ("recompress", "recompression of idle pages in zram (CONFIG_ZRAM_MULTI_COMP)"),
        ("writeback", "write-back of idle pages from zram to a disk (CONFIG_ZRAM_WRITEBACK)"),
    ] {
        let path = std::path::Path::new(device);
        if path.exists() && !path.join(file).exists() {
            cannot.push(what.to_string());
        }
    }
    if !std::path::Path::new("/sys/kernel/mm/lru_gen").exists() {
        cannot.push("reclaim by generations (CONFIG_LRU_GEN)".to_string());
    }
    cannot
}

#[cfg(test)]
mod tests {
    use clew_report::{Classes, Crossing, Touched, text, verdict};

    use super::*;
    use crate::arms::Ablation;
    use crate::demo::facts_of;
    use crate::demo::schedule::{self, total_bytes};

    const TOTALS: [f64; 4] = [0.5, 0.4, 0.6, 0.75];
    const NEED: u64 = 800 << 20;

    /// How many times as long as in `dram` a relaunch takes: by the arm, and by the memory it has.
    fn factor(run: &Run) -> f64 {
        let of_arm = match run.arm {
            ArmKind::Dram => return 1.0,
            ArmKind::KernelZram => 4.0,
            ArmKind::KernelZramHint => 3.5,
            ArmKind::SwapFile => 30.0,
            ArmKind::ClewZram => 3.0,
            _ => 2.0,
        };
        of_arm * 0.5 / run.total.unwrap_or(1.0)
    }

    fn arm_result(run: &Run) -> Arm {
        let samples: Vec<Sample> = (0..28)
            .map(|switch| {
                let program = Kind::SYNTHETIC[switch % Kind::SYNTHETIC.len()].to_string();
                let work_ms = 8.0 + switch as f64 + run.round as f64;
                let clew = run.arm.is_clew();
                Sample {
                    switch,
                    program,
                    relaunch_ms: work_ms * factor(run),
                    call_ms: if clew { 0.25 } else { 0.0 },
                    cpu_ms: 20.0 * factor(run),
                    faulted_pages: if run.total.is_some() { 700 } else { 0 },
                    restored_pages: if clew { 900 } else { 0 },
                    fault_ms: clew.then_some(3.0),
                    fault_codec_ms: clew.then_some(1.0),
                    wrong_answers: 0,
                }
            })
            .collect();
        Arm {
            name: run.arm.to_string(),
            role: run.arm.role(),
            scheme: "zram".to_string(),
            relaunch_ms: Summary::of(&times(&samples, None)),
            cpu_ms: Some(3_000.0 + 1_000.0 * factor(run)),
            fill_cpu_ms: Some(2_000.0),
            total_bytes_peak: run.total.map_or(NEED, |part| total_bytes(NEED, part)),
            ratio: run.total.map(|_| if run.arm.is_clew() { 3.0 } else { 2.5 }),
            faults: 700 * 28,
            answers: 1_000,
            kept: Some(Memory {
                resident_bytes: 200 << 20,
                stored_bytes: if run.total.is_some() { 600 << 20 } else { 0 },
                pool_bytes: if run.total.is_some() { 190 << 20 } else { 0 },
                daemon_bytes: if run.arm.is_clew() { 9 << 20 } else { 0 },
                classes: (run.arm == ArmKind::ClewAriadne).then(|| Classes {
                    hot_resident_bytes: 150 << 20,
                    cold_stored_bytes: 333 << 20,
                    ..Classes::default()
                }),
                ..Memory::default()
            }),
            samples,
            fill_seconds: Some(1.0),
            ..Arm::default()
        }
    }

    fn label(program: Kind) -> Touched {
        Touched {
            program: program.to_string(),
            layout: program.layout(),
            adjacent_share: 0.9,
            run_pages: 5.0,
            touched_pages: 4_000.0,
            data_bytes: 112 << 20,
            similarity: 0.72,
        }
    }

    fn derived(totals: &[f64], similarities: &[f64], has: impl Fn(&Run) -> bool) -> Results {
        let mut arms = ArmKind::FULL.to_vec();
        arms.push(ArmKind::Without(Ablation::HotnessOrg));
        let runs = schedule::runs(totals, similarities, &arms, 2);
        let runs: Vec<(Run, Arm)> =
            runs.iter().filter(|run| has(run)).map(|run| (*run, arm_result(run))).collect();
        let points = schedule::points(totals, similarities);
        let total = |point: Point| total_bytes(NEED, point.total_part.expect("it is known"));
        let points: Vec<(Point, u64)> = points.iter().map(|&point| (point, total(point))).collect();
        let labels = Kind::SYNTHETIC.map(label);
        results(1, &points, &arms, &facts_of(&Kind::SYNTHETIC, &labels, &[]), &runs)
    }

    /// A made-up result whose figures are known.
    fn example() -> Results {
        derived(&TOTALS, &[0.7, 0.0, 0.3, 0.95], |_| true)
    }

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found} instead of {expected}");
    }

    #[test]
    fn ratios_are_those_that_were_put_in() {
        let result = example();
        for point in result.points.iter().map(|point| point.point) {
            for group in Group::EACH {
                let one = result
                    .comparison(point, "clew-zram", "kernel-zram", group)
                    .expect("both ran everywhere");
                for ratio in [one.p50, one.p95, one.p50_by_program] {
                    close(ratio.value, 0.75);
                    close(ratio.low, 0.75);
                    close(ratio.high, 0.75);
                }
            }
        }
        let base = result.base();
        let all =
            result.comparison(base, "clew-ariadne", "kernel-zram", Group::All).expect("both ran");
        // (2 - 1) / (4 - 1): the work itself is no part of the price of swapping.
        close(all.swapping_cpu.expect("dram ran").value, 1.0 / 3.0);
        close(all.ratio.expect("both compress"), 1.2);
    }

    #[test]
    fn memory_for_equal_p95_is_interpolated() {
        let result = example();
        let find = |peer_total: f64| {
            result
                .memory_for_equal_p95
                .iter()
                .find(|one| {
                    (one.arm.as_str(), one.peer.as_str(), one.group)
                        == ("clew-zram", "kernel-zram", Group::All)
                        && one.peer_total_part == peer_total
                })
                .expect("both curves are there")
        };
        // Ours takes 1.5 / t, the peer 2 / T. At T = 0.6: 3.33, between 3.75 (0.4) and 3 (0.5).
        let Crossing::At(part) = find(0.6).needed_part else { panic!("{:?}", find(0.6)) };
        close(part, 0.5 - (2.0 / 0.6 - 3.0) / (3.75 - 3.0) * 0.1);
        close(find(0.6).ratio.value, part / 0.6);
        close(find(0.6).ratio.low, part / 0.6);
        // At T = 0.4 ours needs 0.3, which was not measured.
        assert_eq!(find(0.4).needed_part, Crossing::AtMost(0.4));
    }

    #[test]
    fn rounds_are_put_together() {
        let result = example();
        let arm = result.at(result.base(), "kernel-zram").expect("it ran");
        assert_eq!((arm.relaunch_ms.n, arm.answers), (56, 2_000));
        assert_eq!(arm.swapping_cpu_ms, Some(2.0 * 3_000.0));
        let counts: usize = arm.groups[1..].iter().map(|group| group.n).sum();
        assert_eq!((arm.groups[0].group, arm.groups[0].n, counts), (Group::All, 56, 56));
        let breakdown = arm.groups[0].breakdown;
        // Works of 8 to 35 ms in the first round, 9 to 36 in the second.
        close(breakdown.work_ms, 22.0);
        close(breakdown.relaunch_ms, 88.0);
        close(breakdown.wait_ms, 66.0);
        assert_eq!(breakdown.mapped_pages, Some(3_300.0));
        let samples = &result.base_arms()[1].samples;
        assert_eq!(samples.len(), 56);
        assert!(result.points[1].arms.iter().all(|arm| arm.samples.is_empty()));
        assert!(samples.iter().enumerate().all(|(position, one)| one.switch == position));
        // dram counts once for each similarity, not for each point.
        let runs = 2 * (4 + 7 * 7 + 1);
        assert_eq!(result.answers(), runs * 1_000);
    }

    #[test]
    fn an_arm_that_lacks_a_round_is_compared_with_no_other_arm() {
        let has = |run: &Run| run.arm != ArmKind::ClewZram || run.round == 0;
        let result = derived(&[0.5], &[0.7], has);
        assert!(result.comparisons.iter().all(|one| one.arm != "clew-zram"));
        assert!(result.comparisons.iter().any(|one| one.arm == "clew-ariadne"));
        let arm = result.at(result.base(), "clew-zram").expect("what it did is shown");
        // But with what its switches take without swapping.
        let swapping = arm.swapping_cpu_ms.expect("dram has that round");
        assert_eq!((arm.relaunch_ms.n, swapping > 0.0), (28, true));
        assert!(arm.groups.iter().all(|group| group.breakdown.work_ms > 0.0));
    }

    #[test]
    fn what_is_derived_is_what_reports_say() {
        let result = example();
        // 2 / 3.5: the kernel with hints is the harder one.
        let (sentence, is_bad) = verdict(&result).expect("arms were compared");
        assert!(
            sentence.contains("1.8 times faster than kernel-zram+hint on clustered") && !is_bad,
            "{sentence}"
        );
        let text = text(&result);
        for words in ["clew-zram / kernel-zram ", "0.75 (0.75-0.75)", "at most 40 %", "43 %"] {
            assert!(text.contains(words), "'{words}' is missing: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
