//! What the end-to-end tests share: a daemon of their own, programs under it, bounded waits.
//!
//! A test that cannot run here says so ([`skip`]).

#![allow(dead_code)] // each test program uses its part

pub mod donors;
pub mod governed;
pub mod hook;
pub mod hostile;
pub mod other_user;
pub mod redis;
#[path = "../../../../tests/skip.rs"]
mod skip;
pub mod storm;
pub mod terminal;
pub mod touch;
pub mod world;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub use skip::skip;

use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::Request;
use clew_live::control::status::{AppStatus, ProcessStatus, Status};
use clew_live::survival::predecessor;

/// Longer than anything here takes on a slow and busy machine; a wait that long is a hang.
pub const LONG: Duration = Duration::from_secs(120);

/// One test at a time: each of them fills memory and wants the processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Holds off other tests.
pub fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The `clew` command under test.
pub fn clew() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_clew"));
    command.env_remove("LD_PRELOAD").env_remove("CLEW_SOCKET").stdin(Stdio::null());
    command
}

/// Where the C sources and scripts are.
pub fn program_source(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs")).join(name)
}

/// Whether `test` can run: root, userfaultfd, and `programs` on the path. Says so if not.
pub fn can_run(test: &str, programs: &[&str]) -> bool {
    let reason = if !is_root() {
        Some("not root".to_string())
    } else if !Path::new("/dev/userfaultfd").exists()
        && !Path::new("/proc/sys/vm/unprivileged_userfaultfd").exists()
    {
        Some("the kernel has no userfaultfd".to_string())
    } else {
        missing_program(programs)
    };
    if let Some(reason) = &reason {
        skip(test, reason);
    }
    reason.is_none()
}

/// The first of `programs` that is not on the path.
pub fn missing_program(programs: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    programs
        .iter()
        .find(|program| !std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
        .map(|program| format!("{program} is not installed"))
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let uids = status.lines().find(|line| line.starts_with("Uid:")).expect("a Uid line");
    uids.split_whitespace().nth(2) == Some("0")
}

/// The number in an environment variable, `otherwise` where it is not set.
pub fn number_from_env(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is not a number: '{text}'")),
        Err(_) => otherwise,
    }
}

/// Numbers that a seed decides.
pub struct Random(pub u64);

impl Random {
    /// The next one, below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % limit
    }
}

/// Sets a flag when it goes, by a panic too: threads that work until then end.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Bytes of a page.
pub fn page_size() -> u64 {
    let output = Command::new("getconf").arg("PAGESIZE").output().expect("getconf runs");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a page size")
}

/// Asks `condition` again and again until it gives a value; `None` after `limit`.
pub fn poll<T>(limit: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = condition() {
            return Some(value);
        }
        if Instant::now() > end {
            return None;
        }
        sleep(Duration::from_millis(20));
    }
}

