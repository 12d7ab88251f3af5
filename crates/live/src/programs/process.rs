//! Managed processes.
//!
//! Lock order: a space's batch lock, its `table.lock`, its `regions`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clew_core::{AppId, PageId, PageRun, SpaceId, Vpn};
use clew_engine::ManagedSpace;
use clew_store::{Space, SpaceJournal, State};
use parking_lot::Mutex;

use crate::faults::affinity;
use crate::faults::doubts::Doubts;
use crate::faults::moves::Moves;
use crate::faults::stuck::Stuck;
use crate::faults::uffd::{FEATURES, feature};
use crate::faults::unreadable::Unreadable;
use crate::programs::alone::{Alone, NextLook};
use crate::programs::kcmp::runs_in_memory_of;
use crate::programs::mappings::{self, LAST_ADDRESS, Mapping};
use crate::programs::memory::ProgramMemory;
use crate::programs::proc_stat::is_all_of;
use crate::survival::predecessor::ProcessName;
use crate::survival::records::{Record, Stage};
use crate::users::{OfUser, Seat};

/// The first page of a space, and no fewer than it can have.
pub const ALL_PAGES: (Vpn, u64) = (Vpn(0), u64::MAX >> 20);

/// One process (or one address space of it: after execve it is another).
pub struct Process {
    /// Its space.
    pub id: SpaceId,
    /// Its app.
    pub app: AppId,
    /// Process id; 0 for a forked child until its agent has said which one it is.
    pid: AtomicU32,
    /// Its user: that of its app.
    uid: u32,
    /// Its place among that user's programs.
    seat: Seat,
    /// Whether it was forked by a managed one.
    pub forked: bool,
    /// The process that forked it, as far as this daemon was told.
    pub parent: OnceLock<SpaceId>,
    /// Of a forked child: resident memory that it has from others, as it was when that was looked at.
    pub from_parent_bytes: AtomicU64,
    /// Address of the page that tells its forked children who they are, and it itself if it is one.
    pub beacon: u64,
    /// What the beacon says to it besides its space; 0 if it is nobody's child.
    pub secret: u64,
    /// Command name.
    pub command: String,
    /// Page table.
    pub space: Arc<ManagedSpace>,
    /// Memory: the same that `space` uses.
    pub memory: Arc<ProgramMemory>,
    /// Registered mappings: start to end.
    pub regions: Mutex<BTreeMap<u64, u64>>,
    /// What the program moved lately.
    pub moves: Mutex<Moves>,
    /// What it may have unmapped.
    pub doubts: Mutex<Doubts>,
    /// Messages of the kernel applied so far.
    pub applied: AtomicU32,
    /// The next message of the kernel could not be read, and is there still.
    pub unreadable: Unreadable,
    /// Up to which address it was looked at for what it did not get when it was forked.
    pub looked_to: AtomicU64,
    /// What a successor must know of it.
    pub record: Mutex<Record>,
    /// Of descriptors taken over: their numbers in the predecessor's table, until they are recorded.
    pub renumbered: Mutex<HashMap<RawFd, RawFd>>,
    /// `/proc/PID/statm`, `/proc/PID/smaps` and `/proc/PID/maps`; as long as it is not known which
    /// process it is, there are none.
    pub files: OnceLock<ProcFiles>,
    /// The CPU whose fault thread serves it.
    pub handler: usize,
    /// Pleas of it that wait to be granted.
    pub pleas: AtomicUsize,
    /// Why it is let go ([`Alone`]; 0: it is not): nothing more is taken out of it.
    leaving: AtomicU8,
    /// When its open files are looked at again.
    pub next_look: NextLook,
    /// Somebody asks whether it has left its memory.
    pub is_asked_about: AtomicBool,
    /// It has been let go: nothing of it is stored or registered.
    pub left: AtomicBool,
    /// How often a range of it was let go: what is known of mappings may be older.
    pub left_out: AtomicU64,
    /// Its app is being relaunched: the thread that faults is kept next to the handler.
    pub relaunching: AtomicBool,
    /// The accessed bits of its pages were cleared when its app last went back: they say what was used since.
    pub accessed_cleared: AtomicBool,
    /// A thread whose affinity was narrowed, and what it was before.
    pub narrowed: Mutex<Option<affinity::Narrowed>>,
    /// Since when faults wait for its events, which are held.
    pub held_since: Mutex<Option<Instant>>,
    /// Threads of it that no page can be put for.
    pub stuck: Mutex<Stuck>,
    /// Since when a first touch of fresh memory waits for room.
    pub waits_for_room_since: Mutex<Option<Instant>>,
    /// Faults served.
    pub faults: AtomicU64,
    /// Faults among them that brought a stored page back.
    pub demand: AtomicU64,
    /// Time that those took, from being read to their answer, in nanoseconds.
    pub fault_ns: AtomicU64,
    /// Of it, the time that the store took to decompress.
    pub fault_codec_ns: AtomicU64,
    /// Time that was spent on what came along, after the answer, in nanoseconds.
    pub fault_along_ns: AtomicU64,
    /// Pages found back from the kernel's swap.
    pub lent_back: AtomicU64,
    /// Pages brought back otherwise.
    pub restored: AtomicU64,
    /// Pages taken out.
    pub swapped_out: AtomicU64,
}

