//! Whom a daemon serves, and what is each user's own: the turn with the policies, places among programs.
//!
//! A daemon manages programs of its own user, and answers that user and root. A service for all users is
//! root's, and does the same for whoever is in a group. Who somebody is, and in which groups, the kernel says,
//! as it was when he connected. A user whom no database names is served by nobody: who has subordinate ids
//! (`/etc/subuid`) could come as 65,536 users, each with a share of his own.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_store::LeafShare;
use nix::unistd::{Uid, User};
use parking_lot::{Mutex, MutexGuard};

use crate::agents::closer::Unclosed;
use crate::agents::seqpacket;
use crate::control::trusted_path::own_uid;
use crate::limits::MAX_PAGES;

/// Programs of one user of a service that have an agent, forked ones included, at most; further ones run
/// unmanaged. Each takes up to eight descriptors.
const MAX_PROGRAMS: usize = 1024;

/// Leaves of page tables of one user's programs: a quarter of all.
const MAX_LEAVES: u32 = (MAX_PAGES / 512 / 4) as u32;

/// Who asks, and so what he sees and orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Everything: the daemon's own user, or root.
    All,
    /// What is this user's.
    User(u32),
}

impl Asker {
    /// Whether he sees what is of user `uid`, and may give orders about it.
    pub fn may(self, uid: u32) -> bool {
        match self {
            Asker::All => true,
            Asker::User(own) => own == uid,
        }
    }

    /// Whose apps he means by their names alone.
    pub fn own(self) -> u32 {
        match self {
            Asker::All => own_uid(),
            Asker::User(own) => own,
        }
    }
}

/// Whom a daemon serves.
pub struct Users {
    own: u32,
    /// Who is in it is served besides, in a service for all users.
    group: Option<u32>,
    each: Mutex<HashMap<u32, Arc<OfUser>>>,
}

impl Users {
    /// Those of a daemon of user `own`; with a `group` it is a service for all users.
    pub fn new(own: u32, group: Option<u32>) -> Users {
        Users { own, group, each: Mutex::default() }
    }

    /// Whether programs of several users are served.
    pub fn is_service(&self) -> bool {
        self.group.is_some()
    }

    /// Who asks at the other end of a control socket; `None` if it is nobody whom this daemon answers.
    ///
    /// # Errors
    /// Those of asking the kernel.
    pub fn asker(&self, socket: &impl AsRawFd) -> io::Result<Option<Asker>> {
        let uid = seqpacket::peer(socket)?.uid;
        if uid == 0 || uid == self.own {
            return Ok(Some(Asker::All));
        }
        Ok(self.has_member(socket)?.then_some(Asker::User(uid)))
    }

    /// Whether programs of the user at the other end of an agents' socket are managed.
    ///
    /// # Errors
    /// Those of asking the kernel.
    pub fn serves(&self, socket: &impl AsRawFd) -> io::Result<bool> {
        Ok(seqpacket::peer(socket)?.uid == self.own || self.has_member(socket)?)
    }

    /// Whether who is at the other end is in the service's group, and in a database of users.
    fn has_member(&self, socket: &impl AsRawFd) -> io::Result<bool> {
        let Some(group) = self.group else { return Ok(false) };
        let peer = seqpacket::peer(socket)?;
        if peer.gid != group && !seqpacket::peer_groups(socket)?.contains(&group) {
            return Ok(false);
        }
        Ok(self.each.lock().contains_key(&peer.uid) || is_known(peer.uid))
    }

    /// What is this user's own.
    pub fn of(&self, uid: u32) -> Arc<OfUser> {
        let is_limited = self.is_limited(uid);
        let new = || {
            let leaves = is_limited.then(|| Arc::new(LeafShare::new(MAX_LEAVES)));
            Arc::new(OfUser { leaves, ..OfUser::default() })
        };
        self.each.lock().entry(uid).or_insert_with(new).clone()
    }

    /// Programs that user `uid` may have.
    pub fn most_programs(&self, uid: u32) -> usize {
        if self.is_limited(uid) { MAX_PROGRAMS } else { usize::MAX }
    }

    /// Whether a user has a share, and not all.
    fn is_limited(&self, uid: u32) -> bool {
        self.is_service() && uid != self.own
    }

    /// A place for a program of this user that says hello; `None` if the user has too many.
    pub fn seat(&self, uid: u32) -> Option<Seat> {
        let most = self.most_programs(uid);
        self.of(uid).seat(most)
    }

    /// The same for one that is served already: it was forked, or a predecessor had it.
    pub fn seat_of_served(&self, uid: u32) -> Seat {
        let of = self.of(uid);
        of.programs.fetch_add(1, Ordering::Relaxed);
        Seat(of)
    }
}

