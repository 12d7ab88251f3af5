//! Without a service manager: a process that starts the daemon again when it dies.
//!
//! It waits before that, longer each time, so that a daemon that dies at once takes no processor from
//! others. A signal to end is one to bring every page back: where no daemon lives the next one is
//! started at once, and told.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use super::last_threads;

/// A generation that died within this time died at once.
pub(super) const SHORT_LIFE: Duration = Duration::from_secs(10);

/// Exit codes with which it makes no sense to start again: it ended as asked, the input is bad,
/// this machine is unfit, or the daemon gave up.
const FINAL: [i32; 4] = [0, 2, 3, 4];

/// The second wait; the first daemon that dies is succeeded at once.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A supervisor that was told to end starts so many daemons that die before they have ended.
const MOST_AT_THE_END: u32 = 5;

/// How often is looked whether one that was killed, and does not end, can do anything.
const LOOK_AT_THREADS: Duration = Duration::from_secs(1);

/// In the environment of a daemon: milliseconds that were waited before it was started.
const WAITED: &str = "CLEW_SUPERVISOR_WAITED_MS";

/// How long this daemon's supervisor waited before it started it.
pub fn waited() -> Duration {
    let ms = std::env::var(WAITED).ok().and_then(|text| text.parse().ok());
    Duration::from_millis(ms.unwrap_or(0)).min(LONGEST_WAIT)
}

/// What is waited between daemons.
#[derive(Default)]
struct Waits {
    next: Duration,
}

impl Waits {
    /// After one that lived so long.
    fn after(&mut self, lived: Duration) -> Duration {
        if lived >= SHORT_LIFE {
            self.next = Duration::ZERO;
        }
        let wait = self.next;
        self.next = (2 * wait).clamp(FIRST_WAIT, LONGEST_WAIT);
        wait
    }
}

/// Runs `command` again and again until it ends with a code of its own that is final; passes
/// SIGINT, SIGTERM and SIGHUP on to it. To be called before the process has threads.
pub fn run(mut command: Command) -> io::Result<ExitStatus> {
    let end = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    let (ends, all) = (set_of(&end), set_of(&[end[0], end[1], end[2], libc::SIGCHLD]));
    block(&all)?;
    // A daemon that is told to end before it can heed that is told as soon as it can.
    // SAFETY: what runs between fork and exec changes the signal mask and nothing else.
    unsafe { command.pre_exec(move || block(&ends)) };
    let (mut waits, mut waited, mut told) = (Waits::default(), Duration::ZERO, None);
    let (mut has_begun, mut died_at_the_end) = (false, 0);
    // Those whose last threads do not end: see there.
    let mut stuck: Vec<Child> = Vec::new();
    loop {
        let began = Instant::now();
        let mut child = match command.env(WAITED, waited.as_millis().to_string()).spawn() {
            Ok(child) => child,
            // What a dead one had waits for the next one: that it cannot be started now ends nobody.
            Err(error) if has_begun => {
                let wait = waits.after(Duration::ZERO).max(FIRST_WAIT);
                let seconds = wait.as_secs_f64();
                clew_core::remark!(
                    "clew: the next daemon cannot be started: {error}; it is tried again in {seconds:.1} s"
                );
                let since = Instant::now();
                told = next_signal(&ends, Some(wait)).or(told);
                waited = since.elapsed();
                continue;
            }
            Err(error) => return Err(error),
        };
        has_begun = true;
        let pid = child.id() as libc::pid_t;
        // SAFETY: our own child, called only while it is not reaped yet.
        let tell = |signal| unsafe { libc::kill(pid, signal) };
        told.map(tell);
        let status = loop {
            let signal = next_signal(&all, Some(LOOK_AT_THREADS));
            if let Some(signal) = signal.filter(|signal| *signal != libc::SIGCHLD) {
                told = Some(signal);
                tell(signal);
            } else if let Some(status) = child.try_wait()? {
                // Else it was a keeper of ours, or a child of a child that was left to us.
                break Some(status);
            } else if signal.is_none() && last_threads::can_do_nothing(child.id()) {
                stuck.push(child);
                break None;
            }
        };
        stuck.retain_mut(|daemon| !matches!(daemon.try_wait(), Ok(Some(_))));
        let code = status.and_then(|status| status.code());
        if let (Some(status), Some(code)) = (status, code)
            && (FINAL.contains(&code) || told.is_some())
        {
            return Ok(status);
        }
        let why = match (code, status.and_then(|status| status.signal())) {
            (Some(code), _) => format!("ended with {code}"),
            (_, Some(signal)) => format!("died of signal {signal}"),
            _ => {
                "was killed, and what is left of it waits for memory that nobody serves".to_string()
            }
        };
        died_at_the_end += u32::from(told.is_some());
        if let Some(status) = status.filter(|_| died_at_the_end >= MOST_AT_THE_END) {
            clew_core::remark!(
                "clew: the daemon {why}, as {MOST_AT_THE_END} have that were told to end: no other one is started, and \
                 programs that it served wait for one"
            );
            return Ok(status);
        }
        let wait = waits.after(began.elapsed());
        let when = match wait.as_secs_f64() {
            0.0 => String::new(),
            seconds => format!(" in {seconds:.1} s"),
        };
        clew_core::remark!("clew: the daemon {why}; starting the next one{when}");
        let since = Instant::now();
        if !wait.is_zero() {
            told = next_signal(&ends, Some(wait)).or(told);
        }
        waited = since.elapsed();
    }
}

