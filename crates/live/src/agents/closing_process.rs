//! The process that closes what strangers have sent.
//!
//! There are files of which the last descriptor is not closed before its owner likes, and no signal ends that:
//! a pipe in which he is in the middle of a write. Who waits there cannot be killed. So that must be neither the
//! daemon nor its keeper, whose ends a successor waits for: such a descriptor is handed over before theirs is
//! closed, which then is not the last. This process has nothing else open.
//!
//! A *worker* of it receives and closes. Where that takes long, another one is started, and the first ends when
//! it can.

use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::agents::seqpacket;

/// How long a worker may take to close something before there is another one.
const STUCK: Duration = Duration::from_secs(1);

/// Workers, at most, those that are stuck included. What comes when all are waits.
const MOST: u32 = 64;

/// Before what failed for want of something passing is tried again.
const PAUSE: Duration = Duration::from_millis(100);

/// What a worker says: it closes something, it waits for more, nothing more can come.
const CLOSES: u8 = 1;
const WAITS: u8 = 2;
const IS_OVER: u8 = 3;

/// First byte of what it is sent: close this when whoever sends it has closed his own, which the socket that comes along
/// tells by ending, and then that socket, which tells him; or close it when he has ended.
pub const WHEN_CLOSED: u8 = 1;
pub const AT_THE_END: u8 = 2;

/// Starts it. What is sent there is closed; it ends when nobody has the socket any more. To be called before the
/// process has threads, or anything open that must not live longer than it.
///
/// # Errors
/// Those of the system.
pub fn start() -> io::Result<OwnedFd> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array is as long as stated, and the descriptors are owned by nobody else. There is one thread, so
    // the child may do what it likes.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        let [ours, its] = ends.map(|fd: RawFd| OwnedFd::from_raw_fd(fd));
        let sender = libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) as RawFd;
        if sender < 0 {
            return Err(io::Error::last_os_error());
        }
        let sender = OwnedFd::from_raw_fd(sender);
        match libc::fork() {
            0 => serve(&its, &sender),
            pid if pid < 0 => Err(io::Error::last_os_error()),
            _ => Ok(ours),
        }
    }
}

/// What the process does.
fn serve(socket: &OwnedFd, sender: &OwnedFd) -> ! {
    // SAFETY: only this thread runs, and nobody uses what is closed here; the name is a constant.
    let (socket, sender) = unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"clew-closer".as_ptr());
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        for told_to_end in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE] {
            libc::signal(told_to_end, libc::SIG_IGN);
        }
        // Others are above those two.
        let kept = [socket, sender].map(|fd| libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, 2));
        let [first, second] = kept;
        if libc::dup2(first, 0) < 0
            || libc::dup2(second, 1) < 0
            || libc::syscall(libc::SYS_close_range, 2, u32::MAX, 0) < 0
        {
            libc::_exit(1);
        }
        (OwnedFd::from_raw_fd(0), OwnedFd::from_raw_fd(1))
    };
    let mut workers = 0;
    loop {
        workers -= ended(workers);
        let Ok((hears, says)) = io::pipe() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        // SAFETY: there is one thread.
        match unsafe { libc::fork() } {
            0 => {
                drop(hears);
                close_all(&socket, &sender, says)
            }
            pid if pid < 0 => std::thread::sleep(PAUSE),
            _ => {
                workers += 1;
                drop(says);
                if is_over(hears) {
                    // SAFETY: ends this process.
                    unsafe { libc::_exit(0) }
                }
            }
        }
    }
}

/// How many of these workers have ended. Waits for one where there can be no more.
fn ended(workers: u32) -> u32 {
    let mut ended = 0;
    while ended < workers {
        let flags = if workers - ended < MOST { libc::WNOHANG } else { 0 };
        // SAFETY: nothing is to be told of how it ended.
        match unsafe { libc::waitpid(-1, std::ptr::null_mut(), flags) } {
            1.. => ended += 1,
            0 => break,
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            // They are nobody's any more.
            _ => return workers,
        }
    }
    ended
}

/// What a worker does. When nobody listens to it any more another one has its place.
fn close_all(socket: &OwnedFd, sender: &OwnedFd, mut says: PipeWriter) -> ! {
    let mut say = |what| says.write_all(&[what]).is_ok();
    let mut at_the_end = Vec::new();
    let mut kind = [0];
    loop {
        match seqpacket::receive::<OwnedFd>(socket, &mut kind) {
            Ok((0, _)) => {
                // Its sockets are closed one after the other.
                seqpacket::is_readable(sender, Duration::MAX);
                say(IS_OVER);
                break;
            }
            Ok((_, received)) => {
                let mut received = received.into_iter();
                let (fd, tells) = (received.next(), received.next());
                if kind == [AT_THE_END] {
                    at_the_end.push(fd);
                    continue;
                }
                // Told first: this may be the last thing that it does.
                let goes_on = say(CLOSES);
                let tells = tells.map(UnixStream::from);
                if let Some(closed) = &tells {
                    let _ = { closed }.read(&mut [0]);
                }
                drop(fd);
                drop(tells);
                if !goes_on || !say(WAITS) {
                    break;
                }
            }
            // No descriptors, perhaps.
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
    // SAFETY: ends this process, with all that it has.
    unsafe { libc::_exit(0) }
}

/// Waits until a worker is stuck or has ended; whether that is because nothing more can come.
fn is_over(mut hears: PipeReader) -> bool {
    let mut patience = Duration::MAX;
    let mut said = [0];
    while seqpacket::is_readable(&hears, patience) {
        match hears.read(&mut said) {
            Ok(1) => {}
            _ => return false,
        }
        patience = match said[0] {
            CLOSES => STUCK,
            WAITS => Duration::MAX,
            _ => return true,
        };
    }
    false
}
