//! Bad traces: refused with the place, and with nothing else.

use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use clew_core::{AccessKind, AppId, Ns, PageId, PageRun, SpaceId, Vpn};
use clew_trace::{
    ContentId, ContentsKind, Header, Provenance, Reader, Record, Source, Stamped, Trace,
    TraceError, Writer,
};

fn header(contents: ContentsKind) -> Header {
    Header { page_bytes: 4096, contents, provenance: Provenance::new(Source::Generated, "damage") }
}

fn access(space: u32, vpn: u64) -> Record {
    let page = PageId::new(SpaceId(space), Vpn(vpn));
    Record::Access { page, kind: AccessKind::Seen, write: false }
}

/// A trace of two blocks of records, and one of contents in between.
fn sample() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(ContentsKind::Bytes)).expect("a header");
    writer.app(AppId(1), "one").expect("a name");
    writer.record(Ns(0), Record::Launch { app: AppId(1) }).expect("a launch");
    let space = Record::SpaceStart { space: SpaceId(0), app: AppId(1), file: false };
    writer.record(Ns(1), space).expect("a space");
    for i in 0..50 {
        writer.record(Ns(2 + i), access(0, i * i)).expect("an access");
    }
    writer.flush().expect("room");
    for i in 0..6u8 {
        let mut page = vec![i; 4096];
        page[usize::from(i)] = 77;
        let content = writer.bytes(&page).expect("contents");
        let page = PageId::new(SpaceId(0), Vpn(u64::from(i)));
        writer.record(Ns(100), Record::Contents { page, content }).expect("contents");
    }
    writer.finish().expect("an end").0
}

fn read(bytes: &[u8]) -> Result<Vec<Stamped>, TraceError> {
    Reader::new(bytes)?.checking_contents().collect()
}

fn open(bytes: &[u8]) -> Result<Trace, TraceError> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), bytes).expect("room");
    Trace::open(file.path())
}

#[test]
fn every_prefix_is_truncated() {
    let whole = sample();
    assert_eq!(read(&whole).expect("whole").len(), 58);
    assert!(open(&whole).is_ok());
    for length in 0..whole.len() {
        let error = read(&whole[..length]).expect_err("cut off");
        match error {
            TraceError::NotATrace => assert_eq!(length, 0),
            TraceError::Truncated { offset } => assert!(offset <= length as u64),
            other => panic!("{length} of {} bytes: {other}", whole.len()),
        }
        let error = open(&whole[..length]).expect_err("cut off");
        let cut = matches!(error, TraceError::Truncated { .. } | TraceError::NotATrace);
        assert!(cut, "{length} of {} bytes: {error}", whole.len());
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let whole = sample();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            assert!(read(&bytes).is_err(), "bit {bit} of byte {at} was changed and not noticed");
        }
    }
}

#[test]
fn blocks_that_are_doubled_dropped_or_exchanged_are_noticed() {
    let whole = sample();
    // Where blocks begin: after the header, each says how long it is.
    let word = |at: usize| {
        u32::from_le_bytes([whole[at], whole[at + 1], whole[at + 2], whole[at + 3]]) as usize
    };
    let mut at = 32 + word(16);
    let mut blocks = Vec::new();
    while at < whole.len() - 16 {
        let end = at + 24 + word(at + 4);
        blocks.push(at..end);
        at = end;
    }
    assert!(blocks.len() >= 5, "{blocks:?}");
    for (i, one) in blocks.iter().enumerate() {
        let mut without = whole.clone();
        without.drain(one.clone());
        assert!(read(&without).is_err(), "block {i} is missing");
        let mut twice = whole.clone();
        twice.splice(one.end..one.end, whole[one.clone()].to_vec());
        assert!(read(&twice).is_err(), "block {i} comes twice");
    }
    for pair in blocks.windows(2) {
        let (one, two) = (pair[0].clone(), pair[1].clone());
        let mut exchanged = whole.clone();
        let other: Vec<u8> = [&whole[two.clone()], &whole[one.clone()]].concat();
        exchanged[one.start..two.end].copy_from_slice(&other);
        assert!(read(&exchanged).is_err(), "{one:?} and {two:?} were exchanged");
    }
}

#[test]
fn a_pipe_is_no_trace_and_nobody_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(Trace::open(&path).map(drop)));
    let opened = told.recv_timeout(Duration::from_secs(60)).expect("it waits for nobody");
    assert!(opened.unwrap_err().to_string().contains("no regular file"));
}

