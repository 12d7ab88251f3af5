//! Numbers of spaces.
//!
//! There are fewer than there are programs in a daemon's life, so they come round: one is given again
//! once the space that had it, and its leaves, are gone. The next one is always the first that is free
//! behind the last: whoever still speaks of a space that has ended means none that has just begun.
//!
//! The lock is a leaf.

use std::collections::HashMap;

use clew_core::{SPACES, SpaceId};
use parking_lot::Mutex;

/// Which numbers are in use.
#[derive(Debug)]
pub(super) struct Numbers(Mutex<Used>);

#[derive(Debug)]
struct Used {
    next: u32,
    /// How many spaces have each.
    by: HashMap<u32, u32>,
}

impl Default for Numbers {
    fn default() -> Numbers {
        // Nobody has 0.
        Numbers(Mutex::new(Used { next: 1, by: HashMap::new() }))
    }
}

/// The number behind `number`.
fn behind(number: u32) -> u32 {
    if number + 1 < SPACES { number + 1 } else { 1 }
}

impl Numbers {
    /// One that is not in use, and is from now on; `None` if all are.
    pub fn take(&self) -> Option<SpaceId> {
        let mut used = self.0.lock();
        if used.by.len() as u64 + 1 >= u64::from(SPACES) {
            return None;
        }
        let mut number = used.next;
        while used.by.contains_key(&number) {
            number = behind(number);
        }
        used.by.insert(number, 1);
        used.next = behind(number);
        Some(SpaceId(number))
    }

    /// This one is in use.
    pub fn claim(&self, id: SpaceId) {
        let mut used = self.0.lock();
        *used.by.entry(id.0).or_default() += 1;
        if id.0 >= used.next {
            used.next = behind(id.0);
        }
    }

    /// It is not, by whoever has said so.
    pub fn give_back(&self, id: SpaceId) {
        let mut used = self.0.lock();
        if let Some(by) = used.by.get_mut(&id.0) {
            *by -= 1;
            if *by == 0 {
                used.by.remove(&id.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Entry, Space, State, Tables};
    use super::*;
    use clew_core::{PageId, Vpn};

    #[test]
    fn numbers_come_round_and_none_is_given_twice_at_a_time() {
        let tables = Arc::new(Tables::new(1 << 20).unwrap());
        let adopted = Space::new(SpaceId(7), Arc::clone(&tables));
        let long = Space::numbered(&tables).unwrap();
        assert_eq!(long.id(), SpaceId(8), "behind those that are there");
        long.store(Vpn(5), Entry::new(State::Resident)).unwrap();
        let mut last = long.id();
        for _ in 0..2 * SPACES {
            let id = Space::numbered(&tables).unwrap().id();
            // Whoever is given one may name pages with it.
            let _ = PageId::new(id, Vpn(0));
            assert!(id != adopted.id() && id != long.id() && id != SpaceId(0) && id != last);
            last = id;
        }
        assert_eq!(long.load(Vpn(5)).state(), State::Resident);
        drop(adopted);
        let again = (0..SPACES).map(|_| Space::numbered(&tables).unwrap().id());
        assert!(again.into_iter().any(|id| id == SpaceId(7)), "it is free again");
    }

    #[test]
    fn when_all_are_taken_there_is_none() {
        let numbers = Numbers::default();
        for _ in 1..SPACES {
            assert!(numbers.take().is_some());
        }
        assert_eq!(numbers.take(), None);
        numbers.give_back(SpaceId(9));
        assert_eq!(numbers.take(), Some(SpaceId(9)));
        assert_eq!(numbers.take(), None);
    }
}