/// A directory of its own, removed at the end.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A fresh one. Its path is short: sockets go there.
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("clew-test-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary directory");
        TempDir(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Compiles `source` (of tests/programs) into `dir`.
pub fn compile(dir: &TempDir, source: &str, flags: &[&str]) -> PathBuf {
    let name = source.strip_suffix(".c").expect("a C source");
    let binary = dir.join(name);
    let output = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(flags)
        .arg("-o")
        .arg(&binary)
        .arg(program_source(source))
        .output()
        .expect("cc runs");
    assert!(output.status.success(), "cc {source}: {}", String::from_utf8_lossy(&output.stderr));
    binary
}

/// Runs `command` to its end, with a limit.
pub fn run_to_end(command: &mut Command, limit: Duration) -> Output {
    let shown = format!("{command:?}");
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
    // Read while it runs, or a full pipe would stop it. The pipes may be held by processes that
    // outlive it, so the readers are not joined.
    let collect = |mut from: Box<dyn Read + Send>| {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        receiver
    };
    let stdout = collect(Box::new(child.stdout.take().expect("piped")));
    let stderr = collect(Box::new(child.stderr.take().expect("piped")));
    let status = wait_for_end(&mut child, limit);
    if status.is_none() {
        eprintln!("{}", describe_processes(child.id()));
        kill_tree(&mut child);
    }
    let gather = |receiver: Receiver<Vec<u8>>| {
        let mut all = Vec::new();
        while let Ok(part) = receiver.recv_timeout(Duration::from_secs(2)) {
            all.extend(part);
        }
        all
    };
    let (stdout, stderr) = (gather(stdout), gather(stderr));
    let Some(status) = status else {
        panic!(
            "{shown} did not end within {limit:?}\n{}\n{}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        );
    };
    Output { status, stdout, stderr }
}

/// Waits for the end of `child`.
pub fn wait_for_end(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    poll(limit, || child.try_wait().expect("try_wait"))
}

/// Kills one process by its id.
pub fn kill(pid: u32) {
    signal(pid, "KILL");
}

/// Asks one process to end.
pub fn terminate(pid: u32) {
    assert!(signal(pid, "TERM"), "process {pid} is gone");
}

/// Sends a process the signal of this name; false if there is none.
pub fn signal(pid: u32, name: &str) -> bool {
    let mut command = Command::new("kill");
    command.args(["-s", name, &pid.to_string()]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Kills a child, its process group and all its descendants, and reaps it.
pub fn kill_tree(child: &mut Child) {
    for pid in descendants(child.id()) {
        kill(pid);
    }
    kill_group(child.id());
    let _ = child.kill();
    let _ = wait_for_end(child, Duration::from_secs(10));
}

/// Whether `pid` still is a process of the command under test.
fn is_keeper(pid: u32) -> bool {
    let exe = fs::read_link(format!("/proc/{pid}/exe"));
    exe.is_ok_and(|exe| exe == Path::new(env!("CARGO_BIN_EXE_clew")))
}

/// Kills what is left of the process group that a child of ours led.
fn kill_group(leader: u32) {
    let group = format!("-{leader}");
    let _ = Command::new("kill").args(["-KILL", "--", &group]).stderr(Stdio::null()).status();
}

/// Whether `pid` lives (a zombie does not).
pub fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit(')').next().map(|rest| !rest.trim_start().starts_with('Z')))
        .unwrap_or(false)
}

/// All processes.
pub fn processes() -> Vec<u32> {
    let names = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.file_name());
    names.filter_map(|name| name.to_str()?.parse().ok()).collect()
}

/// The parent of `pid`, if it is there.
pub fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

/// The living agents in the memory of `pid`. They are nobody's children.
pub fn agents_of(pid: u32) -> Vec<u32> {
    let comm = |pid: u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let shares = |agent: u32| clew_live::programs::kcmp::share_memory(agent, pid) == Some(true);
    processes()
        .into_iter()
        .filter(|agent| comm(*agent) == "clew-agent\n" && shares(*agent))
        .collect()
}

/// All living descendants of `pid`.
pub fn descendants(pid: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        processes().into_iter().filter_map(|id| Some((id, parent_of(id)?))).collect();
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(parents.iter().filter(|p| p.1 == parent).map(|p| p.0));
        next += 1;
    }
    found.remove(0);
    found
}

/// Resident anonymous bytes of `pid`, as the kernel counts them.
pub fn rss_anon(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse().ok());
    kib.unwrap_or(0u64) * 1024
}

/// What `pid`, its descendants and their agents are doing: for the report of a hang.
pub fn describe_processes(pid: u32) -> String {
    let mut text = String::new();
    let family: Vec<u32> = std::iter::once(pid).chain(descendants(pid)).collect();
    let agents = family.iter().flat_map(|pid| agents_of(*pid));
    for pid in family.iter().copied().chain(agents) {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let status = read("status");
            let state = status.lines().find(|line| line.starts_with("State:")).unwrap_or("gone");
            let _ = writeln!(
                text,
                "  pid {pid} task {:?} {} {state} in {} {}",
                task.file_name(),
                read("comm").trim(),
                read("wchan"),
                read("stack").split('\n').take(6).collect::<Vec<_>>().join(" < "),
            );
        }
    }
    text
}

/// A program that answers lines with lines.
pub struct Program {
    /// What it is called in messages.
    pub name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: PathBuf,
    /// The pid that it printed; it may be a descendant of the process started here.
    pub pid: u32,
}

impl Program {
    /// Starts `command`; its error output goes to a file in `dir`.
    pub fn start(dir: &TempDir, name: &str, mut command: Command) -> Program {
        let stderr = dir.join(format!("{name}.stderr"));
        let errors = File::create(&stderr).expect("a file for the error output");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let input = child.stdin.take();
        let pid = child.id();
        Program { name: name.to_string(), child, input, lines, stderr, pid }
    }

