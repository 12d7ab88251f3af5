//! What comes back at a relaunch, before it is asked for and with what; what is learned of it; and who
//! is in front where nobody says so.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clew_fixture::*;
use clew_live::accessed::AccessedBits;
use clew_live::control::protocol::Request;
use clew_live::control::status::{HotPages, SensorStatus};

const PAGES: u64 = 8192;
const BYTES: u64 = PAGES * 4096;
const APP: &str = "touch";

/// touch.c's order of pages.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// The pages that "touch random COUNT SEED" reads.
fn used(count: u64, seed: u64) -> BTreeSet<u64> {
    (0..count).map(|i| mix(seed.wrapping_add(i)) % PAGES).collect()
}

fn fg(fixture: &Fixture) {
    fixture.order(&Request::Fg { app: APP.to_string() });
}

/// The relaunch is over, and the app goes back.
fn bg(fixture: &Fixture) {
    fixture.order(&Request::Responded { app: APP.to_string(), response_ns: 1_000_000 });
    fixture.order(&Request::Bg { app: APP.to_string() });
}

fn touch(program: &mut Program, count: u64, seed: u64) {
    program.expect(&format!("touch random {count} {seed}"), &format!("touched {count} bad 0"));
}

#[test]
fn a_relaunch_finds_what_the_last_one_used_and_faults_bring_their_blocks() {
    if !can_run("relaunch::restored", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_with("1GiB", &["--scheme", "ariadne"]);
    let mut program = fixture.run_touch(APP, PAGES, 50, 3);
    bg(&fixture);
    fixture.swap_out_at_least(APP, BYTES * 8 / 10);

    // Nothing is known yet: every page is a fault, and brings the cold ones of its block along.
    let core = used(300, 17).len() as u64;
    fg(&fixture);
    touch(&mut program, 300, 17);
    bg(&fixture);
    let first = fixture.status();
    let demand = fixture.app(APP).demand_faults;
    assert!(first.early.along_pages >= core, "{:?}", first.early);
    assert!(demand <= core && demand >= core / 3, "{demand} of {core}");

    // Now it is: all but the parts left out on purpose are back before they are asked for.
    fixture.swap_out_at_least(APP, BYTES * 8 / 10);
    let before = fixture.status().early;
    fg(&fixture);
    let early = poll(LONG, || {
        let early = fixture.status().early;
        let all = early.asked_pages > before.asked_pages && early.coming_pages == 0;
        (all && early.early_pages >= before.early_pages + core / 2).then_some(early)
    });
    let early = early.unwrap_or_else(|| panic!("{:?}", fixture.status().early));
    assert!(early.asked_pages <= PAGES / 3, "{early:?}");
    touch(&mut program, 300, 17);
    bg(&fixture);
    let again = fixture.app(APP).demand_faults - demand;
    assert!(again < core / 2, "{again} faults for {core} pages");
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    // Whatever was parked is the daemon's own copy: nothing is lost with it.
    fixture.swap_out(APP);
    touch(&mut program, 50, 99);
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}

/// What the daemon holds for hot, as pages of the program.
fn hot(fixture: &Fixture, program: &mut Program) -> BTreeSet<u64> {
    let at = program.ask("where");
    let at = at.strip_prefix("at ").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let first = at.expect("an address") / 4096;
    let request = Request::HotPages { app: APP.to_string() };
    let processes: Vec<HotPages> = fixture.client().call(&request).expect("an answer");
    let runs = processes.iter().flat_map(|process| &process.runs);
    runs.flat_map(|(address, pages)| (0..*pages).map(move |page| address / 4096 + page))
        .filter_map(|page| page.checked_sub(first).filter(|page| *page < PAGES))
        .collect()
}

/// Relaunches that all use the same 400 pages and so many others each; what is held for hot at the
/// end, what the sensor counted, and how large its samples were.
fn learned(share: u32, others: u64) -> (BTreeSet<u64>, SensorStatus, Vec<u64>) {
    let dir = TempDir::new();
    let config = dir.join("clew.toml");
    let text = format!("[sensor]\naccessed-bits = false\nshare = {share}\nrun-pages = 1\n");
    fs::write(&config, text).expect("a config");
    let config = config.to_str().expect("UTF-8");
    let mut fixture = Fixture::start_with("1GiB", &["--scheme", "ariadne", "--config", config]);
    let mut program = fixture.run_touch(APP, PAGES, 50, 3);
    bg(&fixture);
    fixture.swap_out_at_least(APP, BYTES * 8 / 10);
    let mut samples = Vec::new();
    for relaunch in 0..10 {
        fg(&fixture);
        touch(&mut program, 400, 17);
        if others > 0 {
            touch(&mut program, others, 100_000 + 1000 * relaunch);
        }
        let before = fixture.status().sensor.sampled_pages;
        bg(&fixture);
        // Until the next sample is out.
        if share > 0 {
            let sampled = || {
                let all = fixture.status().sensor.sampled_pages;
                (all > before).then_some(all - before)
            };
            let sample = poll(LONG, sampled);
            samples.push(sample.unwrap_or_else(|| panic!("{:?}", fixture.status().sensor)));
        }
    }
    let hot = hot(&fixture, &mut program);
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    let sensor = fixture.status().sensor;
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
    (hot, sensor, samples)
}

#[test]
fn samples_tell_what_relaunches_do_not_use_any_more() {
    if !can_run("relaunch::sensor", &["cc"]) {
        return;
    }
    let core = used(400, 17);
    let figures = |hot: &BTreeSet<u64>| {
        let right = hot.intersection(&core).count() as f64;
        (right / core.len() as f64, right / hot.len() as f64)
    };
    let (without, off, _) = learned(0, 150);
    assert_eq!((off.sampled_pages, off.touches, off.unused_pages), (0, 0, 0));
    let (with, sensor, samples) = learned(3, 150);
    let ((_, accuracy_without), (coverage, accuracy)) = (figures(&without), figures(&with));
    println!(
        "core of {}: {} pages held for hot without the sensor, {} with it ({accuracy_without:.2} and \
         {accuracy:.2} of them right, coverage {coverage:.2}); {sensor:?}",
        core.len(),
        without.len(),
        with.len()
    );
    assert!(sensor.touches > 0 && sensor.unused_pages > 0, "{sensor:?}");
    let last = samples[samples.len() - 1];
    assert!(last > core.len() as u64 / 6, "there is something to learn: {samples:?}");
    // What every relaunch uses is known, and more of what is held for hot is right.
    assert!(coverage > 0.9, "{coverage}");
    assert!(accuracy > accuracy_without + 0.1, "{accuracy} {accuracy_without}");
}

/// Without taking anything out. Of pages that came back their bit says nothing.
#[test]
fn accessed_bits_tell_what_relaunches_use() {
    if !can_run("relaunch::accessed_bits", &["cc"]) {
        return;
    }
    if let Err(why) = AccessedBits::open() {
        return skip("relaunch::accessed_bits", &why.to_string());
    }
    let mut fixture = Fixture::start_with("1GiB", &["--scheme", "clew"]);
    let mut program = fixture.run_touch(APP, PAGES, 50, 3);
    let (early, late) = (used(400, 17), used(400, 99));
    bg(&fixture);
    // A processor may remember an entry that was cleared, and hide the next touch; not for ever.
    let relaunches = |fixture: &Fixture, program: &mut Program, seed, core: &BTreeSet<u64>| {
        let is_learned = || {
            fg(fixture);
            touch(program, 400, seed);
            bg(fixture);
            let hot = hot(fixture, program);
            (hot.intersection(core).count() * 2 > core.len()).then_some(hot)
        };
        poll(LONG, is_learned).unwrap_or_else(|| panic!("{:?}", fixture.status().sensor))
    };
    let learned = relaunches(&fixture, &mut program, 17, &early);
    assert!(learned.difference(&early).count() * 10 < early.len(), "{learned:?}");
    let learned = relaunches(&fixture, &mut program, 99, &late);
    let kept = learned.intersection(&early).filter(|page| !late.contains(page)).count();
    assert!(kept * 10 < early.len(), "{kept} of what is not used any more");
    let sensor = fixture.status().sensor;
    assert!(sensor.accessed_pages > 400 && sensor.not_accessed_pages > PAGES / 2, "{sensor:?}");
    assert_eq!((sensor.sampled_pages, sensor.touches), (0, 0), "nothing is watched besides");

    fixture.swap_out_at_least(APP, BYTES * 8 / 10);
    let before = fixture.status().sensor.accessed_pages;
    fg(&fixture);
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    bg(&fixture);
    let told = fixture.status().sensor.accessed_pages - before;
    assert!(told < PAGES / 2, "{told} of {PAGES}, nearly all of which came back");
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}

/// A clearing takes a worker milliseconds, and being sent to the back nobody nearly as long.
#[test]
fn who_goes_to_the_back_again_and_again_keeps_no_worker() {
    if !can_run("relaunch::to_the_back_again", &["cc"]) {
        return;
    }
    if let Err(why) = AccessedBits::open() {
        return skip("relaunch::to_the_back_again", &why.to_string());
    }
    let mut fixture = Fixture::start_with("1GiB", &["--scheme", "clew"]);
    let program = fixture.run_touch(APP, 4 * PAGES, 50, 3);
    let stream = UnixStream::connect(&fixture.socket).expect("it is served");
    let mut answers = BufReader::new(&stream).lines();
    let line = serde_json::to_string(&Request::Bg { app: APP.to_string() }).expect("JSON");
    for _ in 0..2000 {
        (&stream).write_all(format!("{line}\n").as_bytes()).expect("a request");
        let answer = answers.next().expect("an answer").expect("UTF-8");
        assert!(answer.contains("\"ok\""), "{answer}");
    }
    let clearing = fixture.status().sensor.clearing;
    assert!(clearing <= 1, "{clearing} wait for one program");
    // What was asked for is done, and more where more is asked for.
    poll(LONG, || (fixture.status().sensor.clearing == 0).then_some(())).expect("it is done");
    program.quit();
    fixture.wait_all_freed(APP);
    fixture.assert_daemon_lives();
}

#[test]
fn samples_become_smaller_while_nearly_all_is_used() {
    if !can_run("relaunch::calm_sensor", &["cc"]) {
        return;
    }
    let (hot, sensor, samples) = learned(3, 0);
    let core = used(400, 17);
    println!("{} of {} held for hot; samples {samples:?}; {sensor:?}", hot.len(), core.len());
    assert!(hot.intersection(&core).count() * 10 > core.len() * 9, "it is not forgotten");
    let (largest, last) = (samples.iter().max().expect("samples"), samples[samples.len() - 1]);
    assert!(last * 6 <= *largest, "{samples:?}");
}

#[test]
fn who_has_just_begun_is_in_front_unless_somebody_was_brought_there() {
    if !can_run("relaunch::launch", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let programs = ["one", "two"].map(|name| fixture.run_touch(name, PAGES, 50, 3));
    assert_eq!(fixture.app("one").state, "background", "another has begun since");
    assert_eq!([fixture.app("one").launches, fixture.app("two").launches], [1, 1]);
    fixture.order(&Request::Fg { app: "one".to_string() });
    let three = fixture.run_touch("three", PAGES, 50, 3);
    let states = ["one", "two", "three"].map(|name| fixture.app(name).state);
    assert_eq!(states, ["foreground", "background", "background"]);
    assert_eq!(fixture.app("three").launches, 0, "it has not been in front");
    // A second program of an app that was there is no launch.
    fixture.order(&Request::Bg { app: "one".to_string() });
    let more = fixture.run_touch("two", PAGES, 50, 3);
    assert_eq!(fixture.app("two").launches, 1);
    // And it is over without anybody's saying so.
    let four = fixture.run_touch("four", PAGES, 50, 3);
    assert_eq!(fixture.app("four").launches, 1);
    let over = || (fixture.app("four").state == "background").then_some(());
    poll(LONG, over).expect("it is in front no more");
    programs.into_iter().chain([three, more, four]).for_each(Program::quit);
    fixture.assert_daemon_lives();
}

#[test]
fn who_works_is_in_front_where_nobody_says_so() {
    if !can_run("relaunch::activity", &["cc"]) {
        return;
    }
    let dir = TempDir::new();
    let config = dir.join("clew.toml");
    fs::write(&config, "activity = true\n").expect("a config");
    let config = config.to_str().expect("UTF-8");
    let mut fixture = Fixture::start_with("1GiB", &["--scheme", "zram", "--config", config]);
    let names = ["one", "two", "three"];
    let mut programs = names.map(|name| fixture.run_touch(name, 2048, 50, 3));
    // Who is used; 3 is nobody. Once that is known, it stays known while nothing changes.
    let (mut right, mut looks) = (0, 0);
    for who in [0, 1, 3, 2, 0] {
        let mut look = || {
            match programs.get_mut(who) {
                Some(program) => program.expect("touch seq", "touched 2048 bad 0"),
                None => std::thread::sleep(Duration::from_millis(20)),
            }
            let status = fixture.status();
            let front = status.apps.iter().find(|app| app.state == "foreground");
            front.map(|app| app.name.as_str()) == names.get(who).copied()
        };
        let found = poll(LONG, || look().then_some(()));
        assert!(found.is_some(), "{who}: {:?}", fixture.status().apps);
        looks += 30;
        right += (0..30).filter(|_| look()).count();
    }
    println!("right at {right} of {looks} looks");
    assert!(right * 10 >= looks * 7, "right at {right} of {looks} looks");
    // Who says it himself is believed, and nobody else comes to the front.
    fixture.order(&Request::Fg { app: "three".to_string() });
    for _ in 0..20 {
        programs[0].expect("touch seq", "touched 2048 bad 0");
    }
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(fixture.app("three").state, "foreground");
    assert_eq!(fixture.app("one").state, "background");
    for program in programs {
        program.quit();
    }
    fixture.assert_daemon_lives();
}
