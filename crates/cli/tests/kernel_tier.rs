//! The kernel's zram as a tier: pages come back from it without a word, and are found; whatever the
//! program does with its memory, whoever dies, and when the swap is turned off.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use clew_bench::swap_file::SwapFile;
use clew_bench::zram::ZramSwap;
use clew_fixture::hook::{Table, Tools};
use clew_fixture::touch::{BYTES, PAGES};
use clew_fixture::*;
use clew_live::control::protocol::Request;
use clew_live::programs::advice::{advise, pidfd};
use clew_store::points::NAMES;

const APP: &str = "touch";
/// From the kernel's headers.
const MADV_PAGEOUT: i32 = 21;
const LZ4: &str = "[scheme]\nname = \"lends\"\nreclaim = \"lru\"\nadmission = \"all\"\n\
    packing = { kind = \"one-page\", codec = \"lz4\" }\neviction = \"none\"\n\
    placement = { kind = \"kernel-first\", share_pct = 100 }\nprefetch = \"none\"\n";

/// A daemon that lends, a device to lend to, a program, and where the scheme is.
type Lending = (Fixture, ZramSwap, Program, TempDir);

/// Starts all of it; `None` where `test` cannot run.
fn lending(test: &str) -> Option<Lending> {
    if !can_run(test, &["cc", "mkswap", "swapon"]) {
        return None;
    }
    let dir = TempDir::new();
    let scheme = dir.join("lends.toml");
    fs::write(&scheme, LZ4).expect("a scheme");
    let scheme = scheme.to_str().expect("UTF-8");
    let fixture = Fixture::start_with("1GiB", &["--scheme", scheme]);
    // The limit on swap that a small machine might have is no concern here.
    let swap = match ZramSwap::start("lz4", 512 << 20) {
        Ok(swap) => swap,
        Err(error) => {
            skip(test, &error.to_string());
            return None;
        }
    };
    wait_for_tier(&fixture, true);
    let program = fixture.run_touch(APP, PAGES, 50, 7);
    Some((fixture, swap, program, dir))
}

/// Whether the kernel swaps to more than the one device of this test.
fn has_other_swap() -> bool {
    fs::read_to_string("/proc/swaps").expect("/proc/swaps").lines().count() > 2
}

fn wait_for_tier(fixture: &Fixture, wanted: bool) {
    let found = poll(LONG, || {
        let tiers = fixture.status().tiers;
        let limit = tiers.iter().find(|tier| tier.tier == "kernel").and_then(|t| t.limit_bytes);
        (limit.is_some_and(|limit| limit > 0) == wanted).then_some(())
    });
    assert!(found.is_some(), "{:?}", fixture.status().tiers);
}

/// Takes everything out; most of it is in the kernel's zram then.
fn lend(fixture: &Fixture) -> u64 {
    fixture.swap_out_at_least(APP, BYTES * 8 / 10);
    let app = fixture.app(APP);
    assert!(app.lent_pages * 10 >= PAGES * 7, "{app:?}");
    assert!(app.ratio > 1.2 && app.resident_bytes < BYTES / 2, "{app:?}");
    app.lent_pages
}

fn relaunch(fixture: &Fixture, act: impl FnOnce()) {
    fixture.order(&Request::Fg { app: APP.to_string() });
    act();
    fixture.order(&Request::Responded { app: APP.to_string(), response_ns: 1_000_000 });
    fixture.order(&Request::Bg { app: APP.to_string() });
}

#[test]
fn what_was_lent_comes_back_without_a_message_and_is_found() {
    let Some((mut fixture, _swap, mut program, _dir)) = lending("kernel_tier::found") else {
        return;
    };
    let sum = program.ask("sum");
    let lent = lend(&fixture);
    let before = fixture.app(APP);
    relaunch(&fixture, || program.expect("touch random 2000 5", "touched 2000 bad 0"));
    let after = fixture.app(APP);
    let back = after.lent_back_pages - before.lent_back_pages;
    // 2000 draws of 16384 pages are some 1880 different ones.
    assert!((1000..=2400).contains(&back), "{back}");
    assert!(after.demand_faults - before.demand_faults < 400, "{after:?}");
    assert!(after.lent_pages <= lent - back, "{after:?}");
    // What is back can leave again, and what is out stays right.
    lend(&fixture);
    assert_eq!(program.ask("sum"), sum);
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}

