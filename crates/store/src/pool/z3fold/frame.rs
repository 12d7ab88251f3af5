//! One frame of z3fold: which chunks its up to three zpages have, where a further one goes, which one moves.
//!
//! The first zpage begins at the frame's first chunk, the last one ends at its last, the middle one lies
//! between. What is free counts as one piece: with a middle zpage, the larger of what is in front of it and
//! what is behind it, if nobody is there (`num_free_chunks`, `get_free_buddy` and `z3fold_compact_page` in
//! mm/z3fold.c). Unlike there, no chunk is taken by a header: what is known of a frame is in its record.

use super::super::slab::{NO_SLAB, Record};

/// Chunks of a frame.
pub const CHUNKS: u8 = 64;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = 64;
/// A middle zpage moves beside its neighbour for so many chunks, and not for fewer (`BIG_CHUNK_GAP`).
const BIG_GAP: u8 = 3;

/// Which of the zpages of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buddy {
    First,
    Middle,
    Last,
}

/// What is known of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRecord {
    /// Neighbours in the list it is in.
    pub prev: u32,
    /// As above.
    pub next: u32,
    /// Chunks of each zpage; zero where there is none.
    pub first: u8,
    pub middle: u8,
    pub last: u8,
    /// Where the middle one begins, if there is one.
    pub start_middle: u8,
    /// It has memory.
    pub memory: bool,
}

impl FrameRecord {
    /// With memory, and nothing in it.
    pub const EMPTY: FrameRecord = FrameRecord {
        prev: NO_SLAB,
        next: NO_SLAB,
        first: 0,
        middle: 0,
        last: 0,
        start_middle: 0,
        memory: true,
    };

    /// How many zpages it has.
    pub fn zpages(self) -> u8 {
        [self.first, self.middle, self.last].into_iter().filter(|chunks| *chunks > 0).count() as u8
    }

    /// How many chunks the largest zpage can have that it takes; zero if there are three.
    pub fn free_chunks(self) -> u8 {
        if self.middle == 0 {
            return CHUNKS - self.first - self.last;
        }
        let before = if self.first == 0 { self.start_middle } else { 0 };
        let after = if self.last == 0 { CHUNKS - self.start_middle - self.middle } else { 0 };
        before.max(after)
    }

    /// How many chunks its zpages have.
    pub fn used_chunks(self) -> u8 {
        self.first + self.middle + self.last
    }

    /// Puts a zpage in: which it is then, and at which chunk it begins. There is room.
    pub fn put(&mut self, chunks: u8) -> (Buddy, u8) {
        debug_assert!(chunks > 0 && chunks <= self.free_chunks());
        let buddy = match *self {
            FrameRecord { middle: 0, first: 0, .. } => Buddy::First,
            FrameRecord { middle: 0, last: 0, .. } => Buddy::Last,
            FrameRecord { middle: 0, .. } => Buddy::Middle,
            FrameRecord { first: 0, start_middle, .. } if chunks <= start_middle => Buddy::First,
            _ => Buddy::Last,
        };
        let start = match buddy {
            Buddy::First => {
                self.first = chunks;
                0
            }
            Buddy::Middle => {
                (self.middle, self.start_middle) = (chunks, self.first);
                self.first
            }
            Buddy::Last => {
                self.last = chunks;
                CHUNKS - chunks
            }
        };
        (buddy, start)
    }

    /// Which zpage begins at a chunk.
    pub fn at(self, start: u8) -> Option<Buddy> {
        match self {
            FrameRecord { first: 1.., .. } if start == 0 => Some(Buddy::First),
            FrameRecord { middle: 1.., start_middle, .. } if start == start_middle => {
                Some(Buddy::Middle)
            }
            FrameRecord { last: last @ 1.., .. } if start == CHUNKS - last => Some(Buddy::Last),
            _ => None,
        }
    }

    /// Chunks of a zpage.
    pub fn chunks(self, buddy: Buddy) -> u8 {
        match buddy {
            Buddy::First => self.first,
            Buddy::Middle => self.middle,
            Buddy::Last => self.last,
        }
    }

    /// Takes a zpage out.
    pub fn take(&mut self, buddy: Buddy) {
        match buddy {
            Buddy::First => self.first = 0,
            Buddy::Middle => (self.middle, self.start_middle) = (0, 0),
            Buddy::Last => self.last = 0,
        }
    }

    /// Where the middle zpage is and where it should rather be, so that what is free is one piece: alone, it
    /// becomes the first.
    pub fn compaction(self) -> Option<(u8, u8)> {
        let FrameRecord { first, middle, last, start_middle, .. } = self;
        let to = match (first, middle, last) {
            (_, 0, _) => return None,
            (0, _, 0) => 0,
            (_, _, 0) if start_middle - first >= BIG_GAP => first,
            (0, _, _) if CHUNKS - last - middle - start_middle >= BIG_GAP => CHUNKS - last - middle,
            _ => return None,
        };
        (to != start_middle || (first, last) == (0, 0)).then_some((start_middle, to))
    }

