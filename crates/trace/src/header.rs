//! How a trace begins.

use std::collections::BTreeMap;
use std::io::Read;

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::VERSION;
use crate::error::{Bad, TraceError};

const MAGIC: &[u8; 8] = b"CLEWTRCE";
/// Bytes before the provenance.
const FIXED: usize = 32;
/// Bytes of provenance at most.
const PROVENANCE_BYTES: usize = 64 << 10;

/// What a trace says about the contents of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentsKind {
    /// Nothing: for questions about policies only.
    None,
    /// Statistics of each.
    Stats,
    /// Their bytes.
    Bytes,
}

/// Where a trace comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Programs that ran under the daemon.
    Recorded,
    /// A generator.
    Generated,
    /// A trace in another format.
    Imported,
}

/// Where a trace comes from, in words.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Provenance {
    /// Kind of source.
    pub source: Source,
    /// What wrote it: `clew record 0.1.0`.
    pub tool: String,
    /// Seed of a generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whatever else is worth knowing: the profile, the command, the scheme, the budget.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub notes: BTreeMap<String, String>,
}

impl Provenance {
    /// Of this kind, written by this tool, without notes.
    pub fn new(source: Source, tool: impl Into<String>) -> Provenance {
        Provenance { source, tool: tool.into(), seed: None, notes: BTreeMap::new() }
    }
}

/// What holds for a whole trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Header {
    /// Bytes a page: 4096 or 16384.
    pub page_bytes: u32,
    /// What is known of contents.
    pub contents: ContentsKind,
    /// Where the trace comes from.
    pub provenance: Provenance,
}

impl Header {
    /// The header's bytes.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, Bad> {
        check_page_bytes(self.page_bytes)?;
        let provenance = serde_json::to_vec(&self.provenance)
            .map_err(|error| Bad::new("provenance", error.to_string()))?;
        if provenance.len() > PROVENANCE_BYTES {
            let why = format!("{} bytes; {PROVENANCE_BYTES} is the most", provenance.len());
            return Err(Bad::new("provenance", why));
        }
        let mut bytes = Vec::with_capacity(FIXED + provenance.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([self.contents as u8, 0]);
        bytes.extend(self.page_bytes.to_le_bytes());
        bytes.extend((provenance.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(checksum(&bytes, &provenance).to_le_bytes());
        bytes.extend(provenance);
        Ok(bytes)
    }

    /// Reads a header; returns its length too, and the version of what follows.
    pub(crate) fn read(input: &mut impl Read) -> Result<(Header, u64, u16), TraceError> {
        let mut fixed = [0; FIXED];
        read_start(input, &mut fixed)?;
        let word = |at: usize| {
            let mut word = [0; 4];
            word.copy_from_slice(&fixed[at..at + 4]);
            u32::from_le_bytes(word)
        };
        let version = word(8) as u16;
        if !(1..=VERSION).contains(&version) {
            return Err(TraceError::Version { found: version });
        }
        let page_bytes = word(12);
        let length = word(16) as usize;
        if length > PROVENANCE_BYTES {
            let why = format!("{length} bytes; {PROVENANCE_BYTES} is the most");
            return Err(Bad::new("provenance", why).at(0));
        }
        let mut provenance = vec![0; length];
        input.read_exact(&mut provenance).map_err(TraceError::read(FIXED as u64))?;
        let sum = u64::from(word(24)) | u64::from(word(28)) << 32;
        if sum != checksum(&fixed[..24], &provenance) {
            return Err(TraceError::Checksum { offset: 0, what: "the header" });
        }
        check_page_bytes(page_bytes).map_err(|bad| bad.at(0))?;
        let contents = match fixed[10] {
            0 => ContentsKind::None,
            1 => ContentsKind::Stats,
            2 => ContentsKind::Bytes,
            other => return Err(Bad::new("contents", format!("kind {other} is unknown")).at(0)),
        };
        if fixed[11] != 0 || word(20) != 0 {
            return Err(Bad::new("reserved", "not zero").at(0));
        }
        let provenance = serde_json::from_slice(&provenance)
            .map_err(|error| Bad::new("provenance", error.to_string()).at(0))?;
        Ok((Header { page_bytes, contents, provenance }, (FIXED + length) as u64, version))
    }
}

/// Reads the fixed part; what is too short to be a trace and begins otherwise is not called a
/// truncated one.
fn read_start(input: &mut impl Read, fixed: &mut [u8; FIXED]) -> Result<(), TraceError> {
    let mut have = 0;
    while have < FIXED {
        match input.read(&mut fixed[have..]) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(TraceError::Read { offset: have as u64, source: error }),
        }
    }
    let magic = have.min(MAGIC.len());
    if have == 0 || fixed[..magic] != MAGIC[..magic] {
        return Err(TraceError::NotATrace);
    }
    if have < FIXED {
        return Err(TraceError::Truncated { offset: have as u64 });
    }
    Ok(())
}

fn check_page_bytes(page_bytes: u32) -> Result<(), Bad> {
    match page_bytes {
        4096 | 16384 => Ok(()),
        other => Err(Bad::new("page size", format!("{other} bytes; 4096 and 16384 are known"))),
    }
}

fn checksum(fixed: &[u8], provenance: &[u8]) -> u64 {
    let seed = XxHash3_64::oneshot_with_seed(1, fixed);
    XxHash3_64::oneshot_with_seed(seed, provenance)
}
