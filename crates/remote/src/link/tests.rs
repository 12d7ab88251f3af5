//! A channel and a donor, over loopback and through a proxy that cuts, delays and lies.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clew_core::seeded::Seeded;

use super::*;
use crate::donor::{Donor, Lending};
use crate::keys::Keys;
use crate::proxy::{Act, Proxy};
use crate::wire::{Head, Kind};

/// A donor and a borrower that know each other.
pub(crate) struct Pair {
    pub donor: Donor,
    pub borrower: Identity,
    pub key: PublicKey,
    pub keys: Keys,
    _dir: tempfile::TempDir,
}

pub(crate) fn pair(lending: Lending) -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::open(dir.path()).unwrap();
    let borrower = Identity::random().unwrap();
    keys.know(borrower.public(), "borrower").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let donor = Donor::new(listener, keys.clone(), lending).unwrap();
    Pair { donor, borrower, key: keys.identity.public(), keys, _dir: dir }
}

impl Pair {
    pub fn link(&self, address: impl ToString, patience: Patience) -> Link {
        self.link_again(address, patience, false)
    }

    /// A link of a successor, that knows that there is something.
    pub fn link_again(&self, address: impl ToString, patience: Patience, has: bool) -> Link {
        let peer = Peer {
            address: address.to_string(),
            identity: self.borrower.clone(),
            donor: self.key,
            session: Session([1; 16]),
            has,
        };
        Link::new(peer, patience, None).unwrap()
    }

