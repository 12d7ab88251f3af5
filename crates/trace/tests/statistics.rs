//! Statistics of small traces, worked out by hand.

use std::path::PathBuf;

use clew_core::{AccessKind, AppId, Ns, PageId, PageRun, SpaceId, Vpn};
use clew_trace::statistics::{Look, Statistics};
use clew_trace::{ContentsKind, Draft, Header, Provenance, Record, Source, Trace, Writer};

/// A trace that is being written, a microsecond a record.
struct Written {
    _directory: tempfile::TempDir,
    path: PathBuf,
    writer: Writer<Draft>,
    now: u64,
}

impl Written {
    fn new(contents: ContentsKind) -> Written {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("by-hand.trace");
        let provenance = Provenance::new(Source::Generated, "by hand");
        let header = Header { page_bytes: 4096, contents, provenance };
        let draft = Draft::new(&path, false).expect("a file");
        let mut writer = Writer::new(draft, &header).expect("a header");
        for (app, name) in ["one", "two"].into_iter().enumerate() {
            writer.app(AppId(app as u32), name).expect("a name");
        }
        let mut written = Written { _directory: directory, path, writer, now: 0 };
        for app in 0..2 {
            let (app, space) = (AppId(app), SpaceId(2 * app));
            written.record(Record::SpaceStart { space, app, file: false });
            written.record(Record::SpaceStart { space: SpaceId(space.0 + 1), app, file: true });
        }
        written
    }

    fn record(&mut self, record: Record) {
        self.now += 1000;
        self.writer.record(Ns(self.now), record).expect("a record");
    }

    fn access(&mut self, page: PageId) {
        self.record(Record::Access { page, kind: AccessKind::Seen, write: false });
    }

    fn statistics(self, look: Look) -> Statistics {
        let (draft, _) = self.writer.finish().expect("an end");
        draft.commit().expect("a name");
        let trace = Trace::open(&self.path).expect("a trace");
        Statistics::of(&trace, &look, &mut |_| {}).expect("statistics")
    }
}

const ONE: AppId = AppId(0);

fn page(space: u32, number: u64) -> PageId {
    PageId::new(SpaceId(space), Vpn(1000 + number))
}

#[test]
fn hot_sets_and_what_lies_behind_their_pages() {
    let mut written = Written::new(ContentsKind::None);
    written.record(Record::Launch { app: ONE });
    (0..10).for_each(|number| written.access(page(0, number)));
    written.record(Record::ResponseComplete { app: ONE, response_ns: 5 });
    written.now += 20_000_000_000;
    written.record(Record::Background { app: ONE });
    // In the order of last use: 0 1 2 3 4 5 6 7 8 9. Hot: 0 to 3.
    written.record(Record::Relaunch { app: ONE });
    (0..4).for_each(|number| written.access(page(0, number)));
    written.record(Record::ResponseComplete { app: ONE, response_ns: 3_000_000 });
    written.access(page(0, 5));
    written.record(Record::Background { app: ONE });
    // Whatever is used in the background is no part of a hot or warm set.
    written.access(page(0, 9));
    // In the order of last use: 4 6 7 8 0 1 2 3 5 9. Hot: 2 to 5 and a new one, warm: 0.
    written.record(Record::Relaunch { app: ONE });
    (2..6).for_each(|number| written.access(page(0, number)));
    written.access(page(0, 77));
    written.record(Record::ResponseComplete { app: ONE, response_ns: 5_000_000 });
    written.access(page(0, 0));
    written.access(page(0, 2));
    written.record(Record::Freed { run: PageRun { first: page(0, 6), count: u32::MAX } });
    written.record(Record::Background { app: ONE });
    let statistics = written.statistics(Look::default());
    let [app] = &statistics.apps[..] else { panic!("{:?}", statistics.apps) };
    assert_eq!((app.app.as_str(), app.relaunches), ("one", 2));
    assert_eq!(app.response_ms, Some(4.0));
    assert_eq!(app.hot_pages, 4.5);
    assert_eq!(app.warm_pages, 1.0);
    assert_eq!(app.similarity, Some(2.0 / 5.0), "2 and 3, of five");
    assert_eq!(app.reuse, Some(3.0 / 4.0), "2, 3 and 0, of four");
    // Behind 0, 1, 2 and 3 are 1, 2, 3 and 4; behind 2, 3, 4 and 5 are 3, 5, 6 and 9.
    assert_eq!(app.next_1, Some((3.0 + 2.0) / 8.0));
    assert_eq!(app.next_3, Some(1.0 / 8.0));
    assert_eq!(app.neighbour, Some((3.0 + 3.0) / 8.0));
    let mib = |pages: f64| pages * 4096.0 / f64::from(1 << 20);
    assert_eq!(app.early_mib, Some(mib(10.0)));
    assert_eq!(app.late_mib, mib(6.0), "11 pages, of which 7, 8, 9, 77 and 6 were given up");
}

