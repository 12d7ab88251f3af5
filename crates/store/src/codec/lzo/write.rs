//! Writing a stream: the last place of each four bytes is remembered, and taken if they are there again.

use super::{BEYOND, FAR_LONG, FAR_MIDDLE, FAR_SHORT};

/// Places that are remembered, as a power of two.
const BITS: u32 = 12;
/// Shorter copies are not looked for.
const LEAST: usize = 4;
/// The search goes a byte farther at each step for so many bytes in vain.
const VAIN_LOG: usize = 5;

/// Where four bytes with a hash were last. Places are counted on from chunk to chunk, so that nothing has to
/// be cleared.
pub(super) struct Table {
    places: Box<[u32; 1 << BITS]>,
    /// The first place of the present chunk, and of the next one; smaller ones are of earlier chunks.
    begin: u32,
    next: u32,
}

impl Default for Table {
    fn default() -> Table {
        Table { places: Box::new([0; 1 << BITS]), begin: 1, next: 1 }
    }
}

impl Table {
    /// Begins a chunk of `bytes`.
    fn begin_chunk(&mut self, bytes: u32) {
        self.begin = self.next;
        if let Some(next) = self.begin.checked_add(bytes) {
            self.next = next;
        } else {
            self.places.fill(0);
            (self.begin, self.next) = (1, 1 + bytes.min(u32::MAX - 1));
        }
    }

    #[cfg(test)]
    pub(super) fn wear_out(&mut self) {
        self.next = u32::MAX - 5;
    }

    /// The place in the chunk where four bytes of this hash were last, if any; `at` is remembered.
    #[inline]
    fn replace(&mut self, four: u32, at: usize) -> Option<usize> {
        let hash = (four.wrapping_mul(0x9E37_79B1) >> (32 - BITS)) as usize;
        let place = std::mem::replace(&mut self.places[hash], self.begin + at as u32);
        place.checked_sub(self.begin).map(|place| place as usize)
    }
}

#[inline]
fn four(src: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(src[at..at + 4].try_into().expect("four bytes"))
}

/// How many bytes from `one` and `other` on, which is larger, are the same.
#[inline]
fn same(src: &[u8], one: usize, other: usize) -> usize {
    let (one, other) = (&src[one..], &src[other..]);
    let mut count = 0;
    while let (Some(a), Some(b)) =
        (one[count..].first_chunk::<8>(), other[count..].first_chunk::<8>())
    {
        let differs = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differs != 0 {
            return count + differs.trailing_zeros() as usize / 8;
        }
        count += 8;
    }
    let (one, other) = (&one[count..], &other[count..]);
    count + one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// The stream so far.
struct Out<'a> {
    dst: &'a mut [u8],
    at: usize,
    /// Where the number of the literals behind the last instruction is written.
    count_at: Option<usize>,
}

impl Out<'_> {
    #[inline]
    fn byte(&mut self, byte: usize) -> Option<()> {
        *self.dst.get_mut(self.at)? = byte as u8;
        self.at += 1;
        Some(())
    }

    /// The instruction `code`, in whose lowest bits is `length`, or behind it, if it is above `most`.
    #[inline]
    fn with_length(&mut self, code: usize, length: usize, most: usize) -> Option<()> {
        if length <= most {
            return self.byte(code | length);
        }
        self.byte(code)?;
        let mut rest = length - most;
        while rest > 255 {
            self.byte(0)?;
            rest -= 255;
        }
        self.byte(rest)
    }

    /// Literals, which follow an instruction or begin the stream.
    #[inline]
    fn literals(&mut self, literals: &[u8]) -> Option<()> {
        match (literals.len(), self.count_at) {
            (0, _) => return Some(()),
            (few @ 1..=3, Some(at)) => self.dst[at] |= few as u8,
            (some @ 1..=238, None) => self.byte(17 + some)?,
            (many, _) => self.with_length(0, many - 3, 15)?,
        }
        let end = self.at + literals.len();
        self.dst.get_mut(self.at..end)?.copy_from_slice(literals);
        self.at = end;
        Some(())
    }

    /// A copy of `count` bytes, at least [`LEAST`], from `distance` back.
    #[inline]
    fn copy(&mut self, distance: usize, count: usize) -> Option<()> {
        if count <= 8 && distance <= FAR_SHORT {
            let far = distance - 1;
            self.byte((count - 1) << 5 | (far & 7) << 2)?;
            self.byte(far >> 3)?;
        } else {
            let far = if distance <= FAR_MIDDLE {
                self.with_length(32, count - 2, 31)?;
                distance - 1
            } else {
                let far = distance - BEYOND;
                self.with_length(16 | (far >> 11 & 8), count - 2, 7)?;
                far
            };
            self.byte(far << 2 & 0xff)?;
            self.byte(far >> 6 & 0xff)?;
        }
        self.count_at = Some(self.at - 2);
        Some(())
    }
}

/// Compresses `src` into the front of `dst`; `None` if it does not fit.
pub(super) fn compress(table: &mut Table, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    table.begin_chunk(u32::try_from(src.len()).ok()?);
    let mut out = Out { dst, at: 0, count_at: None };
    // What was written down, and where the search is.
    let (mut done, mut at) = (0, 0);
    while at + LEAST <= src.len() {
        let now = four(src, at);
        let found = table.replace(now, at);
        let found = found.filter(|&place| at - place <= FAR_LONG && four(src, place) == now);
        let Some(place) = found else {
            at += 1 + ((at - done) >> VAIN_LOG);
            continue;
        };
        let count = LEAST + same(src, place + LEAST, at + LEAST);
        out.literals(&src[done..at])?;
        out.copy(at - place, count)?;
        at += count;
        done = at;
    }
    out.literals(&src[done..])?;
    out.byte(0x11)?;
    out.byte(0)?;
    out.byte(0)?;
    Some(out.at)
}
