//! Random sequences of what programs and the daemon do, also in the middle of swap-outs and
//! restores.
//!
//! One thread does everything, so that a sequence repeats; a second one only reads events, when a
//! put was refused because of one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use clew_core::{CodecKind, Event, FlashForm, Group, Vpn};
use clew_engine::{Fault, MoverContext, SwapOut};
use clew_store::flash::LogId;
use clew_store::{Entry, State};
use proptest::prelude::*;

use crate::acts::{Act, Op, Out, PROGRAMS, Turn, limits, op};
use crate::contents::page;
use crate::kernel::{CallState, Point};
use crate::world::{PAGES, Program, World, group};

struct Runner {
    world: Arc<World>,
    /// Programs with a swap-out under way.
    swapping: Mutex<BTreeSet<u32>>,
}

impl Runner {
    fn who(&self, who: usize) -> Arc<Program> {
        let born = |p: &Arc<Program>| p.born.load(Ordering::SeqCst);
        let programs: Vec<_> = self.world.programs().into_iter().filter(born).collect();
        programs[who % programs.len()].clone()
    }

    /// Reads what is to be read of a program and lets its calls return.
    fn read_events(&self, program: &Program, ctx: &mut MoverContext) {
        self.world.serve(program, ctx);
        program.kernel.drop_removed();
    }

    /// Lets every call of every program return.
    fn settle(&self, ctx: &mut MoverContext) {
        let busy = |state: &mut CallState| state.busy || !state.waiting.is_empty();
        let calls = &self.world.calls;
        drop(calls.changed.wait_while(calls.state.lock().unwrap(), busy).unwrap());
        while self.world.programs().iter().any(|program| !program.kernel.is_settled()) {
            for program in self.world.programs() {
                self.read_events(&program, ctx);
            }
        }
    }

    /// What changes the memory of a program, up to its event; true if it did.
    fn change(&self, program: &Program, act: &Act) -> bool {
        let (kernel, model) = (&program.kernel, &program.model);
        let mapped = |first: u64, count: u64| (first..first + count).all(|v| kernel.is_mapped(v));
        match *act {
            Act::Remove(first, count) if !kernel.is_changing(first, count) => {
                kernel.remove(first, count);
                program.forget(first, count);
            }
            Act::Unmap(first, count) if !kernel.is_changing(first, count) => {
                kernel.unmap(first, count);
                program.forget(first, count);
            }
            Act::Map(first, count) if !kernel.is_changing(first, count) => {
                kernel.map(first, count);
                return false;
            }
            Act::Remap { from, count, to, told, keep }
                if (from + count <= to || to + count <= from)
                    && mapped(from, count)
                    && !kernel.is_changing(from, count)
                    && !kernel.is_changing(to, count) =>
            {
                kernel.remap(from, count, to, told, keep);
                program.forget(to, count);
                let mut model = model.lock().unwrap();
                let moves = |(vpn, version): (u64, u64)| match vpn {
                    vpn if (from..from + count).contains(&vpn) => (vpn - from + to, version),
                    vpn => (vpn, version),
                };
                *model = std::mem::take(&mut *model).into_iter().map(moves).collect();
            }
            Act::Fork
                if self.world.programs().len() < PROGRAMS && !kernel.is_changing(0, PAGES) =>
            {
                self.world.fork(program);
            }
            _ => return false,
        }
        true
    }

    fn swap_out(&self, program: &Arc<Program>, out: &Out, ctx: &mut MoverContext) -> SwapOut {
        if !self.swapping.lock().unwrap().insert(program.id()) {
            return SwapOut::default();
        }
        let done = self.world.mover.swap_out(&program.space, &out.groups(program), ctx);
        self.swapping.lock().unwrap().remove(&program.id());
        done
    }

    fn sample(&self, program: &Arc<Program>, pages: Range<u64>, ctx: &mut MoverContext) {
        if !self.swapping.lock().unwrap().insert(program.id()) {
            return;
        }
        let pages: Vec<u64> = pages.collect();
        let run = |pages: &[u64]| group(program, pages, CodecKind::Raw, 4096);
        let groups: Vec<Group> = pages.chunks(4).map(run).collect();
        let done = self.world.mover.sample(&program.space, &groups, ctx);
        assert!(done.events.iter().all(|e| matches!(e, Event::Freed { .. })));
        self.swapping.lock().unwrap().remove(&program.id());
    }

