//! The files in tests/corpus/trace are what this version writes: whoever changes the format sees it
//! here, and makes them anew with `CLEW_WRITE_CORPUS=1`.

use std::fs;
use std::path::PathBuf;

use clew_core::{
    AccessKind, AppId, CodecKind, DeviceFacts, DonorId, DonorState, Hotness, Ns, PageId, PageRun,
    SpaceId, Tier, Trigger, Vpn,
};
use clew_trace::{
    ContentId, ContentStats, ContentsKind, Header, Note, Provenance, Reader, Record, Source, Trace,
    TraceError, Writer,
};
use twox_hash::XxHash3_64;

fn page(space: u32, vpn: u64) -> PageId {
    PageId::new(SpaceId(space), Vpn(vpn))
}

/// One of each record.
fn all_records() -> Vec<Record> {
    let (app, one) = (AppId(1), page(0, 0x7_f123_4567));
    let run = PageRun { first: one, count: 12 };
    let notes = [
        Note::AskedPages { pages: 512, urgent: true },
        Note::AskedApp { app },
        Note::AskedPrefetch { trigger: Trigger::Relaunch(app) },
        Note::AskedPrefetch { trigger: Trigger::Fault(one) },
        Note::AskedPrefetch { trigger: Trigger::Hit(one) },
        Note::Group {
            pages: 1,
            tier: Tier::Pool,
            codec: CodecKind::Lz4,
            chunk_bytes: 4096,
            hotness: Some(Hotness::Cold),
            park_siblings: false,
        },
        Note::Victim { page: one },
        Note::Prefetch { page: one },
        Note::EndApp { app },
        Note::Stored { page: one, tier: Tier::Kernel, bytes: 1300 },
        Note::Stayed { page: one },
        Note::PageIn { page: one, tier: Tier::Kernel, demand: true },
        Note::Dropped { page: one, tier: Tier::Pool },
        Note::PrefetchUsed { page: one },
        Note::PrefetchExpired { page: one },
        Note::Unused { run },
        Note::TierUse { tier: Tier::Pool, used_bytes: 123_456, pages: 99 },
        Note::AskedSamples { app, pages: 700, run_pages: 8 },
        Note::Sample { run },
        Note::Spared { app },
        Note::Tick,
        Note::Pressure { pages: 77, urgent: true },
        Note::JobDone { job: 5 },
        Note::DeviceSample {
            device: DeviceFacts { used_bytes: 300, total_bytes: 1 << 40, written_bytes: 4096 },
        },
        Note::Donor { donor: DonorId::FIRST, state: DonorState::Lost },
        Note::Stored { page: one, tier: Tier::Donor(DonorId::FIRST), bytes: 4096 },
        Note::Used { run },
    ];
    let mut records = vec![
        Record::Launch { app },
        Record::SpaceStart { space: SpaceId(0), app, file: false },
        Record::SpaceStart { space: SpaceId(5), app, file: true },
        Record::Resident { run },
        Record::Resident { run: PageRun { first: page(5, 0), count: 3 } },
        Record::Access { page: one, kind: AccessKind::Fresh, write: true },
        Record::Access { page: one.plus(1), kind: AccessKind::Fault, write: false },
        Record::Access { page: page(5, 2), kind: AccessKind::Seen, write: false },
        Record::Contents { page: one, content: ContentId(0) },
        Record::Contents { page: one.plus(3), content: ContentId(1) },
        Record::Candidate { page: one },
        Record::Window { app },
        Record::Relaunch { app },
        Record::ResponseComplete { app, response_ns: 63_000_000 },
        Record::Background { app },
    ];
    records.extend(notes.map(Record::Note));
    records.extend([
        Record::Moved { from: run, to: page(0, 0x7_f000_0000) },
        Record::Freed { run: PageRun { first: page(0, 0x7_f000_0002), count: 2 } },
        Record::SpaceEnd { space: SpaceId(5) },
        Record::Exit { app },
    ]);
    records
}

fn trace(contents: ContentsKind, page_bytes: u32, flush_every: usize) -> Vec<u8> {
    let mut provenance = Provenance::new(Source::Generated, "corpus");
    provenance.seed = Some(1);
    let header = Header { page_bytes, contents, provenance };
    let mut writer = Writer::new(Vec::new(), &header).expect("a header");
    writer.app(AppId(1), "editor").expect("a name");
    match contents {
        ContentsKind::None => {}
        ContentsKind::Stats => {
            for n in 0..2 {
                let stats = ContentStats { entropy: 90, lz4_page: 1400 + n, ..Default::default() };
                writer.stats(n.into(), &stats).expect("stats");
            }
        }
        ContentsKind::Bytes => {
            for n in 0..2 {
                let page: Vec<u8> = (0..page_bytes).map(|i| (i / 64 * (n + 3)) as u8).collect();
                writer.bytes(&page).expect("contents");
            }
        }
    }
    for (i, record) in all_records().into_iter().enumerate() {
        if contents == ContentsKind::None && matches!(record, Record::Contents { .. }) {
            continue;
        }
        writer.record(Ns(1000 * (i as u64 / 3)), record).expect("a record");
        if i % flush_every == flush_every - 1 {
            writer.flush().expect("room");
        }
    }
    writer.finish().expect("an end").0
}

