//! The user's service manager, as far as one runs: told what changed, so that nobody has to log in again.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Most of an environment that is looked at, bytes.
const MOST_BYTES: usize = 1 << 20;

/// Whether a service manager of this user runs, which it says by its socket.
pub fn is_running() -> bool {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute());
    runtime.is_some_and(|dir| Path::new(&dir).join("systemd/private").exists())
}

/// Has it do this (`systemctl --user`); what it says if it does not.
///
/// # Errors
/// One line of what went wrong.
pub fn tell<S: AsRef<OsStr>>(words: &[S]) -> Result<(), String> {
    said(words).map(drop)
}

/// The value of a variable of the environment that it gives to what it starts.
pub fn variable(name: &str) -> Option<String> {
    let all = said(&["show-environment"]).ok()?;
    all.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix('=')?;
        // What means something to a shell is in quotes.
        let quoted = value.strip_prefix("$'").and_then(|value| value.strip_suffix('\''));
        Some(quoted.unwrap_or(value).to_string())
    })
}

fn said<S: AsRef<OsStr>>(words: &[S]) -> Result<String, String> {
    let mut command = Command::new("systemctl");
    command.arg("--user").args(words).stdin(Stdio::null());
    let shown =
        words.iter().map(|word| word.as_ref().to_string_lossy()).collect::<Vec<_>>().join(" ");
    let output = command.output().map_err(|error| format!("systemctl: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().next().unwrap_or("it does not say why");
        return Err(format!("'systemctl --user {shown}' failed: {line}"));
    }
    let most = output.stdout.len().min(MOST_BYTES);
    Ok(String::from_utf8_lossy(&output.stdout[..most]).into_owned())
}
