//! Which resident pages an app has used, where the accessed bits of its processes can be read
//! ([`crate::accessed`]): looked at every [`PERIOD`] while it is relaunched, when that is over, and when it goes to the
//! background; cleared then.
//!
//! What was touched is told as [`Event::Used`], what was not as [`Event::Unused`]. The bit of a page that was put since
//! they were cleared says nothing: it is set from the beginning. So of such pages nothing is told; nor of a process
//! whose bits were never cleared, as they say what it has touched since it began. Moves (`mremap`) are not followed: what was put
//! and moved since counts as used, for one visit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{AccessKind, AppId, Event, PageRun, SpaceId, Vpn};
use clew_store::State;

use super::Governor;
use crate::accessed::{AccessedBits, Bits, TABLE_PAGES, is_set};
use crate::programs::process::Process;
use crate::workers::work::Work;

/// How often an app that is relaunched is looked at: what it uses must not leave while it does.
const PERIOD: Duration = Duration::from_millis(200);
/// Looking takes one part in so many of the policy thread's time at most: all users wait for that, and a program of
/// one page in each table takes it a tenth of a second.
const ONE_PART_IN: u32 = 10;

/// The bits, and what came of them.
#[derive(Default)]
pub(super) struct Touches {
    /// `None` where they cannot be read, or are not to be.
    bits: Option<AccessedBits>,
    /// Pages of which there is nothing more to tell until they are cleared, by table: they were told as used, or put.
    settled: HashMap<SpaceId, HashMap<u64, Bits>>,
    /// How many times the bits of each program are to be cleared, or are just being: once, however often that is
    /// asked for, as a worker takes milliseconds for what a client asks in some tenths of one.
    clearing: HashMap<SpaceId, u64>,
    /// When apps that are relaunched are looked at again.
    next: Option<Instant>,
    /// Pages found touched, and not.
    pub used_pages: u64,
    pub unused_pages: u64,
}

impl Touches {
    /// Work that waits to clear bits, or does it now.
    pub fn clearing(&self) -> u64 {
        self.clearing.values().sum()
    }
}

impl Governor {
    /// From now on the use of resident pages is read there; if nowhere, samples are taken.
    pub fn read_touches(&mut self, bits: Option<AccessedBits>) {
        if bits.is_none() {
            self.driver.set_sensor(self.config.sensor);
        }
        self.touches.bits = bits;
    }

    /// Tells what `app` has used of what it has resident, since that was last cleared, and what it has not.
    pub(super) fn tell_touches(&mut self, app: AppId) {
        for look in self.look_at_touches(app) {
            self.tell_used(look.used);
            for run in look.unused {
                self.touches.unused_pages += u64::from(run.count);
                self.tell(&Event::Unused { run });
            }
        }
    }

    /// Tells what those have used so far that are being relaunched.
    pub(super) fn follow_touches(&mut self) {
        let began = Instant::now();
        let is_due = self.touches.next.is_none_or(|next| next <= began);
        if self.touches.bits.is_none() || !is_due || !self.driver.is_relaunching() {
            return;
        }
        let apps = self.apps.keys().copied().filter(|app| self.driver.is_relaunched(*app));
        for app in apps.collect::<Vec<AppId>>() {
            for look in self.look_at_touches(app) {
                self.tell_used(look.used);
            }
        }
        self.touches.next = Some(began + from_look_to_look(began.elapsed()));
    }

    fn look_at_touches(&mut self, app: AppId) -> Vec<Look> {
        let Touches { bits: Some(bits), settled, .. } = &mut self.touches else {
            return Vec::new();
        };
        let processes = self.shared.of_app(app);
        let cleared = processes.iter().filter(|p| p.accessed_cleared.load(Ordering::Relaxed));
        cleared.map(|p| Look::at(p, bits, settled.entry(p.id).or_default())).collect()
    }

    fn tell_used(&mut self, runs: Vec<PageRun>) {
        for run in runs {
            self.touches.used_pages += u64::from(run.count);
            self.tell(&Event::Used { run });
        }
    }

