//! Programs under one mover, each with a model of what it wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use clew_core::{CodecKind, Group, PageId, RunAhead, SpaceId, Vpn};
use clew_engine::{
    Awaited, BlockStore, Fault, ManagedSpace, Memory, Mover, MoverContext, Parking, Staged, SwapOut,
};
use clew_store::SpaceWriteGuard;
use clew_store::flash::device::{Device, Read, Write};
use clew_store::flash::{Flash, FlashConfig, FlashLeft, LogId, MemoryDevice, ReadsAhead};
use clew_store::{
    Entry, FarBlock, Get, Journal, Segment, Space, State, Store, StoreConfig, Tables,
};

use crate::contents::{PAGE, page};
use crate::kernel::{Calls, Change, Kernel};

const FLASH: FlashConfig = FlashConfig {
    log: LogId::FLASH,
    segment_bytes: 64 << 10,
    buffers: 4,
    reads_ahead: ReadsAhead::IfUsed,
    writers: 2,
};

/// Pages of an address space that tests use.
pub const PAGES: u64 = 96;

pub struct Program {
    pub kernel: Arc<Kernel>,
    pub space: Arc<ManagedSpace>,
    /// Version of each page that was written.
    pub model: Mutex<BTreeMap<u64, u64>>,
    /// A forked child does not run before its parent's event was read.
    pub born: AtomicBool,
}

pub struct World {
    pub mover: Mover,
    pub store: Arc<Store>,
    pub calls: Arc<Calls>,
    tables: Arc<Tables>,
    journal: Arc<Journal>,
    programs: Mutex<BTreeMap<u32, Arc<Program>>>,
    next_id: AtomicU32,
    version: AtomicU64,
    device: Option<MemoryDevice>,
    /// Blocks of faults arrive when [`World::arrive`] says so.
    pub is_late: AtomicBool,
    late: Mutex<Vec<(u32, Awaited, FarBlock)>>,
}

impl Program {
    pub fn id(&self) -> u32 {
        self.space.id().0
    }

    pub fn entry(&self, vpn: u64) -> Entry {
        self.space.table.load(Vpn(vpn))
    }

    fn version(&self, vpn: u64) -> u64 {
        self.model.lock().unwrap().get(&vpn).copied().unwrap_or(0)
    }

    pub fn forget(&self, first: u64, count: u64) {
        self.model.lock().unwrap().retain(|vpn, _| !(first..first + count).contains(vpn));
    }
}

/// Memory that is written slowly.
#[derive(Debug)]
struct SlowDevice(MemoryDevice);

impl Device for SlowDevice {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn write(&self, write: Write<'_>) -> Option<std::io::Result<usize>> {
        std::thread::sleep(std::time::Duration::from_millis(3));
        self.0.write(write)
    }

    fn read(&self, read: Read) {
        self.0.read(read);
    }

    fn way(&self) -> &'static str {
        self.0.way()
    }
}

/// A group of pages for a swap-out.
pub fn group(program: &Program, pages: &[u64], codec: CodecKind, chunk_bytes: u32) -> Group {
    let id = |vpn: &u64| PageId::new(program.space.id(), Vpn(*vpn));
    Group {
        pages: pages.iter().map(id).collect(),
        hotness: None,
        codec,
        chunk_bytes,
        park_siblings: false,
    }
}

impl World {
    pub fn new(mem_limit_bytes: u64, disksize_pages: u64, retain: bool) -> World {
        let config = StoreConfig { page_bytes: PAGE, mem_limit_bytes, disksize_pages };
        let store = Arc::new(Store::new(config).unwrap());
        World {
            mover: Mover::new(Arc::clone(&store), retain, Parking { pages: 6, keep: retain }),
            store,
            calls: Arc::default(),
            tables: Arc::new(Tables::new(1 << 20).unwrap()),
            journal: Arc::new(Journal::new(4096, PAGE as u64).unwrap()),
            programs: Mutex::default(),
            next_id: AtomicU32::new(1),
            version: AtomicU64::new(1),
            device: None,
            is_late: AtomicBool::new(false),
            late: Mutex::default(),
        }
    }

