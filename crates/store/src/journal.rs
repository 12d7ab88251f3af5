//! The journal: what a successor must know of each address space besides its page table.
//!
//! One segment of slots, 256 KiB of address space each, which hold memory only where they were
//! written. Slot 0 is the daemon's own. A slot has:
//!
//! | bytes | what |
//! |---|---|
//! | 0..512 | header words, see below |
//! | 512..2304, 2304..4096 | the record (who the program is, its descriptors), twice |
//! | 4 KiB..8 KiB | the batch: of each page on its way out, where it is now (page number + 1) |
//! | 8 KiB..40 KiB | messages of the kernel that were read and not applied yet, 32 bytes each |
//! | 64 KiB..160 KiB, 160 KiB..256 KiB | the facts (mappings, moves), twice |
//!
//! What is there twice is written to the copy that does not count and then made to count by one
//! word, which has the length and a checksum: a reader sees the old one or the new one.
//!
//! Everything here is changed by who holds the space's lock for writing, except that the batch is
//! ended, and records are written, by their only owner. Death may come between any two stores; they
//! are made in the order in which they stand (Release), and each prefix of them is a valid state:
//! - a batch is written before its length, the length before its pages are marked `Moving`;
//! - the kernel writes messages straight into the journal: what was consumed is here.

use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use clew_core::{SpaceId, Vpn};
use parking_lot::Mutex;
use twox_hash::XxHash3_64;

use crate::segment::{Segment, SegmentError};

const STRIDE: usize = 256 << 10;
const RECORD_AT: usize = 512;
const RECORD_BYTES: usize = 1792;
const BATCH_AT: usize = 4 << 10;
const MESSAGES_AT: usize = 8 << 10;
const FACTS_AT: usize = 64 << 10;
const FACTS_BYTES: usize = 96 << 10;

/// Pages of a batch.
pub const BATCH_SLOTS: usize = 512;
/// Messages that can wait to be applied.
pub const MESSAGES: usize = 1024;
/// Bytes of a message, the kernel's `struct uffd_msg`.
pub const MESSAGE_BYTES: usize = 32;
/// Words of the facts.
pub const FACTS_WORDS: usize = FACTS_BYTES / 8;

const MAGIC: u64 = u64::from_le_bytes(*b"CLEWJRNL");
/// Changes with every change of the layout of this or another segment.
pub const VERSION: u64 = 4;

/// Header words of a slot.
mod word {
    /// Space + 1; zero: the slot is free. Of slot 0: the magic.
    pub const OWNER: usize = 0;
    /// Which copy counts (1 bit), length (31), checksum (32).
    pub const RECORD: usize = 1;
    /// The same.
    pub const FACTS: usize = 2;
    /// Pages of the batch under way, zero for none.
    pub const BATCH: usize = 3;
    /// Space + 1 in whose staging area they are.
    pub const STAGED_IN: usize = 4;
    /// How far the change that is being applied has come.
    pub const STEP: usize = 5;
    /// Of slot 0: version, bytes of a page.
    pub const VERSION: usize = 6;
    pub const PAGE_BYTES: usize = 7;
}

/// Why a journal cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It is not a journal.
    #[error("the journal does not begin with its magic number ({found:#x}): memory was damaged")]
    Magic {
        /// What is there.
        found: u64,
    },
    /// Of another version, or another size of pages.
    #[error("the journal has {what} {found}, this daemon has {expected}")]
    Foreign {
        /// What differs.
        what: &'static str,
        /// There.
        found: u64,
        /// Here.
        expected: u64,
    },
    /// The system gave no memory.
    #[error(transparent)]
    Segment(#[from] SegmentError),
}

/// All slots.
#[derive(Debug)]
pub struct Journal {
    segment: Segment,
    slots: u32,
    free: Mutex<Vec<u32>>,
}

