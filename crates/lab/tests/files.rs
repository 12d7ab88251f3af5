//! Clean pages of files in a replay: dropped and read again, or kept compressed (ezswap III-A).

use std::ops::ControlFlow;
use std::path::Path;

use clew_core::{AccessKind, AppId, ByteSize, Ns, PageId, SpaceId, Vpn};
use clew_lab::{Input, LabError, Settings, replay};
use clew_policy::Scheme;
use clew_report::{Arm, Replay};
use clew_trace::generate::profile::MOBILE_2019;
use clew_trace::generate::{Workload, generate};
use clew_trace::{ContentsKind, Draft, Header, Provenance, Record, Source, Writer};

const PAGE: u64 = 4096;

/// Four apps with what they read of files, a hundredth of the real ones.
fn generated(path: &Path) -> Input {
    let workload =
        Workload { scale: 0.01, apps: 4, contents: true, ..Workload::new(&MOBILE_2019, 3) };
    let draft = Draft::new(path, false).expect("a draft");
    let going = &mut |_| ControlFlow::Continue(());
    let (draft, _) = generate(&workload, draft, going).expect("a trace");
    draft.commit().expect("a file");
    Input::open(path).expect("a good trace")
}

fn settings(name: &str, budget_bytes: u64, pool_bytes: u64) -> Settings {
    let scheme = Scheme::preset(name).expect("a preset");
    let scheme = Scheme { mem_limit_bytes: Some(ByteSize(pool_bytes)), ..scheme };
    Settings { flash_bytes: Some(64 << 20), ..Settings::new(scheme, budget_bytes) }
}

fn run(input: &Input, settings: &Settings) -> Arm {
    replay(&input.trace, &input.lookahead, settings, &mut |_, _| {}).expect("a replay")
}

fn counts(arm: &Arm) -> &Replay {
    arm.replay.as_ref().expect("it was replayed")
}

/// Every byte is as it was: the replay compares.
#[test]
fn every_part_of_ezswap_brings_back_what_it_took() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = generated(&directory.path().join("t.trace"));
    let (budget, pool) = (5 << 19, 1 << 20);
    let zswap = run(&input, &settings("zswap", budget, pool));
    let files = counts(&zswap).files.expect("it drops them");
    assert!(files.dropped_pages > 1000 && files.read_pages > 1000, "{files:?}");
    assert_eq!((files.to_pool_pages, files.dropped_from_pool_pages), (0, 0));
    for name in ["ezswap-apa", "ezswap-apa-sa", "ezswap-apa-ca", "ezswap", "ezswap-sa-ca"] {
        let arm = run(&input, &settings(name, budget, pool));
        let (own, files) = (counts(&arm), counts(&arm).files.expect("it takes them"));
        assert!(arm.total_bytes_peak < budget + (2 << 20), "{name}: {arm:?}");
        assert_eq!(own.accesses, own.hits + own.fresh + arm.faults - own.unseen_writes, "{name}");
        let takes = name != "ezswap-sa-ca";
        assert_eq!(files.to_pool_pages > 100, takes, "{name}: {files:?}");
        assert_eq!(files.dropped_from_pool_pages > 100, takes, "{name}: {files:?}");
        // What was found in the pool was not read again.
        assert_eq!(files.read_pages < counts(&zswap).files.expect("files").read_pages, takes);
        let selects = ["ezswap", "ezswap-apa-sa", "ezswap-sa-ca"].contains(&name);
        assert_eq!(own.sampled_pages > 0, selects, "{name}");
        if own.sampled_pages > 0 {
            let of = |name: &str| own.policies[name];
            let asked = of("selective_admitted_pages")
                + of("selective_rejected_pages")
                + of("selective_admitted_file_pages")
                + of("selective_rejected_file_pages");
            assert_eq!(asked, own.sampled_pages as f64, "{name}");
            assert!(!takes || of("selective_rejected_file_pages") > 0.0, "{name}");
        }
    }
    // Again: the same to the byte.
    let again = || serde_json::to_string(&run(&input, &settings("ezswap", budget, pool)));
    assert_eq!(again().expect("an arm"), again().expect("an arm"));
}