    /// Waits for the "pid N" and "ready" lines of the programs in tests/programs.
    pub fn wait_ready(&mut self) {
        self.wait_line("ready", 2 * LONG);
    }

    /// The agent of its process.
    pub fn agent(&self) -> u32 {
        let agents = agents_of(self.pid);
        assert_eq!(agents.len(), 1, "agents of {}\n{}", self.pid, self.report());
        agents[0]
    }

    /// Reads until `wanted` comes; takes a "pid N" on the way for its own.
    pub fn wait_line(&mut self, wanted: &str, limit: Duration) {
        loop {
            let line = self.read(limit);
            if let Some(pid) = line.strip_prefix("pid ") {
                self.pid = pid.parse().expect("a pid");
            }
            if line == wanted {
                return;
            }
        }
    }

    /// Sends one line.
    pub fn send(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open");
        // In one piece: who reads the first holds the pipe's lock while it waits for its memory, which
        // would hold up the second, and us, for as long as no daemon lives.
        let sent = input.write_all(format!("{line}\n").as_bytes());
        if let Err(error) = sent {
            panic!("{}: cannot send '{line}': {error}\n{}", self.name, self.report());
        }
    }

    /// The next line of its output.
    pub fn read(&mut self, limit: Duration) -> String {
        match self.lines.recv_timeout(limit) {
            Ok(line) => line,
            Err(error) => panic!("{}: no line came: {error}\n{}", self.name, self.report()),
        }
    }

    /// The next line if one comes within `limit`; `None` when it is silent.
    pub fn read_within(&mut self, limit: Duration) -> Option<String> {
        self.lines.recv_timeout(limit).ok()
    }

    /// Sends a line and reads the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.send(line);
        self.read(2 * LONG)
    }

    /// Sends a line and expects an answer.
    pub fn expect(&mut self, line: &str, wanted: &str) {
        let answer = self.ask(line);
        assert_eq!(answer, wanted, "{}: answer to '{line}'\n{}", self.name, self.report());
    }

    /// All lines until its output ends.
    pub fn rest(&mut self, limit: Duration) -> Vec<String> {
        let end = Instant::now() + limit;
        let mut lines = Vec::new();
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Disconnected) => return lines,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("{} did not end within {limit:?}\n{}", self.name, self.report())
                }
            }
        }
    }

    /// Whether the process that was started lives.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("try_wait").is_none()
    }

    /// Waits for its end.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        match wait_for_end(&mut self.child, limit) {
            Some(status) => status,
            None => panic!("{} did not end within {limit:?}\n{}", self.name, self.report()),
        }
    }

    /// Tells it to quit and expects status 0.
    pub fn quit(mut self) {
        self.send("quit");
        let status = self.wait(LONG);
        assert!(status.success(), "{} ended with {status}\n{}", self.name, self.report());
    }

    /// SIGKILL to the program itself.
    pub fn kill(&mut self) {
        kill(self.pid);
        let _ = wait_for_end(&mut self.child, LONG);
    }

    /// What it wrote to its error output.
    pub fn errors(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Its error output and what its processes are doing.
    pub fn report(&self) -> String {
        format!(
            "--- error output of {}:\n{}--- its processes:\n{}",
            self.name,
            tail(&self.errors(), 60),
            describe_processes(self.child.id())
        )
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        if matches!(self.child.try_wait(), Ok(None)) {
            kill_tree(&mut self.child);
        }
        // It may have lost its parents: the command that started it, or a shell.
        if self.pid != self.child.id() && is_alive(self.pid) {
            kill(self.pid);
        }
    }
}

/// The last lines of a text.
pub fn tail(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = lines[lines.len().saturating_sub(count)..].join("\n");
    out.push('\n');
    out
}

fn spawn_daemon(
    program: &Path,
    dir: &TempDir,
    socket: &Path,
    words: &[String],
    environment: world::Setting,
) -> Child {
    let log =
        OpenOptions::new().create(true).append(true).open(dir.join("daemon.log")).expect("a log");
    let mut command = Command::new(program);
    command
        .arg("daemon")
        .arg("--socket")
        .arg(socket)
        .args(words)
        .envs(environment)
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .process_group(0);
    command.spawn().expect("clew daemon starts")
}