impl Journal {
    /// A journal for up to `spaces` spaces. Takes address space, and memory for what is used.
    pub fn new(spaces: u32, page_bytes: u64) -> Result<Journal, SegmentError> {
        let slots = spaces + 1;
        let segment = Segment::new("clew-journal", slots as usize * STRIDE)?;
        segment.populate(0, BATCH_AT)?;
        let journal = Journal { segment, slots, free: Mutex::new((1..slots).rev().collect()) };
        journal.header(0, word::VERSION).store(VERSION, Relaxed);
        journal.header(0, word::PAGE_BYTES).store(page_bytes, Relaxed);
        journal.header(0, word::OWNER).store(MAGIC, Release);
        Ok(journal)
    }

    /// Takes over a predecessor's. The slots in use are [`Journal::in_use`].
    pub fn adopt(fd: OwnedFd, page_bytes: u64) -> Result<Journal, JournalError> {
        let segment = Segment::adopt("clew-journal", fd)?;
        let slots = (segment.len() / STRIDE).min(u32::MAX as usize) as u32;
        let journal = Journal { segment, slots, free: Mutex::default() };
        let found = if slots == 0 { 0 } else { journal.header(0, word::OWNER).load(Acquire) };
        if found != MAGIC {
            return Err(JournalError::Magic { found });
        }
        for (what, at, expected) in
            [("version", word::VERSION, VERSION), ("pages of", word::PAGE_BYTES, page_bytes)]
        {
            let found = journal.header(0, at).load(Relaxed);
            if found != expected {
                return Err(JournalError::Foreign { what, found, expected });
            }
        }
        // Looked at only where there is memory: looking elsewhere would take some for each slot.
        let mut taken = HashSet::new();
        journal.segment.for_data(|data| {
            for slot in data.start.div_ceil(STRIDE)..data.end.div_ceil(STRIDE) {
                let slot = slot as u32;
                if slot < slots && journal.header(slot, word::OWNER).load(Acquire) != 0 {
                    taken.insert(slot);
                }
            }
        })?;
        let free = (1..slots).rev().filter(|slot| !taken.contains(slot)).collect();
        *journal.free.lock() = free;
        Ok(journal)
    }

    /// The segment, for a successor.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// The daemon's own slot.
    pub fn own(self: &Arc<Journal>) -> SpaceJournal {
        SpaceJournal { journal: Arc::clone(self), slot: 0 }
    }

    /// A slot for a space, empty; `None` if all are taken or the system has no memory. It is not in
    /// use, for a successor, before [`SpaceJournal::publish`].
    pub fn begin(self: &Arc<Journal>) -> Option<SpaceJournal> {
        let slot = self.free.lock().pop()?;
        // The batch and the first page of messages too: the kernel writes there what it forgets.
        if self.segment.populate(slot as usize * STRIDE, MESSAGES_AT + 4096).is_err() {
            self.free.lock().push(slot);
            return None;
        }
        Some(SpaceJournal { journal: Arc::clone(self), slot })
    }

    /// The slots that a predecessor had in use, with their spaces.
    pub fn in_use(self: &Arc<Journal>) -> Vec<(SpaceId, SpaceJournal)> {
        let free: HashSet<u32> = self.free.lock().iter().copied().collect();
        (1..self.slots)
            .filter(|slot| !free.contains(slot))
            .filter_map(|slot| {
                let owner = self.header(slot, word::OWNER).load(Acquire);
                let space = u32::try_from(owner.checked_sub(1)?).ok()?;
                Some((SpaceId(space), SpaceJournal { journal: Arc::clone(self), slot }))
            })
            .collect()
    }

    /// Slots for spaces, used or not.
    pub fn capacity(&self) -> usize {
        self.slots as usize - 1
    }

    /// Slots in use.
    pub fn used(&self) -> usize {
        self.slots as usize - 1 - self.free.lock().len()
    }

    /// Memory it holds, bytes.
    pub fn used_bytes(&self) -> u64 {
        self.segment.resident_bytes().unwrap_or(0)
    }

    fn header(&self, slot: u32, word: usize) -> &std::sync::atomic::AtomicU64 {
        self.segment.word(slot as usize * (STRIDE / 8) + word)
    }
}

/// One slot. It is given back when it is dropped, unless it is published.
#[derive(Debug)]
pub struct SpaceJournal {
    journal: Arc<Journal>,
    slot: u32,
}

