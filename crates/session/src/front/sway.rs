//! sway's IPC, which is i3's (`i3-ipc`, lengths and kinds in native byte order, JSON): whenever a window or
//! workspace gets the focus, the tree is asked for the node that has it. (i3 itself knows no processes; it keeps
//! X11's properties, see [`super::x11`].)
//!
//! What answers must be the user's own or root's, and an answer is no longer than a large tree.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Front, Gone, Said, trusted};
use crate::latest::Latest;

const MAGIC: &[u8; 6] = b"i3-ipc";
const SUBSCRIBE: u32 = 2;
const GET_TREE: u32 = 4;
/// The bit of kinds that are told unasked.
const EVENT: u32 = 1 << 31;
/// Most bytes of an answer.
const MOST_BYTES: u32 = 2 << 20;
/// How long an answer may take that was asked for, whatever is told meanwhile, and a message that has begun.
const PATIENCE: Duration = Duration::from_secs(10);

/// The desktop that serves this socket.
pub struct Sway {
    socket: PathBuf,
    patience: Duration,
}

/// What a server says, for as long as it may take.
struct Heard<'a> {
    stream: &'a UnixStream,
    /// `None`: for ever.
    until: Option<Instant>,
}

/// What is read of a node of the tree.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    focused: bool,
    pid: Option<i64>,
    nodes: Vec<Node>,
    floating_nodes: Vec<Node>,
}

/// Of why an answer makes no sense so many letters are told.
const MOST_SAID: usize = 200;

impl Sway {
    /// That of this socket.
    pub fn at(socket: PathBuf) -> Sway {
        Sway { socket, patience: PATIENCE }
    }

    fn connect(&self) -> Result<UnixStream, Gone> {
        let stream = UnixStream::connect(&self.socket)
            .map_err(|error| Gone(format!("{}: {error}", self.socket.display())))?;
        let stream = trusted(stream, self.socket.display())?;
        stream.set_write_timeout(Some(self.patience)).map_err(gone)?;
        Ok(stream)
    }

    /// The answer of this kind; what is told meanwhile is left out: the answer is of after it.
    fn answer_to(&self, stream: &UnixStream, kind: u32) -> Result<Vec<u8>, Gone> {
        let until = Instant::now() + self.patience;
        loop {
            match self.next(stream, Some(until))? {
                (told, _) if told & EVENT != 0 => {}
                (answered, payload) if answered == kind => return Ok(payload),
                (other, _) => {
                    return Err(Gone(format!("it answers with a message of kind {other}")));
                }
            }
        }
    }

    /// The next message: its kind, and what it holds. One that nobody waits for until then may begin at any time.
    fn next(&self, stream: &UnixStream, until: Option<Instant>) -> Result<(u32, Vec<u8>), Gone> {
        let mut heard = Heard { stream, until };
        let mut head = [0; 14];
        heard.read_exact(&mut head).map_err(gone)?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (len, kind) = (word(6), word(10));
        if head[..6] != *MAGIC || len > MOST_BYTES {
            return Err(gone("what it says is no message of i3's protocol, or a very long one"));
        }
        heard.until.get_or_insert_with(|| Instant::now() + self.patience);
        let mut payload = vec![0; len as usize];
        heard.read_exact(&mut payload).map_err(gone)?;
        Ok((kind, payload))
    }
}

impl Read for Heard<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)?;
        self.stream.read(buf)
    }
}

impl Front for Sway {
    fn name(&self) -> &'static str {
        "sway"
    }

    fn follow(&mut self, tell: &Arc<Latest<Said>>) -> Result<Infallible, Gone> {
        let mut stream = self.connect()?;
        ask(&mut stream, SUBSCRIBE, br#"["window","workspace"]"#)?;
        let answer: serde_json::Value = read(&self.answer_to(&stream, SUBSCRIBE)?)?;
        if answer.get("success") != Some(&serde_json::Value::Bool(true)) {
            return Err(gone("it tells nobody of windows"));
        }
        loop {
            ask(&mut stream, GET_TREE, b"")?;
            let tree: Node = read(&self.answer_to(&stream, GET_TREE)?)?;
            tell.say(focused(&tree).unwrap_or(Said::Nobody));
            // Of whatever it tells: the tree says what follows.
            self.next(&stream, None)?;
        }
    }
}

/// Who has the focus; `None` if it is in another part of the tree.
fn focused(node: &Node) -> Option<Said> {
    if node.focused {
        let pid = node.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0);
        return Some(pid.map_or(Said::Nobody, Said::Front));
    }
    node.nodes.iter().chain(&node.floating_nodes).find_map(focused)
}

fn ask(stream: &mut UnixStream, kind: u32, payload: &[u8]) -> Result<(), Gone> {
    let len = payload.len() as u32;
    let message = [MAGIC, &len.to_ne_bytes()[..], &kind.to_ne_bytes(), payload].concat();
    stream.write_all(&message).map_err(gone)
}

fn read<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, Gone> {
    serde_json::from_slice(text).map_err(|error| {
        // It has what it did not expect in it, however long that is.
        let why: String = error.to_string().chars().take(MOST_SAID).collect();
        Gone(format!("its answer makes no sense: {why}"))
    })
}