/// Whose a process is.
pub struct Owner {
    /// Its app.
    pub app: AppId,
    /// Its place among its user's programs.
    pub seat: Seat,
}

/// Open files of one process under /proc; they stay bound to it.
pub struct ProcFiles {
    pub statm: File,
    pub maps: File,
    smaps: File,
    /// The kernel keeps one place in each list: two who read one at a time would get parts of different lists. Asking
    /// about a single mapping needs no turn. A leaf, held as long as a program's lists are.
    reads: Mutex<()>,
}

impl ProcFiles {
    /// Of files that were just opened.
    pub fn new(statm: File, maps: File, smaps: File) -> ProcFiles {
        ProcFiles { statm, maps, smaps, reads: Mutex::default() }
    }

    /// All mappings.
    ///
    /// # Errors
    /// Those of [`mappings::read`].
    pub fn mappings(&self) -> io::Result<Vec<Mapping>> {
        let _turn = self.reads.lock();
        mappings::read(&self.maps)
    }

    /// The same, with their flags.
    ///
    /// # Errors
    /// As there.
    pub fn mappings_with_flags(&self) -> io::Result<Vec<Mapping>> {
        let _turn = self.reads.lock();
        mappings::read(&self.smaps)
    }
}

impl Process {
    /// A process with the memory and the page table given.
    pub fn new(
        owner: Owner,
        record: Record,
        handler: usize,
        table: Space,
        memory: ProgramMemory,
        journal: SpaceJournal,
        files: Option<ProcFiles>,
    ) -> Arc<Process> {
        let Owner { app, seat } = owner;
        memory.robust.of(record.pid);
        if let Some(leaves) = &seat.user().leaves {
            table.charge(leaves.clone());
        }
        let memory = Arc::new(memory);
        Arc::new(Process {
            id: table.id(),
            app,
            pid: AtomicU32::new(record.pid),
            uid: record.uid,
            seat,
            forked: record.stage == Stage::Child,
            parent: OnceLock::new(),
            from_parent_bytes: AtomicU64::default(),
            beacon: record.beacon,
            secret: record.secret,
            command: record.command.clone(),
            space: Arc::new(ManagedSpace::new(table, memory.clone(), journal)),
            memory,
            regions: Mutex::default(),
            moves: Mutex::default(),
            doubts: Mutex::default(),
            applied: AtomicU32::new(0),
            unreadable: Unreadable::default(),
            looked_to: AtomicU64::new(match record.stage {
                Stage::Child => 0,
                _ => LAST_ADDRESS,
            }),
            record: Mutex::new(record),
            renumbered: Mutex::default(),
            files: files.map(OnceLock::from).unwrap_or_default(),
            handler,
            pleas: AtomicUsize::default(),
            leaving: AtomicU8::default(),
            next_look: NextLook::default(),
            is_asked_about: AtomicBool::default(),
            left: AtomicBool::default(),
            left_out: AtomicU64::default(),
            relaunching: AtomicBool::default(),
            accessed_cleared: AtomicBool::default(),
            narrowed: Mutex::new(None),
            faults: AtomicU64::default(),
            demand: AtomicU64::default(),
            fault_ns: AtomicU64::default(),
            held_since: Mutex::default(),
            stuck: Mutex::default(),
            waits_for_room_since: Mutex::default(),
            fault_codec_ns: AtomicU64::default(),
            fault_along_ns: AtomicU64::default(),
            lent_back: AtomicU64::default(),
            restored: AtomicU64::default(),
            swapped_out: AtomicU64::default(),
        })
    }

