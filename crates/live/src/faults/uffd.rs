//! userfaultfd, as thin as it gets. The structures are the kernel's (include/uapi/linux/
//! userfaultfd.h, Linux 6.18); Debian's headers are older than half of them.
//!
//! An agent has the same open file as the daemon, and what it does to it is done to the daemon: it can
//! clear O_NONBLOCK at any moment, and read messages away. Where the kernel can be told with the call
//! not to wait (RWF_NOWAIT) neither matters to the one who reads. It cannot for descriptors that it
//! made itself, for forked children: there a read waits if the flag was cleared and nothing, or nothing
//! any more, is to be read. Such a read is interrupted within 10 ms, and is made four times at most.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::agents::closer::Foreign;
use crate::faults::interrupter::Interrupter;

/// Features of `UFFDIO_API`.
pub mod feature {
    pub const EVENT_FORK: u64 = 1 << 1;
    pub const EVENT_REMAP: u64 = 1 << 2;
    pub const EVENT_REMOVE: u64 = 1 << 3;
    pub const EVENT_UNMAP: u64 = 1 << 6;
    pub const THREAD_ID: u64 = 1 << 8;
    pub const WP_UNPOPULATED: u64 = 1 << 13;
    pub const POISON: u64 = 1 << 14;
    pub const MOVE: u64 = 1 << 16;
}

/// What the daemon asks of every descriptor. EVENT_FORK needs CAP_SYS_PTRACE in the caller.
pub const FEATURES: u64 = feature::EVENT_REMAP
    | feature::EVENT_REMOVE
    | feature::EVENT_UNMAP
    | feature::THREAD_ID
    | feature::WP_UNPOPULATED
    | feature::POISON
    | feature::MOVE;

const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const UNREGISTER: u64 = 0x8010_aa01;
const WAKE: u64 = 0x8010_aa02;
const COPY: u64 = 0xc028_aa03;
const ZEROPAGE: u64 = 0xc020_aa04;
const WRITEPROTECT: u64 = 0xc018_aa06;
const CONTINUE: u64 = 0xc020_aa07;
const POISON: u64 = 0xc020_aa08;
const IOC_NEW: u64 = 0xaa00;

/// In the flags of a fault: the page is there and may not be written.
const FLAG_WP: u64 = 1 << 1;

#[repr(C)]
struct ApiArg {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct Range {
    start: u64,
    len: u64,
}

#[repr(C)]
struct RegisterArg {
    range: Range,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct CopyArg {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

#[repr(C)]
struct ProtectArg {
    range: Range,
    mode: u64,
}

#[repr(C)]
struct ZeroArg {
    range: Range,
    mode: u64,
    done: i64,
}

/// mmap_min_addr at its largest: of addresses below nothing is said but that they are.
const LEAST_ADDRESS: u64 = 1 << 16;

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A thread waits for the page at `addr`, or to write to it if it is there and has a mark, which is for pages that are
    /// not.
    Fault { addr: u64, tid: u32, is_marked: bool },
    /// The program forked; the number of the child's descriptor in the table of who read this.
    Fork { child: RawFd },
    /// mremap moved `len` bytes.
    Remap { from: u64, to: u64, len: u64 },
    /// madvise gave the range up.
    Remove { start: u64, end: u64 },
    /// munmap, or the end of a mapping by other means.
    Unmap { start: u64, end: u64 },
}

impl Message {
    /// A message as the kernel writes it (`struct uffd_msg`); `None` for events not asked for.
    pub fn parse([kind, a, b, c]: [u64; 4]) -> Option<Message> {
        Some(match kind as u8 {
            0x12 => Message::Fault { addr: b, tid: c as u32, is_marked: a & FLAG_WP != 0 },
            0x13 => Message::Fork { child: a as u32 as RawFd },
            0x14 => Message::Remap { from: a, to: b, len: c },
            0x15 => Message::Remove { start: a, end: b },
            0x16 => Message::Unmap { start: a, end: b },
            _ => return None,
        })
    }
}

/// Result of [`Uffd::copy`] and its like: bytes done before the error, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Bytes done.
    pub bytes: u64,
    /// Errno that stopped it, 0 if it went through.
    pub errno: i32,
}

/// A userfaultfd of some program's memory.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
    /// See [`Uffd::asks_about`].
    asked_about: AtomicU64,
}

impl AsRawFd for Uffd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Uffd {
    /// Takes a descriptor that a program opened.
    pub fn new(fd: OwnedFd) -> Uffd {
        let uffd = Uffd { fd, asked_about: AtomicU64::new(LEAST_ADDRESS) };
        uffd.set_nonblocking();
        uffd
    }

