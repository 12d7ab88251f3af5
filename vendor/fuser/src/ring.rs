//! Requests by io_uring (`FUSE_OVER_IO_URING`, Linux 6.14), beside those by `/dev/fuse`.
//!
//! Each CPU has a queue, and each queue some threads that run on that CPU: who asks is answered where it runs, and no
//! other CPU is woken. A thread has a ring of its own, with one *slot* in it that the kernel fills with a request; the answer goes
//! back in the same slot. A slot whose answer comes later, from another thread, is not the kernel's until then, so one more is
//! made: a request is never kept from the thread by others that wait.
//!
//! Who owns a slot's memory: the kernel, from where it is handed in until its completion; then the ring's thread, until it
//! has copied the request out; then whoever answers, until its number is in `answered`.

use std::cell::UnsafeCell;
use std::fmt;
use std::fs::File;
use std::io;
use std::io::IoSlice;
use std::io::Read;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::thread::ThreadId;

use io_uring::IoUring;
use io_uring::cqueue;
use io_uring::opcode;
use io_uring::squeue;
use io_uring::types::Fd;
use log::debug;
use parking_lot::Mutex;

use crate::Filesystem;
use crate::ReplyEmpty;
use crate::channel::ChannelSender;
use crate::ll::Operation;
use crate::ll::fuse_abi as abi;
use crate::request::RequestWithSender;
use crate::session::SessionEventLoop;

/// What the kernel may ask for or be told at once, beyond `max_write`: 256 pages.
const LEAST_PAYLOAD: usize = 1 << 20;
/// Bytes of either header.
const HEADER: usize = 128;
/// Entries of a ring's queue of submissions. What does not fit is handed in first.
const SUBMISSIONS: u32 = 16;
/// Slots of one thread: more answers than these cannot be late at once.
const MOST_SLOTS: usize = 1 << 16;
/// Threads of all CPUs together, where that is one a CPU at least.
const MOST_THREADS: usize = 128;
/// The completion that says that somebody has answered.
const BELL: u64 = u64::MAX;
/// Commands of `/dev/fuse`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// `struct fuse_uring_req_header`.
#[repr(C)]
struct Headers {
    in_out: [u8; HEADER],
    op_in: [u8; HEADER],
    flags: u64,
    commit_id: u64,
    payload_bytes: u32,
    padding: u32,
    reserved: u64,
}

struct Slot {
    headers: UnsafeCell<Headers>,
    payload: UnsafeCell<Vec<u8>>,
    /// Of these two, for the kernel.
    vectors: UnsafeCell<[libc::iovec; 2]>,
}

// SAFETY: it has one owner at a time, as the head of this file says.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    fn new(payload_bytes: usize) -> Arc<Slot> {
        // SAFETY: zeros are valid headers.
        let headers = unsafe { std::mem::zeroed() };
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let slot = Arc::new(Slot {
            headers: UnsafeCell::new(headers),
            payload: UnsafeCell::new(vec![0; payload_bytes]),
            vectors: UnsafeCell::new([none; 2]),
        });
        // SAFETY: nobody else has it yet; headers and payload stay where they are as long as it lives.
        unsafe {
            *slot.vectors.get() = [
                libc::iovec { iov_base: slot.headers.get().cast(), iov_len: size_of::<Headers>() },
                libc::iovec { iov_base: (*slot.payload.get()).as_mut_ptr().cast(), iov_len: payload_bytes },
            ];
        }
        slot
    }
}

/// Slots that can go back to the kernel, and how its thread hears of that.
struct Answered {
    numbers: Mutex<Vec<usize>>,
    bell: Arc<File>,
    thread: ThreadId,
}

/// Answers the request in one slot.
#[derive(Clone)]
pub(crate) struct RingSender {
    slot: Arc<Slot>,
    number: usize,
    answered: Arc<Answered>,
    /// For what is no answer.
    pub(crate) channel: ChannelSender,
}

impl fmt::Debug for RingSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingSender").field("number", &self.number).finish_non_exhaustive()
    }
}

