//! sqlite3 with a table in memory, over the standard input of its shell. Clustered: rows lie in the
//! order of their keys, and a query sums up a range of neighbours.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;

use super::versions::{Step, Versions};
use super::{Batch, Kind, Load, Model, batches, units};
use crate::content::{Record, Shape};
use crate::error::BenchError;
use crate::working_set::WorkingSet;
use clew_core::Seeded;

// A row fits into a page of the database; most pages hold two or three.
const SHAPE: Shape = Shape { note_bytes: (700, 3_300), scores: (4, 30) };
/// Rows of one range; a range is the unit of the working set.
const RANGE: u32 = 16;
/// What a range takes on average.
const RANGE_BYTES: u64 = 40_000;
const FILL_BATCH: u32 = 8;
const QUERY_BATCH: usize = 32;

/// The model of the table.
pub struct Sqlite {
    seed: u64,
    ranges: u32,
    working_set: WorkingSet,
    versions: Versions,
}

impl Sqlite {
    pub fn new(load: Load) -> Sqlite {
        let seed = Seeded::of(load.seed, &[4]).draw();
        let ranges = units(load.data_bytes, RANGE_BYTES);
        let touched = ranges as usize / 7;
        Sqlite {
            seed,
            ranges,
            working_set: WorkingSet::new(seed, ranges, touched, load.similarity),
            versions: Versions::new(seed, ranges, load.updates),
        }
    }

    /// An update changes one row of its range, each time the next one.
    fn row_version(range_version: u32, offset: u32) -> u32 {
        (range_version + RANGE - 1 - offset) / RANGE
    }

    fn row(&self, range: u32, range_version: u32, offset: u32) -> Record {
        let version = Sqlite::row_version(range_version, offset);
        Record::of(self.seed, range * RANGE + offset, version, SHAPE)
    }

    fn insert(&self, range: u32) -> (Vec<u8>, Vec<u8>) {
        let mut sql = String::from("INSERT INTO note VALUES ");
        for offset in 0..RANGE {
            let row = self.row(range, 0, offset);
            // Writing to a String does not fail; no text in a record needs escaping.
            let _ = write!(
                sql,
                "{}({},'{}','{}','{}',{},{},'{}',CAST('{}' AS BLOB))",
                if offset == 0 { "" } else { "," },
                row.id,
                row.name,
                row.mail,
                row.city,
                row.balance_cents,
                row.stamp,
                row.token,
                row.note
            );
        }
        sql += "; SELECT changes();\n";
        (sql.into_bytes(), RANGE.to_string().into_bytes())
    }

    fn update(&self, range: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let row = self.row(range, version, (version - 1) % RANGE);
        let sql = format!(
            "UPDATE note SET balance={},stamp={},token='{}',body=CAST('{}' AS BLOB) WHERE id={}; SELECT changes();\n",
            row.balance_cents, row.stamp, row.token, row.note, row.id
        );
        (sql.into_bytes(), b"1".to_vec())
    }

    /// Sums of numbers, the length of all text, and five letters from the end of each row's text.
    fn select(&self, range: u32, version: u32) -> (Vec<u8>, Vec<u8>) {
        let first = range * RANGE;
        let sql = format!(
            "SELECT sum(balance),sum(stamp),sum(length(body)),group_concat(substr(body,-5),'') \
             FROM note WHERE id BETWEEN {first} AND {};\n",
            first + RANGE - 1
        );
        let rows: Vec<Record> = (0..RANGE).map(|offset| self.row(range, version, offset)).collect();
        let answer = format!(
            "{}|{}|{}|{}",
            rows.iter().map(|row| u64::from(row.balance_cents)).sum::<u64>(),
            rows.iter().map(|row| row.stamp).sum::<u64>(),
            rows.iter().map(|row| row.note.len()).sum::<usize>(),
            rows.iter().map(|row| &row.note[row.note.len() - 5..]).collect::<String>()
        );
        (sql.into_bytes(), answer.into_bytes())
    }
}

impl Model for Sqlite {
    fn kind(&self) -> Kind {
        Kind::Sqlite
    }

    fn arguments(&self, _scratch: &Path) -> Result<Vec<OsString>, BenchError> {
        // No settings of the one who runs this.
        Ok(["-batch", "-noheader", "-list", "-init", "/dev/null", ":memory:"]
            .map(OsString::from)
            .to_vec())
    }

    fn fill_batches(&self) -> u32 {
        self.ranges.div_ceil(FILL_BATCH) + 1
    }

    fn fill_batch(&self, index: u32) -> Batch {
        let Some(index) = index.checked_sub(1) else {
            return Batch {
                request:
                    b"CREATE TABLE note(id INTEGER PRIMARY KEY, name TEXT, mail TEXT, city TEXT, \
                           balance INTEGER, stamp INTEGER, token TEXT, body BLOB); SELECT 'made';\n"
                        .to_vec(),
                expected: vec![b"made".to_vec()],
            };
        };
        let ranges = index * FILL_BATCH..self.ranges.min((index + 1) * FILL_BATCH);
        let requests = ranges.map(|range| self.insert(range));
        batches(requests, FILL_BATCH as usize).pop().unwrap_or_default()
    }

    fn interaction(&mut self, visit: u32) -> Vec<Batch> {
        let steps = self.versions.steps(visit, &self.working_set.visit(visit));
        let requests = steps.into_iter().map(|step| match step {
            Step::Read { unit, version } => self.select(unit, version),
            Step::Update { unit, version } => self.update(unit, version),
        });
        batches(requests, QUERY_BATCH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_update_changes_one_row() {
        for version in 1..100 {
            let changed: Vec<u32> = (0..RANGE)
                .filter(|&row| {
                    Sqlite::row_version(version, row) != Sqlite::row_version(version - 1, row)
                })
                .collect();
            assert_eq!(changed, [(version - 1) % RANGE], "version {version}");
        }
    }
}