impl Drop for SpaceJournal {
    fn drop(&mut self) {
        if self.slot == 0 || self.header(word::OWNER).load(Relaxed) != 0 {
            return;
        }
        // A slot that the kernel does not take back is not used again: it may have old contents.
        if self.journal.segment.punch(self.slot as usize * STRIDE, STRIDE).is_ok() {
            self.journal.free.lock().push(self.slot);
        }
    }
}

impl SpaceJournal {
    fn header(&self, word: usize) -> &std::sync::atomic::AtomicU64 {
        self.journal.header(self.slot, word)
    }

    fn word(&self, byte: usize) -> &std::sync::atomic::AtomicU64 {
        self.journal.segment.word((self.slot as usize * STRIDE + byte) / 8)
    }

    /// From now on a successor finds it.
    pub fn publish(&self, space: SpaceId) {
        self.header(word::OWNER).store(u64::from(space.0) + 1, Release);
    }

    /// No successor is to know of it any more: the program is gone, or on its own.
    pub fn end(&self) {
        if self.slot != 0 {
            self.header(word::OWNER).store(0, Release);
        }
    }

    // ---- record and facts ---------------------------------------------------------------------

    fn write_twice(&self, at: usize, bytes_each: usize, word: usize, words: &[u64], len: usize) {
        let which = self.header(word).load(Relaxed) & 1 ^ 1;
        let start = at + which as usize * bytes_each;
        for (i, value) in words.iter().enumerate() {
            self.word(start + i * 8).store(*value, Relaxed);
        }
        let checksum = checksum(words);
        self.header(word).store(checksum << 32 | (len as u64) << 1 | which, Release);
    }

    fn read_twice(&self, at: usize, bytes_each: usize, word: usize) -> Option<(Vec<u64>, usize)> {
        let header = self.header(word).load(Acquire);
        let len = (header as u32 >> 1) as usize;
        if len > bytes_each {
            return None;
        }
        let start = at + (header & 1) as usize * bytes_each;
        let words: Vec<u64> =
            (0..len.div_ceil(8)).map(|i| self.word(start + i * 8).load(Relaxed)).collect();
        (checksum(&words) == header >> 32).then_some((words, len))
    }

