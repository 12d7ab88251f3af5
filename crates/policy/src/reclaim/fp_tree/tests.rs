//! The trees against FP-growth as its paper has it, written down naively.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use clew_core::{AppId, PageId, Seeded, SpaceId, Vpn};
use proptest::prelude::*;

use super::{FpForest, Rules};

const APP: AppId = AppId(0);
const RULES: Rules = Rules { support_pct: 20, confidence_pct: 70, together: 1, nodes: 1 << 20 };

fn page(vpn: u64) -> PageId {
    PageId::new(SpaceId(0), Vpn(vpn))
}

fn pages(vpns: &[u64]) -> Vec<PageId> {
    vpns.iter().map(|vpn| page(*vpn)).collect()
}

fn batch(transactions: &[&[u64]]) -> BTreeMap<AppId, Vec<Vec<PageId>>> {
    BTreeMap::from([(APP, transactions.iter().map(|t| pages(t)).collect())])
}

fn groups_of(forest: &FpForest) -> Vec<Vec<u64>> {
    let groups = forest.tree(APP).into_iter().flat_map(|tree| tree.groups());
    let vpns = |group: Vec<PageId>| group.into_iter().map(|page| page.vpn().0).collect();
    let mut groups: Vec<Vec<u64>> = groups.map(vpns).collect();
    groups.sort();
    groups
}

/// How often each page, and each pair, was there.
fn counts_of(forest: &FpForest) -> Counted {
    let mut counts = Counted::new();
    let Some(tree) = forest.tree(APP) else { return counts };
    let vpn = |number: u32| tree.pages[number as usize].page.vpn().0;
    for number in 0..tree.pages.len() as u32 {
        counts.insert(vec![vpn(number)], tree.pages[number as usize].count);
        tree.visit_others(number, |other, count| {
            if vpn(number) < vpn(other) {
                *counts.entry(vec![vpn(number), vpn(other)]).or_default() += count;
            }
        });
    }
    counts
}

type Item = u64;
type Counted = BTreeMap<Vec<Item>, u32>;

/// FP-growth (Han et al., section 3), of transactions with a count each: `out` gets every itemset of up
/// to `most` items whose count is at least 1. The tree is its paths, one for each transaction.
fn fp_growth(database: &[(Vec<Item>, u32)], suffix: &[Item], most: usize, out: &mut Counted) {
    let mut support: BTreeMap<Item, u32> = BTreeMap::new();
    for (items, count) in database {
        for item in items {
            *support.entry(*item).or_default() += count;
        }
    }
    // The header table, and each path in its order.
    let mut header: Vec<Item> = support.keys().copied().collect();
    header.sort_by_key(|item| (std::cmp::Reverse(support[item]), *item));
    let rank = |item: &Item| header.iter().position(|other| other == item).expect("an item");
    let paths: Vec<(Vec<Item>, u32)> = database
        .iter()
        .map(|(items, count)| {
            let mut path = items.clone();
            path.sort_by_key(rank);
            (path, *count)
        })
        .collect();
    for item in header.iter().rev() {
        let mut found = vec![*item];
        found.extend(suffix);
        found.sort_unstable();
        out.insert(found.clone(), support[item]);
        if found.len() == most {
            continue;
        }
        // Its conditional pattern base: what stands before it on the paths.
        let before = |(path, count): &(Vec<Item>, u32)| {
            let at = path.iter().position(|other| other == item)?;
            Some((path[..at].to_vec(), *count))
        };
        let base: Vec<(Vec<Item>, u32)> = paths.iter().filter_map(before).collect();
        fp_growth(&base, &found, most, out);
    }
}

/// Of each batch what support leaves, and all itemsets of it.
fn naive(batches: &[Vec<BTreeSet<Item>>], support_pct: u32, most: usize) -> Counted {
    let mut database = Vec::new();
    for batch in batches {
        for transaction in batch {
            let is_frequent = |item: &&Item| {
                let with = batch.iter().filter(|other| other.contains(item)).count();
                with as f64 >= batch.len() as f64 * f64::from(support_pct) / 100.0
            };
            database.push((transaction.iter().filter(is_frequent).copied().collect(), 1));
        }
    }
    let mut found = Counted::new();
    fp_growth(&database, &[], most, &mut found);
    found
}

