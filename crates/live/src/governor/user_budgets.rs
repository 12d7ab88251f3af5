//! What each user of a service uses, and who of the own apps gives pages where that is more than the user may.
//!
//! Who is over the own budget is taken down to it before anything is asked of others: what is on its way out then
//! counts for all. While memory is all but gone nothing is asked of others either, if it would be enough for everybody's
//! own budget: the pages of who is over it come back a few at a time until they fit. In the pool, which is everybody's, a
//! user has no more than the own budget. What a stored page takes is asked of a sample, and again when there are clearly more or fewer.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clew_core::{AppId, AppState, Ns, SpaceId};

use super::Governor;
use crate::control::status::{UsedBytes, UserStatus};
use crate::control::trusted_path::own_uid;
use crate::programs::process::Process;

/// Rounds for one user are so far apart at least, and so many times what the last one took the policies.
const APART: Duration = Duration::from_millis(100);
const REST: u32 = 10;

/// After how long a round is not waited for: an agent is silent.
const STUCK: Duration = Duration::from_secs(2);

/// Pages of one round, at most.
const MOST_PAGES: u64 = 16384;

/// A user who is over the budget is taken so far below: one part in so many.
const BELOW: u64 = 32;

/// Bytes of a leaf of a page table.
const LEAF_BYTES: u64 = 4096;

/// What is known of users.
#[derive(Default)]
pub(super) struct UserBudgets {
    used: BTreeMap<u32, UsedBytes>,
    /// Stored pages of a program when they were last sampled, and what they took.
    sampled: HashMap<SpaceId, (u64, f64)>,
    /// When a user's last round began, and how long the policies took for it.
    rounds: HashMap<u32, (Instant, Duration)>,
}

impl UserBudgets {
    /// What this user's apps use.
    pub(super) fn used(&self, uid: u32) -> UsedBytes {
        self.used.get(&uid).copied().unwrap_or_default()
    }
}

/// What an app could give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Giver {
    app: AppId,
    pages: u64,
    is_in_front: bool,
    last_foreground: Ns,
}

/// Which apps of one user give how many pages: those that were away longest first, the one in front last.
fn who_gives(mut apps: Vec<Giver>, pages: u64) -> Vec<(AppId, usize)> {
    apps.sort_by_key(|giver| (giver.is_in_front, giver.last_foreground, giver.app));
    let mut left = pages.min(MOST_PAGES);
    let mut gives = Vec::new();
    for giver in apps.into_iter().filter(|giver| giver.pages > 0) {
        if left == 0 {
            break;
        }
        let most = giver.pages.min(left);
        gives.push((giver.app, most as usize));
        left -= most;
    }
    gives
}

impl Governor {
    /// What each user but root may use, if that is limited.
    pub(super) fn user_budget(&self) -> Option<u64> {
        self.config.users?.budget.map(|budget| budget.0)
    }

    pub(super) fn users_status(&self) -> Vec<UserStatus> {
        let of = |(uid, used): (&u32, &UsedBytes)| UserStatus {
            uid: *uid,
            used: *used,
            budget_bytes: self.user_budget().filter(|_| *uid != own_uid()),
            apps: self.apps.values().filter(|app| app.uid == *uid).count() as u64,
        };
        self.users.used.iter().map(of).collect()
    }

    /// Adds up what each user uses; `counted` are the resident bytes of each process that are its own.
    fn weigh_users(&mut self, processes: &[Arc<Process>], counted: &[u64]) {
        let mut used: BTreeMap<u32, UsedBytes> =
            self.apps.values().map(|app| (app.uid, UsedBytes::default())).collect();
        let mut sampled = HashMap::with_capacity(processes.len());
        for (process, counted) in processes.iter().zip(counted) {
            let (sample, in_pool) = self.in_pool(process);
            sampled.insert(process.id, sample);
            let counts = process.space.table.counts();
            let of = used.entry(process.uid()).or_default();
            of.programs_bytes += counted;
            of.buffers_bytes += process.memory.buffer_bytes();
            of.pool_bytes += in_pool as u64;
            of.kernel_bytes += counts.lent * u64::from(self.kernel.page_bytes);
            of.daemon_bytes += process.space.table.leaves() as u64 * LEAF_BYTES;
        }
        for w in self.waiting.iter().filter(|w| !w.forked && w.shares_with.is_none()) {
            let Some(app) = self.apps.get(&w.app) else { continue };
            used.entry(app.uid).or_default().programs_bytes += w.resident;
        }
        (self.users.used, self.users.sampled) = (used, sampled);
    }

    /// Pages that may still go to the pool for this user, if none becomes smaller: who fills the own budget with what is
    /// stored alone has no more of what is everybody's.
    fn pool_share(&self, uid: u32) -> u64 {
        let Some(budget) = self.user_budget().filter(|_| uid != own_uid()) else { return u64::MAX };
        let all = self.shared.processes.read().clone();
        let own: HashMap<SpaceId, Arc<Process>> =
            all.into_iter().filter(|(_, process)| process.uid() == uid).collect();
        let stored: f64 = own.values().map(|process| self.in_pool(process).1).sum();
        let leaving = self.driver.leaving_pages_of(|space| own.contains_key(&space)) as u64;
        let pages = budget.saturating_sub(stored as u64) / self.shared.page_bytes;
        pages.saturating_sub(leaving)
    }

    /// What is stored of a program and what that took when it was sampled, which is done again if it must be; and the
    /// bytes that it takes in the pool now.
    fn in_pool(&self, process: &Process) -> ((u64, f64), f64) {
        let counts = process.space.table.counts();
        let stored = counts.stored + counts.parked;
        let last = self.users.sampled.get(&process.id).copied();
        let (pages, bytes) = last
            .filter(|(pages, _)| stored.abs_diff(*pages) <= pages / 8 + 256)
            .unwrap_or_else(|| (stored, self.pool_bytes_of(process)));
        let each = if pages == 0 { 0.0 } else { bytes / pages as f64 };
        ((pages, bytes), each * stored as f64)
    }

