//! The worker of a channel: makes the link, sends what is asked for, tells what came.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::SockRef;

use super::Shared;
use crate::cores::Core;
use crate::heard::Heard;
use crate::lookup::Lookup;
use crate::queue::{Asked, What};
use crate::secure::{Channel, SecureError, Until};
use crate::wire::{DonorFacts, Frames, Head, Kind, Status, WireError};

/// How often the donor is asked how it stands.
const PING: Duration = Duration::from_secs(1);
/// Between two tries to make the link: the first, and the longest.
const TRIES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Sealed bytes that wait for the socket.
const OUT_BYTES: usize = 128 << 10;
/// What the kernel has of ours and has not sent, so that what presses is not behind much.
const UNSENT_BYTES: u32 = 128 << 10;
/// Written and not acknowledged.
const WRITES_BYTES: usize = 8 << 20;
/// Asked for by nobody who waits, and not here yet.
const READS_BYTES: usize = 256 << 10;
/// So many times as a donor is waited for may a ping wait for its answer, before its link is given up.
const UNANSWERED: u32 = 4;
/// How often the socket is read before all else has its turn: a donor may say more than can be heard.
const READS: usize = 16;

/// A question that was sent and not answered.
enum Open {
    Asked(Asked),
    /// Nobody waits any longer for what will come, which has this kind; a read, for so many bytes.
    GivenUp(Kind, usize),
}

impl Open {
    /// What comes for it, if anything does.
    fn comes(&self) -> Option<Kind> {
        match self {
            Open::Asked(asked) => match asked.what {
                What::Write { .. } => Some(Kind::Wrote),
                What::Read { .. } => Some(Kind::Data),
                What::Forget { .. } => None,
            },
            Open::GivenUp(comes, _) => Some(*comes),
        }
    }

    fn asked(self) -> Option<Asked> {
        match self {
            Open::Asked(asked) => Some(asked),
            Open::GivenUp(..) => None,
        }
    }
}

/// What was sent and not answered, by its number.
#[derive(Default)]
struct Sent {
    open: BTreeMap<u64, Open>,
    next: u64,
    writes_bytes: usize,
    reads_bytes: usize,
}

struct Worker<'a> {
    shared: &'a Shared,
    core: Option<Core>,
    sent: Sent,
    heard: Heard,
    lookup: Lookup,
}

/// Works until the channel ends.
pub(super) fn run(shared: &Shared, core: Option<Core>) {
    if let Some(core) = &core {
        core.take_thread();
    }
    let mut worker = Worker {
        shared,
        core,
        sent: Sent { next: 1, ..Sent::default() },
        heard: Heard::new(Instant::now(), shared.peer.has),
        lookup: Lookup::new(&shared.peer.address),
    };
    let mut pause = TRIES.0;
    while !shared.queues.lock().ends {
        let why = match worker.connect() {
            Ok((stream, channel)) => {
                pause = TRIES.0;
                let ended = worker.serve(stream, channel);
                shared.counts.cuts.fetch_add(1, Relaxed);
                ended
            }
            Err(error) => Err(error),
        };
        let why = why.map_or_else(|error| error.to_string(), |()| "the donor has ended it".into());
        worker.is_cut(why);
        worker.wait(pause);
        pause = (pause * 2).min(TRIES.1);
    }
    worker.give_up(|_| true, ErrorKind::ConnectionAborted);
}

