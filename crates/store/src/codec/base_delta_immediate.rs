//! Base-delta-immediate: lines of 64 bytes whose values lie near one base, or near zero.
//!
//! Source: Pekhimenko and others, "Base-delta-immediate compression" (PACT 2012), which Ariadne 4.5 names as one
//! of its codecs. There it compresses lines of a cache; here a chunk is a row of such lines. Of each line's eight
//! encodings the smallest is taken:
//!
//! | form | what is stored | bytes |
//! |---|---|---|
//! | 0 | nothing: zeros | 0 |
//! | 1 | one value of 8 bytes, which the line repeats | 8 |
//! | 2 to 7 | a base of 8, 4 or 2 bytes, one bit a value (near the base or near zero), one short difference a value | 17 to 41 |
//! | 8 | the line | 64 |
//!
//! A chunk is pairs of lines: one byte with both forms, the first in its lower half, then what is stored of
//! each. All numbers are little-endian.

use super::{Codec, DecodeError, decode_error};

/// Bytes of a line.
const LINE: usize = 64;

/// Base and difference, bytes, of forms 2 to 7, by what a line takes.
const FORMS: [(usize, usize); 6] = [(8, 1), (4, 1), (8, 2), (4, 2), (2, 1), (8, 4)];
const ZEROS: u8 = 0;
const REPEATED: u8 = 1;
const FIRST: u8 = 2;
const AS_IT_IS: u8 = FIRST + FORMS.len() as u8;

/// The codec.
pub struct BaseDeltaImmediate;

/// The signed number in the first bytes.
#[inline]
fn number(bytes: &[u8]) -> i64 {
    match *bytes {
        [a] => i64::from(a as i8),
        [a, b] => i64::from(i16::from_le_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_le_bytes([a, b, c, d])),
        _ => bytes.try_into().map_or(0, i64::from_le_bytes),
    }
}

/// What a line of a base of `base` bytes and differences of `delta` takes.
const fn size(base: usize, delta: usize) -> usize {
    base + LINE / base / 8 + LINE / base * delta
}

/// Whether a number has at most so many bytes.
#[inline]
fn fits(number: i64, bytes: usize) -> bool {
    let unused = 64 - 8 * bytes as u32;
    number << unused >> unused == number
}

/// `a - b` in numbers of so many bytes, which wrap around.
#[inline]
fn difference(a: i64, b: i64, bytes: usize) -> i64 {
    let unused = 64 - 8 * bytes as u32;
    a.wrapping_sub(b) << unused >> unused
}

fn compress_line(line: &[u8; LINE], base: usize, delta: usize, out: &mut [u8]) -> bool {
    let mut base_value = None;
    let (mut mask, deltas_at) = (0u64, base + LINE / base / 8);
    for (i, value) in line.chunks_exact(base).enumerate() {
        let value = number(value);
        let mut short = value;
        if !fits(value, delta) {
            short = difference(value, *base_value.get_or_insert(value), base);
            if !fits(short, delta) {
                return false;
            }
            mask |= 1 << i;
        }
        let at = deltas_at + i * delta;
        out[at..at + delta].copy_from_slice(&short.to_le_bytes()[..delta]);
    }
    out[..base].copy_from_slice(&base_value.unwrap_or(0).to_le_bytes()[..base]);
    out[base..deltas_at].copy_from_slice(&mask.to_le_bytes()[..LINE / base / 8]);
    true
}

fn decompress_line(stored: &[u8], base: usize, delta: usize, line: &mut [u8; LINE]) {
    let (base_value, rest) = stored.split_at(base);
    let (mask, deltas) = rest.split_at(LINE / base / 8);
    let base_value = number(base_value);
    let values = line.chunks_exact_mut(base).zip(deltas.chunks_exact(delta));
    for (i, (value, short)) in values.enumerate() {
        let from = if mask[i / 8] >> (i % 8) & 1 == 1 { base_value } else { 0 };
        value.copy_from_slice(&from.wrapping_add(number(short)).to_le_bytes()[..base]);
    }
}

/// Writes the smallest form of a line; which it is and what it takes.
fn smallest(line: &[u8; LINE], out: &mut [u8; LINE]) -> (u8, usize) {
    let (words, _) = line.as_chunks::<8>();
    if words.iter().all(|word| *word == words[0]) {
        out[..8].copy_from_slice(&words[0]);
        return if words[0] == [0; 8] { (ZEROS, 0) } else { (REPEATED, 8) };
    }
    for (form, (base, delta)) in (FIRST..).zip(FORMS) {
        if compress_line(line, base, delta, out) {
            return (form, size(base, delta));
        }
    }
    *out = *line;
    (AS_IT_IS, LINE)
}

/// Restores the line that `form` says, from the beginning of `stored`; what it took of it. `None` if there is no
/// such form, or too little of it.
fn restore(form: u8, stored: &[u8], line: &mut [u8; LINE]) -> Option<usize> {
    match form {
        ZEROS => {
            line.fill(0);
            Some(0)
        }
        REPEATED => {
            let word: [u8; 8] = *stored.first_chunk()?;
            line.as_chunks_mut::<8>().0.fill(word);
            Some(8)
        }
        AS_IT_IS => {
            *line = *stored.first_chunk()?;
            Some(LINE)
        }
        form => {
            let (base, delta) = *FORMS.get(usize::from(form - FIRST))?;
            decompress_line(stored.get(..size(base, delta))?, base, delta, line);
            Some(size(base, delta))
        }
    }
}

