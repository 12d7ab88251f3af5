//! Two donors, of which one is lost, comes back, and is lost again.

use std::time::Duration;

use clew_core::DonorId;
use clew_core::seeded::Seeded;
use clew_store::flash::{Flash, FlashConfig, FlashLeft, LogId, MemoryDevice, Place, ReadsAhead};
use std::os::fd::AsFd;

use super::record::Record;
use super::*;
use crate::borrowed::Borrowed;
use crate::donor::Lending;
use crate::link::tests::{Pair, pair, proxy, until};
use crate::patience::Patience;
use crate::proxy::{Act, Proxy};

fn impatient() -> Patience {
    Patience {
        link: Duration::from_millis(1000),
        donor: Duration::from_millis(2000),
        gives_up_writes: true,
        ..Patience::default()
    }
}

const CHUNK: u64 = 64 << 10;
const BYTES: u64 = 4096 + 256 * CHUNK;

fn lender(pair: &Pair, proxy: &Proxy) -> Arc<dyn Single> {
    Arc::new(Borrowed::new(pair.link(proxy.address(), impatient()), BYTES))
}

fn config() -> FlashConfig {
    FlashConfig {
        log: LogId::at(DonorId::FIRST),
        segment_bytes: CHUNK as u32,
        buffers: 8,
        reads_ahead: ReadsAhead::Never,
        writers: 1,
    }
}

fn log_over(copies: impl Device) -> Flash {
    Flash::new(config(), Box::new(copies)).unwrap()
}

/// All of it is as it was put.
fn is_all_there(flash: &Flash, there: &[(u32, Place)], when: &str) {
    for (number, place) in there {
        let came = flash.read_now(*number, *place);
        assert_eq!(came.as_deref(), Ok(&object(*number)[..]), "{number} {when}");
    }
}

fn object(number: u32) -> Vec<u8> {
    (0..2000 + number % 2000).map(|i| (i ^ number) as u8).collect()
}

