//! A service for all users: what each sees and orders, and what none can do to another. Real users, who have
//! accounts on this machine and are given a group that nobody else is in.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use clew_fixture::touch::{MIB, PAGES_OF_MIB};
use clew_fixture::*;
use clew_live::agents::preload;
use clew_live::control::status::{AppStatus, Status};

/// A group of a number that no account has.
const GROUP: u32 = 1_987_654;

/// In no database of users.
const UNKNOWN: u32 = 1_987_655;

/// A user with an account, who is in these groups, and a directory that is the user's.
struct User {
    uid: u32,
    groups: &'static [u32],
    dir: TempDir,
}

/// Two users with accounts who are neither root nor nobody; `None`, and said, where `test` cannot run.
fn two_users(test: &str, programs: &[&str]) -> Option<[User; 2]> {
    some_users(test, programs)
}

/// The same of as many as are wanted.
fn some_users<const N: usize>(test: &str, programs: &[&str]) -> Option<[User; N]> {
    let programs = [&["cc", "setpriv", "python3"], programs].concat();
    if !can_run(test, &programs) {
        return None;
    }
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uids = accounts.lines().filter_map(|line| line.split(':').nth(2)?.parse::<u32>().ok());
    let uids: Vec<u32> = uids.filter(|uid| *uid != 0 && *uid < 65534).take(N).collect();
    match <[u32; N]>::try_from(uids) {
        Ok(uids) => Some(uids.map(|uid| User::new(uid, &[GROUP]))),
        Err(_) => {
            skip(test, &format!("there are no {N} users besides root"));
            None
        }
    }
}

/// A service with a log that says who is refused.
fn service(besides: &[&str]) -> Fixture {
    service_of("1GiB", besides)
}

/// The same with this budget.
fn service_of(budget: &str, besides: &[&str]) -> Fixture {
    service_with(budget, &[&["--scheme", "zram"], besides].concat())
}

/// The same with another scheme.
fn service_with(budget: &str, besides: &[&str]) -> Fixture {
    let group = GROUP.to_string();
    let words = [&["--all-users", "--group", &group], besides].concat();
    Fixture::start_hooked(budget, &words, vec![("CLEW_LOG", "debug".to_string())])
}

/// The command under test, where every user can read it.
fn clew_for_all(fixture: &Fixture) -> PathBuf {
    let copy = fixture.dir.join("clew");
    if !copy.exists() {
        fs::copy(env!("CARGO_BIN_EXE_clew"), &copy).expect("a copy");
    }
    copy
}

impl User {
    fn new(uid: u32, groups: &'static [u32]) -> User {
        let dir = TempDir::new();
        chown(dir.path(), Some(uid), Some(uid)).expect("root gives it away");
        User { uid, groups, dir }
    }

    /// `words` as this user.
    fn command<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = Command::new("setpriv");
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        command.arg(format!("--reuid={}", self.uid)).arg(format!("--regid={}", self.uid));
        match groups.is_empty() {
            true => command.arg("--clear-groups"),
            false => command.arg(format!("--groups={}", groups.join(","))),
        };
        command.args(["--inh-caps=-all", "--bounding-set=-all"]).args(words);
        command.current_dir(self.dir.path()).env("HOME", self.dir.path()).stdin(Stdio::null());
        // What root has on the way to its programs may be root's alone.
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin");
        for name in ["LD_PRELOAD", "CLEW_SOCKET", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME"] {
            command.env_remove(name);
        }
        command
    }

    /// `clew WORDS --socket S` of this user.
    fn clew(&self, fixture: &Fixture, words: &[&str]) -> Output {
        let clew = clew_for_all(fixture);
        let mut all = vec![clew.to_str().expect("UTF-8")];
        all.extend(words);
        all.extend(["--socket", fixture.socket.to_str().expect("UTF-8")]);
        run_to_end(&mut self.command(&all), LONG)
    }

    fn status(&self, fixture: &Fixture) -> Status {
        let output = self.clew(fixture, &["ps", "--format", "json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", texts(&output)))
    }

    /// Starts tests/programs/touch.c under the service and waits until it is filled and managed.
    fn touch(&self, fixture: &Fixture, app: &str, mib: u64, seed: u64) -> Program {
        let touch = fixture.dir.join("touch");
        if !touch.exists() {
            compile(&fixture.dir, "touch.c", &[]);
        }
        let clew = clew_for_all(fixture);
        let (pages, seed) = ((mib * PAGES_OF_MIB).to_string(), seed.to_string());
        let path = |path: &Path| path.to_str().expect("UTF-8").to_string();
        let words = [
            &path(&clew),
            "run",
            "--socket",
            &path(&fixture.socket),
            "--app",
            app,
            "--",
            &path(&touch),
            &pages,
            "50",
            &seed,
        ];
        let name = format!("{app}-{}", self.uid);
        let mut program = Program::start(&fixture.dir, &name, self.command(&words));
        program.wait_ready();
        let managed = poll(LONG, || {
            let app = app_of(&fixture.status(), self.uid, app);
            app.processes.iter().any(|process| process.managed).then_some(())
        });
        assert!(managed.is_some(), "{:?}\n{}", fixture.status().apps, fixture.log());
        program
    }
}

