//! Frequent-pattern trees: which pages of an app are nearly always used together.
//!
//! Source: Archer 4.3.1; Han, Pei, Yin, Mao, "Mining frequent patterns without candidate generation" (2004).
//! One tree an app. Transactions come in batches: a page is *frequent* in a batch if it is in so many
//! of the app's transactions there (support), and what is left of a transaction without the others
//! becomes a path of the tree, most frequent pages first. Counts go on from batch to batch. So a batch is
//! mined by adding it and looking at its own pages again: for each of them the nodes that carry it, with
//! what lies above and below them, say how often it was together with which others.
//!
//! Two pages are *associated* if each came with the other often enough: of the transactions with one,
//! so many per cent (confidence), and so many in number, were with both. Groups are of pages that are
//! associated pairwise. They are made greedily, as a page is of one group: the most frequent page first,
//! to which its partners are added, those it came with most often first, if they are partners of all that
//! are in the group already. The paper says no more than that only pages with strong associations are of
//! one group.
//!
//! The order along a path is by the counts of that time. FP-growth needs one order for all paths, as it
//! looks above a node only; here both directions are looked at, so that it does not matter.
//!
//! *Forgetting.* The trees of all apps have so many nodes together. Beyond that the largest tree halves all
//! its counts, and what becomes zero goes: what was together once, and long ago, is forgotten first. (The
//! paper: "can quickly degrade the association of drifted pages", and no bound.)
//!
//! Memory: 24 bytes a node; for each page of a tree 24 bytes and 12 to 24 of index; twice that while a
//! vector grows. 131,072 nodes are 3 to 6 MiB and, as in launches most nodes are of different pages,
//! up to 10 MiB with their pages. The paper's account (384 KiB) has no trees.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use clew_core::{AppId, PageId, SpaceId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// No node, no page, no group.
const NONE: u32 = u32::MAX;
/// Pages of a group, at most: the largest block that a store takes.
const GROUP_PAGES: usize = 128;

/// When pages belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A page counts if it is in so many per cent of the app's transactions of a batch.
    pub support_pct: u32,
    /// Of the transactions with one page, so many per cent are with both.
    pub confidence_pct: u32,
    /// So many transactions are with both; at least 1.
    pub together: u32,
    /// Nodes of all trees.
    pub nodes: usize,
}

#[derive(Clone, Copy)]
struct Node {
    page: u32,
    above: u32,
    /// First node below.
    below: u32,
    /// Next one below the same node.
    beside: u32,
    /// Next one of the same page.
    same: u32,
    count: u32,
}

/// What is known of a page.
#[derive(Clone, Copy)]
struct Known {
    page: PageId,
    /// Transactions with it; zero, if it is forgotten.
    count: u32,
    /// Its first node.
    first: u32,
    group: u32,
}

/// The tree of one app. Node 0 is the root.
pub struct FpTree {
    nodes: Vec<Node>,
    /// By the numbers that nodes have for pages.
    pages: Vec<Known>,
    numbers: HashMap<PageId, u32, FixedState>,
    /// The nodes below the root by page: they are many.
    roots: Vec<u32>,
    groups: u32,
    /// For the pages of one page's paths, zero in between: transactions with both.
    together: Vec<u32>,
}

impl Default for FpTree {
    fn default() -> FpTree {
        let root =
            Node { page: NONE, above: NONE, below: NONE, beside: NONE, same: NONE, count: 0 };
        FpTree {
            nodes: vec![root],
            pages: Vec::new(),
            numbers: HashMap::with_hasher(FixedState::default()),
            roots: Vec::new(),
            groups: 0,
            together: Vec::new(),
        }
    }
}

impl FpTree {
    /// Adds the transactions of a batch, each without duplicates; the frequent pages, whose associations
    /// may have changed.
    fn add(&mut self, batch: &[Vec<PageId>], support_pct: u32) -> BTreeSet<u32> {
        let mut counts: BTreeMap<PageId, u32> = BTreeMap::new();
        for page in batch.iter().flatten() {
            *counts.entry(*page).or_default() += 1;
        }
        let least = (batch.len() as u64 * u64::from(support_pct)).div_ceil(100);
        counts.retain(|_, count| u64::from(*count) >= least);
        let mut frequent = BTreeSet::new();
        for (page, count) in &counts {
            let number = self.number(*page);
            let known = &mut self.pages[number as usize];
            known.count = known.count.saturating_add(*count);
            frequent.insert(number);
        }
        for transaction in batch {
            let number = |page: &PageId| counts.contains_key(page).then(|| self.numbers[page]);
            let mut path: Vec<u32> = transaction.iter().filter_map(number).collect();
            path.sort_unstable_by_key(|number| {
                let known = &self.pages[*number as usize];
                (Reverse(known.count), known.page)
            });
            self.add_path(&path, 1);
        }
        frequent
    }

