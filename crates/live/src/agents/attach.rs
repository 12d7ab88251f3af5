//! Agents: what they say, preparing their programs, noticing their end.
//!
//! Every program started with our environment says hello, however short-lived; it costs the daemon
//! a socket. Only one that has become large enough is managed.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_agent::protocol::{
    Header, Hello, Kind, MAGIC, MAX_NAME, RANGE_BYTES, Ready, SLOTS, VERSION,
};
use clew_core::{AppId, SpaceId};
use clew_store::{Segment, SegmentError, Space, SpaceJournal, points};

use crate::agents::agent::{self, Agent};
use crate::agents::candidate::{Candidate, Slot};
use crate::agents::closer::Foreign;
use crate::agents::connection::Connection;
use crate::agents::peer::is_still_there;
use crate::agents::refusal::AttachError;
use crate::agents::seqpacket;
use crate::faults::uffd::Uffd;
use crate::programs::alone::Alone;
use crate::programs::as_its_user::as_user_of;
use crate::programs::kcmp::runs_in_memory_of;
use crate::programs::mappings::LAST_ADDRESS;
use crate::programs::memory::ProgramMemory;
use crate::programs::name;
use crate::programs::plea::Plea;
use crate::programs::proc_stat::{open_of_process, text_of};
use crate::programs::process::{Owner, ProcFiles, Process};
use crate::programs::scope;
use crate::programs::shared::Shared;
use crate::programs::sharing;
use crate::survival::predecessor::ProcessName;
use crate::survival::pressure;
use crate::survival::records::{Descriptors, Record, Stage};

impl Candidate {
    /// Whether nobody is managed who shares its memory. A forked child is served as what it is already.
    fn has_memory_of_its_own(&self, shared: &Shared) -> Result<(), AttachError> {
        let agent = seqpacket::peer(&self.socket).map_err(AttachError::NoAnswer)?.pid as u32;
        let other = sharing::who_has_it(shared, agent, self.pid).filter(|_| self.child.is_none());
        other.map_or(Ok(()), |other| Err(AttachError::Shared { pid: other.pid() }))
    }

    /// A candidate that a predecessor had accepted.
    pub fn inherited(
        shared: &Shared,
        record: &Record,
        socket: Foreign,
        journal: SpaceJournal,
        space: SpaceId,
        child: Option<Arc<Process>>,
    ) -> Candidate {
        let seat = child.is_none().then(|| shared.users.seat_of_served(record.uid));
        let candidate = Candidate {
            socket,
            app_name: record.app.clone(),
            app: AppId(0),
            pid: record.pid,
            started: record.started,
            uid: record.uid,
            command: record.command.clone(),
            is_asked_about: Arc::default(),
            order: 0,
            handler: 0,
            child,
            slot: Slot(Some((journal, Space::new(space, shared.tables.clone())))),
            seat,
        };
        candidate.save(shared, record.descriptors[shared.other_column()]);
        candidate
    }

    pub(super) fn save(&self, shared: &Shared, others: Descriptors) {
        let Some((journal, table)) = &self.slot.0 else { return };
        let mut record = self.record();
        let socket = Some(self.socket.as_raw_fd());
        record.descriptors[shared.column()] = Descriptors { socket, ..Descriptors::default() };
        record.descriptors[shared.other_column()] = others;
        record.save(journal);
        journal.publish(table.id());
    }
}

/// How long the agent of a program that is to be managed may take to prepare.
const PREPARES: Duration = Duration::from_secs(5);

/// What a connection begins with.
pub(super) enum Said {
    /// An agent: here is a program.
    Hello(Box<Candidate>),
    /// A program: let me go. `None` if there is nothing to be let go.
    LetGo(Option<Plea>),
}