fn is_known(uid: u32) -> bool {
    matches!(User::from_uid(Uid::from_raw(uid)), Ok(Some(_)))
}

/// Pages of a user who holds others up that come back in [`FEW_IN`], but for those of the last fault: 50 MiB a second.
const FEW: usize = 256;

/// See [`FEW`].
pub const FEW_IN: Duration = Duration::from_millis(20);

/// What is one user's own.
#[derive(Default)]
pub struct OfUser {
    turn: Mutex<()>,
    programs: AtomicUsize,
    /// What page tables of the user's programs may take; `None` without a limit.
    pub leaves: Option<Arc<LeafShare>>,
    /// The user's apps use more than the user's budget: who wants fresh memory waits a moment.
    pub is_over_budget: AtomicBool,
    /// The same, and memory is all but gone: the user's pages come back a few at a time ([`OfUser::may_have_one`]), so that
    /// they leave faster than they come, and nobody else has to give any.
    pub holds_others_up: AtomicBool,
    /// Pages that have come since then.
    had: Mutex<(Option<Instant>, usize)>,
    /// Descriptors that the user has sent.
    pub unclosed: Arc<Unclosed>,
}

impl OfUser {
    /// Whether a fault of a user who holds others up may be answered now; who may not asks again after [`FEW_IN`].
    pub fn may_have_one(&self, now: Instant) -> bool {
        let mut had = self.had.lock();
        if had.0.is_none_or(|since| now.saturating_duration_since(since) >= FEW_IN) {
            *had = (Some(now), 0);
        }
        had.1 < FEW
    }

    /// So many pages have come for such a fault.
    pub fn has_had(&self, pages: usize) {
        self.had.lock().1 += pages;
    }

    /// Waits until no other question of this user waits for the policies.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    fn seat(self: Arc<Self>, most: usize) -> Option<Seat> {
        let one_more = |programs: usize| (programs < most).then_some(programs + 1);
        self.programs.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok()?;
        Some(Seat(self))
    }
}

/// A program's place among those of its user; free again when this goes.
pub struct Seat(Arc<OfUser>);

impl Seat {
    /// What is its user's own.
    pub fn user(&self) -> &OfUser {
        &self.0
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.programs.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn each_sees_what_is_his_own() {
        assert!(Asker::All.may(0) && Asker::All.may(7));
        assert!(Asker::User(7).may(7) && !Asker::User(7).may(8) && !Asker::User(7).may(0));
    }

    #[test]
    fn who_holds_others_up_has_a_few_at_a_time() {
        let user = OfUser::default();
        let began = Instant::now();
        let has = |at| {
            let mut faults = 0;
            while user.may_have_one(began + at) {
                user.has_had(10);
                faults += 1;
            }
            faults
        };
        let few = FEW.div_ceil(10);
        assert_eq!([has(Duration::ZERO), has(FEW_IN / 2)], [few, 0]);
        assert_eq!([has(FEW_IN), has(FEW_IN)], [few, 0]);
    }

    /// The peer is this process: what differs is whose the daemon is, and its group.
    #[test]
    fn who_is_neither_the_daemons_user_nor_in_its_group_is_nobody() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let own = own_uid();
        let group = seqpacket::peer(&ours).expect("a peer").gid;
        let as_seen = |users: Users| {
            let asker = users.asker(&ours).expect("the kernel knows");
            (asker, users.serves(&ours).expect("the kernel knows"))
        };
        assert_eq!(as_seen(Users::new(own, None)), (Some(Asker::All), true));
        let other = own + 1;
        let asker = |otherwise| if own == 0 { Some(Asker::All) } else { otherwise };
        assert_eq!(as_seen(Users::new(other, None)), (asker(None), false));
        assert_eq!(as_seen(Users::new(other, Some(group + 1))), (asker(None), false));
        let user = Some(Asker::User(own));
        assert_eq!(as_seen(Users::new(other, Some(group))), (asker(user), true));
    }

    #[test]
    fn a_user_has_so_many_programs_and_another_as_many() {
        let users = Users::new(0, Some(7));
        let mut seats: Vec<Seat> = Vec::new();
        while let Some(seat) = users.seat(1000) {
            seats.push(seat);
            assert!(seats.len() <= MAX_PROGRAMS);
        }
        assert_eq!(seats.len(), MAX_PROGRAMS);
        assert!(users.seat(1001).is_some(), "another has places of his own");
        seats.pop();
        let forked = users.seat_of_served(1000);
        assert!(users.seat(1000).is_none(), "a forked one has a place, too");
        drop(forked);
        assert!(users.seat(1000).is_some(), "one has ended");
    }
}
