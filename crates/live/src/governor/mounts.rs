//! Mounts (`clew mount --with-daemon`) that share the budget with programs: what they keep of files is counted, and what
//! they may keep is told to each when it asks.

use clew_policy::accommodation::{Pool, Room, files_limit};

use super::Governor;
use crate::control::protocol::Share;
use crate::control::status::MountStatus;
use crate::survival::predecessor::ProcessName;
use crate::users::Asker;

/// So many at most.
const MOST: usize = 64;

/// What mounts have said.
#[derive(Default)]
pub(super) struct Mounts {
    known: Vec<Mount>,
    /// Faults that brought a stored page back, since the daemon began.
    faults: u64,
}

struct Mount {
    server: ProcessName,
    held_bytes: u64,
    limit_bytes: u64,
    hits: u64,
    /// Faults of programs when it asked last.
    faults: u64,
}

/// What a mount says of itself.
#[derive(Clone, Copy)]
pub(super) struct Said {
    pub(super) held_bytes: u64,
    pub(super) wanted_bytes: u64,
    pub(super) hits: u64,
}

impl Mounts {
    /// What they keep, as far as that is believed.
    pub(super) fn held_bytes(&self) -> u64 {
        self.known.iter().fold(0, |sum, mount| sum.saturating_add(mount.held_bytes))
    }

    /// A program has waited for a stored page.
    pub(super) fn fault(&mut self) {
        self.faults += 1;
    }

    pub(super) fn forget_the_dead(&mut self) {
        self.known.retain(|mount| mount.server.is_alive());
    }

    pub(super) fn status(&self) -> Vec<MountStatus> {
        let status = |mount: &Mount| MountStatus {
            pid: mount.server.pid,
            held_bytes: mount.held_bytes,
            limit_bytes: mount.limit_bytes,
            hits: mount.hits,
        };
        self.known.iter().map(status).collect()
    }

    /// What this one may keep, where programs keep `stored_bytes`.
    fn share(
        &mut self,
        server: ProcessName,
        said: Said,
        room: Room,
        stored_bytes: u64,
    ) -> Result<Share, String> {
        let faults = self.faults;
        let at = self.known.iter().position(|mount| mount.server == server);
        if at.is_none() && self.known.len() >= MOST {
            return Err(format!("{MOST} mounts share this daemon's budget already"));
        }
        let at = at.unwrap_or_else(|| {
            let Said { hits, .. } = said;
            // Of one that was there before this daemon no more is believed than nobody else has.
            let limit_bytes = room.spare_bytes;
            self.known.push(Mount { server, held_bytes: 0, limit_bytes, hits, faults });
            self.known.len() - 1
        });
        let all = self.known.len() as u64;
        let mount = &mut self.known[at];
        // What it says beyond its share it is about to drop, or it lies.
        let held_bytes = said.held_bytes.min(mount.limit_bytes);
        let files = Pool { held_bytes, hits: said.hits.saturating_sub(mount.hits) };
        let programs = Pool { held_bytes: stored_bytes, hits: faults - mount.faults };
        // Others are promised the same.
        let room = Room { spare_bytes: room.spare_bytes / all, ..room };
        let limit_bytes = files_limit(room, files, programs, said.wanted_bytes);
        let held_bytes = held_bytes.min(limit_bytes);
        *mount = Mount { server, held_bytes, limit_bytes, hits: said.hits, faults };
        Ok(Share { limit_bytes })
    }
}

impl Governor {
    /// What the mount of process `pid` may keep of files.
    pub(super) fn share(&mut self, asker: Asker, pid: u32, said: Said) -> Result<Share, String> {
        if asker != Asker::All {
            return Err("only root's mounts share the budget of a service for all users".into());
        }
        let server = ProcessName::of(pid).map_err(|error| {
            format!("the process that asks is not seen from here, so nobody would know of its end: {error}")
        })?;
        let budget = *self.driver.budget();
        let free = budget.free_bytes(self.used_bytes);
        let room = Room {
            total_bytes: budget.total_bytes,
            spare_bytes: free.saturating_sub(budget.high_bytes),
        };
        self.mounts.share(server, said, room, self.used.pool_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { total_bytes: 6400, spare_bytes: 0 };

    fn name(pid: u32) -> ProcessName {
        ProcessName { pid, started: 1 }
    }

    fn said(held_bytes: u64, hits: u64) -> Said {
        Said { held_bytes, wanted_bytes: 5000, hits }
    }

    #[test]
    fn what_counts_is_what_has_happened_since_the_last_word() {
        let mut mounts = Mounts::default();
        for _ in 0..1000 {
            mounts.fault();
        }
        // Long before, in another daemon's time: what is spare is believed.
        let spare = Room { spare_bytes: 500, ..ROOM };
        let first = mounts.share(name(1), said(1000, 7000), spare, 1000);
        assert_eq!(first, Ok(Share { limit_bytes: 1000 }));
        assert_eq!(
            mounts.share(name(1), said(1000, 7001), ROOM, 1000),
            Ok(Share { limit_bytes: 1100 })
        );
        mounts.fault();
        assert_eq!(
            mounts.share(name(1), said(1000, 7001), ROOM, 1000),
            Ok(Share { limit_bytes: 900 })
        );
    }

    #[test]
    fn a_mount_counts_for_no_more_than_it_may_keep() {
        let mut mounts = Mounts::default();
        let room = Room { spare_bytes: 600, ..ROOM };
        let lies = |mounts: &mut Mounts, room| mounts.share(name(1), said(u64::MAX, 0), room, 0);
        assert_eq!(lies(&mut mounts, room), Ok(Share { limit_bytes: 1200 }));
        assert_eq!(mounts.held_bytes(), 600);
        // Nothing is free any more: it stays at that, whatever it says.
        assert_eq!(lies(&mut mounts, ROOM), Ok(Share { limit_bytes: 1200 }));
        assert_eq!(lies(&mut mounts, ROOM), Ok(Share { limit_bytes: 1200 }));
        assert_eq!(mounts.held_bytes(), 1200);
        assert_eq!(mounts.share(name(1), said(200, 0), room, 0), Ok(Share { limit_bytes: 800 }));
        // What is spare is promised to all.
        assert_eq!(mounts.share(name(2), said(0, 0), room, 0), Ok(Share { limit_bytes: 300 }));
        assert_eq!(mounts.held_bytes(), 200);
        for pid in 3..3 + MOST as u32 - 2 {
            assert!(mounts.share(name(pid), said(0, 0), room, 0).is_ok());
        }
        assert!(mounts.share(name(999), said(0, 0), room, 0).is_err());
        // None of these runs.
        mounts.forget_the_dead();
        assert_eq!(mounts.held_bytes(), 0);
    }
}
