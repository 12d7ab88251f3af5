//! Chromium renders a page whose script computes a digest: with its sandbox and without, managed and
//! not.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use clew_fixture::other_user::{OtherUser, as_other_user, directory_of_theirs};
use clew_fixture::storm::{CONFIG, LIMIT, Storm, rounds};
use clew_fixture::*;

/// Numbers, strings and a map: some 40 MiB, gone through several times.
const PAGE: &str = "<!doctype html><p id=answer>none</p><script>
let x = 7;
const random = () => x = (Math.imul(x, 1103515245) + 12345) >>> 0;
const numbers = new Uint32Array(4 << 20).map(() => random() >>> 16);
const map = new Map();
for (let i = 0; i < 30000; i++) map.set('key' + random(), 'value ' + i + ' ' + random());
let h = 0;
const add = (n) => h = (Math.imul(h, 31) + n) >>> 0;
for (let pass = 0; pass < 5; pass++) {
  numbers.forEach(add);
  for (const [key, value] of map) add(key.charCodeAt(5) + value.charCodeAt(value.length - 2));
  for (let i = 0; i < 200000; i++) numbers[random() % numbers.length] ^= random();
}
document.getElementById('answer').textContent = 'digest ' + h.toString(16);
</script>
";

const FLAGS: [&str; 8] = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--dump-dom",
];

/// Chromium with its files in `dir`, where the page is too.
fn chromium(dir: &Path, profile: &str, more: &[&str]) -> Vec<String> {
    let page = dir.join("page.html");
    fs::write(&page, PAGE).expect("a page");
    let mut words = vec!["chromium".to_string()];
    words.extend(FLAGS.iter().chain(more).map(|word| word.to_string()));
    words.push(format!("--user-data-dir={}", dir.join(profile).display()));
    words.push(format!("file://{}", page.display()));
    words
}

/// What the page says.
fn digest(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("<p id=\"answer\">")?;
    let (digest, _) = rest.split_once("</p>")?;
    digest.starts_with("digest ").then(|| digest.to_string())
}

/// What it says without Clew.
fn wanted(dir: &Path) -> String {
    let words = chromium(dir, "twin", &["--no-sandbox"]);
    let output = run_to_end(Command::new(&words[0]).args(&words[1..]).env("HOME", dir), LIMIT);
    let said = String::from_utf8_lossy(&output.stdout);
    digest(&said).unwrap_or_else(|| panic!("no digest: {}", texts(&output)))
}

/// Whether some descendant of `pid` renders pages under a filter of system calls.
fn has_sandboxed_renderer(pid: u32) -> bool {
    descendants(pid).into_iter().any(|pid| {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let renders = String::from_utf8_lossy(&read("cmdline")).contains("--type=renderer");
        renders && String::from_utf8_lossy(&read("status")).contains("\nSeccomp:\t2\n")
    })
}

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