/// An app of a user as root sees it; an empty one if there is none.
fn app_of(status: &Status, uid: u32, name: &str) -> AppStatus {
    let mut apps = status.apps.iter();
    apps.find(|app| app.uid == uid && app.name == name).cloned().unwrap_or_default()
}

#[track_caller]
fn says(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    let has_all = words.iter().all(|word| said.contains(word));
    assert!(output.status.code() == Some(code) && has_all, "{words:?}: {}", texts(output));
}

/// Page tables of memory that nobody has touched take long, and nobody waits for them but who asks.
#[test]
fn what_one_user_has_restored_holds_up_nobody_elses_orders() {
    let Some([one, two]) = two_users("users::restores", &[]) else { return };
    let mut fixture = service(&[]);
    const SPARSE: &str = "import mmap, sys\nx = bytearray(b'x' * (32 << 20))\n\
                          how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000\n\
                          m = mmap.mmap(-1, 4 << 30, how)\nprint('ready', flush=True)\nsys.stdin.read()";
    let clew = clew_for_all(&fixture);
    let [clew, socket] = [&clew, &fixture.socket].map(|path| path.to_str().expect("UTF-8"));
    let run = ["run", "--socket", socket, "--app", "sparse", "--", "python3", "-c", SPARSE];
    let programs = [0, 1, 2, 3].map(|number| {
        let words = [&[clew][..], &run].concat();
        let name = format!("sparse-{number}");
        let mut program = Program::start(&fixture.dir, &name, one.command(&words));
        program.wait_ready();
        program
    });
    let managed = poll(LONG, || {
        let app = app_of(&fixture.status(), one.uid, "sparse");
        let managed = app.processes.iter().filter(|process| process.managed).count();
        (managed == programs.len()).then_some(())
    });
    assert!(managed.is_some(), "{:?}\n{}", fixture.status().apps, fixture.log());
    let mut other = two.touch(&fixture, "small", 8, 3);
    let sum = other.ask("sum");

    let words = [clew, "restore", "--socket", socket, "sparse"];
    let mut orders = [(); 16].map(|()| {
        let mut order = one.command(&words);
        order.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts")
    });
    // All of them wait for theirs.
    std::thread::sleep(Duration::from_millis(300));
    assert!(two.clew(&fixture, &["swap-out", "small"]).status.success(), "{}", fixture.log());
    let waits = |order: &mut std::process::Child| order.try_wait().expect("ours").is_none();
    let left = orders.iter_mut().filter_map(|order| waits(order).then_some(())).count();
    assert!(left >= 3, "{left} of {} orders are left", orders.len());
    // Nor is what waits done where the daemon ends.
    assert!(fixture.verb(&["stop"]).status.success(), "{}", fixture.log());
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    for order in &mut orders {
        order.wait().expect("it was answered, or its daemon has ended");
    }
    other.expect("sum", &sum);
    other.quit();
}

/// Root's daemon could read it. So could a user then of whom root's daemon had it.
#[test]
fn what_its_user_may_not_read_is_not_managed() {
    let Some([user, _]) = two_users("users::hidden", &[]) else { return };
    let mut fixture = service(&[]);
    const HIDES: &str = "import ctypes, sys\nctypes.CDLL(None).prctl(4, 0)\n\
                         x = bytearray(b'x' * (64 << 20))\nprint('ready', flush=True)\nsys.stdin.read()";
    let clew = clew_for_all(&fixture);
    let [clew, socket] = [&clew, &fixture.socket].map(|path| path.to_str().expect("UTF-8"));
    let words = [clew, "run", "--socket", socket, "--app", "hides", "--", "python3", "-c", HIDES];
    let mut program = Program::start(&fixture.dir, "hides", user.command(&words));
    program.wait_ready();
    let why = poll(LONG, || {
        let app = app_of(&fixture.status(), user.uid, "hides");
        let process = app.processes.first()?;
        assert!(!process.managed, "{app:?}");
        process.reason.contains("may not read its memory").then_some(())
    });
    assert!(why.is_some(), "{:?}\n{}", fixture.status().apps, fixture.log());
    drop(program);
    fixture.assert_daemon_lives();
}