/// Hears what a connection says, as the `order`-th, once there is something to be read. May wait for an
/// execve of its program, as whoever asks the kernel about two processes does.
///
/// # Errors
/// If that is no agent's, or not the word of a program.
pub(super) fn hello(shared: &Shared, socket: Connection, order: u64) -> Result<Said, AttachError> {
    seqpacket::set_timeout(&socket, Some(Duration::from_secs(1))).map_err(AttachError::NoAnswer)?;
    let mut bytes = [0u8; size_of::<Hello>()];
    if socket.is_one_too_many() {
        return Err(AttachError::Unclosed);
    }
    let (n, received) = socket.receive(&mut bytes).map_err(AttachError::NoAnswer)?;
    let words = words::<4>(&bytes);
    let name_len = words[3] as usize;
    if n != bytes.len() || words[0] != MAGIC || words[2] != VERSION || name_len > MAX_NAME {
        return Err(AttachError::Nonsense);
    }
    let beacon = &bytes[size_of::<Header>() + MAX_NAME + 1..];
    let beacon = [double_word(beacon, 0), double_word(beacon, 1)];
    match Kind::from_u32(words[1]) {
        Some(Kind::Hello) => {}
        Some(Kind::LetGo) => {
            // Each is a descriptor until it is granted. Who is not heard asks again.
            if !pressure::has_descriptors_for_others(&socket) {
                return Err(AttachError::TooMany);
            }
            let range = (name_len > 0).then(|| range(shared, &bytes, name_len)).transpose()?;
            return Plea::of(shared, socket.into_socket(), beacon, range).map(Said::LetGo);
        }
        _ => return Err(AttachError::Nonsense),
    }
    let name = &bytes[size_of::<Header>()..][..name_len];
    let peer = seqpacket::peer(&socket).map_err(AttachError::NoAnswer)?;
    // Root's daemon too, unless it is there for others: what another user's program holds is none of its business.
    if !shared.users.serves(&socket).map_err(AttachError::NoAnswer)? {
        return Err(AttachError::Foreign { uid: peer.uid });
    }
    let [program] = <[Foreign; 1]>::try_from(received).map_err(|_| AttachError::Nonsense)?;
    let agent = peer.pid as u32;
    let process = program_of(agent, &program, peer.uid)?;
    is_still_there(&socket, agent)?;
    let pid = process.pid;
    let command = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let child = match beacon {
        [_, 0] => None,
        says => Some(child(shared, says, process, &socket)?),
    };
    let has_room = pressure::has_descriptors_for_others(&socket);
    let journal = shared.journal.begin().filter(|_| has_room);
    let slot = Slot(journal.and_then(|journal| Some((journal, shared.new_table()?))));
    if slot.0.is_none() {
        return Err(AttachError::TooMany);
    }
    // A child has its place already.
    let seat = match child {
        Some(_) => None,
        None => Some(shared.users.seat(peer.uid).ok_or(AttachError::TooManyOfUser)?),
    };
    // It is one of a process, as was found out.
    drop(program.into_known());
    // But for the answer to being managed.
    seqpacket::takes_descriptors(&socket, false);
    Ok(Said::Hello(Box::new(Candidate {
        socket: socket.into_socket(),
        app_name: match name {
            [] => scope::app_of(pid).unwrap_or_default(),
            said => name::bounded(said),
        },
        app: AppId(0),
        pid,
        started: process.started,
        uid: peer.uid,
        command: name::bounded(command.strip_suffix(b"\n").unwrap_or(&command)),
        is_asked_about: Arc::default(),
        order,
        handler: 0,
        child,
        slot,
        seat,
    })))
}

/// The addresses that a program names in a plea.
fn range(shared: &Shared, plea: &[u8], len: usize) -> Result<Range<u64>, AttachError> {
    let bytes = &plea[size_of::<Header>()..];
    let range = double_word(bytes, 0)..double_word(bytes, 1);
    let is_page = |at: u64| at.is_multiple_of(shared.page_bytes) && at <= LAST_ADDRESS;
    let is_range = len == RANGE_BYTES && range.start < range.end;
    let fits = is_range && is_page(range.start) && is_page(range.end);
    fits.then_some(range).ok_or(AttachError::Nonsense)
}

