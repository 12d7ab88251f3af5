//! A client of the control protocol: it trusts nobody who serves, and waits for no longer than it says.

use std::io::{BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clew_core::shown::beginning_shown;
use serde::de::DeserializeOwned;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::agents::seqpacket;
use crate::control::protocol::{
    BUSY, ENDING, Environment, IDLE, MAX_ANSWER, MAX_SHORT_ANSWER, Reply, Request, read_part,
};
use crate::control::status::Status;
use crate::control::trusted_path::{self, PathError, own_uid};
use crate::programs::proc_stat;
use crate::survival::predecessor::{self, ProcessName};

/// Bytes of a socket's path with the zero at its end.
const MAX_SOCKET_PATH: usize = 108;

/// Why a control call failed.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no daemon serves {path}: {source} (start one with 'clew daemon')")]
    NoDaemon { path: PathBuf, source: std::io::Error },
    #[error(
        "the daemon that served {path} (process {pid}) is dead; if it had programs, its keeper holds \
         their pages, and they wait: 'clew daemon' with the same socket takes over"
    )]
    Dead { path: PathBuf, pid: u32 },
    #[error("the daemon at {path} does not answer: {source}")]
    NoAnswer { path: PathBuf, source: std::io::Error },
    #[error("nothing at {path} is to be relied upon: {source}")]
    Untrusted { path: PathBuf, source: PathError },
    #[error(
        "user {uid} serves {path}, not you or root: nothing was sent there (name another socket, or \
         ask as that user)"
    )]
    Foreign { path: PathBuf, uid: u32 },
    #[error("the daemon at {path} answers with more than {most} bytes")]
    Endless { path: PathBuf, most: usize },
    #[error("the daemon's answer makes no sense: {0}")]
    BadAnswer(String),
    #[error("too many clients of the daemon at {path} wait for answers: try again")]
    Busy { path: PathBuf },
    #[error("the daemon at {path} is ending: it takes no new work")]
    Ending { path: PathBuf },
    #[error("{0}")]
    Refused(String),
}

impl ControlError {
    /// Whether a daemon is ending: it says so, or the connection ended before an answer came.
    pub fn is_ended(&self) -> bool {
        use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match self {
            ControlError::Ending { .. } => true,
            ControlError::NoAnswer { source, .. } => {
                matches!(source.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
            }
            _ => false,
        }
    }
}

/// A connection to a daemon.
///
/// The keeper of a dead daemon keeps its listening socket, and what it had accepted, and answers
/// nothing: so the daemon itself is watched, where its process can be seen.
pub struct Client {
    path: PathBuf,
    reader: BufReader<UnixStream>,
    daemon: Option<ProcessName>,
    used: Instant,
}

/// How often a client that waits looks whether its daemon lives.
const LOOK: Duration = Duration::from_millis(500);

/// How long a client waits before it asks again a daemon that has too many.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// `Stop` and `SwapOut` may take a while; a daemon that is silent for longer is broken.
const PATIENCE: Duration = Duration::from_secs(120);

/// The same for what is answered at once.
const SHORT_PATIENCE: Duration = Duration::from_secs(30);

/// A connection that was not used for so long is not used any more: the daemon is about to close it.
const FRESH: Duration = IDLE.checked_div(2).expect("not by zero");

/// Characters of what a server says that are shown.
const MAX_MESSAGE: usize = 500;

impl Request {
    /// Most bytes of its answer.
    fn most_answered(&self) -> usize {
        match self {
            Request::Status | Request::HotPages { .. } => MAX_ANSWER,
            _ => MAX_SHORT_ANSWER,
        }
    }

    fn patience(&self) -> Duration {
        match self.takes_a_while() || *self == Request::Stop {
            true => PATIENCE,
            false => SHORT_PATIENCE,
        }
    }
}

impl Environment {
    /// Checks that it can be used, wherever the program goes.
    ///
    /// # Errors
    /// If no agent could connect to the socket, or the program could not be started with it.
    pub fn check(&self) -> Result<(), ControlError> {
        let path = self.agent_socket.as_os_str().as_bytes();
        if self.agent_socket.is_absolute() && path.len() < MAX_SOCKET_PATH && !path.contains(&0) {
            return Ok(());
        }
        let said = in_one_line(&self.agent_socket.to_string_lossy());
        let what =
            format!("its agents' socket must be an absolute path of at most 107 bytes: '{said}'");
        Err(ControlError::BadAnswer(what))
    }
}

/// What a server says, so short that it floods nobody and on one line, so that none is taken for Clew's.
fn in_one_line(said: &str) -> String {
    beginning_shown(said, MAX_MESSAGE)
}

impl Client {
    /// Connects to the daemon that serves `path`: this user's, or root's.
    pub fn connect(path: &Path) -> Result<Client, ControlError> {
        Client::connect_within(path, SHORT_PATIENCE)
    }