#[test]
fn each_sees_and_orders_what_is_the_own() {
    let Some([one, two]) = two_users("users::own", &[]) else { return };
    let mut fixture = service(&["--metrics", "0"]);
    let mut programs =
        [&one, &two].map(|user| user.touch(&fixture, "same", 32, u64::from(user.uid)));
    let sums = programs.each_mut().map(|program| program.ask("sum"));
    let mut roots = fixture.run_touch("roots", 8 * PAGES_OF_MIB, 50, 3);
    let stored = |uid| app_of(&fixture.status(), uid, "same").stored_pages;

    // What a user asks for is of the own apps.
    assert!(one.clew(&fixture, &["swap-out", "same"]).status.success(), "{}", fixture.log());
    assert!(stored(one.uid) > 1000 && stored(two.uid) == 0, "{:?}", fixture.status().apps);
    for (user, other) in [(&one, &two), (&two, &one)] {
        let seen = user.status(&fixture);
        let apps: Vec<(u32, &str)> = seen.apps.iter().map(|app| (app.uid, &*app.name)).collect();
        assert_eq!(apps, [(user.uid, "same")]);
        assert_eq!(seen.of_user, Some(user.uid));
        // Nothing that tells what others do.
        assert_eq!((seen.pool.used_bytes, seen.totals.swapped_out_pages), (0, 0));
        assert_eq!((seen.managed_pages, seen.users.len(), seen.tiers.len()), (0, 0, 0));
        let others = format!("{}:same", other.uid);
        for name in ["roots", "0:roots", &others] {
            for verb in ["fg", "bg", "swap-out", "restore"] {
                says(&user.clew(&fixture, &[verb, name]), 1, &["no app", name]);
            }
        }
        says(&user.clew(&fixture, &["stop"]), 1, &["only root may end"]);
        let asked = raw(user, &fixture.socket, "{\"verb\":\"hand-over\",\"started\":1}");
        assert!(asked.contains("only root may end"), "{asked}");
        let asked = raw(user, &fixture.socket, "{\"verb\":\"hot-pages\",\"app\":\"roots\"}");
        assert!(asked.contains("no app"), "{asked}");
    }
    assert_eq!(stored(two.uid), 0, "nobody else's order took anything out");
    assert!(app_of(&fixture.status(), 0, "roots").stored_pages == 0);

    // Root sees all, and says which one is meant.
    let seen = fixture.status();
    assert_eq!((seen.of_user, seen.apps.len(), seen.users.len()), (None, 3, 3), "{seen:?}");
    let [own, others] = [one.uid, two.uid].map(|uid| format!("{uid}:same"));
    says(&fixture.verb(&["swap-out", "same"]), 1, &[&own, &two.uid.to_string()]);
    assert!(fixture.verb(&["swap-out", &others]).status.success(), "{}", fixture.log());
    assert!(stored(two.uid) > 1000, "{:?}", fixture.status().apps);
    let text = fixture.verb(&["ps"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("USER") && text.contains(&others), "{text}");

    let metrics = metrics(&fixture);
    assert!(metrics.contains("clew_budget_bytes") && !metrics.contains("same"), "{metrics}");

    // A successor knows whose all of them are.
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    for user in [&one, &two] {
        let seen = user.status(&fixture);
        let apps: Vec<&str> = seen.apps.iter().map(|app| &*app.name).collect();
        assert_eq!(apps, ["same"], "{:?}", fixture.status().apps);
    }
    for (program, sum) in programs.iter_mut().zip(&sums) {
        assert_eq!(&program.ask("sum"), sum);
    }
    roots.expect("touch seq", &format!("touched {} bad 0", 8 * PAGES_OF_MIB));
    fixture.assert_daemon_lives();
}

/// What anybody may read.
fn metrics(fixture: &Fixture) -> String {
    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    let at = log.lines().find_map(|line| line.strip_prefix("clew: metrics at http://"));
    let at = at.and_then(|at| at.strip_suffix("/metrics")).expect("an address");
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// What a server answers to one line of a user's.
fn raw(user: &User, socket: &Path, line: &str) -> String {
    const ASK: &str = "import socket, sys\n\
        s = socket.socket(socket.AF_UNIX)\n\
        try:\n s.connect(sys.argv[1])\n\
        except PermissionError:\n print('may not connect')\n sys.exit()\n\
        s.settimeout(60)\n\
        try:\n s.sendall(sys.argv[2].encode() + b'\\n')\n print(s.recv(65536).decode() or 'closed')\n\
        except (BrokenPipeError, ConnectionResetError):\n print('closed')\n";
    let socket = socket.to_str().expect("UTF-8");
    let output = run_to_end(&mut user.command(&["python3", "-c", ASK, socket, line]), LONG);
    assert!(output.status.success(), "{}", texts(&output));
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

#[test]
fn who_is_not_in_the_group_gets_in_nowhere() {
    let Some([one, member]) = two_users("users::group", &[]) else { return };
    let outside = User { groups: &[], ..one };
    // As many as have subordinate ids would be as many users.
    let unknown = User::new(UNKNOWN, &[GROUP]);
    let mut fixture = service(&[]);
    let agents = fixture.socket.with_extension("agents");
    for socket in [&fixture.socket, &agents] {
        let found = fs::metadata(socket).expect("it is there");
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o660, 0, GROUP));
    }
    let status = "{\"verb\":\"status\"}";
    assert_eq!(raw(&outside, &fixture.socket, status), "may not connect");
    assert!(raw(&member, &fixture.socket, status).contains("\"ok\""));
    assert_eq!(raw(&unknown, &fixture.socket, status), "closed");
    // Nor where modes were changed by hand.
    for socket in [&fixture.socket, &agents] {
        fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).expect("a mode");
    }
    assert_eq!(raw(&outside, &fixture.socket, status), "closed");
    let touch = compile(&fixture.dir, "touch.c", &[]);
    let object = preload::object(&fixture.socket).expect("it has a place");
    for user in [&outside, &unknown] {
        // Root's own part of it has none of that.
        let settings = [
            format!("LD_PRELOAD={}", object.display()),
            format!("CLEW_AGENT_SOCKET={}", agents.display()),
        ];
        let touch = touch.to_str().expect("UTF-8");
        let [preload, socket] = settings.each_ref().map(String::as_str);
        let command =
            user.command(&["env", preload, socket, "CLEW_APP=stranger", touch, "4096", "50", "3"]);
        let mut program = Program::start(&fixture.dir, "stranger", command);
        program.wait_ready();
        let refused = poll(LONG, || {
            let listed = !fixture.status().apps.is_empty();
            let said = fixture.log().contains("whom this daemon does not serve");
            (listed || said).then_some(listed)
        });
        assert_eq!(refused, Some(false), "{:?}\n{}", fixture.status().apps, fixture.log());
        program.expect("touch seq", "touched 4096 bad 0");
        program.quit();
    }
    let mut program = member.touch(&fixture, "member", 16, 3);
    program.expect("touch seq", "touched 4096 bad 0");
    program.quit();
    // A successor that serves nobody else closes the door.
    fixture.assert_daemon_lives();
}

