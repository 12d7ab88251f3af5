//! Serves clients of the control socket: a thread each, in [`crate::control::places`].

use std::io::{self, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::agents::seqpacket;
use crate::control::places::{Places, State};
use crate::control::protocol::{BUSY, IDLE, MAX_REQUEST, Reply, Request, read_part};
use crate::control::trusted_path::own_uid;
use crate::governor::Message;
use crate::survival::predecessor::ProcessName;

/// Clients that are served at a time.
const MAX_CLIENTS: usize = 256;

/// Of these, clients that wait for orders which take a while. The rest is left for those that ask for
/// what is answered at once, and for `clew stop`.
const MAX_ORDERS: usize = 192;

/// How often it is said that clients are turned away, at most.
const SAY_AGAIN: Duration = Duration::from_secs(1);

type Place = crate::control::places::Place<UnixStream>;

/// Answers that are being made or written.
static ANSWERING: AtomicUsize = AtomicUsize::new(0);

/// Waits until the last answers are written, but not for long.
pub fn finish() {
    let until = Instant::now() + Duration::from_secs(1);
    while ANSWERING.load(Ordering::SeqCst) > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Serves for ever who may ask: this user, and root.
pub fn serve(listener: &UnixListener, governor: &Sender<Message>) {
    let places = Arc::new(Places::new(MAX_CLIENTS));
    let mut said: Option<Instant> = None;
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptors, perhaps: others may be closed meanwhile.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let is_ours =
            seqpacket::peer(&stream).is_ok_and(|peer| peer.uid == own_uid() || peer.uid == 0);
        if !is_ours {
            continue; // closed
        }
        let place = match Place::take(&places, stream) {
            Ok(place) => place,
            Err(stream) => {
                turn_away(&stream);
                if said.is_none_or(|at| at.elapsed() > SAY_AGAIN) {
                    said = Some(Instant::now());
                    tracing::warn!(
                        "a client is turned away: all of {MAX_CLIENTS} wait for answers"
                    );
                }
                continue;
            }
        };
        let governor = governor.clone();
        let name = "client".to_string();
        let served =
            std::thread::Builder::new().name(name).spawn(move || serve_client(&place, &governor));
        if let Err(error) = served {
            tracing::warn!(%error, "cannot serve a client");
        }
    }
}

/// Says why, without waiting, to one who is not served.
fn turn_away(mut stream: &UnixStream) {
    let line = format!("{}\n", error_line(BUSY.to_string()));
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(line.as_bytes()));
}

fn serve_client(place: &Place, governor: &Sender<Message>) {
    let mut reader = BufReader::new(&*place.stream);
    loop {
        let line = read_request(&mut reader, Instant::now() + IDLE);
        if line.is_none() || !place.set(State::Waits) {
            return;
        }
        ANSWERING.fetch_add(1, Ordering::SeqCst);
        let goes_on = serve_request(place, line.flatten(), governor);
        ANSWERING.fetch_sub(1, Ordering::SeqCst);
        if !goes_on {
            return;
        }
    }
}

/// Whether this process began then.
fn is_own(started: u64) -> bool {
    ProcessName::of(std::process::id()).is_ok_and(|own| own.started == started)
}

/// Answers one request, `None` if it is too long; whether the client may ask again.
fn serve_request(place: &Place, line: Option<Vec<u8>>, governor: &Sender<Message>) -> bool {
    let request = line.as_deref().map(serde_json::from_slice::<Request>);
    let goes_on = request.is_some();
    let mut hands_over = false;
    let answer = match request {
        Some(Ok(Request::HandOver { started })) if !is_own(started) => {
            error_line("another process is meant, which served here before".to_string())
        }
        Some(Ok(request)) if request.takes_a_while() && !place.waits_for_order(MAX_ORDERS) => {
            error_line(BUSY.to_string())
        }
        Some(Ok(mut request)) => {
            if let Request::Started { pid, .. } = &mut request {
                // Who that is the kernel says; 0 where it is not seen from here.
                *pid = seqpacket::peer(&*place.stream).map_or(0, |peer| peer.pid as u32);
            }
            hands_over = matches!(request, Request::HandOver { .. });
            match ask(request, governor) {
                Some(answer) => answer,
                None => return false,
            }
        }
        Some(Err(error)) => error_line(format!("not a request: {error}")),
        None => error_line(format!("a request has at most {MAX_REQUEST} bytes")),
    };
    // Whoever does not take its answer is idle.
    let written = place.set(State::Idle(Instant::now()))
        && write(&place.stream, format!("{answer}\n").as_bytes(), Instant::now() + IDLE).is_ok();
    if hands_over {
        // SAFETY: ends this process and nothing else; the keeper stays.
        unsafe { libc::_exit(0) };
    }
    goes_on && written
}

/// A whole line: `Some(None)` if it is too long, `None` if none comes.
fn read_request(reader: &mut BufReader<&UnixStream>, until: Instant) -> Option<Option<Vec<u8>>> {
    let mut line = Vec::new();
    loop {
        reader.get_ref().set_read_timeout(Some(left_until(until)?)).ok()?;
        match read_part(reader, &mut line, MAX_REQUEST) {
            Ok(true) => return Some(Some(line)),
            Ok(false) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Some(None),
            Err(_) => return None,
        }
    }
}

