//! Hostile programs (tests/programs/hostile.c), and the messages that their scripts send.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clew_live::control::client::Client;
use clew_live::control::protocol::Request;

use super::{Fixture, LONG, SetAtEnd, compile, kill, kill_tree, poll, wait_for_end};

/// Small programs are managed, too.
pub const SMALL: &str = "min-process = \"1MiB\"\n";

pub const SAYS_NOTHING: &str = "00000000000000000000000000000000";
pub const SAYS: &str = "SPACE***********SECRET**********";
pub const READY: &str = "send 434c45570300000000000000NUMBER**\
    STAGING*********AREA************BEACON********** uffd";
pub const READY_CHILD: &str = "send 434c45570300000000000000NUMBER**\
    STAGING*********AREA************BEACON**********";
pub const TAKEN: &str = "send 434c45570500000000000000NUMBER**";
pub const COPIED: &str = "send 434c45570d00000000000000NUMBER**";
pub const DONE: &str = "send 434c45570800000000000000NUMBER**";

/// The answer that all pages were taken.
pub fn all_taken() -> String {
    TAKEN.to_string() + &"01".repeat(512)
}

/// The answer that none could be.
pub fn none_taken() -> String {
    TAKEN.to_string() + &"04".repeat(512)
}

/// A hostile program that follows the steps of a test, says so, and stays.
pub struct Hostile {
    child: Child,
    done: PathBuf,
}

impl Hostile {
    pub fn start(fixture: &Fixture, name: &str, steps: &[&str]) -> Hostile {
        Hostile::follow(fixture, name, steps, &["wait 999"; 600])
    }

    /// One that ends when it has gone through all the steps.
    pub fn to_the_end(fixture: &Fixture, name: &str, steps: &[&str]) -> Hostile {
        Hostile::follow(fixture, name, steps, &[])
    }

    fn follow(fixture: &Fixture, name: &str, steps: &[&str], then: &[&str]) -> Hostile {
        let binary = fixture.dir.join("hostile");
        if !binary.exists() {
            compile(&fixture.dir, "hostile.c", &[]);
        }
        let (script, done) = (fixture.dir.join(name), fixture.dir.join(format!("{name}.done")));
        let mark = format!("mark {}", done.display());
        let lines: Vec<&str> = steps.iter().chain([&mark.as_str()]).chain(then).copied().collect();
        fs::write(&script, lines.join("\n") + "\n").expect("a script");
        Hostile { child: fixture.start_hostile(&binary, &script), done }
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("try_wait").is_none()
    }

    pub fn wait_done(&mut self) {
        let done = poll(2 * LONG, || self.done.exists().then_some(()));
        assert!(done.is_some(), "not that far: {:?}", self.child.try_wait());
    }

    /// Waits for its end; what it ended with, see tests/programs/hostile.c.
    pub fn outcome(&mut self) -> Option<i32> {
        wait_for_end(&mut self.child, 2 * LONG).expect("it ends").code()
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}

/// Orders pages of hostile programs out until it is over.
pub fn swap_out_hostile(socket: &Path, is_over: &AtomicBool) {
    while !is_over.load(Ordering::SeqCst) {
        let order = Request::SwapOut { app: "hostile".to_string() };
        // There may be none at the moment, or no daemon.
        let _ = Client::connect(socket).and_then(|mut c| c.order(&order));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What it ended with under orders.
pub fn outcome_under_orders(fixture: &Fixture, hostile: &mut Hostile) -> Option<i32> {
    under_orders(fixture, || hostile.outcome())
}

/// Has pages of hostile programs ordered out meanwhile.
pub fn under_orders<T>(fixture: &Fixture, what: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    answered(fixture.daemon_pid(), || {
        std::thread::scope(|scope| {
            let _at_end = SetAtEnd(&is_over);
            scope.spawn(|| swap_out_hostile(&fixture.socket, &is_over));
            what()
        })
    })
}

/// Has `what` fail rather than wait for ever where the daemon does not answer any more.
pub fn answered<T>(daemon: u32, what: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _at_end = SetAtEnd(&is_over);
        scope.spawn(|| {
            if poll(2 * LONG, || is_over.load(Ordering::SeqCst).then_some(())).is_none() {
                eprintln!("the daemon does not answer: it is killed");
                kill(daemon);
            }
        });
        what()
    })
}

/// A hello for app `hostile`, with what the beacon says.
pub fn hello(says: &str) -> String {
    let name = "686f7374696c65".to_string() + &"00".repeat(57);
    format!("send 434c455701000000VERSION*07000000{name}{says} program")
}

/// Steps to a forked child whose agent has the child's userfaultfd.
pub fn as_child<'a>(
    hello: &'a str,
    childs: &'a str,
    none: &'a str,
    then: &[&'a str],
) -> Vec<&'a str> {
    let steps = [hello, "await", READY, "await", none, "fork", childs, "await"];
    [&steps[..], then].concat()
}
