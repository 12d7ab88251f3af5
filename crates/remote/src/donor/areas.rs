//! What borrowers have at a donor: for each session an area, in which lie pieces as they were written.
//!
//! A piece is what one write brought; another write to the same place takes its place. A read is answered from the one
//! piece in which it begins, as far as that goes. All areas are under one lock, which is held for copying one piece, or
//! for forgetting some.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::account::Account;
use super::memory::{Kept, Memory};
use crate::keys::PublicKey;
use crate::secure::Session;
use crate::wire::Status;

/// What a piece takes beside its pages: its entry, and two nodes of the kernel's that have no other page where a borrower
/// wants that.
const PIECE_BYTES: u64 = 96 + 2 * 576;
/// What an area takes in which something is, beside its pieces: its entry, and the first leaf of its map.
const AREA_BYTES: u64 = 640;
/// Pieces that are forgotten before others have their turn.
const FORGET_AT_ONCE: usize = 4096;
/// Areas in which nothing is and which no link has are kept for their borrower, so many at most.
const EMPTY_OF_ONE: usize = 16;

/// Whose an area is.
pub type Owner = (PublicKey, Session);

#[derive(Debug)]
struct Area {
    pieces: BTreeMap<u64, Kept>,
    bytes: u64,
    /// Which link has it: counted up, so that an older one has it no more.
    link: u64,
    /// Since when no link has it.
    left: Option<Instant>,
}

/// All areas.
#[derive(Debug)]
pub struct Areas {
    inside: Mutex<Inside>,
    memory: Memory,
    written_bytes: AtomicU64,
    read_bytes: AtomicU64,
}

#[derive(Debug)]
struct Inside {
    areas: HashMap<Owner, Area>,
    /// Those of each borrower in which nothing is and which no link has.
    empty: HashMap<PublicKey, HashSet<Session>>,
    account: Account,
    links: u64,
}

/// A link's hold of its area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    owner: Owner,
    link: u64,
}

impl Areas {
    /// Of so many bytes together.
    ///
    /// # Errors
    /// There is no memory that could be lent.
    pub fn new(limit_bytes: u64) -> io::Result<Areas> {
        let account = Account::new(limit_bytes);
        Ok(Areas {
            inside: Mutex::new(Inside {
                areas: HashMap::new(),
                empty: HashMap::new(),
                account,
                links: 0,
            }),
            memory: Memory::new()?,
            written_bytes: AtomicU64::new(0),
            read_bytes: AtomicU64::new(0),
        })
    }

    /// A link of `owner` has its area from now on, and no earlier one; and whether it was there.
    pub fn hold(&self, owner: Owner) -> (Held, bool) {
        let mut inside = self.inside.lock();
        inside.links += 1;
        let link = inside.links;
        let is_known = inside.areas.contains_key(&owner);
        match is_known {
            true => inside.is_empty_no_more(&owner),
            false => inside.forget_empty(owner.0),
        }
        let area = inside.areas.entry(owner).or_insert_with(|| Area {
            pieces: BTreeMap::new(),
            bytes: 0,
            link,
            left: None,
        });
        (area.link, area.left) = (link, None);
        (Held { owner, link }, is_known)
    }

    /// The link is over; its area is kept for who comes back.
    pub fn leave(&self, held: Held) {
        let mut inside = self.inside.lock();
        let Some(area) = inside.area(held) else { return };
        area.left = Some(Instant::now());
        if area.pieces.is_empty() {
            let (key, session) = held.owner;
            inside.empty.entry(key).or_default().insert(session);
        }
    }

    /// Areas that nobody has held for so long are gone.
    pub fn expire(&self, keep: Duration) {
        let mut inside = self.inside.lock();
        let is_over = |area: &Area| area.left.is_some_and(|left| left.elapsed() >= keep);
        let over: Vec<Owner> = inside
            .areas
            .iter()
            .filter(|(_, area)| is_over(area))
            .map(|(owner, _)| *owner)
            .collect();
        let gone: Vec<Area> = over.iter().filter_map(|owner| inside.remove(owner)).collect();
        // That takes a while for many pieces, and others wait for nothing of it.
        drop(inside);
        self.have_back(gone);
    }

    /// Lent again can be only what the kernel has back.
    fn have_back(&self, gone: Vec<Area>) -> u64 {
        let bytes = gone.iter().map(|area| area.bytes).sum();
        drop(gone);
        self.inside.lock().account.give_back(bytes);
        bytes
    }