/// Arguments of a daemon with a pool of so many bytes, from which cold pages go to a file in `dir`.
pub fn flash_arguments(dir: &TempDir, pool: &str, flash: &str) -> Vec<String> {
    let scheme = dir.join("with-flash.toml");
    let text = format!(
        "[scheme]\nname = \"with-flash\"\nmem_limit_bytes = \"{pool}\"\nreclaim = \"hotness-org\"\n\
         admission = \"all\"\nplacement = \"flash-last\"\neviction = \"cold-first\"\n\
         packing = {{ kind = \"one-page\", codec = \"lz4\", chunk = \"4KiB\" }}\nprefetch = \"none\"\n"
    );
    fs::write(&scheme, text).expect("a scheme");
    let path = |name| dir.join(name).to_str().expect("UTF-8").to_string();
    let words =
        ["--scheme", &path("with-flash.toml"), "--flash", &path("flash"), "--flash-size", flash];
    words.map(str::to_string).to_vec()
}

/// A daemon of the test's own.
pub struct Fixture {
    /// Its files.
    pub dir: TempDir,
    /// The socket it serves.
    pub socket: PathBuf,
    daemon: Child,
    /// The command that it is of.
    program: PathBuf,
    /// What it was started with, after `daemon`.
    arguments: Vec<String>,
    /// Started by the daemon; outlives it when it is killed.
    keeper: u32,
    page_size: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Fixture {
    /// Starts one with scheme `zram`.
    pub fn start(budget: &str) -> Fixture {
        Fixture::start_with(budget, &["--scheme", "zram"])
    }

    /// Starts one with these arguments and waits until it answers.
    pub fn start_with(budget: &str, arguments: &[&str]) -> Fixture {
        Fixture::start_in(TempDir::new(), budget, arguments, Vec::new())
    }

    /// Starts one with this environment besides.
    pub fn start_hooked(budget: &str, arguments: &[&str], environment: world::Setting) -> Fixture {
        Fixture::start_in(TempDir::new(), budget, arguments, environment)
    }

    /// Starts one with this scheme and this `clew.toml`.
    pub fn start_configured(budget: &str, scheme: &str, toml: &str) -> Fixture {
        let dir = TempDir::new();
        let file = dir.join("clew.toml");
        fs::write(&file, toml).expect("a file");
        let file = file.to_str().expect("UTF-8").to_string();
        Fixture::start_in(dir, budget, &["--scheme", scheme, "--config", &file], Vec::new())
    }

    /// Starts one with [`flash_arguments`].
    pub fn start_with_flash(budget: &str, pool: &str, flash: &str) -> Fixture {
        let dir = TempDir::new();
        let words = flash_arguments(&dir, pool, flash);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Fixture::start_in(dir, budget, &words, Vec::new())
    }

    /// Starts one of another command that has the same words.
    pub fn start_of(program: &Path, budget: &str, arguments: &[&str]) -> Fixture {
        Fixture::start_program(program, TempDir::new(), budget, arguments, Vec::new())
    }

    fn start_in(
        dir: TempDir,
        budget: &str,
        arguments: &[&str],
        environment: world::Setting,
    ) -> Fixture {
        let program = Path::new(env!("CARGO_BIN_EXE_clew"));
        Fixture::start_program(program, dir, budget, arguments, environment)
    }

    fn start_program(
        program: &Path,
        dir: TempDir,
        budget: &str,
        arguments: &[&str],
        environment: world::Setting,
    ) -> Fixture {
        let alone = alone();
        let socket = dir.join("s");
        let mut words = vec!["--budget".to_string(), budget.to_string()];
        words.extend(arguments.iter().map(|word| word.to_string()));
        let daemon = spawn_daemon(program, &dir, &socket, &words, environment);
        let mut fixture = Fixture {
            dir,
            socket,
            daemon,
            program: program.to_path_buf(),
            arguments: words,
            keeper: 0,
            page_size: page_size(),
            _alone: alone,
        };
        fixture.wait_daemon_answers();
        fixture
    }

    /// Waits until the daemon that was started last answers.
    fn wait_daemon_answers(&mut self) {
        let fixture = self;
        let began = poll(LONG, || {
            if let Some(status) = fixture.daemon.try_wait().expect("try_wait") {
                panic!("the daemon ended at once with {status}\n{}", fixture.log());
            }
            Client::connect(&fixture.socket).and_then(|mut client| client.status()).ok()
        });
        assert!(began.is_some(), "the daemon does not answer\n{}", fixture.log());
        fixture.keeper = began.map_or(0, |status| status.keeper_pid);
    }

    /// Starts the next daemon on the same socket, with these arguments besides, and waits until it
    /// answers. The one before must be dead, or let itself be replaced.
    pub fn start_successor(&mut self, besides: &[&str]) {
        let mut words = self.arguments.clone();
        words.extend(besides.iter().map(|word| word.to_string()));
        let mut before = std::mem::replace(
            &mut self.daemon,
            spawn_daemon(&self.program, &self.dir, &self.socket, &words, Vec::new()),
        );
        let pid = self.daemon.id();
        let serves = poll(LONG, || {
            let mut client = Client::connect(&self.socket).ok()?;
            (client.status().ok()?.daemon_pid == pid).then_some(())
        });
        assert!(serves.is_some(), "no successor answers\n{}", self.log());
        self.wait_daemon_answers();
        wait_for_end(&mut before, LONG).expect("the daemon before has ended");
    }

    /// What the daemon said.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.dir.join("daemon.log")).unwrap_or_default();
        format!("--- daemon:\n{}", tail(&text, 60))
    }

