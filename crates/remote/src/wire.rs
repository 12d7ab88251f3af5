//! What a borrower and a donor say to each other.
//!
//! A frame is a head of 24 bytes and a body, numbers in little-endian order:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | kind |
//! | 1 | status of an answer: 0 done, 1 no room, 2 gone, 3 refused |
//! | 2..4 | zero |
//! | 4..8 | bytes of the body |
//! | 8..16 | number of the question; its answer has the same |
//! | 16..24 | offset in what the borrower has there, bytes |
//!
//! | kind | from | body | |
//! |---|---|---|---|
//! | 1 write | borrower | the bytes | answered by 65 |
//! | 2 read | borrower | how many bytes (4) | answered by 66 |
//! | 3 forget | borrower | how many bytes (8) | not answered |
//! | 4 ping | borrower | - | answered by 67 |
//! | 65 wrote | donor | - | |
//! | 66 data | donor | the bytes, as many as there are | |
//! | 67 state | donor | free bytes (8), used (8), 1 if it wants its memory back (1) | also by itself, every quarter second |
//!
//! Who gets anything else ends the link.

/// The version of this; both ends say it before anything else ([`crate::secure`]).
pub const VERSION: u16 = 1;
/// Bytes of a head.
pub const HEAD_BYTES: usize = 24;
/// Bytes of a body, at most.
pub const MAX_BODY_BYTES: usize = 1 << 20;

/// What is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Write = 1,
    Read = 2,
    Forget = 3,
    Ping = 4,
    Wrote = 65,
    Data = 66,
    State = 67,
}

/// What came of a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Status {
    #[default]
    Done = 0,
    /// The donor has no room for it.
    NoRoom = 1,
    /// The donor does not have it.
    Gone = 2,
    /// It makes no sense.
    Refused = 3,
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub kind: Kind,
    pub status: Status,
    pub body_bytes: u32,
    pub number: u64,
    pub at: u64,
}

/// Why a frame is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// No such kind.
    #[error("a frame of the unknown kind {0}")]
    Kind(u8),
    /// No such status.
    #[error("a frame with the unknown status {0}")]
    Status(u8),
    /// Too large.
    #[error("a frame of {0} bytes; {MAX_BODY_BYTES} at most")]
    Length(u32),
    /// What must be zero is not.
    #[error("a frame whose spare bytes are not zero")]
    Spare,
    /// What was asked by this number.
    #[error("question {0} was left out, and a later one answered")]
    LeftOut(u64),
}

impl Head {
    /// A head without a body.
    pub fn of(kind: Kind, number: u64, at: u64) -> Head {
        Head { kind, status: Status::Done, body_bytes: 0, number, at }
    }

    /// The bytes.
    pub fn to_bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = self.status as u8;
        bytes[4..8].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.at.to_le_bytes());
        bytes
    }

    /// The head that has these bytes.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn from_bytes(bytes: &[u8; HEAD_BYTES]) -> Result<Head, WireError> {
        let kind = match bytes[0] {
            1 => Kind::Write,
            2 => Kind::Read,
            3 => Kind::Forget,
            4 => Kind::Ping,
            65 => Kind::Wrote,
            66 => Kind::Data,
            67 => Kind::State,
            other => return Err(WireError::Kind(other)),
        };
        let status = match bytes[1] {
            0 => Status::Done,
            1 => Status::NoRoom,
            2 => Status::Gone,
            3 => Status::Refused,
            other => return Err(WireError::Status(other)),
        };
        if bytes[2..4] != [0, 0] {
            return Err(WireError::Spare);
        }
        let word = |from: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[from..from + 8]);
            u64::from_le_bytes(eight)
        };
        let body_bytes = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        if body_bytes as usize > MAX_BODY_BYTES {
            return Err(WireError::Length(body_bytes));
        }
        Ok(Head { kind, status, body_bytes, number: word(8), at: word(16) })
    }
}

/// Frames, found in a stream of bytes.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Up to here they were taken.
    taken: usize,
}