    /// The largest areas are gone, one at least and so many that `wanted` bytes are free, as far as there are any; what that
    /// freed, bytes.
    pub fn take_largest(&self, wanted: u64) -> u64 {
        let mut inside = self.inside.lock();
        let areas = inside.areas.iter().filter(|(_, area)| area.bytes > 0);
        let mut by_size: Vec<(u64, Owner)> =
            areas.map(|(owner, area)| (area.bytes, *owner)).collect();
        by_size.sort_unstable();
        let (mut freed, mut gone) = (0, Vec::new());
        while let Some((bytes, owner)) = by_size.pop() {
            gone.extend(inside.remove(&owner));
            freed += bytes;
            if freed >= wanted {
                break;
            }
        }
        // That takes a while for many pieces, and others wait for nothing of it.
        drop(inside);
        self.have_back(gone)
    }

    /// Stores a piece. `None` if the area is another link's by now, or gone.
    pub fn write(&self, held: Held, at: u64, bytes: &[u8]) -> Option<Status> {
        // No page for it, no room.
        let Ok(piece) = self.memory.keep(bytes) else { return Some(Status::NoRoom) };
        let mut guard = self.inside.lock();
        let Inside { areas, account, .. } = &mut *guard;
        let area = areas.get_mut(&held.owner).filter(|area| area.link == held.link)?;
        let of_area = if area.pieces.is_empty() { AREA_BYTES } else { 0 };
        let before = area.pieces.get(&at).map_or(0, |piece| piece.taken() + PIECE_BYTES);
        let after = piece.taken() + PIECE_BYTES + of_area;
        if !account.change(before, after) {
            return Some(Status::NoRoom);
        }
        area.pieces.insert(at, piece);
        area.bytes = area.bytes - before + after;
        self.written_bytes.fetch_add(bytes.len() as u64, Relaxed);
        Some(Status::Done)
    }

    /// Appends to `out` up to `len` bytes from `at` on, as many as there are. `None` as for [`Areas::write`].
    pub fn read(&self, held: Held, at: u64, len: usize, out: &mut Vec<u8>) -> Option<Status> {
        let mut inside = self.inside.lock();
        let area = inside.area(held)?;
        let Some((start, piece)) = area.pieces.range(..=at).next_back() else {
            return Some(Status::Gone);
        };
        let Some(read) = piece.read(at - start, len, out) else { return Some(Status::Gone) };
        self.read_bytes.fetch_add(read as u64, Relaxed);
        Some(Status::Done)
    }

    /// Pieces that begin in the `len` bytes from `at` on are gone. `None` as for [`Areas::write`].
    pub fn forget(&self, held: Held, at: u64, len: u64) -> Option<()> {
        let end = at.saturating_add(len);
        while self.forget_some(held, at, end)? {}
        Some(())
    }

    /// Some of those that begin from `at` to `end` are gone; whether there are more. Others have their turn then.
    fn forget_some(&self, held: Held, at: u64, end: u64) -> Option<bool> {
        let mut inside = self.inside.lock();
        let area = inside.area(held)?;
        let there = area.pieces.range(at..end).map(|(start, _)| *start);
        let there: Vec<u64> = there.take(FORGET_AT_ONCE).collect();
        let gone: Vec<Kept> = there.iter().filter_map(|start| area.pieces.remove(start)).collect();
        let mut freed = gone.iter().map(|piece| piece.taken() + PIECE_BYTES).sum();
        if area.pieces.is_empty() && !there.is_empty() {
            freed += AREA_BYTES;
        }
        area.bytes -= freed;
        // Others have their turn while the kernel has it back.
        drop(inside);
        drop(gone);
        self.inside.lock().account.give_back(freed);
        Some(there.len() == FORGET_AT_ONCE)
    }

    /// What is in use, and what is free, bytes.
    pub fn room(&self) -> (u64, u64) {
        self.inside.lock().account.room()
    }

    /// What was written and read since the beginning, bytes.
    pub fn moved(&self) -> (u64, u64) {
        (self.written_bytes.load(Relaxed), self.read_bytes.load(Relaxed))
    }

    /// Whether the link still has its area.
    pub fn is_held(&self, held: Held) -> bool {
        self.inside.lock().area(held).is_some()
    }
}

impl Inside {
    /// For each of them a borrower has to say nothing but another session.
    fn forget_empty(&mut self, key: PublicKey) {
        let Some(empty) = self.empty.get_mut(&key) else { return };
        if empty.len() >= EMPTY_OF_ONE {
            for session in std::mem::take(empty) {
                // Nothing is in it.
                self.remove(&(key, session));
            }
        }
    }