    /// Lends pages; told by nobody else, every one that was resident is told of once.
    fn lend(&self, program: &Arc<Program>, pages: Range<u64>, ctx: &mut MoverContext) {
        if !self.swapping.lock().unwrap().insert(program.id()) {
            return;
        }
        let pages: Vec<u64> = pages.collect();
        let groups: Vec<Group> =
            pages.chunks(4).map(|some| group(program, some, CodecKind::Lz4, 4096)).collect();
        let done = self.world.mover.lend(&program.space, &groups, 1000, ctx);
        let mut told = BTreeSet::new();
        for event in &done.events {
            let page = match event {
                Event::Stored { page, .. } | Event::Stayed { page } => *page,
                Event::Freed { run } => run.first,
                Event::PrefetchExpired { .. } => continue,
                other => panic!("{other:?}"),
            };
            assert!(told.insert(page), "{page:?} is told of twice");
        }
        self.swapping.lock().unwrap().remove(&program.id());
    }

    /// Moves pages to flash; each that is stored is told of once, and so is what goes along.
    fn evict(
        &self,
        program: &Arc<Program>,
        pages: Range<u64>,
        form: FlashForm,
        ctx: &mut MoverContext,
    ) {
        let is_out = |vpn: &u64| {
            let entry = program.entry(*vpn);
            entry.state() == State::Stored && !entry.has(Entry::SAMPLED)
        };
        let pages: Vec<u64> = pages.collect();
        let out: BTreeSet<u64> = pages.iter().copied().filter(is_out).collect();
        let groups = [group(program, &pages, CodecKind::Lz4, 4096)];
        let done = self.world.mover.evict(&program.space, &groups, (LogId::FLASH, form), ctx);
        let mut told = BTreeSet::new();
        for event in &done.events {
            let Event::Stored { page, .. } = event else { panic!("{event:?}") };
            assert!(told.insert(page.vpn().0), "{page:?} is told of twice");
        }
        // In the course of a restore or a batch, others may be on their way.
        assert!(told.is_superset(&out), "{told:?} of {out:?}");
        let _ = self.world.store.clean_log(LogId::FLASH);
    }

    fn turn(&self, turn: &Turn, ctx: &mut MoverContext) {
        let program = self.who(turn.who);
        let usable = |vpn| program.kernel.is_mapped(vpn) && !program.kernel.is_changing(vpn, 1);
        match &turn.act {
            Act::Write(vpn) if usable(*vpn) => drop(self.world.write(&program, *vpn, ctx)),
            Act::Read(vpn) if usable(*vpn) => drop(self.world.read(&program, *vpn, ctx)),
            Act::Copy(from, to) if usable(*to) => {
                let version = program.model.lock().unwrap().get(from).copied().unwrap_or(0);
                if self.world.touch(&program, *to, ctx) && program.kernel.write(*to, page(version))
                {
                    program.model.lock().unwrap().insert(*to, version);
                }
            }
            Act::SwapOut(out) => drop(self.swap_out(&program, out, ctx)),
            Act::PutFar(out, form) if self.swapping.lock().unwrap().insert(program.id()) => {
                let groups = out.groups(&program);
                self.world.mover.swap_out_far(&program.space, &groups, (LogId::FLASH, *form), ctx);
                self.swapping.lock().unwrap().remove(&program.id());
            }
            Act::PutFar(..) => {}
            Act::Repack(out) => {
                let groups = out.groups(&program);
                self.world.mover.repack(&program.space, &groups, ctx);
            }
            Act::Evict(first, count, form) => {
                self.evict(&program, *first..first + count, *form, ctx);
            }
            // What stands in the way of a put could not be read.
            Act::Restore(first, count) if !program.kernel.events_held() => {
                let vpns: Vec<Vpn> = (*first..first + count).map(Vpn).collect();
                self.world.mover.restore(&program.space, &vpns, ctx, &mut Vec::new());
            }
            Act::Park(first, count) => {
                let vpns: Vec<Vpn> = (*first..first + count).map(Vpn).collect();
                self.world.mover.park(&program.space, &vpns, ctx, &mut Vec::new());
            }
            Act::Sample(first, count) => self.sample(&program, *first..first + count, ctx),
            Act::EndSample(first, count) if !program.kernel.events_held() => {
                let vpns: Vec<Vpn> = (*first..first + count).map(Vpn).collect();
                self.world.mover.end_sample(&program.space, &vpns, ctx);
            }
            Act::Lend(first, count) => self.lend(&program, *first..first + count, ctx),
            Act::Look => {
                for vpn in (0..PAGES).filter(|vpn| program.kernel.is_in_memory(*vpn)) {
                    let events = &mut Vec::new();
                    self.world.mover.came_back(&program.space, Vpn(vpn), 1, events);
                }
            }
            Act::DropKept(first, count) => {
                for vpn in *first..first + count {
                    self.world.mover.drop_kept(&program.space, Vpn(vpn));
                }
            }
            Act::Compact => drop(self.world.store.compact(64)),
            Act::End
                if self.world.programs().len() > 1
                    && program.kernel.is_settled()
                    && !self.swapping.lock().unwrap().contains(&program.id()) =>
            {
                self.world.end(&program);
            }
            act => {
                if self.change(&program, act) && !turn.unread {
                    self.read_events(&program, ctx);
                }
            }
        }
    }

