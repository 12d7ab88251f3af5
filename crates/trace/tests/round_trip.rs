//! What is written is what is read: records, names, contents, counts.

use std::io::Cursor;

use clew_core::{
    AccessKind, AppId, CodecKind, DeviceFacts, DonorId, DonorState, Hotness, Ns, PageId, PageRun,
    SpaceId, Tier, Trigger, Vpn,
};
use clew_trace::{
    Content, ContentId, ContentStats, ContentsKind, Draft, Header, Kind, Note, Provenance, Reader,
    Record, Source, Stamped, Totals, Trace, TraceError, Writer,
};
use proptest::prelude::*;

fn header(contents: ContentsKind, page_bytes: u32) -> Header {
    let mut provenance = Provenance::new(Source::Generated, "round_trip");
    provenance.seed = Some(7);
    provenance.notes.insert("profile".into(), "none".into());
    Header { page_bytes, contents, provenance }
}

const APPS: u32 = 3;
const SPACES: u32 = 70;

/// Apps that have names and spaces that live, for records to point at.
fn begin(writer: &mut Writer<Vec<u8>>) -> Vec<Stamped> {
    let mut begun = Vec::new();
    for app in 0..APPS {
        writer.app(AppId(app), &format!("app {app}")).expect("a name");
    }
    for space in 0..SPACES {
        let app = AppId(space % APPS);
        let record = Record::SpaceStart { space: SpaceId(space), app, file: space % 5 == 0 };
        writer.record(Ns(0), record).expect("a space");
        begun.push(Stamped { at: Ns(0), record });
    }
    begun
}

fn page() -> impl Strategy<Value = PageId> {
    let vpn = prop_oneof![0u64..1000, 0u64..1 << 43, Just((1u64 << 43) + 5)];
    (0..SPACES, vpn).prop_map(|(space, vpn)| PageId::new(SpaceId(space), Vpn(vpn)))
}

fn run() -> impl Strategy<Value = PageRun> {
    (page(), prop_oneof![1u32..10, any::<u32>().prop_map(|n| n.max(1))])
        .prop_map(|(first, count)| PageRun { first, count })
}

fn app() -> impl Strategy<Value = AppId> {
    (0..APPS).prop_map(AppId)
}

fn tier() -> impl Strategy<Value = Tier> {
    let donor = (0..DonorId::COUNT).prop_map(|number| Tier::Donor(DonorId::new(number).unwrap()));
    prop_oneof![Just(Tier::Pool), Just(Tier::Kernel), Just(Tier::Flash), donor]
}

fn donor_state() -> impl Strategy<Value = DonorState> {
    use DonorState::{Lost, Pressed, Single, Up, Weak};
    prop_oneof![Just(Up), Just(Weak), Just(Pressed), Just(Lost), Just(Single)]
}

fn trigger() -> impl Strategy<Value = Trigger> {
    prop_oneof![
        app().prop_map(Trigger::Relaunch),
        page().prop_map(Trigger::Fault),
        page().prop_map(Trigger::Hit)
    ]
}

fn hotness() -> impl Strategy<Value = Option<Hotness>> {
    let class = prop_oneof![Just(Hotness::Hot), Just(Hotness::Warm), Just(Hotness::Cold)];
    proptest::option::of(class)
}

fn note() -> impl Strategy<Value = Note> {
    let codec = proptest::sample::select(vec![
        CodecKind::Raw,
        CodecKind::Lz4,
        CodecKind::Zstd,
        CodecKind::ZstdDictionary,
        CodecKind::Lzo,
        CodecKind::BaseDeltaImmediate,
    ]);
    prop_oneof![
        (any::<u64>(), any::<bool>())
            .prop_map(|(pages, urgent)| Note::AskedPages { pages, urgent }),
        app().prop_map(|app| Note::AskedApp { app }),
        trigger().prop_map(|trigger| Note::AskedPrefetch { trigger }),
        (any::<u32>(), tier(), codec, any::<u32>(), hotness(), any::<bool>()).prop_map(
            |(pages, tier, codec, chunk_bytes, hotness, park_siblings)| Note::Group {
                pages,
                tier,
                codec,
                chunk_bytes,
                hotness,
                park_siblings
            }
        ),
        page().prop_map(|page| Note::Victim { page }),
        page().prop_map(|page| Note::Prefetch { page }),
        app().prop_map(|app| Note::EndApp { app }),
        (page(), tier(), any::<u32>()).prop_map(|(page, tier, bytes)| Note::Stored {
            page,
            tier,
            bytes
        }),
        page().prop_map(|page| Note::Stayed { page }),
        page().prop_map(|page| Note::PrefetchUsed { page }),
        page().prop_map(|page| Note::PrefetchExpired { page }),
        run().prop_map(|run| Note::Used { run }),
        run().prop_map(|run| Note::Unused { run }),
        run().prop_map(|run| Note::Sample { run }),
        app().prop_map(|app| Note::Spared { app }),
        Just(Note::Tick),
        (any::<u64>(), any::<bool>()).prop_map(|(pages, urgent)| Note::Pressure { pages, urgent }),
        any::<u64>().prop_map(|job| Note::JobDone { job }),
        (0..DonorId::COUNT, donor_state()).prop_map(|(donor, state)| {
            Note::Donor { donor: DonorId::new(donor).unwrap(), state }
        }),
        any::<[u64; 3]>().prop_map(|[used_bytes, total_bytes, written_bytes]| {
            Note::DeviceSample { device: DeviceFacts { used_bytes, total_bytes, written_bytes } }
        }),
        (app(), any::<u64>(), any::<u32>())
            .prop_map(|(app, pages, run_pages)| Note::AskedSamples { app, pages, run_pages }),
        (page(), tier(), any::<bool>()).prop_map(|(page, tier, demand)| Note::PageIn {
            page,
            tier,
            demand
        }),
        (page(), tier()).prop_map(|(page, tier)| Note::Dropped { page, tier }),
        (tier(), any::<u64>(), any::<u64>()).prop_map(|(tier, used_bytes, pages)| Note::TierUse {
            tier,
            used_bytes,
            pages
        }),
    ]
}

