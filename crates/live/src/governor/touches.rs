//! Which resident pages an app has used, where the accessed bits of its processes can be read
//! ([`crate::accessed`]): looked at when its relaunch is over and when it goes to the background, and cleared then.
//!
//! What was touched is told as [`Event::Used`], what was not as [`Event::Unused`]. Pages that came back count as
//! touched, whether they were or not. A process whose bits were never cleared is not told of: they say what it has
//! touched since it began.

use std::sync::atomic::Ordering;

use clew_core::{AppId, Event, PageRun, Vpn};
use clew_store::State;

use super::Governor;
use crate::accessed::{AccessedBits, Bits, TABLE_PAGES, is_set};
use crate::programs::process::Process;
use crate::workers::work::Work;

/// The bits, and what came of them.
#[derive(Default)]
pub(super) struct Touches {
    /// `None` where they cannot be read, or are not to be.
    bits: Option<AccessedBits>,
    /// Pages found touched, and not.
    pub used_pages: u64,
    pub unused_pages: u64,
}

impl Governor {
    /// From now on the use of resident pages is read there.
    pub fn read_touches(&mut self, bits: AccessedBits) {
        self.touches.bits = Some(bits);
    }

    /// Tells what `app` has used of what it has resident, since that was last cleared.
    pub(super) fn tell_touches(&mut self, app: AppId) {
        let Some(bits) = &self.touches.bits else { return };
        let processes = self.shared.of_app(app);
        let cleared = processes.iter().filter(|p| p.accessed_cleared.load(Ordering::Relaxed));
        let looks: Vec<Look> = cleared.map(|process| Look::at(process, bits)).collect();
        for look in looks {
            for run in look.used {
                self.touches.used_pages += u64::from(run.count);
                self.tell(&Event::Used { run });
            }
            for run in look.unused {
                self.touches.unused_pages += u64::from(run.count);
                self.tell(&Event::Unused { run });
            }
        }
    }

    /// From now on nothing of `app` counts as used.
    pub(super) fn clear_touches(&mut self, app: AppId) {
        if self.touches.bits.is_none() || self.stopping.is_some() {
            return;
        }
        for process in self.shared.of_app(app) {
            if process.pid() != 0 {
                self.hand_out(None, |ticket| Work::ClearAccessed { process, ticket });
            }
        }
    }
}

/// Runs of resident pages of one process, by address, none longer than a table.
#[derive(Default)]
struct Look {
    used: Vec<PageRun>,
    unused: Vec<PageRun>,
}

impl Look {
    fn at(process: &Process, bits: &AccessedBits) -> Look {
        let mut look = Look::default();
        let mut table: Option<(u64, Option<Bits>)> = None;
        process.space.table.for_range(Vpn(0), u64::MAX >> 20, |vpn, entry| {
            if entry.state() != State::Resident {
                return;
            }
            let (number, place) = (vpn.0 / TABLE_PAGES, vpn.0 % TABLE_PAGES);
            if table.is_none_or(|(known, _)| known != number) {
                let first = Vpn(number * TABLE_PAGES);
                table = Some((number, bits.of_table(process.pid(), first)));
            }
            let Some((_, Some(of_table))) = &table else { return };
            let runs = if is_set(of_table, place) { &mut look.used } else { &mut look.unused };
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
