//! Values by page, in leaves of 512 neighbours.
//!
//! Memory: 512 values a leaf and about 40 bytes to find it; a page without neighbours costs a
//! whole leaf. The default value stands for "nothing".

use clew_core::{PageId, PageRun, SpaceId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

const LEAF_BITS: u32 = 9;
/// Neighbours in a leaf.
pub const LEAF: usize = 1 << LEAF_BITS;

/// A value a page. See the module.
pub struct PageMap<T> {
    by_key: HashMap<u64, u32, FixedState>,
    leaves: Vec<Box<[T; LEAF]>>,
    free: Vec<u32>,
    /// Keys of the leaves of each space, in no order.
    spaces: Vec<Vec<u64>>,
    /// The leaf used last.
    last: (u64, u32),
}

fn key(page: PageId) -> u64 {
    page.raw() >> LEAF_BITS
}

fn offset(page: PageId) -> usize {
    page.raw() as usize & (LEAF - 1)
}

impl<T: Copy + Default + PartialEq> Default for PageMap<T> {
    fn default() -> PageMap<T> {
        PageMap {
            by_key: HashMap::with_hasher(FixedState::default()),
            leaves: Vec::new(),
            free: Vec::new(),
            spaces: Vec::new(),
            last: (u64::MAX, 0),
        }
    }
}

impl<T: Copy + Default + PartialEq> PageMap<T> {
    /// The value of `page`.
    #[inline]
    pub fn get(&self, page: PageId) -> T {
        let key = key(page);
        if key == self.last.0 {
            return self.leaves[self.last.1 as usize][offset(page)];
        }
        match self.by_key.get(&key) {
            Some(leaf) => self.leaves[*leaf as usize][offset(page)],
            None => T::default(),
        }
    }

    /// Where the value of `page` is, made if there is none.
    #[inline]
    pub fn entry(&mut self, page: PageId) -> &mut T {
        let key = key(page);
        if key != self.last.0 {
            self.go_to(key, page.space());
        }
        &mut self.leaves[self.last.1 as usize][offset(page)]
    }

    /// Leaves that take memory.
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }

    #[inline(never)]
    fn go_to(&mut self, key: u64, space: SpaceId) {
        self.last = (key, self.leaf(key, space));
    }

    fn leaf(&mut self, key: u64, space: SpaceId) -> u32 {
        if let Some(leaf) = self.by_key.get(&key) {
            return *leaf;
        }
        let leaf = self.free.pop().unwrap_or_else(|| {
            self.leaves.push(Box::new([T::default(); LEAF]));
            (self.leaves.len() - 1) as u32
        });
        self.by_key.insert(key, leaf);
        let number = space.0 as usize;
        if self.spaces.len() <= number {
            self.spaces.resize_with(number + 1, Vec::new);
        }
        self.spaces[number].push(key);
        leaf
    }

    /// Takes every value of a run, in address order; costs the leaves that are there, and no others.
    pub fn take_run(&mut self, run: PageRun, mut taken: impl FnMut(PageId, T)) {
        let space = run.first.space();
        let Some(keys) = self.spaces.get(space.0 as usize) else { return };
        let end = run.first.raw() + u64::from(run.count);
        let (first_key, last_key) = (key(run.first), (end - 1) >> LEAF_BITS);
        let mut of_run: Vec<u64> = if last_key - first_key < keys.len() as u64 {
            (first_key..=last_key).filter(|key| self.by_key.contains_key(key)).collect()
        } else {
            keys.iter().copied().filter(|key| (first_key..=last_key).contains(key)).collect()
        };
        of_run.sort_unstable();
        for key in of_run {
            let leaf = self.by_key[&key] as usize;
            let from = (key << LEAF_BITS).max(run.first.raw());
            for raw in from..((key + 1) << LEAF_BITS).min(end) {
                let page = PageId::from_raw(raw);
                let value = std::mem::take(&mut self.leaves[leaf][offset(page)]);
                if value != T::default() {
                    taken(page, value);
                }
            }
        }
    }

    /// Moves the values of a run, over what is there; the runs do not overlap.
    pub fn move_run(&mut self, from: PageRun, to: PageId) {
        self.take_run(PageRun { first: to, ..from }, |_, _| {});
        let mut moving = Vec::new();
        self.take_run(from, |page, value| moving.push((page.raw() - from.first.raw(), value)));
        for (offset, value) in moving {
            *self.entry(to.plus(offset)) = value;
        }
    }

    /// Every value of a space that may be another than the default, in no order.
    pub fn each_of_space(&mut self, space: SpaceId, mut each: impl FnMut(&mut T)) {
        let Some(keys) = self.spaces.get(space.0 as usize) else { return };
        for leaf in keys.iter().filter_map(|key| self.by_key.get(key)) {
            self.leaves[*leaf as usize].iter_mut().for_each(&mut each);
        }
    }

    /// Forgets a space.
    pub fn remove_space(&mut self, space: SpaceId) {
        self.take_space(space, |_| {});
    }

    /// Takes every value of a space, by leaf in the order in which they came to be.
    pub fn take_space(&mut self, space: SpaceId, mut taken: impl FnMut(T)) {
        let Some(keys) = self.spaces.get_mut(space.0 as usize) else { return };
        for key in std::mem::take(keys) {
            if let Some(number) = self.by_key.remove(&key) {
                let leaf = &mut *self.leaves[number as usize];
                leaf.iter().filter(|value| **value != T::default()).for_each(|value| taken(*value));
                *leaf = [T::default(); LEAF];
                self.free.push(number);
            }
        }
        self.last = (u64::MAX, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clew_core::Vpn;
    use proptest::prelude::*;

    use super::*;

    fn page(space: u32, vpn: u64) -> PageId {
        PageId::new(SpaceId(space), Vpn(vpn))
    }

    #[derive(Clone, Debug)]
    enum Act {
        Set(u32, u64, u32),
        Take(u32, u64, u32),
        Move(u32, u64, u32, u64),
        Drop(u32),
    }

    fn act() -> impl Strategy<Value = Act> {
        let vpn = || prop_oneof![0u64..2000, Just(1u64 << 40)];
        prop_oneof![
            4 => (0u32..3, vpn(), 1u32..100).prop_map(|(s, v, x)| Act::Set(s, v, x)),
            1 => (0u32..3, vpn(), prop_oneof![1u32..3000, Just(u32::MAX)])
                .prop_map(|(s, v, n)| Act::Take(s, v, n)),
            1 => (0u32..3, 0u64..1000, 1u32..1000, 2000u64..4000)
                .prop_map(|(s, v, n, to)| Act::Move(s, v, n, to)),
            1 => (0u32..3).prop_map(Act::Drop),
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_plain_map(acts in prop::collection::vec(act(), 0..60)) {
            let mut map = PageMap::<u32>::default();
            let mut model = BTreeMap::<PageId, u32>::new();
            for act in acts {
                match act {
                    Act::Set(s, v, x) => {
                        *map.entry(page(s, v)) = x;
                        model.insert(page(s, v), x);
                    }
                    Act::Take(s, v, count) => {
                        let run = PageRun { first: page(s, v), count };
                        let mut taken = Vec::new();
                        map.take_run(run, |page, value| taken.push((page, value)));
                        let known: Vec<(PageId, u32)> =
                            model.iter().filter(|(p, _)| run.contains(**p)).map(|(p, x)| (*p, *x)).collect();
                        prop_assert_eq!(taken, known);
                        model.retain(|page, _| !run.contains(*page));
                    }
                    Act::Move(s, v, count, to) => {
                        let (from, to) = (PageRun { first: page(s, v), count }, page(s, to));
                        map.move_run(from, to);
                        let moving: Vec<(u64, u32)> = model.iter()
                            .filter(|(p, _)| from.contains(**p))
                            .map(|(p, x)| (p.raw() - from.first.raw(), *x)).collect();
                        let over = PageRun { first: to, ..from };
                        model.retain(|page, _| !from.contains(*page) && !over.contains(*page));
                        model.extend(moving.into_iter().map(|(o, x)| (to.plus(o), x)));
                    }
                    Act::Drop(s) => {
                        map.remove_space(SpaceId(s));
                        model.retain(|page, _| page.space() != SpaceId(s));
                    }
                }
                for (page, value) in &model {
                    prop_assert_eq!(map.get(*page), *value);
                }
            }
        }
    }
}