    fn is_empty_no_more(&mut self, (key, session): &Owner) {
        if let Some(empty) = self.empty.get_mut(key) {
            empty.remove(session);
            if empty.is_empty() {
                self.empty.remove(key);
            }
        }
    }

    fn area(&mut self, held: Held) -> Option<&mut Area> {
        self.areas.get_mut(&held.owner).filter(|area| area.link == held.link)
    }

    /// What it had still counts as lent.
    fn remove(&mut self, owner: &Owner) -> Option<Area> {
        let gone = self.areas.remove(owner)?;
        self.is_empty_no_more(owner);
        Some(gone)
    }
}

#[cfg(test)]
mod tests {
    use clew_core::seeded::Seeded;

    use super::*;

    fn areas_of(limit_bytes: u64) -> Areas {
        Areas::new(limit_bytes).expect("a file of memory")
    }

    /// What so many bytes of a piece count for.
    fn counted(bytes: usize) -> u64 {
        (bytes as u64).next_multiple_of(rustix::param::page_size() as u64) + PIECE_BYTES
    }

    fn owner(number: u8) -> Owner {
        (PublicKey([number; 32]), Session([number; 16]))
    }

    /// Of one borrower's.
    fn session(number: u32) -> Owner {
        let mut session = [0; 16];
        session[..4].copy_from_slice(&number.to_le_bytes());
        (owner(1).0, Session(session))
    }

    #[test]
    fn pieces_are_as_they_were_written_and_counted() {
        let mut draw = Seeded::of(1, &[]);
        let areas = areas_of(1 << 20);
        let (held, _) = areas.hold(owner(1));
        let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for _ in 0..5000 {
            let at = draw.below(64) * 4096;
            match draw.below(4) {
                0 | 1 => {
                    let bytes: Vec<u8> =
                        (0..1 + draw.below(40_000)).map(|i| (i ^ (at / 4096)) as u8).collect();
                    match areas.write(held, at, &bytes) {
                        Some(Status::Done) => drop(model.insert(at, bytes)),
                        Some(Status::NoRoom) => {}
                        other => panic!("{other:?}"),
                    }
                }
                2 => {
                    let len = draw.below(4) * 4096;
                    areas.forget(held, at, len).unwrap();
                    model.retain(|start, _| !(at..at + len).contains(start));
                }
                _ => {
                    let (at, len) = (at + draw.below(3) * 4096, draw.below(9000) as usize);
                    let mut out = Vec::new();
                    let status = areas.read(held, at, len, &mut out).unwrap();
                    let piece = model.range(..=at).next_back();
                    let rest = piece.and_then(|(start, piece)| piece.get((at - start) as usize..));
                    match rest.filter(|rest| !rest.is_empty()) {
                        Some(rest) => {
                            assert_eq!(
                                (status, &out[..]),
                                (Status::Done, &rest[..len.min(rest.len())])
                            );
                        }
                        None => assert_eq!((status, out.len()), (Status::Gone, 0)),
                    }
                }
            }
            let of_area = if model.is_empty() { 0 } else { AREA_BYTES };
            let used: u64 = model.values().map(|piece| counted(piece.len())).sum();
            let used = used + of_area;
            assert_eq!(areas.room(), (used, (1 << 20) - used));
        }
        areas.leave(held);
        areas.expire(Duration::ZERO);
        assert_eq!(areas.room().0, 0);
    }

    /// It has one piece of eight stay, and writes larger ones between them: a heap would keep what lies there.
    #[test]
    fn who_mixes_sizes_takes_no_more_memory_than_is_lent() {
        const LIMIT: u64 = 16 << 20;
        let areas = areas_of(LIMIT);
        let (held, _) = areas.hold(owner(1));
        let (mut at, mut size) = (0, 100);
        for _ in 0..8 {
            let begin = at;
            while areas.write(held, at, &vec![1; size]).unwrap() == Status::Done {
                at += 1;
                assert!(areas.memory.taken_bytes() <= areas.room().0);
            }
            assert!(areas.room().1 < counted(size) && at > begin, "all of it is lent");
            for one in (begin..at).filter(|one| one % 8 > 0) {
                areas.forget(held, one, 1).unwrap();
            }
            assert!(areas.memory.taken_bytes() <= areas.room().0, "it is given back");
            size = (size * 9).min(1 << 20);
        }
        areas.forget(held, 0, u64::MAX).unwrap();
        assert_eq!((areas.memory.taken_bytes(), areas.room().0), (0, 0));
    }