    /// Replaces the record; false if it is too long (1792 bytes).
    pub fn set_record(&self, bytes: &[u8]) -> bool {
        if bytes.len() > RECORD_BYTES {
            return false;
        }
        let words: Vec<u64> = bytes
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            })
            .collect();
        self.write_twice(RECORD_AT, RECORD_BYTES, word::RECORD, &words, bytes.len());
        true
    }

    /// The record; `None` if its checksum is wrong.
    pub fn record(&self) -> Option<Vec<u8>> {
        let (words, len) = self.read_twice(RECORD_AT, RECORD_BYTES, word::RECORD)?;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(len);
        Some(bytes)
    }

    /// Replaces the facts, at most [`FACTS_WORDS`]; what is more is left out.
    pub fn set_facts(&self, words: &[u64]) {
        let words = &words[..words.len().min(FACTS_WORDS)];
        self.write_twice(FACTS_AT, FACTS_BYTES, word::FACTS, words, words.len() * 8);
    }

    /// The facts; `None` if their checksum is wrong.
    pub fn facts(&self) -> Option<Vec<u64>> {
        self.read_twice(FACTS_AT, FACTS_BYTES, word::FACTS).map(|(words, _)| words)
    }

    // ---- the batch under way ------------------------------------------------------------------

    /// Pages `vpns` (at most [`BATCH_SLOTS`]) are about to be marked, the `i`-th to go to slot `i`
    /// of the staging area of `staged_in`.
    pub fn begin_batch(&self, vpns: &[Vpn], staged_in: SpaceId) {
        for (i, vpn) in vpns.iter().enumerate() {
            self.word(BATCH_AT + i * 8).store(vpn.0 + 1, Relaxed);
        }
        self.header(word::STAGED_IN).store(u64::from(staged_in.0) + 1, Relaxed);
        self.header(word::BATCH).store(vpns.len() as u64, Release);
    }

    /// A forked child joins its parent's batch.
    pub fn join_batch(&self, parent: &SpaceJournal) {
        let slots = parent.batch_len();
        for i in 0..slots {
            let vpn = parent.word(BATCH_AT + i * 8).load(Relaxed);
            self.word(BATCH_AT + i * 8).store(vpn, Relaxed);
        }
        let staged_in = parent.header(word::STAGED_IN).load(Relaxed);
        self.header(word::STAGED_IN).store(staged_in, Relaxed);
        self.header(word::BATCH).store(slots as u64, Release);
    }

    /// Slots of the batch under way; zero if there is none.
    pub fn batch_len(&self) -> usize {
        (self.header(word::BATCH).load(Acquire) as usize).min(BATCH_SLOTS)
    }

    /// The space in whose staging area the batch is.
    pub fn staged_in(&self) -> Option<SpaceId> {
        let word = self.header(word::STAGED_IN).load(Relaxed);
        word.checked_sub(1).and_then(|space| u32::try_from(space).ok()).map(SpaceId)
    }

    /// Where the page of a slot must be now, if it was not given up; `None` if another one was
    /// moved over it.
    pub fn batch_slot(&self, slot: usize) -> Option<Vpn> {
        let word =
            if slot < BATCH_SLOTS { self.word(BATCH_AT + slot * 8).load(Relaxed) } else { 0 };
        word.checked_sub(1).map(Vpn)
    }

    /// What is on its way to `[to, to + pages)` loses its place: another page comes there.
    pub fn batch_displaced(&self, to: Vpn, pages: u64) {
        self.for_batch(to, pages, |_| 0);
    }

    /// The pages of `[from, from + pages)` on their way belong to `to` now. May be done again: the
    /// ranges do not overlap.
    pub fn batch_moved(&self, from: Vpn, pages: u64, to: Vpn) {
        self.for_batch(from, pages, |vpn| vpn.0 - from.0 + to.0 + 1);
    }

    fn for_batch(&self, first: Vpn, pages: u64, new: impl Fn(Vpn) -> u64) {
        for slot in 0..self.batch_len() {
            if let Some(vpn) = self.batch_slot(slot)
                && vpn.0.checked_sub(first.0).is_some_and(|offset| offset < pages)
            {
                self.word(BATCH_AT + slot * 8).store(new(vpn), Relaxed);
            }
        }
    }

    /// Every page of the batch has a place.
    pub fn end_batch(&self) {
        self.header(word::BATCH).store(0, Release);
    }

    // ---- changes ------------------------------------------------------------------------------

    /// How far the change being applied has come.
    pub fn step(&self) -> u64 {
        self.header(word::STEP).load(Acquire)
    }

    /// Sets [`SpaceJournal::step`].
    pub fn set_step(&self, step: u64) {
        self.header(word::STEP).store(step, Release);
    }

    /// Where the kernel is to write messages from `at` on, and how many. Valid as long as the
    /// journal. None where the journal is full or the system has no memory for more.
    pub fn room_for_messages(&self, at: usize) -> (*mut u8, usize) {
        const PER_PAGE: usize = 4096 / MESSAGE_BYTES;
        let start = self.slot as usize * STRIDE + MESSAGES_AT;
        let segment = &self.journal.segment;
        let (page, ends) = (at / PER_PAGE, (at / PER_PAGE + 1) * PER_PAGE);
        let has_memory = at < MESSAGES
            && (page == 0
                || !at.is_multiple_of(PER_PAGE)
                || segment.populate(start + page * 4096, 4096).is_ok());
        let count = if has_memory { ends - at } else { 0 };
        (segment.at(start + at.min(MESSAGES) * MESSAGE_BYTES), count)
    }

    /// The four words of message `at`.
    pub fn message(&self, at: usize) -> [u64; 4] {
        let start = MESSAGES_AT + at.min(MESSAGES - 1) * MESSAGE_BYTES;
        std::array::from_fn(|i| self.word(start + i * 8).load(Acquire))
    }

    /// Sets the upper half of the first word of message `at`, which the kernel leaves zero.
    pub fn mark_message(&self, at: usize, mark: u32) {
        let word = self.word(MESSAGES_AT + at.min(MESSAGES - 1) * MESSAGE_BYTES);
        let kind = word.load(Relaxed) & 0xffff_ffff;
        word.store(kind | u64::from(mark) << 32, Release);
    }

    /// Sets the third word of message `at`, which the kernel leaves zero in messages of forks.
    pub fn annotate_message(&self, at: usize, value: u64) {
        let start = MESSAGES_AT + at.min(MESSAGES - 1) * MESSAGE_BYTES;
        self.word(start + 16).store(value, Release);
    }

    /// Forgets these messages, the last one first.
    pub fn clear_messages(&self, range: Range<usize>) {
        for at in (range.start..range.end.min(MESSAGES)).rev() {
            self.word(MESSAGES_AT + at * MESSAGE_BYTES).store(0, Release);
        }
    }
}