/// The kernel says that both share one memory, and it is not the agent's user's.
#[test]
fn a_program_of_another_user_is_nobodys_to_bring() {
    let Some([one, _]) = two_users("users::bring", &[]) else { return };
    let mut fixture = service(&[]);
    let binary = compile(&fixture.dir, "two_users.c", &[]);
    let hello = include_str!("../../../tests/corpus/agents/hello");
    let hello = hello.lines().next().and_then(|l| l.strip_prefix("send ")).expect("a hello");
    let version: String =
        clew_agent::protocol::VERSION.to_ne_bytes().iter().map(|b| format!("{b:02x}")).collect();
    let hello = hello.split(' ').next().expect("bytes").replace("VERSION*", &version);
    let agents = fixture.socket.with_extension("agents");
    let (uid, group) = (one.uid.to_string(), GROUP.to_string());
    let mut command = Command::new(&binary);
    command.arg(&agents).args([&uid, &group, &hello]);
    let mut program = Program::start(&fixture.dir, "two_users", command);
    program.wait_line("said", LONG);
    assert_eq!(program.read(LONG), "closed", "{:?}\n{}", fixture.status().apps, fixture.log());
    assert!(fixture.status().apps.is_empty(), "{:?}", fixture.status().apps);
    assert!(fixture.log().contains("it is of user 0"), "{}", fixture.log());
    program.kill();
    fixture.assert_daemon_lives();
}

/// Connects until no more are let in, and stays: to the control socket with orders that wait, and with none; to the
/// agents' socket and says nothing.
const FLOOD: &str = r#"
import os, resource, socket, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
stay = []
def clients():
    for n in range(400):
        s = socket.socket(socket.AF_UNIX)
        try:
            s.connect(sys.argv[1])
            s.settimeout(5)
            if n % 2:
                s.sendall(b'{"verb":"swap-out","app":"mine"}\n')
        except OSError:
            pass
        stay.append(s)
def agents():
    for n in range(1500):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            s.connect(sys.argv[2])
        except OSError:
            pass
        stay.append(s)
def asks():
    while True:
        try:
            s = socket.socket(socket.AF_UNIX)
            s.connect(sys.argv[1])
            s.settimeout(5)
            while True:
                s.sendall(b'{"verb":"status"}\n')
                s.recv(1 << 20)
        except OSError:
            pass
clients()
agents()
for _ in range(16):
    threading.Thread(target=asks, daemon=True).start()
print("flooded", flush=True)
threading.Event().wait()
"#;

