//! Closing what strangers sent, and what they send through.
//!
//! close() takes as long as whoever opened the file likes: a TCP socket with SO_LINGER and unsent data
//! waits for hours, a file of FUSE for its server. A socket that is closed takes along what is queued
//! in it. So nobody who serves closes such descriptors: threads of their own do
//! ([`crate::agents::patient`]). What comes when all are stuck waits, behind what comes later.
//!
//! What no signal ends would keep the daemon from ending, too. So these threads give it to a process of its own
//! first ([`crate::agents::closing_process`]), and what they close is not the last.
//!
//! What each user has sent, and what of it is not closed yet, is counted ([`Unclosed`]). Who has much of it has a lane
//! to himself and his like, with a process of its own, and is not heard any more.

use std::io::{self, Write};
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
use crate::passing::is_passing;

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

/// What handing one over takes where no descriptor is free, as all of them may be waiting to be closed. It stays as it is: who has
/// received the second one is told by a byte, not by its end.
static SPARE: [Mutex<Option<(UnixStream, UnixStream)>>; LANES.len()] =
    [const { Mutex::new(None) }; LANES.len()];

/// What waits to be closed in each lane, of all users, but for what has come while all were stuck.
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
    /// Whether it is among those that are waited for ([`catch_up`]).
    is_waited_for: bool,
}

/// One is not waited for any more, if it was.
fn settle(is_waited_for: &mut bool, lane: Lane) {
    if std::mem::take(is_waited_for) {
        WAITING[lane as usize].fetch_sub(1, Ordering::Relaxed);
    }
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
        let closes = Unclosable { fd, of, is_waited_for: false };
        // No thread: better one descriptor too many than one who serves and waits.
        let _ = start_lane(lane);
        match &*CLOSERS[lane as usize].lock() {
            Some(closer) => hand_over(closer, closes, lane),
            None => _ = closes.fd.into_raw_fd(),
        }
    }
}

