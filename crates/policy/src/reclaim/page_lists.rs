//! Linked lists of pages by index: what every reclaim policy that keeps pages in lists builds on.
//!
//! Pages are held in blocks of 64 neighbours. A block is found through one map entry and holds, for
//! each of its pages, the two links of a doubly linked list, a few flag bits, and, for a page that
//! has left, the stamp its owner gave it then (stored where the links were). A page's place in the
//! blocks is its *slot*; links are slots. All operations on a page take constant time; those on a
//! run or a space look up one block for 64 pages.
//!
//! Memory: 576 bytes a block, 9 bytes a page where neighbours are known too (18 while the
//! vector of blocks grows), plus about 0.5 bytes a page of map. A page without any neighbours costs
//! a whole block.
//!
//! Invariants: a page is listed, gone or unknown; a block with neither a listed nor a gone page is
//! released; block 0 holds the heads of lists and no pages, as do those that more lists need.

use clew_core::{PageId, PageRun, SpaceId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Pages a block.
const BLOCK_PAGES: u64 = 64;
const BLOCK_BITS: u32 = 6;
/// No block: ends the list of a space's blocks. (Block 0 is never on one.)
const NO_BLOCK: u32 = 0;

/// Where a page is in the blocks. Valid while the page is listed or gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot(u32);

impl Slot {
    fn new(block: u32, offset: u32) -> Slot {
        Slot(block << BLOCK_BITS | offset)
    }

    fn block(self) -> usize {
        (self.0 >> BLOCK_BITS) as usize
    }

    fn offset(self) -> usize {
        (self.0 & (BLOCK_PAGES as u32 - 1)) as usize
    }

    fn bit(self) -> u64 {
        1 << self.offset()
    }
}

/// One of the lists: the slot of its head. Lists 0 to 63 are always there, others come from
/// [`PageLists::new_list`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListId(pub u32);

impl ListId {
    fn head(self) -> Slot {
        Slot(self.0)
    }
}

/// One of the four flag bits of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// The owner's first flag.
    A,
    /// The second.
    B,
    /// The third.
    C,
    /// The fourth.
    D,
}

/// Links of a listed page. Of a gone page `next` is the stamp.
#[derive(Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
}

struct Block {
    /// Page number and space of the first page, divided by 64.
    key: u64,
    listed: u64,
    gone: u64,
    flags: [u64; 4],
    next_of_space: u32,
    prev_of_space: u32,
    links: [Link; BLOCK_PAGES as usize],
}

impl Block {
    /// Block `number` as heads of empty lists: each is linked to itself.
    fn of_heads(number: u32) -> Block {
        let mut heads = Block::new(u64::MAX);
        for (offset, link) in heads.links.iter_mut().enumerate() {
            let head = Slot::new(number, offset as u32).0;
            *link = Link { prev: head, next: head };
        }
        heads
    }

    fn new(key: u64) -> Block {
        Block {
            key,
            listed: 0,
            gone: 0,
            flags: [0; 4],
            next_of_space: NO_BLOCK,
            prev_of_space: NO_BLOCK,
            links: [Link { prev: 0, next: 0 }; BLOCK_PAGES as usize],
        }
    }

    fn page(&self, offset: u32) -> PageId {
        PageId::from_raw((self.key << BLOCK_BITS) + u64::from(offset))
    }
}

/// Lists of pages. See the module for costs.
pub struct PageLists {
    blocks: Vec<Block>,
    by_key: HashMap<u64, u32, FixedState>,
    /// First block of each space.
    spaces: Vec<u32>,
    free: Vec<u32>,
    /// Given back by their owners.
    free_lists: Vec<ListId>,
}

impl Default for PageLists {
    fn default() -> PageLists {
        PageLists::new()
    }
}