fn checksum(words: &[u64]) -> u64 {
    // A journal stays on its machine, so the order of bytes does not matter.
    // SAFETY: words are plain numbers, and all of their bytes are read.
    let bytes =
        unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), size_of_val(words)) };
    XxHash3_64::oneshot_with_seed(VERSION, bytes) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn journal() -> Arc<Journal> {
        Arc::new(Journal::new(4, 4096).unwrap())
    }

    fn successor(of: &Journal) -> Arc<Journal> {
        let fd = of.segment.as_fd().try_clone_to_owned().unwrap();
        Arc::new(Journal::adopt(fd, 4096).unwrap())
    }

    #[test]
    fn taking_over_takes_no_memory() {
        let first = Arc::new(Journal::new(1000, 4096).unwrap());
        let spaces: Vec<_> = (0..3).map(|_| first.begin().unwrap()).collect();
        spaces[0].publish(SpaceId(1));
        spaces[2].publish(SpaceId(3));
        let before = first.used_bytes();
        let second = successor(&first);
        let found: Vec<_> = second.in_use().iter().map(|(id, _)| *id).collect();
        assert_eq!(found, [SpaceId(1), SpaceId(3)]);
        assert_eq!((second.used(), second.used_bytes()), (2, before));
    }

    #[test]
    fn a_successor_reads_what_was_written_last() {
        let first = journal();
        let space = first.begin().unwrap();
        assert!(successor(&first).in_use().is_empty(), "not published yet");
        space.publish(SpaceId(7));
        for n in 0..5u8 {
            assert!(space.set_record(&vec![n; 100 + usize::from(n)]));
            space.set_facts(&vec![u64::from(n); usize::from(n) * 7]);
        }
        assert!(!space.set_record(&[0; RECORD_BYTES + 1]));
        let second = successor(&first);
        let (id, again) = second.in_use().pop().unwrap();
        assert_eq!(id, SpaceId(7));
        assert_eq!(again.record().unwrap(), vec![4; 104]);
        assert_eq!(again.facts().unwrap(), vec![4; 28]);
        again.end();
        assert!(second.in_use().is_empty());
        assert_eq!(second.used(), 1, "somebody still has it");
        drop(again);
        assert_eq!(second.used(), 0);
        assert!(successor(&second).in_use().is_empty());
    }

    #[test]
    fn a_damaged_record_is_none() {
        let first = journal();
        let space = first.begin().unwrap();
        space.set_record(b"who it is");
        space.word(RECORD_AT + RECORD_BYTES).fetch_xor(1 << 9, Relaxed);
        assert_eq!(space.record(), None);
    }

    #[test]
    fn foreign_journals_are_refused() {
        let first = journal();
        let fd = || first.segment.as_fd().try_clone_to_owned().unwrap();
        assert!(matches!(Journal::adopt(fd(), 16384), Err(JournalError::Foreign { .. })));
        first.header(0, word::VERSION).store(99, Relaxed);
        assert!(matches!(Journal::adopt(fd(), 4096), Err(JournalError::Foreign { found: 99, .. })));
        first.header(0, word::OWNER).store(1, Relaxed);
        assert!(matches!(Journal::adopt(fd(), 4096), Err(JournalError::Magic { .. })));
    }

    #[test]
    fn a_batch_is_followed_however_often_a_move_is_applied() {
        let first = journal();
        let (parent, child) = (first.begin().unwrap(), first.begin().unwrap());
        parent.begin_batch(&[Vpn(10), Vpn(11), Vpn(30), Vpn(90)], SpaceId(1));
        for _ in 0..2 {
            parent.batch_displaced(Vpn(30), 2);
        }
        for _ in 0..2 {
            parent.batch_moved(Vpn(10), 2, Vpn(30));
        }
        child.join_batch(&parent);
        parent.end_batch();
        assert_eq!((parent.batch_len(), child.batch_len()), (0, 4));
        let slots: Vec<_> = (0..5).map(|i| child.batch_slot(i)).collect();
        assert_eq!(slots, [Some(Vpn(30)), Some(Vpn(31)), None, Some(Vpn(90)), None]);
        assert_eq!(child.staged_in(), Some(SpaceId(1)));
    }

    #[test]
    fn a_batch_is_what_lies_in_the_range_and_no_more() {
        let first = journal();
        let space = first.begin().unwrap();
        let vpns: Vec<Vpn> = (0..BATCH_SLOTS as u64).map(|i| Vpn(1000 + i)).collect();
        space.begin_batch(&vpns, SpaceId(3));
        assert_eq!((space.batch_len(), space.staged_in()), (BATCH_SLOTS, Some(SpaceId(3))));
        space.batch_displaced(Vpn(1001), 2);
        space.batch_moved(Vpn(1510), 2, Vpn(5));
        let slots = [0, 1, 2, 3, 509, 510, 511, 512].map(|slot| space.batch_slot(slot));
        let at = |vpn| Some(Vpn(vpn));
        assert_eq!(slots, [at(1000), None, None, at(1003), at(1509), at(5), at(6), None]);
        // What is written there now is no length.
        space.header(word::BATCH).store(1 << 40, Relaxed);
        assert_eq!(space.batch_len(), BATCH_SLOTS);
    }

    #[test]
    fn a_successor_knows_how_far_a_change_has_come() {
        let first = journal();
        let space = first.begin().unwrap();
        space.publish(SpaceId(1));
        assert_eq!(space.step(), 0);
        space.set_step(7);
        let again = successor(&first).in_use().pop().unwrap().1;
        assert_eq!(again.step(), 7);
        again.set_step(0);
        assert_eq!(space.step(), 0);
    }

    #[test]
    fn the_daemons_own_slot_is_nobody_elses_and_does_not_end() {
        let first = journal();
        let own = first.own();
        own.set_record(b"the daemon");
        let spaces: Vec<_> = (0..4).map(|_| first.begin().unwrap()).collect();
        assert!(first.begin().is_none(), "all are taken");
        assert_eq!(first.used(), 4);
        own.end();
        drop(own);
        assert_eq!(successor(&first).own().record().unwrap(), b"the daemon");
        drop(spaces);
        assert_eq!(first.used(), 0);
        let next = first.begin().unwrap();
        assert_eq!((next.record(), next.batch_len(), next.staged_in()), (None, 0, None));
    }

    #[test]
    fn messages_keep_their_marks() {
        let first = journal();
        let space = first.begin().unwrap();
        let (to, room) = space.room_for_messages(1);
        assert_eq!(
            (room, space.room_for_messages(128).1, space.room_for_messages(MESSAGES).1),
            (127, 128, 0)
        );
        // SAFETY: there is room for one, and nobody else uses the journal.
        unsafe { to.cast::<[u64; 4]>().write([0x14, 1, 2, 3]) };
        space.mark_message(1, 8);
        space.mark_message(1, 9);
        assert_eq!(space.message(1), [9 << 32 | 0x14, 1, 2, 3]);
        space.annotate_message(1, 77);
        assert_eq!(space.message(1), [9 << 32 | 0x14, 1, 77, 3]);
        for at in [0, 2, MESSAGES - 1] {
            assert_eq!(space.message(at), [0; 4], "its neighbours are others");
            space.mark_message(at, 5);
        }
        assert_eq!(space.message(MESSAGES - 1)[0], 5 << 32);
        space.clear_messages(0..2);
        assert_eq!([0, 1, 2].map(|at| space.message(at)[0]), [0, 0, 5 << 32]);
    }
}