    fn during(
        self: &Arc<Self>,
        who: usize,
        out: &Out,
        turns: &[(Point, Turn)],
        ctx: &mut MoverContext,
    ) {
        let program = self.who(who);
        let groups = out.groups(&program);
        // For all that the policies know.
        let resident = |vpn: u64| {
            let entry = program.entry(vpn);
            let is_sample = entry.state() == State::Stored && entry.has(Entry::SAMPLED);
            matches!(entry.state(), State::Resident | State::Lent | State::Parked) || is_sample
        };
        let asked: Vec<u64> = groups
            .iter()
            .flat_map(|g| &g.pages)
            .map(|p| p.vpn().0)
            .filter(|v| resident(*v))
            .collect();
        let (runner, mut left) = (Arc::clone(self), turns.to_vec());
        program.kernel.set_hook(Some(Box::new(move |at| {
            let ctx = &mut MoverContext::default();
            let (now, later) = std::mem::take(&mut left).into_iter().partition(|(p, _)| *p == at);
            left = later;
            let now: Vec<(Point, Turn)> = now;
            for (_, turn) in &now {
                runner.turn(turn, ctx);
            }
        })));
        let done = self.swap_out(&program, out, ctx);
        program.kernel.set_hook(None);
        if turns.is_empty() {
            let mut told: BTreeMap<u64, usize> = BTreeMap::new();
            for event in &done.events {
                match event {
                    Event::Stored { page, .. } | Event::Stayed { page } => {
                        *told.entry(page.vpn().0).or_default() += 1;
                    }
                    Event::PrefetchExpired { .. } => {}
                    Event::Freed { run } => *told.entry(run.first.vpn().0).or_default() += 1,
                    other => panic!("{other:?}"),
                }
            }
            let expected = asked.into_iter().map(|vpn| (vpn, 1)).collect();
            assert_eq!(told, expected, "every page is told of once");
        }
    }

