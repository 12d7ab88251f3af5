//! The units of a user's service manager: the daemon (that of `contrib/systemd`), and who tells it who is in front, with this
//! command and this socket in them.

use std::path::Path;

use crate::environment::plain;
use crate::error::SessionError;

/// Serves the session's programs.
pub const DAEMON: &str = "clew-session.service";
/// Watches the desktop.
pub const WATCH: &str = "clew-session-watch.service";

/// What is started with them.
pub const WANTED: [(&str, &str); 2] =
    [("default.target", DAEMON), ("graphical-session.target", WATCH)];

const DAEMONS_TEXT: &str = include_str!("../../../contrib/systemd/clew-user.service");
const WATCHS_TEXT: &str = include_str!("clew-session-watch.service");

/// What the units start in `contrib`.
const COMMAND: &str = "ExecStart=/usr/local/bin/clew ";

/// The text of a unit, with the `clew` at `command`, and a daemon at `socket`.
///
/// # Errors
/// Where a path has a character that means something in a unit.
pub fn text(unit: &str, command: &Path, socket: &Path) -> Result<String, SessionError> {
    let what = "a unit of systemd";
    let (command, socket) = (plain(command, what)?, plain(socket, what)?);
    let text = if unit == DAEMON { DAEMONS_TEXT } else { WATCHS_TEXT };
    Ok(text.replace(COMMAND, &format!("ExecStart={command} --socket {socket} ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_start_this_command_and_never_with_an_agent() {
        for (unit, verb) in [(DAEMON, "daemon"), (WATCH, "session watch")] {
            let text = text(unit, Path::new("/opt/clew"), Path::new("/run/s")).expect("plain");
            assert!(
                text.contains(&format!("\nExecStart=/opt/clew --socket /run/s {verb}\n")),
                "{text}"
            );
            let unset = format!("\nUnsetEnvironment={}\n", crate::environment::NAMES.join(" "));
            assert!(text.contains(&unset), "{text}");
            assert!(!text.contains("/usr/local"), "{text}");
        }
        let refused = text(DAEMON, Path::new("/o pt/clew"), Path::new("/run/s"));
        assert!(matches!(refused, Err(SessionError::Name { .. })));
    }
}