impl BaseDeltaImmediate {
    /// The first bytes of a chunk; what is left of `src` behind its lines.
    fn lines<'a>(mut src: &'a [u8], dst: &mut [u8]) -> Option<&'a [u8]> {
        let mut line = [0; LINE];
        for pair in dst.chunks_mut(2 * LINE) {
            let (forms, rest) = src.split_first()?;
            src = rest;
            for (of, form) in pair.chunks_mut(LINE).zip([forms & 0xf, forms >> 4]) {
                src = &src[restore(form, src, &mut line)?..];
                of.copy_from_slice(&line[..of.len()]);
            }
        }
        Some(src)
    }
}

impl Codec for BaseDeltaImmediate {
    const NAME: &'static str = "base-delta-immediate";

    fn compress(&mut self, src: &[u8], dst: &mut [u8]) -> Option<usize> {
        let (lines, []) = src.as_chunks::<LINE>() else { return None };
        let mut at = 0;
        let mut stored = [0; LINE];
        for pair in lines.chunks(2) {
            let forms_at = at;
            at += 1;
            let mut forms = 0;
            for (i, line) in pair.iter().enumerate() {
                let (form, len) = smallest(line, &mut stored);
                dst.get_mut(at..at + len)?.copy_from_slice(&stored[..len]);
                at += len;
                forms |= form << (4 * i);
            }
            *dst.get_mut(forms_at)? = forms;
        }
        Some(at)
    }

    fn decompress(&mut self, src: &[u8], dst: &mut [u8]) -> Result<(), DecodeError> {
        match (Self::lines(src, dst), dst.len().is_multiple_of(LINE)) {
            (Some([]), true) => Ok(()),
            _ => Err(decode_error::<Self>(src, dst)),
        }
    }

    fn decompress_prefix(&mut self, src: &[u8], dst: &mut [u8]) -> Option<Result<(), DecodeError>> {
        let read = Self::lines(src, dst);
        Some(read.map(drop).ok_or_else(|| decode_error::<Self>(src, dst)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> [u8; LINE] {
        let bytes: Vec<u8> = values.into_iter().flatten().collect();
        bytes.try_into().expect("64 bytes")
    }

    /// The sizes are those of the paper's table 2, with the bits that tell both bases apart.
    #[test]
    fn each_form_takes_what_it_should_and_comes_back() {
        let pointer = |i: u64, step: u64| (0x7f00_1234_5600 + i * step).to_le_bytes();
        let cases = [
            (line_of((0..8u64).map(|_| [0; 8])), ZEROS, 0),
            (line_of((0..8u64).map(|_| 0x1234_5678_9abc_u64.to_le_bytes())), REPEATED, 8),
            (line_of((0..8u64).map(|i| pointer(i, 8))), 2, 17),
            (line_of((0..16u32).map(|i| (0x4000_0000 + i).to_le_bytes())), 3, 22),
            (line_of((0..8u64).map(|i| pointer(i, 2000))), 4, 25),
            // Near zero, but for one.
            (
                line_of((0..8u64).map(|i| if i == 5 { pointer(0, 0) } else { i.to_le_bytes() })),
                2,
                17,
            ),
            (line_of((0..16u32).map(|i| (0x4000_0000 + 999 * i).to_le_bytes())), 5, 38),
            (line_of((0..32u16).map(|i| (0x4000 + 3 * i).to_le_bytes())), 6, 38),
            (line_of((0..8u64).map(|i| pointer(i, 200_000_000))), 7, 41),
            (line_of((0..64u8).map(|i| [i.wrapping_mul(151) ^ 0x5a])), AS_IT_IS, 64),
        ];
        for (line, form, len) in cases {
            let mut out = [0; LINE];
            assert_eq!(smallest(&line, &mut out), (form, len), "{line:x?}");
            let mut back = [1; LINE];
            assert_eq!(restore(form, &out[..len], &mut back), Some(len));
            assert_eq!(back, line);
            for short in 0..len {
                assert_eq!(restore(form, &out[..short], &mut back), None);
            }
        }
    }

    #[test]
    fn differences_wrap_around() {
        let line = line_of(
            [i64::MIN, i64::MAX, i64::MIN + 1, i64::MAX - 1]
                .map(i64::to_le_bytes)
                .into_iter()
                .cycle()
                .take(8),
        );
        let mut out = [0; LINE];
        assert_eq!(smallest(&line, &mut out), (2, 17));
        let mut back = [0; LINE];
        restore(2, &out, &mut back);
        assert_eq!(back, line);
    }

    #[test]
    fn what_is_no_row_of_lines_is_not_compressed() {
        let mut dst = [0; 256];
        assert_eq!(BaseDeltaImmediate.compress(&[0; 100], &mut dst), None);
        assert_eq!(BaseDeltaImmediate.compress(&[0; 192], &mut dst), Some(2));
        assert_eq!(BaseDeltaImmediate.compress(&[0; 192], &mut dst[..1]), None);
    }
}