/// The groups that greedy choice makes of these counts.
fn naive_groups(found: &Counted, rules: &Rules) -> Vec<Vec<Item>> {
    let single = |item: Item| found[&vec![item]];
    let both = |a: Item, b: Item| found.get(&vec![a.min(b), a.max(b)]).copied().unwrap_or(0);
    let are_partners = |a: Item, b: Item| {
        let confident = |of: Item| f64::from(both(a, b)) / f64::from(single(of));
        both(a, b) >= rules.together
            && confident(a) * 100.0 >= f64::from(rules.confidence_pct)
            && confident(b) * 100.0 >= f64::from(rules.confidence_pct)
    };
    let mut free: Vec<Item> = found.keys().filter(|set| set.len() == 1).map(|set| set[0]).collect();
    free.sort_by_key(|item| (std::cmp::Reverse(single(*item)), *item));
    let mut groups = Vec::new();
    while !free.is_empty() {
        let first = free.remove(0);
        let mut others: Vec<Item> =
            free.iter().copied().filter(|other| are_partners(first, *other)).collect();
        others.sort_by_key(|other| (std::cmp::Reverse(both(first, *other)), *other));
        let mut group = vec![first];
        for other in others {
            if group.iter().all(|member| are_partners(*member, other)) {
                group.push(other);
            }
        }
        free.retain(|item| !group.contains(item));
        group.sort_unstable();
        groups.extend((group.len() > 1).then_some(group));
    }
    groups.sort();
    groups
}

fn of_items(batch: &[BTreeSet<Item>]) -> BTreeMap<AppId, Vec<Vec<PageId>>> {
    let transactions: Vec<Vec<u64>> = batch.iter().map(|t| t.iter().copied().collect()).collect();
    let transactions: Vec<&[u64]> = transactions.iter().map(Vec::as_slice).collect();
    super::tests::batch(&transactions)
}

fn batches() -> impl Strategy<Value = Vec<Vec<BTreeSet<Item>>>> {
    // Some transactions repeat, so that there is something to find.
    let transaction = || {
        prop_oneof![
            2 => Just(BTreeSet::from([1, 2, 3, 4])),
            1 => Just(BTreeSet::from([3, 4, 5])),
            3 => prop::collection::btree_set(0u64..9, 0..6),
        ]
    };
    let batch = prop::collection::vec(transaction(), 1..9);
    prop::collection::vec(batch, 1..5)
}

proptest! {
    #[test]
    fn as_naive_fp_growth_has_it(
        batches in batches(),
        support_pct in prop_oneof![Just(0u32), Just(20), 1u32..60],
        confidence_pct in prop_oneof![Just(70u32), 30u32..=100],
        together in 1u32..4,
    ) {
        let rules = Rules { support_pct, confidence_pct, together, ..RULES };
        let mut forest = FpForest::new(rules);
        for batch in &batches {
            forest.mine(of_items(batch));
        }
        let found = naive(&batches, support_pct, 2);
        prop_assert_eq!(&counts_of(&forest), &found);
        // In each batch only what changed was looked at again: others of no batch since keep their groups.
        if batches.len() == 1 {
            prop_assert_eq!(groups_of(&forest), naive_groups(&found, &rules));
        }
        for group in groups_of(&forest) {
            for (position, a) in group.iter().enumerate() {
                for b in &group[position + 1..] {
                    let both = f64::from(found[&vec![*a, *b]]);
                    let least = f64::from(confidence_pct) / 100.0;
                    prop_assert!(both >= f64::from(together));
                    prop_assert!(both / f64::from(found[&vec![*a]]) >= least - 1e-9);
                    prop_assert!(both / f64::from(found[&vec![*b]]) >= least - 1e-9);
                }
            }
        }
    }

    /// However small the bound is, it is kept, and no page is together with another more often than it
    /// is there at all.
    #[test]
    fn the_bound_is_kept(batches in batches(), nodes in 0usize..12) {
        let mut forest = FpForest::new(Rules { support_pct: 0, nodes, ..RULES });
        for batch in &batches {
            let mut both = of_items(batch);
            both.insert(AppId(1), vec![pages(&[100, 101])]);
            forest.mine(both);
            prop_assert!(forest.nodes() <= nodes);
            for tree in forest.trees.values() {
                for (number, known) in tree.pages.iter().enumerate() {
                    let mut of_page = 0;
                    let mut node = known.first;
                    while node != super::NONE {
                        of_page += tree.nodes[node as usize].count;
                        node = tree.nodes[node as usize].same;
                    }
                    prop_assert_eq!(of_page, known.count);
                    let mut together: BTreeMap<u32, u32> = BTreeMap::new();
                    tree.visit_others(number as u32, |other, count| {
                        *together.entry(other).or_default() += count;
                    });
                    prop_assert!(together.into_iter().all(|(_, count)| count <= known.count));
                }
            }
        }
    }
}

