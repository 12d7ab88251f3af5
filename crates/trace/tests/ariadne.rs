//! Ariadne's directories, made here, whole and damaged: what is imported is what was there, and
//! what is passed over is counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use clew_core::{AccessKind, AppId, PageId};
use clew_trace::ariadne::{self, ImportError, Imported};
use clew_trace::{Content, Draft, Kind, Record, Trace, Writer};

const PAGE: usize = 4096;

/// What a page holds: something of its own in every place.
fn contents(number: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    for (i, word) in page.chunks_exact_mut(8).enumerate() {
        let value = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(i as u64 / 16);
        word.copy_from_slice(&value.to_le_bytes());
    }
    page
}

fn record(uid: u32, pfn: u64, sector: u64, page: &[u8]) -> Vec<u8> {
    let mut record = format!("TEST^^^#{uid},{pfn},{sector}#^^^\n").into_bytes();
    record.resize(50, 0);
    record.extend(page);
    record
}

struct Round {
    directory: tempfile::TempDir,
}

impl Round {
    fn new() -> Round {
        Round { directory: tempfile::tempdir().expect("a directory") }
    }

    fn write(&self, leaf: &str, name: &str, bytes: impl AsRef<[u8]>) {
        let leaf = self.directory.path().join(leaf);
        fs::create_dir_all(&leaf).expect("a directory");
        fs::write(leaf.join(name), bytes).expect("a file");
    }

    fn import(&self) -> (Vec<Imported>, Trace) {
        let path = self.directory.path().join("out.trace");
        let report = import(self.directory.path(), &path).expect("an import");
        (report, Trace::open(&path).expect("a trace"))
    }
}

fn import(directory: &Path, to: &Path) -> Result<Vec<Imported>, ImportError> {
    let draft = Draft::new(to, true).expect("a file");
    let mut writer = Writer::new(draft, &ariadne::header("test", directory)).expect("a header");
    let report = ariadne::import(directory, &mut writer, |_, _| {})?;
    let (draft, _) = writer.finish().expect("an end");
    draft.commit().expect("a name");
    Ok(report)
}

fn records(trace: &Trace) -> Vec<Record> {
    let records = trace.records().expect("records");
    records.map(|stamped| stamped.expect("a record").record).collect()
}

/// What each page holds that was swapped out, by space and page number.
fn held(trace: &Trace) -> BTreeMap<PageId, Vec<u8>> {
    let mut contents = trace.contents().expect("contents");
    let mut held = BTreeMap::new();
    for record in records(trace) {
        if let Record::Contents { page, content } = record {
            let Content::Bytes(bytes) = contents.get(content).expect("contents") else {
                panic!("no bytes")
            };
            held.insert(page, bytes.to_vec());
        }
    }
    held
}

fn accesses(trace: &Trace) -> Vec<u64> {
    let accesses = records(trace).into_iter().filter_map(|record| match record {
        Record::Access { page, kind: AccessKind::Fault, write: false } => Some(page.vpn().0),
        _ => None,
    });
    accesses.collect()
}

