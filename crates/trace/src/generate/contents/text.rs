//! Text: strings of programs, UTF-16 of script engines and toolkits, documents.

use clew_core::Seeded;

/// Words and phrases that come again and again.
pub struct Vocabulary {
    words: Vec<String>,
    phrases: Vec<String>,
}

const WORDS: usize = 4096;
const PHRASES: usize = 1024;
const FIRST: &[u8; 20] = b"bcdfghjklmnprstvwzqx";
const VOWELS: &[u8; 8] = b"aeiouaei";

/// One of `items`, the first ones far more often, as words in a text are.
fn common<'a>(items: &'a [String], random: &mut Seeded) -> &'a str {
    let u = random.unit();
    &items[(items.len() as f64 * u * u * u) as usize]
}

impl Vocabulary {
    /// That of all programs of a seed.
    pub fn new(seed: u64) -> Vocabulary {
        let mut random = Seeded::of(seed, &[20]);
        let words: Vec<String> = (0..WORDS)
            .map(|rank| {
                let syllables = 1 + rank as u64 * 3 / WORDS as u64 + random.below(2);
                let mut word = String::new();
                for _ in 0..syllables {
                    word.push(char::from(FIRST[random.below(20) as usize]));
                    word.push(char::from(VOWELS[random.below(8) as usize]));
                    if random.below(3) == 0 {
                        word.push(char::from(FIRST[random.below(14) as usize]));
                    }
                }
                word
            })
            .collect();
        let phrases = (0..PHRASES)
            .map(|_| {
                let count = 3 + random.below(6);
                let chosen: Vec<&str> = (0..count).map(|_| common(&words, &mut random)).collect();
                chosen.join(" ")
            })
            .collect();
        Vocabulary { words, phrases }
    }

    /// Eight bytes of a word: a short string inside an object.
    pub fn eight(&self, random: &mut Seeded) -> [u8; 8] {
        let mut bytes = [0; 8];
        for (byte, letter) in bytes.iter_mut().zip(common(&self.words, random).bytes()) {
            *byte = letter;
        }
        bytes
    }
}

/// What a text is about: its own words and phrases come most often.
struct Subject<'a> {
    vocabulary: &'a Vocabulary,
    words: [&'a str; 24],
    phrases: [&'a str; 8],
}

impl<'a> Subject<'a> {
    fn new(vocabulary: &'a Vocabulary, random: &mut Seeded) -> Subject<'a> {
        Subject {
            vocabulary,
            words: std::array::from_fn(|_| common(&vocabulary.words, random)),
            phrases: std::array::from_fn(|_| common(&vocabulary.phrases, random)),
        }
    }

    fn piece(&self, random: &mut Seeded) -> &'a str {
        match random.below(10) {
            0..=3 => self.phrases[random.below(8) as usize],
            4..=8 => self.words[random.below(24) as usize],
            _ => common(&self.vocabulary.words, random),
        }
    }
}

/// Short strings with a header each, as languages keep them: a type, a hash, a length, characters.
pub fn strings(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded, words: &Vocabulary) {
    let class = (0x7f40_0000_0000 + (subject.below(1 << 10) << 6)).to_le_bytes();
    let subject = Subject::new(words, subject);
    let mut bytes = Vec::with_capacity(page.len() + 128);
    while bytes.len() < page.len() {
        let text = subject.piece(random);
        bytes.extend(class);
        bytes.extend((random.draw() as u32).to_le_bytes());
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
        let padded = (bytes.len() + 1).next_multiple_of(8);
        bytes.resize(padded, 0);
    }
    page.copy_from_slice(&bytes[..page.len()]);
}

/// Running text in UTF-16, now and then not Latin.
pub fn utf16(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded, words: &Vocabulary) {
    let subject = Subject::new(words, subject);
    let mut bytes = Vec::with_capacity(page.len() + 256);
    while bytes.len() < page.len() {
        if random.below(60) == 0 {
            for _ in 0..4 + random.below(12) {
                bytes.extend((0x4e00 + random.below(0x1000) as u16).to_le_bytes());
            }
        } else {
            for letter in subject.piece(random).bytes().chain([b' ']) {
                bytes.extend(u16::from(letter).to_le_bytes());
            }
        }
    }
    page.copy_from_slice(&bytes[..page.len()]);
}

/// Records as services send them.
pub fn json(page: &mut [u8], subject: &mut Seeded, random: &mut Seeded, words: &Vocabulary) {
    let about = Subject::new(words, subject);
    let fields: [&str; 9] = std::array::from_fn(|_| common(&words.words, subject));
    let mut text = String::with_capacity(page.len() + 512);
    while text.len() < page.len() {
        text.push('{');
        for (place, field) in fields.iter().enumerate() {
            text.push_str(if place == 0 { "\"" } else { ",\"" });
            text.push_str(field);
            text.push_str("\":");
            match place % 5 {
                0 => text.push_str(&random.below(1000).to_string()),
                1 | 4 => {
                    text.push('"');
                    text.push_str(about.piece(random));
                    text.push('"');
                }
                2 => text.push_str(if random.below(4) == 0 { "false" } else { "true" }),
                _ if random.below(4) == 0 => {
                    text.push_str(&format!("\"{:016x}\"", random.draw()));
                }
                _ => text.push_str("null"),
            }
        }
        text.push_str("},");
    }
    page.copy_from_slice(&text.as_bytes()[..page.len()]);
}