    /// A new connection.
    pub fn client(&self) -> Client {
        Client::connect(&self.socket).unwrap_or_else(|e| panic!("{e}\n{}", self.log()))
    }

    /// The state of everything.
    pub fn status(&self) -> Status {
        self.client().status().unwrap_or_else(|e| panic!("status: {e}\n{}", self.log()))
    }

    /// The state of one app; an empty one if the daemon does not know it.
    pub fn app(&self, name: &str) -> AppStatus {
        self.status().apps.into_iter().find(|app| app.name == name).unwrap_or_default()
    }

    /// What is known of one process of an app.
    pub fn process(&self, app: &str, pid: u32) -> Option<ProcessStatus> {
        self.app(app).processes.into_iter().find(|process| process.pid == pid)
    }

    /// An order that must succeed.
    pub fn order(&self, request: &Request) {
        if let Err(error) = self.client().order(request) {
            panic!("{request:?}: {error}\n{}", self.log());
        }
    }

    /// The daemon leaves everything to its keeper and ends.
    pub fn hand_over(&self) {
        let name = predecessor::server(&self.socket).expect("read").expect("a daemon serves");
        self.order(&Request::HandOver { started: name.started });
    }

    /// Takes out every page of `app`.
    pub fn swap_out(&self, app: &str) {
        self.order(&Request::SwapOut { app: app.to_string() });
    }

    /// The same, where a refusal is an answer too.
    pub fn try_swap_out(&self, app: &str) -> Result<(), ControlError> {
        self.client().order(&Request::SwapOut { app: app.to_string() })
    }

    /// Takes out every page of `app` until at least `least` bytes of it are stored: on a busy machine an
    /// agent may be taken for silent for a while.
    pub fn swap_out_at_least(&self, app: &str, least: u64) {
        let enough = || {
            self.swap_out(app);
            (self.app(app).stored_pages * self.page_size >= least).then_some(())
        };
        let done = poll(LONG, enough);
        assert!(done.is_some(), "{least} bytes wanted: {:?}\n{}", self.app(app), self.log());
    }

    /// `clew run --app NAME -- ARGUMENTS`, not started yet.
    pub fn run_command<S: AsRef<OsStr>>(&self, app: &str, arguments: &[S]) -> Command {
        let mut command = clew();
        command.arg("run").arg("--socket").arg(&self.socket).args(["--app", app, "--"]);
        command.args(arguments);
        command
    }

    /// Starts a program under the daemon.
    pub fn run<S: AsRef<OsStr>>(&self, app: &str, arguments: &[S]) -> Program {
        Program::start(&self.dir, app, self.run_command(app, arguments))
    }

    /// Starts a program whose agent follows a script; `binary` is tests/programs/hostile.c.
    pub fn start_hostile(&self, binary: &Path, script: &Path) -> Child {
        let mut command = Command::new(binary);
        command.arg(self.socket.with_extension("agents")).arg(script).stdin(Stdio::null());
        command.env("CLEW_HOSTILE_VERSION", clew_agent::protocol::VERSION.to_string());
        command.env_remove("LD_PRELOAD").process_group(0).spawn().expect("hostile starts")
    }

