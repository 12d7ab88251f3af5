//! The word that says where one page is.
//!
//! | bits | what |
//! |---|---|
//! | 0..4 | state |
//! | 4..8 | flags: WANTED, SAMPLED, FLASH, DONOR |
//! | 8..24 | index of the page in its block |
//! | 24..32 | CRC-8 of the other bytes |
//! | 32..64 | handle of the block, zero for none |
//!
//! A page's checksum tells whether a block is as it was, but not whether it is the one that was
//! meant: a flipped bit of a handle may well name another block. So the word has a check of its
//! own, which only a successor looks at. It finds up to three flipped bits, and any change of eight
//! neighbouring ones; the word zero passes, as it must.

use std::fmt;

use crate::store::Handle;

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum State {
    /// It was never seen, or its program gave it up.
    Absent = 0,
    /// In its program. With a handle: a stored copy was kept.
    Resident = 1,
    /// Being taken out.
    Moving = 2,
    /// In its block; without a handle it is all zeros.
    Stored = 3,
    /// Being put back.
    Restoring = 4,
    /// Taken out, not compressed.
    Parked = 5,
    /// In its program, but given to the kernel's swap. It may have come back: only a look tells.
    Lent = 6,
}

impl State {
    /// All states, in the order of their numbers.
    pub const ALL: [State; 7] = [
        State::Absent,
        State::Resident,
        State::Moving,
        State::Stored,
        State::Restoring,
        State::Parked,
        State::Lent,
    ];
}

const CHECK_SHIFT: u32 = 24;
const CHECK: u64 = 0xff << CHECK_SHIFT;

/// CRC-8 (polynomial x^8 + x^2 + x + 1) of each byte of a word, by the byte's place: that of a word is
/// the sum of its bytes'. The check itself, which is none of them, counts for nothing.
const CRC: [[u8; 256]; 8] = {
    let mut table = [[0; 256]; 8];
    // The last byte first; each one before it has one more step to go.
    let places = [7, 6, 5, 4, 2, 1, 0];
    let mut place = 0;
    while place < places.len() {
        let mut byte = 0;
        while byte < 256 {
            let mut crc = if place == 0 { byte as u8 } else { table[places[place - 1]][byte] };
            let mut bit = 0;
            while bit < 8 {
                crc = crc << 1 ^ if crc & 0x80 != 0 { 7 } else { 0 };
                bit += 1;
            }
            table[places[place]][byte] = crc;
            byte += 1;
        }
        place += 1;
    }
    table
};

/// `word` with the check that belongs to the rest of it.
#[inline]
const fn sealed(word: u64) -> u64 {
    let bytes = word.to_le_bytes();
    let (mut crc, mut i) = (0u8, 0);
    while i < bytes.len() {
        crc ^= CRC[i][bytes[i] as usize];
        i += 1;
    }
    word & !CHECK | (crc as u64) << CHECK_SHIFT
}

/// `word` with `low` for its lowest byte, and the check changed by what that changes.
#[inline]
const fn with_low(word: u64, low: u8) -> u64 {
    let changed = word as u8 ^ low;
    word ^ changed as u64 ^ (CRC[0][changed as usize] as u64) << CHECK_SHIFT
}

/// One word of the page table. The default is an absent page.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Entry(u64);

impl Entry {
    /// Nothing is known of the page.
    pub const ABSENT: Entry = Entry(0);
    /// Flag: somebody waits for the page.
    pub const WANTED: u8 = 1;
    /// Flag of a stored page: it was taken out only to see whether it is used, and counts as resident.
    pub const SAMPLED: u8 = 2;
    /// Flag of a stored page: its block was seen on flash. The block itself knows better.
    pub const FLASH: u8 = 4;
    /// Flag of a stored page: its block was seen at a donor. The block itself knows better, and at which.
    pub const DONOR: u8 = 8;

    /// A page in `state`, without flags, index or handle.
    #[inline]
    pub const fn new(state: State) -> Entry {
        Entry(sealed(state as u64))
    }

    /// A page in `state` that is page `index` of block `handle`.
    #[inline]
    pub fn with_block(state: State, handle: Handle, index: u16) -> Entry {
        Entry(sealed(u64::from(handle.raw()) << 32 | u64::from(index) << 8 | state as u64))
    }

    /// The word of the table; those written by [`Entry::raw`] only.
    #[inline]
    pub const fn from_raw(raw: u64) -> Entry {
        Entry(raw)
    }

    /// The word of the table, whoever wrote it; `None` if that was none of ours, or memory was
    /// damaged since.
    pub fn checked(raw: u64) -> Option<Entry> {
        let entry = Entry(raw);
        let fields = match State::ALL.get(raw as usize & 0xf)? {
            State::Absent => raw == 0,
            _ => entry.handle().is_some() || entry.index() == 0,
        };
        (fields && sealed(raw) == raw).then_some(entry)
    }

    /// The word.
    #[inline]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Whether the word is zero.
    #[inline]
    pub const fn is_absent(self) -> bool {
        self.0 == 0
    }

    /// Where the page is. A number that is no state reads as absent.
    #[inline]
    pub fn state(self) -> State {
        State::ALL.get(self.0 as usize & 0xf).copied().unwrap_or(State::Absent)
    }

    /// The same in another state.
    #[inline]
    pub fn with_state(self, state: State) -> Entry {
        Entry(with_low(self.0, self.0 as u8 & !0xf | state as u8))
    }

    /// Whether all of `flags` are set.
    #[inline]
    pub fn has(self, flags: u8) -> bool {
        let flags = u64::from(flags & 0xf) << 4;
        self.0 & flags == flags
    }

    /// The same with `flags` set.
    #[inline]
    pub fn with(self, flags: u8) -> Entry {
        Entry(with_low(self.0, self.0 as u8 | flags << 4))
    }

    /// The same with `flags` cleared.
    #[inline]
    pub fn without(self, flags: u8) -> Entry {
        Entry(with_low(self.0, self.0 as u8 & !(flags << 4)))
    }

    /// Whether it is a stored page, or one on its way back, whose block was seen on flash.
    #[inline]
    pub fn is_on_flash(self) -> bool {
        self.has(Entry::FLASH) && matches!(self.state(), State::Stored | State::Restoring)
    }

    /// The same of a donor.
    #[inline]
    pub fn is_at_donor(self) -> bool {
        self.has(Entry::DONOR) && matches!(self.state(), State::Stored | State::Restoring)
    }

    /// Whether either flag says that its block is in a log.
    #[inline]
    pub fn is_far(self) -> bool {
        self.has(Entry::FLASH) || self.has(Entry::DONOR)
    }

    /// Index of the page in its block.
    #[inline]
    pub fn index(self) -> u16 {
        (self.0 >> 8) as u16
    }

    /// Its block.
    #[inline]
    pub fn handle(self) -> Option<Handle> {
        Handle::from_raw((self.0 >> 32) as u32)
    }

    /// The same without a block.
    #[inline]
    pub fn without_block(self) -> Entry {
        Entry(sealed(self.0 & 0xff))
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.state())?;
        if self.has(Entry::WANTED) {
            f.write_str("+wanted")?;
        }
        if self.has(Entry::SAMPLED) {
            f.write_str("+sampled")?;
        }
        if self.has(Entry::FLASH) {
            f.write_str("+flash")?;
        }
        if self.has(Entry::DONOR) {
            f.write_str("+donor")?;
        }
        match self.handle() {
            Some(handle) => write!(f, "({}[{}])", handle.raw(), self.index()),
            None => Ok(()),
        }
    }
}
