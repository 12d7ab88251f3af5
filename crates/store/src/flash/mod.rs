//! The flash tier: bytes of blocks on a file or a block device, encrypted, in a log.
//!
//! - [`log`]: where an object is, what lives, what is free; `ledger`: what of it outlives the daemon.
//! - [`cipher`]: encryption, and the key.
//! - [`clean`]: how slots become free again.
//! - [`device`]: what a log is written to; [`file`], `uring`, `threads`: a file or a block device;
//!   `windows`: what is read of it beside what was asked for.
//!
//! Whoever puts an object has its place at once and may read it at once; it is written with its neighbours, later.
//! Who reads is told on a thread of the tier's own, or before the call returns where the bytes are in memory. Nobody
//! waits for the device but the threads that write.
//!
//! An error on writing to a file latches the tier: it takes nothing more and says why. What it has stays readable. What a
//! donor did not take is offered again.

pub mod cipher;
mod clean;
pub mod device;
mod facts;
pub mod file;
mod ledger;
mod log;
mod memory;
mod reading;
mod refusal;
mod threads;
mod uring;
mod windows;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use clew_core::{DonorId, Tier};

pub use clean::{CleanError, Cleaned, Names};
pub use facts::FlashFacts;
pub use memory::MemoryDevice;
pub use refusal::{AdoptFlashError, AppendError, FlashError, ReadFlashError};

use cipher::Cipher;
use device::{Device, HEAD_BYTES, Write};
use ledger::{Ledger, Shape};
use log::{Found, Head, KEPT_SLOTS, Log, ToWrite};
use windows::Windows;

/// Which of a store's logs: that on flash, or that at a donor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LogId(u8);

impl LogId {
    /// How many there can be.
    pub const COUNT: usize = 1 + DonorId::COUNT;
    /// On flash.
    pub const FLASH: LogId = LogId(0);

    /// The one at this position; `None` if there are not so many.
    pub fn numbered(index: usize) -> Option<LogId> {
        (index < LogId::COUNT).then_some(LogId(index as u8))
    }

    /// Of a tier that is a log.
    pub fn of(tier: Tier) -> Option<LogId> {
        match tier {
            Tier::Pool | Tier::Kernel => None,
            Tier::Flash => Some(LogId::FLASH),
            Tier::Donor(donor) => Some(LogId::at(donor)),
        }
    }

    /// At a donor.
    pub fn at(donor: DonorId) -> LogId {
        LogId(1 + donor.number() as u8)
    }

    /// The donor that it is at.
    pub fn donor(self) -> Option<DonorId> {
        DonorId::new(self.index().checked_sub(1)?)
    }

    /// The tier that it is.
    pub fn tier(self) -> Tier {
        self.donor().map_or(Tier::Flash, Tier::Donor)
    }

    /// Position in arrays of [`LogId::COUNT`] elements.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.donor() {
            None => f.write_str("flash"),
            Some(donor) => write!(f, "donor {}", donor.number()),
        }
    }
}

/// Slots of a log, at most: the rest of their word says which log it is.
const MAX_SLOTS: u32 = 1 << 24;

/// Where an object is on flash, or at a donor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    /// The log.
    pub log: LogId,
    /// The slot of the device.
    pub slot: u32,
    /// Which of all segments it is in; used once for ever.
    pub generation: u64,
    /// Where in the segment, bytes.
    pub offset: u32,
    /// Its bytes, the tag behind them not counted.
    pub len: u32,
}

/// Bytes of a place, as it is stored.
pub const PLACE_BYTES: usize = 20;

impl Place {
    /// The bytes to store.
    pub fn to_bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        let slot = self.slot | u32::from(self.log.0) << MAX_SLOTS.ilog2();
        bytes[..4].copy_from_slice(&slot.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.generation.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// The place that has these bytes; `None` if no log has it.
    pub fn from_bytes(bytes: [u8; PLACE_BYTES]) -> Option<Place> {
        let [s0, s1, s2, log, g0, g1, g2, g3, g4, g5, g6, g7, o0, o1, o2, o3, l0, l1, l2, l3] =
            bytes;
        (usize::from(log) < LogId::COUNT).then(|| Place {
            log: LogId(log),
            slot: u32::from_le_bytes([s0, s1, s2, 0]),
            generation: u64::from_le_bytes([g0, g1, g2, g3, g4, g5, g6, g7]),
            offset: u32::from_le_bytes([o0, o1, o2, o3]),
            len: u32::from_le_bytes([l0, l1, l2, l3]),
        })
    }
}

/// When a log reads more than it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadsAhead {
    /// Never.
    Never,
    /// What lies around an object together with it. Where a program waits, behind the object, and only while enough of what came
    /// last is asked for.
    IfUsed,
}

