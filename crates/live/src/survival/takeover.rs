//! Taking over from a daemon that died, or that this one replaces.
//!
//! Its keeper still holds every descriptor. They are copied from there; store, page tables and
//! journal are adopted; what was under way is ended by looking (`Mover::recover`); then this
//! daemon's own keeper holds everything, which is written down (`predecessor::commit`), and the old
//! one is ended. Up to there whatever was done may be done again by the next successor.
//!
//! Programs wait for their missing pages meanwhile, and run on where they need none. Faults that the
//! dead daemon had read are not delivered again: at the end everybody is woken and faults anew.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clew_agent::protocol::VERSION;
use clew_core::{AppId, SpaceId};
use clew_engine::{MoverContext, Staged};
use clew_store::flash::file::{DeviceError, FileDevice};
use clew_store::flash::{AdoptFlashError, Flash, FlashConfig, FlashLeft, LogId, Place};
use clew_store::{Handle, Journal, Space, SpaceJournal, Store, StoreConfig, Tables, points};
use crossbeam_channel::bounded;

use crate::agents::agent::{Agent, PATIENCE};
use crate::agents::candidate::Candidate;
use crate::agents::closer::Foreign;
use crate::donor_tier::{self, DonorEstate, DonorTierError};
use crate::faults::affinity;
use crate::faults::events::{self, Inherited};
use crate::faults::interrupter::Interrupter;
use crate::faults::uffd::Uffd;
use crate::message::Message;
use crate::programs::memory::ProgramMemory;
use crate::programs::process::{Owner, ProcFiles, Process};
use crate::programs::shared::{Lost, Shared};
use crate::survival::predecessor::{Predecessor, ProcessName};
use crate::survival::records::{
    DaemonRecord, Descriptors, FlashDescriptors, Record, Stage, column,
};
use crate::survival::supervise::{self, SHORT_LIFE};