    /// The same, with flash.
    pub fn with_flash(self) -> World {
        let device = MemoryDevice::new(8 << 20);
        let flash = Flash::new(FLASH, Box::new(device.clone())).unwrap();
        assert!(self.store.attach_log(Arc::new(flash)));
        World { device: Some(device), ..self }
    }

    /// The same, with flash that has less room in buffers than there are pages, and takes its time to write them.
    pub fn with_slow_flash(self) -> World {
        let device = SlowDevice(MemoryDevice::new(8 << 20));
        let config = FlashConfig { buffers: 2, writers: 1, ..FLASH };
        let flash = Flash::new(config, Box::new(device)).unwrap();
        assert!(self.store.attach_log(Arc::new(flash)));
        self
    }

    /// The same, where pages behind a fault come along.
    pub fn running_ahead(self) -> World {
        let run_ahead = RunAhead { max_pages: 8, probe_one_in: 2, around_pages: 4 };
        World { mover: self.mover.with_run_ahead(Some(run_ahead)), ..self }
    }

    /// The same, with page tables of so many leaves.
    pub fn with_leaves(self, leaves: u64) -> World {
        World { tables: Arc::new(Tables::new(leaves * 512).unwrap()), ..self }
    }

    pub fn roomy(retain: bool) -> World {
        World::new(64 << 20, u64::MAX, retain)
    }

    fn manage(
        &self,
        kernel: Kernel,
        id: u32,
        model: BTreeMap<u64, u64>,
        born: bool,
    ) -> Arc<Program> {
        let kernel = Arc::new(kernel);
        let table = Space::new(SpaceId(id), Arc::clone(&self.tables));
        let journal = self.journal.begin().unwrap();
        journal.publish(SpaceId(id));
        let memory = Arc::clone(&kernel) as Arc<dyn Memory>;
        let space = Arc::new(ManagedSpace::new(table, memory, journal));
        let program =
            Arc::new(Program { kernel, space, model: Mutex::new(model), born: born.into() });
        self.programs.lock().unwrap().insert(id, Arc::clone(&program));
        program
    }

