//! What two devices have: of each piece that was written, whether the one has it, and the other. Sans-IO: the daemon's
//! [`super::Copies`] asks it, and so does the simulation of many machines.
//!
//! A piece is what one write brought, and is known by where it begins. What one of the two has missed, or has lost because
//! it began anew, is to be copied from the other one. What neither has any more is *gone*.
//!
//! Memory: some 100 bytes a piece (MobileSwap's C_s: 64 KiB).

use std::collections::{BTreeMap, BTreeSet};

use clew_core::DonorState;

use super::record::Record;
use crate::Standing;

/// Whether one of the two has a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Has {
    /// It was asked to take it, and has not answered.
    Asked,
    Yes,
    No,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    len: u64,
    /// A number that nothing else has.
    number: u64,
    has: [Has; 2],
    /// One of them had it once: whoever wrote it has no copy of his own any more.
    was_there: bool,
}

/// A piece that one of the two does not have, and the other one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missed {
    /// Where it begins, bytes.
    pub at: u64,
    /// Its bytes.
    pub len: u64,
    number: u64,
}

/// All pieces. The two devices are 0 and 1.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: BTreeMap<u64, Piece>,
    missed: [BTreeSet<u64>; 2],
    gone: BTreeSet<u64>,
    next: u64,
    record: Option<Record>,
}

impl Pieces {
    /// Nothing yet; what there is is written down in `record`.
    pub fn new(record: Record) -> Pieces {
        Pieces { record: Some(record), ..Pieces::default() }
    }

    /// What a predecessor has written down in `record`.
    pub fn adopt(record: Record) -> Pieces {
        let mut pieces = Pieces::default();
        for (at, len, has) in record.read() {
            pieces.next += 1;
            let has = has.map(|has| if has { Has::Yes } else { Has::No });
            let piece = Piece { len, number: pieces.next, has, was_there: true };
            pieces.put(at, piece);
        }
        pieces.record = Some(record);
        pieces
    }

    fn put(&mut self, at: u64, piece: Piece) {
        for (missed, has) in self.missed.iter_mut().zip(piece.has) {
            if has == Has::No {
                missed.insert(at);
            } else {
                missed.remove(&at);
            }
        }
        if piece.was_there && piece.has == [Has::No; 2] {
            self.gone.insert(at);
        } else {
            self.gone.remove(&at);
        }
        if let Some(record) = self.record.as_ref().filter(|_| piece.was_there) {
            record.note(at, piece.len, piece.has.map(|has| has == Has::Yes));
        }
        self.pieces.insert(at, piece);
    }

    /// `len` bytes are written at `at`, to both: what began there before is no more. Answers the number of this write.
    pub fn write(&mut self, at: u64, len: u64) -> u64 {
        self.forget(at, len);
        self.next += 1;
        let piece = Piece { len, number: self.next, has: [Has::Asked; 2], was_there: false };
        self.put(at, piece);
        self.next
    }

    /// The write of this number is over at one of the two, which `took` it or not.
    pub fn wrote(&mut self, which: usize, at: u64, number: u64, took: bool) {
        let Some(piece) = self.pieces.get(&at).filter(|piece| piece.number == number) else {
            return;
        };
        let mut piece = *piece;
        piece.has[which] = if took { Has::Yes } else { Has::No };
        piece.was_there |= took;
        self.put(at, piece);
    }

    /// Pieces that begin in the `len` bytes from `at` on are needed no more.
    pub fn forget(&mut self, at: u64, len: u64) {
        let there = self.pieces.range(at..at.saturating_add(len));
        let there: Vec<u64> = there.map(|(at, _)| *at).collect();
        for at in there {
            self.drop_piece(at);
        }
    }

    fn drop_piece(&mut self, at: u64) {
        self.pieces.remove(&at);
        for missed in &mut self.missed {
            missed.remove(&at);
        }
        self.gone.remove(&at);
        if let Some(record) = &self.record {
            record.forget(at);
        }
    }

    /// Nobody asks any more for what is gone.
    pub fn forgive(&mut self) {
        while let Some(at) = self.gone.first().copied() {
            self.drop_piece(at);
        }
    }