impl Worker<'_> {
    fn connect(&mut self) -> Result<(TcpStream, Channel), SecureError> {
        let patience = self.shared.patience.link;
        let peer = &self.shared.peer;
        let stream = self.lookup.connect(patience)?;
        stream.set_nodelay(true)?;
        let socket = SockRef::from(&stream);
        socket.set_tcp_user_timeout(Some(patience))?;
        socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
        let mut until = Until::from_now(&stream, patience);
        let channel = Channel::connect(&mut until, &peer.identity, peer.donor, peer.session)?;
        stream.set_nonblocking(true)?;
        self.heard.linked(Instant::now());
        self.shared.counts.connections.fetch_add(1, Relaxed);
        Ok((stream, channel))
    }

    fn serve(&mut self, mut stream: TcpStream, mut channel: Channel) -> Result<(), SecureError> {
        let mut frames = Frames::default();
        let mut came = vec![0; 256 << 10];
        let (mut plain, mut out, mut out_at) = (Vec::new(), Vec::new(), 0);
        let mut pinged: Option<(u64, Instant)> = None;
        let mut asked_last: Option<Instant> = None;
        let mut is_first = true;
        loop {
            // A donor says nothing before it is asked.
            if asked_last.is_some() {
                self.sleep(&stream, out_at < out.len())?;
            }
            // Nobody else runs on this core meanwhile, and nobody waits for it for longer than this takes.
            let core = self.core.clone();
            let _burst = core.as_ref().map(Core::burst);
            if self.shared.queues.lock().ends {
                return Ok(());
            }
            for _ in 0..READS {
                match stream.read(&mut came) {
                    Ok(0) => return Ok(()),
                    Ok(len) => {
                        self.heard.something(Instant::now());
                        channel.open(&came[..len], &mut frames)?;
                        while let Some((head, body)) = frames.take()? {
                            self.came(head, body, &mut pinged, &mut is_first)?;
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if self.heard.is_silent(Instant::now(), &self.shared.patience) {
                return Err(io::Error::new(ErrorKind::TimedOut, "the donor is silent").into());
            }
            // One that leaves it out, and says how it stands all the time, would count as weak for ever.
            let unanswered = UNANSWERED * self.shared.patience.donor;
            if pinged.is_some_and(|(_, since)| since.elapsed() > unanswered) {
                let why = "the donor has left a ping out";
                return Err(io::Error::new(ErrorKind::TimedOut, why).into());
            }
            self.look_at_time(pinged);
            let is_due = asked_last.is_none_or(|asked| asked.elapsed() >= PING);
            if pinged.is_none() && is_due {
                asked_last = Some(Instant::now());
                pinged = Some((self.sent.next, Instant::now()));
                plain.extend_from_slice(&Head::of(Kind::Ping, self.sent.next, 0).to_bytes());
                self.sent.next += 1;
            }
            loop {
                while out.len() - out_at < OUT_BYTES && self.send_one(&mut plain, is_first) {
                    if plain.len() >= OUT_BYTES / 2 {
                        channel.seal(&plain, &mut out)?;
                        plain.clear();
                    }
                }
                channel.seal(&plain, &mut out)?;
                plain.clear();
                if out_at == out.len() {
                    break;
                }
                match stream.write(&out[out_at..]) {
                    Ok(len) => out_at += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error.into()),
                }
                if out_at == out.len() {
                    out.clear();
                    out_at = 0;
                }
            }
            if out_at > OUT_BYTES {
                out.drain(..out_at);
                out_at = 0;
            }
        }
    }

    /// Until there is something to do.
    fn sleep(&self, stream: &TcpStream, has_more: bool) -> io::Result<()> {
        let wants = if has_more { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(stream, wants), PollFd::new(&self.shared.wakes, PollFlags::IN)];
        let at_most = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };
        match poll(&mut fds, Some(&at_most)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.was_woken();
        Ok(())
    }

    fn was_woken(&self) {
        let _ = rustix::io::read(&self.shared.wakes, &mut [0u8; 8]);
    }

    /// Without a link, until it is tried again.
    fn wait(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.shared.queues.lock().ends {
                return;
            }
            let left = left.min(Duration::from_millis(50));
            let mut fds = [PollFd::new(&self.shared.wakes, PollFlags::IN)];
            let at_most = Timespec { tv_sec: 0, tv_nsec: left.as_nanos() as _ };
            let _ = poll(&mut fds, Some(&at_most));
            self.was_woken();
            self.look_at_time(None);
        }
    }

    /// Takes the next question from the queue, if it may be sent now.
    fn send_one(&mut self, plain: &mut Vec<u8>, is_first: bool) -> bool {
        // Before it is known whether the donor still has what it had, nothing is told to it.
        if is_first {
            return false;
        }
        let asked = {
            let mut queues = self.shared.queues.lock();
            match queues.pressing.pop_front() {
                Some(asked) => Some(asked),
                None => {
                    let may_go = queues.others.front().is_some_and(|asked| match &asked.what {
                        What::Write { .. } => self.sent.writes_bytes < WRITES_BYTES,
                        What::Read { .. } => self.sent.reads_bytes < READS_BYTES,
                        What::Forget { .. } => true,
                    });
                    if may_go { queues.others.pop_front() } else { None }
                }
            }
        };
        let Some(asked) = asked else { return false };
        let number = self.sent.next;
        self.sent.next += 1;
        let len32;
        let len64;
        let (kind, body): (Kind, &[u8]) = match &asked.what {
            What::Write { bytes, .. } => {
                self.sent.writes_bytes += bytes.len();
                (Kind::Write, bytes)
            }
            What::Read { len, .. } => {
                self.sent.reads_bytes += *len as usize;
                len32 = len.to_le_bytes();
                (Kind::Read, &len32)
            }
            What::Forget { len } => {
                len64 = len.to_le_bytes();
                (Kind::Forget, &len64)
            }
        };
        let head = Head { body_bytes: body.len() as u32, ..Head::of(kind, number, asked.at) };
        plain.extend_from_slice(&head.to_bytes());
        plain.extend_from_slice(body);
        self.sent.open.insert(number, Open::Asked(asked));
        true
    }

    /// Something that was sent is over: what was asked, if somebody waits for it.
    fn take(&mut self, number: u64) -> Option<Asked> {
        let open = self.sent.open.remove(&number)?;
        match &open {
            Open::GivenUp(_, read_bytes) => self.sent.reads_bytes -= read_bytes,
            Open::Asked(asked) => match &asked.what {
                What::Write { bytes, .. } => self.sent.writes_bytes -= bytes.len(),
                What::Read { len, .. } => self.sent.reads_bytes -= *len as usize,
                What::Forget { .. } => {}
            },
        }
        open.asked()
    }

    /// It was answered. A donor answers in order: what was to be forgotten before is.
    fn answered(&mut self, number: u64) -> Option<Asked> {
        let asked = self.take(number);
        while let Some(first) = self.sent.open.first_entry() {
            if *first.key() > number || first.get().comes().is_some() {
                break;
            }
            first.remove();
        }
        asked
    }

    /// A donor answers in order: one that answers `number` before what was asked earlier never will.
    fn nothing_is_left_out(&self, number: u64) -> Result<(), WireError> {
        let is_due = |(_, open): &(&u64, &Open)| open.comes().is_some();
        match self.sent.open.range(..number).find(is_due) {
            Some((earlier, _)) => Err(WireError::LeftOut(*earlier)),
            None => Ok(()),
        }
    }

    /// Whether something of that kind was asked by this number.
    fn is_answer(&self, head: &Head) -> bool {
        self.sent.open.get(&head.number).and_then(Open::comes) == Some(head.kind)
    }

    /// Tells who asked.
    fn tell(&mut self, asked: Asked, status: Status, body: &[u8]) {
        let counts = &self.shared.counts;
        match asked.what {
            What::Write { bytes, told } => {
                let len = bytes.len() as u64;
                counts.waiting.fetch_sub(len, Relaxed);
                match status {
                    Status::Done => {
                        counts.sent.fetch_add(len, Relaxed);
                        self.heard.took();
                        told(Ok(()));
                    }
                    Status::NoRoom => told(Err(ErrorKind::StorageFull.into())),
                    Status::Gone | Status::Refused => told(Err(ErrorKind::InvalidInput.into())),
                }
            }
            What::Read { len, told } => {
                counts.received.fetch_add(body.len() as u64, Relaxed);
                match status {
                    Status::Done if body.len() <= len as usize => told(Ok(body.to_vec())),
                    Status::Done => told(Err(ErrorKind::InvalidData.into())),
                    _ => told(Err(io::Error::new(ErrorKind::NotFound, "the donor has lost it"))),
                }
            }
            What::Forget { .. } => {}
        }
    }

    fn came(
        &mut self,
        head: Head,
        body: &[u8],
        pinged: &mut Option<(u64, Instant)>,
        is_first: &mut bool,
    ) -> Result<(), SecureError> {
        match head.kind {
            Kind::State => {
                let facts = DonorFacts::from_bytes(body);
                let facts = facts.ok_or(WireError::Length(head.body_bytes))?;
                if std::mem::take(is_first) && self.heard.has_lost(head.status != Status::Gone) {
                    // Whoever sees it has been told of all that was taken before.
                    self.shared.has_lost.store(true, Release);
                }
                let round_trip = pinged.take_if(|(number, _)| *number == head.number);
                if round_trip.is_some() {
                    self.nothing_is_left_out(head.number)?;
                }
                let round_trip = round_trip.map(|(_, since)| since.elapsed());
                let mut standing = self.shared.standing.lock();
                let (now, patience) = (Instant::now(), &self.shared.patience);
                self.heard.says(now, facts, round_trip, patience, &mut standing);
            }
            Kind::Wrote | Kind::Data if !self.is_answer(&head) => {
                // Nobody has asked for it. What was asked is asked again on the next link.
                return Err(SecureError::Wire(WireError::Kind(head.kind as u8)));
            }
            Kind::Wrote | Kind::Data => {
                self.nothing_is_left_out(head.number)?;
                let asked = self.answered(head.number);
                asked.into_iter().for_each(|asked| self.tell(asked, head.status, body));
            }
            Kind::Write | Kind::Read | Kind::Forget | Kind::Ping => {
                return Err(SecureError::Wire(WireError::Kind(head.kind as u8)));
            }
        }
        Ok(())
    }

    /// What takes too long is given up.
    fn look_at_time(&mut self, pinged: Option<(u64, Instant)>) {
        let limits = self.shared.patience;
        let asked = pinged.map(|(_, since)| since);
        let is_lost = self.heard.is_lost(Instant::now(), asked, &limits);
        if is_lost {
            self.shared.standing.lock().lose();
        }
        self.give_up(|asked| asked.is_late(&limits, is_lost), ErrorKind::TimedOut);
    }

    /// The link is cut: what was not answered is asked again on the next one, before everything else.
    fn is_cut(&mut self, why: String) {
        self.shared.standing.lock().why = Some(why);
        let sent = std::mem::take(&mut self.sent);
        self.sent.next = sent.next;
        self.shared.queues.lock().push_again(sent.open.into_values().filter_map(Open::asked));
    }

    /// What this is said of is told that it cannot be answered.
    fn give_up(&mut self, is_over: impl Fn(&Asked) -> bool, why: ErrorKind) {
        let mut over = self.shared.queues.lock().take_out(&is_over);
        let is_late = |open: &Open| matches!(open, Open::Asked(asked) if is_over(asked));
        let late = self.sent.open.iter().filter(|(_, open)| is_late(open));
        let late: Vec<u64> = late.map(|(number, _)| *number).collect();
        for number in late {
            let Some(Open::Asked(asked)) = self.sent.open.remove(&number) else { continue };
            // Its answer may still come, in its turn, and that of a read takes the link until then.
            let given_up = match &asked.what {
                What::Write { bytes, .. } => {
                    self.sent.writes_bytes -= bytes.len();
                    Some(Open::GivenUp(Kind::Wrote, 0))
                }
                What::Read { len, .. } => Some(Open::GivenUp(Kind::Data, *len as usize)),
                What::Forget { .. } => None,
            };
            self.sent.open.extend(given_up.map(|given_up| (number, given_up)));
            over.push(asked);
        }
        for asked in over {
            self.shared.counts.waiting.fetch_sub(asked.written_bytes(), Relaxed);
            asked.fail(why);
        }
    }
}