    /// What an event says of pages that were put.
    pub(super) fn note_put(&mut self, event: &Event) {
        if self.touches.bits.is_none() {
            return;
        }
        let run = match *event {
            Event::PageIn { page, .. } | Event::Access { page, kind: AccessKind::Fresh, .. } => {
                PageRun { first: page, count: 1 }
            }
            Event::Resident { run } => run,
            _ => return,
        };
        let tables = self.touches.settled.entry(run.first.space()).or_default();
        for page in run.pages() {
            let (number, place) = (page.vpn().0 / TABLE_PAGES, page.vpn().0 % TABLE_PAGES);
            tables.entry(number).or_default()[place as usize / 32] |= 1 << (place % 32);
        }
    }

    /// The program has gone.
    pub(super) fn forget_touches(&mut self, space: SpaceId) {
        self.touches.settled.remove(&space);
    }

    /// A worker has cleared the bits of this program, or could not.
    pub(super) fn touches_cleared(&mut self, space: SpaceId) {
        if let Entry::Occupied(mut times) = self.touches.clearing.entry(space) {
            *times.get_mut() -= 1;
            if *times.get() == 0 {
                times.remove();
            }
        }
    }

    /// From now on nothing of `app` counts as used.
    pub(super) fn clear_touches(&mut self, app: AppId) {
        if self.touches.bits.is_none() || self.stopping.is_some() {
            return;
        }
        for process in self.shared.of_app(app) {
            self.touches.settled.remove(&process.id);
            // Until that is done they say what was used before.
            process.accessed_cleared.store(false, Ordering::Relaxed);
            // One that waits does for this, too. Has it just begun, some touches count twice.
            if process.pid() != 0 && !self.touches.clearing.contains_key(&process.id) {
                *self.touches.clearing.entry(process.id).or_default() += 1;
                self.hand_out(None, |ticket| Work::ClearAccessed { process, ticket });
            }
        }
    }
}

/// From the beginning of a look that took so long to that of the next.
fn from_look_to_look(took: Duration) -> Duration {
    PERIOD.max(took * ONE_PART_IN)
}

/// Runs of resident pages of one process, by address, none longer than a table.
#[derive(Default)]
struct Look {
    /// Of which that was not told yet.
    used: Vec<PageRun>,
    unused: Vec<PageRun>,
}

impl Look {
    fn at(process: &Process, bits: &AccessedBits, settled: &mut HashMap<u64, Bits>) -> Look {
        let mut look = Look::default();
        // Its number, what is touched of it, and what was settled before.
        let mut table: Option<(u64, Option<Bits>, Bits)> = None;
        process.space.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| {
            if entry.state() != State::Resident {
                return;
            }
            let (number, place) = (vpn.0 / TABLE_PAGES, vpn.0 % TABLE_PAGES);
            if table.is_none_or(|(known, ..)| known != number) {
                let touched = bits.of_table(process.pid(), Vpn(number * TABLE_PAGES));
                table = Some((number, touched, settled.get(&number).copied().unwrap_or_default()));
            }
            let Some((_, Some(touched), before)) = &table else { return };
            if is_set(before, place) {
                return;
            }
            let is_touched = is_set(touched, place);
            if is_touched {
                settled.entry(number).or_default()[place as usize / 32] |= 1 << (place % 32);
            }
            let runs = if is_touched { &mut look.used } else { &mut look.unused };
            match runs.last_mut() {
                Some(run) if place != 0 && run.first.vpn().0 + u64::from(run.count) == vpn.0 => {
                    run.count += 1;
                }
                _ => runs.push(process.run(vpn, 1)),
            }
        });
        look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_take_a_tenth_of_the_time_at_most() {
        assert_eq!(from_look_to_look(Duration::from_millis(1)), PERIOD);
        assert_eq!(from_look_to_look(Duration::from_millis(100)), Duration::from_secs(1));
    }
}
