//! Serves clients of the control socket: a thread each, in [`crate::control::places`].

use std::io::{self, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;

use crate::agents::peer::is_still_there;
use crate::agents::seqpacket;
use crate::control::places::{Places, Share, State};
use crate::control::protocol::{BUSY, IDLE, MAX_REQUEST, NOT_YOURS, Reply, Request, read_part};
use crate::message::Message;
use crate::survival::predecessor::ProcessName;
use crate::users::{Asker, Users};

/// Clients that are served at a time.
const MAX_CLIENTS: usize = 256;

/// Of these, clients that wait for orders which take a while. The rest is left for those that ask for
/// what is answered at once, and for `clew stop`.
const MAX_ORDERS: usize = 192;

/// Clients of one user of a service that are served at a time, and of these, those that wait for orders.
const MAX_OF_USER: usize = 32;
const MAX_ORDERS_OF_USER: usize = 24;

/// Clients of all users of a service: the rest is root's.
const MAX_OF_USERS: usize = 192;

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

/// Serves for ever who may ask.
pub fn serve(listener: &UnixListener, users: &Arc<Users>, governor: &Sender<Message>) {
    // What is sent there is never looked at, and who closes it last may wait as long as its sender likes.
    seqpacket::takes_descriptors(listener, false);
    let places = Arc::new(places());
    let mut said: Option<Instant> = None;
    let (reserve, client_of) = crossbeam_channel::bounded::<Client>(1);
    if let Err(error) = begin_thread(move || client_of.iter().for_each(|client| client.serve())) {
        tracing::warn!(%error, "no thread is kept for clients");
    }
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // No descriptors, perhaps: others may be closed meanwhile.
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        let Ok(Some(asker)) = users.asker(&stream) else {
            continue; // closed
        };
        let place = match Place::take_of(&places, stream, share(asker)) {
            Ok(place) => place,
            Err(stream) => {
                turn_away(&stream);
                if said.is_none_or(|at| at.elapsed() > SAY_AGAIN) {
                    said = Some(Instant::now());
                    tracing::warn!(?asker, "a client is turned away: too many wait for answers");
                }
                continue;
            }
        };
        let client = Client { place, asker, users: users.clone(), governor: governor.clone() };
        // Where no thread can be made one is left for one client after the other.
        let (hand, client_of) = crossbeam_channel::bounded::<Client>(1);
        let served = begin_thread(move || client_of.iter().for_each(|client| client.serve()));
        let to = if served.is_ok() { &hand } else { &reserve };
        if let Err(error) = to.try_send(client) {
            tracing::warn!(%error, "cannot serve a client");
        }
    }
}

fn begin_thread(body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name("client".to_string()).spawn(body).map(drop)
}

/// The process that connected, as the kernel says; 0 where it is not seen from here, or has ended: its number may be
/// that of another user's program by now.
fn connected_process(stream: &UnixStream) -> u32 {
    let pid = seqpacket::peer(stream).map_or(0, |peer| peer.pid as u32);
    if is_still_there(stream, pid).is_ok() { pid } else { 0 }
}

fn places() -> Places<UnixStream> {
    Places::new(MAX_CLIENTS, turned_away())
}

/// What one hears who is not served.
fn turned_away() -> String {
    format!("{}\n", error_line(BUSY.to_string()))
}

/// Says why, without waiting, to one who is not served.
fn turn_away(mut stream: &UnixStream) {
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(turned_away().as_bytes()));
}

/// The share of the places that is his who asks.
fn share(asker: Asker) -> Option<Share> {
    match asker {
        Asker::All => None,
        Asker::User(of) => Some(Share { of, most: MAX_OF_USER, most_of_all: MAX_OF_USERS }),
    }
}

/// Whether this process began then.
fn is_own(started: u64) -> bool {
    ProcessName::of(std::process::id()).is_ok_and(|own| own.started == started)
}

/// A client that is served.
struct Client {
    place: Place,
    asker: Asker,
    users: Arc<Users>,
    governor: Sender<Message>,
}

impl Client {
    fn serve(&self) {
        let mut reader = BufReader::new(self.place.stream());
        loop {
            let line = read_request(&mut reader, Instant::now() + IDLE);
            if line.is_none() || !self.place.set(State::Waits) {
                return;
            }
            ANSWERING.fetch_add(1, Ordering::SeqCst);
            let goes_on = self.serve_request(line.flatten());
            ANSWERING.fetch_sub(1, Ordering::SeqCst);
            if !goes_on {
                return;
            }
        }
    }

