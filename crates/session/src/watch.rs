//! What follows from what desktops say: which app the daemon is told to bring to the front, and which to send
//! back. One thread a desktop; one decides. A desktop that goes is looked for again, later each time, and a
//! daemon that is not there is told when it is.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::Request;
use clew_live::control::status::Status;
use clew_live::control::trusted_path::own_uid;
use clew_live::programs::proc_stat::user_of;

use crate::error::SessionError;
use crate::front::{Front, Said};
use crate::kin::{self, Kernel, Kin};
use crate::latest::Latest;

/// The daemon is told no more often than this: who only passes by comes to no front.
const PERIOD: Duration = Duration::from_millis(100);
/// When it is tried again where there is no daemon, or no app of what is in front yet.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a daemon is waited for, each time: who says that it is over waits as long.
const PATIENCE: Duration = Duration::from_secs(1);
/// After how long one that goes is looked for again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LAST_PAUSE: Duration = Duration::from_secs(60);
/// One that was there for so long did not fail when it began.
const LONG: Duration = Duration::from_secs(30);
/// How often it is tried to find an app of what is in front.
const TRIES: u32 = 5;

/// Follows these desktops and tells the daemon at `socket`, until `over`.
pub fn watch(socket: &Path, desktops: Vec<Box<dyn Front>>, over: impl Fn() -> bool) {
    let latest = Arc::new(Latest::default());
    for mut desktop in desktops {
        let latest = latest.clone();
        thread::spawn(move || follow(&mut *desktop, &latest, thread::sleep));
    }
    let mut front = InFront::default();
    // What is still to be told, and how often its app was looked for.
    let mut untold: Option<(Said, u32)> = None;
    while !over() {
        if let Some(said) = latest.take(if untold.is_some() { AGAIN } else { 2 * AGAIN }) {
            untold = Some((said, 0));
        }
        let Some((said, tries)) = untold.take() else { continue };
        match front.tell(socket, said) {
            Ok(true) => {}
            Ok(false) if tries < TRIES => untold = Some((said, tries + 1)),
            Ok(false) => tracing::debug!(?said, "of no app"),
            Err(error) => {
                tracing::debug!(%error, "the daemon was not told");
                untold = Some((said, tries));
            }
        }
        thread::sleep(PERIOD);
    }
}

/// Follows a desktop for ever.
fn follow(
    desktop: &mut dyn Front,
    latest: &Arc<Latest<Said>>,
    mut pause: impl FnMut(Duration),
) -> Infallible {
    let mut next = FIRST_PAUSE;
    loop {
        let began = Instant::now();
        let Err(why) = desktop.follow(latest);
        if began.elapsed() > LONG {
            next = FIRST_PAUSE;
        }
        let name = desktop.name();
        tracing::warn!(
            "{name} says nothing any more: {why}; it is tried again in {} s",
            next.as_secs()
        );
        pause(next);
        next = (next * 2).min(LAST_PAUSE);
    }
}

/// Tells the daemon at `socket` that the app of process `pid` is in front.
///
/// # Errors
/// If the process is not this user's, or of no app, or the daemon cannot be told.
pub fn bring_to_front(socket: &Path, pid: u32) -> Result<(), SessionError> {
    if user_of(pid) != Some(own_uid()) {
        return Err(SessionError::NotYours { pid });
    }
    let mut client = Client::connect(socket)?;
    let status = client.status()?;
    let app = app_of(pid, &status, &Kernel).ok_or(SessionError::NoApp { pid })?;
    Ok(client.order(&Request::Fg { app })?)
}

fn app_of(pid: u32, status: &Status, kin: &impl Kin) -> Option<String> {
    let processes = |app: &clew_live::control::status::AppStatus| {
        app.processes.iter().map(|process| process.pid).collect::<Vec<_>>()
    };
    let apps: Vec<(&str, Vec<u32>)> =
        status.apps.iter().map(|app| (app.name.as_str(), processes(app))).collect();
    kin::app_of(pid, &apps, kin).map(str::to_string)
}

