//! From runs to figures: percentiles with intervals, ratios to the peers, memory for equal p95.

use std::collections::{BTreeMap, BTreeSet};

use super::FullConfig;
use super::breakdown;
use super::result::{
    Comparison, EqualMemory, FullResult, FullSettings, Group, GroupResult, PointArm, PointResult,
    layout_of,
};
use super::schedule::{Point, Run, points, total_bytes};
use crate::arms::{ArmKind, Kept};
use crate::bootstrap::{Estimate, Resamples, percentile_at};
use crate::crossing::from_where_below;
use crate::programs::Kind;
use crate::result::{ArmResult, Host, ProgramFacts, ProgramResult, Sample, Skipped};
use crate::statistics::Summary;
use crate::survey::Touched;

/// Whom Clew is compared with.
const PEERS: [ArmKind; 3] = [ArmKind::KernelZram, ArmKind::KernelZramHint, ArmKind::SwapFile];

/// All rounds of one arm at one point.
struct Merged {
    point: Point,
    result: ArmResult,
    /// What the same switches took in `dram`, if it made all of them.
    dram: Option<Vec<Sample>>,
}

/// Everything that follows from `runs`.
pub fn result(
    config: &FullConfig,
    programs: &[Kind],
    labels: Vec<Touched>,
    runs: Vec<(Run, ArmResult)>,
    skipped: Vec<Skipped>,
    host: Host,
    duration_seconds: f64,
) -> FullResult {
    let need = runs.iter().find(|(run, _)| run.arm == ArmKind::Dram);
    let need = need.map_or(0, |(_, result)| result.total_bytes_peak);
    let points = points(&config.totals, &config.similarities);
    let mut merged: Vec<Merged> = Vec::new();
    for &point in &points {
        let mut arms = config.arms.clone();
        arms.retain(|&arm| arm != ArmKind::Dram);
        arms.insert(0, ArmKind::Dram);
        for arm in arms {
            let Some(mut result) = of_arm(&runs, arm, point, programs, |_| true) else { continue };
            // What the same switches take without swapping: of the rounds that this arm has.
            let its = runs.iter().filter(|(run, _)| is_at(run, arm, point));
            let rounds: BTreeSet<usize> = its.map(|(run, _)| run.round).collect();
            let has = |round| rounds.contains(&round);
            let dram = of_arm(&runs, ArmKind::Dram, point, programs, has);
            let same = dram.as_ref().filter(|dram| same_switches(&dram.samples, &result.samples));
            if arm != ArmKind::Dram {
                result.swapping_cpu_seconds =
                    same.map(|dram| result.switching_cpu_seconds() - dram.switching_cpu_seconds());
            }
            let dram = same.map(|dram| dram.samples.clone());
            merged.push(Merged { point, result, dram });
        }
    }
    let deriver = Deriver { seed: config.seed, labels: &labels };
    let point_results = points.iter().map(|&point| PointResult {
        point,
        total_bytes: total_bytes(need, point.total_part),
        arms: merged
            .iter()
            .filter(|one| one.point == point)
            .map(|one| deriver.point_arm(one))
            .collect(),
    });
    let facts = |&name: &Kind| {
        let label = labels.iter().find(|label| label.program == name);
        ProgramFacts {
            name,
            layout: layout_of(&labels, name),
            description: name.description().to_string(),
            anonymous_bytes: label.map(|label| label.data_bytes),
            touched_bytes: label
                .map(|label| (label.touched_pages * crate::pagemap::page_bytes() as f64) as u64),
        }
    };
    FullResult {
        base: points[0],
        points: point_results.collect(),
        comparisons: deriver.comparisons(&merged),
        memory_for_equal_p95: deriver.equal_memory(&merged, points[0]),
        programs: programs.iter().map(facts).collect(),
        skipped,
        kernel_cannot: kernel_cannot(),
        host,
        seed: config.seed,
        commit: config.commit.clone(),
        settings: FullSettings {
            total_parts: config.totals.clone(),
            similarities: config.similarities.clone(),
            relaunches: config.relaunches,
            rounds: config.rounds,
            data_bytes: config.data_bytes,
            headroom_bytes: config.headroom_bytes,
            updates: config.updates,
            pause_ms: config.pause.as_millis() as u64,
        },
        duration_seconds,
        arms: merged
            .into_iter()
            .filter(|one| one.point == points[0])
            .map(|one| one.result)
            .collect(),
        labels,
    }
}

fn is_at(run: &Run, arm: ArmKind, point: Point) -> bool {
    run.arm == arm
        && run.similarity == point.similarity
        && run.total.is_none_or(|total| total == point.total_part)
}

