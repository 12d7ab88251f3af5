//! Who is in front of the user: one desktop a file. A desktop names a process; what follows from it is decided
//! elsewhere ([`crate::watch`]).

pub mod bus;
pub mod sway;
pub mod tmux;
pub mod x11;
mod x11_stream;

use std::convert::Infallible;
use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clew_live::control::trusted_path::own_uid;

use crate::latest::Latest;

/// What a desktop says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// This process has the window, or what else is in front.
    Front(u32),
    /// Nobody's window is.
    Nobody,
}

/// Why a desktop says nothing any more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Gone(pub String);

/// A desktop.
pub trait Front: Send {
    /// What it is called.
    fn name(&self) -> &'static str;

    /// Says who is in front, now and whenever that changes, for as long as the desktop is there. May be called
    /// again then.
    ///
    /// # Errors
    /// Why it is over.
    fn follow(&mut self, tell: &std::sync::Arc<Latest<Said>>) -> Result<Infallible, Gone>;
}

/// Desktops that can be asked for by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Desktop {
    /// [`sway::Sway`].
    Sway,
    /// [`x11::X11`].
    X11,
    /// [`bus::Bus`].
    Bus,
}

/// What is there, by the environment: the desktop's own socket before X, which under Wayland knows some of the
/// windows only; and D-Bus, where any other can call.
pub fn there_are(variable: impl Fn(&str) -> Option<OsString>) -> Vec<Desktop> {
    let has = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let mut desktops = Vec::new();
    if has("SWAYSOCK") {
        desktops.push(Desktop::Sway);
    } else if has("DISPLAY") && !has("WAYLAND_DISPLAY") {
        desktops.push(Desktop::X11);
    }
    if has("DBUS_SESSION_BUS_ADDRESS") || has("XDG_RUNTIME_DIR") {
        desktops.push(Desktop::Bus);
    }
    desktops
}

/// The desktop of this kind in this process's environment; `None` where that names none.
pub fn open(desktop: Desktop) -> Option<Box<dyn Front>> {
    Some(match desktop {
        Desktop::Sway => Box::new(sway::Sway::at(PathBuf::from(std::env::var_os("SWAYSOCK")?))),
        Desktop::X11 => Box::new(x11::X11),
        Desktop::Bus => Box::new(bus::Bus),
    })
}

/// A desktop's socket, if it is the user's own or root's who serves it there: anybody may where no desktop does.
fn trusted(stream: UnixStream, there: impl Display) -> Result<UnixStream, Gone> {
    let peer = rustix::net::sockopt::socket_peercred(&stream);
    let uid = peer.map_err(|error| Gone(error.to_string()))?.uid.as_raw();
    match uid == own_uid() || uid == 0 {
        true => Ok(stream),
        false => Err(Gone(format!("user {uid} serves {there}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_which_desktop_is_there() {
        let there_are =
            |names: &[&str]| there_are(|name| names.contains(&name).then(|| OsString::from("x")));
        assert_eq!(there_are(&[]), []);
        assert_eq!(there_are(&["DISPLAY"]), [Desktop::X11]);
        assert_eq!(there_are(&["DISPLAY", "WAYLAND_DISPLAY", "SWAYSOCK"]), [Desktop::Sway]);
        let other = ["DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR"];
        assert_eq!(there_are(&other), [Desktop::Bus], "its X knows nothing of most windows");
    }
}
