//! Which app is in front, where nobody says so: the one that works.
//!
//! An app that is used takes CPU time and faults; one in the background does little. Once a
//! [`PERIOD`] the CPU clocks of every app's processes are read, which count nanoseconds. An app that
//! begins to work comes to the front as if it had been brought there, so that its relaunch is helped
//! along; one that has been quiet for a while goes back. One app of a user is in front at a time: of several
//! that work, the one that works most, and it stays until another works clearly more.
//!
//! An app of which somebody has said where it is, is left alone from then on.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clew_core::{AppId, AppState};

use super::Governor;

/// How often activity is looked at.
pub const PERIOD: Duration = Duration::from_millis(100);
/// CPU time within a period from which on an app works: 5 per cent of one CPU.
const WORKS: Duration = Duration::from_millis(5);
/// Faults within a period that count as much as that.
const FAULTS: u64 = 64;
/// An app that has not worked for so long is not in front any more.
const QUIET: Duration = Duration::from_millis(1000);
/// How much more than the app in front another must work to take its place.
const CLEARLY: f64 = 2.0;

/// An app that has done nothing for so long is read once in so many periods: of hundreds of programs most sleep.
const SLEEPS: [(Duration, u32); 2] = [(Duration::from_secs(10), 10), (Duration::from_secs(2), 5)];

/// What is known of an app's activity.
#[derive(Debug, Default)]
pub struct Activity {
    /// Somebody has said where it is.
    pub told: bool,
    /// CPU time and faults as last read.
    last: Option<(Duration, u64)>,
    /// When that was, since when nothing has changed, and how often it was passed over since.
    read: Option<Instant>,
    sleeps_since: Option<Instant>,
    passed_over: u32,
    /// Work in the last period: 1.0 is just enough.
    works: f64,
    /// When it last worked.
    when: Option<Instant>,
}

impl Activity {
    /// What was read now: of all processes together, since they began.
    pub fn read(&mut self, cpu: Duration, faults: u64, now: Instant) {
        // Of processes that ended, time and faults are gone.
        let (cpu_before, faults_before) = self.last.unwrap_or((cpu, faults));
        let cpu_share = cpu.saturating_sub(cpu_before).as_secs_f64() / WORKS.as_secs_f64();
        let fault_share = faults.saturating_sub(faults_before) as f64 / FAULTS as f64;
        self.last = Some((cpu, faults));
        // Where it was passed over, its time is of all these periods; nobody is who has faults.
        let since = self.read.map_or(PERIOD, |read| now.duration_since(read).max(PERIOD));
        self.read = Some(now);
        self.works = cpu_share * (PERIOD.as_secs_f64() / since.as_secs_f64()) + fault_share;
        match (cpu, faults) == (cpu_before, faults_before) {
            true => drop(self.sleeps_since.get_or_insert(now)),
            false => self.sleeps_since = None,
        }
        if self.works >= 1.0 {
            self.when = Some(now);
        }
    }

    /// Whether it need not be read this time: it has slept for a while, and has had no more faults than that.
    pub fn is_passed_over(&mut self, faults: u64, now: Instant) -> bool {
        let sleeps = self.sleeps_since.map(|since| now.duration_since(since));
        let sleeps = sleeps.filter(|_| self.last.is_some_and(|(_, before)| before == faults));
        let seldom = sleeps.and_then(|slept| SLEEPS.iter().find(|(long, _)| slept >= *long));
        self.passed_over = seldom.map_or(0, |(_, seldom)| (self.passed_over + 1) % seldom);
        self.passed_over > 0
    }

    fn is_quiet(&self, now: Instant) -> bool {
        self.when.is_none_or(|when| now.duration_since(when) > QUIET)
    }
}

/// What follows from who is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It comes to the front.
    ToFront(AppId),
    /// It goes back, and nobody comes.
    ToBack(AppId),
}

