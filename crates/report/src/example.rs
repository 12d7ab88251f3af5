//! Made-up results: only for what reports look like.

use crate::*;

const BASE: Point = Point { total_part: Some(0.6), similarity: Some(0.7) };
const PROGRAMS: [(&str, Layout); 4] = [
    ("redis", Layout::Scattered),
    ("python", Layout::Scattered),
    ("node", Layout::Clustered),
    ("sqlite", Layout::Clustered),
];

fn estimate(value: f64, spread: f64) -> Estimate {
    Estimate { value, low: value - spread, high: value + spread }
}

fn arm(name: &str, role: Role, factor: f64) -> Arm {
    let limited = role != Role::Unlimited;
    let samples: Vec<Sample> = (0..16)
        .map(|switch| Sample {
            switch,
            program: PROGRAMS[switch % 4].0.to_string(),
            relaunch_ms: factor * (10.0 + switch as f64),
            ..Sample::default()
        })
        .collect();
    let times: Vec<f64> = samples.iter().map(|sample| sample.relaunch_ms).collect();
    let clew = role == Role::Clew;
    Arm {
        name: name.to_string(),
        role,
        scheme: "zram".to_string(),
        relaunch_ms: Summary::of(&times),
        groups: Group::EACH
            .map(|group| GroupResult {
                group,
                n: 16,
                p50_ms: estimate(factor, 1.0),
                p95_ms: estimate(factor * 2.0, 1.0),
                breakdown: Breakdown {
                    relaunch_ms: factor * 15.0,
                    work_ms: 8.0,
                    codec_ms: clew.then_some(1.0),
                    wait_ms: factor,
                    faulted_pages: 700.0,
                    mapped_pages: Some(3_000.0),
                    ..Breakdown::default()
                },
            })
            .to_vec(),
        per_program: PROGRAMS
            .map(|(name, layout)| ProgramResult {
                name: name.to_string(),
                layout,
                relaunch_ms: Summary::of(&times),
                wrong_answers: 0,
            })
            .to_vec(),
        cpu_ms: Some(3_000.0 + factor),
        fill_cpu_ms: Some(2_000.0),
        swapping_cpu_ms: limited.then_some(1_000.0 * factor),
        total_bytes_peak: 300 << 20,
        kept: Some(Memory {
            resident_bytes: 200 << 20,
            pool_bytes: if limited { 90 << 20 } else { 0 },
            classes: clew.then(|| Classes { hot_resident_bytes: 150 << 20, ..Classes::default() }),
            ..Memory::default()
        }),
        ratio: limited.then_some(2.5),
        faults: 1_000,
        answers: 20_000,
        samples,
        totals: (0..10).map(|i| TotalPoint { at_ms: i * 100, bytes: i << 25 }).collect(),
        fill_seconds: Some(4.0),
        ..Arm::default()
    }
}

fn point(point: Point) -> PointResult {
    let arms = vec![
        arm("dram", Role::Unlimited, 1.0),
        arm("kernel-zram", Role::Kernel, 4.0),
        arm("kernel-zram+hint", Role::Kernel, 2.0),
        arm("clew", Role::Clew, 1.0),
        arm("clew-ariadne", Role::Clew, 1.5),
        arm("ariadne-no-buffer", Role::Ablation, 3.0),
    ];
    PointResult { point, total_bytes: 300 << 20, arms }
}

/// As of a full demo: everything that there can be of real programs.
pub fn demo() -> Results {
    let compared = |(peer, value): (&str, f64)| {
        Group::EACH.map(|group| Comparison {
            point: BASE,
            arm: "clew".to_string(),
            peer: peer.to_string(),
            group,
            p50: estimate(value, 0.05),
            p95: estimate(value, 0.1),
            p50_by_program: estimate(value, 0.01),
            swapping_cpu: (group == Group::All).then(|| estimate(0.3, 0.1)),
            ratio: (group == Group::All).then_some(1.2),
        })
    };
    let equal = |peer_total_part, needed_part| EqualMemory {
        arm: "clew".to_string(),
        peer: "kernel-zram+hint".to_string(),
        group: Group::All,
        peer_total_part,
        needed_part,
        ratio: estimate(0.72, 0.02),
    };
    let label = |name: &str, layout| Touched {
        program: name.to_string(),
        layout,
        adjacent_share: 0.9,
        run_pages: 6.4,
        touched_pages: 4_000.0,
        data_bytes: 112 << 20,
        similarity: 0.72,
    };
    Results {
        title: "Clew demo".to_string(),
        machine: Some(Machine { kernel: "6.18.0".to_string(), cpus: 2, memory_bytes: 24 << 30 }),
        commit: Some("abc1234".to_string()),
        seed: Some(1),
        duration_seconds: Some(100.0),
        programs: PROGRAMS
            .map(|(name, layout)| ProgramFacts {
                name: name.to_string(),
                layout,
                description: "a server <with> data, asked by keys of which most are near another"
                    .into(),
                anonymous_bytes: Some(112 << 20),
                touched_bytes: Some(17 << 20),
                label: Some(label(name, layout)),
            })
            .to_vec(),
        points: vec![
            point(BASE),
            point(Point { total_part: Some(0.4), ..BASE }),
            point(Point { similarity: Some(0.3), ..BASE }),
        ],
        comparisons: [("kernel-zram", 0.25), ("kernel-zram+hint", 0.5)].map(compared).concat(),
        memory_for_equal_p95: vec![
            equal(0.6, Crossing::At(0.43)),
            equal(0.4, Crossing::AtMost(0.4)),
        ],
        skipped: vec![Skipped { name: "java".into(), reason: "no <java> here".into() }],
        kernel_cannot: vec!["zram with zstd".to_string()],
        notes: vec!["Equal totals: enforced by one control group.".to_string()],
        method: vec!["Nothing is pinned to a processor.".to_string()],
        ..Results::default()
    }
}

/// Two schemes, one of them partial.
pub fn replay() -> Results {
    let scheme = |name: &str, p50: f64| Arm {
        name: name.to_string(),
        scheme: name.to_string(),
        time: Time::Modelled,
        relaunch_ms: Summary { p50, p95: p50 * 2.0, max: p50 * 3.0, n: 7 },
        swapping_cpu_ms: Some(1_234.5),
        total_bytes_peak: 24 << 20,
        peak: Some(Memory { resident_bytes: 20 << 20, pool_bytes: 4 << 20, ..Memory::default() }),
        ratio: Some(2.5),
        faults: 100,
        replay: Some(Replay {
            compress_ms: 1_000.0,
            hits: 300,
            cold_launches: 3,
            kills: 4,
            read_amplification: Some(1.23),
            hot_sets: HotSets {
                similarity: Some(0.7),
                reuse: Some(0.98),
                coverage: Some(0.71),
                accuracy: Some(0.92),
                relaunches: 7,
            },
            belady: Some(Belady { pages: 4711, ratio: 2.5 }),
            ..Replay::default()
        }),
        ..Arm::default()
    };
    let mut arms = vec![scheme("zram", 30.0), scheme("<mine>", 12.0)];
    arms[1].missing = vec!["flash".to_string()];
    Results {
        title: "Schemes on a & b.clew".to_string(),
        points: vec![PointResult {
            point: Point { total_part: Some(0.6), similarity: None },
            total_bytes: 24 << 20,
            arms,
        }],
        notes: vec!["a & b.clew (generated by a test, seed 7)".to_string()],
        ..Results::default()
    }
}
