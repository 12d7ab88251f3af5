//! Reads by io_uring: begun by whoever asks, ended by one thread, which waits in the kernel for whatever is over
//! first.
//!
//! The lock keeps who submits apart from who submits; the thread alone takes what is over. The memory of a read belongs to
//! its record in `under_way` until the kernel has said that it is over.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::Mutex;

use super::device::Read;

/// Reads that the kernel has at a time; further ones wait here.
const DEPTH: usize = 64;
/// Ends the thread.
const END: u64 = u64::MAX;
/// Wait for what is over.
const IORING_ENTER_GETEVENTS: u32 = 1;
/// Before the kernel is asked again.
const A_MOMENT: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct Asked {
    under_way: HashMap<u64, Read>,
    waiting: VecDeque<Read>,
    next: u64,
}

struct Shared {
    ring: IoUring,
    file: Arc<File>,
    /// Whoever submits a read would wait for it: one of the kernel's own threads does.
    waits: bool,
    asked: Mutex<Asked>,
}

/// The ring and its thread.
pub(super) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ring({} under way)", self.shared.asked.lock().under_way.len())
    }
}

impl Ring {
    pub fn new(file: Arc<File>) -> io::Result<Ring> {
        // One more than reads: the word that ends the thread.
        let ring = IoUring::builder().dontfork().build(2 * DEPTH as u32)?;
        let waits = is_of_a_program(&file);
        let shared = Arc::new(Shared { ring, file, waits, asked: Mutex::default() });
        let of_thread = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("clew-flash-ring".into());
        let thread = named.spawn(move || of_thread.serve())?;
        Ok(Ring { shared, thread: Some(thread) })
    }

    pub fn read(&self, read: Read) {
        let mut asked = self.shared.asked.lock();
        asked.waiting.push_back(read);
        let refused = self.shared.submit(&mut asked);
        drop(asked);
        tell(refused);
    }
}

/// Whether a file is of a file system that a program serves (FUSE): the kernel asks it while the read is submitted.
fn is_of_a_program(file: &File) -> bool {
    // FUSE_SUPER_MAGIC of the kernel's `fs/fuse/inode.c`.
    const FUSE: u32 = 0x6573_5546;
    rustix::fs::fstatfs(file).is_ok_and(|of| of.f_type as u32 == FUSE)
}

/// Reads that the kernel would not begin.
fn tell(refused: Vec<(Read, io::Error)>) {
    for (Read { into, told, .. }, error) in refused {
        told(Err(error), into);
    }
}

impl Shared {
    /// Gives the kernel what waits, as far as there is room. Answers what it refused.
    fn submit(&self, asked: &mut Asked) -> Vec<(Read, io::Error)> {
        let mut refused = Vec::new();
        while asked.under_way.len() < DEPTH
            && let Some(mut read) = asked.waiting.pop_front()
        {
            let id = asked.next;
            asked.next += 1;
            let (fd, at) = (types::Fd(self.file.as_raw_fd()), read.at);
            let bytes = read.into.bytes_mut();
            let entry = opcode::Read::new(fd, bytes.as_mut_ptr(), bytes.len() as u32).offset(at);
            let flags = if self.waits { squeue::Flags::ASYNC } else { squeue::Flags::empty() };
            let entry = entry.build().user_data(id).flags(flags);
            asked.under_way.insert(id, read);
            if let Err(error) = self.push(&entry)
                && let Some(mut read) = asked.under_way.remove(&id)
            {
                // The entry may stay in the ring and be begun later: its memory is the kernel's.
                std::mem::forget(std::mem::take(&mut read.into));
                refused.push((read, error));
            }
        }
        refused
    }

    /// One entry more for the kernel; the caller holds the lock.
    fn push(&self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the lock keeps others away from this side of the ring. The memory that the entry names is
        // in `under_way` until it is over, and blocks do not move with their owner.
        let pushed = unsafe { self.ring.submission_shared().push(entry) };
        // Never: the ring has twice as many entries as there are reads, and none stays in it.
        pushed.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        loop {
            match self.ring.submit() {
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // The kernel is out of memory for the moment.
                    Some(libc::EAGAIN | libc::EBUSY) => std::thread::sleep(A_MOMENT),
                    _ => return Err(error),
                },
            }
        }
    }

    fn serve(&self) {
        let (mut ends, mut over) = (false, Vec::new());
        loop {
            // SAFETY: no argument; it waits for one that is over and submits nothing.
            let waited =
                unsafe { self.ring.submitter().enter::<()>(0, 1, IORING_ENTER_GETEVENTS, None) };
            if waited.is_err_and(|error| error.raw_os_error() != Some(libc::EINTR)) {
                std::thread::sleep(A_MOMENT);
            }
            let mut asked = self.asked.lock();
            // SAFETY: only this thread takes from this side.
            for entry in unsafe { self.ring.completion_shared() } {
                ends |= entry.user_data() == END;
                let result = match entry.result() {
                    error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
                    got => Ok(got as usize),
                };
                over.extend(asked.under_way.remove(&entry.user_data()).map(|r| (r, result)));
            }
            let refused = self.submit(&mut asked);
            let is_idle = asked.under_way.is_empty();
            drop(asked);
            tell(refused);
            for (Read { into, told, .. }, result) in over.drain(..) {
                told(result, into);
            }
            if ends && is_idle {
                return;
            }
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        let entry = opcode::Nop::new().build().user_data(END);
        let pushed = {
            let _asked = self.shared.asked.lock();
            self.shared.push(&entry)
        };
        // The last owner may be a read that was told: then the thread ends by itself.
        if pushed.is_ok() && thread.thread().id() != std::thread::current().id() {
            let _ = thread.join();
        }
    }
}