#[test]
fn a_whole_round_is_imported_as_it_is() {
    let round = Round::new();
    let leaf = "youtube/round1/hot";
    let all: Vec<u8> =
        (0..40u64).flat_map(|n| record(10123, 7000 + n, 8 * n, &contents(n))).collect();
    round.write(leaf, "swapout_trace.txt", &all);
    round.write(leaf, "ttid_swapin_trace.txt", "10123,24\n10123,32\n10123,16\n");
    round.write(leaf, "ttfd_swapin_trace.txt", "10123,24\n10123,80\n");
    round.write(leaf, "swapin_trace.txt", "10123,24\n10123,32\n10123,16\n10123,80\n10123,88\n");
    // Listed twice: the last place counts. 99999 was never swapped out.
    round.write(leaf, "lru_list.txt", "10123,7003\n10123,99999\n10123,7001\n10123,7003\n");
    let label = |n: u64, scale: u64| [10123, 7000 + n, 8 * n, scale].map(u64::to_le_bytes).concat();
    let labels = [label(3, 0), label(4, 0), label(10, 1), label(0, 2), label(2, 2)].concat();
    round.write(leaf, "compression_trace.txt", labels);
    round.write(leaf, "record.log", "[1.0] x: 10123,7000,0\n[1.1] x: 10123,7001,1\n");

    let (report, trace) = round.import();
    let expected = Imported {
        app: "youtube".into(),
        round: "round1".into(),
        kind: "hot".into(),
        pages: 40,
        swap_ins: 5,
        hot: 3,
        warm: 2,
        cold: 35,
        never_swapped: 1,
        labels: 5,
        labels_agree: 4, // page 2 was swapped in before the first frame
        log_lines: 2,
        log_frees: 1,
        ..Imported::default()
    };
    assert_eq!(report, [expected]);
    let held = held(&trace);
    assert_eq!(held.len(), 40);
    for (page, bytes) in &held {
        assert_eq!(bytes, &contents(page.vpn().0), "page {}", page.vpn().0);
    }
    assert_eq!(accesses(&trace), [3, 4, 2, 10, 11]);
    assert_eq!(trace.totals().apps[&AppId(10123)], "youtube");
    let records = records(&trace);
    let resident: Vec<u64> = records.iter().filter_map(first_resident).collect();
    assert_eq!(resident[..4], [ariadne::LISTED + 99999, 1, 3, 0]);
    assert_eq!(resident.len(), 41);
    let candidates = records.iter().filter_map(|record| match record {
        Record::Candidate { page } => Some(page.vpn().0),
        _ => None,
    });
    assert!(candidates.eq(0..40), "the order of the swap-out");
    let response = records.iter().find_map(|record| match record {
        Record::ResponseComplete { response_ns, .. } => Some(*response_ns),
        _ => None,
    });
    assert_eq!(response, Some(122_000_000), "as the paper says of youtube on ZRAM");
}

fn first_resident(record: &Record) -> Option<u64> {
    match record {
        Record::Resident { run } => Some(run.first.vpn().0),
        _ => None,
    }
}

#[test]
fn damage_is_passed_over_and_counted() {
    let round = Round::new();
    let leaf = "app/round1/cold";
    let whole = |n: u64| record(10200, n, 8 * n, &contents(n));
    let mut raw = whole(0);
    raw.extend(&whole(1)[..2000]); // torn: the next one begins in it
    raw.extend(whole(2));
    raw.extend(vec![0; 5000]); // a hole
    raw.extend(whole(3));
    raw.extend(b"what is this? TEST^^^# no header either");
    raw.extend(whole(4));
    raw.extend(record(10200, 99, 8 * 2, &contents(5))); // the sector of page 2
    raw.extend(record(10200, 3, 8 * 6, &contents(6))); // the frame of page 3
    let mut bad = whole(7);
    bad[9] = b'x'; // no uid
    raw.extend(bad);
    // A page that has a marker in it is no torn record.
    let mut marker = contents(8);
    marker[100..141].copy_from_slice(b"TEST^^^#1,2,3#^^^\nand no zeros after it  ");
    raw.extend(record(10200, 8, 64, &marker));
    raw.extend(&whole(9)[..100]); // cut off
    round.write(leaf, "swapout_trace.txt", &raw);
    round.write(leaf, "ttid_swapin_trace.txt", "10200,16\n10200,8\nx\n10200\n10200,1,2\n");
    let mut ins: Vec<u8> = [10200u64, 48].map(u64::to_le_bytes).concat();
    ins.extend([0; 5]);
    round.write(leaf, "ttfd_swapin_trace.txt.meta", &ins);

    let (report, trace) = round.import();
    let expected = Imported {
        app: "app".into(),
        round: "round1".into(),
        kind: "cold".into(),
        pages: 7, // 0, 2, 3, 4, 5, 6, 8
        torn: 2,
        bad_headers: 2,
        skipped_bytes: 39 + 50 + 4096,
        holes: 1,
        hole_bytes: 5000,
        reused_sectors: 1,
        reused_frames: 1,
        swap_ins: 2,
        lost_swap_ins: 1,
        bad_lines: 4,
        hot: 1,
        warm: 1,
        cold: 5,
        ..Imported::default()
    };
    assert_eq!(report, [expected]);
    let held = held(&trace);
    let mut found: Vec<(u64, &[u8])> =
        held.iter().map(|(page, bytes)| (page.vpn().0, bytes.as_slice())).collect();
    assert_eq!(found.pop(), Some((ariadne::REUSED, contents(5).as_slice())));
    assert_eq!(found.pop(), Some((8, marker.as_slice())));
    let numbers: Vec<u64> = found.iter().map(|(vpn, _)| *vpn).collect();
    assert_eq!(numbers, [0, 2, 3, 4, 6]);
    for (vpn, bytes) in found {
        assert_eq!(bytes, contents(vpn), "page {vpn}");
    }
    // A swap-in is of what was at the sector last.
    assert_eq!(accesses(&trace), [ariadne::REUSED, 6]);
    assert_eq!(trace.totals().apps[&AppId(10200)], "app");
}