/// Who comes to the front, or goes back, by what these apps of one user do. As long as an app is in front because somebody said
/// so, nobody else is.
pub fn turn<'a>(
    apps: impl Iterator<Item = (AppId, AppState, &'a Activity)> + Clone,
    now: Instant,
) -> Option<Turn> {
    let front = apps.clone().find(|(_, state, _)| *state == AppState::Foreground);
    if front.is_some_and(|(_, _, activity)| activity.told) {
        return None;
    }
    let there = front.map(|(id, ..)| id);
    let untold: Vec<(AppId, &Activity)> = apps
        .filter(|(_, _, activity)| !activity.told)
        .map(|(id, _, activity)| (id, activity))
        .collect();
    match (in_front(&untold, there, now), there) {
        (front, there) if front == there => None,
        (Some(app), _) => Some(Turn::ToFront(app)),
        (None, there) => there.map(Turn::ToBack),
    }
}

/// Who should be in front: the app that works most, but the one that is there stays as long as it is
/// not quiet and no other works clearly more.
fn in_front(
    apps: &[(AppId, &Activity)],
    now_in_front: Option<AppId>,
    now: Instant,
) -> Option<AppId> {
    let busiest = apps
        .iter()
        .filter(|(_, activity)| activity.works >= 1.0)
        .max_by(|a, b| a.1.works.total_cmp(&b.1.works));
    let there = apps.iter().find(|(id, _)| Some(*id) == now_in_front);
    match (there, busiest) {
        (Some((id, there)), Some((_, busiest)))
            if !there.is_quiet(now) && busiest.works < there.works * CLEARLY =>
        {
            Some(*id)
        }
        (Some((id, there)), None) if !there.is_quiet(now) => Some(*id),
        (_, busiest) => busiest.map(|(id, _)| *id),
    }
}

impl Governor {
    /// Somebody has said where an app is.
    pub(super) fn told_where(&mut self, app: AppId) {
        if let Some(app) = self.apps.get_mut(&app) {
            app.activity.told = true;
        }
    }

    /// Looks at what apps do, and brings to the front the one that is used.
    pub(super) fn watch_activity(&mut self) {
        if !self.config.activity || self.last_activity.elapsed() < PERIOD {
            return;
        }
        self.last_activity = Instant::now();
        let now = self.last_activity;
        for id in self.apps.keys().copied().collect::<Vec<_>>() {
            let faults = self.faults_of(id);
            let Some(app) = self.apps.get_mut(&id) else { continue };
            if app.activity.is_passed_over(faults, now) {
                continue;
            }
            let cpu = self.cpu_time(id);
            if let Some(app) = self.apps.get_mut(&id) {
                app.activity.read(cpu, faults, now);
            }
        }
        let users: BTreeSet<u32> = self.apps.values().map(|app| app.uid).collect();
        for user in users {
            let apps = self.apps.iter().filter(|(_, app)| app.uid == user);
            match turn(apps.map(|(id, app)| (*id, app.state, &app.activity)), now) {
                Some(Turn::ToFront(app)) => self.foreground(app),
                Some(Turn::ToBack(app)) => self.background(app),
                None => {}
            }
        }
    }

    /// CPU time of all processes of an app, from their beginning on.
    fn cpu_time(&self, app: AppId) -> Duration {
        let managed = self.shared.of_app(app).into_iter().map(|process| process.pid());
        let waiting = self.waiting.iter().filter(|w| w.app == app && !w.forked).map(|w| w.pid);
        managed.chain(waiting).filter(|pid| *pid != 0).filter_map(cpu_time).sum()
    }

    pub(super) fn faults_of(&self, app: AppId) -> u64 {
        use std::sync::atomic::Ordering::Relaxed;
        self.shared.of_app(app).iter().map(|process| process.faults.load(Relaxed)).sum()
    }
}

