//! An office: LibreOffice with sheets and texts that are open all day, driven over its own interface
//! (UNO) as macros do. At each visit its user does two things in them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use clew_core::Seeded;

use super::{Answers, Kind, Load, Program};
use crate::error::{BenchError, file_error};
use crate::wire::Wire;

/// Starts it and does what lines say.
const USER: &str = include_str!("libreoffice.py");
/// What a row takes: eight cells, three of them worked out.
const ROW_BYTES: u64 = 900;
const SHEETS: u64 = 6;
const TEXTS: u64 = 2;
/// Four of a page.
const PARAGRAPHS: u64 = 1_000;
const DONE: usize = 2;
/// What is looked for and replaced.
const WORDS: [&str; 8] =
    ["paper", "river", "winter", "garden", "letter", "market", "window", "yellow"];

/// The user's side of an office.
pub struct Libreoffice {
    seed: u64,
    rows: u64,
    paragraphs: u64,
    next: Vec<String>,
}

impl Libreoffice {
    pub fn new(load: Load) -> Libreoffice {
        let rows = (load.data_bytes / ROW_BYTES / SHEETS).max(200);
        Libreoffice {
            seed: Seeded::of(load.seed, &[100]).draw() >> 33,
            rows,
            paragraphs: PARAGRAPHS.min(rows),
            next: Vec::new(),
        }
    }

    fn ask(&self, wire: &mut Wire, what: &str) -> Result<Vec<u8>, BenchError> {
        wire.send(format!("{what}\n").as_bytes())?;
        let mut said = Vec::new();
        wire.line(&mut said)?;
        Ok(said)
    }

    /// Something that is done in an office.
    fn something(&self, seeded: &mut Seeded) -> String {
        let (sheet, text) = (seeded.below(SHEETS), seeded.below(TEXTS));
        let one = WORDS[seeded.below(WORDS.len() as u64) as usize];
        let other = WORDS[seeded.below(WORDS.len() as u64) as usize];
        let row = seeded.below(self.rows);
        match seeded.below(8) {
            0 => format!("price {sheet} {row} {}", seeded.below(900) + 1),
            1 | 2 => format!("sort {sheet} {}", seeded.below(5)),
            3 => format!("find {sheet} {one}"),
            4 => format!("rename {sheet} {one} {other}"),
            5 => format!("replace {text} {one} {other}"),
            6 => format!("letters {text} {}", seeded.below(6) + 9),
            _ => format!("sum {sheet} {}", seeded.below(2) * 2 + 5),
        }
    }
}

impl Program for Libreoffice {
    fn kind(&self) -> Kind {
        Kind::Libreoffice
    }

    fn command(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        // It finds LibreOffice by its name.
        Kind::Libreoffice.executable()?;
        let script = scratch.join("libreoffice.py");
        fs::write(&script, USER).map_err(file_error("write", &script))?;
        let python = Kind::Python.executable()?;
        Ok(vec![python.into(), script.into(), scratch.into()])
    }

    /// The same language everywhere, and nothing left behind.
    fn environment(&self, scratch: &Path) -> Vec<(&'static str, OsString)> {
        vec![("HOME", scratch.into()), ("TMPDIR", scratch.into()), ("LC_ALL", "C.UTF-8".into())]
    }

    fn fill(
        &mut self,
        wire: &mut Wire,
        pace: &dyn Fn() -> Result<(), BenchError>,
    ) -> Result<(), BenchError> {
        let (seed, rows, paragraphs) = (self.seed, self.rows, self.paragraphs);
        let sheets = (0..SHEETS).map(|number| format!("sheet {rows} {}", seed + number));
        let texts = (0..TEXTS).map(|number| format!("text {paragraphs} {}", seed + number));
        for what in sheets.chain(texts) {
            pace()?;
            self.ask(wire, &what)?;
        }
        Ok(())
    }

    fn prepare(&mut self, visit: u32) -> Result<(), BenchError> {
        let mut seeded = Seeded::of(self.seed, &[101, u64::from(visit)]);
        self.next = (0..DONE).map(|_| self.something(&mut seeded)).collect();
        Ok(())
    }

    fn visit(&mut self, wire: &mut Wire) -> Result<Answers, BenchError> {
        let mut answers = Answers::default();
        for what in std::mem::take(&mut self.next) {
            answers.see(&self.ask(wire, &what)?);
        }
        Ok(answers)
    }
}
