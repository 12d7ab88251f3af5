//! A storm over programs that run to their end: all of theirs is swapped out again and again, and
//! their daemon is killed under them.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clew_live::control::status::Status;

use super::{Fixture, Program, Random, number_from_env};

/// A daemon's `clew.toml`: small programs are managed too, and what is done to it is no restart loop.
pub const CONFIG: &str = "min-process = \"64KiB\"\nmax-short-lives = 1000000\n";

/// A program that takes longer hangs.
pub const LIMIT: Duration = Duration::from_secs(540);

/// How often each program is run: `CLEW_PROGRAM_ROUNDS` (1).
pub fn rounds() -> u64 {
    number_from_env("CLEW_PROGRAM_ROUNDS", 1)
}

/// What became of the programs.
#[derive(Debug, Default)]
pub struct Storm {
    pub kills: u64,
    pub swap_outs: u64,
    pub pages_out: u64,
    pub demand_faults: u64,
    /// Of each app, since the daemon began.
    seen: BTreeMap<String, (u64, u64)>,
}

impl Storm {
    /// Storms until all of `programs`, which are called like their apps, have ended; the daemon is
    /// killed up to `kills` times meanwhile.
    pub fn over(fixture: &mut Fixture, programs: &mut [Program], kills: u64) -> Storm {
        let (mut storm, mut random, began) = (Storm::default(), Random(1), Instant::now());
        let mut until_kill = 2;
        while programs.iter_mut().any(Program::is_running) {
            if began.elapsed() > LIMIT {
                let reports: String = programs.iter().map(Program::report).collect();
                panic!("not ended within {LIMIT:?}\n{reports}{}", fixture.log());
            }
            let at = Instant::now();
            let mut orders = 0;
            for program in programs.iter_mut() {
                // Refused before it has said hello and after it has ended.
                orders +=
                    u64::from(program.is_running() && fixture.try_swap_out(&program.name).is_ok());
            }
            storm.swap_outs += orders;
            storm.look(&fixture.status());
            // As long as it was held up it may work.
            sleep(at.elapsed() + Duration::from_millis(10 + random.below(40)));
            until_kill -= i32::from(orders > 0);
            if until_kill <= 0 && storm.kills < kills {
                until_kill = 1 + random.below(3) as i32;
                // In the middle of a swap-out, or not.
                std::thread::scope(|scope| {
                    let (fixture, name) = (&*fixture, &programs[0].name);
                    scope.spawn(move || drop(fixture.try_swap_out(name)));
                    sleep(Duration::from_micros(random.below(30_000)));
                    super::kill(fixture.daemon_pid());
                });
                fixture.kill_daemon(); // waits for its end
                storm.forget();
                fixture.start_successor(&[]);
                storm.kills += 1;
            }
        }
        storm.look(&fixture.status());
        storm.forget();
        fixture.assert_daemon_lives();
        storm
    }

    /// Counts are gone with their app.
    fn look(&mut self, status: &Status) {
        assert_eq!(status.pool.corrupt_pages, 0, "damaged copies: {status:?}");
        for app in &status.apps {
            let seen = self.seen.entry(app.name.clone()).or_default();
            seen.0 = seen.0.max(app.swapped_out_pages);
            seen.1 = seen.1.max(app.demand_faults);
        }
    }

    /// A successor counts from its own beginning.
    fn forget(&mut self) {
        for (pages_out, demand_faults) in std::mem::take(&mut self.seen).into_values() {
            self.pages_out += pages_out;
            self.demand_faults += demand_faults;
        }
    }

    /// Counts what another one did, too: of a program that ends before much has happened.
    pub fn add(&mut self, other: Storm) {
        self.kills += other.kills;
        self.swap_outs += other.swap_outs;
        self.pages_out += other.pages_out;
        self.demand_faults += other.demand_faults;
    }

    /// It was one: so many pages went out at least, some came back, and a daemon died.
    pub fn was_one(&self, name: &str, pages_out: u64) {
        println!("{name}: {self:?}");
        assert!(self.kills > 0 && self.demand_faults > 0, "{name}: {self:?}");
        assert!(self.pages_out >= pages_out, "{name}: {self:?}");
    }
}