#[test]
fn pages_that_are_used_together() {
    let mut written = Written::new(ContentsKind::None);
    let mut fillers = 10_000..;
    let mut fill = |written: &mut Written| {
        for number in fillers.by_ref().take(100) {
            written.access(page(0, number));
        }
    };
    fill(&mut written);
    // 0 and 1 of the first app and 0 of the second always; 2 with them in 3 of 20 times.
    for round in 0..20 {
        written.access(page(0, 0));
        written.access(page(0, 1));
        written.access(page(2, 0));
        if round % 8 == 0 {
            written.access(page(0, 2));
        } else {
            fill(&mut written);
            written.access(page(0, 2));
        }
        fill(&mut written);
    }
    fill(&mut written);
    let association = written.statistics(Look::default()).association;
    assert_eq!(association.pairs, 12);
    assert_eq!(association.strong, 6.0 / 12.0);
    assert_eq!(association.weak, 6.0 / 12.0);
    assert_eq!(association.within_app, 2.0 / 3.0, "the page of the other app has nobody there");
    assert_eq!(association.stable, 1.0);
    let pages = association.associated;
    assert!(pages > 0.0 && pages < 3.0 / 3000.0, "{pages} of all pages");
}

#[test]
fn an_association_that_ends_is_not_stable() {
    let mut written = Written::new(ContentsKind::None);
    let mut fillers = 10_000..;
    for round in 0..40 {
        written.access(page(0, 0));
        written.access(page(0, 1));
        // The company of the third one changes in the middle.
        if round < 20 {
            written.access(page(0, 2));
        }
        for number in fillers.by_ref().take(70) {
            written.access(page(0, number));
        }
        if round >= 20 {
            written.access(page(0, 2));
        }
        for number in fillers.by_ref().take(70) {
            written.access(page(0, number));
        }
    }
    let association = written.statistics(Look::default()).association;
    assert_eq!(association.stable, 2.0 / 3.0);
}

#[test]
fn what_leaves_dram() {
    let mut written = Written::new(ContentsKind::None);
    written.record(Record::Launch { app: ONE });
    // DRAM has room for 4 pages. What leaves before the first relaunch is not counted.
    (0..2).for_each(|number| written.access(page(0, number)));
    (0..6).for_each(|number| written.access(page(1, number)));
    written.record(Record::Background { app: ONE });
    // Pages 2 to 5 of the file are there.
    written.record(Record::Relaunch { app: ONE });
    written.access(page(0, 0)); // 2 leaves
    written.access(page(0, 1)); // 3 leaves
    written.access(page(1, 4));
    written.access(page(1, 6)); // 5 leaves
    written.access(page(1, 7)); // nothing unused is left of the file: anonymous 0 leaves
    written.access(page(1, 8)); // anonymous 1 leaves
    written.access(page(1, 9)); // only pages of files are there: 4 leaves
    let look = Look { dram_bytes: Some(4 * 4096), ..Look::default() };
    let evictions = written.statistics(look).evictions.expect("DRAM is known");
    assert_eq!((evictions.dram_pages, evictions.anonymous, evictions.file), (4, 2, 4));
    assert_eq!(evictions.file_per_anonymous(), Some(2.0));
}

#[test]
fn absurd_numbers_end_nobody() {
    let mut written = Written::new(ContentsKind::None);
    written.record(Record::Launch { app: ONE });
    written.access(page(0, 0));
    for _ in 0..2 {
        written.record(Record::Relaunch { app: ONE });
        written.record(Record::ResponseComplete { app: ONE, response_ns: u64::MAX });
        written.access(page(0, 1));
    }
    // DRAM without room for the page that is used.
    let look = Look { dram_bytes: Some(0), ..Look::default() };
    let statistics = written.statistics(look);
    assert_eq!(statistics.evictions.expect("DRAM is known").dram_pages, 1);
    assert_eq!(statistics.apps[0].relaunches, 2);
}

#[test]
fn contents_of_pages_that_are_left() {
    let mut written = Written::new(ContentsKind::Bytes);
    let tell = |written: &mut Written, page: PageId, bytes: Vec<u8>| {
        let content = written.writer.bytes(&bytes).expect("contents");
        written.record(Record::Contents { page, content });
    };
    let noise = |number: u64| {
        let mut random = clew_core::Seeded::of(number, &[]);
        (0..4096).map(|_| random.below(256) as u8).collect::<Vec<u8>>()
    };
    for number in 0..100 {
        // Noise first, which is written over; then noise, a text, or zeros; or it is given up.
        tell(&mut written, page(0, number), noise(number));
        let last = match number % 4 {
            0 => noise(1000 + number),
            1 => vec![b'a'; 4096],
            _ => vec![0; 4096],
        };
        tell(&mut written, page(0, number), last);
        tell(&mut written, page(0, 500 + number), noise(2000 + number));
        tell(&mut written, page(1, number), noise(3000 + number));
    }
    written.record(Record::Freed { run: PageRun { first: page(0, 500), count: 100 } });
    let statistics = written.statistics(Look::default());
    assert_eq!(statistics.zero_share, Some(0.5));
    // 50 pages that are not zero: one block of 128 KiB, half noise and half one letter.
    for ratio in &statistics.ratios {
        let letter = if ratio.chunk_bytes < 4096 { 0.8 } else { 0.97 };
        let range = 1.0 / (0.5 + 0.5 * (1.0 - letter))..2.1;
        let within = ratio.chunk_bytes > 4096 || range.contains(&ratio.ratio);
        assert!(within, "{ratio:?}, expected {range:?}");
    }
    assert!(statistics.file_ratios.iter().all(|ratio| ratio.ratio == 1.0));
    assert_eq!((statistics.ratios.len(), statistics.file_ratios.len()), (22, 22));
}
