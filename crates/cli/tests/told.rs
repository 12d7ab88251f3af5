//! What `clew ps` and `clew top` tell a person: names as what they are, memory that is outside, what
//! the budget is used for, and that an app thrashes.

use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

use clew_fixture::touch::{MIB, PAGES_OF_MIB, ZRAM, run_as, swapped_out};
use clew_fixture::*;
use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::Request;
use clew_live::control::status::OutsideStatus;

/// A name that clears the screen, sets the window's title, ends the line and turns it over.
const HOSTILE: &str = "\u{1b}[2J\nx\u{9b}K\u{202e}";

fn plain(output: &Output) -> String {
    let text = texts(output);
    assert!(text.chars().all(|c| c == '\n' || c.is_ascii_graphic() || c == ' '), "{text:?}");
    text
}

#[test]
fn a_name_cannot_work_the_terminal() {
    if !can_run("told::names", &["cc"]) {
        return;
    }
    let log = vec![("CLEW_LOG", "info".to_string())];
    let mut fixture = Fixture::start_hooked("256MiB", &ZRAM, log);
    // Too small to be managed, so its command is shown too; and one that is managed.
    let mut small = run_as(&fixture, HOSTILE, 1, 50);
    let mut large = run_as(&fixture, "large\u{1b}[1m", 16, 50);
    fixture.wait_resident("large\u{1b}[1m", 12 * MIB);
    let listed = poll(LONG, || fixture.app(HOSTILE).processes.first().cloned());
    assert_eq!(listed.expect("it is listed").command.len(), HOSTILE.len(), "all of it");

    let shown = "\\x1b[2J\\nx\\x9bK\\u{202e}";
    let ps = plain(&fixture.verb(&["ps"]));
    assert!(ps.contains("not managed") && ps.matches(shown).count() == 3, "{ps}");
    let column = ps.lines().find_map(|line| line.find("STATE")).expect("a header");
    let state = |line: &str| line.find("background").or_else(|| line.find("foreground"));
    let at: Vec<_> = ps.lines().filter_map(state).collect();
    assert_eq!(at, [column, column], "{ps}");
    let top = plain(&fixture.verb(&["top", "--once", "--interval", "0.1"]));
    assert!(top.contains("\\x1b[2J\\nx\\x9bK"), "{top}");
    // A daemon's refusals, and its log.
    let refused = fixture.verb(&["fg", "\u{1b}]0;title\u{7}"]);
    assert!(!refused.status.success() && plain(&refused).contains("\\x1b]0;title\\x07"));
    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    assert!(log.chars().all(|c| c == '\n' || !c.is_control()), "{log:?}");
    assert!(log.contains("managed"), "{log}");
    // JSON holds the name itself, and no character of it that a terminal would heed.
    let json = fixture.verb(&["ps", "--format", "json"]);
    plain(&json);
    let value: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    let names: Vec<_> =
        value["apps"].as_array().expect("apps").iter().map(|a| a["name"].as_str()).collect();
    assert!(names.contains(&Some(HOSTILE)), "{names:?}");
    for program in [&mut small, &mut large] {
        program.kill();
    }
    fixture.assert_daemon_lives();
}