/// How the tier uses its device and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashConfig {
    /// Which of the store's logs it is.
    pub log: LogId,
    /// Bytes of a segment: what is written at once. A multiple of 4 KiB, 64 MiB at most.
    pub segment_bytes: u32,
    /// Segments that may be in memory, being filled and written: 1 to 256, two more than needed if
    /// cleaning is to go on beside.
    pub buffers: u32,
    /// When more is read than was asked for, and kept for a while.
    pub reads_ahead: ReadsAhead,
    /// Threads that write, each one segment at a time as far as the device makes them wait.
    pub writers: usize,
}

impl Default for FlashConfig {
    fn default() -> FlashConfig {
        let log = LogId::FLASH;
        FlashConfig {
            log,
            segment_bytes: 1 << 20,
            buffers: 6,
            reads_ahead: ReadsAhead::IfUsed,
            writers: 2,
        }
    }
}

impl FlashConfig {
    /// The smallest device that is of use, bytes.
    pub fn least_bytes(&self) -> u64 {
        HEAD_BYTES + u64::from(self.segment_bytes) * (KEPT_SLOTS as u64 + 2)
    }
}

/// What a successor needs, beside the device.
#[derive(Debug)]
pub struct FlashLeft {
    /// [`Flash::segments`], one after the other.
    pub fds: [OwnedFd; 3],
}

#[derive(Debug, Default)]
struct Reads {
    reads: AtomicU64,
    bytes: AtomicU64,
    memory: AtomicU64,
    windows: AtomicU64,
    retries: AtomicU64,
    errors: AtomicU64,
}

/// Who is told of what was read.
type Told = Box<dyn FnOnce(Result<Vec<u8>, ReadFlashError>) + Send>;

/// What threads share.
struct Core {
    log: Log,
    cipher: Cipher,
    device: Box<dyn Device>,
    windows: Option<Windows>,
    reads: Reads,
}

/// The tier. All methods may be called from any thread.
pub struct Flash {
    core: Arc<Core>,
    writers: Vec<JoinHandle<()>>,
}

impl fmt::Debug for Flash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flash")
            .field("device", &self.core.device)
            .field("facts", &self.facts())
            .finish()
    }
}

impl Flash {
    /// An empty tier on `device`, whose contents are lost.
    ///
    /// # Errors
    /// See [`FlashError`].
    pub fn new(config: FlashConfig, device: Box<dyn Device>) -> Result<Flash, FlashError> {
        let FlashConfig { log, segment_bytes, buffers, .. } = config;
        let (bytes, least) = (device.bytes(), config.least_bytes());
        let shape = Shape { slot_bytes: segment_bytes, slots: 1, buffers };
        if !shape.is_sound() {
            return Err(FlashError::Config { segment_bytes, buffers });
        }
        if bytes < least {
            return Err(FlashError::TooSmall { bytes, least });
        }
        let slots = (bytes - HEAD_BYTES) / u64::from(segment_bytes);
        let slots = slots.min(u64::from(MAX_SLOTS)) as u32;
        let log = Log::new(log, Ledger::new(Shape { slots, ..shape })?);
        Flash::of(log, Cipher::new()?, device, config).map_err(FlashError::Thread)
    }

    /// Takes over what a predecessor, which has ended, left: it was made with such a `config`, of which segments and
    /// buffers are as they were. `named` are the objects that somebody names: handle and
    /// place. What nobody names is free. With it, the handles whose place cannot be true. On a device that has become
    /// shorter it takes nothing more, and what it has beyond the end cannot be read.
    ///
    /// # Errors
    /// See [`AdoptFlashError`]. Can be tried again.
    pub fn adopt(
        config: FlashConfig,
        left: FlashLeft,
        device: Box<dyn Device>,
        named: &[(u32, Place)],
    ) -> Result<(Flash, Vec<u32>), AdoptFlashError> {
        let [words, buffers, key] = left.fds;
        let cipher = Cipher::adopt(key)?;
        let (ledger, is_known) = Ledger::adopt(words, buffers)?;
        let (bytes, needed) = (device.bytes(), ledger.shape.at(ledger.shape.slots));
        let (log, lost) = Log::adopt(config.log, ledger, is_known, named)?;
        if bytes < needed {
            log.latch(format!("the device has {bytes} bytes, and had {needed}"));
        }
        let flash = Flash::of(log, cipher, device, config).map_err(AdoptFlashError::Thread)?;
        Ok((flash, lost))
    }

