//! z3fold: up to three zpages share a frame of 64 chunks (mm/z3fold.c of Linux 4.8 to 6.14; ezswap, II-B).
//!
//! A zpage is an object that is larger than a chunk. One that fits best is found for it by the chunks that it
//! needs (`unbuddied`), and where in it, and which one moves together when another leaves, is `frame`'s.
//! All of it takes the same time however many frames there are. An object of more chunks than others leave free
//! has a frame of its own (there: a headless page); nothing is larger than a frame.
//!
//! What is no larger than a chunk is kept in slabs by its size ([`Pool`], which is here for that, for the
//! handles and for the budget): pages of one repeated word, and the stubs of blocks that are on flash. zswap keeps
//! the former in its tree and has nothing in memory of what was written back; as zpages, the stubs of three
//! would take the frame that their eviction has freed.
//!
//! Frames are in *shards*, by their zpages' handles, as the kernel's are by CPU: zpages share a frame if their
//! handles are of one shard. The lock of a shard is held by who reads (for reading) or changes any object of its
//! handles, be it in a frame or in a slab, so whoever holds it knows which of both.
//!
//! Invariants, where no lock is held:
//! - a handle whose word says [`IN_FRAME`] names a zpage that begins at that chunk of that frame, whose header
//!   names the handle, and conversely; a frame's zpages are of one shard;
//! - a frame that is in no list has three zpages, or no room, or is a shard's spare one, or free;
//! - `used_bytes` is what both arenas, both tables of records and the handle table hold.
//!
//! Truth is the handle table, and the headers, as in a [`Pool`]; death finds the same prefixes:
//! - *insert*, *remove*, *replace*: as there. What a frame holds follows from the words, so nothing is
//!   marked free.
//! - *move*: within a frame. Where the old and the new place overlap, by way of the shard's *spare* frame: it is
//!   copied there, the word says so, it is copied back, the word says so. A spare frame whose zpage a successor
//!   finds is a frame like others.
//! - A frame is given memory before and loses it after the zpages that are in it.
//!
//! Lock order: a shard, then a class of the slabs, then one of the leaf locks.

mod adopt;
pub mod frame;
#[cfg(test)]
mod oracle;
mod replace;
#[cfg(test)]
mod tests;
mod tier;
pub mod unbuddied;

use clew_core::FrameFacts;
use parking_lot::RwLock;

use self::frame::{Buddy, CHUNK_BYTES, FrameRecord};
use self::unbuddied::Unbuddied;
use super::budget::For;
use super::class::FRAME_BYTES;
use super::handle::{HandleEntry, MAX_SLABS, Place};
use super::object::{self, HEADER_BYTES, Header, payload_bytes};
use super::slab::SlabTable;
use super::{NoRoom, Pool, Usage};
use crate::segment::{Segment, SegmentError};

/// The class of objects that are in a frame; no slab has it.
const IN_FRAME: u8 = 253;
/// Shards, and how many neighbouring handles are of one.
const SHARDS: u32 = 8;
const NEIGHBOURS: u32 = 64;

/// What the lock of a shard guards, besides its zpages and the records of its frames.
#[derive(Debug)]
struct ShardState {
    lists: Unbuddied,
    /// Frames with zpages.
    frames: u64,
    zpages: u64,
    chunks: u64,
    payload_bytes: u64,
    /// An empty frame to move by.
    spare: Option<u32>,
}

/// One shard with its lock, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Shard(RwLock<ShardState>);

/// z3fold. See the module.
#[derive(Debug)]
pub struct Z3fold {
    small: Pool,
    frames: SlabTable<FrameRecord>,
    shards: Box<[Shard]>,
}

/// Chunks of an object with such a payload, if it is a zpage.
fn chunks_of(payload_bytes: usize) -> Option<u8> {
    let bytes = HEADER_BYTES + payload_bytes;
    (bytes > CHUNK_BYTES).then(|| bytes.div_ceil(CHUNK_BYTES) as u8)
}

fn shard_number(handle: u32) -> u32 {
    handle / NEIGHBOURS % SHARDS
}