/// Any record but those that end something.
fn record() -> impl Strategy<Value = Record> {
    let kind =
        prop_oneof![Just(AccessKind::Seen), Just(AccessKind::Fresh), Just(AccessKind::Fault)];
    prop_oneof![
        app().prop_map(|app| Record::Launch { app }),
        app().prop_map(|app| Record::Relaunch { app }),
        (app(), any::<u64>())
            .prop_map(|(app, response_ns)| Record::ResponseComplete { app, response_ns }),
        app().prop_map(|app| Record::Background { app }),
        app().prop_map(|app| Record::Window { app }),
        (0..SPACES, app(), any::<bool>()).prop_map(|(space, app, file)| Record::SpaceStart {
            space: SpaceId(space),
            app,
            file
        }),
        run().prop_map(|run| Record::Resident { run }),
        run().prop_map(|run| Record::Freed { run }),
        (run(), page()).prop_map(|(from, to)| Record::Moved { from, to }),
        (page(), kind, any::<bool>()).prop_map(|(page, kind, write)| Record::Access {
            page,
            kind,
            write
        }),
        (page(), 0u32..4).prop_map(|(page, id)| Record::Contents { page, content: ContentId(id) }),
        page().prop_map(|page| Record::Candidate { page }),
        note().prop_map(Record::Note),
    ]
}

fn at() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0u64..1000, 0u64..1 << 55]
}

fn read(bytes: &[u8]) -> Result<(Vec<Stamped>, Totals), TraceError> {
    let mut reader = Reader::new(bytes)?;
    let records = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    Ok((records, reader.totals().clone()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_record_comes_back(
        steps in proptest::collection::vec((at(), record()), 0..300),
        flush_every in 1usize..200,
    ) {
        let mut writer = Writer::new(Vec::new(), &header(ContentsKind::Stats, 4096)).expect("new");
        let mut written = begin(&mut writer);
        for n in 0..4 {
            let stats = ContentStats { lz4_page: n, ..ContentStats::default() };
            writer.stats(u128::from(n), &stats).expect("stats");
        }
        let mut now = 0u64;
        for (i, (later, record)) in steps.into_iter().enumerate() {
            now += later;
            writer.record(Ns(now), record).expect("a record");
            written.push(Stamped { at: Ns(now), record });
            if i % flush_every == 0 {
                writer.flush().expect("room");
            }
        }
        let (bytes, totals) = writer.finish().expect("an end");
        let (records, counted) = read(&bytes).expect("readable");
        prop_assert_eq!(&records, &written);
        prop_assert_eq!(&counted, &totals);
        prop_assert_eq!(totals.records(), written.len() as u64);
        for kind in Kind::ALL {
            let of_kind = written.iter().filter(|s| Kind::of(&s.record) == *kind).count();
            prop_assert_eq!(totals.count(*kind), of_kind as u64);
        }
        let skipping = Reader::records_only(Cursor::new(&bytes)).expect("a header");
        let skipped: Result<Vec<Stamped>, _> = skipping.collect();
        prop_assert_eq!(&skipped.expect("readable"), &written);
    }

    #[test]
    fn contents_are_kept_once_and_found_at_random(
        pages in proptest::collection::vec((0u8..20, 0usize..4096), 1..200),
        large in any::<bool>(),
        order in proptest::collection::vec(any::<prop::sample::Index>(), 0..100),
    ) {
        let page_bytes = if large { 16384 } else { 4096 };
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("contents.trace");
        let draft = Draft::new(&path, false).expect("a file");
        let mut writer = Writer::new(draft, &header(ContentsKind::Bytes, page_bytes)).expect("new");
        let page = |(value, at): (u8, usize)| {
            let mut page = vec![value; page_bytes as usize];
            page[at] ^= 0x55;
            page
        };
        let ids: Vec<ContentId> =
            pages.iter().map(|p| writer.bytes(&page(*p)).expect("contents")).collect();
        let (draft, totals) = writer.finish().expect("an end");
        draft.commit().expect("a name");
        let mut different = pages.clone();
        different.sort_unstable();
        different.dedup();
        prop_assert_eq!(totals.contents as usize, different.len());
        let trace = Trace::open(&path).expect("a trace");
        let mut contents = trace.contents().expect("contents");
        for index in order {
            let i = index.index(pages.len());
            let expected = page(pages[i]);
            prop_assert_eq!(contents.get(ids[i]).expect("there"), Content::Bytes(&expected));
        }
        let beyond = contents.get(ContentId(totals.contents)).expect_err("not there");
        prop_assert!(beyond.to_string().contains(&totals.contents.to_string()), "{}", beyond);
    }
}
