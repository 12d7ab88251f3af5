//! `clew top`, in a terminal and for scripts: it shows what `clew ps` says, heeds its keys, and leaves
//! the terminal as it was.

use std::process::Child;
use std::time::Duration;

use clew_fixture::terminal::Terminal;
use clew_fixture::touch::{PAGES, ZRAM, swapped_out};
use clew_fixture::*;
use clew_live::control::protocol::Request;
use clew_live::control::status::AppStatus;
use serde_json::Value;

/// Starts `clew top` there.
fn start(terminal: &Terminal, fixture: &Fixture, arguments: &[&str]) -> Child {
    let mut command = clew();
    command.args(["top", "--interval", "0.2", "--socket"]).arg(&fixture.socket).args(arguments);
    terminal.spawn(&mut command)
}

/// What a screen says in column `title` about an app.
fn cell(screen: &str, app: &str, title: &str) -> Option<String> {
    let header = screen.lines().find(|line| line.starts_with("APP"))?;
    let row = screen.lines().find(|line| line.split_whitespace().next() == Some(app))?;
    let at = header.split_whitespace().position(|word| word == title)?;
    row.split_whitespace().nth(at).map(str::to_string)
}

/// Mebibytes in three digits, as the columns have them.
fn mebibytes(bytes: u64) -> String {
    let mib = bytes as f64 / (1 << 20) as f64;
    let digits = if mib < 9.995 { 2 } else { usize::from(mib < 99.95) };
    format!("{mib:.digits$}M")
}

fn ends_well(child: &mut Child, terminal: &Terminal) {
    let status = wait_for_end(child, LONG).expect("it ends");
    assert!(status.success(), "{status}\n{}", terminal.screen());
    terminal.wait(LONG, |_| terminal.is_as_before());
}

