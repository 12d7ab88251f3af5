//! Shannon's entropy of the beginning of a page, in integer arithmetic.
//!
//! Source: ezswap III-B, equation 3 and figures 5 and 6: the first 512 bytes of a page tell how well all of it
//! compresses. Of n bytes of which c have a value, entropy is log2 n - (sum of c log2 c) / n, and the terms of
//! the sum come from a table. It is off by less than 1/1000 bit (`tests/selective_oracle.rs`).

/// What one bit is: entropies are in parts of it.
pub const BIT: u32 = 1 << 16;
/// Bytes that are looked at, at most.
pub const MOST_BYTES: usize = 512;

/// The binary logarithm of a number from 1 to 512, in 2^-24.
const fn log2(number: u64) -> u64 {
    let whole = number.ilog2();
    // From 1 up to 2, in 2^-31; squaring it gives the next digit of its logarithm.
    let mut rest = (number << 31) >> whole;
    let mut digits = whole as u64;
    let mut digit = 0;
    while digit < 24 {
        rest = (rest * rest) >> 31;
        digits <<= 1;
        if rest >= 1 << 32 {
            rest >>= 1;
            digits |= 1;
        }
        digit += 1;
    }
    digits
}

/// n log2 n, in 2^-16.
const TERMS: [u32; MOST_BYTES + 1] = {
    let mut terms = [0; MOST_BYTES + 1];
    let mut number = 1;
    while number <= MOST_BYTES {
        terms[number] = ((number as u64 * log2(number as u64) + (1 << 7)) >> 8) as u32;
        number += 1;
    }
    terms
};

/// Entropy of the first 512 bytes of `bytes`, or of fewer, in parts of a [`BIT`] a byte: from 0 to 8 bits. Of
/// nothing it is 0.
pub fn entropy(bytes: &[u8]) -> u32 {
    const LANES: usize = 4;
    let bytes = &bytes[..bytes.len().min(MOST_BYTES)];
    if bytes.is_empty() {
        return 0;
    }
    // Side by side, so that equal neighbours do not wait for each other. Each sees 128 bytes at most.
    let mut counts = [[0u8; 256]; LANES];
    let fours = bytes.chunks_exact(LANES);
    for (lane, byte) in fours.remainder().iter().enumerate() {
        counts[lane][usize::from(*byte)] += 1;
    }
    for four in fours {
        for lane in 0..LANES {
            counts[lane][usize::from(four[lane])] += 1;
        }
    }
    let [a, b, c, d] = &counts;
    let mut sum = 0;
    for value in 0..256 {
        let count =
            u16::from(a[value]) + u16::from(b[value]) + u16::from(c[value]) + u16::from(d[value]);
        sum += TERMS[usize::from(count)];
    }
    // Rounded terms of many values may be more than the whole of them, by next to nothing.
    TERMS[bytes.len()].saturating_sub(sum) / bytes.len() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_repeats_it_is_zero_and_of_all_values_eight_bits() {
        assert_eq!(entropy(&[]), 0);
        assert_eq!(entropy(&[7; 512]), 0);
        assert_eq!(entropy(&[7; 9]), 0);
        let all: Vec<u8> = (0..512).map(|at| at as u8).collect();
        assert_eq!(entropy(&all), 8 * BIT);
        let two: Vec<u8> = (0..512).map(|at| at as u8 % 2).collect();
        assert_eq!(entropy(&two), BIT);
        // Only the beginning counts.
        assert_eq!(entropy(&[two.clone(), all].concat()), BIT);
    }
}
