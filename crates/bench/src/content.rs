//! The data that the programs are filled with: seeded records as a small web service would hold
//! them (names, addresses, numbers, time stamps, free text, random tokens). Compressible as such
//! data is, about 2 to 3.5 times by LZ4, and never the same text twice.

use std::fmt::Write;
use std::sync::OnceLock;

use clew_core::Seeded;

const WORDS: usize = 6_000;
const PHRASES: usize = 1_500;

/// Words that can be pronounced, short ones first, and phrases that come again and again as they
/// do in logs, mails and source text.
struct Vocabulary {
    words: Vec<String>,
    phrases: Vec<String>,
}

fn vocabulary() -> &'static Vocabulary {
    static VOCABULARY: OnceLock<Vocabulary> = OnceLock::new();
    VOCABULARY.get_or_init(|| {
        let mut seeded = Seeded::of(0x0c1e_3a57, &[]);
        let onsets = ["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "st", "tr"];
        let vowels = ["a", "e", "i", "o", "u", "ea", "ou"];
        let mut words: Vec<String> = (0..WORDS)
            .map(|rank| {
                let syllables = 1 + rank * 3 / WORDS + seeded.below(2) as usize;
                let mut word = String::new();
                for _ in 0..syllables {
                    word += onsets[seeded.below(onsets.len() as u64) as usize];
                    word += vowels[seeded.below(vowels.len() as u64) as usize];
                }
                if seeded.below(3) == 0 {
                    word += ["n", "r", "s", "t"][seeded.below(4) as usize];
                }
                word
            })
            .collect();
        words.dedup();
        let phrases = (0..PHRASES)
            .map(|_| {
                let count = 4 + seeded.below(6) as usize;
                let chosen: Vec<&str> = (0..count).map(|_| common(&words, &mut seeded)).collect();
                chosen.join(" ")
            })
            .collect();
        Vocabulary { words, phrases }
    })
}

/// One of `items`, the first ones far more often (as words in a text are distributed).
fn common<'a>(items: &'a [String], seeded: &mut Seeded) -> &'a str {
    let u = seeded.unit();
    &items[(items.len() as f64 * u * u * u) as usize]
}

/// Appends `bytes` bytes of text: ASCII letters, digits, spaces, commas, colons and full stops. As
/// real texts do, it stays with the words and phrases of its subject, between lines of a log.
pub fn prose(seeded: &mut Seeded, bytes: usize, into: &mut String) {
    let vocabulary = vocabulary();
    let subject: [&str; 12] = std::array::from_fn(|_| common(&vocabulary.words, seeded));
    let sayings: [&str; 5] = std::array::from_fn(|_| common(&vocabulary.phrases, seeded));
    let mut clock = seeded.below(80_000);
    let end = into.len() + bytes;
    while into.len() < end {
        match seeded.below(16) {
            0..=2 => {
                clock += seeded.below(90);
                let (hour, minute, second) = (clock / 3600, clock / 60 % 60, clock % 60);
                let word = subject[seeded.below(4) as usize];
                let took = seeded.below(200);
                // Writing to a String does not fail.
                let _ = write!(
                    into,
                    "{hour:02}:{minute:02}:{second:02} info {word}: request done in {took} ms, \
                     status 200. "
                );
            }
            3..=7 => {
                into.push_str(sayings[seeded.below(5) as usize]);
                into.push_str(if seeded.below(4) == 0 { ". " } else { " " });
            }
            8..=12 => {
                into.push_str(subject[seeded.below(12) as usize]);
                into.push(' ');
            }
            _ => {
                into.push_str(common(&vocabulary.words, seeded));
                into.push_str(if seeded.below(6) == 0 { ", " } else { " " });
            }
        }
    }
    into.truncate(end);
}

/// One record.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub id: u32,
    pub version: u32,
    pub name: String,
    pub mail: String,
    pub city: String,
    pub active: bool,
    pub balance_cents: u32,
    pub scores: Vec<u32>,
    pub stamp: u64,
    pub token: String,
    pub note: String,
}

/// How large records are: their free text, and the number of their scores.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub note_bytes: (usize, usize),
    pub scores: (usize, usize),
}

