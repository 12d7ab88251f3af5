//! Who gets in: whom the daemon lets connect, whom clients believe, who may lie in wait where sockets
//! and files are.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clew_fixture::*;
use clew_live::agents::preload;
use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::Request;
use clew_live::survival::predecessor::ProcessName;

/// Somebody else.
const NOBODY: u32 = 65534;

/// Every verb that asks a daemon.
const VERBS: [&[&str]; 8] = [
    &["ps"],
    &["top", "--once"],
    &["fg", "x"],
    &["bg", "x"],
    &["swap-out", "x"],
    &["restore", "x"],
    &["stop"],
    &["run", "--", "true"],
];

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())).mode() & 0o7777
}

fn at(socket: &Path, words: &[&str]) -> Output {
    run_to_end(clew().arg("--socket").arg(socket).args(words), LONG)
}

/// Code 2, and these words in the message.
#[track_caller]
fn refuses(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{}", texts(output));
    assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {}", texts(output));
}

/// What anybody may connect to, as far as modes say.
fn open_by_hand(fixture: &Fixture) {
    set_mode(fixture.dir.path(), 0o777);
    set_mode(&fixture.socket, 0o777);
    set_mode(&fixture.socket.with_extension("agents"), 0o777);
}

/// Runs a script as nobody.
fn python_as_nobody(script: &str, argument: &Path) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(argument).uid(NOBODY).gid(NOBODY).current_dir("/");
    command.stdin(Stdio::null());
    command
}

#[test]
fn sockets_and_files_are_private_whatever_the_umask() {
    if !can_run("doors::private", &["sh"]) {
        return;
    }
    let dir = TempDir::new();
    let socket = dir.join("new/deep/s");
    let mut command = Command::new("sh");
    command.args(["-c", "umask 0; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_clew"), "daemon"]);
    command.args(["--budget", "1GiB", "--socket"]).arg(&socket).stdin(Stdio::null());
    command.process_group(0);
    let mut daemon = KilledAtEnd(command.spawn().expect("sh starts"));
    let serves = poll(LONG, || Client::connect(&socket).and_then(|mut c| c.status()).ok());
    assert!(serves.is_some(), "no daemon serves");
    for made in ["new", "new/deep"] {
        assert_eq!(mode(&dir.join(made)), 0o700, "{made}");
    }
    let mut files = 0;
    for entry in fs::read_dir(dir.join("new/deep")).expect("it is there").flatten() {
        assert_eq!(mode(&entry.path()), 0o600, "{}", entry.path().display());
        files += 1;
    }
    assert_eq!(files, 5, "sockets, .pid, .keeper and .lock");
    let stopped = at(&socket, &["stop"]);
    assert!(stopped.status.success(), "{}", texts(&stopped));
    assert!(wait_for_end(&mut daemon.0, LONG).is_some_and(|status| status.success()));
}

