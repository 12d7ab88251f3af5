//! Closing what strangers sent, and what they send through.
//!
//! close() takes as long as whoever opened the file likes: a TCP socket with SO_LINGER and unsent data
//! waits for hours, a file of FUSE for its server. A socket that is closed takes along what is queued
//! in it. So nobody who serves closes such descriptors: threads of their own do
//! ([`crate::agents::patient`]). What comes when all are stuck stays open.
//!
//! What no signal ends would keep the daemon from ending, too. So these threads give it to a process of its own
//! first ([`crate::agents::closing_process`]), and what they close is not the last.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::agents::closing_process::{self, AT_THE_END, WHEN_CLOSED};
use crate::agents::patient::{self, Patience};
use crate::agents::seqpacket;

/// Threads that close, at most.
const MOST: usize = 8;

/// How long all of them may be busy before there is one more.
const STUCK: Duration = Duration::from_secs(1);

/// How long it is waited for one where there can be no more.
const HOPELESS: Duration = Duration::from_millis(10);

/// What they need.
const STACK_BYTES: usize = 64 << 10;

/// Where the process is that closes for this one.
static PROCESS: OnceLock<OwnedFd> = OnceLock::new();

static CLOSER: Mutex<Option<Sender<OwnedFd>>> = Mutex::new(None);

/// A descriptor that a stranger sent, or sends others through. Who drops it does not wait.
#[derive(Debug)]
pub struct Foreign(ManuallyDrop<OwnedFd>);

impl Foreign {
    /// It is known by now to be of a kind that is closed at once.
    pub fn into_known(self) -> OwnedFd {
        let mut fd = ManuallyDrop::new(self);
        // SAFETY: taken once: what is left of it is neither used nor dropped.
        unsafe { ManuallyDrop::take(&mut fd.0) }
    }
}

impl From<OwnedFd> for Foreign {
    fn from(fd: OwnedFd) -> Foreign {
        Foreign(ManuallyDrop::new(fd))
    }
}

impl Deref for Foreign {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.0
    }
}

impl AsRawFd for Foreign {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: it is being dropped: nobody uses it after this.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        // No thread: better one descriptor too many than one who serves and waits.
        let _ = start();
        match &*CLOSER.lock() {
            Some(closer) => hand_over(closer, fd),
            None => _ = fd.into_raw_fd(),
        }
    }
}

fn hand_over(closer: &Sender<OwnedFd>, fd: OwnedFd) {
    if let Err(unsent) = closer.send(fd) {
        let _ = unsent.into_inner().into_raw_fd();
    }
}

/// Starts the thread that closes, unless it runs. It has the CPUs and the priority of the caller.
///
/// # Errors
/// If the system has no thread. It is tried again with the next descriptor.
pub fn start() -> io::Result<()> {
    let mut closer = CLOSER.lock();
    if closer.is_none() {
        *closer = Some(closer_of(MOST, STUCK)?);
    }
    Ok(())
}

/// Starts the process that closes for this one. To be called before there are threads.
///
/// # Errors
/// If the system has none.
pub fn start_process() -> io::Result<()> {
    let process = closing_process::start()?;
    PROCESS.set(process).map_err(|_| io::ErrorKind::AlreadyExists.into())
}

/// Closes it, which takes as long as its owner likes; but this process can be ended meanwhile. It stays open where
/// nobody is there to close it.
fn close(fd: OwnedFd) {
    let Some(process) = PROCESS.get() else { return drop(fd) };
    let given = io::pipe().and_then(|(closed, closes)| {
        give_away(process, WHEN_CLOSED, &[fd.as_raw_fd(), closed.as_raw_fd()])?;
        Ok(closes)
    });
    match given {
        Ok(closes) => {
            drop(fd);
            // From now on that is the last.
            drop(closes);
        }
        Err(error) => {
            let number = fd.into_raw_fd();
            tracing::debug!(number, %error, "a descriptor that a program has sent stays open");
        }
    }
}

/// Gives the process that closes one more of the first of these.
fn give_away(process: &OwnedFd, when: u8, fds: &[RawFd]) -> io::Result<()> {
    let until = Instant::now() + STUCK;
    loop {
        match seqpacket::send(process, [&[when]], fds) {
            Err(error) if seqpacket::is_passing(&error) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            sent => return sent,
        }
    }
}