/// Those rounds of one arm at one point as one result; `None` if there is none.
fn of_arm(
    runs: &[(Run, ArmResult)],
    arm: ArmKind,
    point: Point,
    programs: &[Kind],
    is_wanted: impl Fn(usize) -> bool,
) -> Option<ArmResult> {
    let here = |run: &Run| is_at(run, arm, point) && is_wanted(run.round);
    let mut rounds = runs.iter().filter(|(run, _)| here(run)).map(|(_, result)| result);
    let mut all = rounds.next()?.clone();
    let (mut kept, mut number) = (vec![all.kept], 1.0);
    for round in rounds {
        let before = all.samples.len();
        let later = round.samples.iter().cloned();
        all.samples.extend(later.map(|one| Sample { switch: before + one.switch, ..one }));
        all.cpu_seconds += round.cpu_seconds;
        all.fill_cpu_seconds += round.fill_cpu_seconds;
        all.total_bytes_peak = all.total_bytes_peak.max(round.total_bytes_peak);
        all.ratio = all.ratio.zip(round.ratio).map(|(one, other)| one + other);
        all.disk_bytes_written += round.disk_bytes_written;
        all.faults += round.faults;
        all.wrong_answers += round.wrong_answers;
        all.answers += round.answers;
        all.fill_seconds += round.fill_seconds;
        kept.push(round.kept);
        number += 1.0;
    }
    all.ratio = all.ratio.map(|sum| sum / number);
    all.kept = Kept::mean_of(&kept);
    all.relaunch_ms = Summary::of(&times(&all.samples, |_| true));
    all.per_program = programs
        .iter()
        .map(|&name| ProgramResult {
            name,
            layout: name.layout(),
            relaunch_ms: Summary::of(&times(&all.samples, |one| one.program == name)),
            wrong_answers: all
                .samples
                .iter()
                .filter(|one| one.program == name)
                .map(|one| one.wrong_answers)
                .sum(),
        })
        .collect();
    Some(all)
}

fn times(samples: &[Sample], of: impl Fn(&Sample) -> bool) -> Vec<f64> {
    samples.iter().filter(|one| of(one)).map(|one| one.relaunch_ms).collect()
}

fn same_switches(one: &[Sample], other: &[Sample]) -> bool {
    let programs =
        |samples: &[Sample]| -> Vec<Kind> { samples.iter().map(|sample| sample.program).collect() };
    programs(one) == programs(other)
}

struct Deriver<'a> {
    seed: u64,
    labels: &'a [Touched],
}

