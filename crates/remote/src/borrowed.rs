//! A donor's memory as the device of a log. What a log writes at once is a chunk (MobileSwap III-B, C_s), and its segments
//! are as large as that.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use clew_core::DonorState;
use clew_store::flash::device::{Blocks, Device, Read, Write};

use crate::Standing;
use crate::link::Link;
use crate::queue::{Wrote, of_read, of_write};

/// What lends memory to a log, whoever it is.
pub trait Lender: Device {
    /// How it stands.
    fn standing(&self) -> Standing;

    /// Nobody has anything there any more: what it has lost is lost no more.
    fn forgive(&self);

    /// Nobody will ask for anything again: it may use its memory otherwise at once. Waits until it has heard of it, for
    /// `patience` at most; whoever is lost is not waited for.
    fn say_goodbye(&self, patience: Duration);
}

/// Has a lender forget everything, and waits until it has answered what was asked of it behind that.
pub(crate) fn forget_all(lender: &dyn Lender, patience: Duration) {
    lender.forget(0, usize::MAX);
    if lender.standing().state == DonorState::Lost {
        return;
    }
    let (tell, told) = channel();
    let told_of = move |_: io::Result<usize>, _: Blocks| {
        let _ = tell.send(());
    };
    lender.read(Read {
        at: 0,
        into: Blocks::zeroed(1),
        told: Box::new(told_of),
        pressing: false,
        tries: 0,
    });
    // It keeps it for a while, then.
    let _ = told.recv_timeout(patience);
}

/// A lender that is one machine.
pub trait Single: Lender {
    /// Stores bytes, behind everything that it was asked for before. `told` is called once, from any thread.
    fn put(&self, at: u64, bytes: Vec<u8>, told: Wrote);

    /// Whether it has lost what it had since this was asked the last time. It counts as new then: whoever asks makes good
    /// for what is lost.
    fn take_loss(&self) -> bool;
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

    fn say_goodbye(&self, patience: Duration) {
        forget_all(self, patience);
    }
}

impl Single for Borrowed {
    fn put(&self, at: u64, bytes: Vec<u8>, told: Wrote) {
        self.link.write(at, bytes, told);
    }

    fn take_loss(&self) -> bool {
        self.link.take_loss()
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

    fn say_goodbye(&self, patience: Duration) {
        (**self).say_goodbye(patience);
    }
}
