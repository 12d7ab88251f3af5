//! Pages that are neither in the program nor with the daemon: an agent that has ended, or says nothing, may have
//! moved them to its staging area. They are looked for there.

use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clew_agent::protocol::Run;
use clew_core::Vpn;
use clew_engine::{Staged, Took};

use super::ProgramMemory;
use crate::agents::agent::Agent;
use crate::programs::pagemap::{PageIs, page_states, present_pages};

/// How often a page is looked for, a millisecond apart, before it is given up as lost.
const LOOKS: usize = 200;

/// How often the pages of one batch are looked for again, together: a program of whose pages none can be read makes
/// nobody wait for each of them.
pub(super) const LOOKS_AT_ALL: usize = 1000;

impl ProgramMemory {
    /// Copies what is in slot `slot` of the staging area.
    pub fn staged(&self, slot: usize, out: &mut [u8]) -> Staged {
        let files = self.agent.get().and_then(|a| Some((a, a.mem.as_ref()?)));
        let (Some((agent, mem)), Some(pagemap)) = (files, self.pagemap.get()) else {
            return Staged::Unknown;
        };
        let address = agent.staging(self.page_bytes).start + slot as u64 * self.page_bytes;
        let end = address + self.page_bytes;
        let mut tries = 0;
        loop {
            let mut is_there = false;
            let looked = present_pages(pagemap, address, end, self.page_bytes, |_| is_there = true)
                .and_then(|()| Ok(is_there || self.is_swapped(pagemap, address)?));
            match looked {
                Ok(false) => return Staged::Empty,
                Ok(true) if mem.read(out, address).is_ok() => return Staged::Copied,
                _ => {}
            }
            // A page is lost with this, so it has to be certain.
            tries += 1;
            if tries == LOOKS || !self.may_look_again() || !self.uffd.is_alive() {
                return Staged::Unknown;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The runs of so many pages from `first` on of which the kernel has nothing, ascending; all of them where it cannot be
    /// asked.
    pub fn holes(&self, first: Vpn, pages: usize) -> Vec<(Vpn, u64)> {
        let asked = self.pagemap.get().map(|file| page_states(file, first, pages));
        let states = asked.and_then(Result::ok).unwrap_or_else(|| vec![PageIs::Nothing; pages]);
        let mut holes: Vec<(Vpn, u64)> = Vec::new();
        for (vpn, _) in (first.0..).zip(states).filter(|(_, is)| *is == PageIs::Nothing) {
            match holes.last_mut() {
                Some((hole, len)) if hole.0 + *len == vpn => *len += 1,
                _ => holes.push((Vpn(vpn), 1)),
            }
        }
        holes
    }

    fn may_look_again(&self) -> bool {
        let less = |looks: usize| looks.checked_sub(1);
        self.looks.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Whether a page is in the kernel's swap: it may have gone there since it was moved.
    fn is_swapped(&self, pagemap: &File, address: u64) -> io::Result<bool> {
        match page_states(pagemap, Vpn::of_addr(address, self.page_bytes), 1) {
            Ok(states) => Ok(states[0] == PageIs::Swapped),
            // The memory is gone.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A page that is said to be in the program still, and is in staging, is copied to the buffer.
    ///
    /// Linux 6.18 says of some pages that they could not be moved because something was in their
    /// place: its first try failed (the program was just writing), the second moved the page and was
    /// not counted, the third found it there (mm/userfaultfd.c, `move_pages`: `err` keeps the
    /// -EAGAIN of the first).
    pub(super) fn find_moved(&self, agent: &Agent, runs: &[Run], took: &mut [Took]) {
        let Some(pagemap) = self.pagemap.get() else { return };
        let mut page = Vec::new();
        for run in runs {
            let first = run.slot as usize;
            let slots = &mut took[first..][..run.pages as usize];
            if !slots.contains(&Took::Busy) {
                continue;
            }
            let from = Vpn::of_addr(run.src, self.page_bytes);
            let Some(states) = self.states_surely(pagemap, from, slots.len()) else {
                slots.iter_mut().filter(|t| **t == Took::Busy).for_each(|t| *t = self.unknown());
                continue;
            };
            for (i, (took, is)) in slots.iter_mut().zip(states).enumerate() {
                if *took != Took::Busy || is != PageIs::Nothing {
                    continue;
                }
                page.resize(self.page_bytes as usize, 0);
                match self.staged(first + i, &mut page) {
                    // It was all zeros, or nothing: the program gets zeros.
                    Staged::Empty => {}
                    Staged::Unknown => *took = self.unknown(),
                    Staged::Copied if !agent.fill(first + i, &page) => *took = self.unknown(),
                    Staged::Copied => {
                        *took = Took::Taken;
                        tracing::debug!(
                            pid = agent.pid(),
                            "the kernel has moved the page at {:#x} and has not said so",
                            run.src + i as u64 * self.page_bytes
                        );
                    }
                }
            }
        }
    }

    /// A page that may be anywhere is lost, unless with all the memory that it was of: then nobody
    /// asks for it any more.
    fn unknown(&self) -> Took {
        if self.uffd.is_alive() { Took::Lost } else { Took::Stayed }
    }

    /// As [`page_states`], asked until there is an answer; `None` once the memory is gone, or after
    /// [`LOOKS`].
    fn states_surely(&self, pagemap: &File, first: Vpn, count: usize) -> Option<Vec<PageIs>> {
        for _ in 0..LOOKS {
            match page_states(pagemap, first, count) {
                Ok(states) => return Some(states),
                Err(_) if self.uffd.is_alive() => std::thread::sleep(Duration::from_millis(1)),
                Err(_) => break,
            }
        }
        None
    }

    /// What an agent moved to staging, and has not copied before it died, is copied to the buffer.
    pub(super) fn recover_copies(&self, agent: &Agent, took: &mut [Took]) {
        let mut page = vec![0u8; self.page_bytes as usize];
        for (slot, took) in took.iter_mut().enumerate().filter(|(_, t)| **t == Took::Taken) {
            let found = match self.staged(slot, &mut page) {
                Staged::Copied => true,
                // It was the page of zeros.
                Staged::Empty => {
                    page.fill(0);
                    true
                }
                Staged::Unknown => false,
            };
            if !found || !agent.fill(slot, &page) {
                *took = self.unknown();
            }
        }
        self.tell_lost(took);
    }

    /// What a dead agent left in staging is copied to the buffer; the rest never left the program.
    /// What cannot be looked at may be here or there, and is lost.
    pub(super) fn recover(&self, agent: &Agent, took: &mut [Took]) {
        let mut page = vec![0u8; self.page_bytes as usize];
        for (slot, took) in took.iter_mut().enumerate() {
            *took = match self.staged(slot, &mut page) {
                Staged::Empty => Took::Stayed,
                Staged::Unknown => self.unknown(),
                Staged::Copied if agent.fill(slot, &page) => Took::Taken,
                Staged::Copied => self.unknown(),
            };
        }
        self.tell_lost(took);
    }

    fn tell_lost(&self, took: &[Took]) {
        let lost = took.iter().filter(|t| **t == Took::Lost).count();
        if lost > 0 {
            tracing::error!(
                lost,
                "an agent died in the middle of an order and its staging area cannot be read: the \
                 program gets SIGBUS when it touches these pages"
            );
        }
    }
}
