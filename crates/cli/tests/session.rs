//! A whole session: programs that nobody starts with `clew run`, those that are left alone, what is written
//! and undone, and desktops that say who is in front.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use clew_fixture::*;
use clew_live::control::status::AppStatus;
use clew_session::exceptions::Exceptions;
use serde_json::Value;

/// What says of a session where it is.
const VARIABLES: [&str; 10] = [
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "SWAYSOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "CLEW_AGENT_SOCKET",
    "CLEW_APP",
    "CLEW_EXCEPT",
];

/// A user's session: a home of its own.
struct Session {
    home: PathBuf,
    socket: PathBuf,
}

impl Session {
    fn new(dir: &TempDir, socket: &Path) -> Session {
        let home = dir.join("home");
        fs::create_dir(&home).expect("a home");
        Session { home, socket: socket.to_path_buf() }
    }

    fn at_home(&self, command: &mut Command) {
        for name in VARIABLES {
            command.env_remove(name);
        }
        command.env("HOME", &self.home).env_remove("LD_PRELOAD");
    }

    /// `clew session WORDS`.
    fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut command = clew();
        self.at_home(&mut command);
        command.arg("--socket").arg(&self.socket).arg("session").args(words);
        command
    }

    fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Output {
        run_to_end(&mut self.command(words), LONG)
    }

    fn ok<S: AsRef<OsStr>>(&self, words: &[S]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{}", texts(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["status", "--format", "json"])).expect("JSON")
    }

    /// A shell of the session, which becomes these words.
    fn shell<S: AsRef<OsStr>>(&self, before: &str, words: &[S]) -> Command {
        let mut command = Command::new("sh");
        self.at_home(&mut command);
        let script =
            format!("eval \"$(\"$CLEW\" --socket \"$SOCKET\" session env)\"; {before} exec \"$@\"");
        command.env("CLEW", env!("CARGO_BIN_EXE_clew")).env("SOCKET", &self.socket);
        command.args(["-c", &script, "sh"]).args(words);
        command
    }

    /// All files and links below the home.
    fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut directories = vec![self.home.clone()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).expect("a directory").flatten() {
                let path = entry.path();
                if fs::symlink_metadata(&path).expect("it is there").is_dir() {
                    directories.push(path);
                } else {
                    let path = path.strip_prefix(&self.home).expect("below it");
                    files.push(path.to_str().expect("UTF-8").to_string());
                }
            }
        }
        files.sort();
        files
    }
}

const FILES: [&str; 7] = [
    ".config/clew/exceptions",
    ".config/environment.d/60-clew.conf",
    ".config/systemd/user/clew-session-watch.service",
    ".config/systemd/user/clew-session.service",
    ".config/systemd/user/default.target.wants/clew-session.service",
    ".config/systemd/user/graphical-session.target.wants/clew-session-watch.service",
    ".local/share/clew/libclew_agent.so",
];