impl Deriver<'_> {
    /// The positions of a group's switches, by program.
    fn strata(&self, samples: &[Sample], group: Group) -> Vec<Vec<usize>> {
        let mut strata: BTreeMap<Kind, Vec<usize>> = BTreeMap::new();
        for (position, sample) in samples.iter().enumerate() {
            if group.has(layout_of(self.labels, sample.program)) {
                strata.entry(sample.program).or_default().push(position);
            }
        }
        strata.into_values().collect()
    }

    fn groups_of(&self, samples: &[Sample]) -> Vec<Group> {
        let filled = |group: &Group| !self.strata(samples, *group).is_empty();
        Group::EACH.into_iter().filter(filled).collect()
    }

    fn point_arm(&self, one: &Merged) -> PointArm {
        let arm = &one.result;
        let all = times(&arm.samples, |_| true);
        let group = |group: Group| {
            let strata = self.strata(&arm.samples, group);
            let positions: Vec<usize> = strata.iter().flatten().copied().collect();
            let resamples = Resamples::new(self.seed, strata);
            let at = |samples: &'_ [Sample]| -> Vec<Sample> {
                positions.iter().map(|&position| samples[position].clone()).collect()
            };
            let (here, dram) = (at(&arm.samples), one.dram.as_deref().map(at));
            let here: Vec<&Sample> = here.iter().collect();
            let dram: Option<Vec<&Sample>> = dram.as_ref().map(|dram| dram.iter().collect());
            let estimate =
                |percent| resamples.estimate(|positions| percentile_at(&all, positions, percent));
            GroupResult {
                group,
                n: here.len(),
                p50_ms: estimate(50.0),
                p95_ms: estimate(95.0),
                breakdown: breakdown::of(&here, dram.as_deref(), self.labels),
            }
        };
        let relabelled = |one: &ProgramResult| ProgramResult {
            layout: layout_of(self.labels, one.name),
            ..one.clone()
        };
        PointArm {
            name: arm.name,
            scheme: arm.scheme.clone(),
            relaunch_ms: arm.relaunch_ms,
            groups: self.groups_of(&arm.samples).into_iter().map(group).collect(),
            per_program: arm.per_program.iter().map(relabelled).collect(),
            cpu_seconds: arm.cpu_seconds,
            swapping_cpu_seconds: arm.swapping_cpu_seconds,
            total_bytes_peak: arm.total_bytes_peak,
            ratio: arm.ratio,
            disk_bytes_written: arm.disk_bytes_written,
            faults: arm.faults,
            wrong_answers: arm.wrong_answers,
            answers: arm.answers,
            kept: arm.kept,
        }
    }

    /// Every arm that is limited beside every peer that is another one.
    fn comparisons(&self, merged: &[Merged]) -> Vec<Comparison> {
        let mut all = Vec::new();
        for one in merged.iter().filter(|one| one.result.name != ArmKind::Dram) {
            for peer in PEERS.into_iter().filter(|&peer| peer != one.result.name) {
                let peer = merged.iter().find(|other| {
                    other.point == one.point
                        && other.result.name == peer
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
        let (ours, theirs) =
            (times(&one.result.samples, |_| true), times(&peer.result.samples, |_| true));
        let ratio = |percent| {
            resamples.estimate(|positions| {
                percentile_at(&ours, positions, percent)
                    / percentile_at(&theirs, positions, percent)
            })
        };
        let by_program = |positions: &[usize]| {
            let mut of: BTreeMap<Kind, Vec<usize>> = BTreeMap::new();
            for &position in positions {
                of.entry(one.result.samples[position].program).or_default().push(position);
            }
            let logs = of.values().map(|positions| {
                let medians = [&ours, &theirs].map(|times| percentile_at(times, positions, 50.0));
                (medians[0] / medians[1]).ln()
            });
            (logs.sum::<f64>() / of.len() as f64).exp()
        };
        let swapping = |result: &ArmResult, dram: &[Sample], positions: &[usize]| -> f64 {
            positions
                .iter()
                .map(|&position| result.samples[position].cpu_ms - dram[position].cpu_ms)
                .sum()
        };
        let dram = one.dram.as_deref().filter(|_| group == Group::All);
        Comparison {
            point: one.point,
            arm: one.result.name,
            peer: peer.result.name,
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
                .filter(|one| one.result.name == arm && one.point.similarity == base.similarity)
                .collect();
            curve.sort_by(|a, b| a.point.total_part.total_cmp(&b.point.total_part));
            curve
        };
        let mut arms: Vec<ArmKind> = merged.iter().map(|one| one.result.name).collect();
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
        let level_times = times(&peer.result.samples, |_| true);
        let curve_times: Vec<(f64, Vec<f64>)> = curve
            .iter()
            .map(|one| (one.point.total_part, times(&one.result.samples, |_| true)))
            .collect();
        let crossing = |positions: &[usize]| {
            let level = percentile_at(&level_times, positions, 95.0);
            let curve: Vec<(f64, f64)> = curve_times
                .iter()
                .map(|(total, times)| (*total, percentile_at(times, positions, 95.0)))
                .collect();
            from_where_below(&curve, level)
        };
        let part = peer.point.total_part;
        let ratio: Estimate = Resamples::new(self.seed, strata)
            .estimate(|positions| crossing(positions).number() / part);
        EqualMemory {
            arm: curve[0].result.name,
            peer: peer.result.name,
            group,
            peer_total_part: part,
            needed_part: crossing(&everyone),
            ratio,
        }
    }
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
pub(crate) mod tests {
    use std::sync::OnceLock;

    use super::*;
    use crate::arms::{Ablation, KeptClasses};
    use crate::crossing::Crossing;
    use crate::full::schedule;

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

    fn arm_result(run: &Run) -> ArmResult {
        let samples: Vec<Sample> = (0..28)
            .map(|switch| {
                let program = Kind::ALL[switch % Kind::ALL.len()];
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
        ArmResult {
            name: run.arm,
            scheme: "zram".to_string(),
            relaunch_ms: Summary::of(&times(&samples, |_| true)),
            cpu_seconds: 3.0 + factor(run),
            fill_cpu_seconds: 2.0,
            swapping_cpu_seconds: None,
            total_bytes_peak: run.total.map_or(NEED, |part| total_bytes(NEED, part)),
            ratio: run.total.map(|_| if run.arm.is_clew() { 3.0 } else { 2.5 }),
            disk_bytes_written: 0,
            faults: 700 * 28,
            wrong_answers: 0,
            answers: 1_000,
            kept: Kept {
                resident_bytes: 200 << 20,
                stored_bytes: if run.total.is_some() { 600 << 20 } else { 0 },
                pool_bytes: if run.total.is_some() { 190 << 20 } else { 0 },
                daemon_bytes: if run.arm.is_clew() { 9 << 20 } else { 0 },
                disk_bytes: 0,
                classes: (run.arm == ArmKind::ClewAriadne).then(|| KeptClasses {
                    hot_resident_bytes: 150 << 20,
                    cold_stored_bytes: 333 << 20,
                    ..KeptClasses::default()
                }),
            },
            per_program: Vec::new(),
            samples,
            totals: Vec::new(),
            fill_seconds: 1.0,
        }
    }

    fn label(program: Kind) -> Touched {
        Touched {
            program,
            layout: program.layout(),
            adjacent_share: 0.9,
            run_pages: 5.0,
            touched_pages: 4_000.0,
            data_bytes: 112 << 20,
            similarity: 0.72,
        }
    }

    /// A made-up result whose figures are known: for what derives and what reports.
    pub(crate) fn example() -> FullResult {
        static MADE: OnceLock<FullResult> = OnceLock::new();
        MADE.get_or_init(make).clone()
    }

    fn make() -> FullResult {
        let mut config = FullConfig::new("clew".into(), "runs".into());
        config.totals = TOTALS.to_vec();
        config.arms.push(ArmKind::Without(Ablation::HotnessOrg));
        let runs = schedule::runs(&config.totals, &config.similarities, &config.arms, 2);
        let results = runs.iter().map(|run| (*run, arm_result(run))).collect();
        let labels = Kind::ALL.map(label).to_vec();
        let host = Host { kernel: "6.18.0".to_string(), cpus: 2, memory_bytes: 24 << 30 };
        let skipped =
            vec![Skipped { name: "clew".to_string(), reason: "no <userfaultfd> here".to_string() }];
        result(&config, &Kind::ALL, labels, results, skipped, host, 3_600.0)
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
                    .comparison(point, ArmKind::ClewZram, ArmKind::KernelZram, group)
                    .expect("both ran everywhere");
                for ratio in [one.p50, one.p95, one.p50_by_program] {
                    close(ratio.value, 0.75);
                    close(ratio.low, 0.75);
                    close(ratio.high, 0.75);
                }
            }
        }
        let base = result.base;
        let all = result
            .comparison(base, ArmKind::ClewAriadne, ArmKind::KernelZram, Group::All)
            .expect("both ran");
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
                    (one.arm, one.peer, one.group)
                        == (ArmKind::ClewZram, ArmKind::KernelZram, Group::All)
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
        let arm = result.at(result.base, ArmKind::KernelZram).expect("it ran");
        assert_eq!((arm.relaunch_ms.n, arm.answers), (56, 2_000));
        assert_eq!(arm.swapping_cpu_seconds, Some(2.0 * 3.0));
        let counts: usize = arm.groups[1..].iter().map(|group| group.n).sum();
        assert_eq!((arm.groups[0].group, arm.groups[0].n, counts), (Group::All, 56, 56));
        let breakdown = arm.groups[0].breakdown;
        // Works of 8 to 35 ms in the first round, 9 to 36 in the second.
        close(breakdown.work_ms, 22.0);
        close(breakdown.relaunch_ms, 88.0);
        close(breakdown.wait_ms, 66.0);
        assert_eq!(breakdown.mapped_pages, Some(3_300.0));
        let samples = &result.arms[1].samples;
        assert!(samples.iter().enumerate().all(|(position, one)| one.switch == position));
        // dram counts once for each similarity, not for each point.
        let runs = 2 * (4 + 7 * 7 + 1);
        assert_eq!(result.answers(), runs * 1_000);
    }

    #[test]
    fn an_arm_that_lacks_a_round_is_compared_with_no_other_arm() {
        let mut config = FullConfig::new("clew".into(), "runs".into());
        (config.totals, config.similarities) = (vec![0.5], vec![0.7]);
        let runs = schedule::runs(&[0.5], &[0.7], &config.arms, 2);
        let made = runs.iter().filter(|run| run.arm != ArmKind::ClewZram || run.round == 0);
        let results = made.map(|run| (*run, arm_result(run))).collect();
        let host = Host { kernel: String::new(), cpus: 1, memory_bytes: 0 };
        let result = result(&config, &Kind::ALL, Vec::new(), results, Vec::new(), host, 0.0);
        assert!(result.comparisons.iter().all(|one| one.arm != ArmKind::ClewZram));
        assert!(result.comparisons.iter().any(|one| one.arm == ArmKind::ClewAriadne));
        let arm = result.at(result.base, ArmKind::ClewZram).expect("what it did is shown");
        // But with what its switches take without swapping.
        let swapping = arm.swapping_cpu_seconds.expect("dram has that round");
        assert_eq!((arm.relaunch_ms.n, swapping > 0.0), (28, true));
        assert!(arm.groups.iter().all(|group| group.breakdown.work_ms > 0.0));
    }
}