    /// The same, where it may be that nobody accepts.
    pub fn connect_within(path: &Path, patience: Duration) -> Result<Client, ControlError> {
        let fail = |source| ControlError::NoDaemon { path: path.to_path_buf(), source };
        trusted_path::check(trusted_path::directory_of(path)).map_err(|error| match error {
            PathError::File { source, .. } => fail(source),
            source => ControlError::Untrusted { path: path.to_path_buf(), source },
        })?;
        let address = SockAddr::unix(path).map_err(fail)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(fail)?;
        // What a server sends along is never looked at, and who closes it last may wait for ever.
        seqpacket::takes_descriptors(&socket, false);
        socket.set_write_timeout(Some(LOOK)).map_err(fail)?;
        socket.set_read_timeout(Some(LOOK)).map_err(fail)?;
        let began = Instant::now();
        // Where too many wait to be accepted, connecting waits too.
        while let Err(error) = socket.connect(&address) {
            if error.kind() != ErrorKind::WouldBlock {
                return Err(fail(error));
            }
            if let Some(dead) = predecessor::server(path).ok().flatten().filter(|d| !d.is_alive()) {
                return Err(ControlError::Dead { path: path.to_path_buf(), pid: dead.pid });
            }
            if began.elapsed() > patience {
                let source = ErrorKind::TimedOut.into();
                return Err(ControlError::NoAnswer { path: path.to_path_buf(), source });
            }
        }
        let stream = UnixStream::from(OwnedFd::from(socket));
        stream.set_write_timeout(Some(SHORT_PATIENCE)).map_err(fail)?;
        let peer = seqpacket::peer(&stream).map_err(fail)?;
        if peer.uid != own_uid() && peer.uid != 0 {
            return Err(ControlError::Foreign { path: path.to_path_buf(), uid: peer.uid });
        }
        let pid = peer.pid as u32;
        let daemon = match ProcessName::of(pid) {
            Ok(daemon) => Some(daemon),
            Err(error) if proc_stat::is_gone(&error) => None,
            // It is not known, as where there are no descriptors: that is not its death.
            Err(source) if pid > 0 => {
                return Err(ControlError::NoAnswer { path: path.to_path_buf(), source });
            }
            Err(_) => None,
        };
        let client = Client {
            path: path.to_path_buf(),
            reader: BufReader::new(stream),
            daemon,
            used: Instant::now(),
        };
        if pid > 0 && !daemon.is_some_and(|d| d.is_alive()) {
            return Err(ControlError::Dead { path: client.path, pid });
        }
        Ok(client)
    }

    /// Asks and waits for the answer, on a new connection if this one was idle for long; again where
    /// the daemon has too many clients.
    pub fn call<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, ControlError> {
        self.call_for(request, request.patience())
    }

    /// It waits no longer in all; for a place half as long, so that what is done late has time, too.
    fn call_for<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<T, ControlError> {
        let began = Instant::now();
        let left = || patience.saturating_sub(began.elapsed());
        loop {
            // Nothing can come unasked: it was closed.
            let is_closed = seqpacket::is_readable(self.reader.get_ref(), Duration::ZERO);
            if is_closed || self.used.elapsed() > FRESH {
                *self = Client::connect_within(&self.path, left())?;
            }
            match self.call_within(request, left()) {
                Err(ControlError::Busy { .. }) if began.elapsed() < patience / 2 => {
                    std::thread::sleep(TRY_AGAIN);
                }
                answer => return answer,
            }
        }
    }

