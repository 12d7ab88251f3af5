//! What pages hold: kinds of data that real heaps are made of, mixed so that codecs find in them
//! what they find in pages of real processes.
//!
//! A page is a function of the seed, whose it is, which it is, and how often it was written.
//! Neighbouring pages (an *arena* of 128 KiB) hold the same kind, as allocators and collectors put
//! objects of a kind together.

mod binary;
mod mix;
mod objects;
mod text;

use clew_core::Seeded;

use super::profile::Profile;
pub use mix::{Kind, Mix};
use text::Vocabulary;

/// Bytes of neighbouring pages that hold data of one kind.
const ARENA_BYTES: u64 = 128 << 10;
/// Bytes that a write changes, at the least: a cache line.
const LINE: usize = 64;
/// Lines of 64 that a write changes.
const LINES_WRITTEN: u64 = 5;

/// Whose a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Anonymous memory of the app of this number.
    App(usize),
    /// Services that apps share.
    System,
    /// Files of the app of this number.
    File(usize),
}

impl Owner {
    fn number(self) -> u64 {
        match self {
            Owner::App(number) => number as u64 * 2,
            Owner::File(number) => number as u64 * 2 + 1,
            Owner::System => u64::MAX,
        }
    }
}

/// Makes pages.
pub struct Contents {
    profile: &'static Profile,
    seed: u64,
    vocabulary: Vocabulary,
    mixes: Vec<(Owner, Mix)>,
    page: Vec<u8>,
    other: Vec<u8>,
}

impl Contents {
    /// The contents of `profile`'s apps.
    pub fn new(profile: &'static Profile, seed: u64) -> Contents {
        let page = vec![0; profile.page_bytes as usize];
        Contents {
            profile,
            seed,
            vocabulary: Vocabulary::new(seed),
            mixes: Vec::new(),
            other: page.clone(),
            page,
        }
    }

    /// What page `number` of `owner` holds after `version` writes.
    pub fn page(&mut self, owner: Owner, number: u64, version: u16) -> &[u8] {
        let of = owner.number();
        let arena = number * self.page.len() as u64 / ARENA_BYTES;
        let seed = self.seed;
        let kind = self.mix(owner).kind(seed, of, arena);
        // What an arena holds has something in common.
        let mut subject = Seeded::of(self.seed, &[10, of, arena]);
        let mut random = Seeded::of(self.seed, &[11, of, number]);
        let mut page = std::mem::take(&mut self.page);
        self.fill(kind, &mut page, &mut subject.clone(), &mut random);
        if version > 0 && !matches!(kind, Kind::Zero | Kind::Media) {
            let mut random = Seeded::of(self.seed, &[12, of, number, u64::from(version)]);
            let mut other = std::mem::take(&mut self.other);
            self.fill(kind, &mut other, &mut subject, &mut random);
            let lines = (page.len() / LINE) as u64;
            for _ in 0..=random.below(2 * LINES_WRITTEN * lines / 64) {
                let at = random.below(lines) as usize * LINE;
                page[at..at + LINE].copy_from_slice(&other[at..at + LINE]);
            }
            self.other = other;
        } else if version > 0 {
            // A page of zeros that was written holds something; media were replaced.
            let mut random = Seeded::of(self.seed, &[12, of, number, u64::from(version)]);
            let kind = if kind == Kind::Zero { Kind::Sparse } else { kind };
            self.fill(kind, &mut page, &mut subject, &mut random);
        }
        self.page = page;
        &self.page
    }

    fn mix(&mut self, owner: Owner) -> &Mix {
        let at = match self.mixes.iter().position(|(of, _)| *of == owner) {
            Some(at) => at,
            None => {
                self.mixes.push((owner, Mix::of(self.profile, owner)));
                self.mixes.len() - 1
            }
        };
        &self.mixes[at].1
    }

