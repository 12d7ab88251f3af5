//! Closing what strangers sent, and what they send through.
//!
//! close() takes as long as whoever opened the file likes: a TCP socket with SO_LINGER and unsent data
//! waits for hours, a file of FUSE for its server. A socket that is closed takes along what is queued
//! in it. So nobody who serves closes such descriptors: threads of their own do
//! ([`crate::agents::patient`]). What comes when all are stuck stays open.
//!
//! What no signal ends would keep the daemon from ending, too. So these threads give it to a process of its own
//! first ([`crate::agents::closing_process`]), and what they close is not the last.
//!
//! What each user has sent, and what of it is not closed yet, is counted ([`Unclosed`]). Who has much of it has a lane
//! to himself and his like, with a process of its own, and is not heard any more.

use std::io;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::ops::Deref;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
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

/// How long what a process has been given takes to be closed, as a rule: so long it is waited for, and nothing is kept of
/// it.
const SHORTLY: Duration = Duration::from_millis(100);

/// How long it is waited for one where there can be no more.
const HOPELESS: Duration = Duration::from_millis(10);

/// What they need.
const STACK_BYTES: usize = 64 << 10;

/// What one user may have that is not closed yet, before it waits in the other lane.
const FEW: usize = 8;

/// Who has more of it is not heard.
const TOO_MANY: usize = 64;

/// What is closed by one after the other: what takes no time, as a rule, and what those have sent of whom much is not
/// closed.
#[derive(Clone, Copy)]
enum Lane {
    Quick,
    Slow,
}

const LANES: [Lane; 2] = [Lane::Quick, Lane::Slow];

/// Where the processes are that close for this one.
static PROCESSES: [OnceLock<OwnedFd>; LANES.len()] = [const { OnceLock::new() }; LANES.len()];

static CLOSERS: [Mutex<Option<Sender<Unclosable>>>; LANES.len()] =
    [const { Mutex::new(None) }; LANES.len()];

/// What waits to be closed in each lane, of all users.
static WAITING: [AtomicUsize; LANES.len()] = [const { AtomicUsize::new(0) }; LANES.len()];

/// What one user has sent that is not closed yet.
#[derive(Debug, Default)]
pub struct Unclosed {
    /// What waits here.
    waits: AtomicUsize,
    /// Of what a process has, the sockets that end when it is closed.
    given: Mutex<Vec<UnixStream>>,
}

impl Unclosed {
    /// How much that is now, or at least that it is too much: the kernel is asked of no more.
    fn count(&self) -> usize {
        let mut given = self.given.lock();
        let mut open = 0;
        given.retain(|closed| {
            let stays = open > TOO_MANY || !seqpacket::is_readable(closed, Duration::ZERO);
            open += usize::from(stays);
            stays
        });
        given.len() + self.waits.load(Ordering::Relaxed)
    }

    /// Whether so much of it is not closed that nothing more is taken.
    fn is_too_much(&self) -> bool {
        self.count() > TOO_MANY
    }

    fn lane(&self) -> Lane {
        if self.count() > FEW { Lane::Slow } else { Lane::Quick }
    }
}

/// A descriptor that is to be closed, and to whom it counts.
struct Unclosable {
    fd: OwnedFd,
    of: Option<Arc<Unclosed>>,
}

/// A descriptor that a stranger sent, or sends others through. Who drops it does not wait.
#[derive(Debug)]
pub struct Foreign {
    fd: ManuallyDrop<OwnedFd>,
    of: Option<Arc<Unclosed>>,
}

impl Foreign {
    /// It counts to who sent it until it is closed.
    pub fn of(fd: OwnedFd, of: &Arc<Unclosed>) -> Foreign {
        Foreign { fd: ManuallyDrop::new(fd), of: Some(of.clone()) }
    }

    /// Receives one message that somebody sends through it; its length, and the descriptors that it brought, which count
    /// to who has this.
    ///
    /// # Errors
    /// Those of the system.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Vec<Foreign>)> {
        let (len, received) = seqpacket::receive::<OwnedFd>(self, buffer)?;
        let counted = |fd| Foreign { fd: ManuallyDrop::new(fd), of: self.of.clone() };
        Ok((len, received.into_iter().map(counted).collect()))
    }

    /// Whether who has sent it has sent so much that is not closed that nothing more is taken.
    pub fn is_one_too_many(&self) -> bool {
        self.of.as_ref().is_some_and(|of| of.is_too_much())
    }

    /// It is known by now to be of a kind that is closed at once.
    pub fn into_known(self) -> OwnedFd {
        let mut foreign = ManuallyDrop::new(self);
        drop(foreign.of.take());
        // SAFETY: taken once: what is left of it is neither used nor dropped.
        unsafe { ManuallyDrop::take(&mut foreign.fd) }
    }
}

impl From<OwnedFd> for Foreign {
    fn from(fd: OwnedFd) -> Foreign {
        Foreign { fd: ManuallyDrop::new(fd), of: None }
    }
}

impl Deref for Foreign {
    type Target = OwnedFd;

    fn deref(&self) -> &OwnedFd {
        &self.fd
    }
}

impl AsRawFd for Foreign {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: it is being dropped: nobody uses it after this.
        let fd = unsafe { ManuallyDrop::take(&mut self.fd) };
        let of = self.of.take();
        let lane = of.as_ref().map_or(Lane::Quick, |of| {
            of.waits.fetch_add(1, Ordering::Relaxed);
            of.lane()
        });
        let closes = Unclosable { fd, of };
        // No thread: better one descriptor too many than one who serves and waits.
        let _ = start_lane(lane);
        match &*CLOSERS[lane as usize].lock() {
            Some(closer) => hand_over(closer, closes, lane),
            None => _ = closes.fd.into_raw_fd(),
        }
    }
}

