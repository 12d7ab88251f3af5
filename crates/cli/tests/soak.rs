//! Real programs under two fifths of the memory they need, while their daemon is killed again and
//! again. Beside each runs a twin without Clew that is told the same; both must answer the same.
//!
//! `CLEW_KILLS` sets how often the daemon is killed (20), `CLEW_SOAK_SEED` when (1),
//! `CLEW_SOAK_SCHEME` its scheme (`clew`).

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clew_fixture::redis::{KEYS, Redis, redis_server};
use clew_fixture::*;
use clew_live::control::client::Client;
use clew_live::control::status::Status;

/// What is done to a program again and again.
trait Subject: Send {
    /// One piece of work, with its answers checked.
    fn round(&mut self, number: u64, random: &mut Random);
    /// Everything it holds is checked, and it ends well.
    fn finish(self: Box<Self>);
}

/// Two programs that answer lines.
struct Lines {
    managed: Program,
    twin: Program,
    /// What a round asks.
    lines: fn(u64, &mut Random) -> Vec<String>,
    /// What is asked last.
    last: &'static [&'static str],
    /// How it is told to end.
    quit: &'static str,
}

impl Lines {
    fn both(&mut self, line: &str) -> String {
        self.managed.send(line);
        let wanted = self.twin.ask(line);
        let answer = self.managed.read(2 * LONG);
        let name = &self.managed.name;
        assert_eq!(answer, wanted, "{name}: '{line}'\n{}", self.managed.report());
        answer
    }
}

impl Subject for Lines {
    fn round(&mut self, number: u64, random: &mut Random) {
        for line in (self.lines)(number, random) {
            self.both(&line);
        }
    }

    fn finish(mut self: Box<Self>) {
        for line in self.last {
            self.both(line);
        }
        for mut program in [self.managed, self.twin] {
            program.send(self.quit);
            let status = program.wait(LONG);
            assert!(status.success(), "{}: {status}\n{}", program.name, program.report());
        }
    }
}

fn checksum_lines(number: u64, random: &mut Random) -> Vec<String> {
    let mut lines = vec![format!("mutate {}", 1 + random.below(2000))];
    if number.is_multiple_of(4) {
        lines.push("check".to_string());
    }
    lines
}

/// A table of 60 MiB or so, with an index.
const TABLE: [&str; 3] = [
    "create table t(id integer primary key, n integer, body text); create index i on t(n);",
    "with recursive c(i) as (select 1 union all select i + 1 from c where i < 60000) \
     insert into t select i, i * 7919 % 100003, \
     printf('%x-%x-%x', i * 2654435761, i * 40503, i * 69069) || printf('%.700c', char(97 + i % 26)) \
     || printf('%x', i * 7) from c;",
    "select count(*) from t;",
];

/// Each statement is followed by one that answers with a single line.
fn sql_lines(number: u64, random: &mut Random) -> Vec<String> {
    let first = random.below(60_000);
    let last = first + random.below(2000);
    let factor = random.below(1000);
    let fresh = 100_000 + number * 100;
    let mut lines = vec![
        format!(
            "update t set n = n + {factor}, body = substr(body || n || '-{factor}', -700) \
             where id between {first} and {last}; select changes();"
        ),
        format!(
            "insert or replace into t select id + {fresh}, n, body from t \
             where id between {first} and {first} + 99; select changes();"
        ),
        format!(
            "delete from t where id between {fresh} - 500 and {fresh} - 400; select changes();"
        ),
        format!(
            "select count(*), sum(n), sum(length(body)), sum(unicode(substr(body, 1 + id % 90, 1))) \
             from t where n between {factor} * 50 and {factor} * 50 + 9000;"
        ),
    ];
    if number.is_multiple_of(5) {
        lines.push("pragma integrity_check;".to_string());
    }
    lines
}

const LAST_SQL: [&str; 3] = [
    "select count(*), sum(n), sum(length(body)), sum(unicode(substr(body, 1 + id % 90, 1))) from t;",
    "select case integrity_check when 'ok' then 'sound' else integrity_check end \
     from pragma_integrity_check;",
    "select max(n), min(n), max(body), min(body) from t;",
];

/// redis-server under redis-benchmark, which has a database of its own; of the other one every
/// value is compared.
struct RedisPair {
    managed: Redis,
    twin: Redis,
    socket: PathBuf,
    programs: [Program; 2],
}

impl RedisPair {
    fn same_values(&mut self, first: u64, count: u64) {
        for start in (first..first + count).step_by(500) {
            let keys = start..(start + 500).min(first + count);
            for redis in [&mut self.managed, &mut self.twin] {
                for key in keys.clone() {
                    redis.send(&["DEBUG", "DIGEST-VALUE", &format!("key:{key}")]);
                }
            }
            for key in keys {
                let wanted = self.twin.answer();
                assert!(wanted.len() == 40, "key:{key}: {wanted}");
                assert_eq!(self.managed.answer(), wanted, "redis, key:{key}");
            }
        }
    }
}