impl Z3fold {
    /// Of at most `limit_bytes`, with room for `handles` handles. `seed` is kept for the caller.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn new(limit_bytes: u64, handles: u64, seed: u64) -> Result<Z3fold, SegmentError> {
        let small = Pool::new(limit_bytes, handles, seed)?;
        let frames = (limit_bytes / FRAME_BYTES as u64).saturating_add(64).min(MAX_SLABS as u64);
        Ok(Z3fold::of(small, SlabTable::new(frames as usize)?))
    }

    /// Without zpages.
    fn of(small: Pool, frames: SlabTable<FrameRecord>) -> Z3fold {
        let shard = |_| {
            Shard(RwLock::new(ShardState {
                lists: Unbuddied::new(),
                frames: 0,
                zpages: 0,
                chunks: 0,
                payload_bytes: 0,
                spare: None,
            }))
        };
        Z3fold { small, frames, shards: (0..SHARDS).map(shard).collect() }
    }

    /// What a successor needs: those of the slabs and handles, then the frames and their records.
    pub fn segments(&self) -> [&Segment; 5] {
        let [arena, records, handles] = self.small.segments();
        [arena, records, handles, self.frames.arena(), self.frames.records()]
    }

    fn shard(&self, handle: u32) -> &RwLock<ShardState> {
        &self.shards[shard_number(handle) as usize].0
    }

    /// The address of chunk `place.object` of a frame.
    fn address(&self, place: Place) -> *mut u8 {
        debug_assert!(place.object < u16::from(frame::CHUNKS));
        let offset = usize::from(place.object) * CHUNK_BYTES;
        self.frames.arena().at(place.slab as usize * FRAME_BYTES + offset)
    }

    /// Gives frames that are free back to the kernel; how many.
    fn trim(&self) -> u64 {
        self.small.slabs.trim(&self.small.budget) + self.frames.trim(&self.small.budget)
    }

    /// Does it again with the frames that lie idle, if there is no room.
    fn with_room<T>(&self, mut act: impl FnMut() -> Result<T, NoRoom>) -> Result<T, NoRoom> {
        match act() {
            Err(NoRoom) if self.trim() > 0 => act(),
            done => done,
        }
    }

    /// An empty frame.
    fn new_frame(&self, what: For) -> Result<u32, NoRoom> {
        let budget = &self.small.budget;
        let (frame, memory) = self.frames.alloc(1, what, budget).ok_or(NoRoom)?;
        self.frames.set(frame, FrameRecord { memory: memory > 0, ..FrameRecord::EMPTY });
        if memory > 0 {
            return Ok(frame);
        }
        let charged = budget.charge_for(what, 1);
        if charged
            && self.frames.arena().populate(frame as usize * FRAME_BYTES, FRAME_BYTES).is_ok()
        {
            self.frames.set(frame, FrameRecord::EMPTY);
            return Ok(frame);
        }
        if charged {
            budget.refund(1);
        }
        self.frames.release(frame, budget);
        Err(NoRoom)
    }

    /// Gives back a frame that became empty.
    fn release_frame(&self, emptied: Option<u32>) {
        if let Some(frame) = emptied {
            self.frames.release(frame, &self.small.budget);
        }
    }

    /// Gives the spare frames back, until the next one is needed.
    fn give_up_spares(&self) {
        for shard in &self.shards {
            let spare = shard.0.write().spare.take();
            self.release_frame(spare);
        }
    }

    /// Writes a zpage, to which no handle leads yet.
    fn put_zpage(
        &self,
        state: &mut ShardState,
        header: &Header,
        pieces: &[&[u8]],
        chunks: u8,
        what: For,
    ) -> Result<Place, NoRoom> {
        let (frame, mut record) = match state.lists.best(chunks) {
            Some(frame) => {
                let record = self.frames.get(frame);
                state.lists.unlink(&self.frames, record);
                (frame, record)
            }
            None => {
                let frame = self.new_frame(what)?;
                state.frames += 1;
                (frame, FrameRecord::EMPTY)
            }
        };
        let (_, start) = record.put(chunks);
        let place = Place { slab: frame, object: u16::from(start) };
        // SAFETY: these chunks are nobody's, and the shard's write lock keeps everybody off its frames. The
        // object fits, for `chunks` are as many as it needs.
        unsafe { object::write(self.address(place), header, pieces) };
        state.lists.link(&self.frames, frame, record);
        state.zpages += 1;
        state.chunks += u64::from(chunks);
        state.payload_bytes += u64::from(header.len);
        Ok(place)
    }

    /// Takes out a zpage to which no handle leads any more, and moves what is left together; the frame, if that is
    /// empty now.
    fn take_zpage(&self, state: &mut ShardState, place: Place, len: usize) -> Option<u32> {
        let frame = place.slab;
        let mut record = self.frames.get(frame);
        let buddy = record.at(place.object as u8)?;
        state.zpages -= 1;
        state.chunks -= u64::from(record.chunks(buddy));
        state.payload_bytes -= len as u64;
        state.lists.unlink(&self.frames, record);
        record.take(buddy);
        if record.zpages() == 0 {
            state.frames -= 1;
            self.frames.set(frame, FrameRecord::EMPTY);
            return Some(frame);
        }
        self.compact_frame(state, frame, &mut record);
        state.lists.link(&self.frames, frame, record);
        None
    }

    /// Moves the middle zpage of a frame to where it should rather be. Not where that takes a spare frame and there
    /// is no memory for one.
    fn compact_frame(&self, state: &mut ShardState, frame: u32, record: &mut FrameRecord) {
        let Some((from, to)) = record.compaction() else { return };
        let chunks = record.chunks(Buddy::Middle);
        let at = |chunk: u8| Place { slab: frame, object: u16::from(chunk) };
        // SAFETY: a zpage begins there, and the shard's write lock keeps it in place.
        let header = unsafe { self.address(at(from)).cast::<[u8; HEADER_BYTES]>().read() };
        let (owner, _) = Header::owner_and_next(header);
        let is_its_own =
            |entry: &HandleEntry| entry.class() == Some(IN_FRAME) && entry.place() == at(from);
        // Its header may be damaged.
        if !self.small.handles.load(owner).as_ref().is_some_and(is_its_own) {
            return;
        }
        let mut source = at(from);
        if from.abs_diff(to) < chunks {
            if state.spare.is_none() {
                state.spare = self.new_frame(For::Leaving).ok();
            }
            let Some(spare) = state.spare else { return };
            let spare = Place { slab: spare, object: 0 };
            self.move_zpage(owner, source, spare, chunks);
            source = spare;
        }
        self.move_zpage(owner, source, at(to), chunks);
        record.compacted(to);
    }

    /// Copies a zpage to chunks that are nobody's and do not overlap, and has its handle lead there.
    fn move_zpage(&self, owner: u32, from: Place, to: Place, chunks: u8) {
        let (source, target) = (self.address(from), self.address(to));
        // SAFETY: both lie in frames of the shard that the caller has locked for writing, and do not overlap.
        unsafe { target.copy_from_nonoverlapping(source, usize::from(chunks) * CHUNK_BYTES) };
        self.small.handles.relocate(owner, to);
    }

    /// A handle without an object yet.
    fn reserve(&self) -> Result<u32, NoRoom> {
        self.with_room(|| self.small.reserve())
    }

    /// See [`crate::tier::ObjectTier::insert`].
    fn insert(
        &self,
        handle: u32,
        refs: u32,
        header: Header,
        pieces: &[&[u8]],
    ) -> Result<(), NoRoom> {
        let len = payload_bytes(pieces);
        let Some(chunks) = chunks_of(len) else {
            return self.with_room(|| self.small.insert(handle, refs, header, pieces));
        };
        let header = Header { handle, len: len as u16, ..header };
        self.with_room(|| {
            let mut state = self.shard(handle).write();
            let place = self.put_zpage(&mut state, &header, pieces, chunks, For::New)?;
            self.small.handles.publish(handle, place, IN_FRAME, refs);
            Ok(())
        })
    }

    /// Removes the object of `handle`, whatever its references, and the handle.
    fn remove(&self, handle: u32) {
        let mut state = self.shard(handle).write();
        let Some(entry) = self.small.handles.load(handle) else { return };
        if entry.class() != Some(IN_FRAME) {
            return self.small.remove(handle);
        }
        let len = self.zpage(entry.place()).map_or(0, |(header, _)| usize::from(header.len));
        self.small.handles.clear(handle);
        let emptied = self.take_zpage(&mut state, entry.place(), len);
        drop(state);
        self.release_frame(emptied);
        self.small.handles.free(handle);
    }

    /// The zpage that begins there, of a shard that the caller has locked; `None` if its header cannot be true.
    fn zpage(&self, place: Place) -> Option<(Header, &[u8])> {
        let record = self.frames.get(place.slab);
        let chunks = record.chunks(record.at(place.object as u8)?);
        let at = self.address(place);
        // SAFETY: a zpage begins there. It is neither moved nor written while the caller holds the shard's lock.
        let header = Header::from_bytes(unsafe { at.cast::<[u8; HEADER_BYTES]>().read() })?;
        let len = usize::from(header.len);
        if HEADER_BYTES + len > usize::from(chunks) * CHUNK_BYTES {
            return None;
        }
        // SAFETY: as above; the payload ends within its chunks.
        Some((header, unsafe { std::slice::from_raw_parts(at.add(HEADER_BYTES), len) }))
    }

    /// As [`Pool::read_unowned`].
    fn read_unowned<R>(&self, handle: u32, f: impl FnOnce(&Header, &[u8]) -> R) -> Option<R> {
        let _state = self.shard(handle).read();
        let entry = self.small.handles.load(handle)?;
        if entry.class() != Some(IN_FRAME) {
            return self.small.read_unowned(handle, f);
        }
        let place = entry.place();
        let (header, payload) = self.zpage(place)?;
        (header.handle == handle).then(|| f(&header, payload))
    }

    /// The frame that the zpage of a handle is in.
    fn frame(&self, handle: u32) -> Option<FrameFacts> {
        let _state = self.shard(handle).read();
        let entry = self.small.handles.load(handle)?;
        let frame = entry.place().slab;
        let record = || self.frames.get(frame);
        (entry.class() == Some(IN_FRAME)).then(record).map(|record| FrameFacts {
            frame,
            zpages: record.zpages(),
            free_chunks: record.free_chunks(),
            used_chunks: record.used_chunks(),
        })
    }

    /// What is in use.
    fn usage(&self) -> Usage {
        let mut usage = self.small.usage();
        usage.slab_table_bytes += self.frames.record_frames() * FRAME_BYTES as u64;
        usage.punch_failures += self.frames.punch_failures();
        for shard in &self.shards {
            let state = shard.0.read();
            usage.objects += state.zpages;
            usage.object_bytes += state.chunks * CHUNK_BYTES as u64;
            usage.payload_bytes += state.payload_bytes;
            usage.slabs += state.frames;
        }
        usage
    }

    /// Bytes that an object of `payload_bytes` takes.
    fn object_bytes(&self, payload_bytes: usize) -> usize {
        match chunks_of(payload_bytes) {
            Some(chunks) => usize::from(chunks) * CHUNK_BYTES,
            None => self.small.object_bytes(payload_bytes),
        }
    }

    /// Inverts the bits of byte `offset` of the payload of `handle`.
    #[cfg(any(test, feature = "fault-injection"))]
    fn damage(&self, handle: u32, offset: usize) -> bool {
        let _state = self.shard(handle).write();
        let Some(entry) = self.small.handles.load(handle) else { return false };
        if entry.class() != Some(IN_FRAME) {
            return self.small.damage(handle, offset);
        }
        let place = entry.place();
        if self.zpage(place).is_none_or(|(_, payload)| offset >= payload.len()) {
            return false;
        }
        // SAFETY: within a zpage that the write lock keeps in place and to ourselves.
        unsafe { *self.address(place).add(HEADER_BYTES + offset) ^= 0xff };
        true
    }
}
