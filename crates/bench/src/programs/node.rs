//! node with documents in typed arrays: text and a series of numbers each, read whole. Clustered: a
//! document is a run of eight to sixteen pages.

use std::ffi::OsString;
use std::path::Path;

use super::versions::{Step, Versions};
use super::{Batch, Kind, Load, Model, batches, units};
use crate::checksum::fnv1a_words;
use crate::content::prose;
use crate::error::BenchError;
use crate::working_set::WorkingSet;
use clew_core::Seeded;

const SCRIPT: &str = include_str!("server.js");
const TEXT_BYTES: (usize, usize) = (24 << 10, 40 << 10);
const NUMBERS: (usize, usize) = (2_000, 6_000);
/// What a document takes on average, its slack and its share of the runtime included.
const DOCUMENT_BYTES: u64 = 58 << 10;
const FILL_BATCH: u32 = 16;
const QUERY_BATCH: usize = 16;

/// The model of the documents.
pub struct Node {
    seed: u64,
    documents: u32,
    working_set: WorkingSet,
    versions: Versions,
}

/// One document: its text, then its numbers as little-endian 32-bit words.
struct Document {
    text: String,
    numbers: Vec<u8>,
    sum: i64,
}

impl Node {
    pub fn new(load: Load) -> Node {
        let seed = Seeded::of(load.seed, &[3]).draw();
        let documents = units(load.data_bytes, DOCUMENT_BYTES);
        let touched = documents as usize / 7;
        Node {
            seed,
            documents,
            working_set: WorkingSet::new(seed, documents, touched, load.similarity),
            versions: Versions::new(seed, documents, load.updates),
        }
    }

    fn document(&self, id: u32, version: u32) -> Document {
        let mut fixed = Seeded::of(self.seed, &[3, u64::from(id)]);
        let text_bytes = fixed.size(TEXT_BYTES.0, TEXT_BYTES.1) & !7;
        let count = fixed.size(NUMBERS.0, NUMBERS.1);
        let mut changing = Seeded::of(self.seed, &[4, u64::from(id), u64::from(version)]);
        let mut text = String::with_capacity(text_bytes + 80);
        prose(&mut changing, text_bytes, &mut text);
        // A measured value: it moves a little, and most of the time not at all.
        let mut value = changing.below(1 << 20) as i32;
        let mut numbers = Vec::with_capacity(count * 4);
        let mut sum = 0;
        for _ in 0..count {
            if changing.below(3) == 0 {
                value += changing.below(2_001) as i32 - 1_000;
            }
            sum += i64::from(value);
            numbers.extend_from_slice(&value.to_le_bytes());
        }
        Document { text, numbers, sum }
    }

    fn put(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let document = self.document(id, version);
        let (text, numbers) = (document.text.as_bytes(), &document.numbers);
        let mut request = format!("P {id} {} {}\n", text.len(), numbers.len()).into_bytes();
        request.extend_from_slice(text);
        request.extend_from_slice(numbers);
        (request, format!("ok {id}").into_bytes())
    }

    fn get(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let document = self.document(id, version);
        let hash = fnv1a_words(document.text.as_bytes());
        let answer = format!("{id} {hash:08x} {}", document.sum);
        (format!("G {id}\n").into_bytes(), answer.into_bytes())
    }
}

impl Model for Node {
    fn kind(&self) -> Kind {
        Kind::Node
    }

    fn arguments(&self, _scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        Ok(["-e", SCRIPT].map(OsString::from).to_vec())
    }

    fn fill_batches(&self) -> u32 {
        self.documents.div_ceil(FILL_BATCH)
    }

    fn fill_batch(&self, index: u32) -> Batch {
        let ids = index * FILL_BATCH..self.documents.min((index + 1) * FILL_BATCH);
        batches(ids.map(|id| self.put(id, 0)), FILL_BATCH as usize).pop().unwrap_or_default()
    }

    fn interaction(&mut self, visit: u32) -> Vec<Batch> {
        let steps = self.versions.steps(visit, &self.working_set.visit(visit));
        let requests = steps.into_iter().map(|step| match step {
            Step::Read { unit, version } => self.get(unit, version),
            Step::Update { unit, version } => self.put(unit, version),
        });
        batches(requests, QUERY_BATCH)
    }
}