    /// Process id; 0 for a forked child until its agent has said which one it is.
    pub fn pid(&self) -> u32 {
        self.pid.load(Ordering::Acquire)
    }

    /// Its user, as it was when it said hello.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// What is its user's own.
    pub fn of_user(&self) -> &OfUser {
        self.seat.user()
    }

    /// The process, so that no later one of its number is taken for it; `None` where its start is
    /// not known.
    pub fn name(&self) -> Option<ProcessName> {
        let record = self.record.lock();
        let name = ProcessName { pid: record.pid, started: record.started };
        (name.pid != 0 && name.started != 0).then_some(name)
    }

    /// A forked child's agent has told which process it is. False if one has before.
    pub fn identify(&self, name: ProcessName, files: ProcFiles, pagemap: File) -> bool {
        let mut record = self.record.lock();
        if record.pid != 0 || !self.memory.set_pagemap(pagemap) {
            return false;
        }
        (record.pid, record.started) = (name.pid, name.started);
        let _ = self.files.set(files);
        self.memory.robust.of(name.pid);
        self.pid.store(name.pid, Ordering::Release);
        drop(record);
        if self.memory.is_given_up() {
            self.end("it was given up before it had said who it is");
        }
        true
    }

    /// Has its userfaultfd report what the daemon must know, and registers what is the agent's. May be
    /// done again, by a successor that does not know whether it was done.
    pub fn arm(&self, page_bytes: u64) -> io::Result<()> {
        let done = match self.memory.uffd.api(FEATURES | feature::EVENT_FORK) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                // Without CAP_SYS_PTRACE a child's missing pages would read as zeros: refuse.
                let what = "the daemon may not follow forks (CAP_SYS_PTRACE)";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
            }
            done => done,
        };
        let staging = self.memory.staging();
        let staging_bytes = staging.end - staging.start;
        // What is done last. To do it again would wait for whoever has the program's memory locked: a predecessor, perhaps, that
        // waits in it for a page (`survival::last_threads`).
        if self.memory.uffd.covers(staging.start, staging_bytes) == Some(true) {
            return Ok(());
        }
        // The beacon before anything that a child inherits: who has a userfaultfd from its parent has
        // a beacon too. If this fails, why the features were refused says more.
        let register = |start: u64, len: u64| {
            self.memory.uffd.register(start, len).map_err(|error| match &done {
                Err(refused) => io::Error::new(refused.kind(), refused.to_string()),
                Ok(()) => error,
            })
        };
        register(self.beacon, page_bytes)?;
        register(staging.start, staging_bytes)
    }

    /// It is served no more, because what is known of its memory may be wrong, and ended: a thread
    /// that waits for a page gets none. A forked child of which nobody knows which process it is
    /// ([`Process::pid`]) is ended when its agent says so, and gets SIGBUS where it needs a page.
    pub fn give_up(&self, why: &str) {
        if !self.memory.give_up(self.pid() == 0) {
            return;
        }
        let is_known = {
            // Whoever says who it is takes this lock, and asks afterwards whether it was given up.
            let mut record = self.record.lock();
            record.given_up = true;
            record.save(&self.space.journal);
            record.pid != 0
        };
        if is_known {
            self.end(why);
        } else {
            let command = self.command.as_str();
            tracing::error!(
                command,
                why,
                "a forked child gets SIGBUS: it cannot be served any more"
            );
        }
    }

    /// Kills a program that was given up.
    fn end(&self, why: &str) {
        let pid = self.pid();
        // Whoever has the agent's number now is the agent if it shares the memory.
        let agent = self.memory.agent_pid().and_then(|agent| ProcessName::of(agent).ok());
        let is_in = agent.map(|agent| runs_in_memory_of(agent.pid, pid));
        let agent = agent.filter(|_| is_in == Some(Some(true)));
        // An execve keeps number and start, and what runs there then may be of a user who is more than this one. Where no
        // agent tells, its users do.
        let is_it = is_in.flatten().unwrap_or_else(|| is_all_of(pid, self.uid));
        // Where nobody has the memory any more, it is another program that is called so.
        let is_it = is_it && self.memory.uffd.is_alive();
        let killed = [self.name().filter(|_| is_it), agent]
            .map(|name| name.is_some_and(|n| n.send_kill().is_some()));
        tracing::error!(
            pid,
            command = self.command,
            why,
            killed = killed[0],
            "a program is ended: it cannot be served any more"
        );
    }

    /// What its beacon says.
    pub fn beacon_says(&self) -> [u64; 2] {
        if self.secret == 0 { [0; 2] } else { [u64::from(self.id.0), self.secret] }
    }

    /// Address ranges of the agent's own: never to be managed.
    pub fn agents_own(&self, page_bytes: u64) -> Vec<std::ops::Range<u64>> {
        let mut own = self.memory.agents_own();
        own.push(self.beacon..self.beacon + page_bytes);
        own
    }

    /// Writes what a successor must know of it to the journal, with its descriptors' numbers in `column`
    /// ([`crate::survival::records::column`]).
    pub fn save_record(&self, column: usize) {
        let mut record = self.record.lock();
        let mut descriptors = self.memory.descriptors();
        if let Some(files) = self.files.get() {
            descriptors.statm = Some(files.statm.as_raw_fd());
            descriptors.maps = Some(files.maps.as_raw_fd());
            descriptors.smaps = Some(files.smaps.as_raw_fd());
        }
        record.descriptors[column] = descriptors;
        (record.staging, record.area) = self.memory.agents_addresses();
        record.narrowed = self.narrowed.lock().as_ref().map(affinity::to_words);
        record.save(&self.space.journal);
    }

    /// A run of pages of this process; of more than 2^32 - 1 the first.
    pub fn run(&self, first: Vpn, pages: u64) -> PageRun {
        PageRun { first: PageId::new(self.id, first), count: pages.min(u64::from(u32::MAX)) as u32 }
    }

    /// The same, in as many runs as it takes.
    pub fn runs(&self, first: Vpn, pages: u64) -> impl Iterator<Item = PageRun> {
        let parts = (0..pages).step_by(u32::MAX as usize);
        parts.map(move |at| self.run(Vpn(first.0 + at), pages - at))
    }

    /// Whether its pages can be taken out.
    pub fn is_managed(&self) -> bool {
        self.memory.has_agent() && self.leaves().is_none()
    }

    /// Whether it is a forked child that was not looked at to the end for what it did not get.
    pub fn may_lack(&self) -> bool {
        self.looked_to.load(Ordering::Relaxed) < LAST_ADDRESS
    }

    /// Why it is being let go, or has been.
    pub fn leaves(&self) -> Option<Alone> {
        Alone::of(self.leaving.load(Ordering::SeqCst))
    }

    /// Nothing more is registered or taken out because of `why`; with `None` it stays after all.
    pub fn leave(&self, why: Option<Alone>) {
        self.leaving.store(why.map_or(0, |why| why as u8), Ordering::SeqCst);
    }

    /// Whether it has been let go.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::SeqCst)
    }

    /// Vpns of pages that are stored, also if they are parked, ascending.
    pub fn stored_vpns(&self) -> Vec<Vpn> {
        self.stored_vpns_of(ALL_PAGES)
    }

    /// Those of them that are among so many from the first on.
    pub fn stored_vpns_of(&self, (first, pages): (Vpn, u64)) -> Vec<Vpn> {
        let mut vpns = Vec::new();
        self.space.table.for_range(first, pages, |vpn, entry| {
            if matches!(entry.state(), State::Stored | State::Parked) {
                vpns.push(vpn);
            }
        });
        vpns
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use clew_store::{Journal, Tables};

    use super::*;
    use crate::faults::uffd::Uffd;
    use crate::faults::unmapped::marked;
    use crate::skip::skip;
    use crate::users::Users;

    const PAGE: u64 = 4096;

    /// A forked child of which nobody knows yet which process it is.
    fn unknown_child(uffd: Uffd) -> Arc<Process> {
        let record = Record {
            stage: Stage::Child,
            app: "app".to_string(),
            pid: 0,
            started: 0,
            uid: 0,
            command: "child".to_string(),
            staging: 0,
            area: 0,
            beacon: 0,
            secret: 7,
            forked: None,
            protocol: 0,
            descriptors: Default::default(),
            given_up: false,
            narrowed: None,
        };
        let tables = Arc::new(Tables::new(1 << 20).expect("tables"));
        let journal = Arc::new(Journal::new(1, PAGE).expect("a journal"));
        let owner = Owner { app: AppId(1), seat: Users::new(0, None).seat_of_served(0) };
        let memory = ProgramMemory::new(uffd, PAGE, None, None, -1, 0);
        let (table, slot) = (Space::new(SpaceId(1), tables), journal.begin().expect("a slot"));
        Process::new(owner, record, 0, table, memory, slot, None)
    }

    /// It has ended right after it unmapped something, and nobody has heard of that yet; or it has executed another program,
    /// which was ended in its place.
    #[test]
    fn a_program_that_has_left_its_memory_is_not_given_up() {
        let Ok(uffd) = Uffd::open_own() else {
            return skip("process::left_memory", "no userfaultfd");
        };
        let mut sleeps = Command::new("sleep").arg("600").spawn().expect("it starts");
        let pid = sleeps.id();
        let open = |file: &str| File::open(format!("/proc/{pid}/{file}")).expect("it lives");
        let files = ProcFiles::new(open("statm"), open("maps"), open("smaps"));
        let child = unknown_child(uffd);
        let name = ProcessName::of(pid).expect("it lives");
        assert!(child.identify(name, files, open("pagemap")));
        let range = || 1 << 30..1 << 40;
        assert_eq!(marked(&child, &[range()], PAGE), []);
        sleeps.kill().expect("it lives");
        sleeps.wait().expect("it ends");
        assert_eq!(marked(&child, &[range()], PAGE), []);
        assert!(!child.memory.is_given_up());
    }

    #[test]
    fn a_child_that_was_given_up_is_ended_when_it_says_who_it_is() {
        let uffd = || Uffd::open_own().ok();
        let (Some(given_up), Some(other)) = (uffd(), uffd()) else {
            return skip("process::given_up_child", "no userfaultfd");
        };
        let mut sleeps = Command::new("sleep").arg("600").spawn().expect("it starts");
        let pid = sleeps.id();
        let tell = |child: &Process| {
            let open = |file: &str| File::open(format!("/proc/{pid}/{file}")).expect("it lives");
            let files = ProcFiles::new(open("statm"), open("maps"), open("smaps"));
            let name = ProcessName::of(pid).expect("it lives");
            assert!(child.identify(name, files, open("pagemap")));
        };
        tell(&unknown_child(other));
        assert!(sleeps.try_wait().expect("it is ours").is_none(), "it lives");
        let child = unknown_child(given_up);
        child.give_up("so says the test");
        assert!(
            sleeps.try_wait().expect("it is ours").is_none(),
            "nobody knows that it is this one"
        );
        tell(&child);
        assert_eq!(sleeps.wait().expect("it ends").signal(), Some(libc::SIGKILL));
    }
}
