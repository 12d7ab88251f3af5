//! redis-server (or valkey-server) without persistence, over its unix socket. Scattered: a value
//! lies anywhere in the allocator's slabs, its key and its hash table entry elsewhere.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::versions::{Step, Versions};
use super::{Batch, Kind, Link, Load, Model, batches, units};
use crate::content::{Record, Shape};
use crate::error::BenchError;
use crate::wire::Wire;
use crate::working_set::WorkingSet;
use clew_core::Seeded;

const SHAPE: Shape = Shape { note_bytes: (150, 2_800), scores: (4, 40) };
/// What a record takes in the server on average: value, key, entry, slack of the slabs.
const RECORD_BYTES: u64 = 1_430;
const FILL_BATCH: u32 = 256;
const QUERY_BATCH: usize = 50;

/// The model of the server's data.
pub struct Redis {
    seed: u64,
    records: u32,
    working_set: WorkingSet,
    versions: Versions,
}

impl Redis {
    pub fn new(load: Load) -> Redis {
        let seed = Seeded::of(load.seed, &[1]).draw();
        let records = units(load.data_bytes, RECORD_BYTES);
        let touched = records as usize / 45;
        Redis {
            seed,
            records,
            working_set: WorkingSet::new(seed, records, touched, load.similarity),
            versions: Versions::new(seed, records, load.updates),
        }
    }

    /// Keys as an application would name them, in no order; no two are the same, because the factor
    /// is odd.
    fn key(&self, id: u32) -> String {
        format!("session:{:08x}", id.wrapping_mul(0x9e37_79b1) ^ self.seed as u32)
    }

    fn value(&self, id: u32, version: u32) -> Vec<u8> {
        Record::of(self.seed, id, version, SHAPE).json().into_bytes()
    }

    fn set(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let value = self.value(id, version);
        (command(&[b"SET", self.key(id).as_bytes(), &value]), b"OK".to_vec())
    }
}

fn command(parts: &[&[u8]]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        text.extend(format!("${}\r\n", part.len()).bytes());
        text.extend_from_slice(part);
        text.extend_from_slice(b"\r\n");
    }
    text
}

fn socket(scratch: &Path) -> PathBuf {
    scratch.join("redis.sock")
}

impl Model for Redis {
    fn kind(&self) -> Kind {
        Kind::Redis
    }

    fn arguments(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        let mut arguments: Vec<OsString> =
            ["--port", "0", "--save", "", "--appendonly", "no", "--daemonize", "no", "--dir"]
                .map(OsString::from)
                .to_vec();
        arguments.push(scratch.into());
        arguments.push("--unixsocket".into());
        arguments.push(socket(scratch).into());
        Ok(arguments)
    }

    fn link(&self, scratch: &Path) -> Link {
        Link::Socket(socket(scratch))
    }

    fn fill_batches(&self) -> u32 {
        self.records.div_ceil(FILL_BATCH)
    }

    fn fill_batch(&self, index: u32) -> Batch {
        let ids = index * FILL_BATCH..self.records.min((index + 1) * FILL_BATCH);
        batches(ids.map(|id| self.set(id, 0)), FILL_BATCH as usize).pop().unwrap_or_default()
    }

    fn interaction(&mut self, visit: u32) -> Vec<Batch> {
        let steps = self.versions.steps(visit, &self.working_set.visit(visit));
        let requests = steps.into_iter().map(|step| match step {
            Step::Read { unit, version } => {
                (command(&[b"GET", self.key(unit).as_bytes()]), self.value(unit, version))
            }
            Step::Update { unit, version } => self.set(unit, version),
        });
        batches(requests, QUERY_BATCH)
    }

    /// Simple strings, errors and integers as their line; bulk strings as their bytes.
    fn read_answer(&self, wire: &mut Wire, into: &mut Vec<u8>) -> Result<(), BenchError> {
        wire.line(into)?;
        match into.first() {
            Some(b'$') => {
                let length = std::str::from_utf8(&into[1..]).ok().and_then(|n| n.parse().ok());
                let Some(length) = length else { return Ok(()) };
                let length: usize = length;
                wire.exactly(length + 2, into)?;
                into.truncate(length);
            }
            Some(b'+') => {
                into.remove(0);
            }
            _ => {}
        }
        Ok(())
    }

    fn goodbye(&self) -> &'static [u8] {
        b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n"
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_are_read_as_the_protocol_frames_them() {
        let (ours, mut theirs) = UnixStream::pair().expect("a socket pair");
        let mut wire = Wire::new("redis", ours, Duration::from_secs(1)).expect("timeouts");
        theirs.write_all(b"+OK\r\n$5\r\na\r\nbc\r\n-ERR no\r\n$-1\r\n").expect("sent");
        let load = Load { seed: 1, data_bytes: 0, similarity: 0.7, updates: 0.1, is_front: false };
        let redis = Redis::new(load);
        let mut answer = Vec::new();
        for expected in [&b"OK"[..], b"a\r\nbc", b"-ERR no", b"$-1"] {
            redis.read_answer(&mut wire, &mut answer).expect("an answer");
            assert_eq!(answer, expected);
        }
    }

    #[test]
    fn keys_are_distinct() {
        for seed in 1..20 {
            let load = Load {
                seed,
                data_bytes: 112 << 20,
                similarity: 0.7,
                updates: 0.1,
                is_front: false,
            };
            let redis = Redis::new(load);
            let keys: std::collections::HashSet<String> =
                (0..redis.records).map(|id| redis.key(id)).collect();
            assert_eq!(keys.len(), redis.records as usize, "seed {seed}");
        }
    }
}