fn ariadne() -> [(&'static str, Vec<u8>); 3] {
    let mut raw = Vec::new();
    for n in 0..4u64 {
        let header = format!("TEST^^^#10123,{},{}#^^^\n", 100 + n, 8 * (n % 3));
        let mut record = header.into_bytes();
        record.resize(50, 0);
        record.resize(50 + 4096, n as u8 + 1);
        raw.extend(record);
    }
    let lines = b"10123,0\n10123,16\n10123,99\n10124,8\n".to_vec();
    let words = [10123u64, 100, 0, 0, 10123, 101, 8, 2].map(u64::to_le_bytes).concat();
    [("swapout", raw), ("lines", lines), ("words", words)]
}

/// Bytes of a trace that say that they are of another version, with the checksum that this needs.
fn as_version(mut bytes: Vec<u8>, version: u16) -> Vec<u8> {
    bytes[8..10].copy_from_slice(&version.to_le_bytes());
    let length = u32::from_le_bytes(bytes[16..20].try_into().expect("four bytes")) as usize;
    let seed = XxHash3_64::oneshot_with_seed(1, &bytes[..24]);
    let sum = XxHash3_64::oneshot_with_seed(seed, &bytes[32..32 + length]);
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Whether traces of an older version have it.
fn is_of(record: &Record, version: u16) -> bool {
    match record {
        Record::Note(Note::Used { .. }) => version >= 6,
        Record::Note(Note::Donor { .. } | Note::Stored { tier: Tier::Donor(_), .. }) => {
            version >= 5
        }
        Record::Note(Note::DeviceSample { .. }) => version >= 4,
        Record::Note(Note::Tick | Note::Pressure { .. } | Note::JobDone { .. }) => version >= 3,
        Record::Note(Note::AskedSamples { .. } | Note::Sample { .. } | Note::Spared { .. }) => {
            version >= 2
        }
        _ => true,
    }
}

/// tests/corpus/trace/version-1 was written before there were kinds above 31, version-2 before there
/// were kinds above 34, version-3 before there were kinds above 37, version-4 before there were kinds above 38, version-5 before there were kinds
/// above 39.
#[test]
fn older_versions_are_read_and_have_no_later_kinds() {
    let corpus = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/trace"));
    let read = |bytes: &[u8]| -> Result<Vec<Record>, TraceError> {
        let reader = Reader::new(bytes)?.checking_contents();
        reader.map(|stamped| stamped.map(|stamped| stamped.record)).collect()
    };
    for version in [1, 2, 3, 4, 5] {
        let path = corpus.join(format!("version-{version}"));
        let old = fs::read(&path).expect("a trace");
        assert_eq!(old[8..10], [version, 0]);
        let known: Vec<Record> =
            all_records().into_iter().filter(|record| is_of(record, version.into())).collect();
        assert_eq!(read(&old).expect("a good trace"), known);
        let opened = Trace::open(&path).expect("a trace");
        assert_eq!(opened.totals().records(), known.len() as u64);
    }
    let new = trace(ContentsKind::Bytes, 4096, 100);
    for (version, first) in [
        (1, "asked-samples in version 1"),
        (2, "tick in version 2"),
        (3, "device-sample in version 3"),
        (4, "donor in version 4"),
        (5, "used in version 5"),
    ] {
        let error = read(&as_version(new.clone(), version)).expect_err("kinds of a later version");
        assert!(error.to_string().contains(first), "{error}");
    }
    for unknown in [0, 7] {
        let error = read(&as_version(new.clone(), unknown)).expect_err("unknown");
        assert!(matches!(error, TraceError::Version { .. }), "{error}");
    }
}

#[test]
fn the_corpus_is_what_is_written() {
    let files = [
        ("trace/policy-only", trace(ContentsKind::None, 4096, 100)),
        ("trace/stats", trace(ContentsKind::Stats, 4096, 7)),
        ("trace/bytes", trace(ContentsKind::Bytes, 4096, 100)),
        ("trace/bytes-16k", trace(ContentsKind::Bytes, 16384, 20)),
    ];
    let files = files.map(|(name, bytes)| (name.to_string(), bytes));
    let others = ariadne().map(|(name, bytes)| (format!("ariadne/{name}"), bytes));
    let corpus = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus"));
    for (name, bytes) in files.into_iter().chain(others) {
        let path = corpus.join(&name);
        if std::env::var_os("CLEW_WRITE_CORPUS").is_some() {
            fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            fs::write(&path, &bytes).expect("room");
        }
        let there = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(there == bytes, "{name} differs from what is written now");
    }
}
