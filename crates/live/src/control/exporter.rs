//! Serves the metrics over HTTP: one path, a few connections ([`crate::control::places`]), little patience.
//!
//! Its threads share nothing with those that answer faults: they ask the governor as any client
//! does, and wait for it no longer than a scraper would.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::control::metrics;
use crate::control::places::{Places, State};
use crate::message::Message;

/// Scrapers served at one time. Further ones get the place of whoever has not asked, or does not read;
/// so many that none of them is a scraper who has just come.
pub const MAX_SCRAPERS: usize = 32;
/// How long a scraper may take to ask.
const TO_ASK: Duration = Duration::from_secs(2);
/// How long it may take to read the answer.
const TO_READ: Duration = Duration::from_secs(5);
/// How long the governor may take to look.
const TO_LOOK: Duration = Duration::from_secs(3);
/// A request is at most so long.
const MAX_REQUEST: usize = 8 << 10;
/// Whoever comes sooner gets what the last one got.
const FRESH: Duration = Duration::from_millis(100);

/// Listens at `address`: with the socket of a predecessor, which its keeper still holds, if that
/// serves. Otherwise that one is made to refuse whoever connects: nobody would answer there.
pub fn listen(address: SocketAddr, inherited: Option<OwnedFd>) -> io::Result<TcpListener> {
    if let Some(inherited) = inherited {
        let listener = TcpListener::from(inherited);
        let at = listener.local_addr()?;
        if at == address || (address.port() == 0 && at.ip() == address.ip()) {
            return Ok(listener);
        }
        silence(listener.into());
    }
    TcpListener::bind(address)
}

/// Makes a listening socket refuse whoever connects, and its address free, whoever else has it.
pub fn silence(listener: OwnedFd) {
    let _ = TcpStream::from(listener).shutdown(Shutdown::Both);
}

type Place = crate::control::places::Place<TcpStream>;

/// What the last scraper got, and when it was true.
type Last = Mutex<Option<(Instant, Arc<str>)>>;

/// Answers scrapers for ever.
pub fn serve(listener: &TcpListener, governor: &Sender<Message>) {
    let last = Arc::new(Last::default());
    let places = Arc::new(Places::new(MAX_SCRAPERS, String::new()));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptors, perhaps: others may be closed meanwhile.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let place = match Place::take(&places, stream) {
            Ok(place) => place,
            Err(stream) => {
                refuse(&stream);
                continue;
            }
        };
        let (governor, last) = (governor.clone(), last.clone());
        let served = std::thread::Builder::new().name("scraper".into()).spawn(move || {
            let answered = answer(&place, || look(&governor, &last));
            if let Err(error) = answered {
                tracing::debug!(%error, "a scraper went away or took too long");
            }
        });
        if let Err(error) = served {
            tracing::warn!(%error, "cannot answer a scraper");
        }
    }
}

/// All places are of scrapers that wait for answers: says so if that takes no time.
fn refuse(mut stream: &TcpStream) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = stream.write(&response("503 Service Unavailable", "too many scrapers\n", true));
    }
}

/// The present metrics, or those of a moment ago.
fn look(governor: &Sender<Message>, last: &Last) -> Option<Arc<str>> {
    // Who waits here waits for the same answer.
    let mut last = last.lock();
    if let Some((_, text)) = last.as_ref().filter(|(when, _)| when.elapsed() < FRESH) {
        return Some(text.clone());
    }
    let (to, from) = crossbeam_channel::bounded(1);
    governor.send(Message::Look(to)).ok()?;
    let status = from.recv_timeout(TO_LOOK).ok()?;
    let text: Arc<str> = metrics::text(*status).into();
    *last = Some((Instant::now(), text.clone()));
    Some(text)
}

