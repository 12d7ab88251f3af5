//! Links to donors that end, stand still, are half open or lie, donors that die or stand still, and a daemon that is killed
//! while pages travel: with a second copy of every page nobody ends and no byte is wrong; without one, who loses pages is
//! ended, and nobody waits for ever. `CLEW_CUTS` says how many (9). How long one page was waited for at each kind of cut is
//! printed, and not judged.

use std::thread::sleep;
use std::time::Duration;

use clew_core::DonorState;
use clew_fixture::donors::Lends;
use clew_fixture::touch::run_as;
use clew_fixture::*;
use clew_remote::proxy::{Act, Proxy, Quality};

/// MiB of a program.
const MIB: u64 = 8;

fn cuts() -> u64 {
    number_from_env("CLEW_CUTS", 9)
}

/// Machines that lend, each behind a link that can be made bad.
struct Donors {
    keys: TempDir,
    lend: Vec<(Lends, Proxy)>,
}

impl Donors {
    fn new(count: usize) -> Donors {
        let keys = TempDir::new();
        let lend = |number: usize| {
            let mut lends = Lends::new(&keys, &format!("donor-{number}"));
            let proxy = Proxy::new([127, 0, 0, 1].into(), lends.address()).expect("a proxy");
            lends.pair(&keys, "borrower", &proxy.address().to_string());
            lends.start();
            (lends, proxy)
        };
        let lend = (0..count).map(lend).collect();
        Donors { keys, lend }
    }

    /// A daemon that borrows from all of them.
    fn daemon(&self, besides: &[&str]) -> Fixture {
        let own = self.keys.join("borrower");
        let at: Vec<String> =
            self.lend.iter().map(|(_, proxy)| proxy.address().to_string()).collect();
        let config = self.keys.join("clew.toml");
        std::fs::write(&config, clew_fixture::storm::CONFIG).expect("a file");
        let mut words = vec!["--scheme", "mobileswap", "--keys", own.to_str().expect("UTF-8")];
        words.extend(["--config", config.to_str().expect("UTF-8")]);
        words.extend(at.iter().flat_map(|at| ["--donor", at.as_str()]));
        words.extend(besides);
        Fixture::start_with("1GiB", &words)
    }
}

fn are_up(fixture: &Fixture) -> bool {
    let donors = fixture.status().donors;
    donors.iter().all(|donor| donor.state == DonorState::Up)
}

/// Everything is as it was.
fn is_whole(fixture: &Fixture, program: &mut Program, question: &str, expected: &str) {
    let answer = program.ask(question);
    assert_eq!(answer, expected, "{}\n{:?}\n{}", program.report(), fixture.status(), fixture.log());
}

/// What is done to a donor, its link or the daemon, in turn.
const KINDS: [&str; 9] = [
    "link cut",
    "link stands still",
    "half open",
    "donor killed",
    "link lies",
    "donor stopped",
    "daemon killed",
    "byte inserted",
    "slow and lossy link",
];

/// How long a program waited for one page at most, in microseconds, by kind of cut.
#[derive(Default)]
struct Stalls([Vec<u64>; KINDS.len()]);

impl Stalls {
    fn add(&mut self, cut: u64, program: &mut Program) {
        let answer = program.ask("longest");
        let us = answer.strip_prefix("longest ").and_then(|us| us.parse().ok());
        self.0[cut as usize % KINDS.len()].push(us.unwrap_or_else(|| panic!("{answer}")));
    }

    fn print(&mut self) {
        for (kind, us) in KINDS.iter().zip(&mut self.0) {
            us.sort_unstable();
            let at = |part: usize| us.get((us.len() * part / 100).min(us.len().max(1) - 1));
            let [p50, p95, longest] = [50, 95, 100].map(|part| at(part).map_or(0, |us| us / 1000));
            let count = us.len();
            eprintln!("{kind}: a page waited for at most, ms, of {count}: {p50}, {p95}, {longest}");
        }
    }
}

