//! Small ones with many seeds; the large one is in `make soak`.

use super::*;

fn settings(clients: usize, donors: usize, seed: u64) -> Settings {
    let scheme = Scheme::preset("mobileswap").expect("a preset");
    // Much happens to donors, and not for long.
    let (churn_s, hours) = (120.0, 0.5);
    Settings { churn_s, hours, ..Settings::new(scheme, clients, donors, seed) }
}

fn run(settings: &Settings) -> Outcome {
    match simulate(settings, &mut |_, _| {}) {
        Ok(outcome) => outcome,
        Err(error) => panic!("seed {}: {error}", settings.seed),
    }
}

fn ended(outcome: &Outcome) -> u64 {
    outcome.counts.ended.values().sum()
}

#[test]
fn the_same_seed_gives_the_same() {
    let one = settings(8, 4, 7);
    assert_eq!(run(&one), run(&one));
    assert_ne!(run(&one), run(&settings(8, 4, 8)));
}

/// Whatever happens to donors: what is lost was nowhere else, and nobody has more than he lends ([`World::look`]).
#[test]
fn with_one_copy_programs_end_with_their_donor_and_nothing_else_is_lost() {
    let (mut ended_with, mut out) = (0, 0);
    for seed in 0..12 {
        let outcome = run(&settings(8, 4, seed));
        let counts = &outcome.counts;
        assert!(counts.left + counts.cut + counts.weak + counts.pressed > 0, "{outcome:?}");
        ended_with += ended(&outcome);
        out += counts.pages_out;
        assert_eq!(counts.mended_pages, 0);
        // Its programs have ended before a donor takes anything back itself.
        assert_eq!(counts.taken_back, 0, "{outcome:?}");
    }
    assert!(ended_with > 0 && out > 1000, "{ended_with} {out}");
}

#[test]
fn with_two_copies_what_a_donor_lost_is_made_again() {
    let (mut mended, mut taken_back, mut once, mut twice) = (0, 0, 0, 0);
    for seed in 0..12 {
        let two = Settings { copies: 2, ..settings(8, 4, seed) };
        let outcome = run(&two);
        mended += outcome.counts.mended_pages;
        taken_back += outcome.counts.taken_back;
        twice += outcome.counts.crashed + ended(&outcome);
        let one = run(&settings(8, 4, seed));
        once += one.counts.crashed + ended(&one);
    }
    assert!(mended > 100 && taken_back > 0, "{mended} {taken_back}");
    assert!(twice < once, "{twice} programs ended with two copies, {once} with one");
}

/// Where nothing happens to donors nobody ends with them.
#[test]
fn where_no_donor_fails_no_program_ends_with_one() {
    for copies in [1, 2] {
        let quiet = Settings { churn_s: 1e9, copies, ..settings(40, 5, 3) };
        let outcome = run(&quiet);
        assert_eq!(outcome.counts.crashed, 0, "{outcome:?}");
        let with_donor = outcome.counts.ended.keys().filter(|why| why.contains("donor"));
        assert_eq!(with_donor.count(), 0, "{outcome:?}");
        assert!(outcome.stored_pages > 1000, "{outcome:?}");
    }
}

#[test]
fn remoteswap_is_simulated_too() {
    let scheme = Scheme::preset("remoteswap").expect("a preset");
    let outcome = run(&Settings { scheme, ..settings(8, 4, 1) });
    assert!(outcome.counts.pages_out > 100 && outcome.counts.faults > 0, "{outcome:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let fine = settings(8, 4, 1);
    let zram = Scheme::preset("zram").expect("a preset");
    for (bad, why) in [
        (Settings { scheme: zram, ..fine.clone() }, "other places"),
        (Settings { clients: 0, ..fine.clone() }, "machines"),
        (Settings { copies: 3, ..fine.clone() }, "copies"),
        (Settings { known: 5, ..fine.clone() }, "known"),
        (Settings { known: 1, copies: 2, ..fine.clone() }, "known"),
        (Settings { hours: f64::NAN, ..fine.clone() }, "hours"),
        (Settings { churn_s: 0.0, ..fine.clone() }, "churn"),
        (Settings { unequal: 0.5, ..fine.clone() }, "churn"),
    ] {
        let refused = simulate(&bad, &mut |_, _| {}).expect_err(why);
        assert!(refused.is_bad_input() && refused.to_string().contains(why), "{refused}");
    }
}

/// 1,000 that borrow, 100 that lend: with more time and more seeds in `simulate::*` of the command's (`make soak`).
#[test]
fn a_thousand_machines_use_a_hundred_donors_evenly() {
    let scheme = Scheme::preset("mobileswap").expect("a preset");
    for copies in [1, 2] {
        let many = Settings { copies, hours: 0.15, ..Settings::new(scheme.clone(), 1000, 100, 1) };
        let outcome = run(&many);
        assert!(outcome.counts.left > 0 && outcome.stored_pages > 200_000, "{outcome:?}");
        let worst = outcome.balance.worst;
        assert!(worst > 1.0 && worst <= 1.3, "{:?}", outcome.balance);
    }
}

/// What is free at a donor is known also where each machine may use less of it.
#[test]
fn who_may_use_little_of_each_donor_uses_them_evenly_all_the_same() {
    let all = settings(200, 20, 1);
    let few = Settings { each_bytes: 1 << 30, ..all.clone() };
    let (all, few) = (run(&all).balance.mean, run(&few).balance.mean);
    assert!(few < all * 1.05, "{few} {all}");
}