#[test]
fn a_hole_longer_than_what_is_looked_at_is_one() {
    let round = Round::new();
    let mut raw = record(10123, 1, 8, &contents(1));
    raw.extend(vec![0; 5 << 20]);
    raw.extend(record(10123, 2, 16, &contents(2)));
    raw.extend(vec![b'x'; 3 << 20]);
    raw.extend(record(10123, 3, 24, &contents(3)));
    round.write("youtube/round1/hot", "swapout_trace.txt", &raw);
    let (report, trace) = round.import();
    let found = &report[0];
    assert_eq!((found.pages, found.holes, found.hole_bytes), (3, 1, 5 << 20), "{found:?}");
    assert_eq!((found.bad_headers, found.skipped_bytes), (1, 3 << 20), "{found:?}");
    assert_eq!(held(&trace).len(), 3);
}

#[test]
fn split_files_and_several_apps() {
    let round = Round::new();
    for (app, uid, round_number) in [("twitter", 10128u32, 2), ("earth", 10124, 10)] {
        let leaf = format!("{app}/round{round_number}/hot");
        let lines: String =
            (0..5u64).map(|n| format!("{uid},{},{}\n", 100 + n, 8 * n)).collect::<String>();
        let mut data: Vec<u8> = (0..5).flat_map(|n| contents(u64::from(uid) + n)).collect();
        round.write(&leaf, "swapout_trace.txt.meta", lines + "no line\n");
        data.extend(contents(1));
        data.extend([1; 10]);
        round.write(&leaf, "swapout_trace.txt.data", &data);
        round.write(&leaf, "swapin_trace.txt", format!("{uid},8\n{uid},0\n"));
    }
    let (report, trace) = round.import();
    let rounds: Vec<&str> = report.iter().map(|one| one.round.as_str()).collect();
    assert_eq!(rounds, ["round2", "round10"], "by number");
    for one in &report {
        assert_eq!((one.pages, one.swap_ins, one.bad_headers), (5, 2, 2), "{one:?}");
        assert_eq!(one.skipped_bytes, 10, "{one:?}");
    }
    let names: Vec<&str> = trace.totals().apps.values().map(String::as_str).collect();
    assert_eq!(names, ["earth", "twitter"]);
    assert_eq!(trace.totals().count(Kind::SpaceStart), 2);
    assert_eq!(trace.totals().count(Kind::Exit), 2);
    assert_eq!(held(&trace).len(), 10);
}

#[test]
fn nothing_to_import() {
    let round = Round::new();
    round.write("app/round1/hot", "something.txt", "else");
    let out = round.directory.path().join("out.trace");
    let error = import(round.directory.path(), &out).expect_err("nothing there");
    assert!(error.to_string().contains("no swap-out trace"), "{error}");
    let error = import(&round.directory.path().join("none"), &out).expect_err("not there");
    assert!(error.to_string().contains("none"), "{error}");
    assert!(!out.exists());
}

#[test]
fn more_programs_than_a_trace_can_have_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    // Each of a round has spaces of its own; nothing is written before all of them are read.
    let many: String = (20_000..80_000).map(|uid| format!("{uid},1\n")).collect();
    for app in 0..9 {
        let leaf = directory.path().join(format!("app{app}/round1/hot"));
        fs::create_dir_all(&leaf).expect("a directory");
        fs::write(leaf.join("swapout_trace.txt"), "").expect("a file");
        fs::write(leaf.join("lru_list.txt"), &many).expect("a file");
    }
    let error = import(directory.path(), &directory.path().join("out")).expect_err("refused");
    assert!(
        matches!(&error, ImportError::TooMany(at) if at.ends_with("app8/round1/hot")),
        "{error}"
    );
}
