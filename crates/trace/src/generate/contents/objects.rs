//! What points at things: arrays of pointers, objects with headers, tables, code.

use clew_core::Seeded;

use super::text::Vocabulary;

/// An address in one of a few regions of an app's heap.
fn pointer(subject: u64, random: &mut Seeded) -> u64 {
    let region = subject.wrapping_add(random.below(3)) % 7;
    0x7f40_0000_0000 + (region << 26) + (random.below(1 << 17) << 4)
}

/// Arrays of references: to what was allocated one after the other, to what many point at, or to
/// nothing.
pub fn pointers(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
    let base = subject.below(7);
    let shared: [u64; 12] = std::array::from_fn(|_| pointer(base, subject));
    let step = 16 << subject.below(4);
    let mut next = pointer(base, random);
    let mut left = 0;
    let mut what = 0;
    for bytes in page.chunks_exact_mut(8) {
        if left == 0 {
            left = 1 + random.below(12);
            what = random.below(8);
        }
        left -= 1;
        let word = match what {
            0..=1 => 0,
            2..=4 => shared[random.below(12) as usize],
            5 => shared[what as usize],
            _ => {
                next += step;
                next
            }
        };
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Objects of a few classes: each is like the others of its class but for a few fields, and points
/// at what was allocated next to it or at what many point at.
pub fn objects(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded, words: &Vocabulary) {
    let base = subject.below(7);
    let shared: [u64; 24] = std::array::from_fn(|_| pointer(base, subject));
    // A class: an object of it, and which of its fields differ.
    let classes: [([u64; 16], usize, u64); 12] = std::array::from_fn(|_| {
        let length = 4 + subject.below(12) as usize;
        let mut like = [0; 16];
        like[0] = 0x7f40_0000_0000 + (subject.below(1 << 12) << 6);
        like[1] = (1 + length as u64) << 8;
        for field in &mut like[2..] {
            *field = match subject.below(8) {
                0..=3 => 0,
                4 => subject.below(16),
                5 => u64::MAX,
                _ => shared[subject.below(24) as usize],
            };
        }
        (like, length, subject.draw() & subject.draw())
    });
    let mut next = pointer(base, random);
    let mut at = 0;
    while at < page.len() {
        let skewed = random.unit();
        let (mut object, length, differs) = classes[(skewed * skewed * 12.0) as usize];
        for (field, word) in object.iter_mut().enumerate().take(length).skip(2) {
            if differs >> field & 1 == 0 {
                continue;
            }
            *word = match (differs >> (3 * field) & 7, random.below(8)) {
                (_, 0) => 0,
                (0..=1, _) => random.below(32),
                (2..=3, _) => {
                    next += 16 * (1 + random.below(8));
                    next
                }
                (4..=5, _) => shared[random.below(24) as usize],
                (6, 1) => u64::from_le_bytes(words.eight(random)),
                _ => random.below(1 << 16),
            };
        }
        for word in &object[..length] {
            if at < page.len() {
                page[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            at += 8;
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
        let repeat = 16 + random.below(48) as usize;
        if at > 64 && random.below(6) == 0 {
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