    /// The donor begins anew, where it was, with nothing.
    pub fn begin_anew(&mut self, lending: Lending) {
        let address = self.donor.address();
        let elsewhere = TcpListener::bind("127.0.0.1:0").unwrap();
        self.donor = Donor::new(elsewhere, self.keys.clone(), lending.clone()).unwrap();
        let since = Instant::now();
        let listener = loop {
            match TcpListener::bind(address) {
                Ok(listener) => break listener,
                Err(error) => assert!(since.elapsed() < Duration::from_secs(60), "{error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.donor = Donor::new(listener, self.keys.clone(), lending).unwrap();
    }
}

pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn write(link: &Link, at: u64, bytes: &[u8]) -> io::Result<()> {
    let (tell, told) = channel();
    link.write(at, bytes.to_vec(), Box::new(move |wrote| drop(tell.send(wrote))));
    told.recv().unwrap()
}

fn read(link: &Link, at: u64, len: u32) -> io::Result<Vec<u8>> {
    let (tell, told) = channel();
    link.read(at, len, true, Box::new(move |came| drop(tell.send(came))));
    told.recv().unwrap()
}

fn chunk(number: u64) -> Vec<u8> {
    (0..65536u64).map(|i| (i ^ i >> 8 ^ number) as u8).collect()
}

#[test]
fn what_was_written_is_read_and_what_was_forgotten_is_not() {
    let pair = pair(Lending::of(16 << 20));
    let link = pair.link(pair.donor.address(), Patience::default());
    for number in 0..20 {
        write(&link, number * 65536, &chunk(number)).unwrap();
    }
    for number in 0..20 {
        assert_eq!(read(&link, number * 65536, 65536).unwrap(), chunk(number));
        let skip = 4096 * (number % 16);
        let came = read(&link, number * 65536 + skip, 4096).unwrap();
        assert_eq!(came, chunk(number)[skip as usize..][..4096]);
    }
    assert!(pair.donor.lent().used_bytes >= 20 * 65536);
    for number in 0..10 {
        link.forget(number * 65536, 65536);
    }
    // Who does not press comes behind what was asked for before.
    let (tell, told) = channel();
    link.read(0, 4096, false, Box::new(move |came| drop(tell.send(came))));
    assert_eq!(told.recv().unwrap().unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(read(&link, 10 * 65536, 65536).unwrap(), chunk(10));
    until("memory is given back", || pair.donor.lent().used_bytes < 11 * 65536);
    let standing = link.standing();
    assert_eq!((standing.state, standing.sent_bytes), (DonorState::Up, 20 * 65536));
}

#[test]
fn a_donor_keeps_to_its_limit() {
    let pair = pair(Lending::of(1 << 20));
    let link = pair.link(pair.donor.address(), Patience::default());
    let wrote: Vec<bool> =
        (0..20).map(|number| write(&link, number * 65536, &chunk(number)).is_ok()).collect();
    assert_eq!(wrote.iter().filter(|wrote| **wrote).count(), 15, "with what each piece takes");
    link.forget(0, 65536);
    write(&link, 30 * 65536, &chunk(30)).unwrap();
    assert!(pair.donor.lent().used_bytes <= 1 << 20);
}

#[test]
fn a_donor_that_wants_its_memory_back_says_so_and_takes_it() {
    let lending = Lending { grace: Duration::from_millis(300), ..Lending::of(1 << 20) };
    let pair = pair(lending);
    let link = pair.link(pair.donor.address(), Patience::default());
    write(&link, 0, &chunk(0)).unwrap();
    pair.donor.press(true);
    until("it says so", || link.standing().state == DonorState::Pressed);
    assert!(write(&link, 65536, &chunk(1)).is_err());
    until("it takes it", || pair.donor.lent().used_bytes == 0);
    until("what it had is gone", || link.standing().state == DonorState::Lost);
    pair.donor.press(false);
    link.forgive();
    until("it lends again", || link.standing().state == DonorState::Up);
    write(&link, 0, &chunk(2)).unwrap();
}

#[test]
fn who_is_not_known_gets_nothing() {
    let pair = pair(Lending::of(1 << 20));
    let stranger = Identity::random().unwrap();
    let patience = Patience { donor: Duration::from_millis(300), ..Patience::default() };
    let address = pair.donor.address().to_string();
    let (known, key, session) = (pair.borrower.clone(), pair.key, Session([1; 16]));
    // It does not know the donor, or the donor not it.
    for (identity, donor) in [(stranger.clone(), key), (known, stranger.public())] {
        let peer = Peer { address: address.clone(), identity, donor, session, has: false };
        let link = Link::new(peer, patience, None).unwrap();
        assert_eq!(read(&link, 0, 4096).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!((link.standing().state, link.standing().connections), (DonorState::Lost, 0));
    }
    assert_eq!(pair.donor.lent().written_bytes, 0);
}

/// A link to a donor that can be made bad.
pub(crate) fn proxy(donor: &Donor) -> Proxy {
    Proxy::new([127, 0, 0, 1].into(), donor.address()).unwrap()
}

/// Everything is asked for while the link is cut, stopped and lied on, again and again: what was acknowledged is there,
/// and no answer is another one's.
#[test]
fn a_link_that_is_cut_loses_nothing() {
    let pair = pair(Lending::of(64 << 20));
    let proxy = proxy(&pair.donor);
    let patience = Patience { donor: Duration::from_secs(20), ..Patience::default() };
    let link = pair.link(proxy.address(), patience);
    let mut draw = Seeded::of(3, &[]);
    let mut has: HashMap<u64, u64> = HashMap::new();
    let mut version = 0;
    for round in 0..40 {
        let (tell, told) = channel();
        let mut asked = 0;
        // Nobody changes what somebody reads: a log does not.
        let mut read_now = std::collections::HashSet::new();
        for _ in 0..20 {
            let slot = draw.below(16);
            match draw.below(5) {
                0..=2 if read_now.contains(&slot) => {}
                0 => {
                    link.forget(slot * 65536, 65536);
                    has.remove(&slot);
                }
                1 | 2 => {
                    version += 1;
                    has.insert(slot, version);
                    let (tell, bytes) = (tell.clone(), chunk(version));
                    asked += 1;
                    let told = move |wrote: io::Result<()>| tell.send(wrote.is_ok()).unwrap();
                    link.write(slot * 65536, bytes, Box::new(told));
                }
                // Not pressing: behind what was written there.
                _ => {
                    read_now.insert(slot);
                    let (tell, expected) = (tell.clone(), has.get(&slot).copied());
                    asked += 1;
                    let told = move |came: io::Result<Vec<u8>>| {
                        let is_so = match (came, expected) {
                            (Ok(bytes), Some(version)) => bytes == chunk(version),
                            (Err(error), None) => error.kind() == io::ErrorKind::NotFound,
                            _ => false,
                        };
                        tell.send(is_so).unwrap();
                    };
                    link.read(slot * 65536, 65536, false, Box::new(told));
                }
            }
        }
        let again = if round % 8 < 4 { Act::Cut } else { Act::HalfOpen };
        let act = [Act::Pass, again, Act::Stop, Act::Lie][round % 4];
        proxy.act(act);
        std::thread::sleep(Duration::from_millis(draw.below(60)));
        if act == Act::Stop && round % 8 == 2 {
            // Longer than a link is waited for.
            std::thread::sleep(Duration::from_millis(900));
        }
        proxy.act(Act::Pass);
        for _ in 0..asked {
            assert!(told.recv_timeout(Duration::from_secs(20)).unwrap(), "round {round}");
        }
    }
    for (slot, version) in has {
        assert_eq!(read(&link, slot * 65536, 65536).unwrap(), chunk(version), "{slot}");
    }
    let standing = link.standing();
    assert!(standing.connections > 5 && standing.cuts + 1 == standing.connections, "{standing:?}");
}

#[test]
fn who_waits_at_a_donor_that_is_gone_waits_for_a_bounded_time() {
    let pair = pair(Lending::of(1 << 20));
    let proxy = proxy(&pair.donor);
    let link = pair.link(proxy.address(), Patience::default());
    write(&link, 0, &chunk(0)).unwrap();
    proxy.act(Act::Stop);
    assert_eq!(read(&link, 0, 4096).unwrap_err().kind(), io::ErrorKind::TimedOut);
    until("it is lost", || link.standing().state == DonorState::Lost);
    // What is written meanwhile waits, and is there when the partition heals.
    let (tell, told) = channel();
    link.write(65536, chunk(1), Box::new(move |wrote| tell.send(wrote.is_ok()).unwrap()));
    proxy.act(Act::Pass);
    assert!(told.recv_timeout(Duration::from_secs(20)).unwrap());
    until("it is up", || link.standing().state == DonorState::Up);
    assert_eq!(read(&link, 65536, 65536).unwrap(), chunk(1));
    assert_eq!(read(&link, 0, 65536).unwrap(), chunk(0));
}

#[test]
fn a_donor_that_has_begun_anew_has_lost_what_it_had_and_says_so() {
    let mut pair = pair(Lending::of(1 << 20));
    let address = pair.donor.address();
    let link = pair.link(address, Patience::default());
    write(&link, 0, &chunk(0)).unwrap();
    pair.begin_anew(Lending::of(1 << 20));
    until("it is noticed", || link.standing().state == DonorState::Lost);
    until("it is there again", || link.standing().connections >= 2);
    assert_eq!(read(&link, 0, 4096).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(link.standing().state, DonorState::Lost, "somebody may ask for what it had");
    link.forgive();
    write(&link, 0, &chunk(5)).unwrap();
    assert_eq!(link.standing().state, DonorState::Up);
}

/// What a donor says of itself.
fn how_it_stands() -> Vec<u8> {
    use crate::wire::{DonorFacts, FACTS_BYTES};

    let facts = DonorFacts { free_bytes: 1 << 20, ..DonorFacts::default() };
    let head = Head { body_bytes: FACTS_BYTES as u32, ..Head::of(Kind::State, 0, 0) };
    [&head.to_bytes()[..], &facts.to_bytes()].concat()
}

/// What a donor of the tests' own answers a question, in each round of its link; nothing, if that is its answer.
type Answers = fn(head: Head, round: usize) -> Option<Head>;

/// A link to such a donor.
fn answered_by(answers: Answers, patience: Patience) -> Link {
    use crate::secure::Channel;
    use crate::wire::Frames;

    let (donor, borrower) = (Identity::random().unwrap(), Identity::random().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let key = donor.public();
    std::thread::spawn(move || {
        for (round, stream) in listener.incoming().flatten().enumerate() {
            let mut stream: TcpStream = stream;
            let Ok((mut channel, ..)) = Channel::accept(&mut stream, &donor, |_| true) else {
                continue;
            };
            let mut sealed = Vec::new();
            channel.seal(&how_it_stands(), &mut sealed).unwrap();
            stream.write_all(&sealed).unwrap();
            let (mut frames, mut came) = (Frames::default(), [0; 4096]);
            while let Ok(len) = stream.read(&mut came) {
                if len == 0 || channel.open(&came[..len], &mut frames).is_err() {
                    break;
                }
                while let Ok(Some((head, _))) = frames.take() {
                    let Some(answer) = answers(head, round) else { continue };
                    let body: &[u8] = if answer.kind == Kind::Data { b"abc" } else { b"" };
                    let mut sealed = Vec::new();
                    channel.seal(&[&answer.to_bytes()[..], body].concat(), &mut sealed).unwrap();
                    let _ = stream.write_all(&sealed);
                }
            }
        }
    });
    let session = Session([1; 16]);
    let peer = Peer { address, identity: borrower, donor: key, session, has: false };
    Link::new(peer, patience, None).unwrap()
}

/// A read, as it should be answered.
fn data(head: Head) -> Option<Head> {
    (head.kind == Kind::Read).then_some(Head { kind: Kind::Data, body_bytes: 3, ..head })
}

/// A donor that answers a read as if it were a write, once: the question is asked again on the next link, and nobody waits for
/// ever.
#[test]
fn an_answer_of_another_kind_ends_the_link_and_no_question() {
    let answers: Answers = |head, round| match (head.kind, round) {
        (Kind::Read, 0) => Some(Head { kind: Kind::Wrote, body_bytes: 0, ..head }),
        _ => data(head),
    };
    let patience = Patience { donor: Duration::from_secs(20), ..Patience::default() };
    let link = answered_by(answers, patience);
    assert_eq!(read(&link, 0, 4096).unwrap(), b"abc");
    assert_eq!(link.standing().connections, 2);
}

/// A donor that leaves a question out and answers the next one: nobody waits until it is late, and the link says why it was cut.
#[test]
fn a_question_that_is_left_out_is_asked_again_at_once() {
    let answers: Answers = |head, round| match (head.at, round) {
        (0, 0) => None,
        _ => data(head),
    };
    // Otherwise it would be given up after that.
    let long = Duration::from_secs(20);
    let link = answered_by(answers, Patience { donor: long, link: long, ..Patience::default() });
    std::thread::scope(|scope| {
        let first = scope.spawn(|| read(&link, 0, 4096));
        // The donor has left that out by now, or does so then.
        let second = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            read(&link, 4096, 4096)
        });
        assert_eq!(first.join().unwrap().unwrap(), b"abc");
        assert_eq!(second.join().unwrap().unwrap(), b"abc");
    });
    assert_eq!(link.standing().connections, 2);
}

/// A donor that answers later than a read waits: its answer is nobody's, and the link goes on.
#[test]
fn a_late_answer_is_nobodys_and_ends_no_link() {
    let pair = pair(Lending::of(1 << 20));
    let proxy = proxy(&pair.donor);
    let patience = Patience {
        donor: Duration::from_secs(2),
        link: Duration::from_secs(60),
        ..Patience::default()
    };
    let link = pair.link(proxy.address(), patience);
    write(&link, 0, &chunk(0)).unwrap();
    write(&link, 65536, &chunk(1)).unwrap();
    proxy.act(Act::Stop);
    assert_eq!(read(&link, 0, 65536).unwrap_err().kind(), io::ErrorKind::TimedOut);
    proxy.act(Act::Pass);
    // Behind what is late.
    assert_eq!(read(&link, 65536, 65536).unwrap(), chunk(1));
    let standing = link.standing();
    assert_eq!((standing.connections, standing.cuts), (1, 0), "{standing:?}");
}

/// How one meets a donor of the tests' own, which does this with each link that begins, one after the other.
fn linked_by(mut begins: impl FnMut(TcpStream, crate::secure::Channel) + Send + 'static) -> Peer {
    let (donor, borrower) = (Identity::random().unwrap(), Identity::random().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let key = donor.public();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if let Ok((channel, ..)) = crate::secure::Channel::accept(&mut stream, &donor, |_| true)
            {
                begins(stream, channel);
            }
        }
    });
    Peer { address, identity: borrower, donor: key, session: Session([1; 16]), has: false }
}

/// A donor that says how it stands, over and over and quicker than that can be heard, and answers nothing.
#[test]
fn a_donor_that_floods_its_link_holds_up_nobody() {
    use crate::cores::Cores;

    let peer = linked_by(|mut stream, mut channel| {
        let said = how_it_stands().repeat(20_000);
        // What is to be said next is ready when the last has gone.
        let (ready, next) = std::sync::mpsc::sync_channel(16);
        std::thread::spawn(move || {
            loop {
                let mut sealed = Vec::new();
                if channel.seal(&said, &mut sealed).is_err() || ready.send(sealed).is_err() {
                    return;
                }
            }
        });
        while next.recv().is_ok_and(|sealed| stream.write_all(&sealed).is_ok()) {}
    });
    let cores = Cores::default();
    let link = Link::new(peer, Patience::default(), Some(cores.of(0))).unwrap();
    until("it is up", || link.standing().connections > 0);
    let since = Instant::now();
    assert!(read(&link, 0, 4096).is_err());
    // Whoever else has this core has it now and then.
    drop(cores.of(0).burst());
    drop(link);
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
}

/// A donor that takes links, and answers nothing that comes over them: each new link says nothing of whether it lives.
#[test]
fn a_donor_that_only_takes_links_is_lost() {
    let mut kept = Vec::new();
    let peer = linked_by(move |mut stream, mut channel| {
        // Once it says how it stands.
        if kept.is_empty() {
            let mut sealed = Vec::new();
            channel.seal(&how_it_stands(), &mut sealed).unwrap();
            stream.write_all(&sealed).unwrap();
        }
        kept.push((stream, channel));
    });
    let link = Link::new(peer, Patience::default(), None).unwrap();
    until("it is up", || link.standing().state == DonorState::Up);
    assert!(read(&link, 0, 4096).is_err());
    until("it is lost", || link.standing().state == DonorState::Lost);
    let before = link.standing().connections;
    until("there are more links", || link.standing().connections > before + 1);
    assert_eq!(link.standing().state, DonorState::Lost);
}

/// A donor that says how it stands, and answers no ping: its link is made anew, and another time it may answer.
#[test]
fn a_ping_that_is_left_out_ends_the_link() {
    let peer = linked_by(|mut stream, mut channel| {
        std::thread::spawn(move || {
            loop {
                let mut sealed = Vec::new();
                channel.seal(&how_it_stands(), &mut sealed).unwrap();
                if stream.write_all(&sealed).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
    });
    let patience = Patience { donor: Duration::from_millis(100), ..Patience::default() };
    let link = Link::new(peer, patience, None).unwrap();
    until("there is a second link", || link.standing().connections > 1);
}