    /// Answers one request, `None` if it is too long; whether the client may ask again.
    fn serve_request(&self, line: Option<Vec<u8>>) -> bool {
        let place = &self.place;
        let request = line.as_deref().map(serde_json::from_slice::<Request>);
        let goes_on = request.is_some();
        let mut hands_over = false;
        let answer = match request {
            Some(Ok(request)) if self.asker != Asker::All && request.is_the_daemons() => {
                error_line(NOT_YOURS.to_string())
            }
            Some(Ok(Request::HandOver { started })) if !is_own(started) => {
                error_line("another process is meant, which served here before".to_string())
            }
            Some(Ok(request)) if request.takes_a_while() && !self.waits_for_order() => {
                error_line(BUSY.to_string())
            }
            Some(Ok(mut request)) => {
                if let Request::Started { pid, .. } | Request::Share { pid, .. } = &mut request {
                    *pid = connected_process(place.stream());
                }
                let is_hand_over = matches!(request, Request::HandOver { .. });
                let Some(answer) = self.ask(request) else { return false };
                hands_over = is_hand_over && is_done(&answer);
                answer
            }
            Some(Err(error)) => error_line(format!("not a request: {error}")),
            None => error_line(format!("a request has at most {MAX_REQUEST} bytes")),
        };
        // Whoever does not take its answer is idle.
        let until = Instant::now() + IDLE;
        let written = place.set(State::Idle(Instant::now()))
            && write(place.stream(), format!("{answer}\n").as_bytes(), until).is_ok();
        if hands_over {
            // SAFETY: ends this process and nothing else; the keeper stays.
            unsafe { libc::_exit(0) };
        }
        goes_on && written
    }

    fn waits_for_order(&self) -> bool {
        self.place.waits_for_order(match self.asker {
            Asker::All => MAX_ORDERS,
            Asker::User(_) => MAX_ORDERS_OF_USER,
        })
    }

