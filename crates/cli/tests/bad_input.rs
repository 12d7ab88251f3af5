//! What people get wrong, and what a machine may lack: a clear message, the right exit code, nothing
//! lost. Exit codes: 2 for usage and bad input, 1 for failure, 3 for missing privileges or kernel
//! features.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use clew_fixture::*;

/// The exit code, and every one of `words` in the message on standard error, and no panic.
#[track_caller]
fn expect_error(output: &Output, code: i32, words: &[&str]) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "exit code: {}", texts(output));
    assert!(!errors.contains("panicked"), "{}", texts(output));
    assert!(!errors.trim().is_empty(), "no message: {}", texts(output));
    for word in words {
        assert!(errors.contains(word), "'{word}' is not in the message: {}", texts(output));
    }
}

fn run(arguments: &[&str]) -> Output {
    run_to_end(clew().args(arguments), LONG)
}

/// `clew daemon` with these arguments must refuse.
#[track_caller]
fn daemon_refuses(arguments: &[&str], words: &[&str]) {
    let dir = TempDir::new();
    let socket = dir.join("s");
    let mut command = clew();
    command.arg("daemon").arg("--socket").arg(&socket).args(arguments);
    expect_error(&run_to_end(&mut command, LONG), 2, words);
    assert!(!socket.exists(), "a socket was left behind");
}

#[test]
fn unknown_words_are_usage_errors() {
    for arguments in
        [&["no-such-verb"][..], &["ps", "--no-such-flag"], &["ps", "--format", "yodel"]]
    {
        expect_error(&run(arguments), 2, &[arguments[arguments.len() - 1]]);
    }
    expect_error(&run(&["demo", "--scenario", "shrink"]), 2, &["shrink", "scatter", "pressure"]);
    for (arguments, word) in [
        (&["demo", "--scenario", "return", "--full"][..], "scatter"),
        (&["demo", "--scenario", "return", "--programs", "sqlite"], "sqlite"),
        (&["demo", "--scenario", "return", "--switches", "0"], "one return"),
        (&["demo", "--programs", "tsserver"], "scenario"),
    ] {
        expect_error(&run(arguments), 2, &[word]);
    }
    expect_error(&run(&[]), 2, &["subcommand", "--help"]);
    expect_error(&run(&["run"]), 2, &["required arguments", "--help"]);
    expect_error(&run(&["fg"]), 2, &["required arguments", "--help"]);
}

