//! D-Bus, for desktops of which Clew knows nothing: whoever decides what is in front calls
//! `org.clew.Session1.Front(u pid)` at `/org/clew/Session1` of `org.clew.Session1`, on the session's bus.
//! Only the user's own processes are heeded, as callers and as what is in front.
//!
//! Who a caller is, the bus says: it must be the user's own or root's, at a socket of this machine, and let us in soon.
//! Calls are served one at a time, without `zbus`'s object server, which begins a task for each: however many come,
//! what is here of them has an end, and the others wait at the bus. The bus is asked over a link of its own, as its
//! answer would come behind all calls that wait.

use std::collections::HashMap;
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
use zbus::blocking::fdo::DBusProxy;
use zbus::blocking::{Connection, MessageIterator};
use zbus::fdo;
use zbus::message::{Flags, Message, Type};
use zbus::names::{BusName, WellKnownName};

use super::{Front, Gone, Said, trusted};
use crate::latest::Latest;

/// Name and interface.
pub const NAME: &str = "org.clew.Session1";
/// Where the object is.
pub const PATH: &str = "/org/clew/Session1";

/// How long the bus may take until we are called by our name there, and with an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Messages that wait here: each can be large.
const QUEUED: usize = 8;
/// Callers that are remembered.
const CALLERS: usize = 64;

/// What can be called, for those who ask before they call.
const INTERFACES: &str = r#"<!DOCTYPE node PUBLIC "-//freedesktop//DTD D-BUS Object Introspection 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd">
<node>
  <interface name="org.clew.Session1">
    <method name="Front"><arg name="pid" type="u" direction="in"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Introspectable">
    <method name="Introspect"><arg name="xml" type="s" direction="out"/></method>
  </interface>
  <interface name="org.freedesktop.DBus.Peer">
    <method name="Ping"/>
  </interface>
</node>
"#;

/// The bus of this session.
pub struct Bus;

impl Front for Bus {
    fn name(&self) -> &'static str {
        "dbus"
    }

    fn follow(&mut self, tell: &Arc<Latest<Said>>) -> Result<Infallible, Gone> {
        serve(&Address::session().map_err(gone)?, tell)
    }
}

/// Serves calls on this bus until it ends.
fn serve(address: &Address, tell: &Latest<Said>) -> Result<Infallible, Gone> {
    let (_, asks) = let_in(connect(address)?, PATIENCE, DBusProxy::new)?;
    let (bus, calls) = let_in(connect(address)?, PATIENCE, |bus| {
        // From now on nothing is missed.
        let calls = MessageIterator::from(bus);
        let name = WellKnownName::from_static_str(NAME)?;
        DBusProxy::new(bus)?.request_name(name, Default::default())?;
        Ok(calls)
    })?;
    let mut desk = Desk { bus, asks, callers: HashMap::new(), tell };
    for message in calls {
        let message = message.map_err(gone)?;
        if message.message_type() == Type::MethodCall {
            desk.serve(&message)?;
        }
    }
    Err(Gone("the bus has ended".to_string()))
}

/// Where calls are served.
struct Desk<'a> {
    bus: Connection,
    /// Who calls.
    asks: DBusProxy<'static>,
    /// Users by unique name, which is nobody else's as long as the bus is there.
    callers: HashMap<String, u32>,
    tell: &'a Latest<Said>,
}

