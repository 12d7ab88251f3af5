//! python3 with a dict of parsed JSON objects. Scattered: the parts of one object lie in the pools
//! of their sizes, and reading an object writes to the reference counts of all of them.

use std::ffi::OsString;
use std::path::Path;

use super::versions::{Step, Versions};
use super::{Batch, Kind, Load, Model, batches, units};
use crate::checksum::crc32;
use crate::content::{Record, Shape};
use crate::error::BenchError;
use crate::working_set::WorkingSet;
use clew_core::Seeded;

const SCRIPT: &str = include_str!("server.py");
const SHAPE: Shape = Shape { note_bytes: (100, 1_200), scores: (8, 40) };
/// What a record takes in the interpreter on average.
const RECORD_BYTES: u64 = 3_100;
const FILL_BATCH: u32 = 128;
const QUERY_BATCH: usize = 32;

/// The model of the interpreter's data.
pub struct Python {
    seed: u64,
    records: u32,
    working_set: WorkingSet,
    versions: Versions,
}

impl Python {
    pub fn new(load: Load) -> Python {
        let seed = Seeded::of(load.seed, &[2]).draw();
        let records = units(load.data_bytes, RECORD_BYTES);
        let touched = records as usize / 60;
        Python {
            seed,
            records,
            working_set: WorkingSet::new(seed, records, touched, load.similarity),
            versions: Versions::new(seed, records, load.updates),
        }
    }

    fn put(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let record = Record::of(self.seed, id, version, SHAPE);
        let request = format!("P {id} {}\n", record.json());
        (request.into_bytes(), format!("ok {id} {version}").into_bytes())
    }

    fn get(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let record = Record::of(self.seed, id, version, SHAPE);
        let answer = format!(
            "{} {} {} {:08x} {}",
            record.name,
            record.balance_cents,
            record.scores.iter().sum::<u32>(),
            crc32(record.note.as_bytes()),
            record.token
        );
        (format!("G {id}\n").into_bytes(), answer.into_bytes())
    }
}

impl Model for Python {
    fn kind(&self) -> Kind {
        Kind::Python
    }

    fn arguments(&self, _scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        // -I: no user settings or site directories of the one who runs this.
        Ok(["-I", "-c", SCRIPT].map(OsString::from).to_vec())
    }

    fn fill_batches(&self) -> u32 {
        self.records.div_ceil(FILL_BATCH) + 1
    }

    fn fill_batch(&self, index: u32) -> Batch {
        if index + 1 == self.fill_batches() {
            return Batch {
                request: b"F\n".to_vec(),
                expected: vec![format!("filled {}", self.records).into_bytes()],
            }
            .closed();
        }
        let ids = index * FILL_BATCH..self.records.min((index + 1) * FILL_BATCH);
        let requests = ids.map(|id| self.put(id, 0));
        batches(requests, FILL_BATCH as usize).pop().unwrap_or_default().closed()
    }

    fn interaction(&mut self, visit: u32) -> Vec<Batch> {
        let steps = self.versions.steps(visit, &self.working_set.visit(visit));
        let requests = steps.into_iter().map(|step| match step {
            Step::Read { unit, version } => self.get(unit, version),
            Step::Update { unit, version } => self.put(unit, version),
        });
        batches(requests, QUERY_BATCH).into_iter().map(Batch::closed).collect()
    }
}
