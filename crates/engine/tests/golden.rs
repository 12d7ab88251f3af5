//! Golden transcripts: real programs under three schemes, decided again to the last page. A change of
//! decisions that is meant takes them anew (`scripts/golden.py`), in a commit of its own.

use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use clew_core::{
    AccessKind, AppId, Demand, Event, Ns, PageCounts, PageFacts, PageId, PageRun, SpaceId, Tier,
    Vpn,
};
use clew_engine::decide::{Engine, Order};
use clew_engine::transcript::{Call, Played, Transcript, play};
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
    let played = play(BufReader::new(&golden(scheme)[..])).unwrap_or_else(|why| panic!("{why}"));
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

/// A transcript of a swap-out and a swap-in under LRU.
fn taken() -> String {
    let scheme = Scheme::preset("zram").expect("a preset");
    let written = Kept::default();
    let mut transcript = Transcript::new(Box::new(written.clone()), &scheme);
    let mut engine = Engine::new(&scheme);
    let (app, space) = (AppId(1), SpaceId(2));
    let mut table = Table(Vec::new());
    let run = PageRun { first: PageId::new(space, Vpn(16)), count: 64 };
    let mut tell = |engine: &mut Engine, table: &Table, ns, event: Event| {
        let call = Call::Tell(Ns(ns), event.clone());
        transcript.listen(call, table, |pages| engine.tell(Ns(ns), &event, pages));
    };
    tell(&mut engine, &table, 1, Event::SpaceStart { space, app });
    tell(&mut engine, &table, 2, Event::Resident { run });
    let demand = Demand { pages: 8, urgent: false };
    let orders = transcript.listen(Call::SwapOut(demand), &table, |pages| {
        let mut orders = Vec::new();
        engine.plan_swap_out(demand, pages, &mut orders);
        orders
    });
    for order in orders {
        let Order::SwapOut { groups, .. } = order else { panic!("{order:?}") };
        for page in groups.into_iter().flat_map(|group| group.pages) {
            table.0.push(page);
            let stored = Event::Stored { page, tier: Tier::Pool, bytes: 1000 };
            let call = Call::Tell(Ns(3), stored.clone());
            transcript.listen(call, &table, |pages| engine.tell(Ns(3), &stored, pages));
        }
    }
    assert_eq!(table.0.len(), 8);
    let page = table.0.remove(0);
    let touched = Event::Access { page, kind: AccessKind::Fault, write: false };
    transcript.listen(Call::Tell(Ns(4), touched.clone()), &table, |pages| {
        engine.tell(Ns(4), &touched, pages);
    });
    transcript.finish().expect("memory");
    let bytes = written.0.lock().expect("nobody else").clone();
    String::from_utf8(bytes).expect("text")
}

#[test]
fn what_is_decided_otherwise_is_found_with_its_line() {
    let taken = taken();
    let lines = taken.lines().count() as u64;
    let played = play(taken.as_bytes()).expect("as before");
    assert_eq!(played, Played { inputs: lines - 1, questions: 1 });

    let otherwise = taken.replacen("\"count\":64", "\"count\":4", 1);
    let why = play(otherwise.as_bytes()).expect_err("fewer victims");
    assert!(why.starts_with("line 4, SwapOut"), "{why}");
    assert!(why.contains("decided"), "{why}");
    let without_facts: String =
        taken.lines().map(|line| line.replace("Counts", "Tier") + "\n").collect();
    assert!(play(without_facts.as_bytes()).is_err());
    let cut = &taken[..taken.len() - 9];
    let why = play(cut.as_bytes()).expect_err("half a line");
    assert!(why.starts_with(&format!("line {lines}: ")), "{why}");
    assert!(play(&b""[..]).is_err());
}