#[test]
fn a_terminal_shows_what_ps_says() {
    let Some((mut fixture, mut program, _)) = swapped_out("top::terminal", &ZRAM) else { return };
    let mut other = fixture.run_touch("other", 8192, 50, 3);
    program.expect("touch random 4000 1", "touched 4000 bad 0");
    let mut terminal = Terminal::open(80, 24);
    assert!(terminal.is_as_before());
    let mut child = start(&terminal, &fixture, &["--sort", "resident"]);
    // Nobody does anything: both are told the same.
    let says = |app: &AppStatus, screen: &str| {
        cell(screen, &app.name, "STORED") == Some(mebibytes(app.stored_pages * 4096))
            && cell(screen, &app.name, "RES") == Some(mebibytes(app.resident_bytes))
            && cell(screen, &app.name, "RATIO") == Some(format!("{:.2}", app.ratio))
            && cell(screen, &app.name, "ST").as_deref() == Some("bg")
            && cell(screen, &app.name, "PROC").as_deref() == Some("1")
    };
    let screen = terminal.wait(LONG, |screen| says(&fixture.app("touch"), screen));
    assert!(fixture.app("touch").stored_pages > PAGES / 2, "{screen}");
    assert!(!terminal.is_as_before());
    let status = fixture.status();
    let pool = screen.lines().find(|line| line.starts_with("pool ")).expect("the pool is shown");
    assert!(pool.contains(&format!("ratio {:.2}", status.pool.ratio)), "{pool}\n{status:?}");

    // Faults are seen while they happen.
    let faults = |screen: &str, app: &str| cell(screen, app, "FLT/s").and_then(|n| n.parse().ok());
    std::thread::scope(|scope| {
        let faulting = scope.spawn(|| {
            for round in 0..3 {
                fixture.swap_out("touch");
                program.expect(&format!("touch random 8000 {round}"), "touched 8000 bad 0");
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        terminal.wait(LONG, |screen| faults(screen, "touch").is_some_and(|n: u64| n > 0));
        faulting.join().expect("it works");
    });
    terminal.wait(LONG, |screen| faults(screen, "touch") == Some(0));

    // The keys: the other order, another column.
    let first = |screen: &str| {
        let after = screen.lines().skip_while(|line| !line.starts_with("APP")).nth(1);
        after.and_then(|line| line.split_whitespace().next()).map(str::to_string)
    };
    terminal.wait(LONG, |screen| first(screen).as_deref() == Some("other"));
    terminal.press("r");
    terminal.wait(LONG, |screen| first(screen).as_deref() == Some("touch"));
    terminal.press("r");
    for _ in 0..4 {
        terminal.press("\x1b[C"); // hot, warm, cold, stored
    }
    terminal.wait(LONG, |screen| first(screen).as_deref() == Some("touch"));
    fixture.order(&Request::Fg { app: "other".into() });
    terminal.wait(LONG, |screen| cell(screen, "other", "ST").as_deref() == Some("fg"));

    // More room: more columns, classes among them, which this scheme does not have.
    terminal.resize(100, 30);
    let screen = terminal.wait(LONG, |screen| cell(screen, "touch", "HOT").is_some());
    assert_eq!(cell(&screen, "touch", "HOT").as_deref(), Some("-"), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 100));

    terminal.press("q");
    ends_well(&mut child, &terminal);
    program.quit();
    other.expect("touch seq", "touched 8192 bad 0");
    other.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn it_outlives_daemons_and_ends_in_order() {
    let Some((mut fixture, program, _)) = swapped_out("top::outlives", &ZRAM) else { return };
    let mut terminal = Terminal::open(80, 24);
    let mut child = start(&terminal, &fixture, &[]);
    let stored = |screen: &str| cell(screen, "touch", "STORED").is_some();
    terminal.wait(LONG, stored);
    fixture.kill_daemon();
    terminal.wait(LONG, |screen| screen.contains("is dead"));
    fixture.start_successor(&[]);
    terminal.wait(LONG, |screen| !screen.contains("is dead") && stored(screen));
    for signal in ["TERM", "HUP", "INT"] {
        assert!(clew_fixture::signal(child.id(), signal), "it is gone");
        ends_well(&mut child, &terminal);
        child = start(&terminal, &fixture, &[]);
        terminal.wait(LONG, stored);
    }
    terminal.press("\x03"); // Ctrl-C
    ends_well(&mut child, &terminal);
    program.quit();
}

/// There is no such terminal, but anybody may say so.
#[test]
fn a_terminal_that_says_it_is_larger_than_any_is_not_drawn_on() {
    let fixture = Fixture::start("64MiB");
    let terminal = Terminal::open(1100, 1000);
    let mut child = start(&terminal, &fixture, &[]);
    let status = wait_for_end(&mut child, LONG).expect("it ends");
    assert_eq!(status.code(), Some(1), "{}", terminal.screen());
    terminal.wait(LONG, |screen| screen.contains("1100 columns and 1000 lines"));
    assert!(terminal.is_as_before());
}

#[test]
fn scripts_get_one_snapshot() {
    let Some((mut fixture, program, _)) = swapped_out("top::scripts", &ZRAM) else { return };
    let ask = |arguments: &[&str]| {
        let output = fixture.verb(arguments);
        assert!(output.status.success(), "{}", texts(&output));
        output
    };
    let value = |output: &std::process::Output| -> Value {
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", texts(output)))
    };
    let top = value(&ask(&["top", "--once", "--interval", "0.2", "--format", "json"]));
    let ps = value(&ask(&["ps", "--format", "json"]));
    for path in
        ["/scheme", "/budget_bytes", "/apps/0/name", "/apps/0/stored_pages", "/apps/0/ratio"]
    {
        let shown = top["status"].pointer(path);
        assert!(shown.is_some() && shown == ps.pointer(path), "{path}: {shown:?}");
    }
    assert!(top["interval_seconds"].as_f64().is_some_and(|s| s >= 0.2), "{top}");
    let rates = &top["rates"]["apps"]["touch"];
    assert_eq!(rates["demand_faults_per_second"].as_f64(), Some(0.0), "{top}");
    assert!(rates["cpu_percent"].as_f64().is_some(), "{top}");

    let output = ask(&["top", "--interval", "0.2"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no terminal"), "{}", texts(&output));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains('\x1b') && text.lines().all(|l| l.chars().count() <= 100), "{text}");
    let row = text.lines().find(|line| line.split_whitespace().next() == Some("touch"));
    let stored = mebibytes(fixture.app("touch").stored_pages * 4096);
    assert!(row.is_some_and(|row| row.contains(&stored)), "{stored}:\n{text}");
    let quiet = ask(&["top", "--once", "--interval", "0.2"]);
    assert!(quiet.stderr.is_empty(), "{}", texts(&quiet));

    let wrong = fixture.verb(&["top", "--interval", "0"]);
    assert_eq!(wrong.status.code(), Some(2), "{}", texts(&wrong));
    program.quit();
    fixture.order(&Request::Stop);
    fixture.wait_daemon(LONG);
    let without = fixture.verb(&["top", "--once"]);
    assert_eq!(without.status.code(), Some(1), "{}", texts(&without));
}