#[test]
fn a_directory_that_others_can_change_is_refused_by_all() {
    if !can_run("doors::directories", &[]) {
        return;
    }
    let dir = TempDir::new();
    let place = |name: &str| {
        let path = dir.join(name);
        fs::create_dir(&path).expect("a directory");
        path
    };
    let open = place("open");
    set_mode(&open, 0o777);
    let group = place("group");
    set_mode(&group, 0o770);
    let others = place("others");
    chown(&others, Some(NOBODY), Some(NOBODY)).expect("root may");
    set_mode(&others, 0o700);
    let below = others.join("below");
    fs::create_dir(&below).expect("a directory");
    let real = place("real");
    // Ours now, and whatever nobody likes tomorrow.
    let link = dir.join("link");
    symlink(&real, &link).expect("a link");
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY)).expect("root may");
    let link_to_open = dir.join("link-to-open");
    symlink(&open, &link_to_open).expect("a link");
    let [nobody, writes] = ["user 65534", "others may write"];
    for (place, why) in [
        (&open, writes),
        (&group, writes),
        (&others, nobody),
        (&below, nobody),
        (&link, nobody),
        (&link_to_open, writes),
    ] {
        let socket = place.join("s");
        // Somebody waits there to be asked.
        let trap = UnixListener::bind(&socket).expect("it is bound");
        trap.set_nonblocking(true).expect("a socket");
        for words in VERBS {
            refuses(&at(&socket, words), &[why, "another place"]);
        }
        for words in [&["daemon"][..], &["daemon", "--takeover"]] {
            refuses(&at(&socket, words), &[why, "another place"]);
        }
        assert!(trap.accept().is_err(), "{}: somebody came", place.display());
        drop(trap);
        fs::remove_file(&socket).expect("it is still there");
        let left = fs::read_dir(place).expect("a directory").flatten().map(|e| e.path());
        let left: Vec<PathBuf> = left.filter(|path| *path != others.join("below")).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Bound by root, where only root can, and served by nobody: one who got hold of the descriptor.
const FAKE_SERVER: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
os.setgid(65534)
os.setuid(65534)
s.listen(16)
print("serves", flush=True)
for _ in range(int(sys.argv[2])):
    c, _ = s.accept()
    c.settimeout(60)
    print(len(c.recv(65536)), flush=True)
    c.close()
"#;

#[test]
fn a_server_of_another_user_is_told_nothing() {
    if !can_run("doors::server", &["python3"]) {
        return;
    }
    let dir = TempDir::new();
    let socket = dir.join("s");
    let mut command = Command::new("python3");
    command.args(["-c", FAKE_SERVER]).arg(&socket).arg(VERBS.len().to_string());
    let mut server = Program::start(&dir, "server", command);
    server.wait_line("serves", LONG);
    for words in VERBS {
        refuses(&at(&socket, words), &["user 65534", "nothing was sent"]);
        assert_eq!(server.read(LONG), "0", "bytes that it got of {words:?}");
    }
    assert!(server.wait(LONG).success());
}

/// The same for agents.
const FAKE_DAEMON: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.bind(sys.argv[1])
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
s.listen(16)
print("serves", flush=True)
while True:
    c, _ = s.accept()
    c.settimeout(60)
    print(len(c.recv(65536)), flush=True)
    c.close()
"#;

/// What is preloaded into programs.
fn preloaded(fixture: &Fixture) -> String {
    let program = fixture.run_touch("touch", 2048, 50, 3);
    let environment = fs::read(format!("/proc/{}/environ", program.pid)).expect("it runs");
    environment
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(b"LD_PRELOAD="))
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .expect("it has an agent")
}

