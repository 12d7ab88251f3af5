//! A pool from the segments of a process that died, by a scan: see the head of [`super`] for what
//! is true in them.
//!
//! Nothing in them is trusted. Whatever a word says, its place is compared with what memory there
//! is before it is looked at, and the object there must name the handle. An object belongs to the
//! one handle that names it, a part to the one block that lists it, and a slab to one class: what
//! two claim is lost to both. A lost handle stays taken, for pages name it, and its word says so.
//!
//! Handles are looked at slab by slab, which keeps near what is near. A handle takes 16 bytes
//! meanwhile, a slab 10, and a block with parts 24 and 4 a part.
//!
//! May be interrupted and done again: until it is complete, only what nobody names is written over.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::fd::OwnedFd;

use super::Pool;
use super::budget::Budget;
use super::class::FRAME_BYTES;
use super::handle::{Fate, HandleTable, Place};
use super::object::{HEADER_BYTES, Header};
use super::slab::{NO_OBJECT, SlabRecord, SlabTable};
use crate::adopt::AdoptError;
use crate::codec::Stored;

/// Objects of a slab that an entry can tell apart.
const MAX_OBJECTS: usize = 1024;

/// What was found in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blocks that somebody names.
    pub blocks: u64,
    /// Their pages.
    pub pages: u64,
    /// Objects that nobody named, blocks and parts.
    pub freed: u64,
    /// Handles that somebody names and that have no block, ascending.
    pub lost: Vec<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// No object, or none that its handle has a right to.
    #[default]
    Nothing,
    /// A block, and somebody names it.
    Block,
    /// A part, and nobody names it, nor any block so far.
    Part,
    /// A part of a block that is there.
    PartOfBlock,
    /// Somebody names it, and it is no block.
    Lost,
}

/// What is known of a handle.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// How often it is named.
    refs: u32,
    kind: Kind,
    /// How many blocks list it as a part; more than two is two.
    listed: u8,
    /// Only blocks name it: a dictionary.
    shared: bool,
    /// Payload bytes of its object.
    len: u16,
    /// Pages of its block.
    pages: u16,
}

impl Mark {
    fn lives(&self) -> bool {
        matches!(self.kind, Kind::Block | Kind::PartOfBlock)
    }
}

/// All handles, by the slab that their words name.
struct BySlab {
    /// Where the handles of each slab begin in `handles`.
    starts: Vec<u32>,
    handles: Vec<u32>,
}

impl BySlab {
    fn of(&self, slab: usize) -> &[u32] {
        &self.handles[self.starts[slab] as usize..self.starts[slab + 1] as usize]
    }
}

/// Handles of the parts of one block, in a list of all.
struct Listed {
    block: u32,
    parts: Range<usize>,
}