/// What the daemon was told last.
#[derive(Default)]
struct InFront {
    app: Option<String>,
}

/// What the daemon is to be told.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Nothing,
    Front(String),
    Back(String),
}

impl InFront {
    /// Tells the daemon what follows; false if nobody knows an app of what is in front.
    fn tell(&mut self, socket: &Path, said: Said) -> Result<bool, ControlError> {
        let mut client = Client::connect_within(socket, PATIENCE)?;
        let status = client.status_within(PATIENCE)?;
        let own = |pid: &u32| user_of(*pid) == Some(own_uid());
        let app = match said {
            Said::Front(pid) => Some(pid).filter(own).and_then(|pid| app_of(pid, &status, &Kernel)),
            Said::Nobody => None,
        };
        let is_known = app.is_some() || said == Said::Nobody;
        let order = self.follows(app, &status);
        let told = match &order {
            Order::Nothing => Ok(()),
            Order::Front(app) => client.order_within(&Request::Fg { app: app.clone() }, PATIENCE),
            Order::Back(app) => client.order_within(&Request::Bg { app: app.clone() }, PATIENCE),
        };
        match told {
            // It has ended meanwhile.
            Ok(()) | Err(ControlError::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        self.app = match order {
            Order::Nothing => self.app.take(),
            Order::Front(app) => Some(app),
            Order::Back(_) => None,
        };
        Ok(is_known)
    }

    /// An app that is in front already does not return. Where something is in front that is no app, the one that
    /// was told to be is not any more.
    fn follows(&self, app: Option<String>, status: &Status) -> Order {
        let is_there = |name: &str| {
            status.apps.iter().any(|app| app.name == name && app.state == "foreground")
        };
        match (app, &self.app) {
            (Some(app), Some(last)) if app == *last && is_there(&app) => Order::Nothing,
            (Some(app), _) => Order::Front(app),
            (None, Some(last)) if is_there(last) => Order::Back(last.clone()),
            (None, _) => Order::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use clew_live::control::status::AppStatus;

    use super::*;
    use crate::front::Gone;

    #[test]
    fn only_who_comes_to_the_front_returns() {
        let status = |front: &str| {
            let app = |name: &str| {
                let state = if name == front { "foreground" } else { "background" };
                AppStatus { name: name.into(), state: state.into(), ..AppStatus::default() }
            };
            Status { apps: vec![app("a"), app("b")], ..Status::default() }
        };
        let told = |last: Option<&str>| InFront { app: last.map(str::to_string) };
        let a = || Some("a".to_string());
        assert_eq!(told(None).follows(a(), &status("")), Order::Front("a".into()));
        assert_eq!(told(Some("b")).follows(a(), &status("b")), Order::Front("a".into()));
        assert_eq!(told(Some("a")).follows(a(), &status("a")), Order::Nothing);
        // Somebody else has sent it back.
        assert_eq!(told(Some("a")).follows(a(), &status("b")), Order::Front("a".into()));
        // It works, and so it is in front; nobody has said so yet.
        assert_eq!(told(None).follows(a(), &status("a")), Order::Front("a".into()));
        assert_eq!(told(Some("a")).follows(None, &status("a")), Order::Back("a".into()));
        assert_eq!(told(Some("a")).follows(None, &status("b")), Order::Nothing);
        assert_eq!(told(None).follows(None, &status("b")), Order::Nothing);
    }

    #[test]
    fn a_desktop_that_goes_is_looked_for_later_each_time() {
        struct Never;
        impl Front for Never {
            fn name(&self) -> &'static str {
                "never"
            }

            fn follow(&mut self, _: &Arc<Latest<Said>>) -> Result<Infallible, Gone> {
                Err(Gone("it is not there".into()))
            }
        }
        let (sender, pauses) = std::sync::mpsc::channel();
        let pause = move |pause: Duration| {
            if sender.send(pause).is_err() {
                loop {
                    thread::park();
                }
            }
        };
        thread::spawn(move || follow(&mut Never, &Arc::default(), pause));
        let pauses: Vec<u64> = pauses.iter().take(9).map(|pause| pause.as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