/// The program whose memory `agent` shares: the agent names it, and the kernel says whether that is
/// true. Its user is the agent's, `own`, and can be no other; but one that root has started may have become
/// another user's meanwhile.
fn program_of(agent: u32, program: &OwnedFd, own: u32) -> Result<ProcessName, AttachError> {
    let process = ProcessName::behind(program).ok_or(AttachError::Nonsense)?;
    let status = text_of(&format!("/proc/{}/status", process.pid))
        .map_err(|source| AttachError::Proc { what: "finding the program", source })?;
    let number = |name: &str, column: usize| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(column)?.parse::<u32>().ok()
    };
    let is_program = process.pid != agent
        && number("Tgid:", 0) == Some(process.pid)
        && runs_in_memory_of(agent, process.pid) == Some(true);
    // Real, effective and saved: it could go back to any of them.
    for column in 0..3 {
        let uid = number("Uid:", column).ok_or(AttachError::Nonsense)?;
        if own != 0 && uid != own {
            return Err(AttachError::Foreign { uid });
        }
    }
    // All that was said about this number is about the one behind the descriptor.
    let is_still = ProcessName::behind(program) == Some(process);
    if is_program && is_still { Ok(process) } else { Err(AttachError::Nonsense) }
}

/// The forked child whose beacon says this; from now on it is known to be process `name`. The secret
/// is known to nobody but the child itself.
fn child(
    shared: &Shared,
    [space, secret]: [u64; 2],
    name: ProcessName,
    socket: &OwnedFd,
) -> Result<Arc<Process>, AttachError> {
    let find = || {
        let space = SpaceId(u32::try_from(space).ok()?);
        shared.process(space).filter(|p| p.secret == secret)
    };
    let mut found = find();
    for _ in 0..100 {
        // It was told by a predecessor, and its program is still being taken over.
        if found.is_some() || shared.recovering.load(Ordering::SeqCst) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
        found = find();
    }
    let child = found.ok_or(AttachError::Nonsense)?;
    let (files, pagemap) = open_files(socket, name.pid)?;
    still_runs_in_its_memory(socket, name)?;
    if !child.identify(name, files, pagemap) {
        return Err(AttachError::Nonsense);
    }
    child.begins_to_count(shared.page_bytes);
    child.save_record(shared.column());
    if child.memory.is_given_up() {
        return Err(AttachError::GivenUp);
    }
    Ok(child)
}

/// Whether what was just opened of the files of process `name` is of the memory that its agent, at the
/// other end of `socket`, shares. Else it may be of a program that it has become since (execve), perhaps
/// another user's.
fn still_runs_in_its_memory(socket: &OwnedFd, name: ProcessName) -> Result<(), AttachError> {
    let agent = seqpacket::peer(socket).map_err(AttachError::NoAnswer)?.pid as u32;
    match runs_in_memory_of(agent, name.pid) {
        Some(true) => {}
        Some(false) => return Err(AttachError::Left),
        None => return Err(AttachError::Unknown(io::Error::last_os_error())),
    }
    is_still_there(socket, agent)?;
    // Nor has its number passed to another process of the same memory.
    match ProcessName::of(name.pid) {
        Ok(now) if now == name => Ok(()),
        _ => Err(AttachError::Left),
    }
}

/// What the kernel has of the memory of process `pid`, whose agent is at the other end of `socket`, and whose user must have the
/// right to read it.
fn open_files(socket: &OwnedFd, pid: u32) -> Result<(ProcFiles, File), AttachError> {
    let open = |what| open_of_process(pid, what);
    let opened = as_user_of(socket, || {
        Ok((ProcFiles::new(open("statm")?, open("maps")?, open("smaps")?), open("pagemap")?))
    });
    opened.map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => AttachError::NotItsUsers,
        _ => AttachError::Proc { what: "opening what the kernel has of its memory", source },
    })
}