#[test]
fn one_user_keeps_nobody_out() {
    let Some([hostile, good]) = two_users("users::flood", &[]) else { return };
    let mut fixture = service(&[]);
    // An order to take out of a program that is stopped in the middle of it is not answered.
    let mine = hostile.touch(&fixture, "mine", 16, 3);
    signal(mine.agent(), "STOP");
    let agents = fixture.socket.with_extension("agents");
    let words = [
        "python3",
        "-c",
        FLOOD,
        fixture.socket.to_str().expect("UTF-8"),
        agents.to_str().expect("UTF-8"),
    ];
    let mut flood = Program::start(&fixture.dir, "flood", hostile.command(&words));
    flood.wait_line("flooded", 2 * LONG);
    // Another user starts a program, sees it, and has it taken out; root sees all.
    let mut program = good.touch(&fixture, "good", 16, 5);
    let apps: Vec<String> = good.status(&fixture).apps.into_iter().map(|app| app.name).collect();
    assert_eq!(apps, ["good"]);
    for _ in 0..5 {
        let done = good.clew(&fixture, &["swap-out", "good"]);
        assert!(done.status.success(), "{}\n{}", texts(&done), fixture.log());
    }
    let stored = app_of(&fixture.status(), good.uid, "good").stored_pages;
    assert!(stored > 0, "{:?}\n{}", fixture.status().apps, fixture.log());
    program.expect("touch seq", &format!("touched {} bad 0", 16 * PAGES_OF_MIB));
    fixture.assert_daemon_lives();
    flood.kill();
    signal(mine.agent(), "CONT");
}

/// Three times as many as a user has places, and each of them begins.
#[test]
fn a_hundred_programs_of_one_user_begin_at_once() {
    let Some([user, _]) = two_users("users::hundred", &[]) else { return };
    let mut fixture = service(&[]);
    let clew = clew_for_all(&fixture);
    let words = [clew.as_os_str(), "run".as_ref(), "--socket".as_ref(), fixture.socket.as_os_str()];
    let words = [&words[..], &["--".as_ref(), "true".as_ref()]].concat();
    let begun = (0..100).map(|_| user.command(&words).stderr(Stdio::piped()).spawn());
    let begun: Vec<_> = begun.map(|begun| begun.expect("it starts")).collect();
    for program in begun {
        let ended = program.wait_with_output().expect("it ends");
        assert!(ended.status.success(), "{}", texts(&ended));
    }
    fixture.assert_daemon_lives();
}

/// Connections without end, as fast as two processes of low priority can, are not what others' programs wait behind.
#[test]
fn who_connects_without_end_keeps_nobodys_programs_out() {
    let Some([hostile, good]) = two_users("users::connects", &["nice"]) else { return };
    let mut fixture = service(&[]);
    let connects = compile(&fixture.dir, "connects.c", &[]);
    let agents = fixture.socket.with_extension("agents");
    let [connects, agents] = [&connects, &agents].map(|path| path.to_str().expect("UTF-8"));
    let words = ["nice", "-n", "19", connects, agents, "500"];
    let floods = ["first", "second"].map(|name| {
        let mut flood = Program::start(&fixture.dir, name, hostile.command(&words));
        flood.wait_line("connects", LONG);
        flood
    });
    for n in 0..4 {
        let mut program = good.touch(&fixture, &format!("good{n}"), 8, n);
        program.expect("touch seq", &format!("touched {} bad 0", 8 * PAGES_OF_MIB));
        program.quit();
    }
    fixture.assert_daemon_lives();
    floods.into_iter().for_each(|mut flood| flood.kill());
}

/// What says that it becomes a program is kept and shown, as far as its user's share goes.
#[test]
fn one_user_lists_no_more_programs_than_a_share() {
    let Some([hostile, good]) = two_users("users::started", &[]) else { return };
    let mut fixture = service(&[]);
    let binary = compile(&fixture.dir, "started.c", &[]);
    let words = [&binary, &fixture.socket].map(|path| path.to_str().expect("UTF-8"));
    let command = hostile.command(&[words[0], words[1], "1060"]);
    let mut flood = Program::start(&fixture.dir, "flood", command);
    flood.wait_line("started", 2 * LONG);
    let listed = fixture.status().apps.len();
    assert_eq!(listed, 1024, "{}", fixture.log());
    let program = good.touch(&fixture, "good", 4, 5);
    assert_eq!(app_of(&good.status(&fixture), good.uid, "good").processes.len(), 1);
    program.quit();
    flood.kill();
    fixture.assert_daemon_lives();
}

