//! Rules of clew.toml, where memory is short: `protect`, `budget`, `never`.

use std::thread::sleep;
use std::time::Duration;

use clew_fixture::touch::{MIB, PAGES_OF_MIB, run_as};
use clew_fixture::*;
use clew_live::control::protocol::Request;

/// A daemon with one rule.
fn with_rule(budget: &str, rule: &str) -> Fixture {
    Fixture::start_configured(
        budget,
        "zram",
        &format!(
            "[[rule]]
{rule}
"
        ),
    )
}

/// Waits until nearly all pages of an app are out.
fn wait_stored(fixture: &Fixture, app: &str, mib: u64) {
    let out =
        poll(LONG, || (fixture.app(app).stored_pages >= mib * PAGES_OF_MIB * 9 / 10).then_some(()));
    assert!(out.is_some(), "{app} stays: {:?}\n{}", fixture.status(), fixture.log());
}

#[test]
fn a_protected_program_stays_where_others_go() {
    if !can_run("rules::a_protected_program_stays_where_others_go", &["cc"]) {
        return;
    }
    // The protected one alone is larger than the budget.
    let mut fixture = with_rule("48MiB", "program = \"guarded\"\nprotect = true");
    let mut plain = run_as(&fixture, "plain", 32, 80);
    let mut guarded = run_as(&fixture, "guarded", 64, 80);
    let sums = [&mut plain, &mut guarded].map(|program| program.ask("sum"));
    let stays = |guarded: &Program, taken_before: u64| {
        let app = fixture.app("guarded");
        assert!(app.processes.iter().any(|p| p.managed), "{app:?}\n{}", fixture.log());
        assert_eq!(app.swapped_out_pages, taken_before, "{app:?}");
        assert!(rss_anon(guarded.pid) >= 64 * MIB, "{} resident", rss_anon(guarded.pid));
    };
    for _ in 0..3 {
        wait_stored(&fixture, "plain", 32);
        stays(&guarded, 0);
        guarded.expect("touch random 5000 1", "touched 5000 bad 0");
        plain.expect("sum", &sums[0]);
    }
    stays(&guarded, 0);
    assert_eq!(fixture.app("guarded").stored_pages, 0);

    // On request it goes like any other, and once it is back it is as safe as before.
    fixture.swap_out_at_least("guarded", 64 * MIB * 8 / 10);
    let taken = fixture.app("guarded").swapped_out_pages;
    guarded.expect("sum", &sums[1]);
    wait_stored(&fixture, "plain", 32);
    sleep(Duration::from_millis(500));
    stays(&guarded, taken);
    plain.expect("sum", &sums[0]);
    guarded.quit();
    plain.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn a_program_comes_down_to_its_own_budget() {
    if !can_run("rules::a_program_comes_down_to_its_own_budget", &["cc"]) {
        return;
    }
    // Of the daemon's budget nearly all is free.
    let mut fixture = with_rule("1GiB", "program = \"small\"\nbudget = \"20MiB\"");
    let mut program = run_as(&fixture, "small", 60, 80);
    let mut other = run_as(&fixture, "other", 60, 80);
    let sum = program.ask("sum");
    let comes_down = |pid: u32, stays: Duration| {
        let down = poll(LONG, || (rss_anon(pid) <= 21 * MIB).then_some(()));
        let (resident, app) = (rss_anon(pid), fixture.app("small"));
        assert!(down.is_some(), "{resident} resident: {app:?}\n{}", fixture.log());
        // To about that, not to nothing.
        sleep(stays);
        let resident = rss_anon(pid);
        assert!((17 * MIB..=21 * MIB).contains(&resident), "{resident} resident: {app:?}");
    };
    // It is looked at once a second.
    let second = Duration::from_millis(1200);
    comes_down(program.pid, second);
    program.expect("sum", &sum);
    comes_down(program.pid, Duration::ZERO);
    // Its user wants all of it.
    fixture.order(&Request::Fg { app: "small".to_string() });
    program.expect("sum", &sum);
    sleep(second);
    let resident = rss_anon(program.pid);
    assert!(resident >= 60 * MIB, "{resident} resident in the foreground");
    fixture.order(&Request::Bg { app: "small".to_string() });
    comes_down(program.pid, Duration::ZERO);
    program.expect("sum", &sum);
    assert_eq!(fixture.app("other").swapped_out_pages, 0, "{:?}", fixture.status());
    assert!(rss_anon(other.pid) >= 60 * MIB, "{} resident", rss_anon(other.pid));
    other.expect("touch seq", &format!("touched {} bad 0", 60 * PAGES_OF_MIB));
    program.quit();
    other.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn a_program_that_is_never_managed_stays_whole() {
    if !can_run("rules::a_program_that_is_never_managed_stays_whole", &["cc"]) {
        return;
    }
    let mut fixture = with_rule("48MiB", "program = \"never\"\nnever = true");
    let mut plain = run_as(&fixture, "plain", 32, 80);
    let mut never = run_as(&fixture, "never", 64, 80);
    wait_stored(&fixture, "plain", 32);
    let _ = fixture.try_swap_out("never"); // refused or not, nothing may go out
    let app = fixture.app("never");
    let process = fixture.process("never", never.pid);
    let process = process.unwrap_or_else(|| panic!("not listed: {app:?}\n{}", fixture.log()));
    assert!(!process.managed, "{process:?}");
    assert_eq!(process.reason, "a rule says never");
    assert_eq!((app.stored_pages, app.swapped_out_pages), (0, 0), "{app:?}");
    assert!(rss_anon(never.pid) >= 64 * MIB, "{} resident", rss_anon(never.pid));
    // The table says the same to people.
    let table = fixture.verb(&["ps"]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    let pid = never.pid.to_string();
    let row = text.lines().find(|line| line.split_whitespace().next() == Some(&pid));
    assert!(row.is_some_and(|row| row.contains("a rule says never")), "{}", texts(&table));
    never.expect("touch seq", &format!("touched {} bad 0", 64 * PAGES_OF_MIB));
    plain.expect("touch seq", &format!("touched {} bad 0", 32 * PAGES_OF_MIB));
    never.quit();
    plain.quit();
    fixture.assert_daemon_lives();
}
