//! Two donors, of which one is lost, comes back, and is lost again.

use std::time::Duration;

use clew_core::DonorId;
use clew_core::seeded::Seeded;
use clew_store::flash::{Flash, FlashConfig, LogId, MemoryDevice, Place, ReadsAhead};

use super::*;
use crate::borrowed::Borrowed;
use crate::donor::Lending;
use crate::link::Patience;
use crate::link::tests::{Pair, pair, proxy, until};
use crate::proxy::{Act, Proxy};

fn impatient() -> Patience {
    Patience {
        link: Duration::from_millis(1000),
        donor: Duration::from_millis(2000),
        gives_up_writes: true,
        ..Patience::default()
    }
}

fn lender(pair: &Pair, proxy: &Proxy) -> Arc<dyn Single> {
    Arc::new(Borrowed::new(pair.link(proxy.address(), impatient()), 4096 + 256 * (64 << 10)))
}

fn log_over(copies: impl Device) -> Flash {
    let config = FlashConfig {
        log: LogId::at(DonorId::FIRST),
        segment_bytes: 64 << 10,
        buffers: 8,
        reads_ahead: ReadsAhead::Never,
        writers: 1,
    };
    Flash::new(config, Box::new(copies)).unwrap()
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
    let copies = Arc::new(Copies::new(first, Second::Lender(second), 0).unwrap());
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
        for (number, place) in &there {
            let came = flash.read_now(*number, *place);
            assert_eq!(came.as_deref(), Ok(&object(*number)[..]), "{number} in round {round}");
        }
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
    let copies = Copies::new(first.clone(), Second::File(file), 1 << 20).unwrap();
    let flash = log_over(copies);
    let there: Vec<(u32, Place)> = (1..200).map(|number| (number, put(&flash, number))).collect();
    assert!(flash.flush());
    proxy.act(Act::Cut);
    until("it is lost", || first.standing().state == DonorState::Lost);
    for (number, place) in &there {
        assert_eq!(
            flash.read_now(*number, *place).as_deref(),
            Ok(&object(*number)[..]),
            "{number}"
        );
    }
}