/// Waits until both donors have everything again: what one of them has missed or lost is copied there from the other one.
fn heals(fixture: &Fixture, cut: u64) {
    let healed = poll(4 * LONG, || are_up(fixture).then_some(()));
    let (donors, log) = (fixture.status().donors, fixture.log());
    assert!(healed.is_some(), "after cut {cut}: {donors:?}\n{log}");
}

#[test]
fn with_a_second_copy_nobody_ends_and_no_byte_is_wrong() {
    if !can_run("cuts::second_copy", &["cc", "python3"]) {
        return;
    }
    let mut donors = Donors::new(2);
    let mut fixture = donors.daemon(&["--donor-copies", "2"]);
    let mut touch = run_as(&fixture, "touch", MIB, 50);
    let sum = touch.ask("sum");
    assert!(sum.ends_with(" bad 0"), "{sum}");
    let script = program_source("checksum.py").to_str().expect("UTF-8").to_string();
    let mut python = fixture.run("python", &["python3", &script, "11"]);
    python.wait_ready();
    let digest = python.ask("check");
    let mut programs = [(touch, "sum", sum), (python, "check", digest)];
    let mut random = Random(7);
    let mut travelled = 0;
    let mut stalls = Stalls::default();
    for cut in 0..cuts() {
        heals(&fixture, cut);
        let both = cut % 4 == 1;
        // Under way, most of them, when something happens.
        let _ = fixture.try_swap_out("touch");
        if both {
            let _ = fixture.try_swap_out("python");
        }
        sleep(Duration::from_millis(random.below(40)));
        let which = random.below(2) as usize;
        let (lends, proxy) = &mut donors.lend[which];
        // Sometimes for longer than a donor is waited for.
        let pause = Duration::from_millis([20, 300, 2000][random.below(3) as usize]);
        match cut % KINDS.len() as u64 {
            0 => proxy.act(Act::Cut),
            1 => proxy.act(Act::Stop),
            2 => proxy.act(Act::HalfOpen),
            3 => lends.kill(),
            4 => proxy.act(Act::Lie),
            5 => lends.signal("STOP"),
            6 => {
                fixture.kill_daemon();
                fixture.start_successor(&[]);
            }
            7 => proxy.act(Act::Insert),
            _ => proxy.is_as_good_as(Quality {
                bytes_per_second: Some(4 << 20),
                delay: Duration::from_millis(5),
                lost_of_million: 2000,
            }),
        }
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleep(pause);
                match cut % KINDS.len() as u64 {
                    3 => lends.start(),
                    5 => lends.signal("CONT"),
                    _ => {}
                }
                proxy.act(Act::Pass);
                proxy.is_as_good_as(Quality::default());
            });
            let asked = if both { &mut programs[..] } else { &mut programs[..1] };
            for (program, question, expected) in asked {
                is_whole(&fixture, program, question, expected);
            }
        });
        stalls.add(cut, &mut programs[0].0);
        let status = fixture.status();
        assert!(status.ended_apps.is_empty(), "cut {cut}: {status:?}\n{}", fixture.log());
        travelled += status.donors.iter().map(|donor| donor.sent_bytes).sum::<u64>();
    }
    stalls.print();
    assert!(travelled > 0, "{:?}", fixture.status());
    heals(&fixture, cuts());
    for (program, ..) in programs {
        program.quit();
    }
    fixture.assert_daemon_lives();
}

