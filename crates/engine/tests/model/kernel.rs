//! One program as the kernel has it: which pages are present, what of it is mapped, which events
//! are unread, which threads wait for which page.
//!
//! As the kernel does: a program's call waits until its event is read; while one is unread nothing
//! is put and nothing is taken; madvise drops its pages only after its event was read; a put that
//! crosses a seam between two mappings does nothing; a put that is done in part says "again"; one
//! that finds a page there wakes nobody.
//!
//! Lock order: `inside` is a leaf. Hooks run without any lock of this module.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use clew_core::Vpn;
use clew_engine::{ManagedSpace, Memory, Put, PutStop, Took};

use crate::contents::PAGE;

/// What the program did with its memory, as an event.
pub enum Change {
    Removed { first: u64, count: u64 },
    Unmapped { first: u64, count: u64 },
    Remapped { from: u64, count: u64, to: u64 },
    Forked { child: Arc<ManagedSpace> },
}

/// Where a batch is when the hook runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Point {
    /// Before page `i` is taken; events are held.
    Taking(usize),
    /// Events are read again.
    Released,
    /// Before the bytes of slot `i` are copied.
    Copying(usize),
    /// Every page is published.
    Published,
    /// Between the two passes over shared pages.
    Unsharing,
    /// Before pages go to the kernel's swap.
    Lending,
}

type Hook = Box<dyn FnMut(Point) + Send>;

#[derive(Default)]
struct Inside {
    mapped: BTreeSet<u64>,
    present: BTreeMap<u64, Box<[u8]>>,
    /// Shared after a fork: cannot be taken.
    shared: BTreeSet<u64>,
    /// Present, and in the kernel's swap until they are touched.
    swapped: BTreeSet<u64>,
    unread: VecDeque<Change>,
    /// Ranges whose event was read and that the program drops any moment.
    dropping: Vec<(u64, u64)>,
    faults: VecDeque<u64>,
    asleep: BTreeMap<u64, usize>,
    staged: Vec<Option<Box<[u8]>>>,
    /// Nothing can be put, for a reason that no event tells.
    refusing: bool,
    /// Whoever takes pages dies, and nobody finds them.
    losing: bool,
    gone: bool,
}

/// Programs whose put was refused because of an unread event, for whoever reads events.
#[derive(Default)]
pub struct Calls {
    pub state: Mutex<CallState>,
    pub changed: Condvar,
}

#[derive(Default)]
pub struct CallState {
    pub waiting: VecDeque<u32>,
    pub busy: bool,
    pub stop: bool,
}

pub struct Kernel {
    id: u32,
    inside: Mutex<Inside>,
    changed: Condvar,
    held: AtomicBool,
    hook: Mutex<Option<Hook>>,
    /// Two puts meet here before they go on.
    pub gate: Mutex<Option<Arc<Barrier>>>,
    calls: Arc<Calls>,
    /// When each put began, and of what page.
    pub puts: Mutex<Vec<(Instant, u64)>>,
}

/// Pages between two seams.
pub const SEAM: u64 = 24;

impl Inside {
    fn wake(&mut self, first: u64, count: u64) {
        self.asleep.retain(|vpn, _| !(first..first + count).contains(vpn));
    }

    fn put(&mut self, first: u64, count: u64, bytes: impl Fn(u64) -> Box<[u8]>) -> Put {
        let stopped = |stop| Put { pages: 0, stop: Some(stop) };
        if self.gone || self.refusing {
            return stopped(PutStop::Gone);
        }
        if !self.unread.is_empty() {
            return stopped(PutStop::Again);
        }
        let mapped = (first..first + count).all(|vpn| self.mapped.contains(&vpn));
        if !mapped || first / SEAM != (first + count - 1) / SEAM {
            return stopped(PutStop::Gone);
        }
        let free = (first..first + count).take_while(|vpn| !self.present.contains_key(vpn)).count();
        if free == 0 {
            return stopped(PutStop::Exists);
        }
        for i in 0..free as u64 {
            self.present.insert(first + i, bytes(i));
        }
        self.wake(first, free as u64);
        Put { pages: free, stop: ((free as u64) < count).then_some(PutStop::Again) }
    }
}