impl Pool {
    /// Takes over what a predecessor, which has ended, left in [`Pool::segments`]. How many handles
    /// and slabs there can be follows from their lengths. `named` yields a handle for each reference
    /// that somebody has. `dictionary` says which other block an object needs, if it does; one
    /// reference of that is the object's, if somebody names the object. `block` looks at an object
    /// that is no part: it adds the handles of its parts and answers its pages, or `None` if it is
    /// no block.
    ///
    /// # Errors
    /// See [`AdoptError`]. Can be tried again.
    pub fn adopt(
        limit_bytes: u64,
        fds: [OwnedFd; 3],
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Result<(Pool, Found), AdoptError> {
        let [arena, records, entries] = fds;
        let handles = HandleTable::adopt(entries)?;
        let (slabs, frames) = SlabTable::adopt(arena, records)?;
        let mut pool = Pool::of(slabs, handles, Budget::new(limit_bytes));

        let known = pool.handles.known() as usize;
        let mut marks = vec![Mark::default(); known];
        let mut beyond = HashSet::new();
        for handle in named {
            match marks.get_mut(handle as usize) {
                Some(mark) => mark.refs = mark.refs.saturating_add(1),
                None => drop(beyond.insert(handle)),
            }
        }
        let by_slab = pool.by_slab(&frames, &mut marks);
        pool.name_dictionaries(&by_slab, &frames, &mut marks, &mut beyond, dictionary);
        pool.look(&by_slab, &mut marks, block);
        let found = pool.sum(&marks, &beyond);
        let keep = pool.rebuild_slabs(&by_slab, &frames, &marks);
        pool.slabs.rebuild(&frames, &keep)?;
        let fate = |handle: u32| match &marks[handle as usize] {
            mark if mark.kind == Kind::Block => Fate::Live(mark.refs),
            mark if mark.kind == Kind::PartOfBlock => Fate::Live(u32::MAX),
            mark if mark.refs > 0 => Fate::Lost,
            _ => Fate::Free,
        };
        pool.handles.rebuild(fate, beyond.into_iter().collect())?;
        let frames = keep.iter().map(|frames| u64::from(*frames)).sum::<u64>();
        pool.budget.found(frames + pool.handles.frames() + pool.slabs.record_frames());
        Ok((pool, found))
    }

    /// Where the object of a handle is, if its word can be true: of a class that there is, in a slab
    /// that has memory as far as that object reaches.
    fn placed(&self, handle: u32, frames: &[u8]) -> Option<(u8, Place)> {
        let entry = self.handles.load(handle).filter(|entry| !entry.is_blank())?;
        let (class, place) = (entry.class()?, entry.place());
        let shape = &self.classes.get(usize::from(class))?.shape;
        let memory = frames.get(place.slab as usize)?.trailing_ones();
        let fits =
            place.object < shape.objects && u32::from(shape.frames_of(place.object + 1)) <= memory;
        fits.then_some((class, place))
    }

    fn by_slab(&self, frames: &[u8], marks: &mut [Mark]) -> BySlab {
        let mut starts = vec![0u32; frames.len() + 1];
        for (mark, handle) in marks.iter_mut().zip(0..).skip(1) {
            match self.placed(handle, frames) {
                Some((_, place)) => starts[place.slab as usize + 1] += 1,
                None if mark.refs > 0 => mark.kind = Kind::Lost,
                None => {}
            }
        }
        for slab in 0..frames.len() {
            starts[slab + 1] += starts[slab];
        }
        let mut handles = vec![0; starts[frames.len()] as usize];
        let mut next = starts.clone();
        for handle in 1..marks.len() as u32 {
            if let Some((_, place)) = self.placed(handle, frames) {
                let next = &mut next[place.slab as usize];
                handles[*next as usize] = handle;
                *next += 1;
            }
        }
        BySlab { starts, handles }
    }

    /// Counts what objects that somebody names need beside themselves.
    fn name_dictionaries(
        &self,
        by_slab: &BySlab,
        frames: &[u8],
        marks: &mut [Mark],
        beyond: &mut HashSet<u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
    ) {
        let mut names: HashMap<u32, u32> = HashMap::new();
        for &handle in by_slab.handles.iter().filter(|handle| marks[**handle as usize].refs > 0) {
            let Some((class, place)) = self.placed(handle, frames) else { continue };
            if let Some((header, payload)) = self.sound(handle, class, place)
                && let Some(name) = dictionary(&header, payload)
            {
                *names.entry(name).or_default() += 1;
            }
        }
        for (name, refs) in names {
            let Some(mark) = marks.get_mut(name as usize) else {
                beyond.insert(name);
                continue;
            };
            mark.shared = mark.refs == 0;
            mark.refs = mark.refs.saturating_add(refs);
            if self.placed(name, frames).is_none() {
                mark.kind = Kind::Lost;
            }
        }
    }

    /// Finds out of every handle what it has.
    fn look(
        &self,
        by_slab: &BySlab,
        marks: &mut [Mark],
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) {
        let (mut parts, mut lists) = (Vec::new(), Vec::new());
        // The handle that has each object.
        let mut owners = [0u32; MAX_OBJECTS];
        for slab in 0..by_slab.starts.len() - 1 {
            let handles = by_slab.of(slab);
            if handles.is_empty() {
                continue;
            }
            owners.fill(0);
            let (mut class_of_slab, mut torn) = (None, false);
            for &handle in handles {
                let Some(entry) = self.handles.load(handle) else { continue };
                let (Some(class), place) = (entry.class(), entry.place()) else { continue };
                let mark = &mut marks[handle as usize];
                let first_part = parts.len();
                let shared = mark.shared;
                *mark = self.look_at(handle, class, place, mark.refs, &block, &mut parts);
                mark.shared = shared;
                if parts.len() > first_part {
                    lists.push(Listed { block: handle, parts: first_part..parts.len() });
                }
                if mark.kind == Kind::Nothing {
                    continue;
                }
                // It may claim the object, if only by being named.
                if mark.kind != Kind::Lost {
                    torn |= class_of_slab.is_some_and(|known| known != class);
                    class_of_slab = Some(class);
                }
                let other = std::mem::replace(&mut owners[usize::from(place.object)], handle);
                if self.handles.load(other).is_some_and(|entry| entry.class() == Some(class)) {
                    for both in [handle, other] {
                        lose(&mut marks[both as usize]);
                    }
                }
            }
            if torn {
                handles.iter().for_each(|handle| lose(&mut marks[*handle as usize]));
            }
        }
        for list in &lists {
            for part in &parts[list.parts.clone()] {
                if let Some(mark) = marks.get_mut(*part as usize) {
                    mark.listed = (mark.listed + 1).min(2);
                }
            }
        }
        for Listed { block, parts: range } in lists {
            if marks[block as usize].kind != Kind::Block {
                continue;
            }
            let parts = &parts[range];
            let sound = |part: &u32| {
                marks.get(*part as usize).is_some_and(|m| m.kind == Kind::Part && m.listed == 1)
            };
            match parts.iter().all(sound) {
                true => parts.iter().for_each(|p| marks[*p as usize].kind = Kind::PartOfBlock),
                false => lose(&mut marks[block as usize]),
            }
        }
    }

    fn look_at(
        &self,
        handle: u32,
        class: u8,
        place: Place,
        refs: u32,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
        parts: &mut Vec<u32>,
    ) -> Mark {
        let named = Mark { refs, kind: Kind::Lost, ..Mark::default() };
        let unsound = if refs > 0 { named } else { Mark::default() };
        let Some((header, payload)) = self.sound(handle, class, place) else { return unsound };
        let sound = Mark { refs, len: header.len, ..Mark::default() };
        match (header.codec, refs) {
            (Stored::Part, 0) => Mark { kind: Kind::Part, ..sound },
            (Stored::Part, _) => named,
            // Its parts are nobody's then, nor can they be anybody else's.
            (_, 0) => unsound,
            _ => {
                let before = parts.len();
                match block(&header, payload, parts) {
                    Some(pages) => Mark { kind: Kind::Block, pages, ..sound },
                    None => {
                        parts.truncate(before);
                        named
                    }
                }
            }
        }
    }

    /// The object of a handle, at a place where there is memory as far as it reaches; `None` if it
    /// is not that handle's. Nobody else has the pool yet.
    fn sound(&self, handle: u32, class: u8, place: Place) -> Option<(Header, &[u8])> {
        let at = self.address(&self.classes[usize::from(class)].shape, place);
        // SAFETY: the caller has seen that there is memory as far as this object reaches. Nobody
        // else has the pool yet.
        let bytes = unsafe { at.cast::<[u8; HEADER_BYTES]>().read() };
        let header = Header::from_bytes(bytes)?;
        let len = usize::from(header.len);
        // Objects are of the smallest class that holds them.
        let its_own = header.handle == handle
            && HEADER_BYTES + len <= FRAME_BYTES
            && self.table.class_of(HEADER_BYTES + len) == class;
        // SAFETY: as above; the payload ends within the object.
        let payload = || unsafe { std::slice::from_raw_parts(at.add(HEADER_BYTES), len) };
        its_own.then(|| (header, payload()))
    }

    fn sum(&self, marks: &[Mark], beyond: &HashSet<u32>) -> Found {
        let mut found = Found::default();
        for (mark, handle) in marks.iter().zip(0..).skip(1) {
            match mark.kind {
                Kind::Block if mark.shared => {}
                Kind::Block => {
                    found.blocks += 1;
                    found.pages += u64::from(mark.pages);
                }
                Kind::PartOfBlock => {}
                _ if mark.refs > 0 => found.lost.push(handle),
                Kind::Nothing | Kind::Part | Kind::Lost => {
                    let entry = self.handles.load(handle);
                    let had_one = |e: &super::HandleEntry| !e.is_blank() && e.class().is_some();
                    found.freed += u64::from(entry.is_some_and(|entry| had_one(&entry)));
                }
            }
        }
        found.lost.extend(beyond);
        let in_table = found.lost.len() - beyond.len();
        found.lost[in_table..].sort_unstable();
        found
    }

    /// Writes the records and free lists of slabs that have objects. Answers how many frames each
    /// slab keeps.
    fn rebuild_slabs(&mut self, by_slab: &BySlab, frames: &[u8], marks: &[Mark]) -> Vec<u8> {
        let mut keep = vec![0; frames.len()];
        for (slab, keep) in keep.iter_mut().enumerate() {
            let mut in_use = [false; MAX_OBJECTS];
            let mut class_number = None;
            let (mut used, mut payload_bytes) = (0, 0);
            for &handle in by_slab.of(slab) {
                let mark = &marks[handle as usize];
                let Some(entry) = self.handles.load(handle).filter(|_| mark.lives()) else {
                    continue;
                };
                let object = entry.place().object;
                in_use[usize::from(object)] = true;
                class_number = entry.class();
                used += 1;
                payload_bytes += u64::from(mark.len);
            }
            let Some(class_number) = class_number else { continue };
            let shape = self.classes[usize::from(class_number)].shape;
            *keep = (frames[slab].trailing_ones() as u8).min(shape.frames);
            let slab = slab as u32;
            // All that the frames hold, or there would be slabs whose free objects are in no list.
            let fresh = (usize::from(*keep) * FRAME_BYTES / shape.object_bytes) as u16;
            let fresh = fresh.min(shape.objects);
            let mut free = NO_OBJECT;
            // Descending: the lowest is taken first.
            for object in (0..fresh).rev().filter(|object| !in_use[usize::from(*object)]) {
                let at = self.address(&shape, Place { slab, object });
                // SAFETY: it lies on frames that have memory; no handle that anybody names leads to
                // it, and nobody else has the pool yet.
                unsafe { at.cast::<[u8; HEADER_BYTES]>().write(Header::free_bytes(free)) };
                free = object;
            }
            let mut record =
                SlabRecord { used, fresh, free, ..SlabRecord::of(class_number, *keep) };
            let state = self.classes[usize::from(class_number)].state.get_mut();
            state.slabs += 1;
            state.objects += u64::from(used);
            state.payload_bytes += payload_bytes;
            state.link(&self.slabs, slab, &mut record, shape.objects);
            self.slabs.set(slab, record);
        }
        keep
    }
}

/// Whatever it seemed to be: it is not.
fn lose(mark: &mut Mark) {
    mark.kind = if mark.refs > 0 { Kind::Lost } else { Kind::Nothing };
}