    fn number(&mut self, page: PageId) -> u32 {
        let next = self.pages.len() as u32;
        let number = *self.numbers.entry(page).or_insert(next);
        if number == next {
            self.pages.push(Known { page, count: 0, first: NONE, group: NONE });
            self.roots.push(NONE);
            self.together.push(0);
        }
        number
    }

    fn add_path(&mut self, path: &[u32], count: u32) {
        let mut at = 0;
        for &page in path {
            at = self.node_below(at, page);
            let node = &mut self.nodes[at as usize];
            node.count = node.count.saturating_add(count);
        }
    }

    fn node_below(&mut self, above: u32, page: u32) -> u32 {
        let mut node = match above {
            0 => self.roots[page as usize],
            _ => self.nodes[above as usize].below,
        };
        while node != NONE && self.nodes[node as usize].page != page {
            node = self.nodes[node as usize].beside;
        }
        if node != NONE {
            return node;
        }
        let new = self.nodes.len() as u32;
        let same = std::mem::replace(&mut self.pages[page as usize].first, new);
        let beside = std::mem::replace(&mut self.nodes[above as usize].below, new);
        self.nodes.push(Node { page, above, below: NONE, beside, same, count: 0 });
        if above == 0 {
            self.roots[page as usize] = new;
        }
        new
    }

    /// Visits what lies above and below the nodes of `page`: pages with transactions with both.
    fn visit_others(&self, page: u32, mut visit: impl FnMut(u32, u32)) {
        let mut node = self.pages[page as usize].first;
        while node != NONE {
            let Node { above, count, same, .. } = self.nodes[node as usize];
            let mut up = above;
            while up != 0 {
                visit(self.nodes[up as usize].page, count);
                up = self.nodes[up as usize].above;
            }
            self.visit_below(node, |node| visit(node.page, node.count));
            node = same;
        }
    }

    /// Visits all nodes below `top`, each before those below it.
    fn visit_below(&self, top: u32, mut visit: impl FnMut(&Node)) {
        let mut node = self.nodes[top as usize].below;
        while node != NONE {
            let at = &self.nodes[node as usize];
            visit(at);
            node = at.below;
            // Up again, until there is a way on.
            let mut from = at;
            while node == NONE {
                node = from.beside;
                if node == NONE {
                    if from.above == top {
                        return;
                    }
                    from = &self.nodes[from.above as usize];
                }
            }
        }
    }

    /// The pages that `page` is associated with and how often they were together, most often first.
    fn partners(&mut self, page: u32, rules: &Rules) -> Vec<(u32, u32)> {
        let mut together = std::mem::take(&mut self.together);
        let mut seen = Vec::new();
        self.visit_others(page, |other, count| {
            let sum = &mut together[other as usize];
            if *sum == 0 {
                seen.push(other);
            }
            *sum += count;
        });
        let often = |count: u32, both: u32| {
            count > 0 && u64::from(both) * 100 >= u64::from(count) * u64::from(rules.confidence_pct)
        };
        let count = self.pages[page as usize].count;
        let mut partners = Vec::new();
        for other in seen {
            let both = std::mem::take(&mut together[other as usize]);
            let of_other = self.pages[other as usize].count;
            if both >= rules.together && often(count, both) && often(of_other, both) {
                partners.push((other, both));
            }
        }
        self.together = together;
        partners.sort_unstable_by_key(|(other, both)| {
            (Reverse(*both), self.pages[*other as usize].page)
        });
        partners.truncate(GROUP_PAGES);
        partners
    }

    /// Makes the groups anew of `changed` pages and of those that were in a group with one.
    fn group(&mut self, changed: &BTreeSet<u32>, rules: &Rules) {
        let group_of = |number: &u32| self.pages[*number as usize].group;
        let broken: BTreeSet<u32> =
            changed.iter().map(group_of).filter(|group| *group != NONE).collect();
        let is_free = |(number, known): (usize, &Known)| {
            let number = number as u32;
            (changed.contains(&number) || broken.contains(&known.group)).then_some(number)
        };
        let mut free: Vec<u32> = self.pages.iter().enumerate().filter_map(is_free).collect();
        for number in &free {
            self.pages[*number as usize].group = NONE;
        }
        free.sort_unstable_by_key(|number| {
            let known = &self.pages[*number as usize];
            (Reverse(known.count), known.page)
        });
        let partners: BTreeMap<u32, Vec<(u32, u32)>> =
            free.iter().map(|number| (*number, self.partners(*number, rules))).collect();
        let are_partners = |a: u32, b: u32| partners[&a].iter().any(|(partner, _)| *partner == b);
        for first in &free {
            if self.pages[*first as usize].group != NONE {
                continue;
            }
            let mut group = vec![*first];
            for (other, _) in &partners[first] {
                let is_free =
                    partners.contains_key(other) && self.pages[*other as usize].group == NONE;
                if is_free
                    && group.len() < GROUP_PAGES
                    && group.iter().all(|member| are_partners(*other, *member))
                {
                    group.push(*other);
                }
            }
            if group.len() > 1 {
                let number = self.groups;
                self.groups = (self.groups + 1) % NONE;
                group.iter().for_each(|member| self.pages[*member as usize].group = number);
            }
        }
    }

