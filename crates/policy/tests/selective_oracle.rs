//! Selective admission against the equations of the paper in floating point, over random pages and histories.

use std::collections::BTreeMap;

use clew_core::{
    Admission, Admit, AppId, Candidate, Event, Facts, Observe, PageCounts, PageFacts, PageId,
    SpaceId, Tier, TierFacts, View,
};
use clew_policy::admission::entropy::{BIT, MOST_BYTES, entropy};
use clew_policy::admission::hit_window::HitWindow;
use clew_policy::admission::selective::{Held, Params, Selective, is_worth};
use clew_policy::schemes::Answer;
use proptest::prelude::*;

use clew_conformance::{page, run};

/// Equation 3.
fn exact_entropy(bytes: &[u8]) -> f64 {
    let mut counts = BTreeMap::<u8, f64>::new();
    for byte in bytes {
        *counts.entry(*byte).or_default() += 1.0;
    }
    let parts = counts.values().map(|count| count / bytes.len() as f64);
    parts.map(|part| part * part.log2()).sum::<f64>().abs()
}

fn bits(bytes: &[u8]) -> f64 {
    f64::from(entropy(bytes)) / f64::from(BIT)
}

/// Bytes of few values or many.
fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
    let of = |values: u16| proptest::collection::vec((0..values).prop_map(|v| v as u8), 1..600);
    prop_oneof![of(256), of(17), of(3), of(2), of(1)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn entropy_is_that_of_equation_3(bytes in some_bytes()) {
        let beginning = &bytes[..bytes.len().min(MOST_BYTES)];
        let (here, exact) = (bits(&bytes), exact_entropy(beginning));
        prop_assert!((here - exact).abs() < 1e-3, "{here} and {exact}");
        prop_assert!((0.0..=8.0).contains(&here));
    }

    #[test]
    fn the_window_has_the_last_256_requests(
        hits in proptest::collection::vec(any::<bool>(), 0..700),
    ) {
        let mut window = HitWindow::default();
        for (at, hit) in hits.iter().enumerate() {
            window.push(*hit);
            let last = &hits[(at + 1).saturating_sub(256)..=at];
            prop_assert_eq!(window.hits(), last.iter().filter(|hit| **hit).count() as u64);
        }
    }

    /// Equations 1 and 2, where they are not so near to each other that floating point could err.
    #[test]
    fn what_is_worth_it_is_what_the_equations_say(
        file in any::<bool>(),
        entropy in 0u32..=8 * BIT,
        zpages in 0u64..100_000,
        files_pct in 0u64..=100,
        zpage_bytes in 64u64..=4200,
        hits in 0u64..=256,
        used_pct in 0u64..=100,
        limit_bytes in 1u64 << 16..1 << 42,
    ) {
        let files = zpages * files_pct / 100;
        let held = Held { cost: files + 4 * (zpages - files), bytes: zpages * zpage_bytes };
        let used_bytes = (u128::from(limit_bytes) * u128::from(used_pct) / 100) as u64;
        let cost = if file { 1 } else { 4 };
        let here = is_worth(cost, entropy, held, hits, (used_bytes, limit_bytes), 4096);
        let expected = cost as f64 / (f64::from(entropy) / f64::from(BIT) / 8.0);
        let average = match zpages {
            0 => 0.0,
            zpages => {
                let ratio = held.bytes as f64 / zpages as f64 / 4096.0;
                let capacity = used_bytes as f64 / limit_bytes as f64;
                let average_cost = held.cost as f64 / zpages as f64;
                capacity * average_cost * (hits as f64 / 256.0) / ratio
            }
        };
        if (expected / average - 1.0).abs() > 1e-9 || average == 0.0 {
            prop_assert_eq!(here, expected >= average, "{} against {}", expected, average);
        }
    }
}

/// Limits that nobody set are no reason to overflow.
#[test]
fn without_a_limit_everything_is_worth_it() {
    let held = Held { cost: u64::MAX / 8, bytes: u64::MAX / 8 };
    assert!(is_worth(1, 8 * BIT, held, 256, (1 << 40, u64::MAX), 1 << 14));
    assert!(is_worth(4, 0, held, 256, (u64::MAX, 1), 4096), "an entropy of 0 is always admitted");
}

/// Where no page is.
struct Nowhere;

impl PageFacts for Nowhere {
    fn tier(&self, _page: PageId) -> Option<Tier> {
        None
    }

    fn counts(&self, _space: SpaceId) -> PageCounts {
        PageCounts::default()
    }