#[test]
fn what_is_enabled_is_undone_and_a_users_own_files_stay() {
    let dir = TempDir::new();
    let session = Session::new(&dir, &dir.join("s"));
    let dry = session.ok(&["enable", "--dry-run"]);
    assert!(FILES.iter().all(|file| dry.contains(file)), "{dry}");
    let apart_from_where = dry.replace(&dir.path().display().to_string(), "/tmp/clew");
    assert!(apart_from_where.lines().all(|line| line.chars().count() <= 160), "{dry}");
    assert!(session.files().is_empty(), "written: {:?}", session.files());
    assert_eq!(session.status()["enabled"], false);

    session.ok(&["enable"]);
    assert_eq!(session.files(), FILES);
    let status = session.status();
    assert_eq!(
        (&status["enabled"], &status["daemon_pid"]),
        (&true.into(), &Value::Null),
        "{status}"
    );
    let states = status["files"].as_array().expect("files");
    assert!(states.iter().all(|file| file["state"] == "there"), "{status}");
    let usual = status["exceptions"].as_array().expect("names");
    assert!(usual.contains(&"gnome-shell".into()) && usual.contains(&"clew".into()), "{status}");
    // Said again, and with what a user has put on the list.
    session.ok(&["except", "steam", "rr"]);
    session.ok(&["include", "rr", "sway"]);
    session.ok(&["enable", "--no-daemon"]);
    let list = fs::read_to_string(session.home.join(FILES[0])).expect("the list");
    assert!(list.ends_with("steam\n") && !list.contains("\nsway\n"), "{list}");
    for bad in ["", "a/b", "#x"] {
        assert_eq!(session.run(&["except", bad]).status.code(), Some(2), "{bad:?}");
    }
    let removed = session.ok(&["disable", "--dry-run"]);
    assert!(FILES.iter().all(|file| removed.contains(file)), "{removed}");
    assert_eq!(session.files(), FILES);
    session.ok(&["disable"]);
    // A list that its user has changed is his.
    assert_eq!(session.files(), &FILES[..1]);
    fs::write(session.home.join(FILES[0]), Exceptions::usual().text()).expect("written");
    session.ok(&["disable"]);
    assert!(session.files().is_empty(), "left: {:?}", session.files());
    assert!(
        !session.home.join(".config/systemd").exists()
            && !session.home.join(".config/clew").exists()
    );
    session.ok(&["disable"]);

    // What is in the way is somebody's: nothing at all is written.
    let theirs = session.home.join(FILES[1]);
    fs::create_dir_all(theirs.parent().expect("a directory")).expect("made");
    fs::write(&theirs, "EDITOR=vi\n").expect("written");
    let refused = session.run(&["enable"]);
    assert_eq!(refused.status.code(), Some(2), "{}", texts(&refused));
    assert!(texts(&refused).contains("60-clew.conf"), "{}", texts(&refused));
    assert_eq!(session.files(), [FILES[1]]);
    session.ok(&["disable"]);
    assert_eq!(fs::read_to_string(&theirs).expect("it stays"), "EDITOR=vi\n");
    fs::remove_file(&theirs).expect("removed");
    // So is what was made by us and changed since.
    session.ok(&["enable"]);
    let unit = session.home.join(FILES[3]);
    let text = fs::read_to_string(&unit).expect("a unit");
    fs::write(&unit, text.replace("WatchdogSec=30", "WatchdogSec=60")).expect("changed");
    assert_eq!(session.run(&["enable"]).status.code(), Some(2));
    session.ok(&["disable"]);
    assert_eq!(session.files(), [FILES[3]]);
}

/// Where the agent's object goes.
const OBJECT: &str = ".local/share/clew/libclew_agent.so";

#[test]
fn a_file_of_the_users_own_where_the_object_goes_stays() {
    let dir = TempDir::new();
    let session = Session::new(&dir, &dir.join("s"));
    let theirs = session.home.join(OBJECT);
    fs::create_dir_all(theirs.parent().expect("a directory")).expect("made");
    fs::write(&theirs, "mine").expect("written");
    let refused = session.run(&["enable"]);
    assert_eq!(refused.status.code(), Some(2), "{}", texts(&refused));
    assert!(texts(&refused).contains("libclew_agent.so is there already"), "{}", texts(&refused));
    session.ok(&["disable"]);
    assert_eq!(fs::read_to_string(&theirs).expect("it stays"), "mine");
    fs::remove_file(&theirs).expect("removed");
    session.ok(&["enable"]);
    // One of another version, as after an upgrade.
    let mut older = fs::read(&theirs).expect("the object");
    older.extend([0; 16]);
    fs::write(&theirs, &older).expect("written");
    session.ok(&["enable"]);
    assert!(fs::read(&theirs).expect("the object").len() < older.len());
    session.ok(&["disable"]);
    assert!(!theirs.exists());
}

#[test]
fn commands_that_change_a_session_at_once_come_one_after_the_other() {
    let dir = TempDir::new();
    let session = Session::new(&dir, &dir.join("s"));
    let all = |words: &dyn Fn(usize) -> Vec<String>, count: usize| {
        let begun: Vec<Child> = (0..count)
            .map(|number| {
                let mut command = session.command(&words(number));
                command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
            })
            .collect();
        for child in begun {
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{}", texts(&output));
        }
    };
    let word = |word: &'static str| move |_| vec![word.to_string()];
    // Before anything is enabled, too.
    all(&|number| vec!["except".to_string(), format!("program-{number}")], 12);
    let list = fs::read_to_string(session.home.join(FILES[0])).expect("the list");
    for number in 0..12 {
        assert!(list.contains(&format!("\nprogram-{number}\n")), "{list}");
    }
    assert!(list.contains("\ngnome-shell\n"), "it has what it has at first, too: {list}");
    all(&word("enable"), 6);
    assert_eq!(session.status()["enabled"], true);
    all(&word("disable"), 6);
    assert_eq!(session.files(), &FILES[..1]);
}