    /// Halves all counts; what becomes zero goes, as does what was forgotten. No groups are left.
    fn halve(&mut self) {
        let old = std::mem::take(self);
        // A node is made after the one above it.
        let mut new_of = vec![0; old.nodes.len()];
        for (number, node) in old.nodes.iter().enumerate().skip(1) {
            let (above, half) = (new_of[node.above as usize], node.count / 2);
            let Known { page, count, .. } = old.pages[node.page as usize];
            new_of[number] = match (above, half) {
                (NONE, _) => NONE,
                _ if count == 0 => above,
                (_, 0) => NONE,
                _ => {
                    let page = self.number(page);
                    let here = self.node_below(above, page);
                    self.nodes[here as usize].count += half;
                    self.pages[page as usize].count += half;
                    here
                }
            };
        }
    }

    /// Nothing is said of the pages of `space` any more. Their nodes stay until counts are halved.
    fn forget_space(&mut self, space: SpaceId) {
        for known in self.pages.iter_mut().filter(|known| known.page.space() == space) {
            self.numbers.remove(&known.page);
            (known.count, known.group) = (0, NONE);
        }
    }

    fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Pages that are associated with others, by groups, each in the order of its addresses.
    pub fn groups(&self) -> impl Iterator<Item = Vec<PageId>> {
        let mut groups: BTreeMap<u32, Vec<PageId>> = BTreeMap::new();
        for known in self.pages.iter().filter(|known| known.group != NONE) {
            groups.entry(known.group).or_default().push(known.page);
        }
        groups.into_values().filter(|group| group.len() > 1).map(|mut group| {
            group.sort_unstable();
            group
        })
    }

    fn bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.pages.capacity() * size_of::<Known>()
            + self.numbers.capacity() * (size_of::<(PageId, u32)>() + 1)
            + (self.roots.capacity() + self.together.capacity()) * size_of::<u32>()
    }
}

/// The trees of all apps. A policy gives it to a job, with a batch, and gets it back.
pub struct FpForest {
    rules: Rules,
    trees: BTreeMap<AppId, FpTree>,
    halved: u64,
}

impl FpForest {
    /// No trees.
    pub fn new(rules: Rules) -> FpForest {
        FpForest { rules, trees: BTreeMap::new(), halved: 0 }
    }

    /// Adds a batch: transactions of one app each, without duplicates. The apps whose groups may be
    /// others now.
    pub fn mine(&mut self, batch: BTreeMap<AppId, Vec<Vec<PageId>>>) -> BTreeSet<AppId> {
        let mut changed: BTreeMap<AppId, BTreeSet<u32>> = BTreeMap::new();
        for (app, transactions) in batch {
            let tree = self.trees.entry(app).or_default();
            changed.insert(app, tree.add(&transactions, self.rules.support_pct));
        }
        while self.nodes() > self.rules.nodes {
            let largest = self.trees.iter_mut().max_by_key(|(app, tree)| (tree.nodes.len(), **app));
            let Some((app, tree)) = largest else { break };
            tree.halve();
            self.halved += 1;
            changed.insert(*app, (0..tree.pages.len() as u32).collect());
        }
        for (app, pages) in &changed {
            if let Some(tree) = self.trees.get_mut(app) {
                tree.group(pages, &self.rules);
            }
        }
        self.trees.retain(|_, tree| !tree.is_empty());
        changed.into_keys().collect()
    }

    /// The tree of `app`.
    pub fn tree(&self, app: AppId) -> Option<&FpTree> {
        self.trees.get(&app)
    }

    /// Nodes of all trees, roots not counted.
    pub fn nodes(&self) -> usize {
        self.trees.values().map(|tree| tree.nodes.len() - 1).sum()
    }

    /// Times that a tree halved its counts.
    pub fn halved(&self) -> u64 {
        self.halved
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.trees.values().map(FpTree::bytes).sum::<usize>() as u64
    }

    /// All pages of `space` are gone.
    pub fn forget_space(&mut self, space: SpaceId) {
        self.trees.values_mut().for_each(|tree| tree.forget_space(space));
    }

    /// `app` has ended.
    pub fn forget_app(&mut self, app: AppId) {
        self.trees.remove(&app);
    }
}

#[cfg(test)]
mod tests;