    fn of(
        log: Log,
        cipher: Cipher,
        device: Box<dyn Device>,
        FlashConfig { reads_ahead, writers, .. }: FlashConfig,
    ) -> io::Result<Flash> {
        let windows = (reads_ahead == ReadsAhead::IfUsed).then(Windows::new);
        let reads = Reads::default();
        let core = Arc::new(Core { log, cipher, device, windows, reads });
        let mut flash = Flash { core, writers: Vec::new() };
        for _ in 0..writers.max(1) {
            let core = Arc::clone(&flash.core);
            let named = std::thread::Builder::new().name("clew-flash-write".into());
            flash.writers.push(named.spawn(move || core.write_all())?);
        }
        Ok(flash)
    }

    /// Ledger, buffers and key, for a successor ([`FlashLeft`]); the device has a descriptor of its own.
    pub fn segments(&self) -> [BorrowedFd<'_>; 3] {
        let [words, buffers] = self.core.log.ledger().segments();
        [words.as_fd(), buffers.as_fd(), self.core.cipher.as_fd()]
    }

    /// Which of a store's logs it is.
    pub fn log(&self) -> LogId {
        self.core.log.id()
    }

    /// What it is on.
    pub fn device(&self) -> &dyn Device {
        &*self.core.device
    }

    /// Whether the key is in memory that the kernel keeps from itself.
    pub fn has_secret_memory(&self) -> bool {
        self.core.cipher.is_secret()
    }

    /// Stores `bytes`, which are encrypted in place, as the object of `handle`. It can be read from now on, and outlives
    /// this process if somebody names its place by then.
    ///
    /// # Errors
    /// See [`AppendError`].
    pub fn put(&self, handle: u32, bytes: &mut [u8]) -> Result<Place, AppendError> {
        self.core.append(Head::New, handle, bytes)
    }

    /// Asks for the object of `handle` at `place`. `told` is called once: before this returns, if its bytes are in
    /// memory or it is gone, or else from a thread of the tier, which must not be held up for long. `pressing` says that
    /// a program waits for it.
    pub fn read(
        &self,
        handle: u32,
        place: Place,
        pressing: bool,
        told: impl FnOnce(Result<Vec<u8>, ReadFlashError>) + Send + 'static,
    ) {
        self.core.read(handle, place, pressing, Box::new(told));
    }

    /// The object of `handle` at `place`, if its bytes are in memory. Waits for nothing; why there is none,
    /// [`Flash::read`] tells.
    pub fn read_here(&self, handle: u32, place: Place) -> Option<Vec<u8>> {
        match self.core.log.find(place) {
            Found::Moved => None,
            Found::Copy(bytes) => self.core.open_copy(handle, place, bytes),
            Found::OnDevice => {
                let bytes = self.core.of_windows(handle, place, false);
                self.core.read_over(place);
                bytes
            }
        }
    }

    /// As [`Flash::read`], and waits for it.
    ///
    /// # Errors
    /// See [`ReadFlashError`].
    pub fn read_now(&self, handle: u32, place: Place) -> Result<Vec<u8>, ReadFlashError> {
        let (tell, told) = std::sync::mpsc::sync_channel(1);
        self.read(handle, place, false, move |read| drop(tell.send(read)));
        let gone = ReadFlashError::Device { why: "its thread is gone".into() };
        told.recv().unwrap_or(Err(gone))
    }

    /// Nobody names `place` any more. Reads of it that are under way are told the bytes all the same.
    pub fn free(&self, place: Place) {
        self.core.log.free(place, &*self.core.device);
    }

    /// Objects of `len` bytes that it makes sense to have on their way together; one at least.
    pub fn room_at_a_time(&self, len: usize) -> usize {
        self.core.log.room_at_a_time(len)
    }