impl PageLists {
    /// Empty lists.
    pub fn new() -> PageLists {
        PageLists {
            blocks: vec![Block::of_heads(0)],
            by_key: HashMap::with_hasher(FixedState::default()),
            spaces: Vec::new(),
            free: Vec::new(),
            free_lists: Vec::new(),
        }
    }

    /// An empty list, until [`PageLists::end_list`].
    pub fn new_list(&mut self) -> ListId {
        if self.free_lists.is_empty() {
            let block = self.add_block(Block::of_heads(self.blocks.len() as u32));
            let heads = (0..BLOCK_PAGES as u32).rev();
            self.free_lists.extend(heads.map(|offset| ListId(Slot::new(block, offset).0)));
        }
        self.free_lists.pop().expect("lists were just added")
    }

    /// Gives an empty list back.
    ///
    /// # Panics
    /// If there is a page on it.
    pub fn end_list(&mut self, list: ListId) {
        assert!(self.is_empty(list), "a list ends with pages on it");
        self.free_lists.push(list);
    }

    /// Bytes held for tracking pages.
    pub fn tracking_bytes(&self) -> u64 {
        let entry = size_of::<(u64, u32)>() + 1;
        (self.blocks.capacity() * size_of::<Block>()
            + self.by_key.capacity() * entry
            + (self.spaces.capacity() + self.free.capacity() + self.free_lists.capacity())
                * size_of::<u32>()) as u64
    }

    /// The slot of a page that is listed or gone.
    pub fn find(&self, page: PageId) -> Option<Slot> {
        let block = *self.by_key.get(&(page.raw() >> BLOCK_BITS))?;
        let slot = Slot::new(block, (page.raw() & (BLOCK_PAGES - 1)) as u32);
        let at = &self.blocks[slot.block()];
        ((at.listed | at.gone) & slot.bit() != 0).then_some(slot)
    }

    /// The slot for `page`, known or not. The caller lists it or marks it gone at once.
    pub fn slot(&mut self, page: PageId) -> Slot {
        let block = self.block_for(page.raw() >> BLOCK_BITS);
        Slot::new(block, (page.raw() & (BLOCK_PAGES - 1)) as u32)
    }

    /// The page at `slot`.
    pub fn page(&self, slot: Slot) -> PageId {
        self.blocks[slot.block()].page(slot.offset() as u32)
    }

    /// Whether the page is on a list.
    pub fn is_listed(&self, slot: Slot) -> bool {
        self.blocks[slot.block()].listed & slot.bit() != 0
    }

    /// The stamp of a gone page.
    pub fn stamp(&self, slot: Slot) -> Option<u32> {
        let block = &self.blocks[slot.block()];
        (block.gone & slot.bit() != 0).then(|| block.links[slot.offset()].next)
    }

    /// Whether `flag` is set.
    pub fn flag(&self, slot: Slot, flag: Flag) -> bool {
        self.blocks[slot.block()].flags[flag as usize] & slot.bit() != 0
    }

    /// Sets or clears `flag`.
    pub fn set_flag(&mut self, slot: Slot, flag: Flag, on: bool) {
        let flags = &mut self.blocks[slot.block()].flags[flag as usize];
        if on {
            *flags |= slot.bit();
        } else {
            *flags &= !slot.bit();
        }
    }

    /// Clears all flags.
    pub fn clear_flags(&mut self, slot: Slot) {
        for flags in &mut self.blocks[slot.block()].flags {
            *flags &= !slot.bit();
        }
    }

    /// The newest end's opposite: the page that was pushed first.
    pub fn tail(&self, list: ListId) -> Option<Slot> {
        let tail = Slot(self.link(list.head()).prev);
        (tail != list.head()).then_some(tail)
    }

    /// The page of `list` that was pushed next after the one at `slot`, which is on it.
    pub fn newer(&self, list: ListId, slot: Slot) -> Option<Slot> {
        let newer = Slot(self.link(slot).prev);
        (newer != list.head()).then_some(newer)
    }