impl Subject for RedisPair {
    fn round(&mut self, number: u64, random: &mut Random) {
        for _ in 0..200 {
            let key = format!("key:{}", random.below(KEYS));
            let value = format!("{number} {}", random.below(1 << 30)).repeat(20);
            for redis in [&mut self.managed, &mut self.twin] {
                redis.send(&["DEL", &key]);
                redis.send(&["SET", &key, &value]);
                redis.answer();
                assert_eq!(redis.answer(), "OK");
            }
        }
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.arg("-s").arg(&self.socket).args(["--dbnum", "1", "-q", "-n", "1000", "-c", "8"]);
        benchmark.args(["-r", "5000", "-d", "400", "-t", "set,get,incr,lpush,lpop,sadd,hset,zadd"]);
        let output = run_to_end(&mut benchmark, 2 * LONG);
        let said = texts(&output);
        let right = output.status.success() && said.contains("requests per second");
        assert!(right && !said.to_lowercase().contains("error"), "redis-benchmark: {said}");
        let part = KEYS / 10;
        self.same_values(number % 10 * part, part);
    }

    fn finish(mut self: Box<Self>) {
        self.same_values(0, KEYS);
        for words in [&["SELECT", "1"][..], &["FLUSHDB"], &["SELECT", "0"]] {
            assert_eq!(self.managed.ask(words), "OK");
        }
        assert_eq!(self.managed.digest(), self.twin.digest());
        for (redis, mut program) in [self.managed, self.twin].into_iter().zip(self.programs) {
            { redis }.send(&["SHUTDOWN", "NOSAVE"]);
            let status = program.wait(LONG);
            assert!(status.success(), "{}: {status}\n{}", program.name, program.report());
        }
    }
}

/// Twins are there first: how large they are decides the budget.
struct Twin {
    name: &'static str,
    words: Vec<String>,
    program: Program,
    redis: Option<Redis>,
}

fn fill(name: &str, program: &mut Program) {
    if name != "sqlite3" {
        return program.wait_ready();
    }
    TABLE.iter().for_each(|line| program.send(line));
    assert_eq!(program.read(2 * LONG), "60000", "{}", program.report());
}

fn start_twins(dir: &TempDir) -> Vec<Twin> {
    let script = |name: &str| program_source(name).to_str().expect("UTF-8").to_string();
    let mut all = vec![
        ("python3", vec!["python3".to_string(), script("checksum.py"), "11".into()]),
        ("node", vec!["node".to_string(), script("checksum.js"), "11".into()]),
        ("sqlite3", ["sqlite3", "-batch", ":memory:"].map(String::from).into()),
    ];
    all.retain(|(name, _)| can_run(&format!("soak::{name}"), &[name]));
    let start = |words: &[String], name: &str| {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        Program::start(dir, &format!("{name}-alone"), command)
    };
    let mut twins: Vec<Twin> = all
        .into_iter()
        .map(|(name, words)| {
            let mut program = start(&words, name);
            fill(name, &mut program);
            Twin { name, words, program, redis: None }
        })
        .collect();
    if can_run("soak::redis", &["redis-server", "redis-benchmark"]) {
        let socket = dir.join("redis-alone");
        let program = start(&redis_server(dir.path(), &socket), "redis");
        let mut redis = Redis::connect(&socket);
        redis.fill();
        let words = redis_server(dir.path(), &dir.join("redis"));
        twins.push(Twin { name: "redis", words, program, redis: Some(redis) });
    }
    twins
}

fn manage(fixture: &Fixture, dir: &TempDir, twin: Twin) -> Box<dyn Subject> {
    let Twin { name, words, program: twin, redis } = twin;
    let mut managed = fixture.run(name, &words);
    if let Some(twin_redis) = redis {
        let socket = dir.join("redis");
        let mut redis = Redis::connect(&socket);
        redis.fill();
        let programs = [managed, twin];
        return Box::new(RedisPair { managed: redis, twin: twin_redis, socket, programs });
    }
    fill(name, &mut managed);
    Box::new(match name {
        "sqlite3" => Lines { managed, twin, lines: sql_lines, last: &LAST_SQL, quit: ".quit" },
        _ => Lines { managed, twin, lines: checksum_lines, last: &["check"], quit: "quit" },
    })
}

/// What the daemon may take beyond the pool, however often it was replaced: so much, and so much for
/// each two pages that it manages.
const DAEMON_BYTES: u64 = 16 << 20;
const BYTES_OF_TWO_PAGES: u64 = 35;

