//! `clew session status`: what of a session is there.

use std::path::PathBuf;

use clew_live::control::client::Client;
use clew_trace::regular;
use serde::Serialize;

use crate::environment::ENV_PRELOAD;
use crate::error::SessionError;
use crate::exceptions::Exceptions;
use crate::files::{MOST_BYTES, State, failed};
use crate::manager;
use crate::setup::Session;

/// What of a session is there. Names in JSON are stable.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Whether programs of the next login begin with an agent.
    pub enabled: bool,
    /// Whether what this process starts does.
    pub here: bool,
    /// Whether a service manager of this user runs.
    pub service_manager: bool,
    /// The daemon's socket.
    pub socket: PathBuf,
    /// Process id of the daemon, if one serves.
    pub daemon_pid: Option<u32>,
    /// The app in front.
    pub front: Option<String>,
    /// Files, in the order in which they are made.
    pub files: Vec<File>,
    /// Executables that are left alone.
    pub exceptions: Vec<String>,
}

/// One of them.
#[derive(Clone, Debug, Serialize)]
pub struct File {
    /// What it is for: `object`, `exceptions`, `daemon`, `watch`, `environment`.
    pub what: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// What is there.
    pub state: State,
}

/// The session's list of exceptions; an empty one where there is none.
///
/// # Errors
/// Where it cannot be read.
pub fn exceptions(session: &Session) -> Result<Exceptions, SessionError> {
    let path = session.places.exceptions();
    match regular::read_text(&path, MOST_BYTES, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Exceptions::of("")),
        text => Ok(Exceptions::of(&text.map_err(failed("read", &path))?)),
    }
}

/// Looks at everything.
///
/// # Errors
/// Where a file cannot be looked at.
pub fn status(session: &Session) -> Result<Status, SessionError> {
    let (object, list) = (session.places.object(), session.places.exceptions());
    let is_there = |there: bool| if there { State::There } else { State::Missing };
    let mut files = vec![
        File { what: "object", state: session.object_state(), path: object.clone() },
        File { what: "exceptions", state: is_there(list.exists()), path: list },
    ];
    for item in session.items()? {
        let state = item.content.look(&item.path)?;
        files.push(File { what: item.what, path: item.path, state });
    }
    let enabled = files.last().is_some_and(|environment| environment.state != State::Missing);
    let preload = std::env::var(ENV_PRELOAD).unwrap_or_default();
    let here = session.environment().without_object(&preload).is_some() && object.exists();
    let daemon = Client::connect(&session.socket).and_then(|mut client| client.status()).ok();
    let front = daemon.as_ref().and_then(|status| {
        status.apps.iter().find(|app| app.state == "foreground").map(|app| app.name.clone())
    });
    Ok(Status {
        enabled,
        here,
        service_manager: manager::is_running(),
        socket: session.socket.clone(),
        daemon_pid: daemon.map(|status| status.daemon_pid),
        front,
        files,
        exceptions: exceptions(session)?.names().map(str::to_string).collect(),
    })
}