/// Whoever may read a directory may lock it.
#[test]
fn who_holds_the_lock_of_the_directory_for_ever_keeps_nobody() {
    let dir = TempDir::new();
    let session = Session::new(&dir, &dir.join("s"));
    let place = session.home.join(".config");
    fs::create_dir(&place).expect("nothing is there");
    let held = fs::File::open(&place).expect("a directory");
    held.lock_shared().expect("nobody has it");
    session.ok(&["except", "steam"]);
    // Nor what is no directory.
    fs::remove_dir_all(&place).expect("it is ours");
    assert!(Command::new("mkfifo").arg(&place).status().expect("mkfifo starts").success());
    let disabled = session.run(&["disable"]);
    assert!(disabled.status.code().is_some(), "{}", texts(&disabled));
}

#[test]
fn systemd_reads_what_is_written() {
    let test = "session::systemd_reads_what_is_written";
    let generator =
        "/usr/lib/systemd/user-environment-generators/30-systemd-environment-d-generator";
    if !Path::new(generator).exists() {
        return skip(test, "systemd is not installed");
    }
    let dir = TempDir::new();
    let session = Session::new(&dir, &dir.join("s"));
    session.ok(&["enable"]);
    let mut command = Command::new(generator);
    session.at_home(&mut command);
    command.env("LD_PRELOAD", "/none.so");
    // The loader says so on standard error, and goes on.
    let said = String::from_utf8(run_to_end(&mut command, LONG).stdout).expect("UTF-8");
    let at = |file: &str| session.home.join(file).to_str().expect("UTF-8").to_string();
    let agents = dir.join("s.agents");
    for line in [
        format!("LD_PRELOAD={}:/none.so", at(FILES[6])),
        format!("CLEW_AGENT_SOCKET={}", agents.display()),
        format!("CLEW_EXCEPT={}", at(FILES[0])),
    ] {
        assert!(said.lines().any(|said| said == line), "{line} is not in\n{said}");
    }
    if let Some(missing) = missing_program(&["systemd-analyze"]) {
        return skip(test, &missing);
    }
    for unit in [FILES[2], FILES[3]] {
        let mut command = Command::new("systemd-analyze");
        session.at_home(&mut command);
        command.env("XDG_RUNTIME_DIR", dir.path());
        let checked =
            run_to_end(command.args(["--user", "--man=no", "verify"]).arg(at(unit)), LONG);
        assert!(!texts(&checked).contains("clew-session"), "{}", texts(&checked));
    }
}