impl RingSender {
    /// The answer: a `fuse_out_header`, and what follows it. Once.
    pub(crate) fn send(&self, data: &[IoSlice<'_>]) -> io::Result<()> {
        const OUT: usize = size_of::<abi::fuse_out_header>();
        let total: usize = data.iter().map(|part| part.len()).sum();
        // SAFETY: whoever answers owns the slot, and there is one answer to a request.
        let fits = unsafe {
            let (headers, payload) = (&mut *self.slot.headers.get(), &mut *self.slot.payload.get());
            let fits = (OUT..=OUT + payload.len()).contains(&total);
            let mut at = 0;
            for part in data.iter().take_while(|_| fits) {
                let (of_header, rest) = part.split_at(part.len().min(OUT.saturating_sub(at)));
                headers.in_out[at.min(OUT)..][..of_header.len()].copy_from_slice(of_header);
                at += part.len();
                payload[at.saturating_sub(OUT + rest.len())..][..rest.len()].copy_from_slice(rest);
            }
            if !fits {
                // An error has nothing else, and the request's number is where an answer has it.
                headers.in_out[..4].copy_from_slice(&(OUT as u32).to_ne_bytes());
                headers.in_out[4..8].copy_from_slice(&(-libc::EIO).to_ne_bytes());
            }
            headers.payload_bytes = if fits { (total - OUT) as u32 } else { 0 };
            fits
        };
        self.answered.numbers.lock().push(self.number);
        if self.answered.thread != std::thread::current().id() {
            (&*self.answered.bell).write_all(&1u64.to_ne_bytes())?;
        }
        match fits {
            true => Ok(()),
            false => Err(io::Error::other("an answer that does not fit")),
        }
    }
}

/// One thread's ring, made and not yet begun.
///
/// The kernel may fill slots as long as there is the ring: so it is given up first, as fields are in their order.
pub(crate) struct Ring {
    uring: Uring,
    slots: Vec<Arc<Slot>>,
    bell: Arc<File>,
    cpu: usize,
    payload_bytes: usize,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

/// Makes so many rings a CPU, or fewer where CPUs are many: of all that there may ever be, as the kernel waits until each has one.
///
/// # Errors
/// If the system gives none, or does not say how many CPUs there may be.
pub(crate) fn prepare(threads_a_cpu: usize, max_write: usize) -> io::Result<Vec<Ring>> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = possible.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<usize>().ok());
    let last = last.ok_or_else(|| io::Error::other("nobody says how many CPUs there may be"))?;
    let ring = |cpu: usize| {
        let uring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(SUBMISSIONS)?;
        // SAFETY: the call takes numbers, and the descriptor is nobody else's.
        let bell = unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                -1 => return Err(io::Error::last_os_error()),
                fd => Arc::new(File::from_raw_fd(fd)),
            }
        };
        let payload_bytes = max_write.max(LEAST_PAYLOAD);
        Ok(Ring { uring, slots: Vec::new(), bell, cpu, payload_bytes })
    };
    let each = (MOST_THREADS / (last + 1)).clamp(1, threads_a_cpu);
    (0..=last).flat_map(|cpu| std::iter::repeat_n(cpu, each)).map(ring).collect()
}

impl Ring {
    /// Answers requests until the file system ends. The process ends if the kernel refuses what it has offered.
    pub(crate) fn serve<FS: Filesystem>(self, events: &SessionEventLoop<FS>) {
        let _whatever_happens = Ends;
        self.answer(events).unwrap_or_else(|error| is_lost(&error));
    }

    fn answer<FS: Filesystem>(mut self, events: &SessionEventLoop<FS>) -> io::Result<()> {
        pin(self.cpu);
        self.uring.submitter().register_enable_rings()?;
        let (bell, thread) = (self.bell.clone(), std::thread::current().id());
        let answered = Arc::new(Answered { numbers: Mutex::default(), bell, thread });
        let device = events.ch.raw();
        // Words, so that a request is aligned.
        let mut request = vec![0u64; (2 * HEADER + self.payload_bytes).div_ceil(8)];
        let (mut of_the_kernel, mut is_bell_armed) = (0usize, false);
        let mut completed = Vec::new();
        loop {
            if !is_bell_armed {
                let poll = opcode::PollAdd::new(Fd(answered.bell.as_raw_fd()), libc::POLLIN as u32);
                self.hand_in(squeue::Entry128::from(poll.build().user_data(BELL)))?;
                is_bell_armed = true;
            }
            let numbers = std::mem::take(&mut *answered.numbers.lock());
            for number in numbers {
                // SAFETY: it was answered, so it is this thread's again.
                let id = unsafe { (*self.slots[number].headers.get()).commit_id };
                self.hand_in(command(device, COMMIT_AND_FETCH, self.cpu, id, number, None))?;
                of_the_kernel += 1;
            }
            if of_the_kernel == 0 && self.slots.len() < MOST_SLOTS {
                let (slot, number) = (Slot::new(self.payload_bytes), self.slots.len());
                let vectors = slot.vectors.get() as u64;
                self.slots.push(slot);
                self.hand_in(command(device, REGISTER, self.cpu, 0, number, Some(vectors)))?;
                of_the_kernel += 1;
            }
            match self.uring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => drop(done?),
            }
            completed.extend(self.uring.completion().map(|entry| (entry.user_data(), entry.result())));
            for (number, result) in completed.drain(..) {
                if number == BELL {
                    is_bell_armed = false;
                    let _ = (&*answered.bell).read(&mut [0; 8]);
                    continue;
                }
                match result {
                    0.. => {}
                    // The file system has ended.
                    gone if [-libc::ENOTCONN, -libc::ECANCELED, -libc::ENODEV].contains(&gone) => return Ok(()),
                    other => return Err(io::Error::from_raw_os_error(-other)),
                }
                of_the_kernel -= 1;
                let number = number as usize;
                let sender = RingSender {
                    slot: self.slots[number].clone(),
                    number,
                    answered: answered.clone(),
                    channel: events.ch.sender(),
                };
                let bytes = take(&self.slots[number], &mut request)?;
                let Some(request) = RequestWithSender::of_ring(sender, bytes) else {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "Invalid request"));
                };
                match request.request.operation() {
                    Ok(Operation::Destroy(_)) => request.reply::<ReplyEmpty>().ok(),
                    _ => request.dispatch(events),
                }
            }
        }
    }

    /// The queue may be full: what is in it goes first.
    fn hand_in(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        loop {
            // SAFETY: what the entry points to lives longer than the ring.
            if unsafe { self.uring.submission().push(&entry) }.is_ok() {
                return Ok(());
            }
            match self.uring.submit() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => drop(done?),
            }
        }
    }
}

