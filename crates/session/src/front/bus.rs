//! D-Bus, for desktops of which Clew knows nothing: whoever decides what is in front calls
//! `org.clew.Session1.Front(u pid)` at `/org/clew/Session1` of `org.clew.Session1`, on the session's bus.
//! Only the user's own processes are heeded, as callers and as what is in front.
//!
//! Who a caller is, the bus says: it must be the user's own or root's, at a socket of this machine, and let us in soon.

use std::convert::Infallible;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use clew_live::control::trusted_path::own_uid;
use clew_live::programs::proc_stat::user_of;
use zbus::Address;
use zbus::address::Transport;
use zbus::address::transport::UnixSocket;
use zbus::blocking::connection::Builder;
use zbus::blocking::{Connection, MessageIterator};
use zbus::fdo::{self, DBusProxy};
use zbus::message::Header;
use zbus::names::BusName;

use super::{Front, Gone, Said, trusted};
use crate::latest::Latest;

/// Name and interface.
pub const NAME: &str = "org.clew.Session1";
/// Where the object is.
pub const PATH: &str = "/org/clew/Session1";

/// How long the bus may take until we are called by our name there.
const PATIENCE: Duration = Duration::from_secs(10);

/// The bus of this session.
pub struct Bus;

struct Session {
    tell: Arc<Latest<Said>>,
}

#[zbus::interface(name = "org.clew.Session1")]
impl Session {
    /// The app of this process is in front from now on.
    async fn front(
        &self,
        pid: u32,
        #[zbus(header)] header: Header<'_>,
        #[zbus(connection)] connection: &zbus::Connection,
    ) -> fdo::Result<()> {
        let denied = |why: &str| fdo::Error::AccessDenied(why.to_string());
        let caller = header.sender().ok_or_else(|| denied("nobody knows who you are"))?;
        let bus = DBusProxy::new(connection).await?;
        let uid = bus.get_connection_unix_user(BusName::Unique(caller.to_owned())).await?;
        if uid != own_uid() {
            return Err(denied("this is another user's session"));
        }
        if user_of(pid) != Some(own_uid()) {
            return Err(fdo::Error::InvalidArgs(format!("process {pid} is not this user's")));
        }
        self.tell.say(Said::Front(pid));
        Ok(())
    }
}

impl Front for Bus {
    fn name(&self) -> &'static str {
        "dbus"
    }

    fn follow(&mut self, tell: &Arc<Latest<Said>>) -> Result<Infallible, Gone> {
        let stream = connect(&Address::session().map_err(gone)?)?;
        let bus = let_in(stream, PATIENCE, tell)?;
        // Until the bus ends.
        for message in MessageIterator::from(&bus) {
            message.map_err(gone)?;
        }
        Err(Gone("the bus has ended".to_string()))
    }
}

/// Who serves this address, and may.
fn connect(address: &Address) -> Result<UnixStream, Gone> {
    let Transport::Unix(socket) = address.transport() else {
        return Err(Gone(format!("{address} is no socket of this machine")));
    };
    let stream = match socket.path() {
        UnixSocket::File(path) => UnixStream::connect(path),
        UnixSocket::Abstract(name) => SocketAddr::from_abstract_name(name.as_encoded_bytes())
            .and_then(|name| UnixStream::connect_addr(&name)),
        _ => return Err(Gone(format!("{address} is where a bus would be made"))),
    };
    trusted(stream.map_err(gone)?, address)
}

/// The bus at the other end, where we have our name; one that has not let us in by then never does.
fn let_in(
    stream: UnixStream,
    patience: Duration,
    tell: &Arc<Latest<Said>>,
) -> Result<Connection, Gone> {
    let _inside = hang_up_after(stream.try_clone().map_err(gone)?, patience)?;
    let session = Session { tell: tell.clone() };
    let builder = Builder::async_io_unix_stream(stream).serve_at(PATH, session).map_err(gone)?;
    builder.name(NAME).and_then(Builder::build).map_err(gone)
}

/// Ends a link after so long, unless what it gives is dropped before.
fn hang_up_after(stream: UnixStream, patience: Duration) -> Result<Sender<Infallible>, Gone> {
    let (inside, waits) = channel();
    let named = thread::Builder::new().name("clew-bus".to_string());
    let hangs_up = move || {
        if waits.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    };
    named.spawn(hangs_up).map_err(gone)?;
    Ok(inside)
}

fn gone(why: impl std::fmt::Display) -> Gone {
    Gone(why.to_string())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_bus_that_lets_nobody_in_is_given_up() {
        let said: [&[u8]; 2] = [b"", b"REJECTED"];
        for said in said {
            let (ours, mut theirs) = UnixStream::pair().expect("a link");
            let (ended, end) = channel();
            thread::spawn(move || {
                let tell = Arc::new(Latest::default());
                let _ = ended.send(let_in(ours, Duration::from_millis(300), &tell).map(drop));
            });
            let until = Instant::now() + Duration::from_secs(60);
            let let_in = loop {
                if let Ok(let_in) = end.recv_timeout(Duration::from_millis(1)) {
                    break let_in;
                }
                assert!(Instant::now() < until, "it waits on");
                // A line without an end.
                let _ = theirs.write_all(said);
            };
            assert!(let_in.is_err());
        }
    }

    #[test]
    fn a_bus_is_a_socket_of_this_machine() {
        let dir = tempfile::tempdir().expect("a directory");
        let _listener = UnixListener::bind(dir.path().join("bus")).expect("it is bound");
        let at = |text: String| connect(&text.parse().expect("an address"));
        at(format!("unix:path={}/bus", dir.path().display())).expect("it is there, and our own");
        for (address, why) in [
            (format!("unix:path={}/none", dir.path().display()), "No such file"),
            (format!("unix:dir={}", dir.path().display()), "would be made"),
            ("tcp:host=127.0.0.1,port=7".to_string(), "no socket of this machine"),
        ] {
            let Gone(said) = at(address).expect_err(why);
            assert!(said.contains(why), "{said}");
        }
    }
}