    #[test]
    fn a_link_that_was_followed_by_another_has_nothing_any_more() {
        let areas = areas_of(1 << 20);
        let (old, known) = areas.hold(owner(1));
        assert!(!known);
        areas.write(old, 0, &[1; 4096]).unwrap();
        let (new, known) = areas.hold(owner(1));
        assert!(known);
        assert_eq!(areas.write(old, 0, &[2; 4096]), None);
        assert_eq!(areas.forget(old, 0, 4096), None);
        areas.leave(old);
        areas.expire(Duration::ZERO);
        let mut out = Vec::new();
        assert_eq!(areas.read(new, 0, 10, &mut out), Some(Status::Done));
        assert_eq!(out, [1; 10]);
        areas.leave(new);
        areas.expire(Duration::from_secs(100));
        assert!(areas.hold(owner(1)).1, "it is kept for a while");
        let (again, _) = areas.hold(owner(1));
        areas.leave(again);
        areas.expire(Duration::ZERO);
        assert_eq!((areas.room().0, areas.hold(owner(1)).1), (0, false));
    }

    #[test]
    fn nobody_has_what_is_another_ones() {
        let areas = areas_of(1 << 20);
        let (one, _) = areas.hold(owner(1));
        let (other, _) = areas.hold((owner(1).0, Session([9; 16])));
        areas.write(one, 0, &[1; 100]).unwrap();
        let mut out = Vec::new();
        assert_eq!(areas.read(other, 0, 10, &mut out), Some(Status::Gone));
        areas.forget(other, 0, u64::MAX).unwrap();
        assert_eq!(areas.read(one, 0, 10, &mut out), Some(Status::Done));
        assert!(areas.take_largest(1) > 100);
        assert!(!areas.is_held(one) && areas.is_held(other));
    }

    /// Who has it in many sessions gives no less than who has it in one.
    #[test]
    fn so_much_is_taken_back_as_is_wanted() {
        let areas = areas_of(1 << 30);
        for number in 0..1000 {
            let bytes = if number == 7 { 8192 } else { 4096 };
            let (held, _) = areas.hold(session(number));
            areas.write(held, 0, &vec![1; bytes]).unwrap();
            areas.leave(held);
        }
        let used = areas.room().0;
        let freed = areas.take_largest(100 * counted(4096));
        assert!((100 * counted(4096)..102 * counted(8192)).contains(&freed), "{freed}");
        assert_eq!(areas.room().0, used - freed);
        assert!(!areas.hold(session(7)).1, "the largest first");
        assert_eq!(areas.take_largest(u64::MAX), used - freed);
        assert_eq!((areas.take_largest(1), areas.room().0), (0, 0));
    }

    /// A borrower has many small pieces, and gives them all back in one go.
    #[test]
    fn who_forgets_much_holds_up_nobody() {
        let areas = areas_of(1 << 30);
        let (many, _) = areas.hold(owner(1));
        let pieces = 3 * FORGET_AT_ONCE as u64;
        assert!((0..pieces).all(|at| areas.write(many, at, &[0]) == Some(Status::Done)));
        let all = areas.room().0;
        assert_eq!(areas.forget_some(many, 0, u64::MAX), Some(true));
        assert!(areas.room().0 >= all / 2, "more than a part at once");
        areas.forget(many, 0, u64::MAX).unwrap();
        assert_eq!(areas.room().0, 0);
    }

    /// Another session with each link, and nothing else.
    #[test]
    fn areas_of_which_nothing_is_used_are_few() {
        let areas = areas_of(1 << 20);
        for number in 0..1000 {
            let (held, _) = areas.hold(session(number));
            areas.leave(held);
        }
        assert!(areas.inside.lock().areas.len() < 100);
    }

    /// A session takes memory, whatever little is in it.
    #[test]
    fn areas_in_which_little_is_are_counted() {
        let areas = areas_of(1 << 20);
        let mut stored = 0;
        for number in 0..10_000 {
            let (held, _) = areas.hold(session(number));
            stored += usize::from(areas.write(held, 0, &[1]) == Some(Status::Done));
            areas.leave(held);
        }
        assert_eq!(stored, (1 << 20) / (counted(1) + AREA_BYTES) as usize);
        assert!(areas.inside.lock().areas.len() < stored + 100);
        // All of it is given back.
        for number in 0..stored as u32 {
            let (held, _) = areas.hold(session(number));
            areas.forget(held, 0, 10).unwrap();
        }
        assert_eq!(areas.room(), (0, 1 << 20));
    }
}
