//! X11: `_NET_ACTIVE_WINDOW` of the root window (Extended Window Manager Hints), which window managers keep,
//! and whose that window is: as the server knows it (X-Resource extension), else as the window says
//! (`_NET_WM_PID`), which in a container is another's number.
//!
//! What answers on this machine must be the user's own or root's: anybody may listen where no X server does. Of a server that is not reached by a socket of this machine
//! nobody can tell whose it is.

use std::convert::Infallible;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;

use x11rb::connection::Connection;
use x11rb::errors::ReplyError;
use x11rb::protocol::Event;
use x11rb::protocol::res::{ClientIdMask, ClientIdSpec, ConnectionExt as _};
use x11rb::protocol::xproto::{AtomEnum, ChangeWindowAttributesAux, ConnectionExt as _, EventMask};
use x11rb::reexports::x11rb_protocol::parse_display::{ConnectAddress, parse_display};
use x11rb::reexports::x11rb_protocol::xauth::get_auth;
use x11rb::rust_connection::{DefaultStream, RustConnection};

use super::x11_stream::X11Stream;
use super::{Front, Gone, Said, trusted};
use crate::latest::Latest;

/// The X server that DISPLAY names.
pub struct X11;

struct Screen {
    x: RustConnection<X11Stream>,
    root: u32,
    active: u32,
    pid: u32,
}

impl Front for X11 {
    fn name(&self) -> &'static str {
        "x11"
    }

    fn follow(&mut self, tell: &Arc<Latest<Said>>) -> Result<Infallible, Gone> {
        let screen = Screen::open()?;
        tell.say(screen.front()?);
        loop {
            match screen.x.wait_for_event().map_err(gone)? {
                Event::PropertyNotify(event)
                    if event.window == screen.root && event.atom == screen.active =>
                {
                    tell.say(screen.front()?);
                }
                _ => {}
            }
        }
    }
}

impl Screen {
    fn open() -> Result<Screen, Gone> {
        let (x, number) = connect()?;
        let root = x.setup().roots.get(number).ok_or_else(|| gone("it has no such screen"))?.root;
        let atom = |name: &[u8]| -> Result<u32, ReplyError> {
            Ok(x.intern_atom(false, name)?.reply()?.atom)
        };
        let active = atom(b"_NET_ACTIVE_WINDOW").map_err(gone)?;
        let pid = atom(b"_NET_WM_PID").map_err(gone)?;
        let changes = ChangeWindowAttributesAux::new().event_mask(EventMask::PROPERTY_CHANGE);
        x.change_window_attributes(root, &changes).map_err(gone)?.check().map_err(gone)?;
        Ok(Screen { x, root, active, pid })
    }

    fn front(&self) -> Result<Said, Gone> {
        let Some(window) = self.number(self.root, self.active, AtomEnum::WINDOW)? else {
            return Ok(Said::Nobody);
        };
        let client = ClientIdSpec { client: window, mask: ClientIdMask::LOCAL_CLIENT_PID };
        let known = there(self.x.res_query_client_ids(&[client]).map_err(gone)?.reply())?;
        let known = known.and_then(|known| known.ids.first()?.value.first().copied());
        let pid = match known.filter(|pid| *pid > 0) {
            Some(pid) => Some(pid),
            None => self.number(window, self.pid, AtomEnum::CARDINAL)?,
        };
        Ok(pid.map_or(Said::Nobody, Said::Front))
    }

    /// The number that a property is, if it is one and not zero.
    fn number(&self, window: u32, property: u32, kind: AtomEnum) -> Result<Option<u32>, Gone> {
        let asked = self.x.get_property(false, window, property, kind, 0, 1).map_err(gone)?;
        let number = there(asked.reply())?.and_then(|reply| reply.value32()?.next());
        Ok(number.filter(|number| *number > 0))
    }
}

/// The server that DISPLAY names, and the number of its screen.
fn connect() -> Result<(RustConnection<X11Stream>, usize), Gone> {
    let display = parse_display(None).map_err(gone)?;
    let address = display.connect_instruction().next();
    let (stream, (family, of)) = match address.ok_or_else(|| gone("DISPLAY names nobody"))? {
        ConnectAddress::Socket(path) => DefaultStream::from_unix_stream(at(&path)?),
        // Nobody can tell whose such a server is, and it would be told the cookie.
        _ => return Err(gone("DISPLAY names no socket of this machine")),
    }
    .map_err(gone)?;
    let auth = get_auth(family, &of, display.display).ok().flatten();
    let (name, data) = auth.unwrap_or_default();
    let screen = usize::from(display.screen);
    let x = RustConnection::connect_to_stream_with_auth_info(
        X11Stream::new(stream),
        screen,
        name,
        data,
    );
    Ok((x.map_err(gone)?, screen))
}

/// Who serves this socket, or that of its name which is in no directory, and may.
fn at(path: &str) -> Result<UnixStream, Gone> {
    let nameless = || UnixStream::connect_addr(&SocketAddr::from_abstract_name(path)?);
    let trusted = |stream: UnixStream| trusted(stream, path);
    let found = UnixStream::connect(path).map_err(gone).and_then(trusted);
    found.or_else(|why| nameless().map_err(gone).and_then(trusted).map_err(|_| why))
}

/// An answer; none where the window is gone by now, or the server has no such extension.
fn there<T>(reply: Result<T, ReplyError>) -> Result<Option<T>, Gone> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(ReplyError::X11Error(_)) => Ok(None),
        Err(error) => Err(gone(error)),
    }
}

fn gone(why: impl std::fmt::Display) -> Gone {
    Gone(why.to_string())
}
