//! What tests/programs/hook.c and notify.c see, in words: which functions of Clew's own make system
//! calls, and where the steps of the order of updates are.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{TempDir, compile};

/// Of `struct table` in hook.h.
const READY: u64 = 0;
const FIRED: u64 = 8;
const ARMED: u64 = 16;
const POINTS_AT: u64 = 64;
const POINTS: usize = 128;
const THREADS_AT: u64 = POINTS_AT + POINTS as u64 * 8;
const THREADS: usize = 64;
const SITES_AT: u64 = THREADS_AT + THREADS as u64 * 32;
const SITES: usize = 4096;
const SITE_BYTES: usize = 64;

/// Not system calls, but numbered like them.
pub const PTHREAD_CREATE: u32 = 10000;
pub const ALLOCATION: u32 = 10001;

/// A place from which something is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    pub key: u64,
    /// How often.
    pub count: u64,
    /// System call number.
    pub number: u32,
    /// What ioctl and its like were asked for.
    pub what: u32,
    /// Return addresses, innermost first.
    pub frames: Vec<u64>,
}

/// What a hook tells.
pub struct Table {
    path: PathBuf,
    file: File,
}

impl Table {
    pub fn new(path: PathBuf) -> Table {
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.expect("a table");
        file.set_len(SITES_AT + (SITES * SITE_BYTES) as u64).expect("room");
        Table { path, file }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn word(&self, at: u64) -> u64 {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at).expect("it is there");
        u64::from_ne_bytes(bytes)
    }

    /// Whether the hook was loaded.
    pub fn is_ready(&self) -> bool {
        self.word(READY) != 0
    }

    /// How often what was ordered has happened.
    pub fn fired(&self) -> u64 {
        self.word(FIRED)
    }

    /// Begins or ends the counting of allocations.
    pub fn arm(&self, armed: bool) {
        self.file.write_all_at(&u64::from(armed).to_ne_bytes(), ARMED).expect("written");
    }

    /// How often each point was passed.
    pub fn points(&self) -> Vec<u64> {
        (0..POINTS as u64).map(|i| self.word(POINTS_AT + i * 8)).collect()
    }

    /// Threads (the first eight characters of their names), their allocations and bytes of these.
    pub fn allocations(&self) -> Vec<(String, u64, u64)> {
        let thread = |i: u64| {
            let at = THREADS_AT + i * 32;
            let mut name = [0; 16];
            self.file.read_exact_at(&mut name, at).expect("it is there");
            let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_string();
            (name, self.word(at + 16), self.word(at + 24))
        };
        (0..THREADS as u64).map(thread).take_while(|thread| !thread.0.is_empty()).collect()
    }

    /// All sites, by number and address.
    pub fn sites(&self) -> Vec<Site> {
        let mut bytes = vec![0; SITES * SITE_BYTES];
        self.file.read_exact_at(&mut bytes, SITES_AT).expect("it is there");
        let mut sites: Vec<Site> = bytes
            .chunks_exact(SITE_BYTES)
            .map(|site| {
                let word = |i: usize| {
                    u64::from_ne_bytes(site[i * 8..i * 8 + 8].try_into().expect("eight bytes"))
                };
                let frames = (3..7).map(word).filter(|frame| *frame != 0).collect();
                let (number, what) = (word(2) as u32, (word(2) >> 32) as u32);
                Site { key: word(0), count: word(1), number, what, frames }
            })
            .filter(|site| site.key != 0)
            .collect();
        sites.sort_by(|a, b| (a.number, a.what, &a.frames).cmp(&(b.number, b.what, &b.frames)));
        sites
    }
}

/// Functions of a program, by address.
struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    fn of(program: &Path) -> Symbols {
        let output = Command::new("nm")
            .args(["--defined-only", "--demangle", "--numeric-sort"])
            .arg(program)
            .output()
            .expect("nm runs");
        assert!(output.status.success(), "nm {}", program.display());
        let text = String::from_utf8_lossy(&output.stdout);
        let functions = text.lines().filter_map(|line| {
            let mut words = line.splitn(3, ' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let kind = words.next()?;
            matches!(kind, "t" | "T" | "w" | "W").then_some(())?;
            Some((address, words.next()?.to_string()))
        });
        Symbols(functions.collect())
    }

    fn name(&self, address: u64) -> String {
        // A return address lies behind its call, which may be the last instruction.
        match self.0.range(..address).next_back() {
            Some((start, name)) => format!("{name}+{:#x}", address - start),
            None => format!("{address:#x}"),
        }
    }
}

fn is_own(name: &str) -> bool {
    let name = name.trim_start_matches('<');
    name.starts_with("clew")
}

/// The hooks, made ready for the command under test.
pub struct Tools {
    pub dir: TempDir,
    hook: PathBuf,
    notify: PathBuf,
    /// tests/programs/touch.c
    pub touch: PathBuf,
    daemon: Symbols,
    agent: Symbols,
    /// Addresses of each point, in the order of [`clew_store::points::NAMES`].
    places: Vec<Vec<u64>>,
    /// A function that panics.
    panics: u64,
}

