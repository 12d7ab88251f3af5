//! The facts of a program that its journal keeps beside the page table: its registered mappings, what it
//! moved lately, and how many of its messages are applied to them.
//!
//! They are written with the space's lock held, in a fault thread. So no more is gathered than there is
//! room for, and an event that changes none of it is not written down: only its number is behind then,
//! which is written often enough that half of it tells one from another.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clew_store::journal::FACTS_WORDS;

use crate::faults::moves::{Move, Moves};
use crate::faults::uffd::Message;
use crate::programs::process::Process;

/// Moves that are written down.
const MAX_MOVES: usize = 1024;

/// Words before all moves, of a move, and of a mapping.
const HEAD: usize = 2;
const OF_MOVE: usize = 5;
const OF_REGION: usize = 2;

/// So many messages at most are applied before the facts say so. Marks of messages hold 16 bits of their
/// number: one that is being applied must never look as if the facts had it.
const UNWRITTEN: u32 = 1 << 12;

/// Whether the facts are to be written when message `number` was applied.
pub fn are_changed_by(message: &Message, number: u32) -> bool {
    match message {
        // Pages that hold nothing any more: mappings and moves are what they were.
        Message::Remove { .. } | Message::Fault { .. } => number.is_multiple_of(UNWRITTEN),
        Message::Fork { .. } | Message::Remap { .. } | Message::Unmap { .. } => true,
    }
}

/// Moves first: where there is not room for all, mappings are left out.
fn words<'a>(
    applied: u32,
    moves: impl ExactSizeIterator<Item = &'a Move>,
    count: usize,
    regions: impl Iterator<Item = (u64, u64)>,
) -> Vec<u64> {
    let room = (FACTS_WORDS - HEAD - moves.len() * OF_MOVE) / OF_REGION;
    let mut words = Vec::with_capacity(HEAD + moves.len() * OF_MOVE + count.min(room) * OF_REGION);
    words.extend([u64::from(applied) << 32 | moves.len() as u64, count as u64]);
    for m in moves {
        words.extend([m.from.0, m.from.1, m.to.0, m.to.1, u64::from(m.owes_unmap)]);
    }
    regions.take(room).for_each(|(start, end)| words.extend([start, end]));
    words
}

fn parse(words: &[u64]) -> Option<(u32, Moves, BTreeMap<u64, u64>)> {
    let (head, rest) = words.split_at_checked(HEAD)?;
    let moves = (head[0] as u32 as usize).min(MAX_MOVES).min(rest.len() / OF_MOVE);
    let (moves, regions) = rest.split_at(moves * OF_MOVE);
    let of_words = |m: &[u64]| Move {
        from: (m[0], m[1]),
        to: (m[2], m[3]),
        when: Instant::now(),
        owes_unmap: m[4] != 0,
    };
    let moves = moves.chunks_exact(OF_MOVE).map(of_words).collect();
    let regions = regions.chunks_exact(OF_REGION).map(|r| (r[0], r[1])).collect();
    Some(((head[0] >> 32) as u32, moves, regions))
}

impl Process {
    /// Writes its mappings and moves to the journal, and that so many messages are applied to them.
    /// The space's lock is held for writing.
    pub fn save_facts(&self) {
        let (regions, moves) = (self.regions.lock(), self.moves.lock());
        let applied = self.applied.load(Ordering::Relaxed);
        let all = regions.iter().map(|(start, end)| (*start, *end));
        let words = words(applied, moves.last(MAX_MOVES), regions.len(), all);
        self.space.journal.set_facts(&words);
    }

    /// Reads them, after a takeover. Damaged ones are as good as none: only the order of what
    /// several threads did at once is harder to tell then.
    pub fn load_facts(&self) {
        let facts = self.space.journal.facts();
        let Some((applied, moves, regions)) = facts.as_deref().and_then(parse) else { return };
        self.applied.store(applied, Ordering::Relaxed);
        *self.moves.lock() = moves;
        *self.regions.lock() = regions;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn no_more_mappings_are_looked_at_than_there_is_room_for() {
        let looked = Cell::new(0usize);
        let all = (0..1_000_000u64).map(|i| (i << 20, (i << 20) + 4096));
        let all = all.inspect(|_| looked.set(looked.get() + 1));
        let when = Instant::now();
        let moved = Move { from: (1, 2), to: (3, 4), when, owes_unmap: true };
        let words = words(9, [moved].iter(), 1_000_000, all);
        assert!(words.len() <= FACTS_WORDS && words.len() > FACTS_WORDS - OF_REGION);
        assert!(looked.get() <= FACTS_WORDS / OF_REGION, "{} were looked at", looked.get());
        let (applied, moves, regions) = parse(&words).expect("facts");
        let owes: Vec<bool> = moves.last(MAX_MOVES).map(|m| m.owes_unmap).collect();
        assert_eq!((applied, owes), (9, vec![true]));
        assert_eq!(regions.get(&(5 << 20)), Some(&((5 << 20) + 4096)));
    }

    #[test]
    fn what_changes_no_mapping_is_written_now_and_then_only() {
        let remove = Message::Remove { start: 0, end: 4096 };
        let written = |count: u32| (1..=count).filter(|n| are_changed_by(&remove, *n)).count();
        assert_eq!(written(UNWRITTEN - 1), 0);
        // A mark has 16 bits of the number, and each of these is told from the last that was written.
        assert_eq!(written(1 << 16), 16);
        let others = [
            Message::Unmap { start: 0, end: 4096 },
            Message::Remap { from: 0, to: 4096, len: 4096 },
            Message::Fork { child: 3 },
        ];
        assert!(others.iter().all(|message| are_changed_by(message, 7)));
    }

    #[test]
    fn damaged_facts_are_none() {
        assert!(parse(&[]).is_none() && parse(&[1]).is_none());
        let (applied, moves, regions) = parse(&[7 << 32 | 99, 5, 1, 2]).expect("facts");
        assert_eq!((applied, moves.last(MAX_MOVES).len(), regions.len()), (7, 0, 1));
    }
}
