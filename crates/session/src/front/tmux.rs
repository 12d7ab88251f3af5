//! tmux: whose pane the user looks at. It calls itself (hooks), so there are only lines for its configuration.

use std::path::Path;

use crate::environment::plain;
use crate::error::SessionError;

/// What changes whose pane is looked at.
const HOOKS: [&str; 5] = [
    "client-attached",
    "client-focus-in",
    "client-session-changed",
    "session-window-changed",
    "window-pane-changed",
];

/// The place of ours among a hook's commands: those of others stay, and a configuration may be read again.
const INDEX: u32 = 71;

/// Lines for `tmux.conf`, which call the `clew` at `command` with a daemon at `socket`.
///
/// # Errors
/// Where a path has a character that means something there.
pub fn lines(command: &Path, socket: &Path) -> Result<String, SessionError> {
    let what = "a configuration of tmux";
    let (command, socket) = (plain(command, what)?, plain(socket, what)?);
    let front =
        format!("{command} --socket {socket} session front #{{pane_pid}} >/dev/null 2>&1 || true");
    let mut lines =
        "# Tells Clew whose pane is looked at ('clew session tmux-hook').\n".to_string();
    lines += "set-option -g focus-events on\n";
    for hook in HOOKS {
        lines += &format!("set-hook -g '{hook}[{INDEX}]' 'run-shell -b \"{front}\"'\n");
    }
    Ok(lines)
}