    fn lent(&self, who: usize, first: u64, acts: &[Act], ctx: &mut MoverContext) {
        let program = self.who(who);
        let stored = |vpn: &u64| program.entry(*vpn).state() == State::Stored;
        let Some(first) = (first..PAGES).find(stored) else { return };
        let vpns: Vec<Vpn> = (first..PAGES).take_while(stored).take(32).map(Vpn).collect();
        // A page on flash ends a run: the next one is borrowed when this one is back.
        let far = |vpn: &Vpn| program.entry(vpn.0).is_on_flash();
        let run = vpns.iter().position(far).map_or(vpns.len(), |at| at + 1);
        let last = first + run as u64 - 1;
        std::thread::scope(|scope| {
            let guard = program.space.table.lock.write();
            let restore = || {
                let mut ctx = MoverContext::default();
                self.world.mover.restore(&program.space, &vpns, &mut ctx, &mut Vec::new())
            };
            let restorer = scope.spawn(restore);
            while program.entry(last).state() != State::Restoring {
                std::thread::yield_now();
            }
            for act in acts {
                if let Act::Write(vpn) | Act::Read(vpn) | Act::Copy(_, vpn) = act
                    && program.kernel.is_mapped(*vpn)
                    && !program.kernel.is_changing(*vpn, 1)
                    && !program.kernel.touch(*vpn)
                {
                    // Under the lock, as the reader of events would.
                    for vpn in program.kernel.read_faults() {
                        let ctx = &mut *ctx;
                        let space = &program.space;
                        let fault = self.world.mover.fault(space, Vpn(vpn), ctx, &mut Vec::new());
                        if let Fault::Far(awaited, far) = fault {
                            self.world.fetch_later(&program, awaited, far);
                        }
                    }
                } else if self.change(&program, act) {
                    self.world.apply(&program, &guard);
                    program.kernel.drop_removed();
                }
            }
            drop(guard);
            restorer.join().unwrap();
        });
        self.world.arrive(ctx);
    }

    fn run(self: &Arc<Self>, ops: &[Op]) {
        let ctx = &mut MoverContext::default();
        for op in ops {
            match op {
                Op::Turn(turn) => {
                    self.turn(turn, ctx);
                    if turn.unread {
                        continue;
                    }
                }
                Op::During { who, out, turns } => self.during(*who, out, turns, ctx),
                Op::Lent { who, first, turns } => {
                    self.settle(ctx);
                    self.lent(*who, *first, turns, ctx);
                }
            }
            self.settle(ctx);
            self.world.check(ctx);
        }
        self.settle(ctx);
        self.world.check(ctx);
        for program in self.world.programs().into_iter().skip(1) {
            for vpn in (0..PAGES).filter(|vpn| program.kernel.is_mapped(*vpn)) {
                assert!(self.world.read(&program, vpn, ctx));
            }
        }
        self.world.check(ctx);
        self.world.finish();
    }
}

/// Reads the events of programs whose puts were refused, until told to stop.
fn read_refused(world: &World) {
    let ctx = &mut MoverContext::default();
    let calls = &world.calls;
    loop {
        let idle = |state: &mut CallState| state.waiting.is_empty() && !state.stop;
        let mut state = calls.changed.wait_while(calls.state.lock().unwrap(), idle).unwrap();
        let Some(id) = state.waiting.pop_front() else { return };
        state.busy = true;
        drop(state);
        if let Some(program) = world.program(id) {
            world.serve(&program, ctx);
        }
        calls.state.lock().unwrap().busy = false;
        calls.changed.notify_all();
    }
}

/// Ends [`read_refused`], also when a test fails.
struct Stop<'a>(&'a World);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        if let Ok(mut state) = self.0.calls.state.lock() {
            state.stop = true;
        }
        self.0.calls.changed.notify_all();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, ..ProptestConfig::default() })]

    #[test]
    fn programs_read_what_they_wrote(
        (memory, pages) in limits(),
        retain in any::<bool>(),
        ahead in any::<bool>(),
        flash in any::<bool>(),
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let world = World::new(memory, pages, retain);
        let world = if flash { world.with_flash() } else { world };
        let world = Arc::new(if ahead { world.running_ahead() } else { world });
        world.start();
        let runner = Arc::new(Runner { world: Arc::clone(&world), swapping: Mutex::default() });
        std::thread::scope(|scope| {
            let reader = Arc::clone(&world);
            scope.spawn(move || read_refused(&reader));
            let _stop = Stop(&world);
            // Something to begin with.
            let program = runner.who(0);
            for vpn in 0..12 {
                world.write(&program, vpn, &mut MoverContext::default());
            }
            runner.run(&ops);
        });
    }
}