    /// Waits for `patience` at most until `count` objects of `len` bytes, or [`Flash::room_at_a_time`] of them, have
    /// room in buffers; false if they do not get it. Others may take it before they do.
    pub fn wait_for_room(&self, count: usize, len: usize, patience: Duration) -> bool {
        self.core.log.wait_for_room(count, len, Instant::now() + patience)
    }

    /// Has everything written that is in memory, and waits for it; false if it cannot be.
    pub fn flush(&self) -> bool {
        self.core.log.flush()
    }

    /// What it holds and did.
    pub fn facts(&self) -> FlashFacts {
        let (live_bytes, free_slots, in_use, counts, latched) = self.core.log.look();
        let Shape { slot_bytes, slots, .. } = self.core.log.ledger().shape;
        let reads = &self.core.reads;
        FlashFacts {
            capacity_bytes: u64::from(slot_bytes) * u64::from(slots),
            live_bytes,
            slots: u64::from(slots),
            free_slots: free_slots as u64,
            buffers_in_use: in_use as u64,
            appended_bytes: counts.appended_bytes,
            cleaned_bytes: counts.cleaned_bytes,
            written_bytes: counts.written_bytes,
            segments_written: counts.segments_written,
            segments_dropped: counts.segments_dropped,
            reads: reads.reads.load(Relaxed),
            read_bytes: reads.bytes.load(Relaxed),
            memory_reads: reads.memory.load(Relaxed),
            window_reads: reads.windows.load(Relaxed),
            retries: reads.retries.load(Relaxed),
            read_errors: reads.errors.load(Relaxed),
            latched,
        }
    }

    /// Panics unless `places` are all that lives.
    #[cfg(test)]
    pub(crate) fn check(&self, places: &[Place]) {
        self.core.log.check(places);
    }
}

impl Drop for Flash {
    fn drop(&mut self) {
        self.core.log.end();
        for writer in self.writers.drain(..) {
            let _ = writer.join();
        }
    }
}

impl Core {
    fn append(&self, head: Head, handle: u32, bytes: &mut [u8]) -> Result<Place, AppendError> {
        let reserved = self.log.reserve(head, handle, bytes.len())?;
        let tag = self.cipher.seal(handle, reserved.place, bytes);
        Ok(self.log.fill(reserved, bytes, tag))
    }

    /// Has segments written until the end.
    fn write_all(self: &Arc<Self>) {
        while let Some(segment) = self.log.next_to_write(&*self.device) {
            self.write(segment, 0);
        }
    }

    /// Has a segment written, of which the first `done` bytes are.
    fn write(self: &Arc<Self>, segment: ToWrite, mut done: usize) {
        let [_, buffers] = self.log.ledger().segments();
        let ToWrite { offset, len, at, .. } = segment;
        loop {
            // What was written in part is written again from the block that was begun.
            let from = self.begun(done);
            let core = Arc::clone(self);
            let told = move |wrote| {
                if let Some(done) = core.wrote(segment, done, wrote) {
                    core.write(segment, done);
                }
            };
            let write = Write {
                at: at + from as u64,
                from: buffers,
                offset: offset + from,
                len: len - from,
                told: Box::new(told),
            };
            let Some(wrote) = self.device.write(write) else { return };
            match self.wrote(segment, done, wrote) {
                Some(to) => done = to,
                None => return,
            }
        }
    }

    /// Where the block begins that is written in part when so many bytes are.
    fn begun(&self, done: usize) -> usize {
        done / self.device.align() * self.device.align()
    }

    /// How far a segment is written, of which the first `done` bytes were, if that is not the end of it.
    fn wrote(&self, segment: ToWrite, done: usize, wrote: io::Result<usize>) -> Option<usize> {
        let ToWrite { len, at, .. } = segment;
        let from = self.begun(done);
        let why = match wrote {
            Ok(wrote) if from + wrote == len => {
                self.log.wrote(segment, &*self.device);
                return None;
            }
            Ok(wrote) if from + wrote > done && from + wrote < len => return Some(from + wrote),
            Ok(wrote) => format!("{wrote} of {} bytes written", len - from),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Some(done),
            Err(error) => format!("{} bytes at {at}: {error}", len - from),
        };
        match self.log.id().donor() {
            // Meanwhile its bytes are in memory, and are read there.
            Some(_) => self.log.written_later(segment),
            None => self.log.not_written(segment, why),
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests;