/// What scripts/mining.py finds in these batches: counts, and groups of one batch.
fn found_by_another(
    miner: &str,
    batches: &[Vec<BTreeSet<Item>>],
    rules: &Rules,
) -> (Counted, Vec<Vec<Item>>) {
    let mut words = miner.split(' ');
    let mut command = Command::new(words.next().expect("a command"));
    command.args(words);
    for number in [rules.support_pct, rules.confidence_pct, rules.together] {
        command.arg(number.to_string());
    }
    let mut miner =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut input = miner.stdin.take().expect("a pipe");
    for batch in batches {
        for transaction in batch.iter().filter(|transaction| !transaction.is_empty()) {
            let items: Vec<String> = transaction.iter().map(Item::to_string).collect();
            writeln!(input, "{}", items.join(" ")).expect("it reads");
        }
        writeln!(input).expect("it reads");
    }
    drop(input);
    let said = miner.wait_with_output().expect("it ends");
    assert!(said.status.success(), "{}", said.status);
    let (mut counts, mut groups) = (Counted::new(), Vec::new());
    for line in String::from_utf8(said.stdout).expect("text").lines() {
        let (what, numbers) = line.split_once(' ').expect("two words");
        let mut numbers: Vec<Item> =
            numbers.split(' ').map(|number| number.parse().expect("a number")).collect();
        if what == "count" {
            let count = numbers.remove(0) as u32;
            counts.insert(numbers, count);
        } else {
            groups.push(numbers);
        }
    }
    groups.sort();
    (counts, groups)
}

/// Larger ones than the naive one can do, by a library in Python that has another algorithm.
#[test]
#[ignore = "make mining: needs a package from PyPI"]
fn an_implementation_in_another_language_finds_the_same() {
    let miner = std::env::var("CLEW_MINER").expect("CLEW_MINER: 'make mining' sets it");
    let mut draw = Seeded::of(1, &[7]);
    let (mut groups_seen, mut pairs_seen) = (0, 0);
    for round in 0..60 {
        let rules = Rules {
            support_pct: [0, 5, 20][round % 3],
            confidence_pct: 50 + draw.below(51) as u32,
            together: 1 + draw.below(3) as u32,
            ..RULES
        };
        // Windows of uses: some begin a run of pages that always follow, with some of them left out.
        let mut transaction = || {
            let mut items: BTreeSet<Item> = (0..draw.below(12)).map(|_| draw.below(200)).collect();
            for _ in 0..draw.below(4) {
                let first = draw.below(20) * 10;
                items.extend((first..first + 8).filter(|_| draw.below(12) > 0));
            }
            items
        };
        let mut batch = || (0..40).map(|_| transaction()).filter(|t| !t.is_empty()).collect();
        let batches: Vec<Vec<BTreeSet<Item>>> = (0..1 + round / 20).map(|_| batch()).collect();
        let mut forest = FpForest::new(rules);
        batches.iter().for_each(|batch| drop(forest.mine(of_items(batch))));
        let (counts, groups) = found_by_another(&miner, &batches, &rules);
        assert_eq!(counts_of(&forest), counts, "round {round}");
        if batches.len() == 1 {
            assert_eq!(groups_of(&forest), groups, "round {round}");
        }
        groups_seen += groups.len();
        pairs_seen += counts.keys().filter(|items| items.len() == 2).count();
    }
    println!("{pairs_seen} pairs and {groups_seen} groups are the same");
    assert!(groups_seen > 20 && pairs_seen > 10_000, "{groups_seen} groups, {pairs_seen} pairs");
}

