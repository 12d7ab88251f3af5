//! Recordings of real programs: what they did is in the trace.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use clew_core::{
    AccessKind, AppId, Event, Ns, PageCounts, PageFacts, PageId, PageRun, SampleDemand, SpaceId,
    Tier, TierFacts, Vpn,
};
use clew_engine::budget::{Budget, Use};
use clew_engine::decide::Engine;
use clew_engine::driver::{Command as Decided, Driver};
use clew_fixture::*;
use clew_lab::decisions::Decisions;
use clew_live::config::{Config, Overrides, Recording};
use clew_live::control::client::Client;
use clew_live::control::protocol::Request;
use clew_live::control::status::AppStatus;
use clew_live::recording::decisions::Tap;
use clew_live::recording::file_reads::FileStreams;
use clew_policy::Scheme;
use clew_policy::schemes::OnFull;
use clew_trace::{Content, ContentId, ContentsKind, Kind, Record, Trace};

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

/// Sends the app to the background, which begins a window, until everything is out: at first not
/// all of it may be known yet.
fn window(fixture: &Fixture) {
    let is_out = || {
        fixture.order(&Request::Bg { app: "touch".to_string() });
        (fixture.app("touch").stored_pages >= PAGES * 9 / 10).then_some(())
    };
    poll(LONG, is_out).unwrap_or_else(|| panic!("not out\n{}", fixture.log()));
    // Answered after what was ordered before it has been told.
    fixture.swap_out("touch");
}

/// Reads and maps parts of files, and has a child read one.
const READER: &str = r#"
import ctypes, mmap, os, signal, subprocess, sys, time
held = bytearray(os.urandom(32 << 20))
print("pid", os.getpid(), flush=True)
print("ready", flush=True)
for line in sys.stdin:
    if line == "quit\n":
        break
    if line == "clone\n":
        # As no C library does it: nobody is told who this child is.
        child = ctypes.CDLL(None).syscall(56, int(signal.SIGCHLD), 0, 0, 0, 0)
        if child == 0:
            time.sleep(5)
            os._exit(0)
        print("cloned", flush=True)
        continue
    how, path, first, pages = line.split()
    first, pages = int(first) * 4096, int(pages) * 4096
    if how == "read":
        with open(path, "rb", buffering=0) as file:
            got = os.pread(file.fileno(), pages, first)
    elif how == "map":
        with open(path, "rb") as file:
            got = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[first:first + pages]
    elif how == "absurd":
        os.truncate(path, 1 << 43)
        with open(path, "rb", buffering=0) as file:
            pread = ctypes.CDLL(None, use_errno=True).pread
            got = [pread(file.fileno(), ctypes.c_void_p(4096), ctypes.c_size_t(0x7ffff000), ctypes.c_long(i << 31)) for i in range(60)]
            got = [one for one in got if one > 0]
    else:
        words = ["dd", "if=" + path, "bs=4096", f"skip={first // 4096}", f"count={pages // 4096}"]
        got = subprocess.run(words, capture_output=True, check=True).stdout
    print("got", len(got), flush=True)
"#;

