//! Recordings of real programs: what they did is in the trace.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clew_core::{AccessKind, PageId};
use clew_live::control::Request;
use clew_trace::{Content, ContentsKind, Kind, Note, Record, Trace};
use support::*;

const PAGES: u64 = 3072;

fn records(trace: &Trace) -> Vec<Record> {
    let records = trace.records().expect("records");
    let mut before = 0;
    let each = records.map(|stamped| {
        let stamped = stamped.expect("a record");
        assert!(stamped.at.0 >= before);
        before = stamped.at.0;
        stamped.record
    });
    each.collect()
}

fn faults(records: &[Record]) -> Vec<PageId> {
    let of = |record: &Record| match record {
        Record::Access { page, kind: AccessKind::Fault, .. } => Some(*page),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

fn count(records: &[Record], kind: Kind) -> u64 {
    records.iter().filter(|record| Kind::of(record) == kind).count() as u64
}

/// Everything is out when its window has begun.
fn wait_until_out(fixture: &Fixture) {
    let out = || fixture.app("touch").stored_pages >= PAGES * 9 / 10;
    poll(LONG, || out().then_some(())).unwrap_or_else(|| panic!("not out\n{}", fixture.log()));
}

#[test]
fn the_first_access_of_each_page_in_a_window_is_recorded_with_what_it_held() {
    if !can_run("record::windows", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("windows.trace");
    let name = file.to_str().expect("UTF-8");
    let words = ["--record", name, "--record-windows", "3600", "--record-contents", "bytes"];
    let mut fixture = Fixture::start_with("1GiB", &words);
    let mut touch = fixture.run_touch("touch", PAGES, 50, 1);
    fixture.wait_resident("touch", PAGES * 4096 * 9 / 10);
    let app = || "touch".to_string();
    fixture.order(&Request::Bg { app: app() });
    wait_until_out(&fixture);
    fixture.order(&Request::Fg { app: app() });
    touch.expect("touch seq", &format!("touched {PAGES} bad 0"));
    touch.expect("touch random 700 5", "touched 700 bad 0");
    fixture.order(&Request::Responded { app: app(), response_ns: 12_345 });
    fixture.order(&Request::Bg { app: app() });
    wait_until_out(&fixture);
    fixture.order(&Request::Fg { app: app() });
    touch.expect("touch random 500 7", "touched 500 bad 0");
    touch.quit();
    assert!(!file.exists(), "it gets its name at the end");
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());

    let trace = Trace::open(&file).unwrap_or_else(|e| panic!("{e}\n{}", fixture.log()));
    assert_eq!(trace.header().contents, ContentsKind::Bytes);
    assert_eq!(trace.header().provenance.notes["scheme"], "zram");
    assert_eq!(trace.totals().apps.values().collect::<Vec<_>>(), ["touch"]);
    let all = records(&trace);
    let relaunches: Vec<usize> =
        (0..all.len()).filter(|at| matches!(all[*at], Record::Relaunch { .. })).collect();
    assert_eq!(relaunches.len(), 2);
    let windows = all[..relaunches[0]].iter().filter(|r| matches!(r, Record::Window { .. }));
    assert!(windows.count() > 0, "it began before the relaunch");

    // Each page that was touched is seen once: it stays until the next window.
    let first = &all[relaunches[0]..relaunches[1]];
    let response = Record::ResponseComplete {
        app: *trace.totals().apps.keys().next().expect("an app"),
        response_ns: 12_345,
    };
    let at = first.iter().position(|record| *record == response).expect("the response");
    let touched = faults(&first[..at]);
    let different: BTreeSet<PageId> = touched.iter().copied().collect();
    assert_eq!(touched.len(), different.len(), "a page was seen twice");
    assert!(different.len() as u64 >= PAGES * 9 / 10, "{} of {PAGES}", different.len());
    // 500 picks of 3072 pages are about 460 different ones.
    let second = faults(&all[relaunches[1]..]).into_iter().filter(|p| different.contains(p));
    let second: BTreeSet<PageId> = second.collect();
    assert!((400..=500).contains(&second.len()), "{} pages", second.len());

    // Of each page that came back, what it held was written down when it left.
    let mut held = BTreeMap::new();
    let mut contents = trace.contents().expect("contents");
    let mut asked = false;
    for record in &all[..relaunches[0]] {
        match record {
            Record::Contents { page, content } => drop(held.insert(*page, *content)),
            Record::Note(Note::AskedApp { .. }) => asked = true,
            _ => {}
        }
    }
    assert!(asked, "the question is recorded");
    let victims = count(&all[..relaunches[0]], Kind::Victim);
    let stored = count(&all[..relaunches[0]], Kind::Stored);
    assert!(victims >= stored && stored >= PAGES * 9 / 10, "{victims} victims, {stored} stored");
    assert_eq!(stored, count(&all[..relaunches[0]], Kind::Candidate));
    let mut ids = BTreeSet::new();
    for page in &different {
        let id = held.get(page).unwrap_or_else(|| panic!("{page:?} held nothing"));
        let Content::Bytes(bytes) = contents.get(*id).expect("contents") else { panic!("none") };
        assert_eq!(bytes.len(), 4096);
        ids.insert(*id);
    }
    // touch gives each page contents of its own.
    assert!(ids.len() as u64 >= PAGES * 9 / 10, "{} different contents", ids.len());
    assert!(trace.totals().count(Kind::SpaceEnd) >= 1);
    assert_eq!(trace.totals().count(Kind::Exit), 1);
}

fn record(file: &Path, words: &[&str]) -> std::process::Output {
    run_to_end(clew().arg("record").arg("-o").arg(file).args(words), LONG)
}

#[test]
fn a_program_is_recorded_and_its_code_is_ours() {
    if !can_run("record::program", &["cc", "sh"]) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("p.trace");
    let program = compile(&dir, "touch.c", &[]);
    let script = "(sleep 0.5; echo touch seq; sleep 0.7; echo touch seq; echo quit) | \"$0\" 2000 50 1; exit 7";
    let program = program.to_str().expect("UTF-8");
    let words = ["--windows", "0.2", "--app", "it", "--", "sh", "-c", script, program];
    let output = record(&file, &words);
    assert_eq!(output.status.code(), Some(7), "{}", texts(&output));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("touched 2000 bad 0"), "{said}");
    let trace = Trace::open(&file).expect("a trace");
    assert_eq!(trace.header().contents, ContentsKind::Stats);
    assert!(trace.header().provenance.notes["command"].starts_with("sh -c"));
    assert_eq!(trace.totals().apps.values().collect::<Vec<_>>(), ["it"]);
    let all = records(&trace);
    assert!(count(&all, Kind::Window) >= 2, "{}", texts(&output));
    let seen: BTreeSet<PageId> = faults(&all).into_iter().collect();
    assert!(seen.len() >= 1800, "{} pages\n{}", seen.len(), texts(&output));
    let mut contents = trace.contents().expect("contents");
    let mut compressible = 0;
    for id in 0..contents.count() {
        let Content::Stats(stats) = contents.get(clew_trace::ContentId(id)).expect("there") else {
            panic!("bytes")
        };
        assert!(stats.lz4_page <= 4096 && stats.zstd_page <= 4096, "{stats:?}");
        compressible += u64::from(stats.lz4_page < 3500);
    }
    assert!(compressible > 100, "half of a page compresses");
    use std::os::unix::fs::PermissionsExt;
    let mode = file.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_cannot_be_recorded_is_said() {
    let dir = TempDir::new();
    let file = dir.join("x.trace");
    let refused = |words: &[&str], code: i32, word: &str| {
        let output = record(&file, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", texts(&output));
        assert!(said.contains(word), "'{word}': {}", texts(&output));
        assert!(!file.exists());
    };
    refused(&[], 2, "Usage");
    refused(&["--contents", "all", "--", "true"], 2, "all");
    refused(&["--windows=-1", "--", "true"], 2, "window");
    refused(&["--scheme", "none", "--", "true"], 2, "none");
    refused(&["--switches", "3", "--", "true"], 2, "--demo");
    let output = record(Path::new("/no/such/x.trace"), &["--", "true"]);
    assert_eq!(output.status.code(), Some(1), "{}", texts(&output));
    assert!(texts(&output).contains("/no/such/x.trace"), "{}", texts(&output));
    if !can_run("record::refused", &["cc"]) {
        return;
    }
    refused(&["--", "/no/such/program"], 127, "/no/such/program");
}