    /// Whether `list` is empty.
    pub fn is_empty(&self, list: ListId) -> bool {
        self.tail(list).is_none()
    }

    /// Puts a page that is on no list at the front of `list`; it is no longer gone.
    pub fn push_front(&mut self, list: ListId, slot: Slot) {
        let head = list.head();
        let next = Slot(self.link(head).next);
        let block = &mut self.blocks[slot.block()];
        debug_assert!(block.listed & slot.bit() == 0, "listed twice");
        block.listed |= slot.bit();
        block.gone &= !slot.bit();
        *self.link_mut(slot) = Link { prev: head.0, next: next.0 };
        self.link_mut(head).next = slot.0;
        self.link_mut(next).prev = slot.0;
    }

    /// Moves a listed page to the front of `list`.
    pub fn move_to_front(&mut self, list: ListId, slot: Slot) {
        self.unlink(slot);
        self.push_front(list, slot);
    }

    /// Moves everything on `from` behind the tail of `to`, in order, in constant time.
    pub fn append(&mut self, from: ListId, to: ListId) {
        let Link { prev: last, next: first } = *self.link(from.head());
        if self.is_empty(from) {
            return;
        }
        let to_tail = self.link(to.head()).prev;
        self.link_mut(Slot(to_tail)).next = first;
        self.link_mut(Slot(first)).prev = to_tail;
        self.link_mut(Slot(last)).next = to.head().0;
        self.link_mut(to.head()).prev = last;
        *self.link_mut(from.head()) = Link { prev: from.head().0, next: from.head().0 };
    }

    /// Takes a page off its list, or out of the gone, and marks it gone with `stamp`. Its flags
    /// are cleared.
    pub fn set_gone(&mut self, slot: Slot, stamp: u32) {
        self.unlink(slot);
        self.clear_flags(slot);
        let block = &mut self.blocks[slot.block()];
        block.gone |= slot.bit();
        block.links[slot.offset()].next = stamp;
    }

    /// Forgets a page.
    pub fn forget(&mut self, slot: Slot) {
        self.unlink(slot);
        self.clear_flags(slot);
        self.blocks[slot.block()].gone &= !slot.bit();
        self.release_if_empty(slot.block() as u32);
    }

    /// Lists the pages of `run` that are not listed yet at the front of `list`, in address order
    /// (so that the last is newest). Returns how many these were.
    pub fn push_run(&mut self, list: ListId, run: PageRun) -> u64 {
        let mut added = 0;
        for (key, mask) in blocks_of(run) {
            let block = self.block_for(key);
            let mut new = mask & !self.blocks[block as usize].listed;
            added += u64::from(new.count_ones());
            while new != 0 {
                self.push_front(list, Slot::new(block, new.trailing_zeros()));
                new &= new - 1;
            }
        }
        added
    }

    /// The listed pages of `run` that have `flag` set, in address order.
    pub fn listed_with(&self, run: PageRun, flag: Flag) -> Vec<Slot> {
        let mut slots = Vec::new();
        for (key, mask) in blocks_of(run) {
            let Some(&block) = self.by_key.get(&key) else { continue };
            let at = &self.blocks[block as usize];
            let mut found = at.listed & at.flags[flag as usize] & mask;
            while found != 0 {
                slots.push(Slot::new(block, found.trailing_zeros()));
                found &= found - 1;
            }
        }
        slots
    }

    /// Blocks with pages of `run`, and which pages these are: however large the run is, no more than there
    /// are blocks. In no particular but always the same order.
    fn blocks_within(&self, run: PageRun) -> Vec<(u32, u64)> {
        let touched = u64::from(run.count).div_ceil(BLOCK_PAGES) + 1;
        if touched <= self.by_key.len() as u64 {
            let known = |(key, mask)| self.by_key.get(&key).map(|block| (*block, mask));
            return blocks_of(run).filter_map(known).collect();
        }
        let (first, last) =
            (run.first.raw(), run.first.raw() + u64::from(run.count).saturating_sub(1));
        let mut found = Vec::new();
        let mut block = self.spaces.get(run.first.space().0 as usize).copied().unwrap_or(NO_BLOCK);
        while block != NO_BLOCK {
            let at = &self.blocks[block as usize];
            let mask = mask_between(at.key, first, last);
            if mask != 0 {
                found.push((block, mask));
            }
            block = at.next_of_space;
        }
        found
    }