fn hand_over(closer: &Sender<Unclosable>, mut closes: Unclosable, lane: Lane) {
    WAITING[lane as usize].fetch_add(1, Ordering::Relaxed);
    closes.is_waited_for = true;
    if let Err(unsent) = closer.send(closes) {
        // Nobody is there to close it.
        let mut closes = unsent.into_inner();
        settle(&mut closes.is_waited_for, lane);
        let _ = closes.fd.into_raw_fd();
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
    make_spare(lane);
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

fn make_spare(lane: Lane) {
    let mut spare = SPARE[lane as usize].lock();
    if spare.is_none() {
        *spare = UnixStream::pair().ok();
    }
}

/// Gives it to the process that closes, and closes it here; what ends when that has closed it, too, unless no descriptor is free.
///
/// # Errors
/// Those of the system that do not pass, with what is open still.
fn give(
    process: &OwnedFd,
    fd: OwnedFd,
    lane: Lane,
) -> Result<Option<UnixStream>, (OwnedFd, io::Error)> {
    loop {
        let pair = UnixStream::pair();
        let spare = pair.is_err().then(|| SPARE[lane as usize].lock());
        let ends = pair.as_ref().ok().or_else(|| spare.as_ref().and_then(|spare| spare.as_ref()));
        let Some((ours, its)) = ends else {
            drop(spare);
            std::thread::sleep(HOPELESS);
            continue;
        };
        while let Err(error) = give_away(process, WHEN_CLOSED, &[fd.as_raw_fd(), its.as_raw_fd()]) {
            if !passes(&error) {
                return Err((fd, error));
            }
            std::thread::sleep(HOPELESS);
        }
        // From now on that is the last.
        drop(fd);
        if spare.is_some() {
            let _ = { ours }.write_all(&[1]);
            while seqpacket::is_readable(its, Duration::ZERO) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        drop(spare);
        return Ok(pair.ok().map(|(ours, _)| {
            let _ = ours.shutdown(Shutdown::Write);
            ours
        }));
    }
}

/// Whether what failed is tried again until it goes through: descriptors, or memory, are closed or freed by others.
fn passes(error: &io::Error) -> bool {
    let for_want = [libc::EMFILE, libc::ENFILE, libc::ETOOMANYREFS].map(Some);
    is_passing(error) || for_want.contains(&error.raw_os_error())
}

/// Closes it, which takes as long as its owner likes; but this process can be ended meanwhile. It stays open where
/// nobody is there to close it.
fn close(closes: Unclosable, lane: Lane) {
    let Unclosable { fd, of, mut is_waited_for } = closes;
    let given = match PROCESSES[lane as usize].get() {
        Some(process) => give(process, fd, lane),
        None => {
            drop(fd);
            Ok(None)
        }
    };
    let given = match given {
        Ok(given) => given.filter(|ours| !seqpacket::is_readable(ours, SHORTLY)),
        Err((fd, error)) => {
            let number = fd.into_raw_fd();
            tracing::debug!(number, %error, "a descriptor that a program has sent stays open");
            return settle(&mut is_waited_for, lane);
        }
    };
    settle(&mut is_waited_for, lane);
    if let Some(of) = of {
        of.given.lock().extend(given);
        of.waits.fetch_sub(1, Ordering::Relaxed);
        // Forgets what has been closed meanwhile.
        of.count();
    }
}

/// Gives the process that closes one more of the first of these.
fn give_away(process: &OwnedFd, when: u8, fds: &[RawFd]) -> io::Result<()> {
    let until = Instant::now() + STUCK;
    loop {
        match seqpacket::send(process, [&[when]], fds) {
            Err(error) if is_passing(&error) && Instant::now() < until => {
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
    let close = move |closes| close(closes, lane);
    // Known before anything is handed in.
    let again: Arc<OnceLock<Sender<Unclosable>>> = Arc::default();
    let (queue, mut is_said) = (again.clone(), false);
    let closer = patient::hire(threads, close, move |mut closes: Unclosable, threads| {
        if !std::mem::replace(&mut is_said, true) {
            tracing::warn!(
                "programs have sent descriptors that cannot be closed at once, and {threads} \
                 threads wait for them: others wait until these are"
            );
        }
        // Behind all that has come since, which may be closed at once.
        settle(&mut closes.is_waited_for, lane);
        if let Some(queue) = queue.get() {
            // Whoever receives it runs this.
            let _ = queue.send(closes);
        }
    })?;
    let _ = again.set(closer.clone());
    Ok(closer)
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
    fn what_comes_while_all_are_stuck_waits_and_holds_up_nothing_that_comes_later() {
        let closer = closer_of(2, Duration::from_millis(20), Lane::Quick).expect("a thread");
        let hand_over = |fd| {
            super::hand_over(
                &closer,
                Unclosable { fd, of: None, is_waited_for: false },
                Lane::Quick,
            );
        };
        let (mut other_ends, mut told_of) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let (slow, other_end) = lingering();
            hand_over(slow);
            other_ends.push(other_end);
        }
        for _ in 0..20 {
            let (quick, closed) = told();
            hand_over(quick);
            told_of.push(closed);
        }
        assert!(!is_closed(&told_of[0], Duration::from_millis(500)), "nobody is there to close it");
        drop(other_ends);
        assert!(told_of.iter().all(|closed| is_closed(closed, LONG)), "one stays open");
    }

    /// All descriptors that there may be are open, and all of them wait to be closed.
    #[test]
    fn where_no_descriptor_is_free_they_are_closed_all_the_same() {
        const CHILD: &str = "CLEW_TEST_NO_DESCRIPTORS";
        if std::env::var_os(CHILD).is_none() {
            // A process of its own: others' tests need descriptors.
            let own = std::env::current_exe().expect("this test");
            let name = "where_no_descriptor_is_free_they_are_closed_all_the_same";
            let mut again = std::process::Command::new(own);
            again.args([name, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
            let done = again.output().expect("it runs");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
            return;
        }
        start_processes().expect("processes");
        start().expect("threads");
        let (foreign, closed) = told();
        let mut all: Vec<Foreign> = vec![foreign.into()];
        while let Ok(one) = all[0].try_clone() {
            all.push(one.into());
        }
        assert!(UnixStream::pair().is_err());
        drop(all);
        assert!(is_closed(&closed, LONG), "they stay open");
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
