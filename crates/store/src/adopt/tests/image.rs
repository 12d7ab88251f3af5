//! What a process that died left behind: the bytes of its segments, as far as they have memory.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::segment::Segment;

pub const FRAME: usize = 4096;

/// One segment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Copy {
    pub len: usize,
    pub frames: BTreeMap<usize, Vec<u8>>,
}

impl Copy {
    pub fn of(segment: &Segment) -> Copy {
        let mut frames = BTreeMap::new();
        segment
            .for_data(|data| {
                for at in data.step_by(FRAME) {
                    let mut bytes = vec![0; FRAME];
                    // SAFETY: the buffer is as long as is said.
                    let got = unsafe {
                        let to = bytes.as_mut_ptr().cast();
                        libc::pread(segment.as_raw_fd(), to, FRAME, at as libc::off_t)
                    };
                    assert_eq!(got, FRAME as isize);
                    frames.insert(at / FRAME, bytes);
                }
            })
            .unwrap();
        Copy { len: segment.len(), frames }
    }

    /// Whether the segment is still this.
    fn is_of(&self, segment: &Segment) -> bool {
        let held = segment.resident_bytes().unwrap();
        held == (self.frames.len() * FRAME) as u64
            && self.frames.iter().all(|(frame, bytes)| {
                // SAFETY: there was memory when the copy was made, and there is as much now. If it
                // is elsewhere now, this one is zero and differs, or nothing of it matters.
                let now = unsafe {
                    let at = segment.at(frame * FRAME);
                    std::slice::from_raw_parts(at, FRAME)
                };
                now == bytes
            })
    }

    pub fn write(&self) -> OwnedFd {
        let segment = Segment::new("clew-copy", self.len).unwrap();
        for (frame, bytes) in &self.frames {
            // SAFETY: the buffer is as long as is said.
            let wrote = unsafe {
                let at = (frame * FRAME) as libc::off_t;
                libc::pwrite(segment.as_raw_fd(), bytes.as_ptr().cast(), FRAME, at)
            };
            assert_eq!(wrote, FRAME as isize);
        }
        segment.as_fd().try_clone_to_owned().unwrap()
    }

    pub fn word(&self, word: usize) -> u64 {
        match self.frames.get(&(word / 512)) {
            Some(frame) => u64::from_le_bytes(frame.as_chunks::<8>().0[word % 512]),
            None => 0,
        }
    }

    pub fn set_word(&mut self, word: usize, value: u64) {
        let frame = self.frames.get_mut(&(word / 512)).unwrap();
        frame.as_chunks_mut::<8>().0[word % 512] = value.to_le_bytes();
    }
}

/// All segments: leaves, owners, arena, slab records, handles; of a z3fold pool frames and their records, too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Image(pub Vec<Copy>);

pub const LEAVES: usize = 0;
pub const OWNERS: usize = 1;
pub const ARENA: usize = 2;
pub const RECORDS: usize = 3;
pub const HANDLES: usize = 4;

impl Image {
    pub fn of(segments: &[&Segment]) -> Image {
        Image(segments.iter().map(|segment| Copy::of(segment)).collect())
    }

    pub fn write(&self) -> Vec<OwnedFd> {
        self.0.iter().map(Copy::write).collect()
    }

    /// Whether the segments are still this; sooner told than by another copy.
    pub fn is_of(&self, segments: &[&Segment]) -> bool {
        self.0.iter().zip(segments).all(|(copy, segment)| copy.is_of(segment))
    }

    /// Whether it is the other but for one byte of the arena.
    pub fn is_a_byte_from(&self, other: &Image) -> bool {
        let differ = |(a, b): (&Copy, &Copy)| a != b;
        let differing = self.0.iter().zip(&other.0).map(differ).collect::<Vec<_>>();
        let (ours, theirs) = (&self.0[ARENA].frames, &other.0[ARENA].frames);
        differing.iter().zip(0..).all(|(differs, segment)| *differs == (segment == ARENA))
            && ours.keys().eq(theirs.keys())
            && 1 == ours
                .values()
                .flatten()
                .zip(theirs.values().flatten())
                .filter(|(a, b)| a != b)
                .count()
    }

    pub fn bytes(&self) -> usize {
        self.0.iter().map(|copy| copy.frames.len() * FRAME).sum()
    }
}