/// What root calls `UID:NAME` is that user's app of this name, whatever others call theirs.
#[test]
fn an_app_called_like_anothers_gets_no_order_for_it() {
    let Some([hostile, good]) = two_users("users::called", &[]) else { return };
    let mut fixture = service(&[]);
    let named = format!("{}:mail", good.uid);
    let one = good.touch(&fixture, "mail", 4, 1);
    let other = hostile.touch(&fixture, &named, 4, 2);
    let output = fixture.verb(&["swap-out", &named]);
    assert!(output.status.success(), "{}", texts(&output));
    let status = fixture.status();
    assert!(app_of(&status, good.uid, "mail").stored_pages > 0, "{:?}", status.apps);
    assert_eq!(app_of(&status, hostile.uid, &named).stored_pages, 0);
    // Where no app of that user is called so, it is a name.
    one.quit();
    let is_gone = || good.status(&fixture).apps.is_empty().then_some(());
    assert!(poll(LONG, is_gone).is_some());
    let output = fixture.verb(&["swap-out", &named]);
    assert!(output.status.success(), "{}", texts(&output));
    other.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn who_is_over_the_own_budget_gives_own_pages() {
    let Some([large, small]) = two_users("users::budget", &[]) else { return };
    let mut fixture = service(&["--user-budget", "64MiB"]);
    let mut of_small = small.touch(&fixture, "small", 24, 5);
    let mut of_large = large.touch(&fixture, "large", 96, 7);
    let sum = of_large.ask("sum");
    let used = |status: &Status, uid| {
        let of = status.users.iter().find(|user| user.uid == uid);
        of.map_or(0, |user| user.used.total())
    };
    let down = poll(LONG, || {
        let status = fixture.status();
        let used = used(&status, large.uid);
        (used > 0 && used <= 64 * MIB).then_some(status)
    });
    let status = down.unwrap_or_else(|| panic!("{:?}\n{}", fixture.status(), fixture.log()));
    assert!(app_of(&status, large.uid, "large").stored_pages > 0, "{status:?}");
    assert_eq!(app_of(&status, small.uid, "small").swapped_out_pages, 0, "{status:?}");
    // What each is told is of the own.
    let told = large.status(&fixture);
    assert_eq!(told.budget_bytes, 64 * MIB);
    assert!(told.used_bytes > 0 && told.used.pool_bytes > 0, "{told:?}");
    let told = small.status(&fixture);
    assert!(told.used_bytes < 40 * MIB && told.used.pool_bytes == 0, "{told:?}");
    assert_eq!(of_large.ask("sum"), sum);
    of_small.expect("touch seq", &format!("touched {} bad 0", 24 * PAGES_OF_MIB));
    // Nothing of it was taken from the other.
    assert_eq!(app_of(&fixture.status(), small.uid, "small").swapped_out_pages, 0);
    fixture.assert_daemon_lives();
}

/// Who touches more than the own budget again and again pays for it alone, also where nobody has a page left.
#[test]
fn who_is_over_the_own_budget_has_nothing_of_others() {
    let Some([large, small]) = two_users("users::greedy", &[]) else { return };
    let mut fixture = service_of("200MiB", &["--user-budget", "72MiB"]);
    let mut of_small = small.touch(&fixture, "small", 32, 5);
    let taken = || app_of(&fixture.status(), small.uid, "small").swapped_out_pages;
    let mut of_large: Vec<Program> =
        (0..3).map(|i| large.touch(&fixture, &format!("large-{i}"), 96, i)).collect();
    let sums: Vec<String> = of_large.iter_mut().map(|program| program.ask("sum")).collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        for program in &mut of_large {
            scope.spawn(move || {
                while began.elapsed() < Duration::from_secs(5) {
                    program.expect("touch seq", &format!("touched {} bad 0", 96 * PAGES_OF_MIB));
                }
            });
        }
    });
    assert_eq!(taken(), 0, "{:?}\n{}", fixture.status(), fixture.log());
    // They come back all the same.
    for (program, sum) in of_large.iter_mut().zip(&sums) {
        program.expect("sum", sum);
    }
    assert_eq!(taken(), 0, "{:?}\n{}", fixture.status(), fixture.log());
    of_small.expect("touch seq", &format!("touched {} bad 0", 32 * PAGES_OF_MIB));
    fixture.assert_daemon_lives();
}

/// What is taken out of who is over the own budget is as large as it was, and others have room in the pool all the same.
#[test]
fn who_is_over_the_own_budget_leaves_others_room_in_the_pool() {
    let Some([large, small]) = two_users("users::share", &[]) else { return };
    let files = TempDir::new();
    let scheme = files.join("raw.toml");
    fs::write(&scheme, RAW).expect("a scheme");
    let words = ["--scheme", scheme.to_str().expect("UTF-8"), "--user-budget", "64MiB"];
    let mut fixture = service_with("400MiB", &words);
    let mut of_small = small.touch(&fixture, "small", 32, 5);
    let mut of_large: Vec<Program> =
        (0..3).map(|i| large.touch(&fixture, &format!("large-{i}"), 160, i)).collect();
    let sums: Vec<String> = of_large.iter_mut().map(|program| program.ask("sum")).collect();
    let in_pool = || {
        let status = fixture.status();
        let of = status.users.iter().find(|user| user.uid == large.uid);
        of.map_or(0, |user| user.used.pool_bytes)
    };
    // Also where its user asks for it.
    for order in 0..12 {
        let app = format!("large-{}", order % 3);
        let _ = large.clew(&fixture, &["swap-out", &app]);
        assert!(in_pool() < 80 * MIB, "{order}: {:?}\n{}", fixture.status(), fixture.log());
    }
    assert!(in_pool() > 40 * MIB, "{:?}\n{}", fixture.status(), fixture.log());
    says(&small.clew(&fixture, &["swap-out", "small"]), 0, &[]);
    let stored = app_of(&fixture.status(), small.uid, "small").stored_pages;
    assert!(stored >= 32 * PAGES_OF_MIB, "{stored} {:?}", fixture.status());
    for (program, sum) in of_large.iter_mut().zip(&sums) {
        program.expect("sum", sum);
    }
    of_small.expect("touch seq", &format!("touched {} bad 0", 32 * PAGES_OF_MIB));
    fixture.assert_daemon_lives();
}

