//! What a program writes: a page of a version is the same wherever it is made.

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// The page of `version`: zeros for 0 and every ninth, else noise, a repeated word, or something
/// that compresses.
pub fn page(version: u64) -> Box<[u8]> {
    let mut bytes = vec![0u8; PAGE].into_boxed_slice();
    let mut state = version.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = bytes.chunks_exact_mut(8);
    match version % 9 {
        0 => {}
        1 => words.for_each(|word| word.copy_from_slice(&version.to_ne_bytes())),
        2 => words.for_each(|word| word.copy_from_slice(&random().to_ne_bytes())),
        _ => {
            for (i, word) in words.enumerate() {
                let value = if i % 16 < 3 { random() % 5000 } else { version };
                word.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
    bytes
}
