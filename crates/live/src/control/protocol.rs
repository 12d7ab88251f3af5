//! The control protocol: one JSON object a line over a unix socket, an answer to each request.
//!
//! The first line a peer sends decides what it is: a [`Request`] makes it a client of this
//! protocol. (Agents speak another one, on a socket of their own.)

use std::io::{self, BufRead, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

/// Most bytes of an app's name.
pub use clew_agent::protocol::MAX_NAME;
use serde::{Deserialize, Deserializer, Serialize};

/// Most bytes of a request, its end included.
pub const MAX_REQUEST: usize = 64 << 10;

/// Most bytes of an answer.
pub const MAX_ANSWER: usize = 64 << 20;

/// Most bytes of an answer to what asks for little: one that is that long is never looked at.
pub const MAX_SHORT_ANSWER: usize = 1 << 20;

/// How long the daemon waits for a whole request, and for an answer to be taken. Then it closes the
/// connection.
pub const IDLE: Duration = Duration::from_secs(10);

/// What a daemon says to whoever orders work after it was told to stop.
pub(crate) const ENDING: &str = "the daemon is ending: no new work";

/// What a daemon says to whoever it cannot serve now.
pub(crate) const BUSY: &str = "too many clients wait for answers: try again";

/// What a service says to a user who orders what concerns all of its users.
pub(crate) const NOT_YOURS: &str = "this service is for all users, and only root may end or replace it ('clew restore APP' brings back what is \
     yours)";

/// What a client asks.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Request {
    /// The state of everything.
    Status,
    /// What a program's environment needs so that its agent finds this daemon ([`Environment`]).
    Environment,
    /// A program of `app` is about to start as process `pid`; `unmanaged` says why its memory
    /// cannot be taken out, if that is known already.
    Started { app: String, pid: u32, command: String, unmanaged: Option<String> },
    /// `app` comes to the foreground: its relaunch begins. Answered as soon as it has begun.
    Fg { app: String },
    /// `app` goes to the background.
    Bg { app: String },
    /// The first complete response was given, `response_ns` after the relaunch began.
    Responded { app: String, response_ns: u64 },
    /// Take out every page of `app` that can be taken out. Answered when that is done.
    SwapOut { app: String },
    /// Bring every stored page of `app` back. Answered when that is done.
    Restore { app: String },
    /// The pages of `app` that the scheme holds for hot ([`HotPages`] for each process).
    HotPages { app: String },
    /// What the mount of process `pid` (whoever asks: a daemon goes by the connection) keeps of files: `held_bytes` of at most
    /// `wanted_bytes`, from which `hits` pages were read since it began. Answered with what it may keep ([`Share`]).
    Share { pid: u32, held_bytes: u64, wanted_bytes: u64, hits: u64 },
    /// Bring every page of every app back, let the programs go, end.
    Stop,
    /// End at once and leave everything to the keeper: a successor is about to take over. Only from who began at
    /// `started` (clock ticks since the machine did): a request that nobody has read stays with the socket, and the
    /// successor would read it.
    HandOver { started: u64 },
}

/// What the daemon answers: `Ok` with the verb's result, or a reason.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
#[serde(tag = "result", rename_all = "kebab-case", try_from = "Said<T>")]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub enum Reply<T> {
    /// It is done (or begun, where the verb says so).
    Ok { value: T },
    /// It was not done.
    Error { message: String },
}

/// [`Reply`] as it is read. An enum that its tag tells would be kept as a whole first, and a long answer
/// is many times as much then.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
struct Said<T> {
    result: Outcome,
    #[serde(default = "none", deserialize_with = "some")]
    value: Option<T>,
    message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Ok,
    Error,
}

fn none<T>() -> Option<T> {
    None
}

/// Also if it is `null`: that is a value, too.
fn some<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

impl<T> TryFrom<Said<T>> for Reply<T> {
    type Error = &'static str;

    fn try_from(said: Said<T>) -> Result<Reply<T>, &'static str> {
        match said.result {
            Outcome::Ok => Ok(Reply::Ok { value: said.value.ok_or("an answer without a value")? }),
            Outcome::Error => {
                Ok(Reply::Error { message: said.message.ok_or("an error without a message")? })
            }
        }
    }
}