    /// Forgets every page of `run`; `each` is told the slot of each listed one while it still is.
    pub fn forget_run(&mut self, run: PageRun, mut each: impl FnMut(&PageLists, Slot)) {
        for (block, mask) in self.blocks_within(run) {
            self.forget_masked(block, mask, &mut each);
        }
    }

    /// Gives every page of `from` its name in the run of that length that begins at `to`. What was known about that and is not moved is forgotten: `each` is told the slot of
    /// each listed one while it still is.
    pub fn move_run(&mut self, from: PageRun, to: PageId, each: impl FnMut(&PageLists, Slot)) {
        let (start, count) = (from.first.raw(), u64::from(from.count));
        let beyond = to.raw().abs_diff(start).min(count);
        if beyond == 0 {
            return;
        }
        let first = if to > from.first { to.plus(count - beyond) } else { to };
        self.forget_run(PageRun { first, count: beyond as u32 }, each);
        let mut moved = Vec::new();
        for (block, mask) in self.blocks_within(from) {
            let at = &self.blocks[block as usize];
            let mut known = (at.listed | at.gone) & mask;
            while known != 0 {
                moved.push(self.page(Slot::new(block, known.trailing_zeros())));
                known &= known - 1;
            }
        }
        // Runs that overlap: from the end that is moved into first.
        moved.sort_unstable();
        if to > from.first {
            moved.reverse();
        }
        for page in moved {
            self.rename(page, to.plus(page.raw() - start));
        }
    }

    /// Forgets every page of `space`; `each` is told the slot of each listed one while it still is.
    pub fn forget_space(&mut self, space: SpaceId, mut each: impl FnMut(&PageLists, Slot)) {
        let Some(&first) = self.spaces.get(space.0 as usize) else { return };
        let mut block = first;
        while block != NO_BLOCK {
            let next = self.blocks[block as usize].next_of_space;
            self.forget_masked(block, u64::MAX, &mut each);
            block = next;
        }
    }

    /// The listed pages of `space`, in no particular but always the same order.
    pub fn listed_of_space(&self, space: SpaceId) -> Vec<Slot> {
        let mut slots = Vec::new();
        let mut block = self.spaces.get(space.0 as usize).copied().unwrap_or(NO_BLOCK);
        while block != NO_BLOCK {
            let at = &self.blocks[block as usize];
            let mut listed = at.listed;
            while listed != 0 {
                slots.push(Slot::new(block, listed.trailing_zeros()));
                listed &= listed - 1;
            }
            block = at.next_of_space;
        }
        slots
    }

    /// Gives `from` the name `to`: its place on its list, flags and stamp go along. What was known
    /// about `to` must have been forgotten, and a page that is not known is not moved.
    pub fn rename(&mut self, from: PageId, to: PageId) {
        let Some(old) = self.find(from) else { return };
        let new = self.slot(to);
        let listed = self.is_listed(old);
        let link = *self.link(old);
        for flag in [Flag::A, Flag::B, Flag::C, Flag::D] {
            let on = self.flag(old, flag);
            self.set_flag(new, flag, on);
        }
        if listed {
            // A page alone on its list is linked to the head on both sides, never to itself.
            self.link_mut(Slot(link.prev)).next = new.0;
            self.link_mut(Slot(link.next)).prev = new.0;
            self.blocks[new.block()].listed |= new.bit();
        } else {
            self.blocks[new.block()].gone |= new.bit();
        }
        *self.link_mut(new) = link;
        let block = &mut self.blocks[old.block()];
        block.listed &= !old.bit();
        block.gone &= !old.bit();
        self.clear_flags(old);
        self.release_if_empty(old.block() as u32);
    }