#[test]
fn errors_say_what_and_where() {
    let whole = sample();
    let said = |bytes: &[u8]| read(bytes).expect_err("damaged").to_string();
    let mut other = whole.clone();
    other[0] = b'X';
    assert!(said(&other).contains("not a trace"), "{}", said(&other));
    let mut other = whole.clone();
    other[8] = 9;
    assert!(said(&other).contains("version 9"), "{}", said(&other));
    let mut other = whole.clone();
    other.push(0);
    assert!(said(&other).contains(&format!("byte {}", whole.len())), "{}", said(&other));
    let mut other = whole.clone();
    let last = other.len() - 40;
    other[last] ^= 1;
    assert!(said(&other).contains("the end"), "{}", said(&other));
    assert!(said(&whole[..100]).contains("ends at byte"), "{}", said(&whole[..100]));
}

#[test]
fn a_writer_refuses_what_could_not_be_read_and_goes_on() {
    let mut writer = Writer::new(Vec::new(), &header(ContentsKind::Bytes)).expect("a header");
    writer.app(AppId(1), "one").expect("a name");
    let start = Record::SpaceStart { space: SpaceId(3), app: AppId(1), file: false };
    writer.record(Ns(10), start).expect("a space");
    let page = PageId::new(SpaceId(3), Vpn(1));
    let last = PageId::new(SpaceId(3), Vpn((1 << 44) - 1));
    let refused = [
        (Ns(10), access(2, 1), "space"),
        (Ns(9), access(3, 1), "time"),
        // Whoever goes by times adds to them.
        (Ns(1 << 63), access(3, 1), "time"),
        (Ns(10), Record::Launch { app: AppId(2) }, "app"),
        (Ns(10), Record::SpaceStart { space: SpaceId(1), app: AppId(7), file: false }, "app"),
        (
            Ns(10),
            Record::SpaceStart { space: SpaceId(1 << 19), app: AppId(1), file: false },
            "space",
        ),
        (Ns(10), Record::Contents { page, content: ContentId(0) }, "contents"),
        (Ns(10), Record::Resident { run: PageRun { first: page, count: 0 } }, "pages"),
        (Ns(10), Record::Freed { run: PageRun { first: last, count: 2 } }, "pages"),
        (Ns(10), Record::Freed { run: PageRun { first: last.plus(1), count: 1 } }, "pages"),
        (Ns(10), Record::Moved { from: PageRun { first: page, count: 2 }, to: last }, "pages"),
    ];
    for (at, record, field) in refused {
        let error = writer.record(at, record).expect_err("refused");
        match &error {
            TraceError::Record { field: named, number: 1, .. } => assert_eq!(*named, field),
            other => panic!("{record:?}: {other}"),
        }
    }
    assert!(writer.app(AppId(1), "two").is_err(), "a second name");
    assert!(writer.app(AppId(2), "").is_err(), "no name");
    assert!(writer.app(AppId(2), "a\nb").is_err(), "a name of two lines");
    assert!(writer.bytes(&[0; 100]).is_err(), "no page");
    assert!(writer.stats(1, &Default::default()).is_err(), "not in this trace");
    writer.record(Ns(10), access(3, 1)).expect("an access");
    writer.record(Ns(11), Record::Exit { app: AppId(1) }).expect("an exit");
    let error = writer.record(Ns(12), access(3, 1)).expect_err("its app has ended");
    assert!(error.to_string().contains("space"), "{error}");
    let (bytes, totals) = writer.finish().expect("an end");
    assert_eq!(totals.records(), 3);
    assert_eq!(read(&bytes).expect("readable").len(), 3);
}

/// A disk that is full.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let room = self.0.min(bytes.len());
        self.0 -= room;
        match room {
            0 => Err(std::io::ErrorKind::StorageFull.into()),
            room => Ok(room),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_said_and_nothing_follows_half_a_block() {
    for room in [0, 10, 200, 400, 1000] {
        let write = || -> Result<(), TraceError> {
            let mut writer = Writer::new(Full(room), &header(ContentsKind::None))?;
            writer.app(AppId(1), "one")?;
            let start = Record::SpaceStart { space: SpaceId(0), app: AppId(1), file: false };
            writer.record(Ns(0), start)?;
            for i in 0..10_000 {
                writer.record(Ns(i * 977), access(0, i * i * 31 % 1_000_000))?;
            }
            if let Err(error) = writer.flush() {
                let again = writer.flush().expect_err("no second try");
                assert!(again.to_string().contains("earlier"), "{again}");
                return Err(error);
            }
            writer.finish().map(drop)
        };
        match write().expect_err("no room") {
            error @ TraceError::Write { .. } => assert!(!error.is_bad_input()),
            other => panic!("{other}"),
        }
    }
}