/// Nothing becomes smaller.
const RAW: &str = r#"
[scheme]
name = "raw"
reclaim = { kind = "lru" }
admission = { kind = "all" }
packing = { kind = "one-page", codec = "raw" }
eviction = { kind = "none" }
placement = { kind = "pool" }
prefetch = { kind = "none" }
"#;

/// A service where users look for one, in a mount namespace of its own.
struct AtItsPlace {
    daemon: std::process::Child,
    clew: PathBuf,
    _dir: TempDir,
}

impl AtItsPlace {
    fn start() -> AtItsPlace {
        let dir = TempDir::new();
        let clew = dir.join("clew");
        fs::copy(env!("CARGO_BIN_EXE_clew"), &clew).expect("a copy");
        let script = "mount -t tmpfs -o mode=755 tmpfs /run && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script, "sh"]).arg(&clew);
        let config = dir.join("clew.toml");
        fs::write(&config, "").expect("a file");
        command.args(["daemon", "--budget", "1GiB", "--scheme", "zram", "--config"]).arg(&config);
        command.args(["--group", &GROUP.to_string()]).stdin(Stdio::null());
        command.env_remove("LD_PRELOAD").env_remove("CLEW_SOCKET");
        let place =
            AtItsPlace { daemon: command.spawn().expect("unshare starts"), clew, _dir: dir };
        let answers = || {
            let output = place.roots(&["ps", "--format", "json"]);
            let status: Status = serde_json::from_slice(&output.stdout).ok()?;
            (status.daemon_pid == place.daemon.id()).then_some(())
        };
        assert!(poll(LONG, answers).is_some(), "no answer");
        place
    }

    /// `words` there.
    fn there(&self, mut command: Command) -> Command {
        let mut all = Command::new("nsenter");
        all.args(["-t", &self.daemon.id().to_string(), "-m"]).arg(command.get_program());
        all.args(command.get_args()).stdin(Stdio::null());
        all.current_dir(command.get_current_dir().unwrap_or(Path::new("/")));
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => all.env(name, value),
                None => all.env_remove(name),
            };
        }
        command.env_clear();
        all
    }

    fn roots(&self, words: &[&str]) -> Output {
        let mut command = Command::new(&self.clew);
        command.args(words).env_remove("LD_PRELOAD").env_remove("CLEW_SOCKET");
        run_to_end(&mut self.there(command), LONG)
    }

    fn clew(&self, user: &User, words: &[&str]) -> Output {
        let all = [&[self.clew.to_str().expect("UTF-8")], words].concat();
        run_to_end(&mut self.there(user.command(&all)), LONG)
    }
}

impl Drop for AtItsPlace {
    fn drop(&mut self) {
        let stopped = self.roots(&["stop"]);
        if wait_for_end(&mut self.daemon, LONG).is_none() {
            eprintln!("it did not stop: {}", texts(&stopped));
            kill_tree(&mut self.daemon);
        }
    }
}

#[test]
fn each_has_an_app_in_front_of_the_own() {
    let Some([one, two]) = two_users("users::fronts", &[]) else { return };
    let mut fixture = service(&[]);
    let programs = [
        one.touch(&fixture, "first", 4, 1),
        one.touch(&fixture, "second", 4, 2),
        two.touch(&fixture, "first", 4, 3),
    ];
    let fronts = |fixture: &Fixture| {
        let apps = fixture.status().apps;
        let mut in_front: Vec<(u32, String)> = apps
            .into_iter()
            .filter(|app| app.state == "foreground")
            .map(|app| (app.uid, app.name))
            .collect();
        in_front.sort();
        in_front
    };
    let named = |user: &User, name: &str| (user.uid, name.to_string());
    let sorted = |mut fronts: Vec<(u32, String)>| {
        fronts.sort();
        fronts
    };
    says(&one.clew(&fixture, &["fg", "first"]), 0, &[]);
    says(&two.clew(&fixture, &["fg", "first"]), 0, &[]);
    assert_eq!(fronts(&fixture), sorted(vec![named(&one, "first"), named(&two, "first")]));
    says(&one.clew(&fixture, &["fg", "second"]), 0, &[]);
    assert_eq!(fronts(&fixture), sorted(vec![named(&one, "second"), named(&two, "first")]));
    says(&two.clew(&fixture, &["bg", "first"]), 0, &[]);
    assert_eq!(fronts(&fixture), vec![named(&one, "second")]);
    programs.into_iter().for_each(Program::quit);
    fixture.assert_daemon_lives();
}