#[test]
fn what_programs_use_of_files_is_recorded() {
    let test = "record::what_programs_use_of_files_is_recorded";
    if !can_run(test, &["python3", "dd"]) {
        return;
    }
    if let Err(error) = FileStreams::listen() {
        return skip(test, &format!("the kernel does not tell it: {error}"));
    }
    // Where a file system is on a device, unlike perhaps below /tmp.
    let at = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let page = |file: u64, number: u64| -> Vec<u8> {
        let words = (0..512).map(|i| file << 40 | number << 20 | i);
        let words = words.map(|word: u64| word.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        words.flat_map(u64::to_le_bytes).collect()
    };
    let files = [0, 1, 2, 3, 4].map(|file| {
        let path = at.path().join(file.to_string());
        let bytes: Vec<u8> = (0..64).flat_map(|number| page(file, number)).collect();
        std::fs::write(&path, bytes).expect("a file");
        path
    });
    let dir = TempDir::new();
    let trace = dir.join("files.trace");
    let name = trace.to_str().expect("UTF-8");
    let words = ["--record", name, "--record-files", "--record-contents", "bytes"];
    let mut fixture = Fixture::start_with("1GiB", &words);
    let mut reader = fixture.run("reader", &["python3", "-c", READER]);
    reader.wait_ready();
    fixture.wait_resident("reader", 30 << 20);
    let path = |file: usize| files[file].to_str().expect("UTF-8");
    reader.expect(&format!("read {} 3 5", path(0)), "got 20480");
    reader.expect(&format!("map {} 20 1", path(1)), "got 4096");
    reader.expect(&format!("child {} 40 2", path(2)), "got 8192");
    reader.expect("clone", "cloned");
    std::fs::read(path(3)).expect("by a stranger");
    // Who asks for all that there is, and gets nothing.
    reader.expect(&format!("absurd {} 0 4000000", path(4)), "got 0");
    reader.expect(&format!("read {} 62 9", path(0)), "got 8192");
    reader.quit();
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());

    let trace = Trace::open(&trace).unwrap_or_else(|e| panic!("{e}\n{}", fixture.log()));
    let all = records(&trace);
    let of_files = all.iter().filter_map(|record| match record {
        Record::SpaceStart { space, app, file: true } => Some((*space, *app)),
        _ => None,
    });
    let of_files: BTreeMap<SpaceId, AppId> = of_files.collect();
    assert!(of_files.values().all(|app| trace.totals().apps[app] == "files"));
    // Which file a space is, its contents tell.
    let mut contents = trace.contents().expect("contents");
    let (mut known, mut used) = (BTreeMap::new(), BTreeMap::<SpaceId, BTreeSet<u64>>::new());
    for record in &all {
        match record {
            Record::Contents { page: at, content } if of_files.contains_key(&at.space()) => {
                let Content::Bytes(bytes) = contents.get(*content).expect("contents") else {
                    panic!("no bytes")
                };
                let is = (0..5).find(|file| bytes == page(*file, at.vpn().0));
                known.extend(is.map(|file| (file, at.space())));
            }
            Record::Access { page, write, .. } if of_files.contains_key(&page.space()) => {
                assert!(!write);
                used.entry(page.space()).or_default().insert(page.vpn().0);
            }
            _ => {}
        }
    }
    let used = |file: u64| &used[known.get(&file).unwrap_or_else(|| panic!("{file} is not there"))];
    assert!(used(0).iter().copied().eq([3, 4, 5, 6, 7, 62, 63]), "{:?}", used(0));
    assert!(
        used(1).contains(&20) && used(1).len() <= 32,
        "what is mapped around it, {:?}",
        used(1)
    );
    assert!(used(2).iter().copied().eq([40, 41]), "{:?}", used(2));
    assert!(!known.contains_key(&3), "a stranger's file is recorded");
    let most = used(4).len();
    assert!(most <= 60 * 512, "{most} pages that nobody has read");
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
    window(&fixture);
    fixture.order(&Request::Fg { app: app() });
    touch.expect("touch seq", &format!("touched {PAGES} bad 0"));
    touch.expect("touch random 700 5", "touched 700 bad 0");
    fixture.order(&Request::Responded { app: app(), response_ns: 12_345 });
    window(&fixture);
    fixture.order(&Request::Fg { app: app() });
    touch.expect("touch random 500 7", "touched 500 bad 0");
    touch.quit();
    assert!(!file.exists(), "it gets its name at the end");
    let is_gone = || fixture.status().apps.is_empty().then_some(());
    poll(LONG, is_gone).unwrap_or_else(|| panic!("not gone\n{}", fixture.log()));
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
    assert!(count(&all, Kind::Window) >= 2);

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
    assert!(different.len() as u64 >= PAGES * 8 / 10, "{} of {PAGES}", different.len());
    // 500 picks of 3072 pages are about 460 different ones.
    let second = faults(&all[relaunches[1]..]).into_iter().filter(|p| different.contains(p));
    let second: BTreeSet<PageId> = second.collect();
    assert!((400..=500).contains(&second.len()), "{} pages", second.len());

    // Of each page that came back, what it held was written down when it left.
    let mut held = BTreeMap::new();
    let mut contents = trace.contents().expect("contents");
    let mut ids = BTreeSet::new();
    for record in &all {
        match record {
            Record::Contents { page, content } => drop(held.insert(*page, *content)),
            Record::Access { page, kind: AccessKind::Fault, .. } => {
                let id = held.get(page).unwrap_or_else(|| panic!("{page:?} held nothing"));
                let found = contents.get(*id).expect("contents");
                assert!(matches!(found, Content::Bytes(bytes) if bytes.len() == 4096));
                ids.insert(*id);
            }
            _ => {}
        }
    }
    assert!(count(&all, Kind::AskedApp) >= 2, "the questions are recorded");
    let (victims, stored) = (count(&all, Kind::Victim), count(&all, Kind::Stored));
    assert!(victims >= stored && stored >= PAGES * 9 / 10, "{victims} victims, {stored} stored");
    assert_eq!(stored, count(&all, Kind::Candidate));
    // touch gives each page contents of its own.
    assert!(ids.len() as u64 >= PAGES * 8 / 10, "{} different contents", ids.len());
    assert_eq!(trace.totals().count(Kind::SpaceEnd), trace.totals().count(Kind::SpaceStart));
    assert_eq!(trace.totals().count(Kind::Exit), 1);
}

