//! Reading a stream, whatever its bytes are.

use super::{BEYOND, FAR_SHORT};

/// How reading ended.
pub(super) struct End {
    /// What was wanted is all that the stream has.
    pub is_whole: bool,
}

/// The bytes of a stream that were not read yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    #[inline]
    fn byte(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(usize::from(*first))
    }

    #[inline]
    fn two(&mut self) -> Option<usize> {
        let (two, rest) = self.0.split_first_chunk::<2>()?;
        self.0 = rest;
        Some(usize::from(u16::from_le_bytes(*two)))
    }

    /// A length whose bits in the instruction are `bits`, of which `most` is the largest.
    #[inline]
    fn length(&mut self, bits: usize, most: usize) -> Option<usize> {
        if bits != 0 {
            return Some(bits);
        }
        let zeros = self.0.iter().take_while(|&&byte| byte == 0).count();
        self.0 = &self.0[zeros..];
        Some(most + zeros * 255 + self.byte()?)
    }
}

/// What was written so far.
struct Out<'a> {
    dst: &'a mut [u8],
    at: usize,
    /// Something did not fit.
    is_cut: bool,
}

impl Out<'_> {
    fn is_full(&self) -> bool {
        self.at == self.dst.len()
    }

    /// How many of `count` bytes there is room for.
    #[inline]
    fn room_for(&mut self, count: usize) -> usize {
        let room = self.dst.len() - self.at;
        self.is_cut |= count > room;
        count.min(room)
    }

    /// Literals, as many as there is room for; `None` if the stream has not that many.
    #[inline]
    fn literals(&mut self, rest: &mut Rest<'_>, count: usize) -> Option<()> {
        let (literals, after) = rest.0.split_at_checked(count)?;
        let count = self.room_for(count);
        self.dst[self.at..self.at + count].copy_from_slice(&literals[..count]);
        self.at += count;
        rest.0 = after;
        Some(())
    }

    /// A copy, as much of it as there is room for; `None` if it begins before the first byte.
    #[inline]
    fn copy(&mut self, distance: usize, count: usize) -> Option<()> {
        let from = self.at.checked_sub(distance)?;
        let count = self.room_for(count);
        if distance >= count {
            self.dst.copy_within(from..from + count, self.at);
        } else {
            // What is copied is written by the same copy, and doubles each time.
            let mut done = 0;
            while done < count {
                let some = (distance + done).min(count - done);
                self.dst.copy_within(from..from + some, self.at + done);
                done += some;
            }
        }
        self.at += count;
        Some(())
    }
}

/// Fills `dst` from the stream `src`. `None` if `src` is no stream, ends before `dst` is full, or goes on
/// behind its end.
pub(super) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<End> {
    let mut rest = Rest(src);
    let mut out = Out { dst, at: 0, is_cut: false };
    // Literals that came right before an instruction; 4 for that many and more.
    let mut before = 0;
    if let Some(&first) = src.first()
        && first > 17
    {
        rest.byte();
        let count = usize::from(first) - 17;
        out.literals(&mut rest, count)?;
        before = count.min(4);
    }
    loop {
        // More than was wanted is no error for who wants the first bytes only.
        let was_full = out.is_full();
        let code = rest.byte()?;
        let (distance, count, literals) = match code {
            0..16 if before == 0 => {
                let count = rest.length(code, 15)? + 3;
                if was_full {
                    return Some(End { is_whole: false });
                }
                out.literals(&mut rest, count)?;
                before = 4;
                continue;
            }
            0..16 => {
                let far = (rest.byte()? << 2) + (code >> 2);
                match before {
                    4 => (far + FAR_SHORT + 1, 3, code & 3),
                    _ => (far + 1, 2, code & 3),
                }
            }
            16..32 => {
                let count = rest.length(code & 7, 7)? + 2;
                let two = rest.two()?;
                let distance = BEYOND + ((code & 8) << 11) + (two >> 2);
                if distance == BEYOND {
                    let is_end = count == 3 && two == 0 && rest.0.is_empty() && was_full;
                    return is_end.then_some(End { is_whole: !out.is_cut });
                }
                (distance, count, two & 3)
            }
            32..64 => {
                let count = rest.length(code & 31, 31)? + 2;
                let two = rest.two()?;
                ((two >> 2) + 1, count, two & 3)
            }
            _ => {
                let distance = (rest.byte()? << 3) + ((code >> 2) & 7) + 1;
                (distance, (code >> 5) + 1, code & 3)
            }
        };
        if was_full {
            return Some(End { is_whole: false });
        }
        out.copy(distance, count)?;
        out.literals(&mut rest, literals)?;
        before = literals;
    }
}