fn double_word(bytes: &[u8], i: usize) -> u64 {
    bytes.get(i * 8..i * 8 + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    std::array::from_fn(|i| {
        bytes.get(i * 4..i * 4 + 4).map_or(0, |b| u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    })
}

/// A candidate whose agent was asked to prepare: to open a userfaultfd and a staging area, of which the
/// daemon takes over the descriptor. A forked child has one already, and its agent gets a copy.
pub struct Asked {
    candidate: Candidate,
    buffer: Segment,
    number: u32,
    until: Instant,
}

/// What an agent has answered.
pub struct Answer {
    bytes: [u8; size_of::<Ready>()],
    len: usize,
    received: Vec<Foreign>,
}

impl Asked {
    /// Asks the agent of a candidate, and waits for nobody.
    pub fn ask(shared: &Shared, candidate: Candidate) -> Result<Asked, AttachError> {
        let leaving = candidate.child.as_ref().and_then(|child| child.leaves());
        if let Some(why) = leaving.or_else(|| Alone::by_open_files(candidate.pid)) {
            return Err(AttachError::LeftAlone(why));
        }
        candidate.has_memory_of_its_own(shared)?;
        let Candidate { socket, child, .. } = &candidate;
        let until = Instant::now() + PREPARES;
        let buffer = agent::new_buffer().map_err(no_buffer)?;
        if !pressure::has_descriptors_for_others(&buffer) {
            return Err(AttachError::TooMany);
        }
        let theirs = buffer.reopen().map_err(no_buffer)?;
        let device = File::options().read(true).write(true).open("/dev/userfaultfd").ok();
        let second = match child {
            Some(child) => Some(child.memory.uffd.as_raw_fd()),
            None => device.as_ref().map(|d| d.as_raw_fd()),
        };
        let fds: Vec<_> = [Some(theirs.as_raw_fd()), second].into_iter().flatten().collect();
        // The answer repeats it. That to a predecessor that died, which nobody has read, names the
        // buffer that it had sent: what the agent then took out would be looked for in this one, and be
        // zeros.
        let number = (shared.generation as u32) << 24 | 1;
        let head = agent::header_bytes(Kind::Manage, u32::from(child.is_some()), number);
        seqpacket::takes_descriptors(socket, true);
        seqpacket::send(socket, [&head], &fds).map_err(AttachError::NoAnswer)?;
        points::manage_asked();
        Ok(Asked { candidate, buffer, number, until })
    }

    /// Its program.
    pub fn pid(&self) -> u32 {
        self.candidate.pid
    }

    /// Where the answer comes.
    pub fn socket(&self) -> &Foreign {
        &self.candidate.socket
    }

    /// When it is too late.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// The answer, which is there to be read; `None` if it is one to a predecessor.
    ///
    /// # Errors
    /// Those of the system.
    pub fn answer(&mut self) -> io::Result<Option<Answer>> {
        let mut bytes = [0u8; size_of::<Ready>()];
        let (len, received) = self.candidate.socket.receive(&mut bytes)?;
        let head = words::<4>(&bytes);
        let is_stale = Kind::from_u32(head[1]) == Some(Kind::Ready) && head[3] != self.number;
        Ok((!is_stale || len == 0).then_some(Answer { bytes, len, received }))
    }
}

fn no_buffer(source: SegmentError) -> AttachError {
    AttachError::Proc { what: "making the shared buffer", source: io::Error::other(source) }
}

/// Manages the program, if its agent is ready.
///
/// # Errors
/// Why it cannot be managed.
pub fn manage(
    shared: &Arc<Shared>,
    asked: Asked,
    answer: Answer,
) -> Result<Arc<Process>, AttachError> {
    let Asked { candidate, buffer, .. } = asked;
    let Answer { bytes, len: n, received } = answer;
    let head = words::<4>(&bytes);
    // One of two that were asked at once may have it by now.
    candidate.has_memory_of_its_own(shared)?;
    let mut record = candidate.record();
    let Candidate { socket, app, pid, started, handler, child, mut slot, seat, .. } = candidate;
    let no_answer = AttachError::NoAnswer;
    seqpacket::takes_descriptors(&socket, false);
    match Kind::from_u32(head[1]) {
        Some(Kind::Refused) => {
            let step = match head[3] {
                1 => "opening a userfaultfd",
                2 => "mapping the shared buffer",
                3 => "mapping the staging area",
                4 => "mapping the beacon",
                5 => "giving up its privileges",
                _ => "preparing",
            };
            return Err(AttachError::Refused { step, errno: head[2] });
        }
        Some(Kind::Ready) if n == bytes.len() => {}
        _ => return Err(AttachError::Nonsense),
    }
    let addresses = &bytes[size_of::<Header>()..];
    let [staging, area, beacon] = [0, 1, 2].map(|i| double_word(addresses, i));
    // User space ends below; sums with what is there cannot overflow.
    let (highest, page) = (1u64 << 56, shared.page_bytes);
    if [staging, area, beacon].iter().any(|a| *a > highest || *a % page != 0) {
        return Err(AttachError::Nonsense);
    }
    seqpacket::set_timeout(&socket, None).map_err(no_answer)?;
    points::manage_ready();
    // Without it nobody could look for what a dead agent left in staging.
    let mem = open_of_process(pid, "mem")
        .map_err(|source| AttachError::Proc { what: "opening its memory", source })?;
    // A child has them; whether its user may read its memory is asked all the same.
    let files = Some(open_files(&socket, pid)?).filter(|_| child.is_none());
    still_runs_in_its_memory(&socket, ProcessName { pid, started })?;
    let agent = Agent::new(socket, buffer, staging, area, Some(mem), shared.generation)
        .map_err(|source| AttachError::Proc { what: "mapping the shared buffer", source })?;
    let staging_bytes = SLOTS as u64 * shared.page_bytes;
    if let Some(child) = child {
        // Nothing is taken out before its staging area is registered.
        let none_goes = child.space.hold_swap_outs();
        // Set first: whatever is touched in the staging area from its registration on is known.
        if !child.memory.set_agent(agent) {
            return Err(AttachError::Nonsense);
        }
        if let Err(error) = child.memory.uffd.register(staging, staging_bytes) {
            child.memory.detach();
            return Err(AttachError::Userfaultfd(error));
        }
        points::manage_child_set();
        // Its slot as a candidate ends after this: a successor that finds both takes this one.
        child.save_record(shared.column());
        points::manage_child_recorded();
        drop(none_goes);
        return Ok(child);
    }
    let [uffd] = <[Foreign; 1]>::try_from(received).map_err(|_| AttachError::Nonsense)?;
    let uffd = Uffd::of_agent(uffd).ok_or(AttachError::Nonsense)?;
    let (files, pagemap) = files.ok_or(AttachError::Nonsense)?;
    (record.stage, record.beacon) = (Stage::Managed, beacon);
    let (journal, table) = slot.0.take().ok_or(AttachError::TooMany)?;
    let seat = seat.ok_or(AttachError::Nonsense)?;
    let id = table.id();
    let memory = ProgramMemory::new(
        uffd,
        shared.page_bytes,
        Some(agent),
        Some(pagemap),
        shared.epolls[handler].as_raw_fd(),
        u64::from(id.0),
    );
    let owner = Owner { app, seat };
    let process = Process::new(owner, record, handler, table, memory, journal, Some(files));
    // From here on a successor knows it as managed. The program's fork waits for somebody to read of
    // it as soon as the descriptor is armed: that comes after this.
    process.save_record(shared.column());
    points::manage_recorded();
    if let Err(error) = arm(shared, &process) {
        // The agent's copy of the descriptor goes with it, and nothing is armed any more.
        process.memory.detach();
        shared.processes.write().remove(&id);
        process.space.journal.end();
        return Err(error);
    }
    end_what_it_was(shared, &process);
    Ok(process)
}

/// Ends agents in memory that this process has left by execve, if they have not noticed: that of a
/// program with more privileges cannot tell.
fn end_what_it_was(shared: &Shared, process: &Process) {
    let pid = process.pid();
    let earlier: Vec<Arc<Process>> = {
        let processes = shared.processes.read();
        let others = processes.values().filter(|p| p.pid() == pid && p.id != process.id);
        others.cloned().collect()
    };
    for other in earlier.iter().filter(|other| other.memory.agent_outlived(pid)) {
        other.memory.detach();
    }
}

/// Has faults and forks of a program reported, and reads of them.
fn arm(shared: &Shared, process: &Arc<Process>) -> Result<(), AttachError> {
    process.arm(shared.page_bytes).map_err(AttachError::Userfaultfd)?;
    points::manage_registered();
    shared.processes.write().insert(process.id, process.clone());
    process.memory.watch().map_err(AttachError::Userfaultfd)?;
    points::manage_watched();
    Ok(())
}
