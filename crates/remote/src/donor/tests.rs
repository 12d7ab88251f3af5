//! A donor under hostile borrowers, and over a log.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use clew_core::DonorId;
use clew_core::seeded::Seeded;
use clew_store::flash::{Flash, FlashConfig, LogId, ReadsAhead};

use super::*;
use crate::borrowed::Borrowed;
use crate::link::tests::{pair, proxy, until};
use crate::patience::Patience;
use crate::secure::{Channel, Session};
use crate::wire::{Frames, HEAD_BYTES, Head, Kind};

/// Whatever a borrower sends that has proven who it is: the donor answers, or ends the link, and serves others.
#[test]
fn a_hostile_borrower_harms_nobody() {
    let pair = pair(Lending::of(1 << 20));
    let mut draw = Seeded::of(11, &[]);
    for round in 0..300 {
        let mut stream = TcpStream::connect(pair.donor.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let session = Session([draw.below(3) as u8; 16]);
        let channel = Channel::connect(&mut stream, &pair.borrower, pair.key, session);
        let mut channel = channel.expect("it is known");
        let mut plain = Vec::new();
        for _ in 0..draw.below(20) {
            let mut head = [0; HEAD_BYTES];
            head[0] = [1, 2, 3, 4, 5, 65, 66, 67, 9][draw.below(9) as usize];
            let len = draw.below(3) * draw.below(3000);
            let said = if draw.below(10) == 0 { draw.draw() as u32 } else { len as u32 };
            head[4..8].copy_from_slice(&said.to_le_bytes());
            head[8..16].copy_from_slice(&draw.draw().to_le_bytes());
            let at = if draw.below(2) == 0 { draw.draw() } else { draw.below(5) * 4096 };
            head[16..].copy_from_slice(&at.to_le_bytes());
            plain.extend_from_slice(&head);
            plain.extend((0..len).map(|_| draw.draw() as u8));
        }
        let mut sealed = Vec::new();
        channel.seal(&plain, &mut sealed).unwrap();
        if draw.below(4) == 0 && !sealed.is_empty() {
            let at = draw.below(sealed.len() as u64) as usize;
            sealed[at] ^= 1 << draw.below(8);
        }
        let _ = stream.write_all(&sealed);
        if draw.below(3) == 0 {
            let mut came = [0; 4096];
            let mut frames = Frames::default();
            if let Ok(len) = stream.read(&mut came) {
                channel.open(&came[..len], &mut frames).expect("a donor keeps to the protocol");
            }
        }
        assert!(pair.donor.lent().used_bytes <= 1 << 20, "round {round}");
    }
    // And one that has not.
    for _ in 0..100 {
        let mut stream = TcpStream::connect(pair.donor.address()).unwrap();
        let bytes: Vec<u8> = (0..draw.below(600)).map(|_| draw.draw() as u8).collect();
        let _ = stream.write_all(&bytes);
    }
    until("all links end", || pair.donor.lent().links == 0);
    assert!(pair.donor.lent().used_bytes <= 1 << 20);
}

fn log_over(link: crate::link::Link, slots: u64) -> Arc<Flash> {
    let config = FlashConfig {
        log: LogId::at(DonorId::FIRST),
        segment_bytes: 64 << 10,
        buffers: 16,
        reads_ahead: ReadsAhead::IfUsed,
        writers: 1,
    };
    let device = Borrowed::new(link, 4096 + slots * (64 << 10));
    Arc::new(Flash::new(config, Box::new(device)).unwrap())
}

/// Objects of a log at a donor, by who keeps to the protocol and by one that lies: each is as it was put, or it is an error.
#[test]
fn a_log_at_a_donor_gives_back_what_was_put_or_nothing() {
    let pair = pair(Lending::of(32 << 20));
    let proxy = proxy(&pair.donor);
    let flash = log_over(pair.link(proxy.address(), Patience::default()), 256);
    let object = |number: u32| -> Vec<u8> {
        (0..1000 + number % 3000).map(|i| (i ^ number) as u8).collect()
    };
    let mut places = Vec::new();
    for number in 1..=3000u32 {
        let place = loop {
            match flash.put(number, &mut object(number)) {
                Ok(place) => break place,
                // As many are on their way as memory is there for.
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        places.push((number, place));
    }
    assert!(flash.flush());
    // A donor has nothing of them as they are.
    for (number, place) in &places {
        assert_eq!(
            flash.read_now(*number, *place).as_deref(),
            Ok(&object(*number)[..]),
            "{number}"
        );
    }
    // What a donor would exchange for another is no object.
    for ((number, _), (_, other)) in places.iter().zip(places.iter().skip(1)).take(50) {
        assert!(flash.read_now(*number, *other).is_err());
    }
    let used = pair.donor.lent().used_bytes;
    for (_, place) in &places {
        flash.free(*place);
    }
    until("all is given back", || pair.donor.lent().used_bytes == 0);
    assert!(used > 3000 * 1000);
}

/// A donor's memory is changed under it, as a hostile donor would: nothing of that is believed.
#[test]
fn bytes_that_a_donor_changed_are_not_believed() {
    let pair = pair(Lending::of(8 << 20));
    let flash = log_over(pair.link(pair.donor.address(), Patience::default()), 64);
    let bytes = vec![5; 3000];
    let place = flash.put(7, &mut bytes.clone()).unwrap();
    let other = flash.put(8, &mut vec![6; 3000]).unwrap();
    assert!(flash.flush());
    // The same place, written by somebody who has the same session and not the key of the log.
    let liar = pair.link(pair.donor.address(), Patience::default());
    let (tell, told) = std::sync::mpsc::channel();
    liar.write(4096, vec![5; 64 << 10], Box::new(move |wrote| drop(tell.send(wrote))));
    told.recv().unwrap().unwrap();
    assert!(flash.read_now(7, place).is_err());
    assert!(flash.read_now(8, other).is_err());
}

/// What a borrower had is free again once it has said goodbye, and it waits for nobody who is out of reach for longer than it
/// was told to.
#[test]
fn a_borrower_that_says_goodbye_leaves_nothing() {
    use crate::borrowed::Lender;

    let pair = pair(Lending::of(8 << 20));
    let proxy = proxy(&pair.donor);
    let lender = Borrowed::new(pair.link(proxy.address(), Patience::default()), 8 << 20);
    let put = |at: u64| {
        let (tell, told) = std::sync::mpsc::channel();
        let told_of = move |wrote: io::Result<()>| tell.send(wrote.is_ok()).unwrap();
        crate::borrowed::Single::put(&lender, at, vec![3; 64 << 10], Box::new(told_of));
        assert!(told.recv().unwrap());
    };
    (0..10).for_each(|number| put(4096 + number * (64 << 10)));
    assert!(pair.donor.lent().used_bytes > 10 * (64 << 10));
    lender.say_goodbye(Duration::from_secs(30));
    assert_eq!(pair.donor.lent().used_bytes, 0);
    // It is still there, should it be asked again.
    put(4096);
    proxy.act(crate::proxy::Act::Stop);
    lender.say_goodbye(Duration::from_millis(100));
    assert!(pair.donor.lent().used_bytes > 0);
}

/// Who writes waits until buffers are free again, and gives up when they are not.
#[test]
fn who_finds_all_buffers_on_their_way_waits_for_one() {
    let pair = pair(Lending::of(32 << 20));
    let proxy = proxy(&pair.donor);
    let flash = log_over(pair.link(proxy.address(), Patience::default()), 256);
    let (few, enough) = (Duration::from_millis(50), Duration::from_secs(30));
    let at_a_time = flash.room_at_a_time(4096);
    assert_eq!(at_a_time, 8 * 15, "half of sixteen buffers");
    proxy.act(crate::proxy::Act::Stop);
    let mut handle = 0;
    while flash.put(handle + 1, &mut vec![1; 4096]).is_ok() {
        handle += 1;
    }
    assert_eq!(handle, 16 * 15, "all of them");
    assert!(!flash.wait_for_room(1, 4096, few));
    proxy.act(crate::proxy::Act::Pass);
    assert!(flash.wait_for_room(usize::MAX, 4096, enough));
    for _ in 0..at_a_time {
        handle += 1;
        flash.put(handle, &mut vec![1; 4096]).expect("it was waited for");
    }
}

/// Asks how the donor stands; whether it says anything.
fn asks(channel: &mut Channel, stream: &mut TcpStream) -> bool {
    let mut sealed = Vec::new();
    channel.seal(&Head::of(Kind::Ping, 1, 0).to_bytes(), &mut sealed).unwrap();
    stream.write_all(&sealed).is_ok() && stream.read(&mut [0; 9]).is_ok_and(|len| len > 0)
}

/// A stream, and all that was written to it.
struct Recorded(TcpStream, Vec<u8>);

impl Read for Recorded {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.0.read(bytes)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.0.write(bytes)?;
        self.1.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Who has heard how a link began, and has no keys, says it again: the link goes on, and its borrower has all its places.
#[test]
fn what_began_a_link_is_worth_nothing_when_it_is_said_again() {
    let pair = pair(Lending::of(1 << 20));
    let connect = || {
        let stream = TcpStream::connect(pair.donor.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    };
    let mut recorded = Recorded(connect(), Vec::new());
    let session = Session([1; 16]);
    let channel = Channel::connect(&mut recorded, &pair.borrower, pair.key, session);
    let (mut channel, Recorded(mut stream, said)) = (channel.expect("it is known"), recorded);
    assert!(asks(&mut channel, &mut stream));
    let again: Vec<TcpStream> = (0..MOST_OF_ONE)
        .map(|_| {
            let mut stream = connect();
            stream.write_all(&said).unwrap();
            // Its version, and the answer to what began the link.
            stream.read_exact(&mut [0; 4]).unwrap();
            stream
        })
        .collect();
    // A link that has lost its area is told at a heartbeat.
    let until = std::time::Instant::now() + 3 * HEARTBEAT;
    while std::time::Instant::now() < until {
        assert!(stream.read(&mut [0; 4096]).is_ok_and(|len| len > 0), "its link has ended");
    }
    assert_eq!(pair.donor.shared.borrowers.lock().values().sum::<usize>(), 1);
    drop(again);
}

/// Connections that say nothing, as many as can be made, and links of one borrower that has proven who it is: another
/// has its own all the same.
#[test]
fn who_only_connects_keeps_nobody_out() {
    let pair = pair(Lending::of(1 << 20));
    let address = pair.donor.address();
    let silent: Vec<TcpStream> =
        (0..3 * MOST_LINKS).map(|_| TcpStream::connect(address).unwrap()).collect();
    let links = |identity: &crate::keys::Identity, count: usize| -> Vec<(TcpStream, bool)> {
        let of_one = |number: usize| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let session = Session([number as u8; 16]);
            let made = Channel::connect(&mut stream, identity, pair.key, session);
            // How it stands is the first that a donor says, to who asks.
            let is_up = made.is_ok_and(|mut channel| asks(&mut channel, &mut stream));
            (stream, is_up)
        };
        (0..count).map(of_one).collect()
    };
    let up = |links: &[(TcpStream, bool)]| links.iter().filter(|(_, is_up)| *is_up).count();
    let own = links(&pair.borrower, 2 * MOST_OF_ONE);
    assert_eq!(up(&own), MOST_OF_ONE);
    let other = crate::keys::Identity::random().unwrap();
    pair.keys.know(other.public(), "another").unwrap();
    assert_eq!(up(&links(&other, 1)), 1);
    drop((silent, own));
    until("all links end", || pair.donor.lent().links == 0);
    assert!(pair.donor.shared.borrowers.lock().is_empty());
}