    /// The middle zpage was moved, as [`FrameRecord::compaction`] said.
    pub fn compacted(&mut self, to: u8) {
        if (self.first, self.last) == (0, 0) {
            (self.first, self.middle, self.start_middle) = (self.middle, 0, 0);
        } else {
            self.start_middle = to;
        }
    }

    /// With zpages at these chunks, ascending and none over another; `None` if a frame cannot have them so.
    pub fn of(zpages: &[(u8, u8)]) -> Option<FrameRecord> {
        let mut record = FrameRecord::EMPTY;
        for &(start, chunks) in zpages {
            let free = match start {
                0 => &mut record.first,
                _ if start + chunks == CHUNKS => &mut record.last,
                _ => {
                    if record.middle == 0 {
                        record.start_middle = start;
                    }
                    &mut record.middle
                }
            };
            if *free != 0 {
                return None;
            }
            *free = chunks;
        }
        Some(record)
    }
}

impl Record for FrameRecord {
    const SLAB_FRAMES: usize = 1;
    const NAMES: [&str; 2] = ["clew-frames", "clew-frame-records"];

    fn free(next: u32, frames: u8) -> FrameRecord {
        FrameRecord { next, memory: frames > 0, ..FrameRecord::EMPTY }
    }

    fn frames(self) -> u8 {
        u8::from(self.memory)
    }

    fn to_words(self) -> [u32; 4] {
        let sizes = u32::from_le_bytes([self.first, self.middle, self.last, self.start_middle]);
        [self.prev, self.next, sizes, u32::from(self.memory)]
    }

    fn of_words([prev, next, sizes, memory]: [u32; 4]) -> FrameRecord {
        let [first, middle, last, start_middle] = sizes.to_le_bytes();
        FrameRecord { prev, next, first, middle, last, start_middle, memory: memory != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zpages_come_to_the_front_to_the_back_and_between() {
        let mut frame = FrameRecord::EMPTY;
        assert_eq!((frame.put(20), frame.free_chunks()), ((Buddy::First, 0), 44));
        assert_eq!((frame.put(10), frame.free_chunks()), ((Buddy::Last, 54), 34));
        assert_eq!((frame.put(5), frame.free_chunks()), ((Buddy::Middle, 20), 0));
        assert_eq!(
            (frame.at(0), frame.at(20), frame.at(54)),
            (Some(Buddy::First), Some(Buddy::Middle), Some(Buddy::Last))
        );
        assert_eq!((frame.at(1), frame.zpages()), (None, 3));
        assert_eq!(FrameRecord::of_words(frame.to_words()), frame);
        assert_eq!(FrameRecord::of(&[(0, 20), (20, 5), (54, 10)]), Some(frame));
        assert_eq!(FrameRecord::of(&[(0, 20), (20, 5), (30, 1)]), None);
    }

    #[test]
    fn the_middle_one_moves_where_that_is_worth_it() {
        let three = FrameRecord::of(&[(0, 20), (20, 5), (54, 10)]).unwrap();
        let mut frame = three;
        frame.take(Buddy::Last);
        assert_eq!((frame.compaction(), frame.free_chunks()), (None, 39), "it is there already");
        let mut frame = three;
        frame.take(Buddy::First);
        // 29 chunks are between it and the last.
        assert_eq!((frame.compaction(), frame.free_chunks()), (Some((20, 49)), 20));
        frame.compacted(49);
        assert_eq!((frame.compaction(), frame.free_chunks()), (None, 49));
        frame.take(Buddy::Last);
        assert_eq!(frame.compaction(), Some((49, 0)));
        frame.compacted(0);
        assert_eq!((frame.first, frame.middle, frame.free_chunks()), (5, 0, 59));
        // Two chunks between it and the last are left alone.
        let mut frame = FrameRecord::of(&[(0, 20), (20, 32), (54, 10)]).unwrap();
        frame.take(Buddy::First);
        assert_eq!((frame.compaction(), frame.free_chunks()), (None, 20));
    }

    #[test]
    fn a_zpage_between_two_gaps_is_counted_by_the_larger() {
        let mut frame = FrameRecord::of(&[(10, 40)]).unwrap();
        assert_eq!(frame.free_chunks(), 14);
        assert_eq!(frame.put(12), (Buddy::Last, 52));
        assert_eq!((frame.free_chunks(), frame.put(10)), (10, (Buddy::First, 0)));
    }
}