/// At the end of this process, which closes all that it has: sockets that programs are connected to, with what
/// these have sent and nobody has read, are not the last.
pub fn give_away_sockets() {
    let Some(process) = PROCESS.get() else { return };
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let sockets = open.filter(|fd| {
        std::fs::read_link(fd.path()).is_ok_and(|is| is.to_string_lossy().starts_with("socket:"))
    });
    let numbers = sockets.filter_map(|fd| fd.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| *number != process.as_raw_fd()) {
        if give_away(process, AT_THE_END, &[number]).is_err() {
            return;
        }
    }
}

/// Waits until what was dropped so far is being closed, or as long as it takes to find out that it
/// cannot be: for who runs out of descriptors.
pub fn catch_up() {
    let closer = CLOSER.lock().clone();
    let until = Instant::now() + STUCK;
    while closer.as_ref().is_some_and(|closer| !closer.is_empty()) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn closer_of(most: usize, stuck: Duration) -> io::Result<Sender<OwnedFd>> {
    let stack_bytes = STACK_BYTES;
    let threads = Patience { name: "close", most, stuck, hopeless: HOPELESS, stack_bytes };
    let mut left_open = 0u64;
    patient::hire(threads, close, move |fd: OwnedFd, threads| {
        let number = fd.into_raw_fd();
        left_open += 1;
        if left_open == 1 {
            tracing::warn!(
                number,
                "programs have sent descriptors that cannot be closed at once, and {threads} \
                 threads wait for them: this one stays open, and so may others"
            );
        }
        tracing::debug!(left_open, "descriptors that stay open");
    })
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, PipeReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::agents::seqpacket;

    /// A bound for what takes no time.
    const LONG: Duration = Duration::from_secs(60);

    /// A socket whose close waits until the other one is closed.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut socket =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (reads_nothing, _) = listener.accept().expect("accepted");
        let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
        // SAFETY: the value lives across the call and is as long as stated.
        let set = unsafe {
            let value = (&raw const linger).cast();
            let bytes = size_of_val(&linger) as u32;
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, bytes)
        };
        assert_eq!(set, 0);
        socket.set_nonblocking(true).expect("set");
        loop {
            match socket.write(&[7; 1 << 16]) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("the queue is filled: {error}"),
            }
        }
        socket.set_nonblocking(false).expect("set");
        (socket.into(), reads_nothing)
    }

    /// The end of a pipe, and what tells when it is closed.
    fn told() -> (OwnedFd, PipeReader) {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        (writer.into(), reader)
    }

    fn is_closed(mut reader: &PipeReader, patience: Duration) -> bool {
        seqpacket::is_readable(reader, patience) && reader.read(&mut [0]).is_ok_and(|n| n == 0)
    }

    #[test]
    fn a_descriptor_whose_close_takes_an_hour_holds_nobody_up() {
        let (slow, other_end) = lingering();
        let (quick, closed) = told();
        std::thread::spawn(move || {
            drop(Foreign::from(slow));
            drop(Foreign::from(quick));
        });
        assert!(is_closed(&closed, LONG), "whoever drops it, or what came later, waits for it");
        drop(other_end);
    }

    #[test]
    fn what_comes_while_all_are_stuck_stays_open_and_what_comes_later_is_closed() {
        let closer = closer_of(2, Duration::from_millis(20)).expect("a thread");
        let mut other_ends = Vec::new();
        for _ in 0..2 {
            let (slow, other_end) = lingering();
            hand_over(&closer, slow);
            other_ends.push(other_end);
        }
        let (third, left_open) = told();
        hand_over(&closer, third);
        assert!(!is_closed(&left_open, Duration::from_millis(500)), "nobody is there to close it");
        drop(other_ends);
        // Whoever is not stuck any more needs a moment to say so.
        let later = (0..1000).any(|_| {
            let (later, closed) = told();
            hand_over(&closer, later);
            is_closed(&closed, Duration::from_millis(60))
        });
        assert!(later, "nothing is closed any more");
        assert!(!is_closed(&left_open, Duration::ZERO), "what stays open stays open");
    }

    #[test]
    fn a_known_descriptor_is_its_owners() {
        let (fd, closed) = told();
        let known = Foreign::from(fd).into_known();
        assert!(!is_closed(&closed, Duration::ZERO));
        drop(known);
        assert!(is_closed(&closed, Duration::ZERO), "closed where it is dropped");
    }
}