impl Desk<'_> {
    fn serve(&mut self, call: &Message) -> Result<(), Gone> {
        let answer = self.answer(call);
        // Without the bus's word on callers nobody can be served.
        if let Err(fdo::Error::ZBus(error)) = answer {
            return Err(gone(error));
        }
        let header = call.header();
        if header.primary().flags().contains(Flags::NoReplyExpected) {
            return Ok(());
        }
        let sent = match answer {
            Ok(Some(text)) => self.bus.reply(&header, &text),
            Ok(None) => self.bus.reply(&header, &()),
            Err(error) => self.bus.reply_dbus_error(&header, error),
        };
        sent.map_err(gone)
    }

    fn answer(&mut self, call: &Message) -> fdo::Result<Option<&'static str>> {
        let header = call.header();
        if header.path().is_none_or(|path| path.as_str() != PATH) {
            return Err(fdo::Error::UnknownObject(format!("only {PATH} is here")));
        }
        let interface = header.interface().map_or(NAME, |interface| interface.as_str());
        match (interface, header.member().map_or("", |member| member.as_str())) {
            (NAME, "Front") => self.front(call).map(|()| None),
            ("org.freedesktop.DBus.Introspectable", "Introspect") => Ok(Some(INTERFACES)),
            ("org.freedesktop.DBus.Peer", "Ping") => Ok(None),
            (interface, member) => {
                Err(fdo::Error::UnknownMethod(format!("{interface} has no {member} here")))
            }
        }
    }

    /// The app of a process is in front from now on.
    fn front(&mut self, call: &Message) -> fdo::Result<()> {
        if self.user_of_caller(call)? != own_uid() {
            return Err(fdo::Error::AccessDenied("this is another user's session".to_string()));
        }
        let pid: u32 = call.body().deserialize().map_err(|error: zbus::Error| {
            fdo::Error::InvalidArgs(format!("a process's number is wanted: {error}"))
        })?;
        if user_of(pid) != Some(own_uid()) {
            return Err(fdo::Error::InvalidArgs(format!("process {pid} is not this user's")));
        }
        self.tell.say(Said::Front(pid));
        Ok(())
    }

    fn user_of_caller(&mut self, call: &Message) -> fdo::Result<u32> {
        let header = call.header();
        let Some(caller) = header.sender() else {
            return Err(fdo::Error::AccessDenied("nobody knows who you are".to_string()));
        };
        if let Some(user) = self.callers.get(caller.as_str()) {
            return Ok(*user);
        }
        let user = self.asks.get_connection_unix_user(BusName::Unique(caller.to_owned()))?;
        if self.callers.len() >= CALLERS {
            self.callers.clear();
        }
        self.callers.insert(caller.to_string(), user);
        Ok(user)
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

/// The bus at the other end, and what is done `first` there; one that has not done that by then never does.
fn let_in<T>(
    stream: UnixStream,
    patience: Duration,
    first: impl FnOnce(&Connection) -> zbus::Result<T>,
) -> Result<(Connection, T), Gone> {
    let _inside = hang_up_after(stream.try_clone().map_err(gone)?, patience)?;
    let builder = Builder::async_io_unix_stream(stream).max_queued(QUEUED);
    let bus = builder.method_timeout(patience).build().map_err(gone)?;
    let done = first(&bus).map_err(gone)?;
    Ok((bus, done))
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
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::Receiver;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_bus_that_lets_nobody_in_is_given_up() {
        let said: [&[u8]; 2] = [b"", b"REJECTED"];
        for said in said {
            let (ours, mut theirs) = UnixStream::pair().expect("a link");
            let (ended, end) = channel();
            thread::spawn(move || {
                let let_in = let_in(ours, Duration::from_millis(300), |_| Ok(()));
                let _ = ended.send(let_in.map(drop));
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

    /// A message of the bus, or one that it hands on.
    fn message(kind: u8, serial: u32, fields: &[(u8, &str, &[u8])], body: &[u8]) -> Vec<u8> {
        let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(8), 0);
        let mut header = Vec::new();
        for (code, kind, value) in fields {
            pad(&mut header);
            header.extend([*code, 1, kind.as_bytes()[0], 0]);
            match *kind {
                "u" => header.extend(*value),
                "g" => header.extend([&[value.len() as u8], *value, &[0]].concat()),
                _ => {
                    let len = value.len() as u32;
                    header.extend([&len.to_le_bytes(), *value, &[0]].concat());
                }
            }
        }
        let (len, of_header) = (body.len() as u32, header.len() as u32);
        let mut message = vec![b'l', kind, 1, 1];
        [len, serial, of_header].iter().for_each(|word| message.extend(word.to_le_bytes()));
        message.extend(header);
        pad(&mut message);
        message.extend(body);
        message
    }

    /// An answer of the bus.
    fn answer(to: u32, signature: &str, body: &[u8]) -> Vec<u8> {
        let to = to.to_le_bytes();
        let fields: [(u8, &str, &[u8]); 3] =
            [(5, "u", &to), (7, "s", b"org.freedesktop.DBus"), (8, "g", signature.as_bytes())];
        message(2, u32::MAX, &fields, body)
    }

    fn call(caller: &str, serial: u32) -> Vec<u8> {
        let fields: [(u8, &str, &[u8]); 6] = [
            (1, "o", PATH.as_bytes()),
            (2, "s", NAME.as_bytes()),
            (3, "s", b"Front"),
            (6, "s", NAME.as_bytes()),
            (7, "s", caller.as_bytes()),
            (8, "g", b"u"),
        ];
        let mut call = message(1, serial, &fields, &std::process::id().to_le_bytes());
        // An answer is wanted.
        call[2] = 0;
        call
    }

    /// What is said to a bus, and where an answer goes.
    struct Heard {
        to: UnixStream,
        serial: u32,
        text: String,
    }

    /// As a bus that lets in whoever comes and does nothing else by itself.
    fn bus_at(path: &std::path::Path) -> Receiver<Heard> {
        let listener = UnixListener::bind(path).expect("it is bound");
        let (tell, heard) = channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, tell) = (stream.expect("a client"), tell.clone());
                thread::spawn(move || hear(&stream, &tell));
            }
        });
        heard
    }

    fn hear(stream: &UnixStream, tell: &Sender<Heard>) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream);
        let mut to = stream.try_clone()?;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_start_matches('\0') {
                line if line.starts_with("AUTH") => {
                    to.write_all(b"OK 0123456789abcdef0123456789abcdef\r\n")?;
                }
                line if line.starts_with("NEGOTIATE") => to.write_all(b"AGREE_UNIX_FD\r\n")?,
                line if line.starts_with("BEGIN") => break,
                _ => to.write_all(b"ERROR\r\n")?,
            }
        }
        loop {
            let mut head = [0; 16];
            reader.read_exact(&mut head)?;
            let word = |at: usize| {
                u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let len = word(12).next_multiple_of(8) + word(4);
            let mut rest = vec![0; len as usize];
            reader.read_exact(&mut rest)?;
            let (to, text) = (to.try_clone()?, String::from_utf8_lossy(&rest).into_owned());
            if tell.send(Heard { to, serial: word(8), text }).is_err() {
                return Ok(());
            }
        }
    }

    /// The next thing that is said to a bus and is more than what every client says; who calls by name is called by
    /// `calls`.
    fn next(heard: &Receiver<Heard>, patience: Duration, calls: &[Vec<u8>]) -> Option<Heard> {
        loop {
            let mut heard = heard.recv_timeout(patience).ok()?;
            let word = if heard.text.contains("Hello") {
                answer(heard.serial, "s", b"\x04\0\0\0:1.7\0")
            } else if heard.text.contains("RequestName") {
                answer(heard.serial, "u", &1u32.to_le_bytes())
            } else if heard.text.contains("Match") {
                answer(heard.serial, "", b"")
            } else {
                return Some(heard);
            };
            heard.to.write_all(&word).expect("sent");
            if heard.text.contains("RequestName") {
                let (mut to, calls) = (heard.to, calls.concat());
                // Who does not read on has them wait.
                thread::spawn(move || to.write_all(&calls));
            }
        }
    }

    #[test]
    fn many_calls_are_one_at_a_time() {
        const CALLS: u32 = 5000;
        let dir = tempfile::tempdir().expect("a directory");
        let heard = bus_at(&dir.path().join("bus"));
        let address = format!("unix:path={}/bus", dir.path().display());
        let tell = Arc::new(Latest::default());
        let told = tell.clone();
        thread::spawn(move || serve(&address.parse().expect("an address"), &told));
        let mut calls: Vec<Vec<u8>> = (1..=CALLS).map(|serial| call(":1.8", serial)).collect();
        calls.push(call(":1.9", CALLS + 1));
        let long = Duration::from_secs(60);
        let next = |patience| next(&heard, patience, &calls);
        let mut first = next(long).expect("it asks who calls");
        assert!(first.text.contains("GetConnectionUnixUser"), "{:?}", first.text);
        let more = next(Duration::from_secs(2)).map(|heard| heard.text);
        assert_eq!(more, None, "it goes on before that is known");
        let own = answer(first.serial, "u", &own_uid().to_le_bytes());
        first.to.write_all(&own).expect("sent");
        // All are answered, and nothing more is asked about the same.
        for _ in 0..CALLS {
            let answer = next(long).expect("an answer").text;
            assert!(answer.contains(":1.8") && !answer.contains("Error"), "{answer:?}");
        }
        assert_eq!(tell.take(long), Some(Said::Front(std::process::id())));
        let mut last = next(long).expect("it asks who the last one is");
        assert!(last.text.contains("GetConnectionUnixUser"), "{:?}", last.text);
        let other = answer(last.serial, "u", &(own_uid() + 1).to_le_bytes());
        last.to.write_all(&other).expect("sent");
        let denied = next(long).expect("an answer").text;
        assert!(denied.contains(":1.9") && denied.contains("AccessDenied"), "{denied:?}");
        assert_eq!(tell.take(Duration::ZERO), None);
    }
}
