//! z3fold from the segments of a process that died: the handles' count ([`super::super::census`]) over slabs and
//! frames.
//!
//! A frame's zpages are of one shard, lie in its chunks without overlap, and as three at most can lie: else
//! all that is in it is lost. A frame with none is given back, a spare one too.

use std::os::fd::OwnedFd;

use super::super::Pool;
use super::super::adopt::Slabs;
use super::super::census::{Census, Found, Ground};
use super::super::class::FRAME_BYTES;
use super::super::handle::{HandleTable, Place};
use super::super::object::{HEADER_BYTES, Header};
use super::super::slab::SlabTable;
use super::frame::{CHUNK_BYTES, CHUNKS, FrameRecord};
use super::{IN_FRAME, Z3fold, chunks_of, shard_number};
use crate::adopt::AdoptError;

/// What is found: units are the slabs, then the frames.
struct Frames<'a> {
    slabs: Slabs<'a>,
    frames: &'a SlabTable<FrameRecord>,
    /// Which of them have memory.
    memory: &'a [u8],
}

impl Frames<'_> {
    /// Where the zpage of a handle is, if its word can be true.
    fn placed(&self, handle: u32) -> Option<Place> {
        let entry = self.slabs.pool.handles.load(handle)?;
        let place = entry.place();
        let has_memory = self.memory.get(place.slab as usize).is_some_and(|frames| *frames != 0);
        let is_one = entry.class() == Some(IN_FRAME) && place.object < u16::from(CHUNKS);
        (is_one && has_memory).then_some(place)
    }

    /// First chunk and chunks of a sound zpage.
    fn extent(&self, handle: u32) -> Option<(u8, u8)> {
        let place = self.placed(handle)?;
        let (header, _) = self.sound(handle)?;
        Some((place.object as u8, chunks_of(usize::from(header.len))?))
    }
}

impl Ground for Frames<'_> {
    fn handles(&self) -> &HandleTable {
        self.slabs.handles()
    }

    fn units(&self) -> usize {
        self.slabs.units() + self.memory.len()
    }

    fn unit(&self, handle: u32) -> Option<usize> {
        match self.placed(handle) {
            Some(place) => Some(self.slabs.units() + place.slab as usize),
            None => self.slabs.unit(handle),
        }
    }

    fn sound(&self, handle: u32) -> Option<(Header, &[u8])> {
        let Some(place) = self.placed(handle) else { return self.slabs.sound(handle) };
        let offset = usize::from(place.object) * CHUNK_BYTES;
        let at = self.frames.arena().at(place.slab as usize * FRAME_BYTES + offset);
        // SAFETY: this frame has memory, and chunks are longer than headers. Nobody else has it yet.
        let header = Header::from_bytes(unsafe { at.cast::<[u8; HEADER_BYTES]>().read() })?;
        let len = usize::from(header.len);
        let chunks = chunks_of(len)?;
        if header.handle != handle || place.object + u16::from(chunks) > u16::from(CHUNKS) {
            return None;
        }
        // SAFETY: as above; the payload ends within the frame.
        Some((header, unsafe { std::slice::from_raw_parts(at.add(HEADER_BYTES), len) }))
    }

    fn disputed(&self, claims: &[(u32, bool)], out: &mut Vec<u32>) {
        if claims.iter().any(|(handle, _)| self.placed(*handle).is_none()) {
            return self.slabs.disputed(claims, out);
        }
        let sound = || claims.iter().filter(|(_, sound)| *sound).map(|(handle, _)| *handle);
        let shard = sound().next().map(shard_number);
        if layout(sound().filter_map(|handle| self.extent(handle))).is_none()
            || sound().any(|handle| Some(shard_number(handle)) != shard)
        {
            out.extend(claims.iter().map(|(handle, _)| *handle));
        }
    }
}

/// The record of a frame with zpages at these chunks; `None` if no frame can have them so.
fn layout(zpages: impl Iterator<Item = (u8, u8)>) -> Option<FrameRecord> {
    let mut zpages: Vec<(u8, u8)> = zpages.collect();
    zpages.sort_unstable();
    let overlap = zpages.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0);
    (!overlap).then(|| FrameRecord::of(&zpages)).flatten()
}

impl Z3fold {
    /// Takes over what a predecessor, which has ended, left in [`Z3fold::segments`]: see [`Pool::adopt`].
    ///
    /// # Errors
    /// See [`AdoptError`]. Can be tried again.
    pub(super) fn take_over(
        limit_bytes: u64,
        [arena, records, entries, frames, frame_records]: [OwnedFd; 5],
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Result<(Z3fold, Found), AdoptError> {
        let (small, slabs) = Pool::find(limit_bytes, [arena, records, entries])?;
        let (frames, memory) = SlabTable::adopt(frames, frame_records)?;
        let ground = Frames {
            slabs: Slabs { pool: &small, frames: &slabs },
            frames: &frames,
            memory: &memory,
        };
        let census = Census::take(&ground, named, dictionary, block);
        let records: Vec<Option<FrameRecord>> = (0..memory.len())
            .map(|frame| {
                let living = census.living(slabs.len() + frame);
                let extents = living.filter_map(|(handle, _)| ground.extent(handle));
                layout(extents).filter(|record| record.zpages() > 0)
            })
            .collect();
        let mut tier = Z3fold::of(small, frames);
        tier.small.rebuild(&census, &slabs)?;
        let keep: Vec<u8> = records.iter().map(|record| u8::from(record.is_some())).collect();
        tier.frames.rebuild(&memory, &keep)?;
        for (frame, record) in (0..).zip(records) {
            let living = || census.living(slabs.len() + frame as usize);
            let (Some(record), Some((first, _))) = (record, living().next()) else { continue };
            let state = tier.shards[shard_number(first) as usize].0.get_mut();
            state.lists.link(&tier.frames, frame, record);
            state.frames += 1;
            state.zpages += u64::from(record.zpages());
            state.chunks += u64::from(record.first + record.middle + record.last);
            state.payload_bytes += living().map(|(_, len)| len).sum::<u64>();
        }
        let kept = keep.iter().map(|kept| u64::from(*kept)).sum::<u64>();
        tier.small.budget.found(kept + tier.frames.record_frames());
        Ok((tier, census.found))
    }
}