/// Who does not take them does not see them.
#[test]
fn other_schemes_pass_files_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = generated(&directory.path().join("t.trace"));
    let arm = run(&input, &settings("zram", 8 << 20, 8 << 20));
    assert_eq!(counts(&arm).files, None);
    assert_eq!(counts(&arm).flash_read_bytes, 0);
}

/// What selective admission rejects has no place but flash.
#[test]
fn selective_admission_without_flash_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = generated(&directory.path().join("t.trace"));
    let without = Settings { flash_bytes: None, ..settings("ezswap", 4 << 20, 1 << 20) };
    let refused = replay(&input.trace, &input.lookahead, &without, &mut |_, _| {});
    let error = refused.expect_err("there is no flash");
    assert!(matches!(error, LabError::Setting { .. }) && error.is_bad_input(), "{error}");
    assert!(
        error.to_string().contains("ezswap") && error.to_string().contains("--flash"),
        "{error}"
    );
}

/// Pages of a file, each told what it holds when it is read first.
fn written(path: &Path, reads: &[u64]) -> Input {
    let provenance = Provenance::new(Source::Generated, "a test");
    let header = Header { page_bytes: PAGE as u32, contents: ContentsKind::Bytes, provenance };
    let draft = Draft::new(path, false).expect("a draft");
    let mut writer = Writer::new(draft, &header).expect("a header");
    let (app, space) = (AppId(0), SpaceId(0));
    writer.app(app, "reader").expect("a name");
    let mut at = 0;
    let mut told = std::collections::BTreeSet::new();
    writer.record(Ns(at), Record::Launch { app }).expect("a record");
    writer.record(Ns(at), Record::SpaceStart { space, app, file: true }).expect("a record");
    writer.record(Ns(at), Record::ResponseComplete { app, response_ns: 1 }).expect("a record");
    for read in reads {
        at += 1_000_000;
        let page = PageId::new(space, Vpn(*read));
        let access = Record::Access { page, kind: AccessKind::Seen, write: false };
        writer.record(Ns(at), access).expect("a record");
        // After it was read: what it holds from the beginning.
        if told.insert(*read) {
            let bytes: Vec<u8> = (0..PAGE).map(|at| (at % 16 + read % 100) as u8).collect();
            let content = writer.bytes(&bytes).expect("contents");
            writer.record(Ns(at), Record::Contents { page, content }).expect("a record");
        }
    }
    writer.record(Ns(at), Record::Background { app }).expect("a record");
    writer.finish().expect("an end").0.commit().expect("a file");
    Input::open(path).expect("a good trace")
}

/// 500 pages read three times in memory for fewer: without a pool everything is read each time; with one whose frames
/// hold three dense pages each, what it holds is not.
#[test]
fn what_is_in_the_pool_is_not_read_from_its_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let reads: Vec<u64> = (0..500).cycle().take(1500).collect();
    let input = written(&directory.path().join("t.trace"), &reads);
    let none = run(&input, &settings("zswap", 300 * PAGE, 100 * PAGE));
    let files = counts(&none).files.expect("it drops them");
    assert!(files.read_pages > 1400, "{files:?}");
    assert_eq!(counts(&none).flash_read_bytes, files.read_pages * PAGE);
    assert_eq!(none.disk_bytes_written, 0, "nothing is written of what lies in its file");
    // 500 pages are 200 in DRAM and 300 in a hundred frames.
    let some = run(&input, &settings("ezswap-apa", 400 * PAGE, 200 * PAGE));
    let files = counts(&some).files.expect("it takes them");
    assert!(files.read_pages < 600, "{files:?}");
    assert_eq!(some.disk_bytes_written, 0);
    assert!(counts(&some).decompressed_pages > 500, "{some:?}");
}
