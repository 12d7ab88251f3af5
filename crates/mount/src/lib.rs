//! `clew mount`: a read-through file system over a directory, which keeps the pages of its files
//! compressed when the kernel's page cache is not to hold them any more.
//!
//! What the kernel asks for is answered from the pool ([`pages`]) where it can be, wholly or partly, and
//! from the lower file else, read past the lower page cache. What was read so goes to the pool in the
//! background ([`packer`]). Who reads a file in a row is read ahead of ([`ahead`]). A FUSE server is not told when the kernel drops a clean page: so it writes down
//! what it handed out ([`handed_out`]), and once that is more than it may be, tells the kernel to drop
//! what was handed out longest ago ([`evictor`]). What may enter the pool is a policy's to
//! say ([`door`]).
//!
//! A page of the pool is bound to the state its file had when it was read ([`stamp`]); the file is looked
//! at again at every read, and what is in doubt is dropped. What is changed below is told, too ([`watches`]): so the kernel
//! drops what it has of it without anybody looking, and forgets names ([`forgetting`]).
//!
//! Order of locks: the change lock of a file ([`inodes::Inode::changes`]), then the names, then any one of: the windows of an open file, the table of
//! inodes, the pool's index, the door's, the watches, the ledger of what was handed out. None is held while the kernel is told to drop
//! pages: that waits for reads which this server answers.
#![deny(clippy::print_stderr, clippy::print_stdout)] // Who cannot be heard would end.
#![forbid(unsafe_code)]

mod ahead;
mod as_user;
mod buffer;
mod changed;
mod counters;
mod door;
mod evictor;
mod forgetting;
mod handed_out;
mod handles;
mod inodes;
mod lock_queue;
mod locks;
mod lottery;
mod lower;
mod mount;
mod mounting;
mod names;
mod offer;
mod operations;
mod packer;
mod pages;
mod patience;
mod place;
mod reading;
mod server;
mod stamp;
mod watches;
mod windows;
mod writing;

pub use counters::{STATUS_NAME, Status, StatusError, status};
pub use mount::{Ending, MountConfig, MountError, Mounted, mount};
pub use offer::{ALLOWED_BY, Offer, offer};
pub use pages::{FilePages, FilePagesConfig, Leaves};
pub use stamp::{FileKey, Stamp};

/// Bytes of a page here: what the pool keeps and FUSE aligns to, on any machine.
pub const PAGE_BYTES: usize = 4096;

/// The page that holds byte `offset`.
pub(crate) fn page_of(offset: u64) -> u64 {
    offset / PAGE_BYTES as u64
}

/// The pages that hold bytes `offset..end`; none if there are no such bytes.
pub(crate) fn pages_of(offset: u64, end: u64) -> std::ops::Range<u64> {
    match end > offset {
        true => page_of(offset)..page_of(end - 1) + 1,
        false => page_of(offset)..page_of(offset),
    }
}