#[test]
fn commands_of_a_member_find_the_service() {
    let Some([member, other]) = two_users("users::found", &["unshare", "nsenter"]) else { return };
    let _alone = alone();
    let other = User { groups: &[], ..other };
    let place = AtItsPlace::start();
    let touch = compile(&place._dir, "touch.c", &[]);
    let words = ["run", "--app", "mine", "--", touch.to_str().expect("UTF-8"), "4096", "50", "3"];
    let all = [&[place.clew.to_str().expect("UTF-8")], &words[..]].concat();
    let mut program = Program::start(&member.dir, "mine", place.there(member.command(&all)));
    program.wait_ready();
    let seen = poll(LONG, || {
        let output = place.clew(&member, &["ps", "--format", "json"]);
        let status: Status = serde_json::from_slice(&output.stdout).ok()?;
        let managed = status.apps.iter().flat_map(|app| &app.processes).any(|p| p.managed);
        managed.then_some(status)
    });
    let seen = seen.unwrap_or_else(|| panic!("{}", texts(&place.clew(&member, &["ps"]))));
    assert_eq!((seen.daemon_pid, seen.of_user), (place.daemon.id(), Some(member.uid)));
    assert!(place.clew(&member, &["swap-out", "mine"]).status.success());
    program.expect("touch seq", "touched 4096 bad 0");
    program.quit();
    let group = format!("members of group {GROUP}");
    // Who may not use it is told so, and has a daemon of the own, if that user may have one.
    let refused = place.clew(&other, &["run", "--", "true"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains(&group) && said.contains("of your own"), "{}", texts(&refused));
    for (user, word) in [(&member, "you may use it"), (&other, "you may not use it")] {
        let doctor = place.clew(user, &["doctor"]);
        let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
        // Lines are broken anywhere.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(word) && said.contains(&group), "{}", texts(&doctor));
    }
    assert!(place.clew(&member, &["doctor"]).status.success(), "what is missing is the service's");
    says(&place.clew(&member, &["stop"]), 1, &["only root may end"]);
}

/// As many programs as `CLEW_USER_PROGRAMS` says (8), of four users, in half of what they have; the daemon is killed meanwhile.
#[test]
fn programs_of_four_users_at_once_are_all_right() {
    const EACH: u64 = 12;
    let Some(users) = some_users::<4>("users::four_users", &[]) else { return };
    let count = number_from_env("CLEW_USER_PROGRAMS", 8);
    let budget = format!("{}MiB", count * EACH / 2 + 32);
    let mut fixture = service_of(&budget, &[]);
    let mut programs = Vec::new();
    for number in 0..count {
        let user = &users[number as usize % users.len()];
        let mut program = user.touch(&fixture, &format!("app-{number}"), EACH, number);
        let sum = program.ask("sum");
        programs.push((program, sum));
    }
    let mut random = Random(11);
    let mut visits = |programs: &mut Vec<(Program, String)>| {
        for _ in 0..count * 3 {
            let (program, sum) = &mut programs[random.below(count) as usize];
            program.expect("sum", sum);
            program.expect("touch random 500 7", "touched 500 bad 0");
        }
    };
    visits(&mut programs);
    let out = fixture.status().totals.swapped_out_pages;
    assert!(out > count * EACH * PAGES_OF_MIB / 4, "{out} pages have left");
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    visits(&mut programs);
    for (program, sum) in &mut programs {
        program.expect("sum", sum);
    }
    // Each sees the own ones.
    for (number, user) in users.iter().enumerate() {
        let status = user.status(&fixture);
        assert!(status.apps.iter().all(|app| app.uid == user.uid), "{:?}", status.apps);
        let own = (0..count as usize).filter(|program| program % users.len() == number).count();
        let managed = status.apps.iter().flat_map(|app| &app.processes).filter(|p| p.managed);
        assert_eq!(managed.count(), own, "{:?}", status.apps);
    }
    let status = fixture.status();
    assert!(status.daemon_bytes < (16 << 20) + status.managed_pages * 35 / 2, "{status:?}");
    programs.into_iter().for_each(|(program, _)| program.quit());
    fixture.assert_daemon_lives();
}