    fn fill(&self, kind: Kind, page: &mut [u8], subject: &mut Seeded, random: &mut Seeded) {
        match kind {
            Kind::Zero => page.fill(0),
            Kind::Same => binary::same(page, subject),
            Kind::Sparse => binary::sparse(page, random),
            Kind::Integers => binary::integers(page, subject, random),
            Kind::Floats => binary::floats(page, subject, random),
            Kind::Bitmap => binary::bitmap(page, subject, random),
            Kind::Media => binary::media(page, random),
            Kind::Pointers => objects::pointers(page, subject, random),
            Kind::Objects => objects::objects(page, subject, random, &self.vocabulary),
            Kind::HashTable => objects::hash_table(page, subject, random),
            Kind::Code => objects::code(page, subject, random),
            Kind::Strings => text::strings(page, subject, random, &self.vocabulary),
            Kind::Utf16 => text::utf16(page, subject, random, &self.vocabulary),
            Kind::Json => text::json(page, subject, random, &self.vocabulary),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(kind: Kind, number: u64) -> Vec<u8> {
        let contents = Contents::new(Profile::ALL[0], 5);
        let mut page = vec![0xEE; 4096];
        let (mut subject, mut random) = (Seeded::of(1, &[number / 32]), Seeded::of(2, &[number]));
        contents.fill(kind, &mut page, &mut subject, &mut random);
        page
    }

    #[test]
    fn a_page_is_a_function_of_owner_number_and_version() {
        let mut one = Contents::new(Profile::ALL[0], 5);
        let mut two = Contents::new(Profile::ALL[0], 5);
        let mut other = Contents::new(Profile::ALL[0], 6);
        let mut different = 0;
        for number in (0..3000).rev().step_by(7) {
            let page = one.page(Owner::App(1), number, 3).to_vec();
            one.page(Owner::File(0), number, 0);
            assert_eq!(one.page(Owner::App(1), number, 3), page);
            assert_eq!(two.page(Owner::App(1), number, 3), page);
            different += usize::from(other.page(Owner::App(1), number, 3) != page);
        }
        assert!(different > 300, "{different} pages of 428 depend on the seed");
    }

    #[test]
    fn writes_change_a_part_of_a_page() {
        let mut contents = Contents::new(Profile::ALL[0], 5);
        let (mut changed, mut pages) = (0, 0);
        for number in 0..500 {
            let before = contents.page(Owner::App(2), number, 1).to_vec();
            let after = contents.page(Owner::App(2), number, 2);
            let lines = before.chunks(LINE).zip(after.chunks(LINE)).filter(|(a, b)| a != b).count();
            changed += lines;
            pages += usize::from(lines > 0);
        }
        assert!(pages > 400, "{pages} of 500 pages changed");
        assert!(changed < 500 * 64 / 2, "{changed} lines changed");
    }

    #[test]
    fn every_kind_fills_the_page_and_differs_from_page_to_page() {
        for kind in Kind::ALL {
            let (one, two) = (made(kind, 1), made(kind, 2));
            assert!(!one.windows(64).any(|bytes| bytes == [0xEE; 64]), "{kind:?} left a hole");
            let is_constant = matches!(kind, Kind::Zero | Kind::Same);
            assert_eq!(one == two, is_constant, "{kind:?}");
        }
    }

    #[test]
    fn kinds_are_what_they_are_called() {
        let text = String::from_utf8(made(Kind::Json, 3)).expect("JSON is ASCII");
        assert!(text.contains("\":"), "{text}");
        assert!(made(Kind::Zero, 3).iter().all(|byte| *byte == 0));
        let same = made(Kind::Same, 3);
        assert!(same.chunks(8).all(|word| *word == same[..8]));
        let utf16 = made(Kind::Utf16, 3);
        let high_bytes = utf16.iter().skip(1).step_by(2).filter(|byte| **byte == 0).count();
        assert!(high_bytes > 1500, "{high_bytes} characters of 2048 are Latin");
        let media = made(Kind::Media, 3);
        let mut counts = [0u32; 256];
        media.iter().for_each(|byte| counts[*byte as usize] += 1);
        assert!(counts.iter().all(|count| *count < 50), "media are not of high entropy");
    }
}