/// Why nothing can be taken over. The keeper stays, and programs wait.
#[derive(Debug, thiserror::Error)]
pub enum TakeoverError {
    #[error("the keeper's {what}: {source}")]
    Take { what: &'static str, source: io::Error },
    #[error(transparent)]
    Journal(#[from] clew_store::JournalError),
    #[error("what the last daemon wrote down about itself is damaged")]
    Damaged,
    #[error("the page tables: {0}")]
    Tables(clew_store::AdoptError),
    #[error("the pool: {0}")]
    Store(clew_store::AdoptError),
    #[error("flash: {0}")]
    Flash(#[from] AdoptFlashError),
    #[error("flash: {0}")]
    FlashDevice(#[from] DeviceError),
    #[error("donors: {0}")]
    Donors(#[from] DonorTierError),
}

/// What a daemon left, adopted but not served yet.
pub struct Estate {
    /// Whose it was.
    pub from: Predecessor,
    /// Its journal.
    pub journal: Arc<Journal>,
    /// Its page tables.
    pub tables: Arc<Tables>,
    /// Its pool.
    pub store: Arc<Store>,
    /// Its flash, if it had one.
    pub flash: Option<FlashEstate>,
    /// Its donors.
    pub donors: Vec<DonorEstate>,
    /// What it wrote down about itself.
    pub record: DaemonRecord,
    /// Where clients connect.
    pub control: OwnedFd,
    /// Where agents connect.
    pub agents: OwnedFd,
    /// Where it served metrics, if it did.
    pub metrics: Option<OwnedFd>,
    /// Its programs.
    pub programs: Programs,
}

/// Flash that a daemon left. It has threads when it is adopted, and so it is only after the keeper.
pub struct FlashEstate {
    left: FlashLeft,
    device: OwnedFd,
    bytes: u64,
    named: Vec<(u32, Place)>,
}

impl FlashEstate {
    /// Adopts it. `None` if nobody can read what is there any more: the programs that have nothing there go on.
    ///
    /// # Errors
    /// [`TakeoverError::Flash`], [`TakeoverError::FlashDevice`]. The keeper stays, and programs wait.
    pub fn adopt(self) -> Result<Option<Flash>, TakeoverError> {
        let device = FileDevice::adopt(self.device, self.bytes)?;
        let blocks = self.named.len();
        let config = FlashConfig::default();
        let (flash, lost) = match Flash::adopt(config, self.left, Box::new(device), &self.named) {
            Err(error) if error.is_lost() => {
                tracing::error!(
                    blocks,
                    "all that is on flash is lost, programs get SIGBUS where they need it: {error}"
                );
                return Ok(None);
            }
            adopted => adopted?,
        };
        if !lost.is_empty() {
            tracing::error!(
                blocks = lost.len(),
                "blocks on flash are lost: programs get SIGBUS where they need them"
            );
        }
        Ok(Some(flash))
    }
}

fn named_in(log: LogId, far: &[(u32, Place)]) -> Vec<(u32, Place)> {
    far.iter().filter(|(_, place)| place.log == log).copied().collect()
}

/// The programs of an estate.
pub struct Programs {
    managed: Vec<Program>,
    candidates: Vec<(SpaceId, SpaceJournal, Record, Foreign)>,
    /// Those whose records are damaged.
    pub lost: Vec<Lost>,
}

struct Program {
    record: Record,
    journal: SpaceJournal,
    table: Space,
    uffd: OwnedFd,
}

/// Seconds since 1970.
pub fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// How many daemons in a row have died at once, the last one included, if the supervisor has waited for
/// so long since.
fn short_lives(record: &DaemonRecord, now: u64, waited: Duration) -> u32 {
    let lived = now.saturating_sub(record.serving_since).saturating_sub(waited.as_secs());
    if lived < SHORT_LIFE.as_secs() { record.short_lives.saturating_add(1) } else { 0 }
}

impl Estate {
    /// Adopts what the keeper of `from` holds. Changes nothing that the next successor could not do
    /// again.
    pub fn open(from: Predecessor, config: StoreConfig) -> Result<Estate, TakeoverError> {
        let take = |what: &'static str, number: RawFd| {
            from.take(number).map_err(|source| TakeoverError::Take { what, source })
        };
        let journal =
            from.journal().map_err(|source| TakeoverError::Take { what: "journal", source })?;
        let journal = Arc::new(Journal::adopt(journal, config.page_bytes as u64)?);
        let mut record = DaemonRecord::load(&journal.own()).ok_or(TakeoverError::Damaged)?;
        let own = record.descriptors[column(from.generation)].ok_or(TakeoverError::Damaged)?;
        record.short_lives = short_lives(&record, seconds_now(), supervise::waited());

        let mut known = HashMap::new();
        let mut damaged = Vec::new();
        for (space, journal) in journal.in_use() {
            match Record::load(&journal) {
                Some(record) => {
                    known.insert(space, (record, journal));
                }
                None => damaged.push((space, journal)),
            }
        }
        let [chunks, owners] = own.tables;
        let tables = [take("page tables", chunks)?, take("page tables", owners)?];
        let (tables, mut chunks) = Tables::adopt(tables).map_err(TakeoverError::Tables)?;
        let tables = Arc::new(tables);
        let (mut managed, mut candidates) = (Vec::new(), Vec::new());
        // Every entry that names a block is one reference to it.
        let mut references: Vec<Handle> = Vec::new();
        for (space, (record, journal)) in known {
            let descriptors = record.descriptors[column(from.generation)];
            if record.stage == Stage::Candidate {
                match descriptors.socket.map(|n| from.take(n)) {
                    Some(Ok(socket)) => candidates.push((space, journal, record, socket.into())),
                    Some(Err(source)) if source.raw_os_error() != Some(libc::EBADF) => {
                        return Err(TakeoverError::Take { what: "socket of an agent", source });
                    }
                    _ => journal.end(),
                }
                continue;
            }
            let uffd = take("userfaultfd", descriptors.uffd.ok_or(TakeoverError::Damaged)?)?;
            let chunks = chunks.remove(&space).unwrap_or_default();
            let (table, damage) = Space::adopt(space, tables.clone(), chunks);
            if !damage.pages.is_empty() {
                tracing::error!(
                    pid = record.pid,
                    entries = damage.pages.len(),
                    "page table entries are damaged: the program gets SIGBUS where it needs them"
                );
            }
            references.extend(table.handles());
            managed.push(Program { record, journal, table, uffd });
        }
        let mut lost = Vec::new();
        for (space, journal) in damaged {
            let chunks = chunks.remove(&space).unwrap_or_default();
            let (table, _) = Space::adopt(space, tables.clone(), chunks);
            references.extend(table.handles());
            tracing::error!(
                space = space.0,
                stored_pages = table.counts().stored,
                "what the last daemon wrote down about a program is damaged: it is not served, and \
                 waits where it needs a page that is not there; what is stored of it is kept"
            );
            lost.push(Lost { table, journal });
        }
        // Of children that were not published, and of programs that ended.
        chunks.into_values().for_each(|chunks| tables.discard(chunks));
        let numbers = own.store.into_iter().chain(own.frames.into_iter().flatten());
        let fds = numbers.map(|number| take("pool", number)).collect::<Result<Vec<_>, _>>()?;
        let (store, adopted) =
            Store::adopt(config, fds, references).map_err(TakeoverError::Store)?;
        if !adopted.damaged.is_empty() {
            tracing::error!(
                blocks = adopted.damaged.len(),
                "stored blocks are damaged: programs get SIGBUS where they need them"
            );
        }
        let (control, agents) =
            (take("control socket", own.control)?, take("agents' socket", own.agents)?);
        let metrics = own.metrics.and_then(|number| from.take(number).ok());
        let flash =
            own.flash.map(|FlashDescriptors { log: [words, buffers, key], device, bytes }| {
                let left = FlashLeft {
                    fds: [take("flash", words)?, take("flash", buffers)?, take("flash", key)?],
                };
                let device = take("flash device", device)?;
                let named = named_in(LogId::FLASH, &adopted.far);
                Ok::<_, TakeoverError>(FlashEstate { left, device, bytes, named })
            });
        let flash = flash.transpose()?;
        let donors = own.donors.map(|number| {
            let record = take("donors", number)?;
            let left = donor_tier::left(record).map_err(TakeoverError::Donors)?;
            let estate = left.into_iter().map(|left| {
                let [words, buffers, key] = left.log;
                let log = FlashLeft {
                    fds: [take("donor", words)?, take("donor", buffers)?, take("donor", key)?],
                };
                let named = LogId::numbered(1 + left.number);
                let named = named.map_or(Vec::new(), |log| named_in(log, &adopted.far));
                let second = left.second_file().map(|number| take("second copies", number));
                let second = second.transpose()?;
                let copies = left.copies.map(|number| take("what two donors have", number));
                let copies = copies.transpose()?;
                Ok(DonorEstate { left, log, second, copies, named })
            });
            estate.collect::<Result<Vec<_>, TakeoverError>>()
        });
        let donors = donors.transpose()?.unwrap_or_default();
        let programs = Programs { managed, candidates, lost };
        let store = Arc::new(store);
        Ok(Estate {
            from,
            journal,
            tables,
            store,
            flash,
            donors,
            record,
            control,
            agents,
            metrics,
            programs,
        })
    }
}

/// What is left to do once this daemon's keeper holds everything.
pub struct Adopted {
    processes: Vec<Arc<Process>>,
    /// Programs that wait to be managed.
    pub candidates: Vec<Candidate>,
    from: Predecessor,
    children: HashMap<RawFd, Arc<Process>>,
}

impl Inherited for Adopted {
    fn child(&self, number: RawFd) -> Option<Arc<Process>> {
        self.children.get(&number).cloned()
    }
}

/// Makes processes of what was left. `app_named` gives the number of a user's app.
pub fn adopt(
    shared: &Arc<Shared>,
    from: Predecessor,
    programs: Programs,
    mut app_named: impl FnMut(u32, &str) -> AppId,
) -> Result<Adopted, TakeoverError> {
    let mut adopted =
        Adopted { processes: Vec::new(), candidates: Vec::new(), from, children: HashMap::new() };
    let _ = shared.lost.set(programs.lost);
    let mut load = vec![0usize; shared.epolls.len()];
    for program in programs.managed {
        let Program { record, journal, table, uffd } = program;
        let old = record.descriptors[shared.other_column()];
        let Reopened { agent, files, pagemap } = reopen(&adopted.from, &record, &old, shared)?;
        let handler = (0..load.len()).min_by_key(|h| load[*h]).unwrap_or(0);
        load[handler] += 1;
        let memory = ProgramMemory::new(
            Uffd::new(uffd),
            shared.page_bytes,
            agent,
            pagemap,
            shared.epolls[handler].as_raw_fd(),
            u64::from(table.id().0),
        );
        let app = app_named(record.uid, &record.app_or_command());
        let owner = Owner { app, seat: shared.users.seat_of_served(record.uid) };
        let narrowed = record.narrowed.clone();
        let process = Process::new(owner, record, handler, table, memory, journal, files);
        process.load_facts();
        *process.narrowed.lock() = narrowed.as_ref().map(affinity::from_words);
        process.save_record(shared.column());
        if process.record.lock().given_up {
            process.give_up("the last daemon could not serve it any more");
        }
        // The predecessor may have died between its record and this.
        if process.record.lock().stage == Stage::Managed
            && process.is_managed()
            && let Err(error) = process.arm(shared.page_bytes)
        {
            let (pid, started) = (process.pid(), process.record.lock().started);
            // Of one that has ended meanwhile there is nothing to say.
            if started == 0 || (ProcessName { pid, started }).is_alive() {
                tracing::warn!(%error, pid, "a program keeps its pages from now on");
            }
            process.memory.detach();
        }
        if let (Stage::Child, Some(number)) = (process.record.lock().stage, old.uffd) {
            adopted.children.insert(number, process.clone());
        }
        adopted.processes.push(process);
    }
    for (space, journal, record, socket) in programs.candidates {
        let is_it = |p: &&Arc<Process>| {
            Some(p.id.0) == record.forked && p.secret == record.secret && !p.is_managed()
        };
        let child = adopted.processes.iter().find(is_it).cloned();
        if record.forked.is_some() && child.is_none() {
            // It was completed in the last moment, or is gone.
            journal.end();
            continue;
        }
        let candidate = Candidate::inherited(shared, &record, socket, journal, space, child);
        adopted.candidates.push(candidate);
    }
    for process in &adopted.processes {
        events::take_children(shared, process, &adopted, |number| adopted.from.take(number))
            .map_err(|source| TakeoverError::Take { what: "userfaultfd of a child", source })?;
    }
    Ok(adopted)
}

/// What the predecessor had of a program besides its userfaultfd, as far as it had it.
struct Reopened {
    agent: Option<Agent>,
    files: Option<ProcFiles>,
    pagemap: Option<File>,
}

/// Takes what the predecessor had of a program. A descriptor that its keeper does not
/// have is not there; one that cannot be had now is an error, for the next one to do better.
fn reopen(
    from: &Predecessor,
    record: &Record,
    descriptors: &Descriptors,
    shared: &Shared,
) -> Result<Reopened, TakeoverError> {
    let take = |what: &'static str, number: Option<RawFd>| match number.map(|n| from.take(n)) {
        None => Ok(None),
        Some(Err(error)) if error.raw_os_error() == Some(libc::EBADF) => Ok(None),
        Some(taken) => taken.map(Some).map_err(|source| TakeoverError::Take { what, source }),
    };
    let file = |number| take("file of a program", number).map(|fd| fd.map(File::from));
    let files = (file(descriptors.statm)?, file(descriptors.maps)?, file(descriptors.smaps)?);
    let files = match files {
        (Some(statm), Some(maps), Some(smaps)) => Some(ProcFiles::new(statm, maps, smaps)),
        _ => None,
    };
    let socket = take("socket of an agent", descriptors.socket)?.map(Foreign::from);
    let agent = match (socket, take("buffer of an agent", descriptors.buffer)?) {
        // An agent of another version is not understood: its program is served, and keeps its pages.
        (Some(socket), Some(buffer)) if record.protocol == VERSION => {
            let mem = file(descriptors.mem)?;
            let (staging, area) = (record.staging, record.area);
            let agent = Agent::inherited(socket, buffer, staging, area, mem, shared.generation);
            Some(agent.map_err(|source| TakeoverError::Take { what: "agent", source })?)
        }
        _ => None,
    };
    Ok(Reopened { agent, files, pagemap: file(descriptors.pagemap)? })
}

impl Adopted {
    /// How many programs are managed.
    pub fn programs(&self) -> usize {
        self.processes.len()
    }

    /// The keepers to be ended once this daemon's own holds everything.
    pub fn old_keepers(&self, record: &DaemonRecord) -> Vec<(u32, u64)> {
        let from = (self.from.name.pid, self.from.name.started);
        record.old_keepers.iter().copied().chain([from]).collect()
    }

    /// Ends what was under way and begins to serve: each program as soon as its agent, and those in
    /// whose batches it has a part, can be asked. Waits until all are served that need to ask nobody.
    pub fn serve(self, shared: &Arc<Shared>) {
        let in_batches: HashSet<SpaceId> = self
            .processes
            .iter()
            .filter(|p| p.space.journal.batch_len() > 0)
            .flat_map(|p| [Some(p.id), p.space.journal.staged_in()])
            .flatten()
            .collect();
        let (waits, at_once): (Vec<_>, Vec<_>) =
            self.processes.iter().cloned().partition(|p| in_batches.contains(&p.id));
        let adopted = Arc::new(self);
        let (are_served, until_served) = bounded(1);
        start_recovering(shared, {
            let (shared, adopted) = (shared.clone(), adopted.clone());
            move || {
                adopted.recover(&shared, at_once.clone(), || {
                    let _ = are_served.try_send(());
                });
            }
        });
        let _ = until_served.recv();
        // Families, each by the one whose staging area it is: a frozen agent holds up its own only.
        let mut families: HashMap<SpaceId, Vec<Arc<Process>>> = HashMap::new();
        for process in waits {
            let head = process.space.journal.staged_in().filter(|head| {
                process.space.journal.batch_len() > 0
                    && adopted.processes.iter().any(|p| p.id == *head)
            });
            families.entry(head.unwrap_or(process.id)).or_default().push(process);
        }
        for family in families.into_values().map(Arc::new) {
            let (own, adopted) = (shared.clone(), adopted.clone());
            start_recovering(shared, move || adopted.ask_and_recover(&own, &family));
        }
    }

    /// Recovers programs whose agents may still be at work.
    fn ask_and_recover(&self, shared: &Arc<Shared>, family: &[Arc<Process>]) {
        for process in family {
            process.memory.sync();
        }
        self.recover(shared, family.to_vec(), || {});
    }

    /// Counts itself out of [`Shared::recovering`] at the end. `are_served` is called when nobody of the family waits any more.
    fn recover(
        &self,
        shared: &Arc<Shared>,
        mut family: Vec<Arc<Process>>,
        are_served: impl FnOnce(),
    ) {
        let (mut ctx, mut interrupter) = (MoverContext::default(), Interrupter::default());
        let mut next = 0;
        while let Some(process) = family.get(next).cloned() {
            next += 1;
            let guard = process.space.table.lock.write();
            loop {
                events::resume(shared, &process, self, &mut interrupter);
                let head = process.space.journal.staged_in();
                let head = self.processes.iter().find(|p| Some(p.id) == head);
                let mut staged = |slot: usize, out: &mut [u8]| {
                    head.map_or(Staged::Unknown, |head| head.memory.staged(slot, out))
                };
                if shared.mover.recover(&process.space, &mut ctx, &mut staged).is_ok() {
                    break;
                }
                // Whoever changes its mappings has to run to say so.
                std::thread::sleep(Duration::from_micros(50));
            }
            points::start_recovered();
            drop(guard);
            // Forked in the predecessor's last moments, and told of only now.
            let joined = |p: &&Arc<Process>| {
                p.space.journal.batch_len() > 0
                    && p.space.journal.staged_in() == process.space.journal.staged_in()
                    && !family.iter().any(|other| other.id == p.id)
                    && !self.processes.iter().any(|other| other.id == p.id)
            };
            let joined: Vec<_> = shared.processes.read().values().filter(joined).cloned().collect();
            family.extend(joined);
        }
        let mut none_go = Vec::new();
        for process in &family {
            none_go.push(process.space.hold_swap_outs());
            let is_new = shared.processes.write().insert(process.id, process.clone()).is_none();
            if is_new && let Err(error) = process.memory.watch() {
                tracing::error!(%error, pid = process.pid(), "cannot watch a program yet: it is asked again and again");
            }
            process.memory.uffd.wake_all();
            points::start_woken();
            process.memory.empty_staging();
            let cpu = shared.handler_cpus[process.handler];
            affinity::widen(&process.narrowed, process.pid(), cpu);
            if is_new {
                let _ = shared.governor.send(Message::Adopted(process.clone()));
            }
        }
        are_served();
        // One that is frozen is silent from now on; the others' pages can go.
        let until = Instant::now() + PATIENCE;
        for (process, held) in family.iter().zip(none_go) {
            process.memory.staging_is_emptied(until);
            points::start_emptied();
            drop(held);
        }
        shared.recovering.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Has `recover` done by a thread of its own, or here if there is none to be had.
fn start_recovering(shared: &Shared, recover: impl Fn() + Clone + Send + 'static) {
    shared.recovering.fetch_add(1, Ordering::SeqCst);
    let here = recover.clone();
    let spawned = std::thread::Builder::new().name("recover".into()).spawn(recover);
    if let Err(error) = spawned {
        tracing::warn!(%error, "no thread to recover some programs: they come first");
        here();
    }
}

/// Ends keepers whose descriptors a newer one holds. Those that cannot be ended now remain.
pub fn end_keepers(keepers: &mut Vec<(u32, u64)>) {
    keepers.retain(|(pid, started)| {
        !ProcessName { pid: *pid, started: *started }.kill(Duration::from_secs(5))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::affinity::Placement;

    #[test]
    fn time_that_a_supervisor_waits_is_no_life() {
        let record = DaemonRecord {
            descriptors: [None; 2],
            placement: Placement::Free,
            serving_since: 1000,
            short_lives: 3,
            old_keepers: Vec::new(),
        };
        let after = |now, waited| short_lives(&record, now, Duration::from_secs(waited));
        assert_eq!(after(1001, 0), 4);
        assert_eq!(after(1031, 30), 4, "it lived for a second, and 30 were waited");
        assert_eq!(after(1041, 30), 0, "it lived for eleven");
        assert_eq!(after(1011, 0), 0);
        // A clock that was set.
        assert_eq!(after(990, 30), 4);
    }
}