#[test]
fn what_came_back_by_itself_a_moment_ago_leaves_again() {
    let Some((mut fixture, _swap, mut program, _dir)) = lending("kernel_tier::again") else {
        return;
    };
    lend(&fixture);
    for seed in 0..5 {
        let before = fixture.app(APP).resident_bytes;
        // Too few for the daemon to look by itself what came back.
        program.expect(&format!("touch random 200 {seed}"), "touched 200 bad 0");
        fixture.swap_out(APP);
        // What moves on from there to the pool is resident for a moment.
        let most = before + 100 * page_size();
        let left = poll(LONG, || (fixture.app(APP).resident_bytes < most).then_some(()));
        assert!(left.is_some(), "{before}, round {seed}: {:?}", fixture.app(APP));
    }
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn lent_memory_can_be_changed_moved_dropped_and_forked() {
    let Some((mut fixture, _swap, mut program, _dir)) = lending("kernel_tier::changes") else {
        return;
    };
    let sum = program.ask("sum");
    lend(&fixture);
    assert_eq!(program.ask("fork-sum"), format!("fork-{sum}"));
    lend(&fixture);
    program.expect("move", "moved");
    assert_eq!(program.ask("sum"), sum);
    lend(&fixture);
    program.ask("write 100 9");
    program.expect("drop 1000 500", "dropped 500");
    let changed = program.ask("sum");
    assert!(changed.ends_with(" bad 0"), "{changed}");
    fixture.swap_out(APP);
    assert_eq!(program.ask("sum"), changed);
    assert_eq!(program.ask("fork-sum"), format!("fork-{changed}"));
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}

#[test]
fn a_successor_knows_what_was_lent() {
    let Some((mut fixture, _swap, mut program, _dir)) = lending("kernel_tier::successor") else {
        return;
    };
    let sum = program.ask("sum");
    let lent = lend(&fixture);
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    let found = fixture.app(APP).lent_pages;
    assert!(found == lent, "{found} of {lent}");
    assert_eq!(program.ask("sum"), sum);
    relaunch(&fixture, || ());
    // All of it was touched, but perhaps what is not of the pages that it sums.
    assert!(fixture.app(APP).lent_pages < 16, "{:?}", fixture.app(APP));
    fixture.swap_out(APP);
    fixture.kill_daemon();
    // Some of it is in the pool: who touches that waits for the successor.
    program.send("touch random 500 3");
    fixture.start_successor(&[]);
    assert_eq!(program.read(LONG), "touched 500 bad 0");
    assert_eq!(program.ask("sum"), sum);
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}

#[test]
fn a_swap_that_is_turned_off_gives_everything_back() {
    let Some((mut fixture, swap, mut program, _dir)) = lending("kernel_tier::off") else { return };
    let sum = program.ask("sum");
    lend(&fixture);
    // A machine may have other zram to swap to, which is not to be lent to here.
    let _before_others = match has_other_swap() {
        true => match SwapFile::start(fixture.dir.path(), 1 << 20) {
            Ok(file) => Some(file),
            Err(error) => return skip("kernel_tier::off", &error.to_string()),
        },
        false => None,
    };
    drop(swap);
    wait_for_tier(&fixture, false);
    relaunch(&fixture, || assert_eq!(program.ask("sum"), sum));
    assert_eq!(fixture.app(APP).lent_pages, 0);
    // There is the pool.
    fixture.swap_out_at_least(APP, BYTES * 8 / 10);
    assert_eq!(fixture.app(APP).lent_pages, 0);
    assert_eq!(program.ask("sum"), sum);
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}

/// Gives all private memory of a process to the kernel's swap; the bytes that are there then.
fn page_out(pid: u32) -> u64 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps");
    let range = |line: &str| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let is_private = fields.next()?.starts_with("rw-p");
        let number = |hex: &str| u64::from_str_radix(hex, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        is_private.then_some((start, end - start))
    };
    let ranges: Vec<(u64, u64)> = maps.lines().filter_map(range).collect();
    let process = pidfd(pid).expect("a process");
    // Pages that are on their way to a list of the kernel's stay the first time.
    for _ in 0..3 {
        advise(&process, &ranges, MADV_PAGEOUT).expect("advice");
        sleep(Duration::from_millis(50));
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("status");
    let swap = status.lines().find_map(|line| line.strip_prefix("VmSwap:")).expect("VmSwap");
    let kib = swap.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kib << 10
}

#[test]
fn what_a_dead_daemon_left_in_staging_is_found_in_the_swap_too() {
    let test = "kernel_tier::staging";
    if !can_run(test, &["cc", "nm", "objcopy", "mkswap", "swapon"]) {
        return;
    }
    let (tools, dir) = (Tools::new(), TempDir::new());
    let table = Table::new(dir.join("table"));
    let point = NAMES.iter().position(|name| *name == "out_taken").expect("a point");
    let mut setting = tools.environment(&table, &[]);
    setting.extend([tools.with_points(), tools.stop_at(point, 1, false)]);
    let mut fixture = Fixture::start_hooked("1GiB", &["--scheme", "zram"], setting);
    let _swap = match ZramSwap::start("lz4", 512 << 20) {
        Ok(swap) => swap,
        Err(error) => return skip(test, &error.to_string()),
    };
    let mut program = fixture.run_touch(APP, PAGES, 50, 7);
    let sum = program.ask("sum");
    // The daemon stops when a batch of pages is in staging, and stored nowhere yet.
    let daemon = fixture.daemon_pid();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(fixture.try_swap_out(APP)));
        assert!(poll(LONG, || (table.fired() > 0).then_some(())).is_some(), "it did not stop");
        kill(daemon);
    });
    let swapped = page_out(program.pid);
    assert!(swapped > BYTES * 9 / 10, "{swapped} bytes in the swap");
    fixture.start_successor(&[]);
    assert_eq!(program.ask("sum"), sum, "{}", program.report());
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}
