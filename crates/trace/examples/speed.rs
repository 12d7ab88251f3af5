//! How fast records are written and read: `cargo run --release -p clew-trace --example speed`.

use std::time::Instant;

use clew_core::{AccessKind, AppId, Ns, PageId, SpaceId, Vpn};
use clew_trace::{ContentsKind, Header, Provenance, Reader, Record, Source, Writer};

const RECORDS: u64 = 10_000_000;
const APPS: u32 = 8;

fn main() {
    let provenance = Provenance::new(Source::Generated, "speed");
    let header = Header { page_bytes: 4096, contents: ContentsKind::None, provenance };
    let mut writer = Writer::new(Vec::new(), &header).expect("a header");
    for app in 0..APPS {
        writer.app(AppId(app), &format!("app{app}")).expect("a name");
        let space = SpaceId(app);
        let start = Record::SpaceStart { space, app: AppId(app), file: false };
        writer.record(Ns(0), start).expect("a space");
    }
    // Runs of neighbours at random places, now and then in another app.
    let mut random = 1u64;
    let mut next = || {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        random >> 33
    };
    let (mut space, mut vpn) = (0, 0);
    let began = Instant::now();
    for i in 0..RECORDS {
        match next() % 64 {
            0 => space = (next() % u64::from(APPS)) as u32,
            1..16 => vpn = next() % 100_000,
            _ => vpn += 1,
        }
        let page = PageId::new(SpaceId(space), Vpn(0x7_f000_0000 + vpn));
        let access = Record::Access { page, kind: AccessKind::Seen, write: next() % 4 == 0 };
        writer.record(Ns(i * 1000 + next() % 1000), access).expect("a record");
    }
    let (bytes, _) = writer.finish().expect("an end");
    let wrote = began.elapsed().as_secs_f64();
    let began = Instant::now();
    let (mut count, mut sum) = (0u64, 0u64);
    for stamped in Reader::new(bytes.as_slice()).expect("a header") {
        let stamped = stamped.expect("a record");
        count += 1;
        sum = sum.wrapping_add(stamped.at.0);
        if let Record::Access { page, .. } = stamped.record {
            sum = sum.wrapping_add(page.raw());
        }
    }
    let read = began.elapsed().as_secs_f64();
    let million = RECORDS as f64 / 1e6;
    println!("{count} records, {:.2} bytes each (sum {sum})", bytes.len() as f64 / count as f64);
    println!("written: {:.1} million a second", million / wrote);
    println!("read:    {:.1} million a second", million / read);
}
