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

use x11rb::errors::{ConnectionError, ReplyError};
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
        let (x, number) = connect()?;
        Screen::of(x, number)?.follow(tell)
    }
}

impl Screen {
    fn follow(&self, tell: &Latest<Said>) -> Result<Infallible, Gone> {
        tell.say(self.front()?);
        loop {
            if self.is_changed()? {
                tell.say(self.front()?);
            }
        }
    }

    /// Waits for events and takes all that are there: any client of the display can change what is looked at as often
    /// as it likes, and what comes while something is asked for is kept.
    fn is_changed(&self) -> Result<bool, Gone> {
        let mut event = Some(self.x.wait_for_event().map_err(gone)?);
        let mut is_changed = false;
        while let Some(told) = event {
            is_changed |= matches!(told, Event::PropertyNotify(told)
                if told.window == self.root && told.atom == self.active);
            event = self.x.poll_for_event().map_err(gone)?;
        }
        self.x.stream().all_are_taken();
        Ok(is_changed)
    }

    fn of(x: RustConnection<X11Stream>, number: usize) -> Result<Screen, Gone> {
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
        let known = match self.x.res_query_client_ids(&[client]) {
            Ok(asked) => there(asked.reply())?,
            // Not every server has the extension.
            Err(ConnectionError::UnsupportedExtension) => None,
            Err(error) => return Err(gone(error)),
        };
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;
    use std::time::Duration;

    use x11rb::protocol::xproto::{self, GET_PROPERTY_REQUEST, INTERN_ATOM_REQUEST, Setup};
    use x11rb::x11_utils::Serialize;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);
    const ROOT: u32 = 77;
    const ATOM: u32 = 300;

    /// As an X server that knows nobody in front.
    struct Server {
        stream: UnixStream,
        asked: u16,
    }

    impl Server {
        /// It has let a client in.
        fn of(mut stream: UnixStream) -> Server {
            stream.read_exact(&mut [0; 12]).expect("a client, without a cookie");
            let screen = xproto::Screen { root: ROOT, ..xproto::Screen::default() };
            let (status, protocol_major_version) = (1, 11);
            let roots = vec![screen];
            let resource_id_mask = 0xffff;
            let setup = Setup {
                status,
                protocol_major_version,
                resource_id_mask,
                roots,
                ..Setup::default()
            };
            let mut setup = setup.serialize();
            let words = (setup.len() as u16 - 8) / 4;
            setup[6..8].copy_from_slice(&words.to_ne_bytes());
            stream.write_all(&setup).expect("sent");
            Server { stream, asked: 0 }
        }

        /// Answers until it is asked for this; false if nobody asks any more.
        fn serve_until(&mut self, kind: u8) -> bool {
            loop {
                let mut head = [0; 4];
                if self.stream.read_exact(&mut head).is_err() {
                    return false;
                }
                let words = u16::from_ne_bytes([head[2], head[3]]);
                let mut rest = vec![0; usize::from(words) * 4 - head.len()];
                self.stream.read_exact(&mut rest).expect("the rest of it");
                self.asked += 1;
                if head[0] == kind {
                    return true;
                }
                if head[0] != xproto::CHANGE_WINDOW_ATTRIBUTES_REQUEST {
                    self.answer(if head[0] == INTERN_ATOM_REQUEST { ATOM } else { 0 });
                }
            }
        }

        fn answer(&mut self, word: u32) {
            let mut answer = [0; 32];
            answer[0] = 1;
            answer[2..4].copy_from_slice(&self.asked.to_ne_bytes());
            answer[8..12].copy_from_slice(&word.to_ne_bytes());
            let _ = self.stream.write_all(&answer);
        }

        /// So often the window that is in front changes; false if nobody hears it.
        fn change(&mut self, times: usize) -> bool {
            let mut event = [0; 32];
            event[0] = xproto::PROPERTY_NOTIFY_EVENT;
            event[2..4].copy_from_slice(&self.asked.to_ne_bytes());
            event[4..8].copy_from_slice(&ROOT.to_ne_bytes());
            event[8..12].copy_from_slice(&ATOM.to_ne_bytes());
            self.stream.write_all(&event.repeat(times)).is_ok()
        }
    }

    /// A client of such a server, and why it has ended.
    fn served(
        serve: impl FnOnce(Server) + Send + 'static,
    ) -> (Arc<Latest<Said>>, Receiver<String>) {
        let (ours, theirs) = UnixStream::pair().expect("a link");
        thread::spawn(move || serve(Server::of(theirs)));
        let (tell, (ended, end)) = (Arc::new(Latest::default()), channel());
        let told = tell.clone();
        thread::spawn(move || {
            let (stream, _) = DefaultStream::from_unix_stream(ours).expect("a link");
            let stream = X11Stream::new(stream);
            let none = Vec::new;
            let x = RustConnection::connect_to_stream_with_auth_info(stream, 0, none(), none());
            let screen = Screen::of(x.expect("it lets us in"), 0).expect("it answers");
            let Err(Gone(why)) = screen.follow(&told);
            let _ = ended.send(why);
        });
        (tell, end)
    }

    #[test]
    fn of_many_changes_at_once_one_is_asked_for() {
        let (asked, times) = channel();
        let (tell, _end) = served(move |mut server| {
            assert!(server.serve_until(GET_PROPERTY_REQUEST));
            server.change(1000);
            server.answer(0);
            // Whoever does not ask for so long asks no more.
            let soon = Some(Duration::from_secs(2));
            let mut count = 0;
            while server.serve_until(GET_PROPERTY_REQUEST) {
                count += 1;
                server.answer(0);
                server.stream.set_read_timeout(soon).expect("it is a link");
            }
            let _ = asked.send(count);
        });
        assert_eq!(tell.take(LONG), Some(Said::Nobody));
        let times = times.recv_timeout(LONG).expect("it asks no more");
        assert!((1..100).contains(&times), "asked {times} times of 1000 changes");
    }

    #[test]
    fn changes_that_come_instead_of_an_answer_end_the_link() {
        let (_tell, end) = served(|mut server| {
            server.serve_until(GET_PROPERTY_REQUEST);
            // 64 MiB.
            for _ in 0..2048 {
                if !server.change(1024) {
                    return;
                }
            }
            thread::sleep(2 * LONG);
        });
        let why = end.recv_timeout(LONG).expect("it is over");
        assert!(why.contains("more than anybody takes"), "{why}");
    }
}
