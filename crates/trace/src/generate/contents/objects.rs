//! What points at things: arrays of pointers, objects with headers, tables, code.

use clew_core::Seeded;

use super::text::Vocabulary;

/// An address in one of a few regions of an app's heap.
fn pointer(subject: u64, random: &mut Seeded) -> u64 {
    let region = subject.wrapping_add(random.below(3)) % 7;
    0x7f40_0000_0000 + (region << 26) + (random.below(1 << 17) << 4)
}

/// Arrays of references: many are the same, or nothing.
pub fn pointers(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
    let base = subject.below(7);
    let mut lately = [0u64; 16];
    for slot in &mut lately {
        *slot = pointer(base, subject);
    }
    for bytes in page.chunks_exact_mut(8) {
        let word = match random.below(8) {
            0 => 0,
            1..=3 => lately[random.below(16) as usize],
            _ => {
                let new = pointer(base, random);
                lately[random.below(16) as usize] = new;
                new
            }
        };
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Objects of a few classes: a header, references, small numbers, now and then a short string.
pub fn objects(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded, words: &Vocabulary) {
    let base = subject.below(7);
    // A class: its header, and what its fields are.
    let classes: [(u64, u64, usize); 6] = std::array::from_fn(|_| {
        let address = 0x7f40_0000_0000 + (subject.below(1 << 12) << 6);
        (address, subject.draw(), 3 + subject.below(8) as usize)
    });
    let shared: [u64; 24] = std::array::from_fn(|_| pointer(base, subject));
    let mut at = 0;
    while at < page.len() {
        let skewed = random.unit();
        let (class, fields, count) = classes[(skewed * skewed * 6.0) as usize];
        let mut put = |word: u64, page: &mut [u8]| {
            if at + 8 <= page.len() {
                page[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            at += 8;
        };
        put(class, page);
        put(1 + (count as u64) << 8, page);
        for field in 0..count {
            let word = match fields >> (4 * field) & 15 {
                0..=2 => 0,
                3..=5 => random.below(32),
                6 => 1,
                7..=9 => shared[random.below(24) as usize],
                10..=12 => pointer(base, random),
                13 => random.below(1 << 16) << 32 | random.below(1 << 10),
                14 => u64::from_le_bytes(words.eight(random)),
                _ => random.draw() & 0xffff_ffff,
            };
            put(word, page);
        }
    }
}

/// A hash table: hashes, keys, values; a third of the slots is empty.
pub fn hash_table(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
    let base = subject.below(7);
    let values = 1 << (2 + subject.below(8));
    for slot in page.chunks_mut(24) {
        let mut words = [0u64; 3];
        if random.below(3) > 0 {
            words = [random.draw() & 0xffff_ffff, pointer(base, random), random.below(values)];
        }
        for (bytes, word) in slot.chunks_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
    }
}

/// Instructions of 4 bytes: few operations, few registers, repeated sequences, rare constants.
pub fn code(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
    let mut common = [0u32; 48];
    for slot in &mut common {
        let operation = subject.below(24) as u32 * 0x0523_0000;
        *slot = operation | (subject.below(1 << 10) as u32);
    }
    let mut at = 0;
    while at < page.len() {
        let repeat = 16 + random.below(64) as usize;
        if at > 256 && random.below(6) == 0 {
            let from = random.below((at - repeat.min(at)) as u64 / 4 + 1) as usize * 4;
            let length = (repeat / 4 * 4).min(page.len() - at).min(at - from);
            page.copy_within(from..from + length, at);
            at += length;
            continue;
        }
        let skewed = random.unit();
        let instruction = match random.below(8) {
            0 => common[0] ^ (random.below(1 << 16) as u32),
            1..=2 => common[(skewed * 48.0) as usize] ^ (random.below(32) as u32) << 5,
            _ => common[(skewed * skewed * 48.0) as usize],
        };
        let end = (at + 4).min(page.len());
        page[at..end].copy_from_slice(&instruction.to_le_bytes()[..end - at]);
        at += 4;
    }
}