/// What daemons counted, each from its own beginning.
#[derive(Default)]
struct Counts {
    faults: u64,
    demand_faults: u64,
    swapped_out: u64,
    restored: u64,
    /// What the daemon could have taken besides, at least.
    least_left: u64,
    /// Pages that it managed, at most.
    most_pages: u64,
}

impl Counts {
    fn add(&mut self, status: &Status) {
        assert_eq!(status.pool.corrupt_pages, 0, "damaged copies: {status:?}");
        let most = DAEMON_BYTES + BYTES_OF_TWO_PAGES * status.managed_pages / 2;
        let now = status.daemon_bytes;
        assert!(now < most, "the daemon takes {now} of {most} bytes: {status:?}");
        self.least_left = self.least_left.min(most - now);
        self.most_pages = self.most_pages.max(status.managed_pages);
        for app in &status.apps {
            self.faults += app.faults;
            self.demand_faults += app.demand_faults;
            self.swapped_out += app.swapped_out_pages;
            self.restored += app.restored_pages;
        }
    }
}

#[test]
fn real_programs_outlive_their_daemons() {
    if !can_run("soak", &[]) {
        return;
    }
    let kills = number_from_env("CLEW_KILLS", 20);
    let seed = number_from_env("CLEW_SOAK_SEED", 1);
    let scheme = std::env::var("CLEW_SOAK_SCHEME").unwrap_or_else(|_| "clew".to_string());
    let dir = TempDir::new();
    let config = dir.join("clew.toml");
    fs::write(&config, "max-short-lives = 1000000\n").expect("a config");
    let config = config.to_str().expect("UTF-8").to_string();
    let twins = start_twins(&dir);
    let bytes: u64 = twins.iter().map(|twin| rss_anon(twin.program.pid)).sum();
    let budget = format!("{}MiB", (bytes * 2 / (5 << 20)).max(16));
    let mut fixture = Fixture::start_with(&budget, &["--scheme", &scheme, "--config", &config]);
    let subjects: Vec<_> =
        twins.into_iter().map(|twin| (twin.name, manage(&fixture, &dir, twin))).collect();

    let over = AtomicBool::new(false);
    let (mut times, mut counts) =
        (Vec::new(), Counts { least_left: u64::MAX, ..Counts::default() });
    let began = Instant::now();
    std::thread::scope(|scope| {
        let at_end = SetAtEnd(&over);
        let over = &over;
        let mut workers: Vec<_> = subjects
            .into_iter()
            .enumerate()
            .map(|(number, (name, mut subject))| {
                let worker = scope.spawn(move || {
                    let mut random = Random(seed * 1000 + number as u64);
                    let mut rounds = 0;
                    while !over.load(Ordering::SeqCst) {
                        subject.round(rounds, &mut random);
                        rounds += 1;
                    }
                    subject.finish();
                    rounds
                });
                (name, worker)
            })
            .collect();
        let mut random = Random(seed);
        for kill in 0..kills {
            std::thread::sleep(Duration::from_millis(50 + random.below(500)));
            // What it counted ends with it.
            let status = Client::connect(&fixture.socket).and_then(|mut c| c.status());
            counts.add(&status.unwrap_or_else(|e| panic!("kill {kill}: {e}\n{}", fixture.log())));
            std::thread::sleep(Duration::from_micros(random.below(30_000)));
            fixture.kill_daemon();
            let began = Instant::now();
            fixture.start_successor(&[]);
            times.push(began.elapsed());
            if let Some(at) = workers.iter().position(|(_, worker)| worker.is_finished()) {
                let (name, worker) = workers.swap_remove(at);
                worker.join().expect("the program's answers are right");
                panic!("{name} ended before its time, kill {kill}");
            }
        }
        drop(at_end);
        for (name, worker) in workers {
            let rounds = worker.join().unwrap_or_else(|_| panic!("{name}: see above"));
            println!("soak: {name}: {rounds} rounds, all answers right");
            assert!(rounds > 0, "{name}");
        }
    });
    counts.add(&fixture.status());
    times.sort();
    println!(
        "soak: seed {seed}, {} MiB of programs under {budget}, {:.0} s: {kills} kills, {} pages \
         swapped out, {} restored, {} faults served ({} of stored pages); takeover p50 {:?}, worst \
         {:?}; the daemon was {} KiB below what it may take",
        bytes >> 20,
        began.elapsed().as_secs_f64(),
        counts.swapped_out,
        counts.restored,
        counts.faults,
        counts.demand_faults,
        times.get(times.len() / 2),
        times.last(),
        counts.least_left >> 10,
    );
    // All that programs have is counted, and it is what the daemon's limit goes by.
    assert!(counts.most_pages * page_size() >= bytes / 2, "{} managed", counts.most_pages);
    // It was no idle watching: half of what the programs have went out at least.
    assert!(counts.swapped_out * page_size() >= bytes / 2, "{} out", counts.swapped_out);
    fixture.assert_daemon_lives();
}