fn record(file: &Path, words: &[&str]) -> Output {
    run_to_end(clew().arg("record").arg("-o").arg(file).args(words), LONG)
}

#[test]
fn a_program_is_recorded_under_a_daemon_of_its_own() {
    if !can_run("record::program", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("p.trace");
    let mut command = clew();
    command.args(["record", "--windows", "0.2", "--app", "it", "-o"]).arg(&file).arg("--");
    command.arg(compile(&dir, "touch.c", &[])).args(["2000", "50", "1"]);
    let mut touch = Program::start(&dir, "touch", command);
    touch.wait_ready();
    let said = touch.errors();
    let socket = said.split_whitespace().find(|word| word.ends_with(".sock"));
    let mut client = Client::connect(Path::new(socket.expect("a path"))).expect("a daemon");
    for _ in 0..3 {
        poll(LONG, || {
            let status = client.status().expect("a status");
            status.apps.iter().any(|app| app.stored_pages > 1600).then_some(())
        })
        .expect("windows begin");
        touch.expect("touch seq", "touched 2000 bad 0");
    }
    touch.quit();
    let trace = Trace::open(&file).expect("a trace");
    assert_eq!(trace.header().contents, ContentsKind::Stats);
    assert!(trace.header().provenance.notes["command"].ends_with("2000 50 1"));
    assert_eq!(trace.totals().apps.values().collect::<Vec<_>>(), ["it"]);
    let all = records(&trace);
    assert!(count(&all, Kind::Window) >= 2);
    let seen: BTreeSet<PageId> = faults(&all).into_iter().collect();
    assert!(seen.len() >= 1600, "{} pages", seen.len());
    let mut contents = trace.contents().expect("contents");
    let mut compressible = 0;
    for id in 0..contents.count() {
        let Content::Stats(stats) = contents.get(ContentId(id)).expect("there") else {
            panic!("bytes")
        };
        assert!(stats.lz4_page <= 4096 && stats.zstd_page <= 4096, "{stats:?}");
        compressible += u64::from(stats.lz4_page < 3500);
    }
    assert!(compressible > 100, "half of a page compresses");
    let mode = file.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// Live equals replay: the policies, asked again, answer as they did.
#[test]
fn policies_that_are_asked_again_answer_the_same() {
    if !can_run("record::decisions", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let program = compile(&dir, "touch.c", &[]);
    for scheme in ["zram", "ariadne"] {
        // What is prefetched depends on what is stored at that moment, of which the policies are told
        // later: timing decides how much that is, and a little of what. On a busy machine it may be all of
        // one recording; what is wrong in policies or recorder is all of three.
        let agrees = (0..3).any(|attempt| {
            let (found, begins) = recorded_and_asked_again(&dir, &program, scheme, attempt);
            assert!(found.victims.recorded > 500 && found.questions > 4, "{found:?}");
            assert!(found.victims.share() > 0.99, "{found:?}: {begins:#?}");
            assert!(found.groups.share() > 0.99, "{found:?}: {begins:#?}");
            let agreed = found.prefetches;
            let is_alike = agreed.both * 10 >= agreed.recorded * 8
                && (agreed.recorded > 0) == (scheme != "zram");
            if !is_alike {
                println!("{found:?}");
            }
            is_alike
        });
        assert!(agrees, "{scheme}: what is prefetched, in three recordings of three");
    }
}

/// What came of it, and the records until a little after the first that differs.
fn recorded_and_asked_again(
    dir: &TempDir,
    program: &Path,
    scheme: &str,
    attempt: u32,
) -> (Decisions, Vec<Record>) {
    let file = dir.join(format!("{scheme}-{attempt}.trace"));
    let mut command = clew();
    command.args(["record", "--contents", "none", "--windows", "3600", "--app", "it"]);
    command.args(["--budget", "48MiB", "--scheme", scheme, "-o"]).arg(&file).arg("--");
    command.arg(program).args(["12000", "50", "1"]);
    let mut touch = Program::start(dir, "touch", command);
    touch.wait_ready();
    let said = touch.errors();
    let socket = said.split_whitespace().find(|word| word.ends_with(".sock"));
    let mut client = Client::connect(Path::new(socket.expect("a path"))).expect("a daemon");
    poll(LONG, || client.status().ok().filter(|status| status.apps[0].stored_pages > 500))
        .expect("the budget is kept");
    for seed in 1..=4 {
        let app = || "it".to_string();
        client.order(&Request::Fg { app: app() }).expect("it is known");
        touch.expect(&format!("touch random 1500 {seed}"), "touched 1500 bad 0");
        let response_ns = 1_000_000;
        client.order(&Request::Responded { app: app(), response_ns }).expect("it is known");
        client.order(&Request::Bg { app: app() }).expect("it is known");
    }
    touch.quit();
    let trace = Trace::open(&file).expect("a trace");
    let found = clew_lab::decisions(&trace, &mut |_, _| {}).expect("a recording");
    assert_eq!(found.scheme, scheme);
    let shown = found.first_difference.map_or(0, |record| record.min(200) as usize + 20);
    (found, records(&trace).into_iter().take(shown).collect())
}

const TOTAL: u64 = 1 << 30;

/// What is decided when so many pages are short, and that is urgent.
fn short_of(driver: &mut Driver, pages: u64) -> Vec<Decided> {
    let used_bytes = TOTAL + (pages - 1) * 4096;
    let used = Use { used_bytes, resident_bytes: used_bytes, ..Use::default() };
    let (now, pool) = (driver.facts().now, driver.facts().tiers[&Tier::Pool]);
    driver.keep_budget(now, used, &NoPages);
    let mut decided = Vec::new();
    while let Some(command) = driver.next_command() {
        match command {
            Decided::GiveUp { wanted_bytes } => {
                let dropped = driver.give_up_kept(wanted_bytes, |_| None);
                driver.gave_up(dropped, pool, &NoPages);
            }
            other => decided.push(other),
        }
    }
    decided
}

/// A driver whose questions are written down, and asked again.
fn asked_again(
    scheme: &str,
    play: impl FnOnce(&mut Driver, &mut dyn FnMut(&mut Driver, Event)),
) -> Decisions {
    let dir = TempDir::new();
    let recording = Recording {
        file: dir.join("asked.trace"),
        contents: ContentsKind::None,
        windows: None,
        files: false,
        notes: BTreeMap::new(),
    };
    let over = Overrides { scheme: Some(scheme.to_string()), ..Overrides::default() };
    let config = Config::load(None, &over).expect("defaults");
    let (recorder, _, scribe) =
        clew_live::recording::recorder::start(&recording, &config).expect("a file");
    let budget = Budget { total_bytes: TOTAL, low_bytes: 4096, high_bytes: 4096, page_bytes: 4096 };
    let mut driver = Driver::new(Engine::new(&config.scheme), budget, config.scheme.on_full);
    driver.listen(Box::new(Tap(recorder)));
    let mut now = 0;
    play(&mut driver, &mut |driver, event| {
        now += 1000;
        driver.tell(Ns(now), &event, &NoPages);
    });
    drop(driver);
    scribe.finish().expect("it is written");
    let trace = Trace::open(&recording.file).expect("a trace");
    clew_lab::decisions(&trace, &mut |_, _| {}).expect("a recording")
}

/// Nobody has a page table here.
struct NoPages;

impl PageFacts for NoPages {
    fn tier(&self, _: PageId) -> Option<Tier> {
        None
    }
    fn counts(&self, _: SpaceId) -> PageCounts {
        PageCounts::default()
    }
    fn for_each(&self, _: SpaceId, _: &mut dyn FnMut(PageId, Option<Tier>)) {}
}

/// Which pages are watched changes whose turn it is to leave: it is asked again as the rest is.
#[test]
fn what_was_sampled_is_asked_again() {
    let (app, space) = (AppId(3), SpaceId(0));
    let run = |vpn, count| PageRun { first: PageId::new(space, Vpn(vpn)), count };
    let found = asked_again("ariadne", |driver, tell| {
        driver.name(app, "it");
        tell(driver, Event::SpaceStart { space, app, file: false });
        tell(driver, Event::Resident { run: run(100, 64) });
        tell(driver, Event::Relaunch { app });
        for page in run(100, 32).pages() {
            tell(driver, Event::Access { page, kind: AccessKind::Fault, write: false });
        }
        tell(driver, Event::ResponseComplete { app, response_ns: 1 });
        tell(driver, Event::Background { app });
        for expected in [100, 108] {
            let runs = driver.pick_samples(SampleDemand { app, pages: 8, run_pages: 4 }, &NoPages);
            assert_eq!(runs, [run(expected, 4), run(expected + 4, 4)], "they take turns");
        }
        // All that is cold, and what is hot as far as its turn has come.
        // The first 32 are on their way still when 8 more are wanted.
        for pages in [32, 32 + 8] {
            short_of(driver, pages);
        }
    });
    assert_eq!((found.questions, found.same, found.first_difference), (4, 4, None), "{found:?}");
    assert_eq!((found.samples.recorded, found.samples.both), (16, 16));
    assert_eq!((found.victims.recorded, found.victims.both), (40, 40));
}

/// So is whom the last resort must spare.
#[test]
fn who_was_spared_is_spared_again() {
    let dir = TempDir::new();
    let file = dir.join("kills.toml");
    let scheme = Scheme {
        name: "kills".to_string(),
        on_full: OnFull::Kill,
        disksize_pages: Some(1),
        ..Scheme::preset("zram").expect("a preset")
    };
    std::fs::write(&file, scheme.to_toml()).expect("room");
    let found = asked_again(file.to_str().expect("UTF-8"), |driver, tell| {
        for app in 0..3 {
            let (app, space) = (AppId(app), SpaceId(app));
            driver.name(app, &format!("app {}", app.0));
            tell(driver, Event::SpaceStart { space, app, file: false });
            let run = PageRun { first: PageId::new(space, Vpn(7)), count: 9 };
            tell(driver, Event::Resident { run });
            tell(driver, Event::Launch { app });
        }
        driver.spare(AppId(0));
        let full = TierFacts { pages: 1, limit_pages: 1, ..TierFacts::default() };
        driver.set_tier(Tier::Pool, full);
        let decided = short_of(driver, 4);
        let ends = |command: &Decided| matches!(command, Decided::EndApp { app: AppId(1), .. });
        assert!(decided.iter().any(ends), "{decided:?}");
    });
    assert_eq!((found.endings.recorded, found.endings.both, found.endings.replayed), (1, 1, 1));
}

#[test]
fn its_code_is_ours() {
    if !can_run("record::code", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("code.trace");
    let output = record(&file, &["--app", "it", "--format", "json", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", texts(&output));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["apps"], serde_json::json!(["it"]));
    assert!(Trace::open(&file).is_ok());
}

#[test]
fn a_recording_that_cannot_be_finished_is_said() {
    if !can_run("record::full", &["cc", "unshare", "mount"]) {
        return;
    }
    let dir = TempDir::new();
    let program = compile(&dir, "touch.c", &[]);
    // A disk of 64 KiB: the pages of the program need more.
    let disk = dir.join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    let file = disk.join("full.trace");
    let script = "mount -t tmpfs -o size=64k none \"$1\" && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(&disk);
    command.args([env!("CARGO_BIN_EXE_clew"), "record", "--contents", "bytes"]);
    command.args(["--windows", "0.1", "-o"]).arg(&file).arg("--");
    command.arg(program).args(["2000", "0", "1"]);
    let mut touch = Program::start(&dir, "touch", command);
    touch.wait_ready();
    let socket = touch.errors();
    let socket = socket.split_whitespace().find(|word| word.ends_with(".sock"));
    let mut client = Client::connect(Path::new(socket.expect("a path"))).expect("a daemon");
    let is_out = |app: &AppStatus| app.stored_pages > 1000;
    poll(LONG, || client.status().ok()?.apps.iter().any(is_out).then_some(())).expect("it is out");
    // The program goes on, whatever becomes of the trace.
    touch.expect("touch seq", "touched 2000 bad 0");
    touch.send("quit");
    let status = touch.wait(LONG);
    assert_eq!(status.code(), Some(1), "{}", touch.report());
    assert!(touch.errors().contains("cannot record to"), "{}", touch.report());
}

/// Its daemon ends with the last program, and the trace is whole then.
#[test]
fn a_recorder_that_is_killed_leaves_no_daemon() {
    if !can_run("record::killed", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let (program, file) = (compile(&dir, "touch.c", &[]), dir.join("killed.trace"));
    let mut command = clew();
    command.arg("record").arg("-o").arg(&file).arg("--").arg(program).args(["2000", "0", "1"]);
    // It leaves its files.
    command.env("TMPDIR", dir.path());
    let mut touch = Program::start(&dir, "touch", command);
    touch.wait_ready();
    let said = touch.errors();
    let socket = said.split_whitespace().find(|word| word.ends_with(".sock")).expect("a path");
    let mut client = Client::connect(Path::new(socket)).expect("a daemon");
    let daemon = client.status().expect("it answers").daemon_pid;
    let recorder = parent_of(daemon).expect("it has started it");
    assert!(signal(recorder, "KILL"));
    touch.expect("touch seq", "touched 2000 bad 0");
    assert!(is_alive(daemon), "its program is there");
    touch.send("quit");
    poll(LONG, || (!is_alive(daemon)).then_some(())).expect("the daemon ends");
    assert!(file.exists(), "{said}");
}

#[test]
fn a_signal_is_the_recorded_programs() {
    if !can_run("a_signal_is_the_recorded_programs", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let (trace, said) = (dir.join("t.trace"), dir.join("said"));
    let script = format!("trap 'exit 9' TERM; > {}; while :; do sleep 0.05; done", said.display());
    let mut record = clew();
    record.arg("record").arg("-o").arg(&trace).args(["--", "sh", "-c", &script]);
    let mut record = record.stdout(std::process::Stdio::null()).spawn().expect("it starts");
    assert!(poll(LONG, || said.exists().then_some(())).is_some(), "it does not begin");
    signal(record.id(), "TERM");
    let status = wait_for_end(&mut record, LONG).expect("it ends");
    assert_eq!(status.code(), Some(9));
    assert!(trace.exists());
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
    refused(&[], 2, "required arguments");
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