fn gone(why: impl std::fmt::Display) -> Gone {
    Gone(why.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn message(kind: u32, payload: &str) -> Vec<u8> {
        let len = payload.len() as u32;
        [MAGIC, &len.to_ne_bytes()[..], &kind.to_ne_bytes(), payload.as_bytes()].concat()
    }

    /// A tree as sway's, with the focus at this process.
    fn tree(pid: u32) -> String {
        let node = |focused: bool, pid: u32| {
            format!(
                r#"{{"id":7,"type":"con","name":"\u00e9\n","focused":{focused},"pid":{pid},"nodes":[],"floating_nodes":[]}}"#
            )
        };
        let (a, b) = (node(pid == 4711, 4711), node(pid == 815, 815));
        let workspace = format!(
            r#"{{"type":"workspace","focused":{},"nodes":[{a}],"floating_nodes":[{b}]}}"#,
            pid == 0
        );
        format!(
            r#"{{"type":"root","focused":false,"pid":null,"nodes":[{{"nodes":[{workspace}]}}]}}"#
        )
    }

    /// A server of one client, which does this with it.
    fn served(
        serve: impl FnOnce(&mut UnixStream) + Send + 'static,
    ) -> (tempfile::TempDir, Arc<Latest<Said>>, Receiver<String>) {
        served_to(PATIENCE, serve)
    }

    /// As [`served`], and the client waits so long.
    fn served_to(
        patience: Duration,
        serve: impl FnOnce(&mut UnixStream) + Send + 'static,
    ) -> (tempfile::TempDir, Arc<Latest<Said>>, Receiver<String>) {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("s")).expect("it is bound");
        std::thread::spawn(move || serve(&mut listener.accept().expect("it comes").0));
        let (tell, (ended, end)) = (Arc::new(Latest::default()), channel());
        let (told, socket) = (tell.clone(), dir.path().join("s"));
        std::thread::spawn(move || {
            let Err(Gone(why)) = (Sway { socket, patience }).follow(&told);
            let _ = ended.send(why);
        });
        (dir, tell, end)
    }

    /// Hears a message of this kind.
    fn hear(stream: &mut UnixStream, kind: u32) -> String {
        let (heard, payload) = Sway::at(PathBuf::new()).next(stream, None).expect("a message");
        assert_eq!(heard, kind);
        String::from_utf8(payload).expect("UTF-8")
    }

    #[test]
    fn whoever_has_the_focus_is_told_by_the_tree() {
        let (go, wait) = channel();
        let (_dir, tell, end) = served(move |stream| {
            assert_eq!(hear(stream, SUBSCRIBE), r#"["window","workspace"]"#);
            stream.write_all(&message(SUBSCRIBE, r#"{"success": true}"#)).expect("sent");
            for pid in [4711, 815, 0] {
                hear(stream, GET_TREE);
                // What is told between question and answer is no answer.
                stream.write_all(&message(EVENT | 3, r#"{"change":"title"}"#)).expect("sent");
                stream.write_all(&message(GET_TREE, &tree(pid))).expect("sent");
                let () = wait.recv().expect("the test goes on");
                stream.write_all(&message(EVENT | 3, r#"{"change":"focus"}"#)).expect("sent");
            }
        });
        for said in [Said::Front(4711), Said::Front(815), Said::Nobody] {
            assert_eq!(tell.take(LONG), Some(said));
            go.send(()).expect("the server waits");
        }
        let why = end.recv_timeout(LONG).expect("the server has gone");
        assert!(!why.is_empty());
    }

    #[test]
    fn an_answer_is_no_longer_than_a_large_tree_and_no_nonsense_is_believed() {
        let long = [MAGIC, &u32::MAX.to_ne_bytes()[..], &SUBSCRIBE.to_ne_bytes()].concat();
        let deep = "[".repeat(1 << 20);
        for (answers, says) in [
            (vec![long], "very long"),
            (vec![b"HTTP/1.1 400 Bad".to_vec()], "no message"),
            (vec![message(SUBSCRIBE, r#"{"success": false}"#)], "tells nobody"),
            (vec![message(GET_TREE, "{}")], "kind 4"),
            (
                vec![message(SUBSCRIBE, r#"{"success": true}"#), message(GET_TREE, &deep)],
                "no sense",
            ),
            (
                vec![
                    message(SUBSCRIBE, r#"{"success": true}"#),
                    message(GET_TREE, "{\"nodes\":3}"),
                ],
                "no sense",
            ),
        ] {
            let (_dir, tell, end) = served(move |stream| {
                answers.iter().for_each(|answer| drop(stream.write_all(answer)));
                // Whoever reads on waits.
                let _ = std::io::copy(stream, &mut std::io::sink());
            });
            let why = end.recv_timeout(LONG).expect("it is over");
            assert!(why.contains(says), "{says}: {why}");
            assert_eq!(tell.take(Duration::ZERO), None, "{says}");
        }
    }

    #[test]
    fn an_answer_is_not_waited_for_without_end() {
        let told = message(EVENT | 3, r#"{"change":"title"}"#);
        let long = [MAGIC, &MOST_BYTES.to_ne_bytes()[..], &GET_TREE.to_ne_bytes()].concat();
        // What is told again and again is no answer, nor is one that drips.
        for (begins, goes_on) in [(Vec::new(), told), (long, b" ".to_vec())] {
            let (_dir, tell, end) = served_to(Duration::from_millis(500), move |stream| {
                let _ = stream.write_all(&message(SUBSCRIBE, r#"{"success": true}"#));
                let _ = stream.write_all(&begins);
                while stream.write_all(&goes_on).is_ok() {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
            let why = end.recv_timeout(LONG).expect("it is over");
            assert!(!why.is_empty());
            assert_eq!(tell.take(Duration::ZERO), None);
        }
    }
}
