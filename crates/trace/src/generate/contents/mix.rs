//! How much of what.

use clew_core::Seeded;

use super::Owner;
use crate::generate::profile::{Profile, Taste};

/// A kind of data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // each is described where it is made
pub enum Kind {
    Zero,
    Same,
    Sparse,
    Integers,
    Floats,
    Bitmap,
    Media,
    Pointers,
    Objects,
    HashTable,
    Code,
    Strings,
    Utf16,
    Json,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 14] = [
        Kind::Zero,
        Kind::Same,
        Kind::Sparse,
        Kind::Integers,
        Kind::Floats,
        Kind::Bitmap,
        Kind::Media,
        Kind::Pointers,
        Kind::Objects,
        Kind::HashTable,
        Kind::Code,
        Kind::Strings,
        Kind::Utf16,
        Kind::Json,
    ];
}

/// Shares of kinds.
#[derive(Clone, Debug)]
pub struct Mix {
    shares: [f64; 14],
}

/// Shares of the kinds in anonymous memory, without pages of zeros: fitted, by least squares over all
/// codecs and chunk sizes, to pages of real processes (`data/process-pages.tsv`), with no kind below
/// 3 % but one.
#[rustfmt::skip]
const HEAP: [f64; 14] = [
    // zero, same, sparse, integers, floats, bitmap, media
    0.0, 0.02, 0.077, 0.039, 0.044, 0.039, 0.029,
    // pointers, objects, hash tables, code, strings, UTF-16, JSON
    0.319, 0.147, 0.029, 0.029, 0.059, 0.029, 0.137,
];
/// Of files: compressed media for the most part, code, text (ezswap III-A, IV-C).
const FILES: [f64; 14] =
    [0.02, 0.0, 0.02, 0.01, 0.01, 0.02, 0.66, 0.01, 0.02, 0.01, 0.14, 0.04, 0.02, 0.02];

impl Mix {
    /// What `owner` holds.
    pub fn of(profile: &Profile, owner: Owner) -> Mix {
        let (mut shares, zero_share) = match owner {
            Owner::System => (HEAP, profile.zero_share),
            Owner::File(_) => (FILES, FILES[0]),
            Owner::App(number) => {
                let taste = taste(profile.apps[number].taste);
                (std::array::from_fn(|kind| HEAP[kind] * taste[kind]), profile.zero_share)
            }
        };
        shares[0] = 0.0;
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share *= (1.0 - zero_share) / sum);
        shares[0] = zero_share;
        Mix { shares }
    }

    /// The kind of an arena of the owner of this number. Whatever part of the arenas and owners is
    /// looked at, it has its share of each: multiples of the golden ratio, and of its sister for
    /// three dimensions, cover the unit interval evenly.
    pub fn kind(&self, seed: u64, owner: u64, arena: u64) -> Kind {
        let begin = Seeded::of(seed, &[13]).unit() + (owner % 1024) as f64 * 0.754_877_666_246_693;
        let mut place = (begin + arena as f64 * 0.618_033_988_749_895).fract();
        for (kind, share) in Kind::ALL.into_iter().zip(self.shares) {
            if place < share {
                return kind;
            }
            place -= share;
        }
        Kind::Objects
    }
}

/// How much more of each kind than the mean.
fn taste(taste: Taste) -> [f64; 14] {
    //   zero same spar  int  flt  bmp  med  ptr  obj hash code  str  u16  json
    match taste {
        Taste::Feed => [1.0, 1.0, 1.0, 0.9, 0.6, 1.1, 0.9, 1.0, 1.2, 1.2, 0.9, 1.3, 1.3, 1.4],
        Taste::Video => [1.0, 1.0, 1.0, 1.0, 0.8, 1.5, 1.4, 0.9, 0.9, 0.9, 1.0, 0.8, 0.8, 0.8],
        Taste::Browser => [1.0, 1.0, 0.9, 0.9, 0.6, 0.7, 0.7, 1.2, 1.2, 1.1, 1.2, 1.2, 1.4, 1.2],
        Taste::Game => [1.0, 1.0, 1.1, 1.1, 1.5, 1.2, 1.2, 0.9, 0.8, 0.9, 1.0, 0.8, 0.7, 0.7],
        Taste::Map => [1.0, 1.0, 1.0, 1.1, 1.6, 1.1, 1.0, 1.0, 0.9, 1.0, 0.9, 0.9, 0.8, 0.9],
    }
}
