//! memcached with rendered pages as a web server would cache them, over its unix socket. Clustered:
//! a page is one item, and an item is a run of five to fifteen pages of memory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::versions::{Step, Versions};
use super::{Batch, Kind, Link, Load, Model, batches, units};
use crate::content::prose;
use crate::error::BenchError;
use crate::wire::Wire;
use crate::working_set::WorkingSet;
use clew_core::Seeded;

const ITEM_BYTES: (usize, usize) = (20 << 10, 60 << 10);
/// What an item takes on average, its slab's slack included.
const SLOT_BYTES: u64 = 41 << 10;
const FILL_BATCH: u32 = 8;
const QUERY_BATCH: usize = 8;

/// The model of the cached pages.
pub struct Memcached {
    load: Load,
    seed: u64,
    items: u32,
    working_set: WorkingSet,
    versions: Versions,
}

impl Memcached {
    pub fn new(load: Load) -> Memcached {
        let seed = Seeded::of(load.seed, &[7]).draw();
        let items = units(load.data_bytes, SLOT_BYTES);
        let touched = items as usize / 7;
        Memcached {
            load,
            seed,
            items,
            working_set: WorkingSet::new(seed, items, touched, load.similarity),
            versions: Versions::new(seed, items, load.updates),
        }
    }

    fn text(&self, id: u32, version: u32) -> Vec<u8> {
        let mut fixed = Seeded::of(self.seed, &[1, u64::from(id)]);
        let bytes = fixed.size(ITEM_BYTES.0, ITEM_BYTES.1);
        let mut changing = Seeded::of(self.seed, &[2, u64::from(id), u64::from(version)]);
        let mut text = String::with_capacity(bytes + 80);
        prose(&mut changing, bytes, &mut text);
        text.into_bytes()
    }

    fn set(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let text = self.text(id, version);
        let mut request = format!("set page:{id} 0 0 {}\r\n", text.len()).into_bytes();
        request.extend_from_slice(&text);
        request.extend_from_slice(b"\r\n");
        (request, b"STORED".to_vec())
    }

    fn get(&self, id: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        (format!("get page:{id}\r\n").into_bytes(), self.text(id, version))
    }
}

fn socket(scratch: &Path) -> PathBuf {
    scratch.join("memcached.sock")
}

impl Model for Memcached {
    fn kind(&self) -> Kind {
        Kind::Memcached
    }

    fn arguments(&self, scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        // Never so full that it drops items. It wants to be told that it may run as root.
        let megabytes = (self.load.data_bytes >> 19) + 64;
        let mut arguments: Vec<OsString> =
            ["-u", "root", "-U", "0", "-A", "-m", &megabytes.to_string(), "-s"]
                .map(OsString::from)
                .into();
        arguments.push(socket(scratch).into());
        Ok(arguments)
    }

    fn link(&self, scratch: &Path) -> Link {
        Link::Socket(socket(scratch))
    }

    fn fill_batches(&self) -> u32 {
        self.items.div_ceil(FILL_BATCH)
    }

    fn fill_batch(&self, index: u32) -> Batch {
        let ids = index * FILL_BATCH..self.items.min((index + 1) * FILL_BATCH);
        batches(ids.map(|id| self.set(id, 0)), FILL_BATCH as usize).pop().unwrap_or_default()
    }

    fn interaction(&mut self, visit: u32) -> Vec<Batch> {
        let steps = self.versions.steps(visit, &self.working_set.visit(visit));
        let requests = steps.into_iter().map(|step| match step {
            Step::Read { unit, version } => self.get(unit, version),
            Step::Update { unit, version } => self.set(unit, version),
        });
        batches(requests, QUERY_BATCH)
    }

    /// The value of a hit; the line of anything else (`STORED`, `END` for a miss, errors).
    fn read_answer(&self, wire: &mut Wire, into: &mut Vec<u8>) -> Result<(), BenchError> {
        wire.line(into)?;
        let Some(length) = length_of_value(into) else { return Ok(()) };
        let mut end = Vec::new();
        wire.exactly(length + 2, into)?;
        into.truncate(length);
        wire.line(&mut end)
    }

    fn goodbye(&self) -> &'static [u8] {
        b"shutdown\r\n"
    }
}

/// The bytes that follow a line `VALUE key flags bytes`.
fn length_of_value(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("VALUE ")?.split(' ').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_value_has_a_length() {
        assert_eq!(length_of_value(b"VALUE page:7 0 20480"), Some(20_480));
        for line in [&b"STORED"[..], b"END", b"VALUE page:7", b"SERVER_ERROR out of memory"] {
            assert_eq!(length_of_value(line), None);
        }
    }
}
