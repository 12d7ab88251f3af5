//! From runs to figures: percentiles with intervals, ratios to the peers, memory for equal p95.

use std::collections::BTreeMap;

use super::FullConfig;
use super::breakdown;
use super::result::{
    Comparison, EqualMemory, FullResult, FullSettings, Group, GroupResult, PointArm, PointResult,
    layout_of,
};
use super::schedule::{Point, Run, points, total_bytes};
use crate::arms::ArmKind;
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
        let dram = of_arm(&runs, ArmKind::Dram, point, programs);
        let mut arms = config.arms.clone();
        arms.retain(|&arm| arm != ArmKind::Dram);
        arms.insert(0, ArmKind::Dram);
        for arm in arms {
            let Some(mut result) = of_arm(&runs, arm, point, programs) else { continue };
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

/// The rounds of one arm at one point as one result; `None` if there is none.
fn of_arm(
    runs: &[(Run, ArmResult)],
    arm: ArmKind,
    point: Point,
    programs: &[Kind],
) -> Option<ArmResult> {
    let here = |run: &Run| {
        run.arm == arm
            && run.similarity == point.similarity
            && run.total.is_none_or(|total| total == point.total_part)
    };
    let mut rounds = runs.iter().filter(|(run, _)| here(run)).map(|(_, result)| result);
    let mut all = rounds.next()?.clone();
    let mut number = 1.0;
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
        all.kept = all.kept.plus(round.kept);
        number += 1.0;
    }
    all.ratio = all.ratio.map(|sum| sum / number);
    all.kept = all.kept.mean_of(number as usize);
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