/// A program in place of systemctl, which writes down what it is asked.
#[test]
fn a_service_manager_is_told_to_begin_and_to_end() {
    let dir = TempDir::new();
    let session = Session::new(&dir, &dir.join("s"));
    let log = dir.join("asked");
    fs::create_dir_all(dir.join("run/systemd/private")).expect("a place");
    let fake = format!(
        "#!/bin/sh\necho \"$*\" >>{0}\n[ \"$2\" != show-environment ] || cat {0}.env 2>/dev/null || true\n",
        log.display()
    );
    fs::create_dir(dir.join("bin")).expect("a place");
    fs::write(dir.join("bin/systemctl"), fake).expect("written");
    fs::set_permissions(dir.join("bin/systemctl"), fs::Permissions::from_mode(0o755))
        .expect("a mode");
    let tell = |words: &[&str]| {
        let _ = fs::remove_file(&log);
        let mut command = session.command(words);
        let path =
            format!("{}:{}", dir.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let output =
            run_to_end(command.env("PATH", path).env("XDG_RUNTIME_DIR", dir.join("run")), LONG);
        assert!(output.status.success(), "{}", texts(&output));
        fs::read_to_string(&log).unwrap_or_default()
    };
    let environment = dir.join("asked.env");
    fs::write(&environment, "EDITOR=vi\nLD_PRELOAD=/other.so\n").expect("written");
    let object = session.home.join(FILES[6]);
    let asked = tell(&["enable", "--now"]);
    for wanted in [
        "--user daemon-reload".to_string(),
        "--user start clew-session.service clew-session-watch.service".to_string(),
        format!("--user set-environment LD_PRELOAD={}:/other.so ", object.display()),
    ] {
        assert!(asked.contains(&wanted), "'{wanted}' is not in\n{asked}");
    }
    assert_eq!(tell(&["enable"]), "", "told without --now");
    fs::write(&environment, format!("LD_PRELOAD={}:/other.so\n", object.display()))
        .expect("written");
    let asked = tell(&["disable"]);
    for wanted in [
        "--user unset-environment LD_PRELOAD CLEW_AGENT_SOCKET CLEW_EXCEPT\n",
        "--user set-environment LD_PRELOAD=/other.so\n",
        "--user stop clew-session-watch.service clew-session.service\n",
    ] {
        assert!(asked.contains(wanted), "'{wanted}' is not in\n{asked}");
    }
    assert!(session.files().is_empty(), "left: {:?}", session.files());
}

/// tests/programs/touch.c by this name, with 4 MiB.
fn touch(dir: &TempDir, name: &str) -> Vec<String> {
    let binary = dir.join(name);
    fs::rename(compile(dir, "touch.c", &[]), &binary).expect("another name");
    let words = [binary.to_str().expect("UTF-8"), "1024", "50", "1"];
    words.map(str::to_string).to_vec()
}

/// Starts it in the session and waits for its first word.
fn start(dir: &TempDir, session: &Session, before: &str, words: &[String]) -> Program {
    let mut program = Program::start(dir, "program", session.shell(before, words));
    program.wait_ready();
    program
}

/// Waits until the daemon knows a process of an app.
fn wait_known(fixture: &Fixture, app: &str, pid: u32) {
    let known = poll(LONG, || fixture.process(app, pid));
    assert!(known.is_some(), "{pid} of {app}: {:?}\n{}", fixture.status().apps, fixture.log());
}

#[test]
fn a_session_is_managed_but_for_its_exceptions() {
    if !can_run("session::a_session_is_managed_but_for_its_exceptions", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let words = touch(&fixture.dir, "quiet");
    let script = fixture.dir.join("scripted");
    fs::write(&script, "#!/bin/sh\necho ready\nread line\n").expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("a mode");
    let script = [script.to_str().expect("UTF-8").to_string()];
    let managed = start(&fixture.dir, &session, "", &words);
    wait_known(&fixture, "quiet", managed.pid);
    assert_eq!(agents_of(managed.pid).len(), 1);
    assert_eq!(managed.errors(), "");
    fixture.swap_out_at_least("quiet", 2 << 20);
    managed.quit();
    // `clew run` gives it one agent, not two, and its own name.
    let run = [env!("CARGO_BIN_EXE_clew"), "--socket", fixture.socket.to_str().expect("UTF-8")];
    let run = [&run[..], &["run", "--app", "named", "--"]].concat();
    let run: Vec<String> = run.iter().map(ToString::to_string).chain(words.clone()).collect();
    let named = start(&fixture.dir, &session, "", &run);
    wait_known(&fixture, "named", named.pid);
    let agents = agents_of(named.pid).len();
    named.quit();
    assert_eq!(agents, 1);

    session.ok(&["except", "quiet", "scripted"]);
    for words in [&words[..], &script] {
        let mut alone = start(&fixture.dir, &session, "", words);
        assert!(agents_of(alone.pid).is_empty(), "{words:?}");
        assert!(fixture.process("quiet", alone.pid).is_none());
        alone.send("quit");
        alone.wait(LONG);
    }
    session.ok(&["include", "quiet"]);
    // A list that nobody can read excepts everybody.
    let unreadable = format!("CLEW_EXCEPT={};", fixture.dir.path().display());
    let alone = start(&fixture.dir, &session, &unreadable, &words);
    assert!(agents_of(alone.pid).is_empty());
    alone.quit();
    let again = start(&fixture.dir, &session, "", &words);
    wait_known(&fixture, "quiet", again.pid);
    again.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn a_session_without_a_daemon_begins_every_program_as_before() {
    let test = "session::a_session_without_a_daemon_begins_every_program_as_before";
    if !can_run(test, &["cc", "strace"]) {
        return;
    }
    let _alone = alone();
    let dir = TempDir::new();
    let session = Session::new(&dir, &dir.join("s"));
    session.ok(&["enable"]);
    let words = touch(&dir, "plain");
    let trace = dir.join("trace");
    let strace = ["strace", "-f", "-o", trace.to_str().expect("UTF-8")];
    let strace: Vec<String> = strace.iter().map(ToString::to_string).chain(words.clone()).collect();
    let program = start(&dir, &session, "", &strace);
    assert!(agents_of(program.pid).is_empty());
    let errors = program.errors();
    program.quit();
    assert_eq!(errors, "");
    let calls = fs::read_to_string(&trace).expect("a trace");
    let object = session.home.join(FILES[6]);
    assert!(calls.contains(object.to_str().expect("UTF-8")), "not even loaded:\n{calls}");
    for call in ["socket(", "clone(", "pipe2(", "userfaultfd("] {
        assert!(!calls.contains(call), "{call}:\n{calls}");
    }
    // Undone while programs run that hand it on: what they start finds it, and says nothing.
    let mut shell = Program::start(&dir, "shell", {
        let mut shell =
            session.shell("", &["sh", "-c", "echo ready; while read line; do $line; done"]);
        shell.env("PATH", std::env::var("PATH").unwrap_or_default());
        shell
    });
    shell.wait_line("ready", LONG);
    let said = session.ok(&["disable"]);
    assert!(said.contains("1 processes") && said.contains("stays"), "{said}");
    assert_eq!(session.files(), [FILES[6]]);
    shell.expect("/bin/echo here", "here");
    assert_eq!(shell.errors(), "");
    drop(shell);
    session.ok(&["disable"]);
    assert!(session.files().is_empty(), "left: {:?}", session.files());
}

#[test]
fn a_program_of_another_c_library_begins_as_before() {
    let test = "session::a_program_of_another_c_library_begins_as_before";
    if !can_run(test, &["musl-gcc"]) {
        return;
    }
    let mut fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let (source, binary) = (fixture.dir.join("musl.c"), fixture.dir.join("musl"));
    // Its headers know none of the kernel's.
    let text = "#include <stdio.h>\nint main(void) { puts(\"ready\"); fflush(stdout); return getchar() == 0; }";
    fs::write(&source, text).expect("written");
    let mut compiler = Command::new("musl-gcc");
    compiler.arg("-o").args([&binary, &source]);
    let compiled = run_to_end(&mut compiler, LONG);
    assert!(compiled.status.success(), "{}", texts(&compiled));
    let words = [binary.to_str().expect("UTF-8"), "1024", "50", "1"].map(str::to_string);
    let program = start(&fixture.dir, &session, "", &words);
    assert!(agents_of(program.pid).is_empty());
    assert_eq!(program.errors(), "");
    program.quit();
    fixture.assert_daemon_lives();
}

/// A control group of version 2, removed at the end.
struct Group(Vec<PathBuf>);

impl Group {
    fn make(path: &str) -> Option<Group> {
        let roots = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists())?;
        let mut made = Group(Vec::new());
        let mut at = root.join(format!("clew-test-{}", std::process::id()));
        for name in std::iter::once("").chain(path.split('/')) {
            if !name.is_empty() {
                at.push(name);
            }
            fs::create_dir(&at).ok()?;
            made.0.push(at.clone());
        }
        Some(made)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for made in self.0.iter().rev() {
            poll(LONG, || fs::remove_dir(made).ok());
        }
    }
}

#[test]
fn what_a_desktop_starts_is_the_app_of_its_scope() {
    let test = "session::what_a_desktop_starts_is_the_app_of_its_scope";
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let Some(group) = Group::make("app.slice/app-gnome-org.example.Editor-7.scope") else {
        return skip(test, "there are no control groups of version 2 to be made");
    };
    let scope = group.0.last().expect("made").display().to_string();
    let words = touch(&fixture.dir, "editor");
    // In the scope from before it begins.
    let program = start(&fixture.dir, &session, &format!("echo $$ >{scope}/cgroup.procs;"), &words);
    wait_known(&fixture, "org.example.Editor", program.pid);
    // In front is what the desktop sees: one of the scope, which is not managed itself.
    let mut window = Program::start(&fixture.dir, "window", {
        let mut window = Command::new("sh");
        let script = format!("echo $$ >{scope}/cgroup.procs; echo ready; \"$@\" & cat");
        window.args(["-c", &script, "sh"]).args(["cat", "/dev/null"]);
        window
    });
    window.wait_line("ready", LONG);
    let nobody = session.run(&["front", &window.pid.to_string()]);
    assert_eq!(nobody.status.code(), Some(1), "nobody of its kin is managed: {}", texts(&nobody));
    session.ok(&["front", &program.pid.to_string()]);
    assert_eq!(fixture.app("org.example.Editor").state, "foreground");
    drop(window);
    program.quit();
    fixture.assert_daemon_lives();
}

/// Which app is in front.
fn front(fixture: &Fixture) -> Option<String> {
    let is_there = |app: &AppStatus| app.state == "foreground";
    fixture.status().apps.into_iter().find(is_there).map(|app| app.name)
}

fn wait_front(fixture: &Fixture, app: &str, why: &dyn Fn() -> String) {
    let there = poll(LONG, || (front(fixture).as_deref() == Some(app)).then_some(()));
    assert!(
        there.is_some(),
        "{app} is not in front, but {:?}\n{}\n{}",
        front(fixture),
        why(),
        fixture.log()
    );
}

#[test]
fn a_process_names_the_app_in_front_if_it_is_the_users_own() {
    let test = "session::a_process_names_the_app_in_front_if_it_is_the_users_own";
    if !can_run(test, &["cc", "setpriv"]) {
        return;
    }
    let fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let words = touch(&fixture.dir, "touch");
    let mut one = fixture.run("one", &words);
    one.wait_ready();
    // The shell that starts it is not managed: whom it has started is.
    let mut two = Program::start(&fixture.dir, "two", {
        let run = fixture.run_command("two", &words);
        let mut shell_command = Command::new("sh");
        session.at_home(&mut shell_command);
        shell_command
            .args(["-c", "\"$@\"; true", "sh"])
            .arg(run.get_program())
            .args(run.get_args());
        shell_command
    });
    let shells = two.pid;
    two.wait_ready();
    assert_ne!(shells, two.pid);
    wait_known(&fixture, "two", two.pid);
    for (pid, app) in [(one.pid, "one"), (two.pid, "two"), (one.pid, "one"), (shells, "two")] {
        session.ok(&["front", &pid.to_string()]);
        assert_eq!(front(&fixture).as_deref(), Some(app), "{pid}");
    }
    // Another user's process is not heeded, nor is one that is not there.
    let setpriv = ["--reuid=65534", "--regid=65534", "--clear-groups", "sleep", "1000"];
    let mut theirs = Command::new("setpriv").args(setpriv).spawn().expect("it starts");
    let uid = || fs::read_to_string(format!("/proc/{}/status", theirs.id())).unwrap_or_default();
    poll(LONG, || uid().contains("\nUid:\t65534").then_some(())).expect("it has changed its user");
    for pid in [theirs.id(), 1 << 22] {
        let refused = session.run(&["front", &pid.to_string()]);
        assert_eq!(refused.status.code(), Some(2), "{}", texts(&refused));
    }
    kill_tree(&mut theirs);
    one.quit();
    drop(two);
}

/// A server that says on its first line where it is.
struct Server {
    child: Child,
    said: String,
}

impl Server {
    fn start(command: &mut Command) -> Server {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        lines.read_line(&mut said).expect("a line");
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        Server { child, said: said.trim().to_string() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill_tree(&mut self.child);
    }
}

/// `clew session watch`, whose errors go to a file.
fn watch(fixture: &Fixture, session: &Session, environment: &[(&str, &str)]) -> Server {
    let errors = fs::File::create(fixture.dir.join("watch.log")).expect("a log");
    let mut command = session.command(&["watch"]);
    Server::start(command.envs(environment.iter().copied()).stderr(errors))
}

#[test]
fn other_desktops_call_by_dbus() {
    let test = "session::other_desktops_call_by_dbus";
    if !can_run(test, &["cc", "dbus-daemon", "dbus-send"]) {
        return;
    }
    let fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let words = touch(&fixture.dir, "touch");
    let bus = || {
        Server::start(Command::new("dbus-daemon").args([
            "--session",
            "--nofork",
            "--print-address",
        ]))
    };
    let first = bus();
    let watching = watch(&fixture, &session, &[("DBUS_SESSION_BUS_ADDRESS", &first.said)]);
    assert_eq!(watching.said, "clew: watching dbus");
    let call = |pid: u32| {
        let mut send = Command::new("dbus-send");
        send.env("DBUS_SESSION_BUS_ADDRESS", &first.said).args(["--session", "--print-reply"]);
        send.args(["--dest=org.clew.Session1", "/org/clew/Session1", "org.clew.Session1.Front"]);
        run_to_end(send.arg(format!("uint32:{pid}")), LONG)
    };
    let mut programs: Vec<Program> = ["one", "two"].map(|app| fixture.run(app, &words)).into();
    programs.iter_mut().for_each(Program::wait_ready);
    let log = || fs::read_to_string(fixture.dir.join("watch.log")).unwrap_or_default();
    let known = poll(LONG, || call(programs[0].pid).status.success().then_some(()));
    assert!(known.is_some(), "{}\n{}", texts(&call(programs[0].pid)), log());
    for (at, app) in [(0, "one"), (1, "two"), (0, "one")] {
        let called = call(programs[at].pid);
        assert!(called.status.success(), "{}", texts(&called));
        wait_front(&fixture, app, &log);
    }
    let refused = call(1 << 22);
    assert!(
        !refused.status.success() && texts(&refused).contains("is not this user's"),
        "{}",
        texts(&refused)
    );
    assert_eq!(front(&fixture).as_deref(), Some("one"));
    programs.into_iter().for_each(Program::quit);
}

#[test]
fn whose_pane_of_tmux_is_looked_at_is_in_front() {
    let test = "session::whose_pane_of_tmux_is_looked_at_is_in_front";
    if !can_run(test, &["cc", "tmux"]) {
        return;
    }
    let fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let words = touch(&fixture.dir, "touch").join(" ");
    let conf = fixture.dir.join("tmux.conf");
    fs::write(&conf, session.ok(&["tmux-hook"])).expect("written");
    let at = fixture.dir.join("tmux");
    let tmux = |words: &[&str]| {
        let mut tmux = Command::new("tmux");
        session.at_home(&mut tmux);
        tmux.env_remove("TMUX").arg("-S").arg(&at).arg("-f").arg(&conf).args(words);
        let output = run_to_end(&mut tmux, LONG);
        assert!(output.status.success(), "{words:?}: {}", texts(&output));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let run = |app: &str| {
        let socket = fixture.socket.display();
        format!("{} --socket {socket} run --app {app} -- {words}", env!("CARGO_BIN_EXE_clew"))
    };
    struct End<'a>(&'a dyn Fn());
    impl Drop for End<'_> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let end = || {
        let _ = Command::new("tmux").arg("-S").arg(&at).arg("kill-server").output();
    };
    let _end = End(&end);
    tmux(&["new-session", "-d", "-s", "test", &run("one")]);
    tmux(&["new-window", "-d", "-t", "test", &run("two")]);
    tmux(&["split-window", "-d", "-t", "test:1", &run("three")]);
    for app in ["one", "two", "three"] {
        let known = poll(LONG, || fixture.app(app).processes.first().map(|process| process.pid));
        assert!(known.is_some(), "{app}: {:?}\n{}", fixture.status().apps, fixture.log());
    }
    let why = || tmux(&["list-panes", "-a"]);
    for (words, app) in [
        (["select-window", "-t", "test:1"], "two"),
        (["select-pane", "-t", "test:1.1"], "three"),
        (["select-window", "-t", "test:0"], "one"),
        (["select-window", "-t", "test:1"], "three"),
    ] {
        tmux(&words);
        wait_front(&fixture, app, &why);
    }
    // What was configured again does the same once.
    tmux(&["source-file", conf.to_str().expect("UTF-8")]);
    assert_eq!(tmux(&["show-hooks", "-g", "session-window-changed"]).lines().count(), 1);
}

/// A window has the focus when it appears, and the one before has it when it goes.
fn windows_under(test: &str, manager: &str, without: &[&str]) {
    if !can_run(test, &["Xvfb", "xterm", manager]) {
        return;
    }
    let fixture = Fixture::start("512MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let server = ["-displayfd", "1", "-screen", "0", "640x480x24", "-nolisten", "tcp"];
    let server = [&server[..], without].concat();
    let server = Server::start(Command::new("Xvfb").args(server).stderr(Stdio::null()));
    let display = format!(":{}", server.said);
    // It says that it is there by a file.
    let (ready, config) = (fixture.dir.join("ready"), fixture.dir.join("i3"));
    let says = format!("touch {}", ready.display());
    fs::write(&config, format!("font fixed\nexec --no-startup-id {says}\n")).expect("written");
    let mut wm = Command::new(manager);
    session.at_home(&mut wm);
    match manager {
        "i3" => wm.arg("-c").arg(&config),
        _ => wm.arg("--startup").arg(&says),
    };
    wm.env("DISPLAY", &display).process_group(0);
    let quiet = wm.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut wm = quiet.spawn().expect("a window manager");
    let log = || fs::read_to_string(fixture.dir.join("watch.log")).unwrap_or_default();
    poll(LONG, || ready.exists().then_some(())).expect("the window manager is there");
    let watching = watch(&fixture, &session, &[("DISPLAY", &display)]);
    assert_eq!(watching.said, "clew: watching x11");
    let window = |app: &str| {
        let mut command = fixture.run_command(app, &["xterm", "-e", "cat"]);
        session.at_home(&mut command);
        command.env("DISPLAY", &display);
        Program::start(&fixture.dir, app, command)
    };
    let one = window("one");
    wait_front(&fixture, "one", &log);
    let mut two = window("two");
    wait_front(&fixture, "two", &log);
    two.kill();
    wait_front(&fixture, "one", &log);
    drop(one);
    kill_tree(&mut wm);
    drop((two, watching, server));
}

/// It says which process a window is of by an extension; without that, the window's own word counts.
#[test]
fn windows_of_a_server_without_its_extension_are_known() {
    let without = ["-extension", "X-Resource"];
    windows_under("session::without_x_resource", "i3", &without);
}

/// An X server of another user's, which says how many bytes it was sent.
const SERVER: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX)
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

#[test]
fn an_x_server_of_another_user_is_told_nothing() {
    if !can_run("session::an_x_server_of_another_user_is_told_nothing", &["python3"]) {
        return;
    }
    let fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let number = 10_000 + std::process::id() % 40_000;
    let socket = format!("\0/tmp/.X11-unix/X{number}");
    let mut command = Command::new("python3");
    command.args(["-c", &SERVER.replace("sys.argv[1]", &format!("{socket:?}")), "", "65534"]);
    let mut server = Program::start(&fixture.dir, "x", command);
    server.wait_line("serves", LONG);
    let watching = watch(&fixture, &session, &[("DISPLAY", &format!(":{number}"))]);
    assert_eq!(server.read(LONG), "0", "bytes that it got");
    drop(watching);
}

#[test]
fn a_bus_of_another_user_is_told_nothing() {
    if !can_run("session::a_bus_of_another_user_is_told_nothing", &["python3"]) {
        return;
    }
    let fixture = Fixture::start("256MiB");
    let session = Session::new(&fixture.dir, &fixture.socket);
    let name = format!("/tmp/dbus-clew-{}", std::process::id());
    let socket = format!("\0{name}");
    let mut command = Command::new("python3");
    command.args(["-c", &SERVER.replace("sys.argv[1]", &format!("{socket:?}")), "", "65534"]);
    let mut server = Program::start(&fixture.dir, "bus", command);
    server.wait_line("serves", LONG);
    let address = format!("unix:abstract={name}");
    let watching = watch(&fixture, &session, &[("DBUS_SESSION_BUS_ADDRESS", &address)]);
    assert_eq!(server.read(LONG), "0", "bytes that it got");
    drop(watching);
}

#[test]
fn windows_under_openbox_are_in_front_in_turn() {
    windows_under("session::windows_under_openbox_are_in_front_in_turn", "openbox", &[]);
}

#[test]
fn windows_under_i3_are_in_front_in_turn() {
    windows_under("session::windows_under_i3_are_in_front_in_turn", "i3", &[]);
}