/// Nor is what it had at them.
#[test]
fn a_donor_that_a_successor_has_not_reached_yet_is_not_lost() {
    if !can_run("cuts::successor", &["cc"]) {
        return;
    }
    let mut donors = Donors::new(1);
    let mut fixture = donors.daemon(&[]);
    let up = poll(4 * LONG, || are_up(&fixture).then_some(()));
    assert!(up.is_some(), "{:?}\n{}", fixture.status().donors, fixture.log());
    let mut program = run_as(&fixture, "touch", MIB, 50);
    let sum = program.ask("sum");
    let gone = poll(LONG, || {
        let _ = fixture.try_swap_out("touch");
        (fixture.status().donors[0].stored_pages > 0).then_some(())
    });
    assert!(gone.is_some(), "{:?}\n{}", fixture.status().donors, fixture.log());
    // Several round trips before anything is heard of it.
    let (_, proxy) = &mut donors.lend[0];
    proxy.is_as_good_as(Quality { delay: Duration::from_millis(50), ..Quality::default() });
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    // Until it has looked how its donors stand.
    sleep(Duration::from_secs(1));
    proxy.is_as_good_as(Quality::default());
    is_whole(&fixture, &mut program, "sum", &sum);
    let status = fixture.status();
    assert!(status.ended_apps.is_empty(), "{status:?}\n{}", fixture.log());
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn without_a_second_copy_a_short_cut_harms_nobody_and_a_long_one_ends_who_loses_pages() {
    if !can_run("cuts::single", &["cc"]) {
        return;
    }
    let mut donors = Donors::new(1);
    let mut fixture = donors.daemon(&[]);
    for cut in 0..cuts().div_ceil(3) {
        let up = poll(4 * LONG, || are_up(&fixture).then_some(()));
        assert!(up.is_some(), "{:?}\n{}", fixture.status().donors, fixture.log());
        let name = format!("touch-{cut}");
        let mut program = run_as(&fixture, &name, MIB, 50);
        let sum = program.ask("sum");
        let gone = poll(LONG, || {
            let _ = fixture.try_swap_out(&name);
            (fixture.status().donors[0].stored_pages > 0).then_some(())
        });
        assert!(gone.is_some(), "{:?}\n{}", fixture.status().donors, fixture.log());
        let (lends, proxy) = &mut donors.lend[0];
        // Shorter than a donor is waited for: whoever asks has an answer.
        proxy.act([Act::Cut, Act::Lie][cut as usize % 2]);
        sleep(Duration::from_millis(50));
        proxy.act(Act::Pass);
        is_whole(&fixture, &mut program, "sum", &sum);
        let gone = poll(LONG, || {
            let _ = fixture.try_swap_out(&name);
            (fixture.status().donors[0].stored_pages > 0).then_some(())
        });
        assert!(gone.is_some(), "{:?}\n{}", fixture.status().donors, fixture.log());
        match cut % 3 {
            0 => proxy.act(Act::Stop),
            1 => lends.kill(),
            _ => proxy.act(Act::Cut),
        }
        let ended = poll(LONG, || fixture.status().ended_apps.contains(&name).then_some(()));
        assert!(ended.is_some(), "{:?}\n{}", fixture.status(), fixture.log());
        // It is gone, and hangs nowhere.
        program.wait(LONG);
        if cut % 3 == 1 {
            lends.start();
        }
        proxy.act(Act::Pass);
    }
    fixture.assert_daemon_lives();
}

/// The link to the first donor has a byte more now and then, and is cut for it hundreds of times: who reads is answered by the
/// second one, and asks the first only now and then whether it is well again.
#[test]
fn who_has_the_other_copy_answers_for_a_link_that_is_damaged_again_and_again() {
    if !can_run("cuts::damaged", &["cc"]) {
        return;
    }
    let donors = Donors::new(2);
    let mut fixture = donors.daemon(&["--donor-copies", "2"]);
    let mut touch = run_as(&fixture, "touch", 4 * MIB, 50);
    let sum = touch.ask("sum");
    heals(&fixture, 0);
    let gone = poll(LONG, || {
        let _ = fixture.try_swap_out("touch");
        (fixture.status().donors[0].live_bytes > (3 * MIB) << 20).then_some(())
    });
    assert!(gone.is_some(), "{:?}\n{}", fixture.status().donors, fixture.log());
    heals(&fixture, 1);
    donors.lend[0].1.act(Act::Insert);
    is_whole(&fixture, &mut touch, "sum", &sum);
    let status = fixture.status();
    assert!(status.ended_apps.is_empty(), "{status:?}\n{}", fixture.log());
    // What comes from the second is not counted here.
    assert!(status.donors[0].cuts > 0, "{:?}", status.donors);
    assert!(status.donors[0].received_bytes < (2 * MIB) << 20, "{:?}", status.donors);
    touch.quit();
    fixture.assert_daemon_lives();
}
