//! Chromium renders a page whose script computes a digest: with its sandbox and without, managed and
//! not.

use std::thread::sleep;
use std::time::Duration;

use clew_fixture::browser::{chromium, digest, has_sandboxed_renderer, wanted};
use clew_fixture::other_user::{OtherUser, as_other_user, directory_of_theirs};
use clew_fixture::storm::{CONFIG, LIMIT, Storm, rounds};
use clew_fixture::*;

fn assert_digest(program: &mut Program, wanted: &str) {
    let said = program.rest(LIMIT).join("\n");
    let status = program.wait(LONG);
    assert_eq!(digest(&said).as_deref(), Some(wanted), "{status}: {said}\n{}", program.report());
}

#[test]
fn without_its_sandbox_under_a_storm() {
    let test = "browser::without_its_sandbox_under_a_storm";
    if !can_run(test, &["chromium"]) {
        return;
    }
    let dir = TempDir::new();
    let wanted = wanted(dir.path());
    let pages_out = 10_000 * rounds();
    let (mut storm, mut runs) = (Storm::default(), 0);
    // A browser ends after some seconds, and how much is taken out of it meanwhile is chance.
    while runs < rounds() || storm.pages_out < pages_out && runs < rounds() * 8 {
        let mut fixture = Fixture::start_configured("1GiB", "zram", CONFIG);
        let words = chromium(dir.path(), &format!("profile-{runs}"), &["--no-sandbox"]);
        let mut browser = [fixture.run("chromium", &words)];
        storm.add(Storm::over(&mut fixture, &mut browser, 4));
        assert_digest(&mut browser[0], &wanted);
        runs += 1;
    }
    storm.was_one(test, pages_out);
}

#[test]
fn with_its_sandbox_under_a_daemon_of_its_user() {
    let test = "browser::with_its_sandbox_under_a_daemon_of_its_user";
    if !can_run(test, &["chromium", "setpriv", "unshare"]) {
        return;
    }
    let _alone = alone();
    let mut user = OtherUser::start("140MiB", CONFIG);
    let wanted = wanted(user.dir.path());
    let mut browser = user.run("chromium", &chromium(user.dir.path(), "profile", &[]));
    let (mut sandboxed, mut managed, mut out, mut kills) = (false, 0, 0, 0);
    while browser.is_running() {
        sandboxed |= has_sandboxed_renderer(browser.pid);
        let status = user.status();
        for app in status.apps.iter().filter(|app| app.name == "chromium") {
            managed = managed.max(app.processes.iter().filter(|p| p.managed).count());
            out = out.max(app.swapped_out_pages);
        }
        if kills < 2 && user.swap_out("chromium") && out > 1000 {
            user.replace_daemon();
            kills += 1;
        }
        sleep(Duration::from_millis(50));
    }
    assert_digest(&mut browser, &wanted);
    println!("{test}: {managed} managed, {out} pages out, {kills} kills, sandboxed: {sandboxed}");
    assert!(sandboxed && managed > 1 && kills > 0, "{managed} managed, {out} out, {kills} kills");
}

#[test]
fn with_its_sandbox_as_another_user_it_is_plainly_not_managed() {
    let test = "browser::with_its_sandbox_as_another_user_it_is_plainly_not_managed";
    if !can_run(test, &["chromium", "setpriv"]) {
        return;
    }
    let dir = directory_of_theirs();
    let wanted = wanted(dir.path());
    let mut fixture = Fixture::start_configured("1GiB", "zram", CONFIG);
    let words = as_other_user(&chromium(dir.path(), "profile", &[]));
    let mut command = fixture.run_command("chromium", &words);
    command.env("HOME", dir.path());
    let mut browser = Program::start(&fixture.dir, "chromium", command);
    let mut sandboxed = false;
    while browser.is_running() {
        sandboxed |= has_sandboxed_renderer(browser.pid);
        let _ = fixture.try_swap_out("chromium");
        let app = fixture.app("chromium");
        assert!(app.stored_pages == 0 && app.processes.iter().all(|p| !p.managed), "{app:?}");
        sleep(Duration::from_millis(50));
    }
    assert_digest(&mut browser, &wanted);
    assert!(sandboxed, "no renderer had a filter");
    fixture.assert_daemon_lives();
}