fn write(mut stream: &UnixStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        let left = left_until(until).ok_or(io::ErrorKind::TimedOut)?;
        stream.set_write_timeout(Some(left))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn left_until(until: Instant) -> Option<Duration> {
    until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
}

/// The governor's answer; `None` when the daemon is ending.
fn ask(request: Request, governor: &Sender<Message>) -> Option<String> {
    let (to, from) = crossbeam_channel::bounded(1);
    governor.send(Message::Control(request, to)).ok()?;
    from.recv().ok()
}

fn error_line(message: String) -> String {
    serde_json::to_string(&Reply::<()>::Error { message }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        UnixStream::pair().expect("a pair of sockets")
    }

    #[test]
    fn the_longest_idle_client_gives_its_place_and_one_that_waits_never_does() {
        let places = Arc::new(Places::new(MAX_CLIENTS));
        let mut peers = Vec::new();
        let mut seats: Vec<Place> = (0..MAX_CLIENTS)
            .map(|_| {
                let (ours, theirs) = pair();
                peers.push(theirs);
                Place::take(&places, ours).expect("there is room")
            })
            .collect();
        assert!(seats[0].set(State::Waits));
        let idle = seats.remove(1);
        let (ours, _peer) = pair();
        std::thread::scope(|scope| {
            // What its thread would do.
            scope.spawn(move || {
                let mut reader = BufReader::new(&*idle.stream);
                let line = read_request(&mut reader, Instant::now() + 6 * IDLE);
                assert!(line.is_none() && !idle.set(State::Waits), "it has lost its place");
            });
            seats.push(Place::take(&places, ours).expect("a place became free"));
        });
        assert!(seats.iter().all(|seat| seat.set(State::Waits)), "the others have theirs");
        assert!(Place::take(&places, pair().0).is_err(), "all wait");
        assert!(seats.iter().all(|seat| seat.set(State::Waits)), "and go on waiting");
        drop(seats.pop());
        assert!(Place::take(&places, pair().0).is_ok(), "one has gone");
    }

    #[test]
    fn orders_leave_places_for_those_that_ask_for_less() {
        let places = Arc::new(Places::new(MAX_CLIENTS));
        let mut peers = Vec::new();
        let mut newcomer = || {
            let (ours, theirs) = pair();
            peers.push(theirs);
            let place = Place::take(&places, ours).expect("there is room");
            assert!(place.set(State::Waits));
            place
        };
        let mut seats: Vec<Place> = (0..MAX_ORDERS).map(|_| newcomer()).collect();
        assert!(seats.iter().all(|seat| seat.waits_for_order(MAX_ORDERS)));
        let (nobody, _inbox) = crossbeam_channel::unbounded();
        let order = serde_json::to_vec(&Request::SwapOut { app: "x".into() }).expect("JSON");
        let last = newcomer();
        assert!(!last.waits_for_order(MAX_ORDERS), "enough of them wait");
        assert!(serve_request(&last, Some(order), &nobody), "it is answered, and may ask again");
        drop(seats.pop());
        assert!(newcomer().waits_for_order(MAX_ORDERS), "one has its answer");
        drop(last);
        let mut said = String::new();
        let answered = &peers[MAX_ORDERS];
        BufReader::new(answered).read_line(&mut said).expect("an answer");
        assert!(said.contains(BUSY), "{said}");
    }

    #[test]
    fn nobody_starts_a_program_as_another_process() {
        let (ours, _theirs) = pair();
        let place = Place::take(&Arc::new(Places::new(MAX_CLIENTS)), ours).expect("there is room");
        assert!(place.set(State::Waits));
        let (governor, inbox) = crossbeam_channel::unbounded();
        let (app, command) = ("x".to_string(), "x".to_string());
        let started = Request::Started { app, pid: 1, command, unmanaged: None };
        let line = serde_json::to_vec(&started).expect("JSON");
        std::thread::spawn(move || serve_request(&place, Some(line), &governor));
        let Ok(Message::Control(Request::Started { pid, .. }, _)) = inbox.recv() else {
            panic!("not passed on")
        };
        assert_eq!(pid, std::process::id(), "who asked, as the kernel says");
    }

    #[test]
    fn who_is_turned_away_is_told_why() {
        let (ours, theirs) = pair();
        turn_away(&ours);
        drop(ours);
        let mut said = String::new();
        BufReader::new(theirs).read_line(&mut said).expect("a line");
        assert!(said.contains(BUSY), "{said}");
    }

    #[test]
    fn a_request_that_drips_does_not_keep_its_place() {
        let (ours, theirs) = pair();
        let over = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while over.load(Ordering::SeqCst) == 0 && (&theirs).write_all(b" ").is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let until = Instant::now() + Duration::from_millis(100);
            let line = read_request(&mut BufReader::new(&ours), until);
            over.store(1, Ordering::SeqCst);
            assert_eq!(line, None);
        });
    }
}