fn set_of(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: the set is initialised before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

fn block(set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set lives across the call.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// The next of these signals; `None` if none comes within `patience`.
fn next_signal(set: &libc::sigset_t, patience: Option<Duration>) -> Option<libc::c_int> {
    let until = patience.map(|patience| Instant::now() + patience);
    loop {
        let left = until.map_or(LONGEST_WAIT, |until| until - Instant::now().min(until));
        let left = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos() as libc::c_long,
        };
        // SAFETY: set and time live across the call; nothing is told of the signal but its number.
        let signal = unsafe { libc::sigtimedwait(set, std::ptr::null_mut(), &left) };
        if signal > 0 {
            return Some(signal);
        }
        // Stopped and continued, perhaps.
        if until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_told_to_end_does_though_each_daemon_dies_at_its_end() {
        const CHILD: &str = "CLEW_TEST_SUPERVISES";
        if std::env::var_os(CHILD).is_some() {
            let mut dies = Command::new("sh");
            dies.args(["-c", "kill -9 $$"]);
            let status = run(dies).expect("it was begun");
            assert_eq!(status.signal(), Some(libc::SIGKILL));
            return;
        }
        // A process of its own, all threads of which have these signals wait.
        let mut again = Command::new(std::env::current_exe().expect("this test"));
        let name = "who_is_told_to_end_does_though_each_daemon_dies_at_its_end";
        again.args([name, "--nocapture", "--test-threads=1"]).env(CHILD, "1");
        let waits = set_of(&[libc::SIGTERM, libc::SIGCHLD]);
        // SAFETY: what runs between fork and exec changes the signal mask and nothing else.
        unsafe { again.pre_exec(move || block(&waits)) };
        let mut supervisor = again.spawn().expect("it runs");
        // SAFETY: our own child, which is not reaped yet.
        assert_eq!(unsafe { libc::kill(supervisor.id() as libc::pid_t, libc::SIGTERM) }, 0);
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            match supervisor.try_wait().expect("it is ours") {
                Some(status) => break status,
                None => assert!(Instant::now() < until, "it goes on"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
    }

    #[test]
    fn waits_grow_until_a_daemon_has_lived() {
        let mut waits = Waits::default();
        let second = Duration::from_secs(1);
        let seen: Vec<u128> = (0..12).map(|_| waits.after(second).as_millis()).collect();
        let wanted = [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000];
        assert_eq!(seen, wanted);
        assert_eq!(waits.after(SHORT_LIFE), Duration::ZERO);
        assert_eq!(waits.after(second), FIRST_WAIT);
    }
}