    /// One of the two has begun anew: all that it had has to be copied there again. How many pieces that are.
    pub fn lost_all(&mut self, which: usize) -> usize {
        let had = self.pieces.iter().filter(|(_, piece)| piece.has[which] == Has::Yes);
        let had: Vec<(u64, Piece)> = had.map(|(at, piece)| (*at, *piece)).collect();
        let count = had.len();
        for (at, mut piece) in had {
            piece.has[which] = Has::No;
            self.put(at, piece);
        }
        count
    }

    /// Which of the two byte `at` may be read from.
    pub fn may_read(&self, at: u64) -> [bool; 2] {
        let before = self.pieces.range(..=at).next_back();
        match before.filter(|(from, piece)| at - **from < piece.len) {
            Some((_, piece)) => piece.has.map(|has| has != Has::No),
            None => [true; 2],
        }
    }

    /// Whether one of the two is known to have anything.
    pub fn has_any(&self, which: usize) -> bool {
        self.pieces.values().any(|piece| piece.has[which] == Has::Yes)
    }

    /// At most `most` pieces that are to be copied to one of the two.
    pub fn missed(&self, which: usize, most: usize) -> Vec<Missed> {
        let piece = |at: &u64| {
            let piece = self.pieces.get(at)?;
            let Piece { len, number, has, .. } = *piece;
            (has[1 - which] == Has::Yes).then_some(Missed { at: *at, len, number })
        };
        self.missed[which].iter().filter_map(piece).take(most).collect()
    }

    /// Whether it still has to be copied there.
    pub fn is_missed(&self, which: usize, missed: Missed) -> bool {
        let piece = self.pieces.get(&missed.at).filter(|piece| piece.number == missed.number);
        piece.is_some_and(|piece| piece.has[which] == Has::No)
    }

    /// It has been copied there.
    pub fn mended(&mut self, which: usize, missed: Missed) {
        self.wrote(which, missed.at, missed.number, true);
    }

    /// How both stand as one; the second is a file where it does not stand by itself. With one of two copies they give back what there is, and
    /// take nothing more.
    pub fn standing(&self, first: Standing, second: Option<Standing>) -> Standing {
        use DonorState::{Lost, Pressed, Relieved, Single, Up, Weak};
        let (state, why, free_bytes) = match second {
            None => {
                let state = match first.state {
                    Lost | Weak => Single,
                    Pressed => Relieved,
                    as_it_is @ (Up | Single | Relieved) => as_it_is,
                };
                (state, first.why.clone(), first.free_bytes)
            }
            Some(second) => {
                let state = match (first.state, second.state) {
                    (Up, Up) => Up,
                    (Lost, Lost) => Lost,
                    (Pressed, Pressed) => Pressed,
                    _ => Single,
                };
                let free = first.free_bytes.min(second.free_bytes);
                (state, first.why.clone().or(second.why), free)
            }
        };
        let (state, why) = if !self.gone.is_empty() {
            (Lost, Some("both have lost what they had".to_string()))
        } else if state == Up && self.missed.iter().any(|missed| !missed.is_empty()) {
            (Single, Some("what one of two has missed is being copied".to_string()))
        } else {
            (state, why)
        };
        Standing { state, why, free_bytes, ..first }
    }
}

#[cfg(test)]
mod tests {
    use clew_core::seeded::Seeded;

    use super::*;

    const LEN: u64 = 4096;