impl Kernel {
    pub fn new(id: u32, pages: u64, calls: Arc<Calls>) -> Kernel {
        let inside = Inside { mapped: (0..pages).collect(), ..Inside::default() };
        Kernel {
            id,
            inside: Mutex::new(inside),
            changed: Condvar::new(),
            held: AtomicBool::new(false),
            hook: Mutex::new(None),
            gate: Mutex::new(None),
            calls,
            puts: Mutex::default(),
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap()
    }

    pub fn set_hook(&self, hook: Option<Hook>) {
        *self.hook.lock().unwrap() = hook;
    }

    fn at(&self, point: Point) {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook(point);
            self.hook.lock().unwrap().get_or_insert(hook);
        }
    }

    pub fn events_held(&self) -> bool {
        self.held.load(Ordering::SeqCst)
    }

    // ---- what the event reader sees --------------------------------------------------------

    pub fn read_change(&self) -> Option<Change> {
        let mut inside = self.inside();
        let change = inside.unread.pop_front();
        if let Some(Change::Removed { first, count }) = change {
            inside.dropping.push((first, count));
        }
        self.changed.notify_all();
        change
    }

    pub fn read_faults(&self) -> Vec<u64> {
        self.inside().faults.drain(..).collect()
    }

    /// Whether there is something to read, or a removal to finish.
    pub fn is_settled(&self) -> bool {
        let inside = self.inside();
        inside.unread.is_empty() && inside.faults.is_empty() && inside.dropping.is_empty()
    }

    /// Waits until there is something to read, or until `stop`.
    pub fn wait_readable(&self, stop: &AtomicBool) {
        let inside = self.inside();
        let idle = |inside: &mut Inside| {
            (inside.unread.is_empty() && inside.faults.is_empty() || self.events_held())
                && !stop.load(Ordering::SeqCst)
        };
        drop(self.changed.wait_while(inside, idle).unwrap());
    }

    /// Makes everybody who waits look again.
    pub fn notify(&self) {
        let _inside = self.inside();
        self.changed.notify_all();
    }

    // ---- what the program does --------------------------------------------------------------

    pub fn is_mapped(&self, vpn: u64) -> bool {
        self.inside().mapped.contains(&vpn)
    }

    /// Whether a call that is under way concerns any of these pages.
    pub fn is_changing(&self, first: u64, count: u64) -> bool {
        let inside = self.inside();
        let meets = |a: u64, n: u64| a < first + count && first < a + n;
        inside.dropping.iter().any(|(a, n)| meets(*a, *n))
            || inside.unread.iter().any(|change| match change {
                Change::Removed { first, count } | Change::Unmapped { first, count } => {
                    meets(*first, *count)
                }
                Change::Remapped { from, count, to } => meets(*from, *count) || meets(*to, *count),
                Change::Forked { .. } => false,
            })
    }

    pub fn bytes(&self, vpn: u64) -> Option<Box<[u8]>> {
        self.inside().present.get(&vpn).cloned()
    }

    /// Whether a page is in memory, and not in the kernel's swap.
    pub fn is_in_memory(&self, vpn: u64) -> bool {
        let inside = self.inside();
        inside.present.contains_key(&vpn) && !inside.swapped.contains(&vpn)
    }

    /// Overwrites a page that is present; false if it is not.
    pub fn write(&self, vpn: u64, bytes: Box<[u8]>) -> bool {
        let mut inside = self.inside();
        let there = inside.present.contains_key(&vpn);
        if there {
            inside.shared.remove(&vpn);
            inside.swapped.remove(&vpn);
            inside.present.insert(vpn, bytes);
        }
        there
    }

    /// A thread touches a page: true if it is there, else the thread faults and sleeps.
    pub fn touch(&self, vpn: u64) -> bool {
        let mut inside = self.inside();
        if inside.present.contains_key(&vpn) {
            inside.swapped.remove(&vpn);
            return true;
        }
        assert!(inside.mapped.contains(&vpn), "page {vpn} is not mapped");
        inside.faults.push_back(vpn);
        *inside.asleep.entry(vpn).or_default() += 1;
        self.changed.notify_all();
        false
    }