/// The request in a slot, as `/dev/fuse` would give it.
fn take<'a>(slot: &Slot, request: &'a mut [u64]) -> io::Result<&'a [u8]> {
    const IN: usize = size_of::<abi::fuse_in_header>();
    // SAFETY: it was completed, and nobody has it but this thread. Any bytes are words.
    let (headers, payload, request) = unsafe {
        let bytes = size_of_val(request);
        let request = std::slice::from_raw_parts_mut(request.as_mut_ptr().cast::<u8>(), bytes);
        (&*slot.headers.get(), &*slot.payload.get(), request)
    };
    let of_all = u32::from_ne_bytes(headers.in_out[..4].try_into().expect("four bytes")) as usize;
    let of_payload = headers.payload_bytes as usize;
    let of_op = of_all.checked_sub(IN + of_payload).filter(|of_op| *of_op <= HEADER);
    let (Some(of_op), true) = (of_op, of_payload <= payload.len()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a request of impossible lengths"));
    };
    request[..IN].copy_from_slice(&headers.in_out[..IN]);
    request[IN..IN + of_op].copy_from_slice(&headers.op_in[..of_op]);
    request[IN + of_op..of_all].copy_from_slice(&payload[..of_payload]);
    Ok(&request[..of_all])
}

/// A command of `/dev/fuse` about one slot, with its `struct fuse_uring_cmd_req`.
fn command(
    device: RawFd,
    operation: u32,
    cpu: usize,
    commit_id: u64,
    number: usize,
    vectors: Option<u64>,
) -> squeue::Entry128 {
    let mut words = [0u8; 80];
    words[8..16].copy_from_slice(&commit_id.to_ne_bytes());
    words[16..18].copy_from_slice(&(cpu as u16).to_ne_bytes());
    let command = opcode::UringCmd80::new(Fd(device), operation).cmd(words).addr(vectors);
    let mut entry = command.build().user_data(number as u64);
    if vectors.is_some() {
        // The length of `addr`, which the crate has no word for: at byte 24 of `struct io_uring_sqe`.
        // SAFETY: an entry is one, of 128 bytes.
        unsafe { (&raw mut entry).cast::<u32>().add(6).write(2) };
    }
    entry
}

/// Where that is not allowed the thread runs anywhere, and is only slower.
fn pin(cpu: usize) {
    // SAFETY: a set of zeros is valid, and lives across the call.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu < libc::CPU_SETSIZE as usize {
            libc::CPU_SET(cpu, &mut set);
        }
        libc::sched_setaffinity(0, size_of_val(&set), &set)
    };
    if done != 0 {
        debug!("a thread for CPU {cpu} runs anywhere: {}", io::Error::last_os_error());
    }
}

/// A thread that panics has a request which nobody answers.
struct Ends;

impl Drop for Ends {
    fn drop(&mut self) {
        if std::thread::panicking() {
            is_lost(&io::Error::other("a thread has panicked"));
        }
    }
}

/// Nobody answers the requests of a CPU any more: who made them would wait for ever, so the process ends, and the kernel
/// tells them.
pub(crate) fn is_lost(error: &io::Error) -> ! {
    eprintln!("fuser: requests by io_uring cannot be answered any more: {error}");
    std::process::abort()
}