    /// Has all of an app taken out, as far as its user's share of the pool goes; what is chosen the caller carries out.
    pub(super) fn take_out_all(&mut self, app: AppId) {
        let uid = self.apps.get(&app).map_or(own_uid(), |app| app.uid);
        let most = usize::try_from(self.pool_share(uid)).unwrap_or(usize::MAX);
        self.driver.take_out_of_app(app, most, &self.programs);
    }

    /// Has users who use more than they may give pages of their own. Answers how many bytes others need not give for them:
    /// all of it, where there is enough for everybody's own budget; else what they have resident, unless memory is all but
    /// gone (`is_gone`).
    pub(super) fn keep_user_budgets(
        &mut self,
        processes: &[Arc<Process>],
        counted: &[u64],
        is_gone: bool,
    ) -> u64 {
        if !self.shared.users.is_service() {
            return 0;
        }
        self.weigh_users(processes, counted);
        let Some(budget) = self.user_budget() else { return 0 };
        let used: Vec<(u32, u64)> =
            self.users.used.iter().map(|(uid, used)| (*uid, used.total())).collect();
        let others = || used.iter().filter(|(uid, _)| *uid != own_uid());
        let own = self.users.used(own_uid()).total();
        let is_enough = own + others().count() as u64 * budget <= self.driver.budget().total_bytes;
        let is_full = self.driver.pool_full().0;
        let mut owed = 0;
        for (uid, used) in others() {
            let is_over = *used > budget;
            let share = if is_over { self.pool_share(*uid) } else { 0 };
            let gives = share > 0 && !is_full;
            let of = self.shared.users.of(*uid);
            of.is_over_budget.store(is_over, Ordering::Relaxed);
            of.holds_others_up.store(gives && is_gone, Ordering::Relaxed);
            if !is_over || is_full {
                continue;
            }
            let excess = used - (budget - budget / BELOW);
            let pages = excess.div_ceil(self.shared.page_bytes).min(share);
            let resident = self.take_down(*uid, pages, processes) * self.shared.page_bytes;
            owed += match is_enough {
                // Also what is stored, and takes more than the user may have.
                true => excess,
                false if is_gone => 0,
                false => excess.min(resident),
            };
        }
        owed
    }

    /// Whether the user of this app uses more than a user may, and memory is all but gone.
    pub(super) fn holds_others_up(&self, app: AppId) -> bool {
        let uid = self.apps.get(&app).map(|app| app.uid);
        uid.is_some_and(|uid| self.shared.users.of(uid).holds_others_up.load(Ordering::Relaxed))
    }

    /// Has a user give so many pages, unless the last round is under way; how many could be given.
    fn take_down(&mut self, uid: u32, pages: u64, processes: &[Arc<Process>]) -> u64 {
        let own = || processes.iter().filter(|process| process.uid() == uid);
        let is_leaving = |process: &Arc<Process>| self.swap_outs.is_busy(process.id);
        let mut givers: BTreeMap<AppId, Giver> = BTreeMap::new();
        for process in own().filter(|process| process.is_managed()) {
            let Some(app) = self.apps.get(&process.app) else { continue };
            let stats = self.driver.facts().apps.get(&process.app);
            let giver = givers.entry(process.app).or_insert(Giver {
                app: process.app,
                pages: 0,
                is_in_front: app.state == AppState::Foreground,
                last_foreground: stats.map_or(Ns(0), |stats| stats.last_foreground),
            });
            if !is_leaving(process) && !self.driver.is_protected(process.id) {
                giver.pages += process.space.table.counts().resident;
            }
        }
        let resident: u64 = givers.values().map(|giver| giver.pages).sum();
        if pages == 0 {
            return resident;
        }
        if let Some((began, took)) = self.users.rounds.get(&uid) {
            let since = began.elapsed();
            let is_under_way = own().any(is_leaving) && since < STUCK;
            if since < APART.max(*took * REST) || is_under_way {
                return resident;
            }
        }
        let began = Instant::now();
        for (app, pages) in who_gives(givers.into_values().collect(), pages) {
            self.driver.take_out_of_app(app, pages, &self.programs);
        }
        self.users.rounds.insert(uid, (began, began.elapsed()));
        self.last_busy = Instant::now();
        self.carry_out(None);
        resident
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn giver(app: u32, pages: u64, last_foreground: u64) -> Giver {
        let last_foreground = Ns(last_foreground);
        Giver { app: AppId(app), pages, is_in_front: false, last_foreground }
    }

    #[test]
    fn who_was_away_longest_gives_first_and_who_is_in_front_last() {
        let front = Giver { is_in_front: true, ..giver(1, 100, 0) };
        let apps = || vec![front, giver(2, 100, 9), giver(3, 100, 5), giver(4, 0, 1)];
        let gives = |pages| who_gives(apps(), pages);
        assert_eq!(gives(0), []);
        assert_eq!(gives(70), [(AppId(3), 70)]);
        assert_eq!(gives(170), [(AppId(3), 100), (AppId(2), 70)]);
        assert_eq!(gives(999), [(AppId(3), 100), (AppId(2), 100), (AppId(1), 100)]);
    }

    #[test]
    fn a_round_has_an_end() {
        let apps = vec![giver(1, MOST_PAGES - 1, 0), giver(2, MOST_PAGES, 1)];
        let gives = who_gives(apps, u64::MAX);
        assert_eq!(gives, [(AppId(1), MOST_PAGES as usize - 1), (AppId(2), 1)]);
    }
}