/// All itemsets of the example of Han et al. (table 1, support 3) that its section 3.1 names.
#[test]
fn the_naive_one_is_that_of_the_paper() {
    let letters = ["facdgimp", "abcflmo", "bfhjo", "bcksp", "afcelpmn"];
    let database: Vec<(Vec<Item>, u32)> =
        letters.iter().map(|t| (t.bytes().map(u64::from).collect(), 1)).collect();
    let mut found = Counted::new();
    fp_growth(&database, &[], 8, &mut found);
    let count = |letters: &str| {
        let mut items: Vec<Item> = letters.bytes().map(u64::from).collect();
        items.sort_unstable();
        found.get(&items).copied().unwrap_or(0)
    };
    for (set, times) in [("f", 4), ("c", 4), ("a", 3), ("b", 3), ("m", 3), ("p", 3), ("cp", 3)] {
        assert_eq!(count(set), times, "{set}");
    }
    for set in ["am", "cm", "fm", "cam", "fam", "fcm", "fcam"] {
        assert_eq!(count(set), 3, "{set}");
    }
    assert_eq!(count("bp"), 1);
}

#[test]
fn what_is_always_together_is_a_group_and_what_drifts_leaves_it() {
    let mut forest = FpForest::new(RULES);
    let changed = forest.mine(batch(&[&[1, 2, 3], &[2, 1, 3], &[9, 8], &[1, 3, 2]]));
    assert_eq!(changed, BTreeSet::from([APP]));
    assert_eq!(groups_of(&forest), [vec![1, 2, 3], vec![8, 9]]);
    // 3 comes alone now: 3 of 4 times with the others, 3 of 5, ...
    forest.mine(batch(&[&[3], &[1, 2]]));
    assert_eq!(groups_of(&forest), [vec![1, 2, 3], vec![8, 9]]);
    forest.mine(batch(&[&[3], &[1, 2]]));
    assert_eq!(groups_of(&forest), [vec![1, 2], vec![8, 9]]);
}

#[test]
fn support_is_of_the_app_s_transactions_of_a_batch() {
    let mut forest = FpForest::new(RULES);
    // 1 and 2 in one of six: less than a fifth. 3 and 4 in two.
    forest.mine(batch(&[&[1, 2], &[3, 4], &[3, 4], &[5], &[6], &[7]]));
    assert_eq!(groups_of(&forest), [vec![3, 4]]);
    // What others did in the batch does not count.
    let mut both = batch(&[&[1, 2]]);
    both.insert(AppId(1), (20..40).map(|vpn| pages(&[vpn])).collect());
    forest.mine(both);
    assert_eq!(groups_of(&forest), [vec![1, 2], vec![3, 4]]);
}

#[test]
fn the_largest_tree_forgets_first_what_was_once() {
    let mut forest = FpForest::new(Rules { nodes: 8, support_pct: 0, ..RULES });
    forest.mine(BTreeMap::from([(AppId(1), vec![pages(&[50, 51])])]));
    forest.mine(batch(&[&[1, 2], &[1, 2], &[3, 4, 5, 6, 7]]));
    assert_eq!((forest.nodes(), forest.halved()), (4, 1));
    assert_eq!(groups_of(&forest), [vec![1, 2]]);
    assert!(forest.tree(AppId(1)).is_some_and(|tree| tree.groups().next().is_some()));
}

#[test]
fn who_ends_is_forgotten() {
    let mut forest = FpForest::new(RULES);
    let elsewhere = PageId::new(SpaceId(1), Vpn(7));
    let transaction = vec![page(1), page(2), elsewhere];
    forest.mine(BTreeMap::from([(APP, vec![transaction.clone(), transaction])]));
    forest.forget_space(SpaceId(1));
    assert_eq!(groups_of(&forest), [vec![1, 2]]);
    forest.mine(batch(&[&[1, 2]]));
    assert_eq!(groups_of(&forest), [vec![1, 2]]);
    forest.forget_space(SpaceId(0));
    assert_eq!(groups_of(&forest), Vec::<Vec<u64>>::new());
    forest.mine(BTreeMap::from([(AppId(1), vec![pages(&[3, 4])])]));
    assert!(forest.tree(APP).is_none());
    forest.forget_app(AppId(1));
    assert_eq!((forest.nodes(), forest.bytes()), (0, 0));
}
