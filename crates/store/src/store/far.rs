//! Blocks that are in a log, on flash or at a donor, and their bytes.

use super::Handle;
use super::refusal::ReadError;
use super::stub::Seen;
use crate::codec::{DecodeError, Stored};
use crate::flash::Place;
use crate::pool::object::Header;

/// A block that is in a log, and where.
#[derive(Clone, Debug)]
pub struct FarBlock {
    pub(super) handle: Handle,
    pub(super) checksum: u64,
    stub: Box<[u8]>,
    pub(super) place: Place,
}

impl FarBlock {
    /// The block of a stub.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn of(handle: Handle, checksum: u64, stub: &[u8]) -> Result<FarBlock, ReadError> {
        let header = Header { checksum, handle: 0, len: 0, codec: Stored::Stub, framed: false };
        let place = Seen::of(&header, stub).and_then(|seen| seen.place);
        let damaged = ReadError::Damaged {
            handle,
            source: DecodeError { codec: "stub", stored_bytes: stub.len(), wanted_bytes: 0 },
        };
        Ok(FarBlock { handle, checksum, stub: stub.into(), place: place.ok_or(damaged)? })
    }

    /// The block.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.place
    }

    pub(super) fn header(&self) -> Header {
        let FarBlock { checksum, .. } = *self;
        Header { checksum, handle: 0, len: 0, codec: Stored::Stub, framed: false }
    }

    pub(super) fn stub(&self) -> &[u8] {
        &self.stub
    }
}

/// The bytes of a block, from flash, with all that is needed to restore its pages.
#[derive(Clone, Debug)]
pub struct Fetched {
    pub(super) block: FarBlock,
    pub(super) bytes: Vec<u8>,
}

impl Fetched {
    /// The block.
    pub fn handle(&self) -> Handle {
        self.block.handle
    }
}