#[test]
fn names_are_bounded_wherever_they_come_from() {
    if !can_run("told::bounds", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("64MiB");
    let longest = "n".repeat(63);
    // On the command line.
    for name in ["", &"n".repeat(64)] {
        let output = run_to_end(&mut fixture.run_command(name, &["true"]), LONG);
        assert_eq!(output.status.code(), Some(2), "{}", texts(&output));
    }
    // From a client.
    let started = |app: &str, command: String, reason: String| {
        let (app, pid) = (app.to_string(), std::process::id());
        let unmanaged = Some(reason);
        Client::connect(&fixture.socket)?.order(&Request::Started { app, pid, command, unmanaged })
    };
    for name in ["", &"n".repeat(64)] {
        let refused = started(name, "c".into(), "r".into());
        let said = matches!(&refused, Err(ControlError::Refused(why)) if why.contains("63 bytes"));
        assert!(said, "{refused:?}");
    }
    // Commands and reasons are cut, between characters.
    started(&longest, "ü".repeat(100), "r".repeat(5000)).expect("it is taken");
    let process = fixture.app(&longest).processes[0].clone();
    assert_eq!((process.command.as_str(), process.reason.len()), ("ü".repeat(31).as_str(), 255));
    let unknown = fixture.client().order(&Request::Fg { app: "u".repeat(5000) });
    assert!(unknown.is_err_and(|error| error.to_string().len() < 200));
    // From the file's name: cut.
    let long = fixture.dir.join(format!("{}.sh", "ü".repeat(60)));
    fs::write(&long, "#!/bin/sh\nexit 3\n").expect("a script");
    let mut chmod = Command::new("chmod");
    assert!(run_to_end(chmod.arg("755").arg(&long), LONG).status.success());
    let mut run = clew();
    run.arg("run").arg("--socket").arg(&fixture.socket).arg("--").arg(&long);
    let output = run_to_end(&mut run, LONG);
    assert_eq!(output.status.code(), Some(3), "{}", texts(&output));
    fixture.assert_daemon_lives();
}

/// Waits until memory of `app` that is outside is as wanted.
fn wait_outside(
    fixture: &Fixture,
    app: &str,
    is_wanted: impl Fn(&OutsideStatus) -> bool,
) -> OutsideStatus {
    let found = poll(LONG, || Some(fixture.app(app).outside).filter(&is_wanted));
    found.unwrap_or_else(|| panic!("{:?}\n{}", fixture.app(app), fixture.log()))
}

#[test]
fn a_server_that_changes_its_user_is_told_of() {
    if !can_run("told::other_user", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("256MiB");
    let binary = compile(&fixture.dir, "other_user.c", &[]);
    let mut server = fixture.run("server", &[binary.to_str().expect("UTF-8"), "32"]);
    server.wait_ready();
    let outside = wait_outside(&fixture, "server", |outside| !outside.processes.is_empty());
    let process = &outside.processes[0];
    assert_eq!((outside.processes.len(), process.uid), (1, 65534), "{outside:?}");
    assert!(process.command.starts_with("other_user") && process.pid != server.pid, "{outside:?}");
    assert!((32 * MIB..34 * MIB).contains(&process.bytes), "{outside:?}");
    assert!(process.bytes == outside.bytes && outside.shared_bytes == 0, "{outside:?}");
    assert!(process.reason.contains("another user"), "{outside:?}");
    let ps = plain(&fixture.verb(&["ps"]));
    let words = format!("other_user (pid {}, user 65534): it runs as another user", process.pid);
    assert!(ps.contains(&words), "{ps}");
    let top = plain(&fixture.verb(&["top", "--once", "--interval", "0.1"]));
    assert!(top.contains("outside: 32.") && top.contains("cannot be taken"), "{top}");
    // It is no part of what the budget counts, and nothing is told of it when it has ended.
    server.quit();
    let gone = poll(LONG, || fixture.status().apps.is_empty().then_some(()));
    assert!(gone.is_some(), "{:?}", fixture.status());
    fixture.assert_daemon_lives();
}

#[test]
fn a_heap_in_shared_memory_is_told_of() {
    if !can_run("told::zgc", &["java", "javac"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut javac = Command::new("javac");
    javac.arg("-d").arg(fixture.dir.path()).arg(program_source("Checksum.java"));
    let output = run_to_end(&mut javac, 2 * LONG);
    assert!(output.status.success(), "javac: {}", texts(&output));
    let path = fixture.dir.path().to_str().expect("UTF-8").to_string();
    let words = ["java", "-XX:+UseZGC", "-Xmx128m", "-cp", &path, "Checksum", "7"];
    let mut java = fixture.run("java", &words);
    java.wait_ready();
    // The heap is mapped three times, and is there once.
    let outside = wait_outside(&fixture, "java", |outside| outside.shared_bytes > 32 * MIB);
    assert!(outside.shared_bytes < 140 * MIB, "{outside:?}");
    assert!(outside.processes.is_empty() && outside.bytes == outside.shared_bytes, "{outside:?}");
    let ps = plain(&fixture.verb(&["ps"]));
    assert!(ps.lines().any(|line| line.contains("java") && line.contains("shared memory")), "{ps}");
    java.kill();
    fixture.assert_daemon_lives();
}

#[test]
fn memory_that_may_be_executed_is_told_of() {
    if !can_run("told::executable", &["python3"]) {
        return;
    }
    let mut fixture = Fixture::start("256MiB");
    let script = "import mmap,sys\n\
        kept=mmap.mmap(-1,48<<20,flags=mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS,prot=7)\n\
        kept.write(b'x'*(48<<20))\n\
        print('ready',flush=True)\n\
        sys.stdin.readline()\n\
        print(all(kept[i]==120 for i in range(0,len(kept),997)),flush=True)\n";
    let mut python = fixture.run("python", &["python3", "-c", script]);
    python.wait_ready();
    let outside = wait_outside(&fixture, "python", |outside| outside.executable_bytes > 0);
    assert!((48 * MIB..52 * MIB).contains(&outside.executable_bytes), "{outside:?}");
    assert_eq!(outside.bytes, outside.executable_bytes, "{outside:?}");
    fixture.swap_out("python");
    let app = fixture.app("python");
    assert!(app.resident_bytes >= 48 * MIB, "{app:?}");
    let ps = plain(&fixture.verb(&["ps"]));
    assert!(ps.contains("may be written and executed"), "{ps}");
    python.expect("go", "True");
    fixture.assert_daemon_lives();
}

#[test]
fn the_budget_counts_the_daemon_and_what_is_on_its_way() {
    let Some((mut fixture, mut program, _)) = swapped_out("told::budget", &ZRAM) else { return };
    // While pages leave, the buffers by which they do are counted.
    let buffers = poll(LONG, || {
        let used = fixture.status().used;
        if used.buffers_bytes == 0 {
            program.expect("write 2000 3", "wrote 2000");
            fixture.swap_out("touch");
        }
        (used.buffers_bytes > 0).then_some(used.buffers_bytes)
    });
    assert!(buffers.is_some_and(|bytes| bytes <= 2 * MIB + 4096), "{buffers:?}");
    let now = poll(LONG, || Some(fixture.status()).filter(|s| s.used.buffers_bytes == 0));
    assert!(now.is_some(), "buffers are given back: {:?}", fixture.status());
    program.expect("touch random 4000 1", "touched 4000 bad 0");
    // Each part is what the kernel says, and all of them are in the sum. The daemon has more than
    // its anonymous memory: page tables, 8 bytes a page.
    let near = |a: u64, b: u64| a.abs_diff(b) < MIB;
    let checked = poll(LONG, || {
        let (daemon, resident) = (rss_anon(fixture.daemon_pid()), rss_anon(program.pid));
        let s = fixture.status();
        let parts = resident + s.pool.used_bytes + daemon;
        let is_right = near(s.used.programs_bytes, resident)
            && near(s.used.pool_bytes, s.pool.used_bytes)
            && near(s.used.daemon_bytes, daemon)
            && near(s.used_bytes, parts)
            && s.used_bytes == s.used.total();
        (is_right && daemon > 3 * MIB && resident > 8 * MIB).then_some(())
    });
    let daemon = rss_anon(fixture.daemon_pid());
    assert!(checked.is_some(), "daemon {daemon}: {:?}", fixture.status());
    assert!(program.ask("sum").ends_with(" bad 0"));
    program.quit();
    fixture.assert_daemon_lives();
}

/// Sweeps over all its pages, many times.
fn begin_to_sweep(program: &mut Program) {
    (0..3000).for_each(|_| program.send("touch seq"));
}

#[test]
fn an_app_that_does_not_fit_thrashes_and_the_budget_that_is_named_ends_it() {
    if !can_run("told::thrashing", &["cc"]) {
        return;
    }
    const BUDGET: u64 = 64;
    const NEEDS: u64 = BUDGET * 3 / 2;
    let app = "sweeps";
    let mut fixture = Fixture::start(&format!("{BUDGET}MiB"));
    let mut program = run_as(&fixture, app, NEEDS, 90);
    assert!(fixture.app(app).thrashing.is_none(), "{:?}", fixture.app(app));
    begin_to_sweep(&mut program);
    let said = poll(LONG, || fixture.status().enough_budget_bytes);
    let enough = said.unwrap_or_else(|| panic!("{:?}\n{}", fixture.app(app), fixture.log()));
    let ps = plain(&fixture.verb(&["ps"]));
    let top = plain(&fixture.verb(&["top", "--once", "--interval", "0.1"]));
    assert!(ps.contains("thrashing") && ps.contains("BUDGET THAT WOULD END IT"), "{ps}");
    assert!(top.contains("THRASHING: a budget of"), "{top}");
    let thrashing = fixture.app(app).thrashing.expect("it still does");
    assert!(thrashing.lost_percent >= 5.0 && thrashing.missing_pages > 0, "{thrashing:?}");
    // More than there is, and not much more than all of it with the daemon and what is kept free.
    assert!((BUDGET * MIB + MIB..160 * MIB).contains(&enough), "{} MiB", enough / MIB);
    program.kill();
    drop(program);
    fixture.assert_daemon_lives();
    drop(fixture);

    let mut fixture = Fixture::start(&format!("{}MiB", enough / MIB));
    let mut program = run_as(&fixture, app, NEEDS, 90);
    begin_to_sweep(&mut program);
    let all = format!("touched {} bad 0", NEEDS * PAGES_OF_MIB);
    let mut sweep = |count: usize| {
        (0..count).for_each(|_| assert_eq!(program.read(2 * LONG), all));
        fixture.app(app).demand_faults
    };
    // What went out while it was filled comes back, and stays.
    sweep(4);
    let before = sweep(4);
    let after = sweep(8);
    let pages = NEEDS * PAGES_OF_MIB;
    assert!(after - before < pages / 20, "{before} to {after} of {pages}: {:?}", fixture.status());
    assert_eq!(fixture.app(app).thrashing, None);
    program.kill();
    fixture.assert_daemon_lives();
}

#[test]
fn relaunches_of_an_app_that_fits_are_no_thrashing() {
    if !can_run("told::relaunches", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("256MiB");
    let mut program = fixture.run_touch("touch", 64 * PAGES_OF_MIB, 50, 3);
    for _ in 0..6 {
        fixture.swap_out_at_least("touch", 48 * MIB);
        program.expect("touch seq", &format!("touched {} bad 0", 64 * PAGES_OF_MIB));
        assert_eq!(fixture.app("touch").thrashing, None);
        std::thread::sleep(Duration::from_millis(300)); // several looks, not one
    }
    assert!(fixture.app("touch").demand_faults > 6 * 48 * PAGES_OF_MIB / 2);
    program.quit();
    fixture.assert_daemon_lives();
}