/// Reads one request, answers it, and closes.
fn answer(place: &Place, look: impl FnOnce() -> Option<Arc<str>>) -> io::Result<()> {
    let mut stream = place.stream();
    let request = read_request(stream)?;
    if !place.set(State::Waits) {
        return Ok(()); // another one has its place
    }
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let whole = parsed.parse(&request).is_ok_and(|status| status.is_complete());
    let path = parsed.path.unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let with_body = parsed.method != Some("HEAD");
    let bytes = match (parsed.method, path) {
        _ if !whole => response("400 Bad Request", "not a request\n", true),
        (Some("GET" | "HEAD"), "/metrics") => match look() {
            Some(text) => response("200 OK", &text, with_body),
            None => response("503 Service Unavailable", "the daemon is busy\n", with_body),
        },
        (Some("GET" | "HEAD"), _) => {
            response("404 Not Found", "metrics are at /metrics\n", with_body)
        }
        _ => response("405 Method Not Allowed", "GET or HEAD\n", true),
    };
    // Whoever does not take its answer is idle.
    place.set(State::Idle(Instant::now()));
    let until = Instant::now() + TO_READ;
    let mut left = &bytes[..];
    while !left.is_empty() {
        stream.set_write_timeout(Some(left_until(until)?))?;
        match stream.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => left = &left[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // What it sent besides would make the kernel reset the connection before all is read.
    stream.shutdown(Shutdown::Write)?;
    let mut rest = [0u8; 512];
    loop {
        stream.set_read_timeout(Some(left_until(until)?))?;
        if stream.read(&mut rest)? == 0 {
            return Ok(());
        }
    }
}

/// Reads up to the empty line, or as much as a request may have.
fn read_request(mut stream: &TcpStream) -> io::Result<Vec<u8>> {
    let until = Instant::now() + TO_ASK;
    let (mut request, mut part) = (Vec::new(), [0u8; 1024]);
    while request.len() < MAX_REQUEST && !request.windows(4).any(|end| end == b"\r\n\r\n") {
        stream.set_read_timeout(Some(left_until(until)?))?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(n) => request.extend_from_slice(&part[..n]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(request)
}

fn left_until(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn response(status: &str, body: &str, with_body: bool) -> Vec<u8> {
    let kind = if status.starts_with("200") { metrics::CONTENT_TYPE } else { "text/plain" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let body = if with_body { body } else { "" };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::status::Status;

    fn any_port() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    /// A server whose governor answers when `looks` says so.
    fn server(looks: impl Fn() -> bool + Send + 'static) -> SocketAddr {
        let listener = listen(any_port(), None).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let (governor, inbox) = crossbeam_channel::unbounded();
        std::thread::spawn(move || {
            for message in inbox {
                if let Message::Look(answer) = message
                    && looks()
                {
                    let _ = answer.send(Box::new(Status::default()));
                }
            }
        });
        std::thread::spawn(move || serve(&listener, &governor));
        address
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(request).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    #[test]
    fn requests_get_what_they_ask_for() {
        let address = server(|| true);
        for (request, status, word) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK", "clew_budget_bytes 0"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK", "version=1.0.0"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK", "Content-Length: "),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found", "/metrics"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed", "GET"),
            ("\u{1}\u{2}\r\n\r\n", "400 Bad Request", ""),
        ] {
            let answer = ask(address, request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}: {answer}");
            assert!(answer.contains(word), "{request}: {answer}");
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .and_then(|n| n.parse().ok())
                .expect("a length");
            let is_head = request.starts_with("HEAD");
            assert_eq!(body.len(), if is_head { 0 } else { length }, "{request}");
        }
        // Longer than any request: an answer, not a wait for its end.
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(MAX_REQUEST));
        assert!(ask(address, long.as_bytes()).starts_with("HTTP/1.1 400"));
    }

    #[test]
    fn whoever_connects_and_stays_keeps_nobody_out() {
        let address = server(|| true);
        let request = b"GET /metrics HTTP/1.1\r\n\r\n";
        let mut others = Vec::new();
        for round in 0..5 {
            for n in 0..MAX_SCRAPERS {
                let mut stream = TcpStream::connect(address).expect("it listens");
                // Silent, slow to ask, or with an answer that it leaves there.
                let asked = [&request[..0], &request[..9], &request[..]][n % 3];
                stream.write_all(asked).expect("it is taken");
                if asked.len() == request.len() {
                    let mut begun = [0; 12];
                    stream.read_exact(&mut begun).expect("it is answered");
                    assert_eq!(&begun, b"HTTP/1.1 200", "round {round}");
                }
                others.push(stream);
            }
            let answer = ask(address, request);
            assert!(answer.starts_with("HTTP/1.1 200"), "round {round}: {answer}");
        }
    }

    #[test]
    fn a_governor_that_does_not_answer_is_said_to_be_busy() {
        let address = server(|| false);
        let answer = ask(address, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    }

    #[test]
    fn a_predecessors_socket_serves_on_or_not_at_all() {
        let first = listen(any_port(), None).expect("a free port");
        let address = first.local_addr().expect("it listens");
        assert!(listen(address, None).is_err(), "two listen at one address");
        let held_by_its_keeper = first.try_clone().expect("a copy");
        let again = listen(address, Some(first.into())).expect("the same one");
        assert_eq!(again.local_addr().expect("it listens"), address);
        let keeps = again.try_clone().expect("a copy");
        assert_eq!(
            listen(any_port(), Some(again.into())).and_then(|l| l.local_addr()).ok(),
            Some(address)
        );
        // Another address: the first one is free, though somebody holds the socket.
        let elsewhere = "127.0.0.2:0".parse().expect("an address");
        let other = listen(elsewhere, Some(keeps.into())).expect("a free port");
        assert_ne!(other.local_addr().expect("it listens").ip(), address.ip());
        assert!(TcpStream::connect(address).is_err(), "nobody answers, but one can connect");
        listen(address, None).expect("the address is free");
        drop(held_by_its_keeper);
    }
}