#[test]
fn nobody_reads_what_is_printed() {
    let run = |words: &[&str], to: Stdio| {
        let child =
            clew().args(words).stdout(to).stderr(Stdio::piped()).spawn().expect("it starts");
        child.wait_with_output().expect("it ends")
    };
    for words in [&["schemes"][..], &["doctor"], &["--format", "json", "schemes"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = run(words, writer.into());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{words:?}: {}", texts(&output));
        let full = fs::File::options().write(true).open("/dev/full").expect("a full disk");
        let output = run(words, full.into());
        expect_error(&output, 1, &["cannot write to standard output", "No space left"]);
    }
}

#[test]
fn unknown_scheme() {
    daemon_refuses(
        &["--budget", "1GiB", "--scheme", "no-such-scheme"],
        &["no-such-scheme", "zram"],
    );
}

#[test]
fn senseless_sizes() {
    for size in ["12parsecs", "-5", "0", "M", "", "99999999T", "1.2.3G"] {
        daemon_refuses(&[&format!("--budget={size}"), "--scheme", "zram"], &["budget"]);
    }
}

#[test]
fn bad_configuration() {
    let dir = TempDir::new();
    let file = dir.join("clew.toml");
    let path = file.to_str().expect("UTF-8");
    for (text, word) in [
        ("no_such_field = 1\n", "no_such_field"),
        ("budget = \"12 parsecs\"\n", "parsecs"),
        ("budget = -1\n", "budget"),
        ("budget = \n", "clew.toml"),
        ("scheme = \"no-such-scheme\"\n", "no-such-scheme"),
        ("[[rule]]\nprogram = \"x\"\nno_such_rule = true\n", "no_such_rule"),
        ("[[rule]]\nnever = true\n", "program"),
        ("watermark-low = 5\nwatermark-high = 4\n", "watermark"),
        ("workers = 0\n", "workers"),
        ("\u{0}\u{1}", "clew.toml"),
    ] {
        fs::write(&file, text).expect("a file");
        daemon_refuses(&["--config", path], &[word]);
    }
    fs::write(&file, [0xff, 0xfe, 0x00]).expect("a file");
    daemon_refuses(&["--config", path], &["clew.toml"]);
    daemon_refuses(&["--config", "/no/such/clew.toml"], &["/no/such/clew.toml"]);
    daemon_refuses(&["--config", "/"], &[]);
}

#[test]
fn bad_scheme_files() {
    let dir = TempDir::new();
    let file = dir.join("scheme.toml");
    let path = file.to_str().expect("UTF-8");
    for (text, word) in [
        ("[scheme]\nname = \"mine\"\nno_such_column = 1\n", "no_such_column"),
        ("[scheme]\nname = \"mine\"\nreclaim = \"no-such-reclaim\"\n", "no-such-reclaim"),
        ("[scheme]\nname = \"mine\"\non_full = \"explode\"\n", "explode"),
        ("[scheme]\nname = \n", "scheme"),
        ("", "scheme"),
    ] {
        fs::write(&file, text).expect("a file");
        daemon_refuses(&["--budget", "512MiB", "--scheme", path], &[word]);
    }
    daemon_refuses(
        &["--budget", "512MiB", "--scheme", "/no/such/scheme.toml"],
        &["/no/such/scheme.toml"],
    );
}

#[test]
fn no_daemon() {
    let dir = TempDir::new();
    let socket = dir.join("nobody");
    let socket = socket.to_str().expect("UTF-8");
    for verb in [&["ps"][..], &["fg", "app"], &["bg", "app"], &["stop"]] {
        let mut arguments = verb.to_vec();
        arguments.extend(["--socket", socket]);
        expect_error(&run(&arguments), 1, &[socket, "clew daemon"]);
    }
    // A socket file that nobody serves.
    let listener = std::os::unix::net::UnixListener::bind(socket).expect("a socket");
    drop(listener);
    expect_error(&run(&["ps", "--socket", socket]), 1, &[socket]);
}

#[test]
fn unknown_app_and_second_daemon() {
    if !can_run("bad_input::unknown_app_and_second_daemon", &[]) {
        return;
    }
    let mut fixture = Fixture::start("512MiB");
    expect_error(&fixture.verb(&["fg", "no-such-app"]), 1, &["no-such-app"]);
    expect_error(&fixture.verb(&["bg", "no-such-app"]), 1, &["no-such-app"]);
    assert!(fixture.try_swap_out("no-such-app").is_err());
    // The first one keeps its socket.
    let second = fixture.verb(&["daemon", "--budget", "512MiB", "--scheme", "zram"]);
    expect_error(&second, 1, &[fixture.socket.to_str().expect("UTF-8")]);
    fixture.assert_daemon_lives();
}

#[test]
fn programs_that_do_not_exist_or_fail() {
    if !can_run("bad_input::programs_that_do_not_exist_or_fail", &["mkfifo"]) {
        return;
    }
    let mut fixture = Fixture::start("512MiB");
    let run = |words: &[&str]| run_to_end(&mut fixture.run_command("app", words), LONG);
    expect_error(&run(&["/no/such/program"]), 127, &["/no/such/program"]);
    expect_error(&run(&["no-such-program-on-the-path"]), 127, &["no-such-program-on-the-path"]);
    expect_error(&run(&["/"]), 127, &[]);
    // Nobody writes there, and nobody waits for it.
    let fifo = fixture.dir.join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo starts").success());
    expect_error(&run(&[fifo.to_str().expect("UTF-8")]), 127, &["no regular file"]);
    // A program's own status and output are handed on.
    let output = run(&["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", texts(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("err\n"), "{}", texts(&output));
    fixture.assert_daemon_lives();
}

#[test]
fn a_static_program_runs_unmanaged_and_is_listed() {
    let test = "bad_input::a_static_program_runs_unmanaged_and_is_listed";
    if !can_run(test, &["cc"]) {
        return;
    }
    if !has_static_libc() {
        return skip(test, "no static libc");
    }
    let mut fixture = Fixture::start("512MiB");
    let binary = compile(&fixture.dir, "touch.c", &["-static"]);
    let binary = binary.to_str().expect("UTF-8");
    let mut program = fixture.run("static", &[binary, "4096", "50", "3"]);
    program.wait_ready();
    let listed = poll(LONG, || {
        let app = fixture.app("static");
        let process = app.processes.into_iter().find(|process| !process.managed)?;
        (!process.reason.is_empty()).then_some(process)
    });
    let process = listed.unwrap_or_else(|| panic!("not listed: {:?}", fixture.status()));
    assert_eq!(process.pid, program.pid);
    assert!(process.reason.contains("static"), "{process:?}");
    // A swap-out of it takes nothing and harms nothing, whether it is refused or not.
    let _ = fixture.try_swap_out("static");
    assert_eq!(fixture.app("static").stored_pages, 0);
    program.expect("touch seq", "touched 4096 bad 0");
    program.quit();
    fixture.assert_daemon_lives();
}

fn has_static_libc() -> bool {
    let output = Command::new("cc").arg("-print-file-name=libc.a").output().expect("cc runs");
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_absolute()
}

#[test]
fn a_full_pool_stops_swapping_and_loses_nothing() {
    if !can_run("bad_input::a_full_pool_stops_swapping_and_loses_nothing", &["cc"]) {
        return;
    }
    // Twice the budget, and it does not compress.
    let mut fixture = Fixture::start("64MiB");
    let binary = compile(&fixture.dir, "touch.c", &[]);
    let binary = binary.to_str().expect("UTF-8");
    let mut program = fixture.run("full", &[binary, "32768", "0", "5"]);
    program.wait_ready();
    let wanted = program.ask("sum");
    assert!(wanted.ends_with(" bad 0"), "{wanted}");
    for round in 0..5 {
        let answer = fixture.try_swap_out("full");
        let status = fixture.status();
        let pool = &status.pool;
        assert!(pool.used_bytes <= pool.limit_bytes, "{pool:?}");
        match answer {
            Ok(()) => assert!(pool.full, "not said to be full: {status:?}"),
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("full"), "swap-out into a full pool: {text}");
            }
        }
        assert!(program.is_running(), "it was ended\n{}{}", program.report(), fixture.log());
        program.expect("sum", &wanted);
        program.expect(&format!("touch random 5000 {round}"), "touched 5000 bad 0");
    }
    program.quit();
    fixture.wait_all_freed("full");
    // There is room again.
    let room = poll(LONG, || (!fixture.status().pool.full).then_some(()));
    assert!(room.is_some(), "still full: {:?}", fixture.status());
    let mut program = fixture.run("next", &[binary, "4096", "70", "5"]);
    program.wait_ready();
    fixture.wait_resident("next", 8 << 20);
    fixture.swap_out("next");
    assert!(fixture.app("next").stored_pages > 2048, "{:?}", fixture.status());
    program.expect("touch seq", "touched 4096 bad 0");
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn without_privileges_the_daemon_says_what_is_missing() {
    let test = "bad_input::without_privileges_the_daemon_says_what_is_missing";
    if !is_root() {
        return skip(test, "not root, so it cannot become somebody else");
    }
    if let Some(reason) = missing_program(&["setpriv"]) {
        return skip(test, &reason);
    }
    let allowed = fs::read_to_string("/proc/sys/vm/unprivileged_userfaultfd").unwrap_or_default();
    let mode = fs::metadata("/dev/userfaultfd").map(|m| m.permissions().mode()).unwrap_or(0);
    if allowed.trim() != "0" || mode & 0o006 != 0 {
        return skip(test, "everybody may use userfaultfd here");
    }
    // Somebody else may not be able to look into the build directory.
    let dir = TempDir::new();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("permissions");
    let binary = dir.join("clew");
    fs::copy(env!("CARGO_BIN_EXE_clew"), &binary).expect("a copy");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&binary);
    command.arg("daemon").arg("--socket").arg(dir.join("s"));
    command.args(["--budget", "512MiB", "--scheme", "zram"]).current_dir("/");
    let output = run_to_end(&mut command, LONG);
    expect_error(&output, 3, &["userfaultfd"]);
}

#[test]
fn nonsense_on_the_control_socket() {
    if !can_run("bad_input::nonsense_on_the_control_socket", &[]) {
        return;
    }
    let mut fixture = Fixture::start("512MiB");
    let long = vec![b'x'; 8 << 20];
    let nonsense: [&[u8]; 9] = [
        b"",
        b"\n",
        b"hello\n",
        b"{}\n",
        b"{\"verb\":\"no-such-verb\"}\n",
        b"{\"verb\":\"fg\"}\n",
        b"{\"verb\":\"fg\",\"app\":7}\n",
        b"\x00\xff\xfe\n",
        &long,
    ];
    for bytes in nonsense {
        let mut stream =
            UnixStream::connect(&fixture.socket).expect("the daemon takes connections");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a limit");
        stream.set_write_timeout(Some(Duration::from_secs(5))).expect("a limit");
        let _ = stream.write_all(bytes); // it may hang up before the end of it
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.take(65536).read_to_string(&mut answer);
        assert!(!answer.contains("\"ok\""), "{:?}: {answer}", &bytes[..bytes.len().min(40)]);
        fixture.assert_daemon_lives();
    }
    // Many connections that say nothing do not keep others out.
    let silent: Vec<UnixStream> =
        (0..100).filter_map(|_| UnixStream::connect(&fixture.socket).ok()).collect();
    fixture.assert_daemon_lives();
    drop(silent);
    fixture.assert_daemon_lives();
}
