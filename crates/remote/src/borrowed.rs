//! A donor's memory as the device of a log. What a log writes at once is a chunk (MobileSwap III-B, C_s), and its segments
//! are as large as that.

use std::io;
use std::sync::Arc;

use clew_store::flash::device::{Device, Read, Write};

use crate::Standing;
use crate::link::Link;
use crate::queue::{Wrote, of_read, of_write};

/// What lends memory to a log, whoever it is.
pub trait Lender: Device {
    /// How it stands.
    fn standing(&self) -> Standing;

    /// Nobody has anything there any more: what it has lost is lost no more.
    fn forgive(&self);
}

/// A lender that is one machine.
pub trait Single: Lender {
    /// Stores bytes, behind everything that it was asked for before. `told` is called once, from any thread.
    fn put(&self, at: u64, bytes: Vec<u8>, told: Wrote);
}

/// A donor's memory.
#[derive(Debug)]
pub struct Borrowed {
    link: Link,
    bytes: u64,
}

impl Borrowed {
    /// At the other end of `link`, `bytes` of it at most. How much there is, the donor says ([`Standing::free_bytes`]).
    pub fn new(link: Link, bytes: u64) -> Borrowed {
        Borrowed { link, bytes }
    }
}

impl Lender for Borrowed {
    fn standing(&self) -> Standing {
        self.link.standing()
    }

    fn forgive(&self) {
        self.link.forgive();
    }
}

impl Single for Borrowed {
    fn put(&self, at: u64, bytes: Vec<u8>, told: Wrote) {
        self.link.write(at, bytes, told);
    }
}

impl Device for Borrowed {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Nothing goes over the link that nobody needs.
    fn align(&self) -> usize {
        1
    }

    fn write(&self, write: Write<'_>) -> Option<io::Result<usize>> {
        of_write(write, |at, bytes, told| self.put(at, bytes, told))
    }

    fn read(&self, read: Read) {
        self.link.ask(of_read(read));
    }

    fn forget(&self, at: u64, len: usize) {
        self.link.forget(at, len as u64);
    }

    fn way(&self) -> &'static str {
        "a link to a donor"
    }
}

impl<L: Lender + ?Sized> Lender for Arc<L> {
    fn standing(&self) -> Standing {
        (**self).standing()
    }

    fn forgive(&self) {
        (**self).forgive();
    }
}
