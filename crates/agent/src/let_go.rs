//! A program that has a userfaultfd of its own: it asks the daemon to let it go.
//!
//! One mapping can be registered on one userfaultfd only. Where the program's own `UFFDIO_REGISTER`
//! is refused because Clew's is there already, the thread that called it asks the daemon to bring
//! every page back and to leave this program alone from then on, and then tries again. This runs in
//! the program's own process, not in the agent's, and so does nothing but raw system calls; what
//! takes a descriptor, in a thread apart ([`crate::apart`]).

use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed};

use crate::apart::apart;
use crate::filters::Asking;
use crate::kept::{MAY_BE_REGISTERED, daemons_path, read_beacon};
use crate::libc_errno::{self, as_libc};
use crate::protocol::{Header, Hello, Kind, MAGIC, MAX_NAME, RANGE_BYTES, VERSION};
use crate::serve::{POLLIN, Patience, Pollfd, connect, send};
use crate::sys::{Timespec, close, errno, nr, pause, syscall4, syscall6};
use crate::taken;

/// The `ioctl` that this object stands in for; 0 if there is none.
pub static NEXT: AtomicUsize = AtomicUsize::new(0);

/// How long the program's call may take longer than usual, seconds. What the daemon has begun by then
/// it goes on with.
const PATIENCE_SECONDS: i64 = 30;
/// Between two looks whether an answer is still waited for.
const LOOK_NANOSECONDS: i64 = 100_000_000;
/// Between two attempts, while no daemon serves.
const PAUSE_NANOSECONDS: i64 = 50_000_000;

/// Called when the object is loaded.
#[cfg(clew_preload)]
pub fn find_next() {
    NEXT.store(crate::preload::next(c"ioctl"), Relaxed);
}

/// `ioctl` with [`crate::taken::UFFDIO_REGISTER`], for the program.
///
/// # Safety
/// As ioctl(2).
pub unsafe extern "C" fn register(fd: i32, request: usize, argument: usize) -> i32 {
    // SAFETY: the program's own call.
    let done = unsafe { call(fd, request, argument) };
    let is_taken = done < 0 && libc_errno::get().is_some_and(|e| e as isize == errno::EBUSY);
    if !is_taken || ask(None) != Answer::Gone {
        return done;
    }
    // SAFETY: the same once more.
    unsafe { call(fd, request, argument) }
}

/// The `ioctl` that this object stands in for.
///
/// # Safety
/// As ioctl(2).
pub unsafe extern "C" fn call(fd: i32, request: usize, argument: usize) -> i32 {
    type Ioctl = unsafe extern "C" fn(i32, usize, ...) -> i32;
    let next = NEXT.load(Relaxed);
    if next != 0 {
        // SAFETY: what was found under this name is this function.
        return unsafe { core::mem::transmute::<usize, Ioctl>(next)(fd, request, argument) };
    }
    // SAFETY: as the caller says.
    as_libc(unsafe { syscall4(nr::IOCTL, fd as usize, request, argument, 0) }) as i32
}

/// What the daemon said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done.
    Gone,
    /// This program is none that it manages, or it must not be asked any more.
    Nobody,
    /// It cannot be done.
    Refused,
    /// There is no daemon at the moment.
    Lost,
}

/// Asks the daemon to let this program go, or only what is from one address to another.
pub(crate) fn ask(range: Option<[usize; 2]>) -> Answer {
    // Behind a filter nobody can be asked, and it is not known whether this very thread has shut itself in.
    let Some(mut asking) = Asking::begin() else { return Answer::Refused };
    let Some(path) = daemons_path() else { return Answer::Nobody };
    let until = now() + PATIENCE_SECONDS;
    let mut unlooked = range;
    while now() < until {
        // The daemon has ended in order: everything is back, and nobody's but the program's.
        if !MAY_BE_REGISTERED.load(Acquire) {
            return Answer::Gone;
        }
        let mut answer = Answer::Refused;
        let mut ask = || answer = ask_once(path, range, until, &asking);
        if !apart(&mut ask) {
            // No thread can be made (of another pid namespace, or too many): by a number of the program's then.
            ask();
        }
        if answer != Answer::Lost {
            return answer;
        }
        // Perhaps it cannot be found from where this process is by now (chroot, another user). What was never registered needs
        // nobody: it has the advice by now, and what has that is not registered.
        let mut is_free = false;
        if unlooked
            .take()
            .is_some_and(|range| apart(&mut || is_free = taken::is_free(range)) && is_free)
        {
            return Answer::Gone;
        }
        // Who installs a filter does not wait until a daemon serves.
        drop(asking);
        pause(PAUSE_NANOSECONDS);
        match Asking::begin() {
            Some(again) => asking = again,
            None => return Answer::Refused,
        }
    }
    Answer::Lost
}

fn ask_once(path: &[u8; 108], range: Option<[usize; 2]>, until: i64, asking: &Asking) -> Answer {
    let socket = match connect(path, Patience::None) {
        Ok(socket) => socket,
        // Who has no descriptor left cannot ask.
        Err(errno::EMFILE | errno::ENFILE) => return Answer::Refused,
        Err(_) => return Answer::Lost,
    };
    let mut header = Header::new(Kind::LetGo, VERSION, 0);
    let mut name = [0; MAX_NAME + 1];
    if let Some([start, end]) = range {
        header.detail = RANGE_BYTES as u32;
        name[..8].copy_from_slice(&start.to_ne_bytes());
        name[8..RANGE_BYTES].copy_from_slice(&end.to_ne_bytes());
    }
    let plea = Hello { header, name, beacon: read_beacon() };
    let answer = match send(socket, &plea, size_of::<Hello>(), None) {
        n if n < 0 => Answer::Lost,
        _ => answer(socket, until, asking),
    };
    close(socket);
    answer
}

fn answer(socket: i32, until: i64, asking: &Asking) -> Answer {
    loop {
        if until <= now() || !asking.goes_on() {
            return Answer::Refused;
        }
        let mut poll = Pollfd { fd: socket, events: POLLIN, revents: 0 };
        let wait = Timespec { seconds: 0, nanoseconds: LOOK_NANOSECONDS };
        let mut header = Header { magic: 0, kind: 0, value: 0, detail: 0 };
        let len = size_of::<Header>();
        // SAFETY: what is pointed to lives across the calls.
        let n = unsafe {
            let at = &raw mut poll as usize;
            syscall6(nr::PPOLL, at, 1, &raw const wait as usize, 0, 8, 0);
            if poll.revents == 0 {
                continue;
            }
            syscall6(nr::RECVFROM, socket as usize, &raw mut header as usize, len, 0, 0, 0)
        };
        let is_whole =
            n == len as isize && header.magic == MAGIC && header.kind == Kind::Done as u32;
        return match (n, header.value as isize) {
            (n, _) if n == -errno::EINTR || n == -errno::EAGAIN => continue,
            _ if !is_whole => Answer::Lost,
            (_, 0) => Answer::Gone,
            // It does not know this process yet.
            (_, errno::EAGAIN) => Answer::Lost,
            (_, errno::ESRCH) => Answer::Nobody,
            _ => Answer::Refused,
        };
    }
}

fn now() -> i64 {
    const CLOCK_MONOTONIC: usize = 1;
    let mut now = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: `now` lives across the call.
    unsafe { syscall4(nr::CLOCK_GETTIME, CLOCK_MONOTONIC, &raw mut now as usize, 0, 0) };
    now.seconds
}
