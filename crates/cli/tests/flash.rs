//! What leaves the pool goes to a file, and comes back from there: with real programs, beside a daemon that
//! dies, and a file that is full or damaged.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use clew_fixture::touch::{MIB, run_as};
use clew_fixture::*;
use clew_live::control::status::{FlashStatus, Status, TierStatus};

fn flash(status: &Status) -> (&FlashStatus, &TierStatus) {
    let tier = status.tiers.iter().find(|tier| tier.tier == "flash");
    (status.flash.as_ref().expect("there is flash"), tier.expect("a tier"))
}

/// A daemon whose pool has room for a part of a program of 64 MiB that compresses to half, all of which is
/// out, most of it on flash.
fn mostly_on_flash(test: &str) -> Option<(Fixture, Program, String)> {
    if !can_run(test, &["cc"]) {
        return None;
    }
    let fixture = Fixture::start_with_flash("1GiB", "8MiB", "128MiB");
    let mut program = run_as(&fixture, "touch", 64, 50);
    let sum = program.ask("sum");
    assert!(sum.ends_with(" bad 0"), "{sum}");
    fixture.swap_out_at_least("touch", 48 * MIB);
    let status = fixture.status();
    let (counts, tier) = flash(&status);
    assert!(tier.stored_pages > 4096, "{status:?}\n{}", fixture.log());
    assert!(counts.stored_bytes >= tier.stored_pages * 1024, "{counts:?}");
    assert!(status.pool.used_bytes <= 8 * MIB, "{:?}", status.pool);
    Some((fixture, program, sum))
}

#[test]
fn what_leaves_the_pool_comes_back_from_flash() {
    let Some((fixture, mut program, sum)) = mostly_on_flash("flash::comes_back") else { return };
    assert_eq!(program.ask("sum"), sum);
    let status = fixture.status();
    let (counts, _) = flash(&status);
    assert!(counts.demand_pages > 0 && counts.read_bytes > 0, "{counts:?}");
    // What was waited for brought more along.
    assert!(status.flash_fault_latency.count > 0 && counts.near_blocks > 0, "{status:?}");
    let asked = status.flash_fault_latency.count + counts.near_blocks;
    assert!(asked >= counts.demand_pages / 2, "{status:?}");
    assert!(counts.written_bytes >= counts.stored_bytes / 2, "{counts:?}");
    // The person sees it.
    let shown = texts(&fixture.verb(&["ps"]));
    assert!(shown.contains("flash ") && shown.contains(" written, "), "{shown}");
    // Orders bring it, too, and what a child does not share is its own.
    fixture.swap_out_at_least("touch", 48 * MIB);
    let ended = program.ask("fork-sum");
    assert!(ended.ends_with(" bad 0"), "{ended}");
    fixture.order(&clew_live::control::protocol::Request::Restore { app: "touch".into() });
    // Copies are kept where they are.
    assert_eq!(fixture.app("touch").stored_pages, 0, "{}", fixture.log());
    assert_eq!(program.ask("sum"), sum);
    program.quit();
    fixture.wait_all_freed("touch");
}

#[test]
fn who_left_first_makes_room_in_the_pool() {
    if !can_run("flash::room", &["cc"]) {
        return;
    }
    let fixture = Fixture::start_with_flash("1GiB", "8MiB", "64MiB");
    let mut programs = ["first", "second", "third"].map(|name| run_as(&fixture, name, 10, 50));
    let sums = programs.each_mut().map(|program| program.ask("sum"));
    for name in ["first", "second", "third"] {
        fixture.swap_out_at_least(name, 8 * MIB);
    }
    let status = fixture.status();
    let (counts, tier) = flash(&status);
    assert!(counts.evicted_pages > 512 && tier.stored_pages > 512, "{status:?}");
    assert_eq!(programs.each_mut().map(|program| program.ask("sum")), sums);
    programs.into_iter().for_each(Program::quit);
}

#[test]
fn a_successor_reads_what_its_predecessor_wrote() {
    let Some((mut fixture, mut program, sum)) = mostly_on_flash("flash::successor") else { return };
    for _ in 0..3 {
        fixture.kill_daemon();
        fixture.start_successor(&[]);
        let status = fixture.status();
        assert!(flash(&status).1.stored_pages > 4096, "{status:?}\n{}", fixture.log());
        let answer = program.ask("touch random 4000 3");
        assert!(answer.ends_with(" bad 0"), "{answer}\n{}", fixture.log());
        fixture.swap_out_at_least("touch", 48 * MIB);
    }
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    assert_eq!(program.ask("sum"), sum, "{}", fixture.log());
    assert_eq!(fixture.status().pool.corrupt_pages, 0);
    program.quit();
}

