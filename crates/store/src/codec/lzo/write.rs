//! Writing a stream: the last place of each four bytes is remembered, and taken if they are there again.

use super::{BEYOND, FAR_LONG, FAR_MIDDLE, FAR_SHORT};

/// Places that are remembered, as a power of two.
const BITS: u32 = 12;
/// Copies are looked for within pieces of so many bytes, so that each is near enough.
const PIECE: usize = FAR_LONG + 1;
/// Shorter copies are not looked for.
const LEAST: usize = 4;
/// The search goes a byte farther at each step for so many bytes in vain.
const VAIN_LOG: usize = 5;

/// So many literals are copied in one piece.
const FEW: usize = 16;

/// Where in the piece four bytes with a hash were last, or its beginning.
pub(super) struct Table(Box<[u16; 1 << BITS]>);

impl Default for Table {
    fn default() -> Table {
        Table(Box::new([0; 1 << BITS]))
    }
}

impl Table {
    /// Where four bytes of this hash may have been last, before `at`, which is remembered.
    #[inline]
    fn replace(&mut self, four: u32, at: usize) -> usize {
        let hash = (four.wrapping_mul(0x9E37_79B1) >> (32 - BITS)) as usize;
        usize::from(std::mem::replace(&mut self.0[hash], at as u16))
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

    /// Two bytes, the lower one first.
    #[inline]
    fn two(&mut self, bytes: usize) -> Option<()> {
        *self.dst.get_mut(self.at..)?.first_chunk_mut()? = (bytes as u16).to_le_bytes();
        self.at += 2;
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

    /// The first `count` literals of `src`, which follow an instruction or begin the stream.
    #[inline]
    fn literals(&mut self, src: &[u8], count: usize) -> Option<()> {
        match (count, self.count_at) {
            (0, _) => return Some(()),
            (few @ 1..=3, Some(at)) => self.dst[at] |= few as u8,
            (some @ 1..=238, None) => self.byte(17 + some)?,
            (many, _) => self.with_length(0, many - 3, 15)?,
        }
        let to = self.dst.get_mut(self.at..)?;
        self.at += count;
        // A few are copied sooner with what is behind them than counted out: it is written over, or is behind the end.
        if count <= FEW
            && let (Some(few), Some(to)) = (src.first_chunk::<FEW>(), to.first_chunk_mut::<FEW>())
        {
            *to = *few;
            return Some(());
        }
        to.get_mut(..count)?.copy_from_slice(&src[..count]);
        Some(())
    }

    /// A copy of `count` bytes, at least [`LEAST`], from `distance` back.
    #[inline]
    fn copy(&mut self, distance: usize, count: usize) -> Option<()> {
        if count <= 8 && distance <= FAR_SHORT {
            let far = distance - 1;
            self.two((count - 1) << 5 | (far & 7) << 2 | far >> 3 << 8)?;
        } else {
            let far = if distance <= FAR_MIDDLE {
                self.with_length(32, count - 2, 31)?;
                distance - 1
            } else {
                let far = distance - BEYOND;
                self.with_length(16 | (far >> 11 & 8), count - 2, 7)?;
                far
            };
            self.two(far << 2)?;
        }
        self.count_at = Some(self.at - 2);
        Some(())
    }
}

/// Compresses `src` into the front of `dst`; `None` if it does not fit.
pub(super) fn compress(table: &mut Table, src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut out = Out { dst, at: 0, count_at: None };
    let mut done = 0;
    for begin in (0..src.len()).step_by(PIECE) {
        let piece = &src[begin..src.len().min(begin + PIECE)];
        table.0.fill(0);
        let mut at = 1;
        while at + LEAST <= piece.len() {
            let now = four(piece, at);
            let place = table.replace(now, at);
            if four(piece, place) != now {
                at += 1 + ((begin + at - done) >> VAIN_LOG);
                continue;
            }
            let count = LEAST + same(piece, place + LEAST, at + LEAST);
            out.literals(&src[done..], begin + at - done)?;
            out.copy(at - place, count)?;
            at += count;
            done = begin + at;
        }
    }
    out.literals(&src[done..], src.len() - done)?;
    out.byte(0x11)?;
    out.byte(0)?;
    out.byte(0)?;
    Some(out.at)
}