/// What a managed program's environment needs.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Environment {
    /// For `CLEW_AGENT_SOCKET`.
    pub agent_socket: PathBuf,
    /// Version of the protocol that the daemon speaks with agents. What a client preloads is its own
    /// object ([`crate::agents::preload`]), which must be of the same.
    pub agent_protocol: u32,
}

/// What a mount may keep of files.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Share {
    /// So many bytes, until it is told otherwise.
    pub limit_bytes: u64,
}

impl Request {
    /// Whether a daemon that is ending refuses it at once: it begins something new. (Swap-outs, which
    /// have many steps, are refused at each.)
    pub(crate) fn makes_work(&self) -> bool {
        match self {
            Request::Environment
            | Request::Started { .. }
            | Request::Fg { .. }
            | Request::Bg { .. }
            | Request::Restore { .. } => true,
            Request::Status
            | Request::SwapOut { .. }
            | Request::Responded { .. }
            | Request::HotPages { .. }
            | Request::Share { .. }
            | Request::Stop
            | Request::HandOver { .. } => false,
        }
    }

    /// Whether it concerns the daemon itself, and so all whom it serves.
    pub(crate) fn is_the_daemons(&self) -> bool {
        matches!(self, Request::Stop | Request::HandOver { .. })
    }

    /// Whether it is answered only when work for it is done, of which any number may be ordered.
    pub(crate) fn takes_a_while(&self) -> bool {
        matches!(self, Request::SwapOut { .. } | Request::Restore { .. })
    }
}

/// Appends what has come of a line; whether that is its end.
///
/// # Errors
/// Those of reading; `UnexpectedEof` where it ends without an end of line, `InvalidData` where it has
/// more than `most` bytes.
pub(crate) fn read_part(
    reader: &mut impl BufRead,
    line: &mut Vec<u8>,
    most: usize,
) -> io::Result<bool> {
    let come = reader.fill_buf()?;
    if come.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let end = come.iter().position(|byte| *byte == b'\n');
    let part = &come[..end.map_or(come.len(), |at| at + 1)];
    if line.len() + part.len() > most {
        return Err(ErrorKind::InvalidData.into());
    }
    line.extend_from_slice(part);
    let taken = part.len();
    reader.consume(taken);
    Ok(end.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_they_come() {
        let read = |text: &str| serde_json::from_str::<Reply<u128>>(text).map_err(|_| ());
        // What is kept first has no numbers of this size.
        let value = u128::MAX;
        let ok = format!("{{\"result\":\"ok\",\"value\":{value}}}");
        assert_eq!(read(&ok), Ok(Reply::Ok { value }));
        let error = Reply::<u128>::Error { message: "no".into() };
        assert_eq!(read(&serde_json::to_string(&error).expect("JSON")), Ok(error));
        for bad in ["{}", "{\"result\":\"ok\"}", "{\"result\":\"error\"}", "{\"result\":\"\"}"] {
            assert_eq!(read(bad), Err(()), "{bad}");
        }
        let nothing = serde_json::from_str::<Reply<()>>("{\"result\":\"ok\",\"value\":null}");
        assert_eq!(nothing.ok(), Some(Reply::Ok { value: () }));
    }

    #[test]
    fn a_line_is_no_longer_than_its_reader_takes() {
        let read = |text: &[u8], most| {
            // As it comes from a socket: in parts.
            let (mut reader, mut line) = (io::BufReader::with_capacity(16, text), Vec::new());
            loop {
                match read_part(&mut reader, &mut line, most) {
                    Ok(false) => assert!(line.len() <= most, "{} of {most}", line.len()),
                    Ok(true) => return Ok(line),
                    Err(error) => return Err(error.kind()),
                }
            }
        };
        let text = [&[b'x'; 99][..], b"\nmore"].concat();
        assert_eq!(read(&text, 100).as_deref(), Ok(&text[..100]));
        assert_eq!(read(&text, 99), Err(ErrorKind::InvalidData));
        assert_eq!(read(&text[..99], 100), Err(ErrorKind::UnexpectedEof));
    }
}