    /// Beside two devices that are maps: what is said to be there is there, and what one has lost is copied again.
    #[test]
    fn what_is_said_to_be_there_is_there() {
        let mut draw = Seeded::of(9, &[]);
        for _ in 0..200 {
            let record = Record::new(64 * LEN, LEN).unwrap();
            let mut pieces = Pieces::new(record);
            let mut devices: [BTreeMap<u64, u64>; 2] = Default::default();
            let mut wanted: BTreeMap<u64, u64> = BTreeMap::new();
            for version in 0..300 {
                let at = clew_store::flash::device::HEAD_BYTES + draw.below(32) * LEN;
                match draw.below(10) {
                    0..=4 => {
                        let number = pieces.write(at, LEN);
                        let takes = [draw.below(4) > 0, draw.below(4) > 0];
                        for which in 0..2 {
                            if takes[which] {
                                devices[which].insert(at, version);
                            }
                            pieces.wrote(which, at, number, takes[which]);
                        }
                        match takes {
                            [false, false] => {
                                wanted.remove(&at);
                                pieces.forget(at, LEN);
                            }
                            _ => drop(wanted.insert(at, version)),
                        }
                    }
                    5 => {
                        pieces.forget(at, LEN);
                        wanted.remove(&at);
                    }
                    6 => {
                        let which = draw.below(2) as usize;
                        devices[which].clear();
                        pieces.lost_all(which);
                    }
                    7 => {
                        let Pieces { record, .. } = std::mem::take(&mut pieces);
                        pieces = Pieces::adopt(record.unwrap());
                    }
                    _ => {
                        for which in 0..2 {
                            for missed in pieces.missed(which, 8) {
                                assert!(pieces.is_missed(which, missed));
                                let version = devices[1 - which][&missed.at];
                                devices[which].insert(missed.at, version);
                                pieces.mended(which, missed);
                            }
                        }
                    }
                }
                let mut gone = false;
                for (at, version) in &wanted {
                    let may = pieces.may_read(at + 17);
                    for which in 0..2 {
                        let has = devices[which].get(at) == Some(version);
                        assert_eq!(may[which], has, "{at} at {which}");
                    }
                    gone |= may == [false, false];
                }
                assert_eq!(!pieces.gone.is_empty(), gone);
            }
            // What neither has is given up; of all else there are two again.
            pieces.forgive();
            for which in 0..2 {
                for missed in pieces.missed(which, usize::MAX) {
                    pieces.mended(which, missed);
                }
            }
            assert!(pieces.missed.iter().all(BTreeSet::is_empty), "{pieces:?}");
        }
    }

    #[test]
    fn how_two_stand() {
        use DonorState::{Lost, Pressed, Single, Up, Weak};
        let of = |state| Standing { state, free_bytes: 10, ..Standing::unknown() };
        let mut pieces = Pieces::default();
        for (first, second, both) in [
            (Up, Up, Up),
            (Up, Lost, Single),
            (Weak, Up, Single),
            (Pressed, Pressed, Pressed),
            (Lost, Lost, Lost),
        ] {
            let stand = pieces.standing(of(first), Some(of(second))).state;
            assert_eq!(stand, both, "{first:?} {second:?}");
        }
        assert_eq!(pieces.standing(of(Lost), None).state, Single, "there is a file");
        let number = pieces.write(0, LEN);
        (0..2).for_each(|which| pieces.wrote(which, 0, number, true));
        assert_eq!(pieces.lost_all(1), 1);
        assert_eq!(pieces.standing(of(Up), Some(of(Up))).state, Single, "one has begun anew");
        pieces.lost_all(0);
        assert_eq!(pieces.standing(of(Up), Some(of(Up))).state, Lost, "both have");
        pieces.forgive();
        assert_eq!(pieces.standing(of(Up), Some(of(Up))).state, Up);
    }

    /// What is answered late is about what was written then.
    #[test]
    fn a_late_answer_is_about_its_own_write() {
        let mut pieces = Pieces::default();
        let old = pieces.write(0, LEN);
        let new = pieces.write(0, LEN);
        pieces.wrote(0, 0, new, false);
        pieces.wrote(1, 0, new, true);
        pieces.wrote(0, 0, old, true);
        assert_eq!(pieces.may_read(0), [false, true]);
        let missed = pieces.missed(0, 9)[0];
        let newer = pieces.write(0, LEN);
        pieces.mended(0, missed);
        pieces.wrote(0, 0, newer, false);
        assert_eq!(pieces.may_read(0), [false, true]);
    }

    /// The paper ends apps of a donor that is not up; of which there is a copy in a file, nobody has to end.
    #[test]
    fn nothing_beside_a_file_is_in_danger() {
        use DonorState::{Lost, Pressed, Relieved, Single, Up, Weak};
        let pieces = Pieces::default();
        for (stands, with_file) in
            [(Up, Up), (Weak, Single), (Pressed, Relieved), (Lost, Single), (Single, Single)]
        {
            let first = Standing { state: stands, ..Standing::unknown() };
            assert_eq!(pieces.standing(first, None).state, with_file, "{stands:?}");
        }
    }
}
