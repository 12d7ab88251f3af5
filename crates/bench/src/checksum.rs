//! Checksums that the scripted programs compute over their own data: CRC-32 (IEEE, what Python's
//! `zlib.crc32` gives) and FNV-1a over 32-bit words (a few lines of JavaScript).

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
}

static CRC_TABLE: [u32; 256] = crc_table();

/// CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |crc: u32, &byte| (crc >> 8) ^ CRC_TABLE[usize::from((crc as u8) ^ byte)])
}

/// FNV-1a over the little-endian 32-bit words of `bytes`; a remainder below four bytes is left out.
pub fn fnv1a_words(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(4).fold(0x811c_9dc5, |hash: u32, word| {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        (hash ^ word).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
        assert_eq!(fnv1a_words(b""), 0x811c_9dc5);
        assert_eq!(fnv1a_words(b"abcd"), (0x811c_9dc5u32 ^ 0x6463_6261).wrapping_mul(0x0100_0193));
        assert_ne!(fnv1a_words(b"abcdefgh"), fnv1a_words(b"abcdefgi"));
    }
}