    pub fn is_asleep(&self, vpn: u64) -> bool {
        self.inside().asleep.contains_key(&vpn)
    }

    pub fn sleepers(&self) -> Vec<u64> {
        self.inside().asleep.keys().copied().collect()
    }

    /// Waits until nobody sleeps at `vpn`.
    pub fn wait_woken(&self, vpn: u64) {
        let asleep = |inside: &mut Inside| inside.asleep.contains_key(&vpn);
        drop(self.changed.wait_while(self.inside(), asleep).unwrap());
    }

    /// Waits until every event is read.
    pub fn wait_read(&self) {
        let unread = |inside: &mut Inside| !inside.unread.is_empty();
        drop(self.changed.wait_while(self.inside(), unread).unwrap());
    }

    fn tell(&self, inside: &mut Inside, change: Change) {
        inside.unread.push_back(change);
        self.changed.notify_all();
    }

    /// madvise(MADV_DONTNEED): to be followed by [`Kernel::drop_removed`].
    pub fn remove(&self, first: u64, count: u64) {
        let mut inside = self.inside();
        self.tell(&mut inside, Change::Removed { first, count });
    }

    /// The second half of madvise: drops what was read of.
    pub fn drop_removed(&self) {
        let mut inside = self.inside();
        for (first, count) in std::mem::take(&mut inside.dropping) {
            inside.present.retain(|vpn, _| !(first..first + count).contains(vpn));
        }
    }

    pub fn unmap(&self, first: u64, count: u64) {
        let mut inside = self.inside();
        for vpn in first..first + count {
            inside.mapped.remove(&vpn);
            inside.present.remove(&vpn);
        }
        self.tell(&mut inside, Change::Unmapped { first, count });
    }

    /// mmap of fresh memory, registered at once.
    pub fn map(&self, first: u64, count: u64) {
        self.inside().mapped.extend(first..first + count);
    }

    /// mremap to `to`; the ranges do not overlap. What was there is unmapped, told only if `told`.
    /// The source stays mapped, empty, if `keep`.
    pub fn remap(&self, from: u64, count: u64, to: u64, told: bool, keep: bool) {
        let mut inside = self.inside();
        for i in 0..count {
            let page = inside.present.remove(&(from + i));
            inside.present.remove(&(to + i));
            if let Some(page) = page {
                inside.present.insert(to + i, page);
            }
            inside.mapped.insert(to + i);
            if !keep {
                inside.mapped.remove(&(from + i));
            }
        }
        if told {
            self.tell(&mut inside, Change::Unmapped { first: to, count });
        }
        self.tell(&mut inside, Change::Remapped { from, count, to });
    }

    /// fork, into the empty memory of `child`.
    pub fn fork(&self, child: &Kernel, space: Arc<ManagedSpace>) {
        let mut inside = self.inside();
        inside.shared = inside.present.keys().copied().collect();
        {
            let mut copy = child.inside();
            copy.mapped.clone_from(&inside.mapped);
            copy.present.clone_from(&inside.present);
            copy.shared.clone_from(&inside.shared);
        }
        self.tell(&mut inside, Change::Forked { child: space });
    }

    /// From now on, or no longer, puts fail.
    pub fn refuse_puts(&self, refusing: bool) {
        self.inside().refusing = refusing;
    }

    /// The program has ended.
    pub fn exit(&self) {
        let mut inside = self.inside();
        *inside = Inside { gone: true, ..Inside::default() };
        self.changed.notify_all();
    }

    /// Somebody else has put a page here, and has woken nobody.
    pub fn appear(&self, vpn: u64, bytes: Box<[u8]>) {
        self.inside().present.insert(vpn, bytes);
    }

    /// What is in a slot of the staging area.
    pub fn staged(&self, slot: usize) -> Option<Box<[u8]>> {
        self.inside().staged.get(slot).cloned().flatten()
    }

    /// Its daemon is another one: nothing is held, and every thread looks again.
    pub fn change_hands(&self) {
        self.held.store(false, Ordering::SeqCst);
        self.set_hook(None);
        let mut inside = self.inside();
        inside.faults.clear();
        inside.asleep.clear();
        self.changed.notify_all();
    }

