//! Numbers, pictures, and what has no structure left.

use clew_core::Seeded;

/// One word over and over: freed and poisoned memory, cleared tables.
pub fn same(page: &mut [u8], subject: &mut Seeded) {
    let word = match subject.below(3) {
        0 => u64::MAX,
        1 => 0x0101_0101_0101_0101 * subject.below(256),
        _ => subject.draw(),
    };
    for bytes in page.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
}

/// Zeros with a few records between: fragmented arenas, half-used slabs.
pub fn sparse(page: &mut [u8], random: &mut Seeded) {
    page.fill(0);
    let records = 3 + random.below(12);
    for _ in 0..records {
        let words = 1 + random.below(6) as usize;
        let at = random.below((page.len() / 8 - words) as u64) as usize * 8;
        for bytes in page[at..at + 8 * words].chunks_exact_mut(8) {
            let word = match random.below(3) {
                0 => random.below(4096),
                1 => 0x7f00_0000_0000 | random.below(1 << 22) << 4,
                _ => random.draw(),
            };
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

/// Counters, indexes, sizes: small numbers in 4 or 8 bytes.
pub fn integers(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
    let wide = subject.below(2) == 0;
    let bound = 1 << (6 + subject.below(11));
    let rising = subject.below(3) == 0;
    let mut last = random.below(1 << 20);
    let size = if wide { 8 } else { 4 };
    for bytes in page.chunks_exact_mut(size) {
        let number = match (rising, random.below(4)) {
            (true, _) => {
                last += 1 + random.below(4);
                last
            }
            (false, 0..=1) => 0,
            (false, 2) => random.below(4),
            (false, _) => random.below(bound),
        };
        bytes.copy_from_slice(&number.to_le_bytes()[..size]);
    }
}

/// Coordinates and weights: floating point numbers near each other.
pub fn floats(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
    let double = subject.below(2) == 0;
    let centre = 1000.0 * subject.unit();
    let step = 10f64.powi(-(subject.below(3) as i32));
    let mut last = centre + 10.0 * random.unit();
    // Vertices share coordinates; and results are often 0 or 1.
    let mut lately = [0.0, 1.0, last, centre];
    let size = if double { 8 } else { 4 };
    for bytes in page.chunks_exact_mut(size) {
        let number = if random.below(5) < 2 {
            lately[random.below(4) as usize]
        } else {
            last += step * (random.unit() - 0.5);
            // Most numbers came from some text or grid, and are round in binary.
            last = (last * 1024.0).round() / 1024.0;
            lately[2 + random.below(2) as usize] = last;
            last
        };
        match double {
            true => bytes.copy_from_slice(&number.to_le_bytes()),
            false => bytes.copy_from_slice(&(number as f32).to_le_bytes()),
        }
    }
}

/// A piece of a decoded picture: four bytes a pixel, areas of one colour, slopes, and noise.
pub fn bitmap(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
    let noise = subject.below(3).saturating_sub(1);
    let mut colour = [0, 1, 2].map(|_| subject.below(256) as u8);
    let mut left = 0;
    let mut slope = [0i8; 3];
    for pixel in page.chunks_exact_mut(4) {
        if left == 0 {
            left = 4 + random.below(120);
            if random.below(3) == 0 {
                colour = [0, 1, 2].map(|_| random.below(256) as u8);
            }
            slope = match random.below(3) {
                0 => [0; 3],
                1 => [1; 3],
                _ => [0, 1, 2].map(|_| random.below(3) as i8 - 1),
            };
        }
        left -= 1;
        for channel in 0..3 {
            if left.is_multiple_of(4) {
                colour[channel] = colour[channel].wrapping_add_signed(slope[channel]);
            }
            let more = if noise == 0 { 0 } else { random.below(noise + 1) as u8 };
            pixel[channel] = colour[channel].wrapping_add(more);
        }
        pixel[3] = 255;
    }
}

/// Compressed or encrypted: no structure is left.
pub fn media(page: &mut [u8], random: &mut Seeded) {
    for bytes in page.chunks_exact_mut(8) {
        bytes.copy_from_slice(&random.draw().to_le_bytes());
    }
}