impl Record {
    /// Record `id` of the data set `seed` after `version` updates. Its size is the same in all
    /// versions up to a few digits.
    pub fn of(seed: u64, id: u32, version: u32, shape: Shape) -> Record {
        let words = &vocabulary().words;
        let mut fixed = Seeded::of(seed, &[10, u64::from(id)]);
        let note_bytes = fixed.size(shape.note_bytes.0, shape.note_bytes.1);
        let count = fixed.size(shape.scores.0, shape.scores.1);
        let first = common(words, &mut fixed);
        let last = common(words, &mut fixed);
        let host = common(words, &mut fixed);
        let mut changing = Seeded::of(seed, &[11, u64::from(id), u64::from(version)]);
        let mut note = String::with_capacity(note_bytes + 80);
        prose(&mut changing, note_bytes, &mut note);
        let base = 100 + changing.below(900) as u32;
        Record {
            id,
            version,
            name: format!("{first} {last}"),
            mail: format!("{first}.{last}{}@{host}.example", id % 100),
            city: common(words, &mut fixed).to_string(),
            active: changing.below(4) != 0,
            balance_cents: changing.below(10_000_000) as u32,
            scores: (0..count).map(|_| base + changing.below(300) as u32).collect(),
            stamp: 1_700_000_000 + changing.below(90_000_000),
            token: format!("{:016x}", changing.draw()),
            note,
        }
    }

    /// The record as one line of JSON. Nothing in it needs escaping.
    pub fn json(&self) -> String {
        let mut text = String::with_capacity(self.note.len() + self.scores.len() * 5 + 260);
        // Writing to a String does not fail.
        let _ = write!(
            text,
            "{{\"id\":{},\"version\":{},\"name\":\"{}\",\"mail\":\"{}\",\"city\":\"{}\",\"active\":{},\
             \"balance_cents\":{},\"stamp\":{},\"token\":\"{}\",\"scores\":[",
            self.id,
            self.version,
            self.name,
            self.mail,
            self.city,
            self.active,
            self.balance_cents,
            self.stamp,
            self.token
        );
        for (position, score) in self.scores.iter().enumerate() {
            let _ = write!(text, "{}{score}", if position == 0 { "" } else { "," });
        }
        let _ = write!(text, "],\"note\":\"{}\"}}", self.note);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { note_bytes: (200, 2500), scores: (4, 30) };

    #[test]
    fn records_repeat_and_versions_differ() {
        let record = Record::of(1, 2, 3, SHAPE);
        assert_eq!(record, Record::of(1, 2, 3, SHAPE));
        let updated = Record::of(1, 2, 4, SHAPE);
        assert_ne!(record.note, updated.note);
        assert_eq!(record.note.len(), updated.note.len());
        assert_ne!(record.note, Record::of(2, 2, 3, SHAPE).note);
    }

    #[test]
    fn json_is_json() {
        let record = Record::of(1, 77, 0, SHAPE);
        let value: serde_json::Value = serde_json::from_str(&record.json()).expect("valid JSON");
        assert_eq!(value["id"], 77);
        assert_eq!(value["note"].as_str(), Some(record.note.as_str()));
        assert_eq!(value["scores"].as_array().map(Vec::len), Some(record.scores.len()));
        assert!(record.note.is_ascii() && !record.note.contains(['\'', '"', '\\', '\n']));
    }

    #[test]
    fn compresses_page_by_page_as_real_data_does() {
        let text: String = (0..1000).map(|id| Record::of(9, id, 0, SHAPE).json()).collect();
        let mut packed = vec![0; 8192];
        let (mut original, mut compressed) = (0, 0);
        for page in text.as_bytes().chunks_exact(4096) {
            original += page.len();
            compressed += lzzzz::lz4::compress(page, &mut packed, lzzzz::lz4::ACC_LEVEL_DEFAULT)
                .expect("the buffer is large enough");
        }
        let ratio = original as f64 / compressed as f64;
        assert!((1.8..3.5).contains(&ratio), "LZ4 ratio of pages is {ratio:.2}");
    }
}