    /// Starts tests/programs/touch.c under the daemon and waits until it is filled and managed.
    pub fn run_touch(&self, app: &str, pages: u64, percent: u32, seed: u64) -> Program {
        let binary = compile(&self.dir, "touch.c", &[]);
        let numbers = [pages.to_string(), percent.to_string(), seed.to_string()];
        let mut arguments = vec![binary.into_os_string()];
        arguments.extend(numbers.map(Into::into));
        let mut program = self.run(app, &arguments);
        program.wait_ready();
        self.wait_resident(app, pages * self.page_size * 9 / 10);
        program
    }

    /// Waits until the managed processes of `app` have at least `least` resident bytes.
    pub fn wait_resident(&self, app: &str, least: u64) -> AppStatus {
        let found = poll(LONG, || {
            let status = self.app(app);
            let managed = status.processes.iter().any(|process| process.managed);
            (managed && status.resident_bytes >= least).then_some(status)
        });
        found.unwrap_or_else(|| {
            panic!("{app} is not managed with {least} bytes: {:?}\n{}", self.app(app), self.log())
        })
    }

    /// Waits until nothing of `app` is known any more and the pool holds nothing at all.
    pub fn wait_all_freed(&self, app: &str) {
        let freed = poll(LONG, || {
            let status = self.status();
            let mut processes =
                status.apps.iter().filter(|a| a.name == app).map(|a| a.processes.len());
            (processes.all(|n| n == 0) && status.pool.stored_pages == 0).then_some(())
        });
        assert!(freed.is_some(), "not freed: {:?}\n{}", self.status(), self.log());
    }

    /// The daemon must live, answer, and have found no damage.
    pub fn assert_daemon_lives(&mut self) {
        let ended = self.daemon.try_wait().expect("try_wait");
        assert!(ended.is_none(), "the daemon ended with {ended:?}\n{}", self.log());
        let status = self.status();
        assert_eq!(status.pool.corrupt_pages, 0, "damaged copies\n{}", self.log());
    }

    /// What the daemon has open.
    pub fn daemon_descriptors(&self) -> usize {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.daemon.id())).expect("it lives");
        fds.count()
    }

    /// Process id of the daemon that was started last.
    pub fn daemon_pid(&self) -> u32 {
        self.daemon.id()
    }

    /// SIGKILL to the daemon, and only to it.
    pub fn kill_daemon(&mut self) {
        self.daemon.kill().expect("the daemon can be killed");
        wait_for_end(&mut self.daemon, LONG).expect("a killed daemon ends");
    }

    /// Waits for the daemon's end.
    pub fn wait_daemon(&mut self, limit: Duration) -> ExitStatus {
        let ended = wait_for_end(&mut self.daemon, limit);
        ended.unwrap_or_else(|| {
            panic!(
                "the daemon did not end within {limit:?}\n{}{}",
                self.log(),
                describe_processes(self.daemon.id())
            )
        })
    }

    /// Runs `clew VERB... --socket S` to its end.
    pub fn verb(&self, arguments: &[&str]) -> Output {
        run_to_end(clew().args(arguments).arg("--socket").arg(&self.socket), LONG)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        if matches!(self.daemon.try_wait(), Ok(None)) {
            // Programs were ended before (they are dropped first); it has nothing to bring back.
            if let Ok(mut client) = Client::connect(&self.socket) {
                let _ = client.order(&Request::Stop);
            }
            if wait_for_end(&mut self.daemon, LONG).is_none() {
                eprintln!("the daemon did not stop; it is killed");
                kill_tree(&mut self.daemon);
            }
        }
        // What outlived it (after SIGKILL): its keeper, or others of its process group.
        kill_group(self.daemon.id());
        if self.keeper != 0 && is_keeper(self.keeper) {
            kill(self.keeper);
        }
    }
}

/// Standard output and error of a finished command, for messages.
pub fn texts(output: &Output) -> String {
    format!(
        "{}\n--- stdout:\n{}--- stderr:\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs `work` on a few threads at once; most of what it does is waiting for others.
pub fn in_parallel(work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..number_from_env("CLEW_PARALLEL", 3) {
            scope.spawn(&work);
        }
    });
}