    /// Takes what an agent says is one; `None` if it is something else. Another file could take our
    /// calls for its own, or never answer them (FUSE).
    pub fn of_agent(fd: Foreign) -> Option<Uffd> {
        let is = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()?;
        (is.as_os_str() == "anon_inode:[userfaultfd]").then(|| Uffd::new(fd.into_known()))
    }

    /// Sets O_NONBLOCK, which its agent can clear. Who polls a descriptor without is told of an error
    /// all the time.
    pub fn set_nonblocking(&self) {
        // SAFETY: takes numbers only.
        unsafe { libc::fcntl(self.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    }

    fn is_nonblocking(&self) -> bool {
        // SAFETY: takes numbers only.
        unsafe { libc::fcntl(self.as_raw_fd(), libc::F_GETFL) & libc::O_NONBLOCK != 0 }
    }

    /// Opens one for this process (measurements, tests, `doctor`).
    pub fn open_own() -> io::Result<Uffd> {
        // SAFETY: takes flags only; the result is checked and owned by nobody else.
        unsafe {
            let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
            let mut fd = libc::syscall(libc::SYS_userfaultfd, flags) as i32;
            if fd < 0 {
                let device = std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open("/dev/userfaultfd")
                    .map_err(|_| io::Error::last_os_error())?;
                fd = libc::ioctl(device.as_raw_fd(), IOC_NEW, flags);
            }
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Uffd::new(OwnedFd::from_raw_fd(fd)))
        }
    }

    /// Agrees on features; fails with EINVAL where the kernel lacks one, EPERM where the caller may
    /// not have EVENT_FORK.
    pub fn api(&self, features: u64) -> io::Result<()> {
        let mut arg = ApiArg { api: 0xaa, features, ioctls: 0 };
        self.ioctl(API, &mut arg)
    }

    /// Missing pages of the range are reported from now on, and pages that leave it can be marked.
    pub fn register(&self, start: u64, len: u64) -> io::Result<()> {
        const MODE_MISSING: u64 = 1;
        const MODE_WP: u64 = 2;
        let range = Range { start, len };
        let mode = MODE_MISSING | MODE_WP;
        self.ioctl(REGISTER, &mut RegisterArg { range, mode, ioctls: 0 })
    }

    /// The end of [`Uffd::register`]; wakes who waits.
    pub fn unregister(&self, start: u64, len: u64) -> io::Result<()> {
        self.ioctl(UNREGISTER, &mut Range { start, len })
    }

    /// Wakes who waits for the range.
    pub fn wake(&self, start: u64, len: u64) -> io::Result<()> {
        self.ioctl(WAKE, &mut Range { start, len })
    }

    /// Wakes everybody who waits for a page, wherever that is.
    pub fn wake_all(&self) {
        // To the end of what 47 bits can name, less the last page.
        const END: u64 = (1 << 47) - 4096;
        // A range that begins below mmap_min_addr is refused; that is 64 KiB at most.
        let firsts = std::iter::once(0).chain((12..=16).map(|bits| 1 << bits));
        let _ = firsts.into_iter().any(|first| self.wake(first, END - first).is_ok());
    }

    /// Puts `bytes` (whole pages) at `dst` and wakes who waits there.
    pub fn copy(&self, dst: u64, bytes: &[u8]) -> Partial {
        let mut arg = CopyArg {
            dst,
            src: bytes.as_ptr() as u64,
            len: bytes.len() as u64,
            mode: 0,
            copied: 0,
        };
        let result = self.ioctl(COPY, &mut arg);
        partial(result, arg.copied, bytes.len() as u64)
    }

    /// Whether one registered mapping of private memory covers all of the range; `None` while
    /// mappings are changing, or if the kernel does not say. Changes and allocates nothing.
    pub fn covers(&self, start: u64, len: u64) -> Option<bool> {
        // Only shared memory can be continued, which the kernel says after it has found the mapping.
        let mut arg = ZeroArg { range: Range { start, len }, mode: 0, done: 0 };
        match self.ioctl(CONTINUE, &mut arg).map_err(|e| e.raw_os_error()) {
            Err(Some(libc::ENOENT)) => Some(false),
            Err(Some(libc::EINVAL)) => Some(true),
            _ => None,
        }
    }

    /// As [`Uffd::copy`], zeros.
    pub fn zero(&self, start: u64, len: u64) -> Partial {
        self.put_nothing(ZEROPAGE, start, len)
    }

    /// Whoever touches the page gets SIGBUS, as for memory that failed.
    pub fn poison(&self, start: u64, len: u64) -> Partial {
        self.put_nothing(POISON, start, len)
    }

    /// Puts what has no bytes. To the kernel a mark is something, so where there is one it goes first.
    fn put_nothing(&self, request: u64, start: u64, len: u64) -> Partial {
        let put = |start: u64, len: u64| {
            let mut arg = ZeroArg { range: Range { start, len }, mode: 0, done: 0 };
            let result = self.ioctl(request, &mut arg);
            partial(result, arg.done, len)
        };
        let first = put(start, len);
        if first.errno != libc::EEXIST {
            return first;
        }
        let (rest, left) = (start + first.bytes, len - first.bytes);
        match self.unmark(rest, left, false).map_err(|error| error.raw_os_error()) {
            Ok(()) => {
                let second = put(rest, left);
                Partial { bytes: first.bytes + second.bytes, ..second }
            }
            Err(Some(libc::EAGAIN)) => Partial { errno: libc::EAGAIN, ..first },
            Err(_) => first,
        }
    }

    /// Takes the marks of the range away. `wakes` those who wait there, too.
    pub fn unmark(&self, start: u64, len: u64, wakes: bool) -> io::Result<()> {
        const DONT_WAKE: u64 = 2;
        let mode = if wakes { 0 } else { DONT_WAKE };
        self.ioctl(WRITEPROTECT, &mut ProtectArg { range: Range { start, len }, mode })
    }

    /// Marks the range, as an agent does where pages were that it took out.
    #[cfg(test)]
    pub fn mark(&self, start: u64, len: u64) -> io::Result<()> {
        self.ioctl(WRITEPROTECT, &mut ProtectArg { range: Range { start, len }, mode: 1 })
    }

    /// Whether the memory it belongs to still exists (some process runs in it).
    pub fn is_alive(&self) -> bool {
        self.asked() != Some(libc::ESRCH)
    }

    /// Whether an event is unread or about to be posted: mappings are not what the events read so
    /// far say.
    pub fn is_changing(&self) -> bool {
        self.asked() == Some(libc::EAGAIN)
    }

    /// Page by which it is asked from now on whether the memory is there and changing: one of a private mapping that has
    /// pages. Then the kernel needs that mapping's lock and not that of all of the memory, which may be locked for long.
    pub fn asks_about(&self, page: u64) {
        self.asked_about.store(page, Ordering::Relaxed);
    }

    /// Why nothing is put. A program can have memory at any address above mmap_min_addr, so this asks for what can be
    /// done to hardly any of it: only shared memory can be continued, and that is there then.
    fn asked(&self) -> Option<i32> {
        let start = self.asked_about.load(Ordering::Relaxed);
        let mut arg = ZeroArg { range: Range { start, len: 4096 }, mode: 0, done: 0 };
        self.ioctl(CONTINUE, &mut arg).err().and_then(|error| error.raw_os_error())
    }

    /// Reads at most `most` messages to `to`; how many. Waits for none, and for less than 50 ms if
    /// its agent wants it to.
    ///
    /// # Errors
    /// TimedOut if its agent made it wait: it can have read messages away, too. Else those of the
    /// system.
    ///
    /// # Safety
    /// `to` is valid for writing `most` messages of 32 bytes.
    pub unsafe fn read_to(
        &self,
        to: *mut u8,
        most: usize,
        interrupter: &mut Interrupter,
    ) -> io::Result<usize> {
        const MESSAGE_BYTES: usize = 32;
        let part = libc::iovec { iov_base: to.cast(), iov_len: most * MESSAGE_BYTES };
        let result = |n: isize| match n {
            n if n < 0 => Err(io::Error::last_os_error()),
            n => Ok(n as usize / MESSAGE_BYTES),
        };
        // SAFETY: as the caller says; messages are plain numbers.
        let mut read =
            result(unsafe { libc::preadv2(self.as_raw_fd(), &part, 1, -1, libc::RWF_NOWAIT) });
        if errno(&read) == Some(libc::EOPNOTSUPP) {
            // Interrupted once, on a busy machine, also where nobody made it wait.
            for _ in 0..4 {
                read = interrupter.within(|| {
                    // SAFETY: as above.
                    result(unsafe { libc::read(self.as_raw_fd(), part.iov_base, part.iov_len) })
                })?;
                if errno(&read) != Some(libc::EINTR) {
                    break;
                }
                if !self.is_nonblocking() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            if errno(&read) == Some(libc::EINTR) {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        match errno(&read) {
            Some(libc::EAGAIN) | Some(libc::EINTR) => Ok(0),
            _ => read,
        }
    }

    /// Reads the addresses of faults, for measurements on memory of this process.
    pub fn read_faults(&self) -> io::Result<Vec<u64>> {
        const N: usize = 16;
        let mut raw = [[0u64; 4]; N];
        // SAFETY: the buffer holds N messages.
        let n = unsafe { self.read_to(raw.as_mut_ptr().cast(), N, &mut Interrupter::default())? };
        let address = |m: &[u64; 4]| match Message::parse(*m) {
            Some(Message::Fault { addr, .. }) => Some(addr),
            _ => None,
        };
        Ok(raw[..n].iter().filter_map(address).collect())
    }

    fn ioctl<T>(&self, request: u64, arg: &mut T) -> io::Result<()> {
        // SAFETY: `arg` is the structure that `request` names, by construction of the callers; what
        // COPY reads is a slice that lives across the call.
        let result = unsafe { libc::ioctl(self.as_raw_fd(), request, std::ptr::from_mut(arg)) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn errno<T>(result: &io::Result<T>) -> Option<i32> {
    result.as_ref().err().and_then(io::Error::raw_os_error)
}

fn partial(result: io::Result<()>, done: i64, len: u64) -> Partial {
    match result {
        Ok(()) => Partial { bytes: len, errno: 0 },
        Err(e) => {
            // A negative count is the error itself.
            let bytes = u64::try_from(done).unwrap_or(0);
            Partial { bytes, errno: e.raw_os_error().unwrap_or(libc::EIO) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skip;

    #[test]
    fn only_userfaultfds_are_taken() {
        let Ok(uffd) = Uffd::open_own() else {
            return skip("only_userfaultfds_are_taken", "no userfaultfd");
        };
        assert!(Uffd::of_agent(uffd.fd.into()).is_some());
        let file = std::fs::File::open("/proc/self/stat").expect("a file");
        let (pipe, _) = std::io::pipe().expect("a pipe");
        for other in [OwnedFd::from(file), OwnedFd::from(pipe)] {
            assert!(Uffd::of_agent(other.into()).is_none());
        }
    }

    #[test]
    fn mappings_are_found_without_putting_anything_there() {
        let Ok(uffd) = Uffd::open_own() else {
            skip("uffd::mappings_are_found_without_putting_anything_there", "no userfaultfd");
            return;
        };
        uffd.api(FEATURES).expect("the features");
        // SAFETY: a fresh mapping of our own, of which only the first page is touched, once there.
        unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), 3 * 4096, prot, flags, -1, 0) as u64;
            assert_ne!(base as *mut libc::c_void, libc::MAP_FAILED);
            uffd.register(base, 2 * 4096).expect("registered");
            assert_eq!(uffd.covers(base, 2 * 4096), Some(true));
            assert_eq!(uffd.covers(base + 4096, 2 * 4096), Some(false), "half of it is not");
            assert_eq!(uffd.covers(base + 2 * 4096, 4096), Some(false));
            assert_eq!(uffd.covers(4096, 4096), Some(false));
            let put = uffd.copy(base, &[7; 4096]);
            assert_eq!(put, Partial { bytes: 4096, errno: 0 }, "nothing was there yet");
            assert_eq!(*(base as *const u8), 7);
            assert_eq!(uffd.covers(base, 4096), Some(true), "with a page");
            uffd.unregister(base, 2 * 4096).expect("unregistered");
            libc::munmap(base as *mut libc::c_void, 3 * 4096);
        }
    }

    #[test]
    fn what_has_no_bytes_is_put_where_a_mark_is() {
        let Ok(uffd) = Uffd::open_own() else {
            return skip("uffd::what_has_no_bytes_is_put_where_a_mark_is", "no userfaultfd");
        };
        uffd.api(FEATURES).expect("the features");
        const PAGE: u64 = 4096;
        let done = |pages: u64, errno| Partial { bytes: pages * PAGE, errno };
        // SAFETY: a fresh mapping of our own, of which what is there is read.
        unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(std::ptr::null_mut(), 8 * 4096, prot, flags, -1, 0) as u64;
            assert_ne!(base as *mut libc::c_void, libc::MAP_FAILED);
            let at = |page: u64| base + page * PAGE;
            uffd.register(base, 8 * PAGE).expect("registered");
            uffd.mark(at(1), 6 * PAGE).expect("marked");
            assert_eq!(uffd.zero(base, 3 * PAGE), done(1, libc::EAGAIN), "to the first mark");
            assert_eq!(uffd.zero(at(1), 2 * PAGE), done(2, 0));
            assert_eq!((at(0)..at(3)).map(|at| *(at as *const u8)).max(), Some(0));
            assert_eq!(uffd.zero(at(2), 2 * PAGE), done(0, libc::EEXIST), "something is there");
            assert_eq!(uffd.copy(at(4), &[7; 4096]), done(1, 0), "what has bytes needs nothing");
            *(at(4) as *mut u8) = 8;
            assert_eq!(uffd.zero(at(3), 2 * PAGE), done(1, libc::EAGAIN), "as far as nothing is");
            assert_eq!(uffd.poison(at(5), PAGE), done(1, 0));
            uffd.unregister(base, 8 * PAGE).expect("unregistered");
            libc::munmap(base as *mut libc::c_void, 8 * 4096);
        }
    }
}