    /// The staging area is emptied.
    pub fn empty_staging(&self) {
        self.inside().staged.clear();
    }

    /// From now on what is taken is lost.
    pub fn lose_pages(&self) {
        self.inside().losing = true;
    }

    fn refused(&self, put: Put) -> Put {
        if put.pages == 0 && put.stop == Some(PutStop::Again) {
            self.calls.state.lock().unwrap().waiting.push_back(self.id);
            self.calls.changed.notify_all();
        }
        put
    }

    fn meet(&self) {
        let gate = self.gate.lock().unwrap().clone();
        if let Some(gate) = gate {
            gate.wait();
        }
    }
}

impl Memory for Kernel {
    fn hold_events(&self, _yields: bool) {
        self.held.store(true, Ordering::SeqCst);
    }

    fn take_out(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        assert!(self.events_held());
        assert!(vpns.is_sorted_by(|a, b| a < b), "not ascending: {vpns:?}");
        assert!(vpns.len() <= clew_engine::MAX_BATCH);
        for (i, vpn) in vpns.iter().enumerate() {
            self.at(Point::Taking(i));
            let mut inside = self.inside();
            let mut page = None;
            took.push(if !inside.unread.is_empty() || !inside.mapped.contains(&vpn.0) {
                Took::Stayed
            } else if inside.shared.contains(&vpn.0) && inside.present.contains_key(&vpn.0) {
                Took::Busy
            } else {
                page = inside.present.remove(&vpn.0);
                match (&page, inside.losing) {
                    (Some(_), true) => Took::Lost,
                    (Some(_), false) => Took::Taken,
                    (None, _) => Took::Hole,
                }
            });
            inside.staged.push(page);
        }
    }

    fn release_events(&self) {
        self.held.store(false, Ordering::SeqCst);
        self.notify();
        self.at(Point::Released);
    }

    fn copy_taken(&self, i: usize, out: &mut [u8]) -> bool {
        self.at(Point::Copying(i));
        out.copy_from_slice(self.inside().staged[i].as_ref().expect("a page that was taken"));
        true
    }

    fn release_taken(&self) {
        self.inside().staged.clear();
        self.at(Point::Published);
    }

    fn lend(&self, vpns: &[Vpn], took: &mut Vec<Took>) {
        assert!(vpns.is_sorted_by(|a, b| a < b), "not ascending: {vpns:?}");
        self.at(Point::Lending);
        let mut inside = self.inside();
        for vpn in vpns {
            took.push(match inside.present.contains_key(&vpn.0) {
                true if inside.shared.contains(&vpn.0) => Took::Stayed,
                true => {
                    inside.swapped.insert(vpn.0);
                    Took::Taken
                }
                false => Took::Hole,
            });
        }
    }

    fn unshare(&self, vpns: &[Vpn]) -> bool {
        assert!(vpns.is_sorted_by(|a, b| a < b), "not ascending: {vpns:?}");
        self.at(Point::Unsharing);
        let mut inside = self.inside();
        for vpn in vpns {
            inside.shared.remove(&vpn.0);
            inside.swapped.remove(&vpn.0);
        }
        true
    }

    fn put(&self, first: Vpn, bytes: &[u8]) -> Put {
        self.puts.lock().unwrap().push((Instant::now(), first.0));
        self.meet();
        let count = (bytes.len() / PAGE) as u64;
        let page = |i: u64| bytes[i as usize * PAGE..][..PAGE].into();
        let put = self.inside().put(first.0, count, page);
        self.changed.notify_all();
        self.refused(put)
    }

    fn put_zero(&self, first: Vpn, count: usize) -> Put {
        self.meet();
        let zeros = |_| vec![0; PAGE].into_boxed_slice();
        let put = self.inside().put(first.0, count as u64, zeros);
        self.changed.notify_all();
        self.refused(put)
    }

    fn wake(&self, first: Vpn, count: usize) {
        self.inside().wake(first.0, count as u64);
        self.changed.notify_all();
    }

    fn fresh_run(&self, vpn: Vpn) -> usize {
        vpn.0 as usize % 4
    }
}