    fn for_each(&self, _space: SpaceId, _visit: &mut dyn FnMut(PageId, Option<Tier>)) {}
}

/// Space 0 is anonymous memory, space 1 files; both of app 0.
fn facts(used_bytes: u64, limit_bytes: u64) -> Facts {
    let pool = TierFacts { used_bytes, limit_bytes, ..TierFacts::default() };
    Facts {
        space_app: vec![Some(AppId(0)), Some(AppId(0))],
        file_spaces: [SpaceId(1)].into(),
        tiers: [(Tier::Pool, pool)].into(),
        ..Facts::default()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Stored(PageId, u32),
    Elsewhere(PageId),
    Back(PageId, bool, bool),
    Freed(PageId, u32),
    Moved(PageId, u32, u64),
    End(SpaceId),
    Exit,
    Ask(PageId, Vec<u8>),
}

fn step() -> impl Strategy<Value = Step> {
    let any_page = || (0u32..2, 30u64..60).prop_map(|(space, vpn)| page(space, vpn));
    prop_oneof![
        12 => (any_page(), 0u32..4200).prop_map(|(page, bytes)| Step::Stored(page, bytes)),
        2 => any_page().prop_map(Step::Elsewhere),
        6 => (any_page(), any::<bool>(), any::<bool>())
            .prop_map(|(page, pool, demand)| Step::Back(page, pool, demand)),
        1 => (any_page(), 1u32..6).prop_map(|(page, count)| Step::Freed(page, count)),
        1 => (any_page(), 1u32..6, 40u64..70).prop_map(|(page, n, to)| Step::Moved(page, n, to)),
        1 => (0u32..2).prop_map(|space| Step::End(SpaceId(space))),
        1 => Just(Step::Exit),
        8 => (any_page(), some_bytes()).prop_map(|(page, bytes)| Step::Ask(page, bytes)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    /// What the pool holds is kept as a list of pages, and everything is summed up anew for each question.
    #[test]
    fn it_decides_by_what_the_pool_holds(
        steps in proptest::collection::vec(step(), 1..120),
        used_pct in 0u64..=100,
    ) {
        let facts = facts(used_pct << 20, 100 << 20);
        let view = View { facts: &facts, pages: &Nowhere, classes: None };
        let mut policy = Selective::default();
        let (mut pool, mut requests) = (BTreeMap::<PageId, u32>::new(), Vec::new());
        for step in steps {
            match step {
                Step::Stored(page, bytes) => {
                    policy.on_event(&Event::Stored { page, tier: Tier::Pool, bytes }, &view);
                    pool.insert(page, bytes.max(64));
                }
                Step::Elsewhere(page) => {
                    policy.on_event(&Event::Stored { page, tier: Tier::Flash, bytes: 9 }, &view);
                    pool.remove(&page);
                }
                Step::Back(page, from_pool, demand) => {
                    let tier = if from_pool { Tier::Pool } else { Tier::Flash };
                    policy.on_event(&Event::PageIn { page, tier, demand }, &view);
                    pool.remove(&page);
                    // Without pages of files nobody asks the pool for them.
                    requests.extend((demand && page.space().0 == 0).then_some(from_pool));
                }
                Step::Freed(first, count) => {
                    let run = run(first.space().0, first.vpn().0, count);
                    policy.on_event(&Event::Freed { run }, &view);
                    pool.retain(|page, _| !run.contains(*page));
                }
                Step::Moved(first, count, to) => {
                    let space = first.space().0;
                    let (from, over) = (run(space, first.vpn().0, count), run(space, to, count));
                    if from.pages().any(|page| over.contains(page)) {
                        continue;
                    }
                    policy.on_event(&Event::Moved { from, to: over.first }, &view);
                    pool.retain(|page, _| !over.contains(*page));
                    for of in from.pages() {
                        if let Some(bytes) = pool.remove(&of) {
                            pool.insert(page(space, of.vpn().0 - first.vpn().0 + to), bytes);
                        }
                    }
                }
                Step::End(space) => {
                    policy.on_event(&Event::SpaceEnd { space }, &view);
                    pool.retain(|page, _| page.space() != space);
                }
                Step::Exit => {
                    policy.on_event(&Event::Exit { app: AppId(0) }, &view);
                    pool.clear();
                }
                Step::Ask(page, sample) => {
                    let cost = |page: PageId| if page.space().0 == 1 { 1.0 } else { 4.0 };
                    let zpages = pool.len() as f64;
                    let ratio = pool.values().map(|bytes| f64::from(*bytes) / 4096.0).sum::<f64>();
                    let costs = pool.keys().map(|page| cost(*page)).sum::<f64>();
                    let last = &requests[requests.len().saturating_sub(256)..];
                    let hit_rate = last.iter().filter(|hit| **hit).count() as f64 / 256.0;
                    let average = match pool.is_empty() {
                        true => 0.0,
                        false => {
                            used_pct as f64 / 100.0 * (costs / zpages * hit_rate) / (ratio / zpages)
                        }
                    };
                    let beginning = &sample[..sample.len().min(512)];
                    let expected = cost(page) / (exact_entropy(beginning) / 8.0);
                    let found = policy.admit(Candidate { page, sample: &sample }, &view);
                    // Entropy is off by a thousandth of a bit at most.
                    if average == 0.0 || (expected / average - 1.0).abs() > 1e-2 {
                        prop_assert_eq!(found == Admit::Yes, expected >= average);
                    }
                }
            }
        }
    }
}

/// III-B: "assume that the zpool stores 200 zpages on average with a half of the swap-out pages having compression ratios
/// of 1.0 and the other half having compression ratios of 0.5. If the swap pool holds pages with the compression ratio of
/// 0.5 only, the number of zpages stored in the swap pool will increase to 300." 150 pages' worth of memory it is, then.
#[test]
fn the_dense_half_alone_is_admitted_and_fills_the_pool_with_half_as_many_again() {
    const LIMIT: u64 = 150 * 4096;
    // 16 values: 4 bits a byte, which is 0.5; all values: 1.0.
    let dense: Vec<u8> = (0..512).map(|at| at as u8 % 16).collect();
    let full: Vec<u8> = (0..512).map(|at| at as u8).collect();
    let run = |selective: bool| {
        let mut policy = Selective::default();
        let (mut held, mut used, mut vpn) = (Vec::<(PageId, u32)>::new(), 0, 0);
        for _ in 0..4000 {
            for (sample, bytes) in [(&dense, 2048), (&full, 4096)] {
                let page = page(0, vpn);
                vpn += 1;
                let facts = facts(used, LIMIT);
                let view = View { facts: &facts, pages: &Nowhere, classes: None };
                // Everything that is asked for is there: a hit rate of 1.
                let other = PageId::new(SpaceId(0), clew_core::Vpn(1 << 30));
                policy.on_event(
                    &Event::PageIn { page: other, tier: Tier::Pool, demand: true },
                    &view,
                );
                let candidate = Candidate { page, sample };
                if policy.admit(candidate, &view) == Admit::No && selective {
                    continue;
                }
                while used + u64::from(bytes) > LIMIT {
                    let (oldest, its) = held.remove(0);
                    used -= u64::from(its);
                    policy.on_event(
                        &Event::Stored { page: oldest, tier: Tier::Flash, bytes: 0 },
                        &view,
                    );
                }
                held.push((page, bytes));
                used += u64::from(bytes);
                policy.on_event(&Event::Stored { page, tier: Tier::Pool, bytes }, &view);
            }
        }
        held.len()
    };
    assert!((199..=201).contains(&run(false)), "{}", run(false));
    assert_eq!(run(true), 300);
}

/// An anonymous page is worth four times as much.
#[test]
fn of_files_only_what_is_four_times_as_dense_is_admitted() {
    let facts = facts(100, 100);
    let view = View { facts: &facts, pages: &Nowhere, classes: None };
    let mut policy = Params { files: true, ..Params::default() }.build();
    for vpn in 0..256 {
        let (page, tier) = (page(0, vpn), Tier::Pool);
        policy.on_event(&Event::PageIn { page, tier, demand: true }, &view);
        // Half the size: an average benefit of 4 / 0.5 = 8.
        policy.on_event(&Event::Stored { page, tier, bytes: 2048 }, &view);
    }
    let of_bits = |bits: u32| (0..512).map(|at| (at % (1 << bits)) as u8).collect::<Vec<u8>>();
    let mut admit = |space, bits| {
        let candidate = Candidate { page: page(space, 999), sample: &of_bits(bits) };
        policy.admit(candidate, &view) == Admit::Yes
    };
    assert_eq!([admit(0, 4), admit(0, 5), admit(1, 1), admit(1, 2)], [true, false, true, false]);
    let counted = policy.metrics();
    let of = |name: &str| counted.iter().find(|metric| metric.name == name).map(|m| m.value);
    assert_eq!(of("selective_rejected_pages"), Some(1.0));
    assert_eq!(of("selective_admitted_file_pages"), Some(1.0));
}