impl Frames {
    /// Bytes that came.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.taken > 0 && self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken >= MAX_BODY_BYTES {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Whether nothing is left of what came.
    pub fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// The next frame, if it is whole.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn take(&mut self) -> Result<Option<(Head, &[u8])>, WireError> {
        let Some(head) = self.bytes[self.taken..].first_chunk::<HEAD_BYTES>() else {
            return Ok(None);
        };
        let head = Head::from_bytes(head)?;
        let from = self.taken + HEAD_BYTES;
        let to = from + head.body_bytes as usize;
        if self.bytes.len() < to {
            return Ok(None);
        }
        self.taken = to;
        Ok(Some((head, &self.bytes[from..to])))
    }
}

/// What a donor says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DonorFacts {
    /// What it would still lend, bytes.
    pub free_bytes: u64,
    /// What all its borrowers have there, bytes.
    pub used_bytes: u64,
    /// It wants its memory back.
    pub pressed: bool,
}

/// Bytes of [`DonorFacts`].
pub const FACTS_BYTES: usize = 17;

impl DonorFacts {
    /// The bytes.
    pub fn to_bytes(self) -> [u8; FACTS_BYTES] {
        let mut bytes = [0; FACTS_BYTES];
        bytes[..8].copy_from_slice(&self.free_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.used_bytes.to_le_bytes());
        bytes[16] = self.pressed.into();
        bytes
    }

    /// What has these bytes, if anything does.
    pub fn from_bytes(bytes: &[u8]) -> Option<DonorFacts> {
        let (free, rest) = bytes.split_first_chunk()?;
        let (used, rest) = rest.split_first_chunk()?;
        let pressed = match rest {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let (free_bytes, used_bytes) = (u64::from_le_bytes(*free), u64::from_le_bytes(*used));
        Some(DonorFacts { free_bytes, used_bytes, pressed })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head() -> impl Strategy<Value = Head> {
        let kinds = [
            Kind::Write,
            Kind::Read,
            Kind::Forget,
            Kind::Ping,
            Kind::Wrote,
            Kind::Data,
            Kind::State,
        ];
        let statuses = [Status::Done, Status::NoRoom, Status::Gone, Status::Refused];
        (0..7usize, 0..4usize, 0..5000u32, any::<u64>(), any::<u64>()).prop_map(
            move |(kind, status, body_bytes, number, at)| Head {
                kind: kinds[kind],
                status: statuses[status],
                body_bytes,
                number,
                at,
            },
        )
    }

    proptest! {
        #[test]
        fn frames_come_back_however_they_are_cut(heads in proptest::collection::vec(head(), 0..20), cuts in 1..4000usize) {
            let mut stream = Vec::new();
            for (i, head) in heads.iter().enumerate() {
                stream.extend(head.to_bytes());
                stream.extend(std::iter::repeat_n(i as u8, head.body_bytes as usize));
            }
            let (mut frames, mut came) = (Frames::default(), Vec::new());
            for piece in stream.chunks(cuts) {
                frames.extend(piece);
                while let Some((head, body)) = frames.take().unwrap() {
                    prop_assert!(body.iter().all(|byte| *byte == came.len() as u8));
                    came.push(head);
                }
            }
            prop_assert_eq!(came, heads);
        }

        #[test]
        fn anything_else_is_an_error_and_never_more(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.extend(&bytes);
            while let Ok(Some((head, body))) = frames.take() {
                prop_assert_eq!(head.body_bytes as usize, body.len());
            }
        }
    }

    #[test]
    fn a_donors_facts_come_back() {
        let facts = DonorFacts { free_bytes: 7, used_bytes: 1 << 40, pressed: true };
        assert_eq!(DonorFacts::from_bytes(&facts.to_bytes()), Some(facts));
        assert_eq!(DonorFacts::from_bytes(&facts.to_bytes()[1..]), None);
        assert_eq!(DonorFacts::from_bytes(&[2; FACTS_BYTES]), None);
    }
}