/// CPU time of a process and all its threads since it began; `None` if it is gone.
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both are written to, and live across the calls.
    let read = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &mut clock) == 0
            && libc::clock_gettime(clock, &mut time) == 0
    };
    read.then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Apps that work so much (1.0 is just enough) and last worked so many milliseconds ago.
    fn chosen(apps: &[(f64, Option<u64>)], there: Option<u32>) -> Option<u32> {
        let now = Instant::now() + Duration::from_secs(60);
        let activity = |(works, ago): &(f64, Option<u64>)| Activity {
            works: *works,
            when: ago.map(|ago| now - Duration::from_millis(ago)),
            ..Activity::default()
        };
        let apps: Vec<Activity> = apps.iter().map(activity).collect();
        let apps: Vec<(AppId, &Activity)> = (0..).map(AppId).zip(&apps).collect();
        in_front(&apps, there.map(AppId), now).map(|app| app.0)
    }

    #[test]
    fn who_works_comes_to_the_front_and_stays_until_another_works_clearly_more() {
        assert_eq!(chosen(&[(0.9, None), (0.0, None)], None), None);
        assert_eq!(chosen(&[(1.0, Some(0)), (3.0, Some(0))], None), Some(1));
        // A pause does not send back, quiet does.
        assert_eq!(chosen(&[(0.0, Some(900)), (0.0, None)], Some(0)), Some(0));
        assert_eq!(chosen(&[(0.0, Some(1100)), (0.0, None)], Some(0)), None);
        assert_eq!(chosen(&[(5.0, Some(0)), (9.0, Some(0))], Some(0)), Some(0));
        assert_eq!(chosen(&[(5.0, Some(0)), (10.0, Some(0))], Some(0)), Some(1));
        assert_eq!(chosen(&[(0.0, Some(500)), (1.0, Some(0))], Some(0)), Some(1));
    }

    #[test]
    fn work_is_cpu_time_and_faults_since_the_last_look() {
        let (mut activity, now) = (Activity::default(), Instant::now());
        activity.read(Duration::from_secs(100), 5000, now);
        assert!(activity.works == 0.0 && activity.when.is_none(), "what was before is not known");
        activity.read(Duration::from_millis(100_004), 5012, now);
        assert!((activity.works - 0.9875).abs() < 1e-9 && activity.when.is_none());
        activity.read(Duration::from_millis(100_009), 5012, now);
        assert!(activity.when.is_some());
        // A process that ended has taken its time with it.
        activity.read(Duration::from_millis(50), 12, now);
        assert_eq!(activity.works, 0.0);
    }

    #[test]
    fn who_sleeps_is_read_seldom_and_who_wakes_up_does_not_seem_to_work_more() {
        let (mut activity, mut now) = (Activity::default(), Instant::now());
        let mut reads = |activity: &mut Activity, periods: u32, cpu_ms: u64, faults: u64| {
            let mut read = 0;
            for _ in 0..periods {
                now += PERIOD;
                if !activity.is_passed_over(faults, now) {
                    activity.read(Duration::from_millis(cpu_ms), faults, now);
                    read += 1;
                }
            }
            read
        };
        assert_eq!(reads(&mut activity, 20, 7, 3), 20);
        assert_eq!(reads(&mut activity, 50, 7, 3), 10);
        // A timer of its own: 5 ms in five periods are a fifth of what is work.
        assert_eq!(reads(&mut activity, 5, 12, 3), 1);
        assert!((activity.works - 0.2).abs() < 1e-9 && activity.when.is_none());
        assert_eq!(reads(&mut activity, 20, 12, 3), 20);
        // A fault is seen at once.
        assert_eq!(reads(&mut activity, 11, 12, 3), 2);
        assert_eq!(reads(&mut activity, 1, 12, 99), 1);
        assert!(activity.works >= 1.0);
    }

    #[test]
    fn a_process_has_a_clock() {
        let before = cpu_time(std::process::id()).expect("this one is there");
        let mut sum = 0u64;
        while cpu_time(std::process::id()).is_some_and(|now| now == before) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(cpu_time((1 << 22) + 1).is_none(), "no pid is that large");
    }
}