/// zswap's pool: frames leave it whole, and a successor has those that did not.
#[test]
fn frames_leave_a_full_pool_and_a_successor_goes_on_with_it() {
    if !can_run("flash::frames", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let (scheme, file) = (dir.join("frames.toml"), dir.join("flash"));
    let text = "[scheme]\nname = \"frames\"\npool = \"z3fold\"\nretain = false\n\
        mem_limit_bytes = \"8MiB\"\nreclaim = \"lru\"\nadmission = \"all\"\n\
        packing = { kind = \"one-page\", codec = \"lzo\" }\neviction = \"z3fold-lru\"\n\
        placement = \"flash-last\"\nprefetch = \"none\"\n";
    fs::write(&scheme, text).expect("a scheme");
    let [scheme, file] = [&scheme, &file].map(|path| path.to_str().expect("UTF-8"));
    let words = ["--scheme", scheme, "--flash", file, "--flash-size", "128MiB"];
    let mut fixture = Fixture::start_of(Path::new(env!("CARGO_BIN_EXE_clew")), "1GiB", &words);
    let mut programs = ["first", "second", "third"].map(|name| run_as(&fixture, name, 10, 50));
    let sums = programs.each_mut().map(|program| program.ask("sum"));
    for name in ["first", "second", "third"] {
        fixture.swap_out_at_least(name, 8 * MIB);
    }
    let status = fixture.status();
    let (counts, tier) = flash(&status);
    assert!(counts.evicted_pages > 512 && tier.stored_pages > 512, "{status:?}");
    assert!(status.pool.used_bytes <= 8 * MIB, "{:?}", status.pool);
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    let sums_now = programs.each_mut().map(|program| program.ask("sum"));
    assert_eq!(sums_now, sums, "{}", fixture.log());
    for name in ["first", "second", "third"] {
        fixture.swap_out_at_least(name, 8 * MIB);
    }
    let status = fixture.status();
    assert!(flash(&status).0.evicted_pages > 256, "{status:?}\n{}", fixture.log());
    assert_eq!(status.pool.corrupt_pages, 0);
    assert_eq!(programs.each_mut().map(|program| program.ask("sum")), sums);
    programs.into_iter().for_each(Program::quit);
}

#[test]
fn stop_brings_back_what_is_on_flash() {
    let Some((mut fixture, mut program, sum)) = mostly_on_flash("flash::stop") else { return };
    let output = fixture.verb(&["stop"]);
    assert!(output.status.success(), "{}", texts(&output));
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    assert_eq!(program.ask("sum"), sum);
    program.quit();
}

#[test]
fn a_full_flash_leaves_pages_where_they_are() {
    if !can_run("flash::full", &["cc"]) {
        return;
    }
    // Neither has room for all: what is over stays in the program.
    let fixture = Fixture::start_with_flash("1GiB", "4MiB", "12MiB");
    let mut program = run_as(&fixture, "touch", 64, 0);
    let sum = program.ask("sum");
    for _ in 0..3 {
        // Refused for want of room, or not: nothing is lost.
        let _ = fixture.try_swap_out("touch");
        let status = fixture.status();
        assert!(flash(&status).1.stored_pages > 0, "{status:?}");
        assert_eq!(flash(&status).0.latched, None);
        assert_eq!(program.ask("sum"), sum, "{}", fixture.log());
    }
    program.quit();
    fixture.wait_all_freed("touch");
}

/// Nobody but a broken device, or who writes to it, changes what is there: each such page is a SIGBUS.
#[test]
fn what_was_changed_on_the_device_is_a_sigbus_and_never_other_bytes() {
    let Some((fixture, mut program, _)) = mostly_on_flash("flash::changed") else { return };
    let path = fixture.dir.join("flash");
    let file = File::options().read(true).write(true).open(&path).expect("it is a file");
    assert_eq!(file.metadata().expect("a file").mode() & 0o777, 0o600);
    // What was written first is the program's own, without which it cannot say anything.
    let (from, mut bytes) = (8 << 20, vec![0; 120 << 20]);
    file.read_exact_at(&mut bytes, from).expect("it is that long");
    bytes.iter_mut().step_by(97).for_each(|byte| *byte ^= 0x20);
    file.write_all_at(&bytes, from).expect("it is written");
    let (mut right, mut bus) = (0, 0);
    for page in (0..16384).step_by(37) {
        let answer = program.ask(&format!("probe {page}"));
        match answer.as_str() {
            "right" => right += 1,
            other if other.starts_with("bus at ") => bus += 1,
            other => panic!("page {page}: {other}"),
        }
    }
    assert!(bus > 50 && right > 10, "{bus} of SIGBUS, {right} right\n{}", fixture.log());
    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    assert!(log.contains("is damaged"), "{log}");
    program.kill();
}

/// Only who has a page behind the end of the file suffers for it, and a successor serves all others.
#[test]
fn a_successor_goes_on_with_a_file_that_became_shorter() {
    let Some((mut fixture, mut program, _)) = mostly_on_flash("flash::shorter") else { return };
    let mut other = run_as(&fixture, "other", 4, 50);
    let sum = other.ask("sum");
    let path = fixture.dir.join("flash");
    let file = File::options().write(true).open(&path).expect("it is a file");
    fixture.kill_daemon();
    file.set_len(8 << 20).expect("it is shorter");
    for _ in 0..2 {
        fixture.start_successor(&[]);
        let status = fixture.status();
        let latched = flash(&status).0.latched.clone();
        assert!(latched.is_some_and(|why| why.contains("bytes, and had")), "{}", fixture.log());
        assert_eq!(other.ask("sum"), sum, "{}", fixture.log());
        let mut bus = 0;
        for page in (0..16384).step_by(37) {
            match program.ask(&format!("probe {page}")).as_str() {
                "right" => {}
                answer if answer.starts_with("bus at ") => bus += 1,
                answer => panic!("page {page}: {answer}"),
            }
        }
        assert!(bus > 50, "{bus} of SIGBUS\n{}", fixture.log());
        fixture.kill_daemon();
    }
    fixture.start_successor(&[]);
    assert_eq!(other.ask("sum"), sum, "{}", fixture.log());
    other.quit();
    program.kill();
}

/// A successor need not be told of flash that is there, and where there was none it can be told of one.
#[test]
fn a_successor_has_the_flash_that_is_there_or_that_it_is_told() {
    if !can_run("flash::told", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let file = dir.join("flash");
    let file = file.to_str().expect("UTF-8");
    let scheme = dir.join("scheme.toml");
    let placed = |placement: &str| {
        let text = format!(
            "[scheme]\nname = \"placed\"\nretain = false\nreclaim = \"lru\"\nadmission = \"all\"\n\
            packing = \"one-page\"\neviction = \"none\"\nplacement = \"{placement}\"\n\
            prefetch = \"none\"\n"
        );
        fs::write(&scheme, text).expect("a scheme");
    };
    placed("pool");
    let words = ["--scheme", scheme.to_str().expect("UTF-8")];
    let mut fixture = Fixture::start_of(Path::new(env!("CARGO_BIN_EXE_clew")), "1GiB", &words);
    let mut program = run_as(&fixture, "touch", 16, 50);
    let sum = program.ask("sum");
    fixture.swap_out_at_least("touch", 8 * MIB);
    assert!(fixture.status().flash.is_none());
    placed("flash");
    for words in [&["--flash", file, "--flash-size", "64MiB"][..], &[]] {
        fixture.kill_daemon();
        fixture.start_successor(words);
        assert!(fixture.status().flash.is_some(), "{}", fixture.log());
        assert_eq!(program.ask("sum"), sum, "{}", fixture.log());
        fixture.swap_out_at_least("touch", 8 * MIB);
        let status = fixture.status();
        assert!(flash(&status).1.stored_pages > 1024, "{status:?}");
    }
    assert_eq!(program.ask("sum"), sum, "{}", fixture.log());
    program.quit();
}

#[test]
fn what_cannot_be_flash_is_refused_with_a_reason() {
    let dir = TempDir::new();
    let refused = |words: &[&str], because: &str| {
        let mut command = clew();
        let socket = dir.join("s");
        command
            .args(["daemon", "--budget", "64MiB", "--scheme", "ariadne", "--socket"])
            .arg(socket);
        let output = run_to_end(command.args(words), LONG);
        let said = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(because), "{words:?}: {said}");
    };
    let flash = dir.join("flash");
    let flash = flash.to_str().expect("UTF-8");
    refused(&["--flash", flash], "--flash-size");
    refused(&["--flash", flash, "--flash-size", "64KiB"], "too few for a log");
    refused(&["--flash", "/dev/null", "--flash-size", "64MiB"], "/dev/null");
    let kept = dir.join("kept");
    fs::write(&kept, "somebody's").expect("a file");
    refused(&["--flash", kept.to_str().expect("UTF-8"), "--flash-size", "64MiB"], "kept");
    assert_eq!(fs::read(&kept).expect("it is there"), b"somebody's");
    // Where others decide what is met, and where there is no room: nothing is left behind.
    let open = dir.join("open");
    fs::create_dir(&open).expect("a directory");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("a mode");
    std::os::unix::fs::symlink(open.join("to"), dir.join("link")).expect("a link");
    for name in ["open/flash", "link"] {
        let name = dir.join(name);
        let words = ["--flash", name.to_str().expect("UTF-8"), "--flash-size", "64MiB"];
        refused(&words, "others may write to");
    }
    assert_eq!(fs::read_dir(&open).expect("it is there").count(), 0);
    refused(&["--flash", flash, "--flash-size", "1000000TiB"], "flash");
    assert!(!Path::new(flash).exists());
}