    fn call_within<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<T, ControlError> {
        let fail = |source| ControlError::NoAnswer { path: self.path.clone(), source };
        let nonsense = |e: serde_json::Error| ControlError::BadAnswer(in_one_line(&e.to_string()));
        let mut line = serde_json::to_string(request).map_err(nonsense)?;
        line.push('\n');
        match self.reader.get_mut().write_all(line.as_bytes()) {
            // It may have said why it hung up.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(fail(error)),
            _ => {}
        }
        let (mut answer, most) = (Vec::new(), request.most_answered());
        let began = Instant::now();
        loop {
            match read_part(&mut self.reader, &mut answer, most) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Err(ControlError::Endless { path: self.path.clone(), most });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if let Some(dead) = self.daemon.filter(|d| !d.is_alive()) {
                        return Err(ControlError::Dead { path: self.path.clone(), pid: dead.pid });
                    }
                }
                Err(error) => return Err(fail(error)),
            }
            if began.elapsed() > patience {
                return Err(fail(ErrorKind::TimedOut.into()));
            }
        }
        self.used = Instant::now();
        match serde_json::from_slice::<Reply<T>>(&answer).map_err(nonsense)? {
            Reply::Ok { value } => Ok(value),
            Reply::Error { message } if message == BUSY => {
                Err(ControlError::Busy { path: self.path.clone() })
            }
            Reply::Error { message } if message == ENDING => {
                Err(ControlError::Ending { path: self.path.clone() })
            }
            Reply::Error { message } => Err(ControlError::Refused(in_one_line(&message))),
        }
    }

    /// The state of everything.
    pub fn status(&mut self) -> Result<Status, ControlError> {
        self.call(&Request::Status)
    }

    /// The same, from a daemon that may never answer.
    pub fn status_within(&mut self, patience: Duration) -> Result<Status, ControlError> {
        self.call_for(&Request::Status, patience)
    }

    /// A request whose answer carries nothing.
    pub fn order(&mut self, request: &Request) -> Result<(), ControlError> {
        self.call::<()>(request)
    }

    /// The same, from a daemon that may never answer.
    pub fn order_within(
        &mut self,
        request: &Request,
        patience: Duration,
    ) -> Result<(), ControlError> {
        self.call_for::<()>(request, patience)
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    /// A client of a server that does this with its connection.
    fn client_of(serve: impl FnOnce(UnixStream) + Send + 'static) -> Client {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        ours.set_read_timeout(Some(LOOK)).expect("a limit");
        std::thread::spawn(move || serve(theirs));
        let path = PathBuf::from("/nowhere");
        Client { path, reader: BufReader::new(ours), daemon: None, used: Instant::now() }
    }

    #[test]
    fn a_server_that_never_ends_its_answer_is_left() {
        let mut endless =
            client_of(|mut stream| while stream.write_all(&[b' '; 1 << 16]).is_ok() {});
        let answer = endless.call_within::<()>(&Request::Status, 10 * PATIENCE);
        assert!(matches!(answer, Err(ControlError::Endless { .. })), "{answer:?}");
        let mut drips = client_of(|mut stream| {
            while stream.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let answer = drips.call_within::<()>(&Request::Status, Duration::from_millis(100));
        assert!(matches!(answer, Err(ControlError::NoAnswer { .. })), "{answer:?}");
    }

    #[test]
    fn who_is_turned_away_comes_again() {
        let dir = std::env::temp_dir().join(format!("clew-busy-{}", std::process::id()));
        trusted_path::make(&dir, 0o700).expect("a directory");
        let path = dir.join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("it is bound");
        let server = std::thread::spawn(move || {
            let busy = Reply::<()>::Error { message: BUSY.to_string() };
            let busy = serde_json::to_string(&busy).expect("JSON") + "\n";
            // Before it has asked, and after.
            for asked in [false, true] {
                let (stream, _) = listener.accept().expect("it comes");
                if asked {
                    let _ = BufReader::new(&stream).read_line(&mut String::new());
                }
                let _ = (&stream).write_all(busy.as_bytes());
            }
            let (stream, _) = listener.accept().expect("it comes again");
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = (&stream).write_all(b"{\"result\":\"ok\",\"value\":null}\n");
        });
        let mut client = Client::connect(&path).expect("it is served");
        client.order(&Request::Stop).expect("in the end");
        server.join().expect("it was asked three times");
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    /// A daemon that says so only after a while has nobody wait for twice as long.
    #[test]
    fn who_is_turned_away_late_does_not_come_again() {
        let patience = Duration::from_secs(2);
        let busy = Reply::<()>::Error { message: BUSY.to_string() };
        let busy = serde_json::to_string(&busy).expect("JSON") + "\n";
        let mut client = client_of(move |mut stream| {
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            std::thread::sleep(patience * 3 / 5);
            let _ = stream.write_all(busy.as_bytes());
        });
        // Another time it would connect, and find nobody at its path.
        let answer = client.call_for::<()>(&Request::Stop, patience);
        assert!(
            matches!(&answer, Err(ControlError::Busy { .. } | ControlError::NoAnswer { .. })),
            "{answer:?}"
        );
    }

    /// Who has too many to accept keeps nobody longer than one who does not answer.
    #[test]
    fn who_is_not_accepted_waits_no_longer_than_for_an_answer() {
        let dir = std::env::temp_dir().join(format!("clew-backlog-{}", std::process::id()));
        trusted_path::make(&dir, 0o700).expect("a directory");
        let path = dir.join("s");
        let server = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        let address = SockAddr::unix(&path).expect("a short path");
        server.bind(&address).expect("it is bound");
        server.listen(0).expect("it listens");
        let first = UnixStream::connect(&path).expect("one may wait to be accepted");
        let mut client = client_of(drop);
        client.path = path;
        let (done, seen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let answer = client.call_for::<()>(&Request::Stop, Duration::from_millis(100));
            let _ = done.send(answer);
        });
        // Far less than for a first connection, so that a busy machine does not decide.
        let answer = seen.recv_timeout(PATIENCE / 2).expect("it gives up");
        assert!(matches!(answer, Err(ControlError::NoAnswer { .. })), "{answer:?}");
        drop(first);
        std::fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn what_a_server_says_is_bounded() {
        let mut client = client_of(|mut stream| {
            let message = "\u{1b}x".repeat(1 << 20);
            let answer = serde_json::to_vec(&Reply::<()>::Error { message }).expect("JSON");
            let _ = stream.write_all(&answer).and_then(|()| stream.write_all(b"\n"));
        });
        match client.call_within::<()>(&Request::Status, PATIENCE) {
            Err(ControlError::Refused(message)) => {
                assert_eq!(message.chars().count(), MAX_MESSAGE);
            }
            other => panic!("{other:?}"),
        }
        let mut client = client_of(|mut stream| {
            let _ = stream.write_all(" ".repeat(MAX_SHORT_ANSWER).as_bytes());
            let _ = stream.write_all(b"{\"result\":\"ok\",\"value\":null}\n");
        });
        let answer = client.call_within::<()>(&Request::Stop, PATIENCE);
        assert!(
            matches!(&answer, Err(ControlError::Endless { most: MAX_SHORT_ANSWER, .. })),
            "{answer:?}"
        );
        for said in ["{\"result\":\"#\"}\n", "{\"result\":\"ok\",\"value\":\"#\"}\n"] {
            let said = said.replace('#', &"B".repeat(1 << 20));
            let mut client = client_of(move |mut stream| {
                let _ = stream.write_all(said.as_bytes());
            });
            match client.call_within::<()>(&Request::Status, PATIENCE) {
                Err(ControlError::BadAnswer(what)) => {
                    assert_eq!(what.chars().count(), MAX_MESSAGE);
                }
                other => panic!("{other:?}"),
            }
        }
        let mut client = client_of(|mut stream| {
            let _ = stream
                .write_all(b"{\"result\":\"error\",\"message\":\"no\\nclew: all is well\"}\n");
        });
        let answer = client.call_within::<()>(&Request::Status, PATIENCE);
        assert!(
            matches!(&answer, Err(ControlError::Refused(m)) if m == "no\\nclew: all is well"),
            "{answer:?}"
        );
    }

    #[test]
    fn an_environment_names_a_socket() {
        let of = |at: &str| Environment { agent_socket: at.into(), agent_protocol: 1 };
        for bad in ["", "agents", "/a\0b", &format!("/{}", "x".repeat(200))] {
            assert!(of(bad).check().is_err(), "{bad}");
        }
        assert!(of("/run/clew/clew.agents").check().is_ok());
    }
}
