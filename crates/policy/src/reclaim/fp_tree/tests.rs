//! The trees against FP-growth as its paper has it, written down naively.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{AppId, PageId, SpaceId, Vpn};
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
        let mut counts = Counted::new();
        if let Some(tree) = forest.tree(APP) {
            let vpn = |number: u32| tree.pages[number as usize].page.vpn().0;
            for number in 0..tree.pages.len() as u32 {
                counts.insert(vec![vpn(number)], tree.pages[number as usize].count);
                tree.visit_others(number, |other, count| {
                    if vpn(number) < vpn(other) {
                        *counts.entry(vec![vpn(number), vpn(other)]).or_default() += count;
                    }
                });
            }
        }
        prop_assert_eq!(&counts, &found);
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