    fn link(&self, slot: Slot) -> &Link {
        &self.blocks[slot.block()].links[slot.offset()]
    }

    fn link_mut(&mut self, slot: Slot) -> &mut Link {
        &mut self.blocks[slot.block()].links[slot.offset()]
    }

    fn unlink(&mut self, slot: Slot) {
        if !self.is_listed(slot) {
            return;
        }
        let Link { prev, next } = *self.link(slot);
        self.link_mut(Slot(prev)).next = next;
        self.link_mut(Slot(next)).prev = prev;
        self.blocks[slot.block()].listed &= !slot.bit();
    }

    fn forget_masked(&mut self, block: u32, mask: u64, each: &mut impl FnMut(&PageLists, Slot)) {
        let mut listed = self.blocks[block as usize].listed & mask;
        while listed != 0 {
            let slot = Slot::new(block, listed.trailing_zeros());
            each(self, slot);
            self.unlink(slot);
            listed &= listed - 1;
        }
        let at = &mut self.blocks[block as usize];
        at.gone &= !mask;
        for flags in &mut at.flags {
            *flags &= !mask;
        }
        self.release_if_empty(block);
    }

    fn add_block(&mut self, block: Block) -> u32 {
        assert!(self.blocks.len() < 1 << (32 - BLOCK_BITS), "more than 2^32 pages tracked");
        self.blocks.push(block);
        (self.blocks.len() - 1) as u32
    }

    fn block_for(&mut self, key: u64) -> u32 {
        if let Some(&block) = self.by_key.get(&key) {
            return block;
        }
        let block = match self.free.pop() {
            Some(block) => {
                self.blocks[block as usize] = Block::new(key);
                block
            }
            None => self.add_block(Block::new(key)),
        };
        self.by_key.insert(key, block);
        let space = self.blocks[block as usize].page(0).space().0 as usize;
        if space >= self.spaces.len() {
            self.spaces.resize(space + 1, NO_BLOCK);
        }
        let second = std::mem::replace(&mut self.spaces[space], block);
        self.blocks[block as usize].next_of_space = second;
        if second != NO_BLOCK {
            self.blocks[second as usize].prev_of_space = block;
        }
        block
    }

    fn release_if_empty(&mut self, block: u32) {
        let at = &self.blocks[block as usize];
        if at.listed | at.gone != 0 {
            return;
        }
        let (key, prev, next) = (at.key, at.prev_of_space, at.next_of_space);
        if prev == NO_BLOCK {
            let space = at.page(0).space().0 as usize;
            self.spaces[space] = next;
        } else {
            self.blocks[prev as usize].next_of_space = next;
        }
        if next != NO_BLOCK {
            self.blocks[next as usize].prev_of_space = prev;
        }
        self.by_key.remove(&key);
        self.free.push(block);
    }
}

/// The blocks that `run` touches, each with the bits of its pages.
fn blocks_of(run: PageRun) -> impl Iterator<Item = (u64, u64)> {
    let first = run.first.raw();
    let end = first + u64::from(run.count);
    let keys = first >> BLOCK_BITS..end.div_ceil(BLOCK_PAGES);
    keys.map(move |key| (key, mask_between(key, first, end - 1)))
}

/// The bits of block `key` that stand for pages `first..=last`.
fn mask_between(key: u64, first: u64, last: u64) -> u64 {
    let start = key << BLOCK_BITS;
    let end = start + (BLOCK_PAGES - 1);
    if last < start || first > end {
        return 0;
    }
    let low = first.max(start) - start;
    let high = last.min(end) - start;
    (u64::MAX >> (BLOCK_PAGES - 1 - (high - low))) << low
}

#[cfg(test)]
mod tests;