    /// A program with [`PAGES`] mapped pages and nothing in them.
    pub fn start(&self) -> Arc<Program> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let kernel = Kernel::new(id, PAGES, Arc::clone(&self.calls));
        self.manage(kernel, id, BTreeMap::new(), true)
    }

    pub fn programs(&self) -> Vec<Arc<Program>> {
        self.programs.lock().unwrap().values().cloned().collect()
    }

    pub fn program(&self, id: u32) -> Option<Arc<Program>> {
        self.programs.lock().unwrap().get(&id).cloned()
    }

    pub fn next_version(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed)
    }

    /// The next daemon, after this one died: it has what is in the segments, and programs that go on.
    pub fn succeed(self: Arc<World>, retain: bool) -> Arc<World> {
        let fd = |segment: &Segment| segment.as_fd().try_clone_to_owned().unwrap();
        let journal = Journal::adopt(fd(self.journal.segment()), PAGE as u64).unwrap();
        let journal = Arc::new(journal);
        let (tables, mut leaves) = Tables::adopt(self.tables.segments().map(fd)).unwrap();
        let tables = Arc::new(tables);
        let (mut programs, mut references) = (BTreeMap::new(), Vec::new());
        for (id, journal) in journal.in_use() {
            let before = self.program(id.0).expect("a program that lives");
            let leaves = leaves.remove(&id).unwrap_or_default();
            let (table, damage) = Space::adopt(id, Arc::clone(&tables), leaves);
            assert_eq!(damage.pages, []);
            references.extend(table.handles());
            before.kernel.change_hands();
            let kernel = Arc::clone(&before.kernel);
            let memory = Arc::clone(&kernel) as Arc<dyn Memory>;
            let space = Arc::new(ManagedSpace::new(table, memory, journal));
            let model = Mutex::new(before.model.lock().unwrap().clone());
            let born = AtomicBool::new(before.born.load(Ordering::SeqCst));
            programs.insert(id.0, Arc::new(Program { kernel, space, model, born }));
        }
        assert_eq!(programs.len(), self.programs().len());
        let fds = self.store.segments().into_iter().map(fd).collect();
        let (store, adopted) = Store::adopt(*self.store.config(), fds, references).unwrap();
        assert_eq!(adopted.damaged, []);
        let store = Arc::new(store);
        if let (Some(flash), Some(device)) = (self.store.log(LogId::FLASH), &self.device) {
            // Its threads outlive it here: they have nothing more to do.
            assert!(flash.flush());
            let left =
                FlashLeft { fds: flash.segments().map(|fd| fd.try_clone_to_owned().unwrap()) };
            let (flash, lost) =
                Flash::adopt(FLASH, left, Box::new(device.clone()), &adopted.far).unwrap();
            assert!(lost.is_empty());
            assert!(store.attach_log(Arc::new(flash)));
        }
        let next = World {
            mover: Mover::new(Arc::clone(&store), retain, Parking { pages: 6, keep: retain }),
            store,
            calls: Arc::clone(&self.calls),
            tables,
            journal,
            programs: Mutex::new(programs),
            next_id: self.next_id.load(Ordering::SeqCst).into(),
            version: self.version.load(Ordering::SeqCst).into(),
            device: self.device.clone(),
            is_late: AtomicBool::new(false),
            late: Mutex::default(),
        };
        // Who died frees nothing.
        std::mem::forget(self);
        Arc::new(next)
    }

    /// Ends what was under way in every program.
    pub fn recover(&self, ctx: &mut MoverContext) {
        let programs = self.programs();
        for program in &programs {
            let guard = program.space.table.lock.write();
            let head = program.space.journal.staged_in().and_then(|head| self.program(head.0));
            let mut staged = |slot: usize, out: &mut [u8]| {
                let head = head.as_ref().expect("whose batch it is");
                head.kernel.staged(slot).map_or(Staged::Empty, |page| {
                    out.copy_from_slice(&page);
                    Staged::Copied
                })
            };
            loop {
                self.apply(program, &guard);
                if self.mover.recover(&program.space, ctx, &mut staged).is_ok() {
                    break;
                }
            }
        }
        for program in &programs {
            program.kernel.empty_staging();
            program.kernel.drop_removed();
        }
    }

    // ---- the reader of events and faults, as it is live -----------------------------------------

    /// Applies every unread event. The lock is the space's own, held for writing.
    pub fn apply(&self, program: &Program, _guard: &SpaceWriteGuard<'_>) {
        let space = &program.space;
        while let Some(change) = program.kernel.read_change() {
            match change {
                Change::Removed { first, count } | Change::Unmapped { first, count } => {
                    self.mover.forget(space, Vpn(first), count);
                }
                Change::Remapped { from, count, to } => {
                    self.mover.remap(space, Vpn(from), count, Vpn(to)).unwrap();
                    space.journal.set_step(0);
                }
                Change::Forked { child } => {
                    // Of which the next daemon has a table of its own.
                    let known = self.program(child.id().0);
                    let child = known.as_ref().map_or(child, |known| Arc::clone(&known.space));
                    let lost = self.mover.fork(space, &child);
                    assert_eq!(lost, [], "no room in page tables");
                    if let Some(child) = known {
                        child.born.store(true, Ordering::SeqCst);
                    }
                }
            }
        }
    }

    /// The block of a fault arrives later.
    pub fn fetch_later(&self, program: &Program, awaited: Awaited, far: FarBlock) {
        self.late.lock().unwrap().push((program.id(), awaited, far));
    }

    /// The blocks that faults wait for arrive; how many did.
    pub fn arrive(&self, ctx: &mut MoverContext) -> usize {
        let late = std::mem::take(&mut *self.late.lock().unwrap());
        let arrived = late.len();
        for (id, awaited, far) in late {
            let Some(program) = self.program(id) else { continue };
            let (fetched, told) = (self.store.fetch_now(far), &mut Vec::new());
            let fault = {
                let _events = program.space.table.lock.read();
                self.mover.arrived(&program.space, awaited, fetched, ctx, told)
            };
            match fault {
                Fault::Far(awaited, far) => self.late.lock().unwrap().push((id, awaited, far)),
                Fault::Again | Fault::Gone => program.kernel.wake(awaited.vpn, 1),
                Fault::Corrupt(error) => panic!("{awaited:?}: {error}"),
                Fault::Restored | Fault::Fresh(_) | Fault::Spurious | Fault::Waiting => {}
            }
        }
        arrived
    }

    /// Reads and applies events, then answers faults. False if events are held.
    pub fn serve(&self, program: &Program, ctx: &mut MoverContext) -> bool {
        let guard = program.space.table.lock.write();
        if program.kernel.events_held() {
            return false;
        }
        let faults = program.kernel.read_faults();
        self.apply(program, &guard);
        let _guard = guard.downgrade();
        for vpn in faults {
            let mut fault = self.mover.fault(&program.space, Vpn(vpn), ctx, &mut Vec::new());
            while let Fault::Far(awaited, far) = fault {
                if self.is_late.load(Ordering::SeqCst) {
                    self.fetch_later(program, awaited, far);
                    fault = Fault::Waiting;
                    break;
                }
                let fetched = self.store.fetch_now(far);
                let (space, told) = (&program.space, &mut Vec::new());
                fault = self.mover.arrived(space, awaited, fetched, ctx, told);
            }
            match fault {
                Fault::Again | Fault::Gone => program.kernel.wake(Vpn(vpn), 1),
                Fault::Corrupt(error) => panic!("page {vpn}: {error}"),
                Fault::Restored | Fault::Fresh(_) | Fault::Spurious | Fault::Waiting => {}
                Fault::Far(..) => unreachable!("it was fetched"),
            }
        }
        true
    }

    // ---- what programs do, one after the other --------------------------------------------------

    /// Touches a page until it is there; false if its thread has to wait for a batch.
    pub fn touch(&self, program: &Program, vpn: u64, ctx: &mut MoverContext) -> bool {
        for _ in 0..20 {
            if program.kernel.touch(vpn) {
                return true;
            }
            if !self.serve(program, ctx) || program.kernel.is_asleep(vpn) {
                return false;
            }
        }
        panic!("page {vpn} ({:?}) faults for ever", program.entry(vpn));
    }

    /// Reads a page and compares it; false if its thread has to wait for a batch.
    pub fn read(&self, program: &Program, vpn: u64, ctx: &mut MoverContext) -> bool {
        if !self.touch(program, vpn, ctx) {
            return false;
        }
        let bytes = program.kernel.bytes(vpn).unwrap();
        assert!(bytes == page(program.version(vpn)), "{}", self.wrong(program, vpn, &bytes));
        true
    }

    /// Writes a page; false if its thread has to wait for a batch.
    pub fn write(&self, program: &Program, vpn: u64, ctx: &mut MoverContext) -> bool {
        let version = self.next_version();
        let done = self.touch(program, vpn, ctx) && program.kernel.write(vpn, page(version));
        if done {
            program.model.lock().unwrap().insert(vpn, version);
        }
        done
    }

    /// The kernel's half of a fork; the event is unread.
    pub fn fork(&self, parent: &Program) -> Arc<Program> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let model = parent.model.lock().unwrap().clone();
        let child = self.manage(Kernel::new(id, 0, Arc::clone(&self.calls)), id, model, false);
        parent.kernel.fork(&child.kernel, Arc::clone(&child.space));
        child
    }

    pub fn end(&self, program: &Program) {
        program.kernel.exit();
        self.mover.end(&program.space);
        program.space.journal.end();
        self.programs.lock().unwrap().remove(&program.id());
    }

    /// Swaps the groups out, LZ4.
    pub fn out(&self, program: &Program, groups: &[&[u64]], ctx: &mut MoverContext) -> SwapOut {
        let groups: Vec<Group> =
            groups.iter().map(|pages| group(program, pages, CodecKind::Lz4, 4096)).collect();
        self.mover.swap_out(&program.space, &groups, ctx)
    }

    // ---- checks ---------------------------------------------------------------------------------

    fn wrong(&self, program: &Program, vpn: u64, bytes: &[u8]) -> String {
        let known = (0..self.version.load(Ordering::Relaxed)).find(|v| *page(*v) == *bytes);
        format!(
            "program {}: page {vpn} ({:?}) should be version {} and is {known:?}",
            program.id(),
            program.entry(vpn),
            program.version(vpn),
        )
    }

    /// Panics unless every byte of every program is where the table says. No call is under way.
    pub fn check(&self, ctx: &mut MoverContext) {
        let mut handles = BTreeSet::new();
        for program in self.programs() {
            assert!(program.kernel.sleepers().is_empty(), "asleep in {}", program.id());
            // What a successor goes by.
            assert_eq!(program.space.journal.batch_len(), 0, "a batch of {} is over", program.id());
            for vpn in 0..PAGES {
                let entry = program.entry(vpn);
                let at = format!("program {} page {vpn} ({entry:?})", program.id());
                if let Some(handle) = entry.handle() {
                    handles.insert(handle);
                }
                if !program.kernel.is_mapped(vpn) {
                    assert_eq!(entry, Entry::ABSENT, "{at} is not mapped");
                    continue;
                }
                let mut bytes = vec![0; PAGE].into_boxed_slice();
                match (program.kernel.bytes(vpn), entry.state()) {
                    (Some(there), State::Absent | State::Resident | State::Lent) => bytes = there,
                    (None, State::Absent | State::Resident | State::Lent) => {}
                    (None, State::Stored | State::Parked) => {
                        if let Some(handle) = entry.handle() {
                            let (store, index) = (&self.store, entry.index());
                            let got = match store.get(&mut ctx.codec, handle, index, &mut bytes) {
                                Ok(Get::Far(far)) => {
                                    let fetched = store.fetch_now(far).unwrap();
                                    store.get_fetched(&mut ctx.codec, &fetched, index, &mut bytes)
                                }
                                got => got.and_then(Get::here),
                            };
                            assert_eq!(got, Ok(()), "{at}");
                        }
                    }
                    (there, _) => panic!("{at}, present: {}", there.is_some()),
                }
                assert!(
                    bytes == page(program.version(vpn)),
                    "{}",
                    self.wrong(&program, vpn, &bytes)
                );
            }
        }
        let facts = self.store.facts();
        assert_eq!(facts.blocks, handles.len() as u64, "blocks without an entry: {handles:?}");
        // While a block is on its way, its page may be moved away and back: two hold its entry then, and
        // the second finds it present. Seen in one of a hundred runs, and in none without moves.
        if !self.is_late.load(Ordering::SeqCst) {
            assert_eq!(self.mover.counters.conflicts.load(Ordering::Relaxed), 0);
        }
        assert_eq!(self.mover.counters.corrupt.load(Ordering::Relaxed), 0);
    }

    /// Ends every program; panics if the store is not empty then.
    pub fn finish(&self) {
        for program in self.programs() {
            self.end(&program);
        }
        let facts = self.store.facts();
        assert_eq!((facts.pages, facts.blocks), (0, 0), "leaked references");
    }
}
