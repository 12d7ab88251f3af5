//! A device in memory that does what it is told to: fail, stop half-way, lie, be slow, answer out of order.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::flash::device::{Device, Read, Write};

/// What the device is to do, and what is on it. Outlives those who use it, as a device does.
#[derive(Debug, Default)]
pub struct Plan {
    pub bytes: Mutex<Vec<u8>>,
    /// Writes from now on that succeed; then there is this error, for ever.
    pub fail_writes: Mutex<Option<(u64, i32)>>,
    /// Bytes that one call writes at most; zero for no limit.
    pub short_writes: AtomicU64,
    /// Reads that fail, from now on.
    pub failing_reads: AtomicU64,
    /// Reads that give 16 bytes and no more, from now on.
    pub short_reads: AtomicU64,
    /// Reads in which a bit is wrong, from now on.
    pub lying_reads: AtomicU64,
    /// Reads that wait until they are told to go on; while this is none they are done at once.
    pub held_reads: Mutex<Option<Vec<Read>>>,
    /// Reads are told on threads of their own, in any order.
    pub is_slow: AtomicBool,
    pub writes: AtomicU64,
    /// Nothing is written while this is so.
    pub holds: Mutex<bool>,
    pub goes_on: Condvar,
}

impl Plan {
    pub fn new(bytes: usize) -> Arc<Plan> {
        Arc::new(Plan { bytes: Mutex::new(vec![0; bytes]), ..Plan::default() })
    }

    pub fn device(self: &Arc<Self>) -> Box<dyn Device> {
        Box::new(Faulty(Arc::clone(self)))
    }

    pub fn hold(&self, holds: bool) {
        *self.holds.lock() = holds;
        self.goes_on.notify_all();
    }

    /// Reads that are held: where, of how many bytes, and whether a program waits.
    pub fn held(&self) -> Vec<(u64, usize, bool)> {
        let what = |read: &Read| (read.at, read.into.bytes().len(), read.pressing);
        self.held_reads.lock().iter().flatten().map(what).collect()
    }

    /// Does the read that has been held the longest.
    pub fn read_next(self: &Arc<Self>) {
        let next = self.held_reads.lock().as_mut().map(|held| held.remove(0));
        next.into_iter().for_each(|read| Faulty(Arc::clone(self)).read_now(read));
    }

    fn takes_one(count: &AtomicU64) -> bool {
        count.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[derive(Debug)]
struct Faulty(Arc<Plan>);

impl Device for Faulty {
    fn bytes(&self) -> u64 {
        self.0.bytes.lock().len() as u64
    }

    fn write(&self, write: Write<'_>) -> Option<io::Result<usize>> {
        let plan = &self.0;
        let wrote = self.write_now(&write);
        if !plan.is_slow.load(Relaxed) {
            return Some(wrote);
        }
        let wait = Duration::from_micros(write.at / 4096 % 5 * 300);
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            (write.told)(wrote);
        });
        None
    }

    /// What nobody needs is not there any more.
    fn forget(&self, at: u64, len: usize) {
        let mut bytes = self.0.bytes.lock();
        bytes.iter_mut().skip(at as usize).take(len).for_each(|byte| *byte = 0xdd);
    }

    fn read(&self, read: Read) {
        if let Some(held) = self.0.held_reads.lock().as_mut() {
            return held.push(read);
        }
        self.read_now(read);
    }

    fn way(&self) -> &'static str {
        "memory"
    }
}

impl Faulty {
    fn read_now(&self, Read { at, mut into, told, .. }: Read) {
        let plan = &self.0;
        if Plan::takes_one(&plan.failing_reads) {
            return told(Err(io::Error::from_raw_os_error(libc::EIO)), into);
        }
        let bytes = plan.bytes.lock();
        let from = bytes.get(at as usize..).unwrap_or(&[]);
        let mut got = from.len().min(into.bytes().len());
        into.bytes_mut()[..got].copy_from_slice(&from[..got]);
        drop(bytes);
        if Plan::takes_one(&plan.short_reads) {
            got = got.min(16);
            into.bytes_mut()[got..].fill(0);
        }
        if Plan::takes_one(&plan.lying_reads) {
            into.bytes_mut()[..got].iter_mut().for_each(|byte| *byte ^= 4);
        }
        if !plan.is_slow.load(Relaxed) {
            return told(Ok(got), into);
        }
        let wait = Duration::from_micros(at / 4096 % 7 * 300);
        std::thread::spawn(move || {
            std::thread::sleep(wait);
            told(Ok(got), into);
        });
    }

    fn write_now(&self, write: &Write<'_>) -> io::Result<usize> {
        let plan = &self.0;
        let &Write { at, from, offset, len, .. } = write;
        let mut holds = plan.holds.lock();
        while *holds {
            plan.goes_on.wait(&mut holds);
        }
        drop(holds);
        if let Some((left, error)) = plan.fail_writes.lock().as_mut() {
            *left = left.checked_sub(1).ok_or_else(|| io::Error::from_raw_os_error(*error))?;
        }
        let len = match plan.short_writes.load(Relaxed) as usize {
            0 => len,
            most => len.min(most),
        };
        let mut bytes = plan.bytes.lock();
        let at = at as usize;
        let to = bytes.get_mut(at..at + len).ok_or(io::ErrorKind::InvalidInput)?;
        from.read_at(offset, to).map_err(io::Error::other)?;
        plan.writes.fetch_add(1, Relaxed);
        Ok(len)
    }
}