#[test]
fn an_agent_tells_a_daemon_of_another_user_nothing() {
    if !can_run("doors::agent", &["cc", "python3"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let preload = preloaded(&fixture);
    // What is left of a daemon: its path, in the environment of programs that run on.
    let hello = |uid: u32| {
        let socket = fixture.dir.join(format!("agents-{uid}"));
        let mut command = Command::new("python3");
        command.args(["-c", FAKE_DAEMON]).arg(&socket).arg(uid.to_string());
        let mut server = Program::start(&fixture.dir, "server", command);
        server.wait_line("serves", LONG);
        let mut command = Command::new("sleep");
        command.arg("60").env("LD_PRELOAD", &preload).env("CLEW_AGENT_SOCKET", &socket);
        let mut program = KilledAtEnd(command.spawn().expect("sleep starts"));
        let told = server.read(LONG);
        assert!(program.0.try_wait().expect("try_wait").is_none(), "it runs on");
        told
    };
    assert_eq!(hello(NOBODY), "0", "bytes that it got");
    assert_ne!(hello(0), "0", "root's is told who it is");
}

/// In a user namespace that maps nobody, root's program looks like the other user to itself.
#[test]
fn an_agent_tells_nobody_where_all_users_look_alike() {
    if !can_run("doors::agent_unmapped", &["cc", "python3", "unshare"]) {
        return;
    }
    let may = run_to_end(Command::new("unshare").args(["-U", "true"]), LONG);
    if !may.status.success() {
        skip("doors::agent_unmapped", "no user namespaces");
        return;
    }
    let fixture = Fixture::start("1GiB");
    let preload = preloaded(&fixture);
    let hello = |unshare: &[&str]| {
        let socket = fixture.dir.join(format!("agents{}", unshare.concat()));
        let mut command = Command::new("python3");
        command.args(["-c", FAKE_DAEMON]).arg(&socket).arg(NOBODY.to_string());
        let mut server = Program::start(&fixture.dir, "server", command);
        server.wait_line("serves", LONG);
        let mut command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", "LD_PRELOAD=$1 exec sleep 60", "sh", &preload]);
        let _program =
            KilledAtEnd(command.env("CLEW_AGENT_SOCKET", &socket).spawn().expect("unshare starts"));
        server.read(LONG)
    };
    assert_eq!(hello(&["-U"]), "0", "bytes that it got");
    // There it is root.
    assert_eq!(hello(&["-U", "-r"]), "0", "bytes that it got");
}

/// Says what becomes of a request of its own.
const STRANGER: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect(sys.argv[1])
except PermissionError:
    print("may not connect")
    sys.exit()
s.settimeout(60)
try:
    s.sendall(b'{"verb":"status"}\n')
    print("answered" if s.recv(1) else "closed")
except (BrokenPipeError, ConnectionResetError):
    print("closed")
"#;

#[test]
fn another_user_gets_in_nowhere() {
    if !can_run("doors::stranger", &["cc", "python3"]) {
        return;
    }
    let setting = vec![("CLEW_LOG", "debug".to_string())];
    let mut fixture = Fixture::start_hooked("1GiB", &["--scheme", "zram"], setting);
    let ask = |fixture: &Fixture| {
        let output = run_to_end(&mut python_as_nobody(STRANGER, &fixture.socket), LONG);
        assert!(output.status.success(), "{}", texts(&output));
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    };
    assert_eq!(mode(&fixture.socket), 0o600);
    assert_eq!(mode(&fixture.socket.with_extension("agents")), 0o600);
    assert_eq!(ask(&fixture), "may not connect");
    let binary = compile(&fixture.dir, "touch.c", &[]);
    open_by_hand(&fixture);
    let control = ask(&fixture);

    // A program of another user with all that a program of ours has.
    let mut command = Command::new(&binary);
    command.args(["4096", "50", "3"]).uid(NOBODY).gid(NOBODY);
    command.env("LD_PRELOAD", preload::object(&fixture.socket).expect("it has a place"));
    command.env("CLEW_AGENT_SOCKET", fixture.socket.with_extension("agents"));
    command.env("CLEW_APP", "stranger");
    let mut stranger = Program::start(&fixture.dir, "stranger", command);
    stranger.wait_ready();
    set_mode(fixture.dir.path(), 0o700);
    let known = poll(LONG, || {
        let listed = fixture.status().apps.iter().any(|app| app.name == "stranger");
        let said = fixture.log().contains("it is of user 65534");
        (listed || said).then_some(listed)
    });
    let seen = (control.as_str(), known);
    assert_eq!(seen, ("closed", Some(false)), "{:?}\n{}", fixture.status(), fixture.log());
    // It runs as without Clew.
    stranger.expect("touch seq", "touched 4096 bad 0");
    stranger.quit();
    assert!(fixture.status().apps.is_empty(), "{:?}", fixture.status());
    // One of ours is managed.
    let program = fixture.run_touch("ours", 4096, 50, 3);
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn silent_clients_do_not_lock_out_stop() {
    if !can_run("doors::silent", &[]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let silent: Vec<UnixStream> = (0..300)
        .map(|n| {
            let mut stream = UnixStream::connect(&fixture.socket).expect("it is served");
            if n % 2 == 0 {
                stream.write_all(b"{\"verb\":").expect("half a request is taken");
            }
            stream
        })
        .collect();
    // Whoever has been served, and keeps its connection, is idle too.
    let mut idle = fixture.client();
    idle.status().expect("an answer");
    let more: Vec<UnixStream> =
        (0..300).map(|_| UnixStream::connect(&fixture.socket).expect("it is served")).collect();
    idle.status().expect("it is served again, over another connection");
    let stopped = fixture.verb(&["stop"]);
    assert!(stopped.status.success(), "{}\n{}", texts(&stopped), fixture.log());
    assert!(fixture.wait_daemon(LONG).success());
    drop((silent, more));
}

#[test]
fn a_daemon_removes_no_file_of_another_kind_and_no_socket_that_is_served() {
    if !can_run("doors::replaced", &[]) {
        return;
    }
    let dir = TempDir::new();
    let listed = || {
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).expect("it is there").flatten().map(|e| e.path()).collect();
        names.sort();
        names
    };
    for (file, socket) in [("notes.txt", "notes.txt"), ("x.agents", "x.sock")] {
        fs::write(dir.join(file), "precious").expect("written");
        let before = listed();
        refuses(&at(&dir.join(socket), &["daemon", "--budget", "64MiB"]), &[file, "not a socket"]);
        assert_eq!(fs::read_to_string(dir.join(file)).expect("it is there"), "precious");
        assert_eq!(listed(), before);
    }
    for name in ["c.pid", "c.lock", "c.keeper", "c.agents"] {
        let before = listed();
        for words in [&["daemon", "--budget", "64MiB"][..], &["run", "--", "true"]] {
            refuses(&at(&dir.join(name), words), &["must not end in", &name[1..]]);
        }
        assert_eq!(listed(), before);
    }
    let served = dir.join("served.sock");
    let _listener = UnixListener::bind(&served).expect("it is bound");
    for besides in [&[][..], &["--takeover"], &["--takeover", "--check"]] {
        let words = [&["daemon", "--budget", "64MiB"], besides].concat();
        refuses(&at(&served, &words), &["served by somebody else"]);
    }
    UnixStream::connect(&served).expect("it is still served");
}

/// Clients that take an app out again and again, as long as this is.
struct Flood {
    over: Arc<AtomicBool>,
    clients: Vec<std::thread::JoinHandle<usize>>,
}

impl Flood {
    /// Each of them waits for its answers if it `stays`, else it hangs up at once.
    fn start(fixture: &Fixture, clients: usize, stays: bool) -> Flood {
        let over = Arc::new(AtomicBool::new(false));
        let clients = (0..clients).map(|_| {
            let (over, socket) = (over.clone(), fixture.socket.clone());
            std::thread::spawn(move || {
                let mut answers = 0;
                while !over.load(Ordering::SeqCst) {
                    let Ok(mut stream) = UnixStream::connect(&socket) else {
                        std::thread::yield_now();
                        continue;
                    };
                    let order = b"{\"verb\":\"swap-out\",\"app\":\"big\"}\n";
                    let sent = stream.write_all(order).is_ok();
                    let mut line = String::new();
                    if sent && stays && BufReader::new(stream).read_line(&mut line).is_ok() {
                        answers += 1;
                    }
                }
                answers
            })
        });
        let clients = clients.collect();
        Flood { over, clients }
    }

    /// How often they were answered.
    fn end(self) -> usize {
        self.over.store(true, Ordering::SeqCst);
        self.clients.into_iter().map(|client| client.join().expect("no failure")).sum()
    }
}

#[test]
fn stop_ends_while_clients_go_on_ordering() {
    if !can_run("doors::ordering", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let program = fixture.run_touch("big", 8 << 10, 50, 1);
    let flood = Flood::start(&fixture, 8, true);
    let stored = poll(LONG, || (fixture.app("big").stored_pages > 0).then_some(()));
    // The daemon must be gone before the flood is.
    let stopped = at(&fixture.socket, &["stop"]);
    let answers = flood.end();
    assert!(stopped.status.success(), "{}", texts(&stopped));
    assert!(stored.is_some() && answers > 0, "{answers} answers");
    program.quit();
}

#[test]
fn who_orders_and_goes_away_locks_nobody_out() {
    if !can_run("doors::hanging_up", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let program = fixture.run_touch("big", 8 << 10, 50, 1);
    let flood = Flood::start(&fixture, 4, false);
    for _ in 0..5 {
        let listed = fixture.verb(&["ps"]);
        assert!(listed.status.success(), "{}", texts(&listed));
    }
    let stopped = fixture.verb(&["stop"]);
    flood.end();
    assert!(stopped.status.success(), "{}\n{}", texts(&stopped), fixture.log());
    assert!(fixture.wait_daemon(LONG).success());
    program.quit();
}

/// What a server answers to each line: nonsense, or what would let its code into a program.
fn answers(socket: &Path, answer: impl Fn(&str) -> Option<String> + Send + 'static) {
    let listener = UnixListener::bind(socket).expect("it is bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut line = String::new();
            while matches!(reader.read_line(&mut line), Ok(1..)) {
                let Some(answer) = answer(&line) else { break };
                let _ = reader.get_mut().write_all(answer.as_bytes());
                line.clear();
            }
        }
    });
}

#[test]
fn what_is_preloaded_is_never_what_the_server_names() {
    if !can_run("doors::preloaded", &["sh"]) {
        return;
    }
    let dir = TempDir::new();
    let socket = dir.join("s");
    let version = clew_agent::protocol::VERSION;
    answers(&socket, move |line| {
        Some(match line.contains("environment") {
            true => format!(
                "{{\"result\":\"ok\",\"value\":{{\"agent_socket\":\"/nowhere\",\
                 \"agent_object\":\"/tmp/evil.so\",\"agent_protocol\":{version}}}}}\n"
            ),
            false => "{\"result\":\"ok\",\"value\":null}\n".to_string(),
        })
    });
    let output = at(&socket, &["run", "--", "sh", "-c", "echo $LD_PRELOAD"]);
    assert!(output.status.success(), "{}", texts(&output));
    let preloaded = String::from_utf8_lossy(&output.stdout).trim().to_string();
    assert_eq!(Path::new(&preloaded), preload::object(&socket).expect("it has a place"));

    // Of another version: the program runs, and it is said that it is not managed.
    let older = dir.join("older");
    answers(&older, |line| {
        Some(match line.contains("environment") {
            true => "{\"result\":\"ok\",\"value\":{\"agent_socket\":\"/nowhere\",\
                     \"agent_protocol\":1}}\n"
                .to_string(),
            false => "{\"result\":\"ok\",\"value\":null}\n".to_string(),
        })
    });
    let output = at(&older, &["run", "--", "sh", "-c", "echo works"]);
    assert!(output.status.success(), "{}", texts(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "works\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("another version"), "{output:?}");
}

#[test]
fn a_server_of_ours_that_talks_nonsense_is_an_error() {
    let dir = TempDir::new();
    for (n, answer) in [
        None,
        Some("no JSON\n"),
        Some("{\"result\":\"ok\"}\n"),
        Some("{\"result\":\"ok\",\"value\":7}\n"),
        Some("[[[[[[[[[[[[[[[[[[\n"),
        Some("\u{1b}]0;title\u{7}\n"),
    ]
    .into_iter()
    .enumerate()
    {
        let socket = dir.join(n.to_string());
        answers(&socket, move |_| answer.map(str::to_string));
        for words in VERBS {
            let output = at(&socket, words);
            // `value: 7` is no answer that carries nothing.
            assert_eq!(output.status.code(), Some(1), "{answer:?} {words:?}: {}", texts(&output));
            assert!(!output.stderr.contains(&0x1b), "{}", texts(&output));
            assert!(output.stderr.len() < 1000, "{}", texts(&output));
        }
    }
}

#[test]
fn a_program_runs_where_a_daemon_is_just_ending() {
    if !can_run("doors::ending", &[]) {
        return;
    }
    let dir = TempDir::new();
    // One that is written down, and lives on for a while after its socket has gone.
    for lives_on in [false, true] {
        let socket = dir.join(format!("{lives_on}.sock"));
        let listener = UnixListener::bind(&socket).expect("it is bound");
        let mut sleep = Command::new("sleep");
        let mut daemon = KilledAtEnd(sleep.arg("600").process_group(0).spawn().expect("sleep"));
        let name = ProcessName::of(daemon.0.id()).expect("it runs").to_string().replace(':', " ");
        fs::write(socket.with_extension("pid"), name).expect("written");
        let at_socket = socket.clone();
        let ending = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("it connects");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("it asks");
            fs::remove_file(&at_socket).expect("it is there");
            drop((listener, stream));
            if lives_on {
                // Longer than it takes to see that nobody listens any more.
                std::thread::sleep(Duration::from_millis(300));
            }
            kill_tree(&mut daemon.0);
            line
        });
        let output = at(&socket, &["run", "--", "true"]);
        assert!(output.status.success(), "{lives_on}: {}", texts(&output));
        assert!(ending.join().expect("no failure").contains("environment"));
        let gone = poll(LONG, || processes_of(&socket).is_empty().then_some(()));
        assert!(gone.is_some(), "{:?}", processes_of(&socket));
    }
}

/// Processes that were told of this socket.
fn processes_of(socket: &Path) -> Vec<String> {
    let socket = socket.as_os_str().as_encoded_bytes();
    let pids = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    pids.filter_map(|path| {
        let line = fs::read(path.join("cmdline")).ok()?;
        line.split(|b| *b == 0).any(|word| word == socket).then(|| {
            format!("{}: {}", path.display(), String::from_utf8_lossy(&line).replace('\0', " "))
        })
    })
    .collect()
}

#[test]
fn a_private_daemon_ends_with_its_starter() {
    if !can_run("doors::private_daemon", &[]) {
        return;
    }
    let dir = TempDir::new();
    for round in 0..12 {
        let place = dir.join(format!("{round}"));
        let socket = place.join("s");
        let mut command = clew();
        command.args(["run", "--budget", "64MiB", "--socket"]).arg(&socket);
        let mut starter =
            command.args(["--", "sleep", "3600"]).process_group(0).spawn().expect("it starts");
        std::thread::sleep(Duration::from_millis(round * 50 / 11));
        starter.kill().expect("it is ours");
        starter.wait().expect("it is ours");
        // A process may be missed while it becomes another: nobody is left who was seen by none of these.
        let mut calm = 0;
        let gone = poll(LONG, || {
            calm = if processes_of(&socket).is_empty() { calm + 1 } else { 0 };
            (calm > 5).then_some(())
        });
        let left = processes_of(&socket);
        for line in &left {
            let pid = line.split(['/', ':']).nth(2).and_then(|pid| pid.parse().ok());
            kill(pid.expect("a process id"));
        }
        assert!(gone.is_some(), "round {round}: {left:?}");
        let files: Vec<PathBuf> =
            fs::read_dir(&place).into_iter().flatten().flatten().map(|e| e.path()).collect();
        assert!(files.is_empty(), "round {round}: {files:?}");
    }
}

/// A private one would take over with a budget and scheme of its own, and keep the service from coming back.
#[test]
fn the_place_of_a_daemon_that_has_just_died_is_its_successors() {
    let test = "doors::the_place_of_a_daemon_that_has_just_died_is_its_successors";
    let Some((mut fixture, mut program, sum)) = touch::swapped_out(test, &touch::ZRAM) else {
        return;
    };
    fixture.kill_daemon();
    let mut later = fixture.run_command("later", &["sleep", "3600"]).spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    fixture.start_successor(&[]);
    let is_known = || fixture.status().apps.iter().any(|app| app.name == "later");
    assert!(poll(LONG, || is_known().then_some(())).is_some(), "{:?}", fixture.status());
    assert_eq!(fixture.status().scheme, "zram");
    program.expect("sum", &sum);
    later.kill().and_then(|()| later.wait()).expect("it is ours");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn who_has_no_descriptors_is_told_so() {
    if !can_run("doors::who_has_no_descriptors_is_told_so", &["sh"]) {
        return;
    }
    let mut fixture = Fixture::start("64MiB");
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 4; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_clew"), "ps"]);
    let failed = run_to_end(command.arg("--socket").arg(&fixture.socket), LONG);
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("Too many open files") && !said.contains("dead"), "{said}");
    fixture.assert_daemon_lives();
}

/// Where a name comes from a client it has a limit, as it has in the environment.
#[test]
fn what_clients_say_of_programs_is_bounded() {
    if !can_run("doors::names", &[]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let started = |app: String, text: String| Request::Started {
        app,
        pid: std::process::id(),
        command: text.clone(),
        unmanaged: Some(text),
    };
    for app in ["".to_string(), "x".repeat(64)] {
        let refused = fixture.client().order(&started(app, String::new()));
        assert!(
            matches!(&refused, Err(ControlError::Refused(why)) if why.contains("63 bytes")),
            "{refused:?}"
        );
    }
    fixture.order(&started("é".repeat(31), "é".repeat(1000)));
    let apps = fixture.status().apps;
    let [app] = &apps[..] else { panic!("{apps:?}") };
    let [process] = &app.processes[..] else { panic!("{app:?}") };
    assert_eq!(app.name, "é".repeat(31));
    // 63 bytes of a command, 255 of a reason.
    assert!(process.command == "é".repeat(31) && process.reason == "é".repeat(127), "{process:?}");
    fixture.assert_daemon_lives();
}

#[test]
fn a_private_daemon_keeps_nothing_of_its_starters_and_is_found_from_anywhere() {
    if !can_run("doors::private", &[]) {
        return;
    }
    let dir = TempDir::new();
    let held = dir.join("held");
    fs::write(&held, "").expect("a file");
    // A relative socket: the agent works in another directory, and so does the daemon.
    let script = "exec 9<held && exec \"$0\" --socket s run -- \
                  sh -c 'echo \"at $CLEW_AGENT_SOCKET\"; echo ready; exec cat'";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_clew")]).current_dir(dir.path());
    command.env_remove("CLEW_SOCKET").env("LD_PRELOAD", "").env("NOTIFY_SOCKET", "/nowhere");
    let mut program = Program::start(&dir, "starter", command);
    assert_eq!(program.read(LONG), format!("at {}", dir.join("s.agents").display()));
    program.wait_line("ready", LONG);
    let status = Client::connect(&dir.join("s")).and_then(|mut c| c.status()).expect("it serves");
    for pid in [status.daemon_pid, status.keeper_pid] {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
        let open: Vec<PathBuf> = files.filter_map(|f| fs::read_link(f.path()).ok()).collect();
        assert!(!open.contains(&held), "{pid}: {open:?}");
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).expect("it runs"), Path::new("/"));
        let environment = fs::read(format!("/proc/{pid}/environ")).expect("it runs");
        let environment = String::from_utf8_lossy(&environment);
        for name in ["LD_PRELOAD=", "NOTIFY_SOCKET="] {
            assert!(!environment.split('\0').any(|e| e.starts_with(name)), "{environment}");
        }
    }
    drop(program);
    let ended = poll(LONG, || (!is_alive(status.daemon_pid)).then_some(()));
    assert!(ended.is_some(), "the daemon stays");
}

/// What lies in a directory.
fn files_in(place: &Path) -> Vec<PathBuf> {
    fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[test]
fn a_daemon_that_cannot_serve_leaves_nothing() {
    if !can_run("doors::fails", &["sh", "setpriv"]) {
        return;
    }
    let dir = TempDir::new();
    let place = dir.join("place");
    let own = env!("CARGO_BIN_EXE_clew");
    for (script, code, why) in [
        ("exec \"$@\" --record /nowhere/trace", 1, "/nowhere/trace"),
        // When it has its sockets.
        ("ulimit -n 76; exec \"$@\"", 1, "cannot open"),
        // It would be ended one day, and programs wait for ever. Who may have no limit has none.
        (
            "ulimit -t 60; exec setpriv --bounding-set=-sys_resource \"$@\"",
            3,
            "60 s of a CPU at most",
        ),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh", own, "daemon", "--budget", "64MiB", "--socket"]);
        let failed = run_to_end(command.arg(place.join("s")), LONG);
        assert_eq!(failed.status.code(), Some(code), "{}", texts(&failed));
        assert!(String::from_utf8_lossy(&failed.stderr).contains(why), "{}", texts(&failed));
        assert_eq!(files_in(&place), Vec::<PathBuf>::new(), "{script}");
    }
}

#[test]
fn why_a_private_daemon_ends_is_said() {
    if !can_run("doors::private_daemon_fails", &[]) {
        return;
    }
    let dir = TempDir::new();
    let socket = dir.join("s");
    fs::write(dir.join("s.keeper"), "no numbers").expect("written");
    let failed = at(&socket, &["run", "--", "true"]);
    assert_eq!(failed.status.code(), Some(1), "{}", texts(&failed));
    let said = String::from_utf8_lossy(&failed.stderr);
    assert!(said.contains("private daemon") && said.contains("damaged?"), "{}", texts(&failed));
    let long = dir.join("x".repeat(100));
    for words in [&["run", "--", "true"][..], &["daemon"]] {
        refuses(&at(&long, words), &["too long", "107 bytes"]);
    }
}

/// Says that it becomes a program of an app, and does not.
const NEVER_COMES: &str = r#"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"verb":"started","app":"other","pid":1,"command":"x","unmanaged":null}\n')
print("said" if b'"ok"' in s.recv(4096) else "refused", flush=True)
sys.stdin.read()
"#;

#[test]
fn a_process_is_awaited_for_one_app() {
    if !can_run("doors::awaited", &["python3"]) {
        return;
    }
    // Nobody is so large that an app is known by its memory outside.
    let mut fixture = Fixture::start_configured("64MiB", "zram", "min-process = \"1GiB\"\n");
    let mut command = Command::new("python3");
    command.args(["-c", NEVER_COMES]).arg(&fixture.socket);
    let mut other = Program::start(&fixture.dir, "other", command);
    other.wait_line("said", LONG);
    let mut client = fixture.client();
    for app in ["first", "second"] {
        let (app, command) = (app.to_string(), "x".to_string());
        let started = Request::Started { app, pid: 1, command, unmanaged: None };
        client.order(&started).expect("it is taken");
    }
    let names = || fixture.status().apps.into_iter().map(|app| app.name).collect::<Vec<_>>();
    // Nobody is awaited for ever: what came before it is there, so it was not that.
    let named = poll(LONG, || Some(names()).filter(|names| !names.contains(&"first".to_string())));
    assert_eq!(named, Some(vec!["other".to_string(), "second".to_string()]));
    drop(other);
    fixture.assert_daemon_lives();
}

#[test]
fn nobody_is_asked_where_all_users_look_alike() {
    if !can_run("doors::unmapped", &["python3", "unshare"]) {
        return;
    }
    let may = run_to_end(Command::new("unshare").args(["-U", "true"]), LONG);
    if !may.status.success() {
        skip("doors::unmapped", "no user namespaces");
        return;
    }
    let dir = TempDir::new();
    let socket = dir.join("s");
    let mut command = Command::new("python3");
    command.args(["-c", FAKE_SERVER]).arg(&socket).arg("1");
    let mut server = Program::start(&dir, "server", command);
    server.wait_line("serves", LONG);
    for words in [&["ps"][..], &["run", "--", "true"]] {
        let mut command = Command::new("unshare");
        command.args(["-U", env!("CARGO_BIN_EXE_clew"), "--socket"]).arg(&socket).args(words);
        refuses(&run_to_end(&mut command, LONG), &["user namespace"]);
    }
}
