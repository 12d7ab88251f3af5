//! Golden transcripts: real programs under three schemes, decided again to the last page. A change of
//! decisions that is meant takes them anew (`scripts/golden.py`), in a commit of its own.

use std::fs::File;
use std::io::{Cursor, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use clew_core::{
    AccessKind, AppId, Event, Ns, PageCounts, PageFacts, PageId, PageRun, SpaceId, Tier, TierFacts,
    Vpn,
};
use clew_engine::budget::{Budget, Use};
use clew_engine::decide::Engine;
use clew_engine::driver::{Command, Driver};
use clew_engine::transcript::{Played, Transcript, play};
use clew_policy::Scheme;

fn golden(scheme: &str) -> Vec<u8> {
    let file = format!("tests/golden/{scheme}.jsonl.zst");
    let file = File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect("it is there");
    let mut lines = Vec::new();
    let mut decoder = zstd::Decoder::new(file).expect("zstd");
    decoder.read_to_end(&mut lines).expect("it is whole");
    lines
}

fn decided_as_before(scheme: &str) -> Played {
    let played = play(Cursor::new(golden(scheme))).unwrap_or_else(|why| panic!("{why}"));
    assert!(played.inputs > 10_000 && played.questions > 100, "{played:?}");
    played
}

#[test]
fn zram_decides_as_before() {
    decided_as_before("zram");
}

#[test]
fn ariadne_decides_as_before() {
    decided_as_before("ariadne");
}

#[test]
fn clew_decides_as_before() {
    decided_as_before("clew");
}

/// One app whose pages are resident, but for those that left.
struct Table(Vec<PageId>);

impl PageFacts for Table {
    fn tier(&self, page: PageId) -> Option<Tier> {
        self.0.contains(&page).then_some(Tier::Pool)
    }
    fn counts(&self, _: SpaceId) -> PageCounts {
        PageCounts { resident: 64 - self.0.len() as u64, ..PageCounts::default() }
    }
    fn for_each(&self, _: SpaceId, _: &mut dyn FnMut(PageId, Option<Tier>)) {}
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody else").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A transcript of a driver under LRU that is short of memory by eight pages, and a swap-in.
fn taken() -> String {
    taken_under(&Scheme::preset("zram").expect("a preset"))
}

/// The same of any scheme. Before, 16 pages are used together, and what policies want done is done.
fn taken_under(scheme: &Scheme) -> String {
    let written = Kept::default();
    let budget = Budget { total_bytes: 1 << 30, low_bytes: 0, high_bytes: 4096, page_bytes: 4096 };
    let mut driver = Driver::new(Engine::new(scheme), budget, scheme.on_full);
    driver.listen(Box::new(Transcript::new(Box::new(written.clone()), scheme)));
    let (app, space) = (AppId(1), SpaceId(2));
    let mut table = Table(Vec::new());
    let run = PageRun { first: PageId::new(space, Vpn(16)), count: 64 };
    driver.tell(Ns(1), &Event::SpaceStart { space, app, file: false }, &table);
    driver.tell(Ns(2), &Event::Resident { run }, &table);
    for vpn in 20..36 {
        let page = PageId::new(space, Vpn(vpn));
        let touched = Event::Access { page, kind: AccessKind::Seen, write: false };
        driver.tell(Ns(2), &touched, &table);
    }
    driver.tick(Ns(2), &table);
    while let Some(command) = driver.next_command() {
        let Command::Run(job) = command else { panic!("{command:?}") };
        let id = job.id;
        (job.run)();
        driver.tell(Ns(2), &Event::JobDone { job: id }, &table);
    }
    let used = Use { used_bytes: (1 << 30) + 7 * 4096, ..Use::default() };
    driver.keep_budget(Ns(3), Use { resident_bytes: used.used_bytes, ..used }, &table);
    let mut left = 0;
    while let Some(command) = driver.next_command() {
        match command {
            Command::GiveUp { wanted_bytes } => {
                let dropped = driver.give_up_kept(wanted_bytes, |_| None);
                driver.gave_up(dropped, TierFacts::default(), &table);
            }
            Command::SwapOut { groups, .. } => {
                for page in groups.into_iter().flat_map(|group| group.pages) {
                    table.0.push(page);
                    let stored = Event::Stored { page, tier: Tier::Pool, bytes: 1000 };
                    driver.tell(Ns(3), &stored, &table);
                    left += 1;
                }
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(left >= 8, "{left}");
    let page = table.0.remove(0);
    let touched = Event::Access { page, kind: AccessKind::Fault, write: false };
    driver.tell(Ns(4), &touched, &table);
    drop(driver);
    let bytes = written.0.lock().expect("nobody else").clone();
    String::from_utf8(bytes).expect("text")
}

/// What a job finds is not in a transcript: whoever plays it runs the job again.
#[test]
fn what_was_mined_is_mined_again() {
    let archer = Scheme::preset("archer").expect("a preset").to_toml();
    let quick = [
        ("wide_pages = 512", "wide_pages = 8"),
        ("window = 32", "window = 16"),
        ("heartbeat_ms = 3000", "heartbeat_ms = 0"),
        ("least_transactions = 5", "least_transactions = 1"),
    ];
    let quick = quick.into_iter().fold(archer, |text, (from, to)| {
        assert!(text.contains(from), "{text}");
        text.replacen(from, to, 1)
    });
    let taken = taken_under(&Scheme::from_toml(&quick).expect("a scheme"));
    assert!(taken.contains("JobDone"), "{taken}");
    // All that was used together leaves together.
    assert_eq!(taken.lines().filter(|line| line.contains("Stored")).count(), 16, "{taken}");
    played(&taken).unwrap_or_else(|why| panic!("{why}"));
}

fn played(transcript: &str) -> Result<Played, String> {
    play(Cursor::new(transcript.to_string()))
}

#[test]
fn what_is_decided_otherwise_is_found_with_its_line() {
    let taken = taken();
    let lines = taken.lines().count() as u64;
    // What is short, what is given up, what is asked, who leaves.
    let expected = Played { inputs: lines - 1, questions: 5 };
    assert_eq!(played(&taken), Ok(expected), "{taken}");

    let otherwise = taken.replacen("\"count\":64", "\"count\":4", 1);
    let why = played(&otherwise).expect_err("fewer victims");
    assert!(why.contains("SwapOut") && why.contains("decided"), "{why}");
    // The same, with another budget.
    let otherwise = taken.replacen("\"pages\":8,", "\"pages\":9,", 1);
    let why = played(&otherwise).expect_err("another demand");
    assert!(why.starts_with("line 24, Demand"), "{why}");
    let line = |call: &str| taken.lines().find(|line| line.contains(call)).expect("it is there");
    let without = taken.replacen(&format!("{}\n", line("\"Moves\"")), "", 1);
    assert!(played(&without).is_err_and(|why| why.contains("the driver did Moves")));
    let twice = taken.replacen(line("\"SwapOut\""), &[line("\"SwapOut\""); 2].join("\n"), 1);
    assert!(played(&twice).is_err_and(|why| why.contains("does not do this by itself")));
    let otherwise = taken.replacen("\"resident\":64", "\"resident\":63", 1);
    assert_eq!(played(&otherwise), Ok(expected), "nobody asks");
    let otherwise: String =
        taken.lines().map(|line| line.replace("Counts", "Tier") + "\n").collect();
    assert!(played(&otherwise).is_err());
    let why = played(&taken[..taken.len() - 9]).expect_err("half a line");
    assert!(why.starts_with(&format!("line {lines}: ")), "{why}");
    assert!(played("").is_err());
}