    /// The governor's answer; `None` when the daemon is ending. Of one user of a service it has one question at
    /// a time, orders that take a while apart: whoever floods it has the others wait for one answer of his.
    fn ask(&self, request: Request) -> Option<String> {
        let user = match self.asker {
            Asker::User(uid) if !request.takes_a_while() => Some(self.users.of(uid)),
            _ => None,
        };
        let _turn = user.as_ref().map(|user| user.turn());
        let (to, from) = crossbeam_channel::bounded(1);
        self.governor.send(Message::Control(request, self.asker, to)).ok()?;
        from.recv().ok()
    }
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

/// Whether an answer to an order says that it was carried out.
fn is_done(answer: &str) -> bool {
    matches!(serde_json::from_str(answer), Ok(Reply::Ok { value: () }))
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

    /// Who has this place asks, of a service.
    fn client(place: Place, asker: Asker, governor: &Sender<Message>) -> Client {
        let users = Arc::new(Users::new(0, Some(7)));
        Client { place, asker, users, governor: governor.clone() }
    }

    #[test]
    fn the_longest_idle_client_gives_its_place_and_one_that_waits_never_does() {
        let places = Arc::new(places());
        let mut peers = Vec::new();
        let mut seats: Vec<Place> = (0..MAX_CLIENTS)
            .map(|_| {
                let (ours, theirs) = pair();
                peers.push(theirs);
                Place::take(&places, ours).expect("there is room")
            })
            .collect();
        assert!(seats[0].set(State::Waits));
        let (idle, hears) = (seats.remove(1), peers.remove(1));
        let (ours, _peer) = pair();
        std::thread::scope(|scope| {
            // What its thread would do.
            scope.spawn(move || {
                let mut reader = BufReader::new(idle.stream());
                let line = read_request(&mut reader, Instant::now() + 6 * IDLE);
                assert!(line.is_none() && !idle.set(State::Waits), "it has lost its place");
            });
            seats.push(Place::take(&places, ours).expect("a place became free"));
        });
        let mut heard = String::new();
        BufReader::new(hears).read_line(&mut heard).expect("it is told");
        assert_eq!(heard, turned_away());
        assert!(seats.iter().all(|seat| seat.set(State::Waits)), "the others have theirs");
        assert!(Place::take(&places, pair().0).is_err(), "all wait");
        assert!(seats.iter().all(|seat| seat.set(State::Waits)), "and go on waiting");
        drop(seats.pop());
        assert!(Place::take(&places, pair().0).is_ok(), "one has gone");
    }

    #[test]
    fn orders_leave_places_for_those_that_ask_for_less() {
        let places = Arc::new(places());
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
        let last = client(last, Asker::All, &nobody);
        assert!(last.serve_request(Some(order)), "it is answered, and may ask again");
        drop(seats.pop());
        assert!(newcomer().waits_for_order(MAX_ORDERS), "one has its answer");
        drop(last);
        let mut said = String::new();
        let answered = &peers[MAX_ORDERS];
        BufReader::new(answered).read_line(&mut said).expect("an answer");
        assert!(said.contains(BUSY), "{said}");
    }

    #[test]
    fn a_user_of_a_service_takes_no_place_of_others() {
        let places = Arc::new(places());
        let mut peers = Vec::new();
        let mut newcomer = |of: Asker| {
            let (ours, theirs) = pair();
            peers.push(theirs);
            let place = Place::take_of(&places, ours, share(of)).ok()?;
            assert!(place.set(State::Waits));
            Some(place)
        };
        let mut seats = Vec::new();
        for user in 1000..1000 + (MAX_OF_USERS / MAX_OF_USER) as u32 {
            let of = Asker::User(user);
            let own: Vec<Place> = std::iter::from_fn(|| newcomer(of)).collect();
            assert_eq!(own.len(), MAX_OF_USER, "user {user}");
            let orders = own.iter().filter(|place| place.waits_for_order(MAX_ORDERS_OF_USER));
            assert_eq!(orders.count(), MAX_ORDERS_OF_USER, "user {user}");
            seats.extend(own);
        }
        assert!(newcomer(Asker::User(2000)).is_none(), "all users together have no more");
        let of_root: Vec<Place> = std::iter::from_fn(|| newcomer(Asker::All)).collect();
        assert_eq!(of_root.len(), MAX_CLIENTS - MAX_OF_USERS, "the rest is root's");
        assert!(of_root[0].waits_for_order(1), "whatever users have ordered");
        // An idle one of a user makes room for that user, and for no other while all have theirs.
        assert!(seats[0].set(State::Idle(Instant::now())));
        let idle = seats.remove(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut reader = BufReader::new(idle.stream());
                let line = read_request(&mut reader, Instant::now() + 6 * IDLE);
                assert!(line.is_none() && !idle.set(State::Waits), "it has lost its place");
            });
            assert!(newcomer(Asker::User(1001)).is_none(), "that is not theirs");
            assert!(newcomer(Asker::User(1000)).is_some(), "it was idle");
        });
    }

    #[test]
    fn a_user_of_a_service_has_one_question_at_a_time() {
        let places = Arc::new(places());
        let (governor, inbox) = crossbeam_channel::unbounded();
        let users = Arc::new(Users::new(0, Some(7)));
        let mut peers = Vec::new();
        let mut ask = |asker| {
            let (ours, theirs) = pair();
            peers.push(theirs);
            let place = Place::take_of(&places, ours, share(asker)).expect("there is room");
            let (users, governor) = (users.clone(), governor.clone());
            let client = Client { place, asker, users, governor };
            let line = serde_json::to_vec(&Request::Status).expect("JSON");
            assert!(client.place.set(State::Waits));
            std::thread::spawn(move || client.serve_request(Some(line)))
        };
        let first = ask(Asker::User(1000));
        let Ok(Message::Control(_, Asker::User(1000), answer)) = inbox.recv() else {
            panic!("not passed on")
        };
        let more: Vec<_> = (0..8).map(|_| ask(Asker::User(1000))).collect();
        let other = ask(Asker::User(1001));
        let Ok(Message::Control(_, Asker::User(1001), to_other)) = inbox.recv() else {
            panic!("the other one waits")
        };
        assert!(inbox.is_empty(), "of the first one there is one");
        for answer in [answer, to_other] {
            answer.send("{}".to_string()).expect("it waits");
        }
        for _ in &more {
            let Ok(Message::Control(_, Asker::User(1000), answer)) = inbox.recv() else {
                panic!("not passed on")
            };
            assert!(inbox.is_empty(), "one after the other");
            answer.send("{}".to_string()).expect("it waits");
        }
        for thread in more.into_iter().chain([first, other]) {
            assert!(thread.join().expect("it ends"));
        }
    }

    #[test]
    fn the_daemon_itself_is_no_users_to_order() {
        // Whoever asked would be told that it is ending.
        let (governor, _) = crossbeam_channel::unbounded();
        for request in [Request::Stop, Request::HandOver { started: 1 }] {
            let (ours, theirs) = pair();
            let place = Place::take(&Arc::new(places()), ours).expect("there is room");
            assert!(place.set(State::Waits));
            let line = serde_json::to_vec(&request).expect("JSON");
            assert!(client(place, Asker::User(1000), &governor).serve_request(Some(line)));
            let mut said = String::new();
            BufReader::new(&theirs).read_line(&mut said).expect("an answer");
            assert!(said.contains("root"), "{said}");
        }
    }

    #[test]
    fn nobody_starts_a_program_as_another_process() {
        let (ours, _theirs) = pair();
        let place = Place::take(&Arc::new(places()), ours).expect("there is room");
        assert!(place.set(State::Waits));
        let (governor, inbox) = crossbeam_channel::unbounded();
        let (app, command) = ("x".to_string(), "x".to_string());
        let started = Request::Started { app, pid: 1, command, unmanaged: None };
        let line = serde_json::to_vec(&started).expect("JSON");
        let client = client(place, Asker::All, &governor);
        std::thread::spawn(move || client.serve_request(Some(line)));
        let Ok(Message::Control(Request::Started { pid, .. }, ..)) = inbox.recv() else {
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