fn put(flash: &Flash, number: u32) -> Place {
    let since = std::time::Instant::now();
    loop {
        match flash.put(number, &mut object(number)) {
            Ok(place) => return place,
            Err(error) => assert!(since.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Objects are put, read and freed while either donor is cut off, never both at once: each is as it was put.
#[test]
fn one_of_two_donors_may_be_lost_at_any_time() {
    let pairs = [pair(Lending::of(32 << 20)), pair(Lending::of(32 << 20))];
    let proxies = [0, 1].map(|i| proxy(&pairs[i].donor));
    let [first, second] = [0, 1].map(|i| lender(&pairs[i], &proxies[i]));
    let copies = Copies::new(first, Second::Lender(second), 0, Pieces::default()).unwrap();
    let copies = Arc::new(copies);
    let flash = log_over(copies.clone());
    let mut draw = Seeded::of(5, &[]);
    let mut there: Vec<(u32, Place)> = Vec::new();
    let mut number = 0;
    for round in 0..6 {
        let cut = &proxies[round % 2];
        cut.act(Act::Cut);
        for _ in 0..60 {
            number += 1;
            there.push((number, put(&flash, number)));
        }
        assert!(flash.flush());
        for _ in 0..20 {
            let (_, place) = there.swap_remove(draw.below(there.len() as u64) as usize);
            flash.free(place);
        }
        is_all_there(&flash, &there, &format!("in round {round}"));
        cut.act(Act::Pass);
        until("both have everything", || copies.standing().state == DonorState::Up);
    }
}

/// The second copy is in a file, so to say: the donor is lost for good, and nothing is.
#[test]
fn what_is_in_a_file_too_outlives_its_donor() {
    let pair = pair(Lending::of(32 << 20));
    let proxy = proxy(&pair.donor);
    let file: Arc<dyn Device> = Arc::new(MemoryDevice::new(4096 + (1 << 20) + 256 * (64 << 10)));
    let first = lender(&pair, &proxy);
    let copies =
        Copies::new(first.clone(), Second::File(file), 1 << 20, Pieces::default()).unwrap();
    let flash = log_over(copies);
    let there: Vec<(u32, Place)> = (1..200).map(|number| (number, put(&flash, number))).collect();
    assert!(flash.flush());
    proxy.act(Act::Cut);
    until("it is lost", || first.standing().state == DonorState::Lost);
    is_all_there(&flash, &there, "after its donor");
}

/// One donor stands still, and is waited for as long as anybody likes: what both have, the other one gives, whichever it
/// is.
#[test]
fn who_is_late_is_not_waited_for() {
    let long = Duration::from_secs(3600);
    let patient = Patience { link: long, donor: long, ..impatient() };
    for stands_still in 0..2 {
        let pairs = [pair(Lending::of(32 << 20)), pair(Lending::of(32 << 20))];
        let proxies = [0, 1].map(|i| proxy(&pairs[i].donor));
        let [first, second] = [0, 1].map(|i| {
            let link = pairs[i].link(proxies[i].address(), patient);
            Arc::new(Borrowed::new(link, BYTES)) as Arc<dyn Single>
        });
        let copies = Copies::new(first, Second::Lender(second), 0, Pieces::default()).unwrap();
        let copies = Arc::new(copies);
        let flash = log_over(copies.clone());
        let there: Vec<(u32, Place)> = (1..80).map(|n| (n, put(&flash, n))).collect();
        assert!(flash.flush());
        until("both have everything", || copies.standing().state == DonorState::Up);
        // A read that nobody answers would be waited for for an hour.
        proxies[stands_still].act(Act::Stop);
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            is_all_there(&flash, &there, "while one stands still");
            let _ = tell.send(());
        });
        told.recv_timeout(Duration::from_secs(60)).expect("all is read");
    }
}

/// What is written before one of the two was reached (a successor writes at once) is written there, too, when it is: the
/// other one may be lost then.
#[test]
fn who_was_not_reached_yet_gets_what_is_written() {
    let long = Duration::from_secs(60);
    let patient = Patience { link: long, donor: long, ..impatient() };
    let pairs = [pair(Lending::of(32 << 20)), pair(Lending::of(32 << 20))];
    let proxies = [0, 1].map(|i| proxy(&pairs[i].donor));
    proxies[0].act(Act::Stop);
    let [first, second] = [0, 1].map(|i| {
        let link = pairs[i].link(proxies[i].address(), patient);
        Arc::new(Borrowed::new(link, BYTES)) as Arc<dyn Single>
    });
    until("the second is up", || second.standing().state == DonorState::Up);
    let copies = Copies::new(first, Second::Lender(second), 0, Pieces::default()).unwrap();
    let flash = log_over(copies);
    let there: Vec<(u32, Place)> = (1..20).map(|n| (n, put(&flash, n))).collect();
    std::thread::scope(|scope| {
        let flushed = scope.spawn(|| flash.flush());
        std::thread::sleep(Duration::from_millis(300));
        proxies[0].act(Act::Pass);
        assert!(flushed.join().unwrap());
        proxies[1].act(Act::Cut);
    });
    is_all_there(&flash, &there, "without the second");
}

/// It gives other bytes than it was given.
#[derive(Debug)]
struct Lies(MemoryDevice);

impl Device for Lies {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn align(&self) -> usize {
        self.0.align()
    }

    fn write(&self, write: Write<'_>) -> Option<io::Result<usize>> {
        self.0.write(write)
    }

    fn read(&self, read: Read) {
        let lie = move |came, mut blocks: Blocks| {
            blocks.bytes_mut().iter_mut().for_each(|byte| *byte ^= 1);
            (read.told)(came, blocks);
        };
        self.0.read(Read { told: Box::new(lie), ..read });
    }

    fn way(&self) -> &'static str {
        "lies"
    }
}

/// The link to the honest one was cut, so the other is asked first, and lies: then the honest one is asked.
#[test]
fn who_is_asked_first_and_lies_is_not_asked_alone() {
    let pair = pair(Lending::of(32 << 20));
    let proxy = proxy(&pair.donor);
    let file: Arc<dyn Device> = Arc::new(Lies(MemoryDevice::new(4096 + (1 << 20) + 256 * CHUNK)));
    let first = lender(&pair, &proxy);
    let copies =
        Copies::new(first.clone(), Second::File(file), 1 << 20, Pieces::default()).unwrap();
    let flash = log_over(copies);
    // What it missed would be copied from who lies.
    until("it is up", || first.standing().state == DonorState::Up);
    let there: Vec<(u32, Place)> = (1..80).map(|number| (number, put(&flash, number))).collect();
    assert!(flash.flush());
    for _ in 0..3 {
        let links = first.standing().connections;
        proxy.act(Act::Cut);
        proxy.act(Act::Pass);
        until("it is there again", || first.standing().connections > links);
        is_all_there(&flash, &there, "beside one that lies");
    }
}

/// One donor after the other begins anew, with nothing: what it had is copied there again, without anybody's asking, and then
/// the other one may be lost.
#[test]
fn a_donor_that_began_anew_gets_everything_again() {
    let mut pairs = [pair(Lending::of(32 << 20)), pair(Lending::of(32 << 20))];
    let proxies = [0, 1].map(|i| proxy(&pairs[i].donor));
    let [first, second] = [0, 1].map(|i| lender(&pairs[i], &proxies[i]));
    let both = [first.clone(), second.clone()];
    let copies = Copies::new(first, Second::Lender(second), 0, Pieces::default()).unwrap();
    let copies = Arc::new(copies);
    let flash = log_over(copies.clone());
    let mut there: Vec<(u32, Place)> = Vec::new();
    for round in 0..4 {
        let begins = round % 2;
        until("both have everything", || copies.standing().state == DonorState::Up);
        there
            .extend((1..80).map(|i| (round as u32 * 100 + i, put(&flash, round as u32 * 100 + i))));
        assert!(flash.flush());
        let links = both[begins].standing().connections;
        pairs[begins].begin_anew(Lending::of(32 << 20));
        until("it is there again", || both[begins].standing().connections > links);
        is_all_there(&flash, &there, "while it is copied");
        until("it has everything again", || copies.standing().state == DonorState::Up);
        assert!(pairs[begins].donor.lent().used_bytes >= there.len() as u64 * 2000);
        proxies[1 - begins].act(Act::Cut);
        until("the other is lost", || both[1 - begins].standing().state == DonorState::Lost);
        is_all_there(&flash, &there, "without the other one");
        proxies[1 - begins].act(Act::Pass);
    }
}

/// A daemon ends while one donor is out of reach that has missed something, or that begins anew meanwhile: its successor
/// knows what is missing there, and has it copied.
#[test]
fn a_successor_knows_who_has_what() {
    for begins_anew in [false, true] {
        let mut pairs = [pair(Lending::of(32 << 20)), pair(Lending::of(32 << 20))];
        let proxies = [0, 1].map(|i| proxy(&pairs[i].donor));
        let record = Record::new(BYTES, CHUNK).unwrap();
        let fd = record.as_fd().try_clone_to_owned().unwrap();
        let [first, second] = [0, 1].map(|i| lender(&pairs[i], &proxies[i]));
        let stands = second.clone();
        let pieces = Pieces::new(record);
        let copies = Copies::new(first, Second::Lender(second), 0, pieces).unwrap();
        let flash = log_over(copies);
        let mut there: Vec<(u32, Place)> = (1..80).map(|n| (n, put(&flash, n))).collect();
        assert!(flash.flush());
        proxies[1].act(Act::Cut);
        until("it is lost", || stands.standing().state == DonorState::Lost);
        drop(stands);
        there.extend((100..180).map(|n| (n, put(&flash, n))));
        assert!(flash.flush());
        let fds = flash.segments().map(|fd| fd.try_clone_to_owned().unwrap());
        drop(flash);
        if begins_anew {
            pairs[1].begin_anew(Lending::of(32 << 20));
        }
        let pieces = Pieces::adopt(Record::adopt(fd, CHUNK).unwrap());
        assert!(pieces.has_any(0) && pieces.has_any(1));
        let [first, second]: [Arc<dyn Single>; 2] = [0, 1].map(|i| {
            let link = pairs[i].link_again(proxies[i].address(), impatient(), pieces.has_any(i));
            Arc::new(Borrowed::new(link, BYTES)) as Arc<dyn Single>
        });
        let (stands, there_again) = (first.clone(), second.clone());
        let copies = Copies::new(first, Second::Lender(second), 0, pieces).unwrap();
        let copies = Arc::new(copies);
        let left = FlashLeft { fds };
        let (flash, lost) = Flash::adopt(config(), left, Box::new(copies.clone()), &there).unwrap();
        assert!(lost.is_empty());
        until("the first is up", || stands.standing().state == DonorState::Up);
        assert_eq!(copies.standing().state, DonorState::Single);
        proxies[1].act(Act::Pass);
        until("it is there again", || there_again.standing().connections > 0);
        until("both have everything", || copies.standing().state == DonorState::Up);
        proxies[0].act(Act::Cut);
        until("the first is lost", || stands.standing().state == DonorState::Lost);
        is_all_there(&flash, &there, "without the first");
    }
}