/// Nobody is there to close it; it counts to who sent it. Its number.
fn stays_open(closes: Unclosable, lane: Lane) -> RawFd {
    WAITING[lane as usize].fetch_sub(1, Ordering::Relaxed);
    closes.fd.into_raw_fd()
}

fn hand_over(closer: &Sender<Unclosable>, closes: Unclosable, lane: Lane) {
    WAITING[lane as usize].fetch_add(1, Ordering::Relaxed);
    if let Err(unsent) = closer.send(closes) {
        stays_open(unsent.into_inner(), lane);
    }
}

/// Starts the threads that close, unless they run. They have the CPUs and the priority of the caller.
///
/// # Errors
/// If the system has no thread. It is tried again with the next descriptor.
pub fn start() -> io::Result<()> {
    LANES.into_iter().try_for_each(start_lane)
}

fn start_lane(lane: Lane) -> io::Result<()> {
    let mut closer = CLOSERS[lane as usize].lock();
    if closer.is_none() {
        *closer = Some(closer_of(MOST, STUCK, lane)?);
    }
    Ok(())
}

/// Starts the processes that close for this one. To be called before there are threads.
///
/// # Errors
/// If the system has none.
pub fn start_processes() -> io::Result<()> {
    for process in &PROCESSES {
        process.set(closing_process::start()?).map_err(|_| io::ErrorKind::AlreadyExists)?;
    }
    Ok(())
}

/// Closes it, which takes as long as its owner likes; but this process can be ended meanwhile. It stays open where
/// nobody is there to close it.
fn close(Unclosable { fd, of }: Unclosable, lane: Lane) {
    let is_over = |given: Option<UnixStream>| {
        WAITING[lane as usize].fetch_sub(1, Ordering::Relaxed);
        if let Some(of) = of {
            of.given.lock().extend(given);
            of.waits.fetch_sub(1, Ordering::Relaxed);
            // Forgets what has been closed meanwhile.
            of.count();
        }
    };
    let Some(process) = PROCESSES[lane as usize].get() else {
        drop(fd);
        return is_over(None);
    };
    let given = UnixStream::pair().and_then(|(ours, its)| {
        give_away(process, WHEN_CLOSED, &[fd.as_raw_fd(), its.as_raw_fd()])?;
        Ok(ours)
    });
    match given {
        Ok(ours) => {
            drop(fd);
            // From now on that is the last.
            let _ = ours.shutdown(Shutdown::Write);
            is_over((!seqpacket::is_readable(&ours, SHORTLY)).then_some(ours));
        }
        Err(error) => {
            WAITING[lane as usize].fetch_sub(1, Ordering::Relaxed);
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
    let Some(process) = PROCESSES[Lane::Quick as usize].get() else { return };
    let own: Vec<RawFd> = PROCESSES.iter().filter_map(|one| Some(one.get()?.as_raw_fd())).collect();
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let sockets = open.filter(|fd| {
        std::fs::read_link(fd.path()).is_ok_and(|is| is.to_string_lossy().starts_with("socket:"))
    });
    let numbers = sockets.filter_map(|fd| fd.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|number| !own.contains(number)) {
        if give_away(process, AT_THE_END, &[number]).is_err() {
            return;
        }
    }
}

/// Waits until what was dropped so far is closed, or as long as it takes to find out that it cannot be: for who runs out
/// of descriptors.
pub fn catch_up() {
    let until = Instant::now() + STUCK;
    while WAITING[Lane::Quick as usize].load(Ordering::Relaxed) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn closer_of(most: usize, stuck: Duration, lane: Lane) -> io::Result<Sender<Unclosable>> {
    let stack_bytes = STACK_BYTES;
    let threads = Patience { name: "close", most, stuck, hopeless: HOPELESS, stack_bytes };
    let mut left_open = 0u64;
    let close = move |closes| close(closes, lane);
    patient::hire(threads, close, move |closes: Unclosable, threads| {
        let number = stays_open(closes, lane);
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
pub mod tests {
    use std::io::{ErrorKind, PipeReader, Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::agents::seqpacket;

    /// A bound for what takes no time.
    const LONG: Duration = Duration::from_secs(60);

    /// A socket whose close waits until the other one is closed.
    pub fn lingering() -> (OwnedFd, TcpStream) {
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
        let closer = closer_of(2, Duration::from_millis(20), Lane::Quick).expect("a thread");
        let hand_over = |closer, fd| hand_over(closer, Unclosable { fd, of: None }, Lane::Quick);
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
    fn what_is_not_closed_counts_to_who_sent_it_until_it_is() {
        let of = Arc::default();
        let (slow, other_end) = lingering();
        drop(Foreign::of(slow, &of));
        assert_eq!(of.count(), 1);
        drop(Foreign::of(told().0, &of).into_known());
        drop(Foreign::from(told().0));
        assert_eq!(of.count(), 1, "what is closed at once, and what is somebody else's");
        // Who has much that is not closed takes a lane in which others are in nobody's way, and at last is not heard.
        of.waits.fetch_add(FEW - 1, Ordering::Relaxed);
        assert!(matches!(of.lane(), Lane::Quick));
        of.waits.fetch_add(1, Ordering::Relaxed);
        assert!(matches!(of.lane(), Lane::Slow) && !of.is_too_much());
        of.waits.fetch_add(TOO_MANY - FEW, Ordering::Relaxed);
        assert!(of.is_too_much());
        of.waits.fetch_sub(TOO_MANY, Ordering::Relaxed);
        drop(other_end);
        let until = Instant::now() + LONG;
        while of.count() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(of.count(), 0);
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