impl Tools {
    pub fn new() -> Tools {
        let dir = TempDir::new();
        let program = Path::new(env!("CARGO_BIN_EXE_clew"));
        let hook = compile(&dir, "hook.c", &["-shared", "-fPIC"]);
        let notify = compile(&dir, "notify.c", &[]);
        let touch = compile(&dir, "touch.c", &[]);
        let daemon = Symbols::of(program);
        let starts: Vec<(&u64, &String)> = daemon.0.iter().collect();
        let mut own = String::new();
        for pair in starts.windows(2).filter(|pair| is_own(pair[0].1)) {
            own += &format!("{:x} {:x}\n", pair[0].0, pair[1].0);
        }
        fs::write(dir.join("own"), own).expect("written");
        let is_panic = |(_, name): &(&u64, &String)| {
            name.as_str() == "core::panicking::panic_const::panic_const_div_by_zero"
        };
        let panics = daemon.0.iter().find(is_panic).map_or(0, |(address, _)| *address);
        let places = places(&dir, program);
        let mut points = String::new();
        for (i, addresses) in places.iter().enumerate() {
            addresses.iter().for_each(|address| points += &format!("{address:x} {i}\n"));
        }
        fs::write(dir.join("points"), points).expect("written");
        let agent = Symbols(BTreeMap::new());
        Tools { dir, hook, notify, touch, daemon, agent, places, panics }
    }

    /// The environment of a daemon that is looked at; `calls` are trapped.
    pub fn environment(&self, table: &Table, calls: &[u32]) -> Vec<(&'static str, String)> {
        let path = |path: &Path| path.to_str().expect("UTF-8").to_string();
        let mut environment = vec![
            ("LD_PRELOAD", path(&self.hook)),
            ("CLEW_HOOK_TABLE", path(table.path())),
            ("CLEW_HOOK_OWN", path(&self.dir.join("own"))),
        ];
        // What the C library calls with all signals blocked: the hook stands in for functions.
        const STOOD_IN_FOR: [u32; 2] = [11, 28];
        let calls: Vec<u32> =
            calls.iter().copied().filter(|call| !STOOD_IN_FOR.contains(call)).collect();
        if !calls.is_empty() {
            environment.push(("CLEW_HOOK_CALLS", path(&self.calls(&calls))));
        }
        environment
    }

    /// Besides: points are counted.
    pub fn with_points(&self) -> (&'static str, String) {
        ("CLEW_HOOK_POINTS", self.dir.join("points").to_str().expect("UTF-8").to_string())
    }

    /// Besides: the daemon stops when it passes point `point` for the `nth` time.
    pub fn stop_at(&self, point: usize, nth: u64, panics: bool) -> (&'static str, String) {
        let address = if panics { self.panics } else { 0 };
        assert!(!panics || address != 0, "no function that panics is known");
        ("CLEW_HOOK_STOP", format!("{point} {nth} {address:x}"))
    }

    fn calls(&self, calls: &[u32]) -> PathBuf {
        let path = self.dir.join(format!("calls-{}", calls.len()));
        if !path.exists() {
            let lines: Vec<String> = calls.iter().map(u32::to_string).collect();
            fs::write(&path, lines.join("\n") + "\n").expect("written");
        }
        path
    }

    /// What comes before a command whose agent is looked at.
    pub fn notify(&self, table: &Table, calls: &[u32], fail: &str) -> Vec<String> {
        let path = |path: &Path| path.to_str().expect("UTF-8").to_string();
        vec![path(&self.notify), path(table.path()), path(&self.calls(calls)), fail.to_string()]
    }

    /// Addresses of the points of the order of updates.
    pub fn places(&self) -> &[Vec<u64>] {
        &self.places
    }

    /// A site of the daemon in words.
    pub fn describe(&self, site: &Site) -> String {
        let frames: Vec<String> = site.frames.iter().map(|f| self.daemon.name(*f)).collect();
        frames.join(" < ")
    }

    /// A site of the agent in words.
    pub fn describe_agent(&self, site: &Site) -> String {
        let frames: Vec<String> = site.frames.iter().map(|f| self.agent.name(*f)).collect();
        frames.join(" < ")
    }

    /// Reads the names of the functions of the preloaded object, which a daemon has put somewhere.
    pub fn know_agent(&mut self, object: &Path) {
        self.agent = Symbols::of(object);
    }
}

/// The notes of `store/src/points.rs`: 64 bytes each, an address and a name.
fn places(dir: &TempDir, program: &Path) -> Vec<Vec<u64>> {
    let section = dir.join("section");
    let done = Command::new("objcopy")
        .args(["--output-target", "binary", "--only-section", "clew_points"])
        .args(["--set-section-flags", "clew_points=alloc"])
        .args([program, &section])
        .status();
    assert!(done.is_ok_and(|status| status.success()), "objcopy");
    let names = clew_store::points::NAMES;
    let mut places = vec![Vec::new(); names.len()];
    for note in fs::read(&section).expect("a section").chunks_exact(64) {
        let address = u64::from_le_bytes(note[..8].try_into().expect("eight bytes"));
        let name = String::from_utf8_lossy(&note[8..]);
        let name = name.split('\0').next().unwrap_or_default();
        let i = names.iter().position(|n| *n == name).unwrap_or_else(|| panic!("point '{name}'?"));
        // Where a function was left out, the address is that within it.
        if address >= 4096 {
            places[i].push(address);
        }
    }
    places
}
