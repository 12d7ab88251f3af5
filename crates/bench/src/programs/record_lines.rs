//! perl and java with records in a hash table, spoken to by lines. Scattered: a record is looked up
//! by its number, and its parts lie where the allocator of their sizes (perl) or the copying
//! collector (java) put them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use super::versions::{Step, Versions};
use super::{Batch, Kind, Load, Model, batches, units};
use crate::content::{Record, Shape};
use crate::error::{BenchError, file_error};
use crate::working_set::WorkingSet;
use clew_core::Seeded;

const PERL: &str = include_str!("server.pl");
const JAVA: &str = include_str!("Server.java");
const FILL_BATCH: u32 = 128;
const QUERY_BATCH: usize = 32;

/// What distinguishes the two.
struct Traits {
    /// Coordinate of its seed.
    seed: u64,
    shape: Shape,
    /// What a record takes on average.
    record_bytes: u64,
    /// Every n-th record is touched by an interaction.
    touched: usize,
}

const OF_PERL: Traits = Traits {
    seed: 5,
    shape: Shape { note_bytes: (100, 1_200), scores: (8, 40) },
    record_bytes: 1_880,
    touched: 80,
};
const OF_JAVA: Traits = Traits {
    seed: 6,
    shape: Shape { note_bytes: (150, 2_800), scores: (4, 40) },
    record_bytes: 1_250,
    touched: 60,
};

/// The model of the records.
pub struct RecordLines {
    kind: Kind,
    traits: &'static Traits,
    load: Load,
    seed: u64,
    records: u32,
    working_set: WorkingSet,
    versions: Versions,
}

impl RecordLines {
    /// Records in perl.
    pub fn perl(load: Load) -> RecordLines {
        RecordLines::new(Kind::Perl, &OF_PERL, load)
    }

    /// Records in a Java virtual machine.
    pub fn java(load: Load) -> RecordLines {
        RecordLines::new(Kind::Java, &OF_JAVA, load)
    }

    fn new(kind: Kind, traits: &'static Traits, load: Load) -> RecordLines {
        let seed = Seeded::of(load.seed, &[traits.seed]).draw();
        let records = units(load.data_bytes, traits.record_bytes);
        let touched = records as usize / traits.touched;
        RecordLines {
            kind,
            traits,
            load,
            seed,
            records,
            working_set: WorkingSet::new(seed, records, touched, load.similarity),
            versions: Versions::new(seed, records, load.updates),
        }
    }

    fn record(&self, id: u32, version: u32) -> Record {
        Record::of(self.seed, id, version, self.traits.shape)
    }

    fn put(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let record = self.record(id, version);
        let scores: Vec<String> = record.scores.iter().map(u32::to_string).collect();
        let request = format!(
            "P {id}\t{}\t{}\t{}\t{}\t{}\n",
            record.name,
            record.balance_cents,
            scores.join(","),
            record.token,
            record.note
        );
        (request.into_bytes(), format!("ok {id}").into_bytes())
    }

    fn get(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let record = self.record(id, version);
        let answer = format!(
            "{} {} {} {} {}",
            record.name,
            record.balance_cents,
            record.scores.iter().sum::<u32>(),
            record.note.bytes().map(u64::from).sum::<u64>(),
            record.token
        );
        (format!("G {id}\n").into_bytes(), answer.into_bytes())
    }
}

impl Model for RecordLines {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn arguments(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        if self.kind == Kind::Perl {
            return Ok(["-e", PERL].map(OsString::from).to_vec());
        }
        let source = scratch.join("Server.java");
        fs::write(&source, JAVA).map_err(file_error("write", &source))?;
        // The collector that the machine chooses on small systems. The heap has room for all data
        // twice, so that nothing but the young generation is collected after the fill.
        let heap = format!("-Xmx{}m", (self.load.data_bytes >> 19) + 64);
        Ok(vec!["-XX:+UseSerialGC".into(), "-Xmn8m".into(), heap.into(), source.into()])
    }

    fn fill_batches(&self) -> u32 {
        self.records.div_ceil(FILL_BATCH)
    }

    fn fill_batch(&self, index: u32) -> Batch {
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
