//! redis-server, unmodified: swapped out, asked for a digest, forked for a dump while swapped out.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::*;

const KEYS: u64 = 100_000;

/// A connection that speaks redis' protocol.
struct Redis {
    stream: BufReader<UnixStream>,
}

impl Redis {
    fn connect(socket: &Path) -> Redis {
        let connect = || {
            let stream = UnixStream::connect(socket).ok()?;
            stream.set_read_timeout(Some(LONG)).ok()?;
            let mut redis = Redis { stream: BufReader::new(stream) };
            redis.send(&["PING"]);
            // While it loads a dump it answers -LOADING.
            (redis.try_answer()? == "PONG").then_some(redis)
        };
        poll(LONG, connect).expect("redis answers")
    }

    fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes()).expect("redis takes a request");
    }

    /// A simple, integer or bulk answer; `None` when there is none within the limit.
    fn try_answer(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            return Some(line.trim_start_matches(['+', ':']).to_string());
        };
        let Ok(length) = length.parse::<usize>() else { return Some(String::new()) };
        let mut bulk = vec![0; length + 2];
        self.stream.read_exact(&mut bulk).ok()?;
        bulk.truncate(length);
        Some(String::from_utf8_lossy(&bulk).into_owned())
    }

    fn answer(&mut self) -> String {
        self.try_answer().expect("redis answers in time")
    }

    fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.answer()
    }

    fn digest(&mut self) -> String {
        let digest = self.ask(&["DEBUG", "DIGEST"]);
        assert!(digest.len() == 40 && !digest.starts_with("ERR"), "DEBUG DIGEST: {digest}");
        digest
    }

    /// Strings, hashes, lists and sets of words and numbers.
    fn fill(&mut self) {
        let mut random = 1u64;
        for batch in 0..KEYS / 500 {
            for key in batch * 500..(batch + 1) * 500 {
                let mut value = String::new();
                while value.len() < 300 + (key % 7) as usize * 100 {
                    random =
                        random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    value += &format!("{:x} field{} ", random >> 40, key % 100);
                }
                let name = format!("key:{key}");
                match key % 10 {
                    0 => self.send(&["HSET", &name, "a", &value, "b", &name, "c", "1"]),
                    1 => self.send(&["RPUSH", &name, &value, &name, "x"]),
                    2 => self.send(&["SADD", &name, &value, &name, "y"]),
                    _ => self.send(&["SET", &name, &value]),
                }
            }
            for _ in 0..500 {
                let answer = self.answer();
                assert!(!answer.starts_with('-'), "{answer}");
            }
        }
        assert_eq!(self.ask(&["DBSIZE"]), KEYS.to_string());
    }

    fn save_in_background(&mut self) {
        let answer = self.ask(&["BGSAVE"]);
        assert!(answer.contains("saving started"), "BGSAVE: {answer}");
        let done = poll(2 * LONG, || {
            let info = self.ask(&["INFO", "persistence"]);
            info.contains("rdb_bgsave_in_progress:0").then_some(info)
        });
        let info = done.expect("BGSAVE ends");
        assert!(info.contains("rdb_last_bgsave_status:ok"), "{info}");
    }
}

fn arguments(dir: &Path, socket: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_string();
    let fixed = ["redis-server", "--port", "0", "--save", "", "--appendonly", "no"];
    let mut all: Vec<String> = fixed.map(String::from).into();
    all.extend(["--enable-debug-command", "yes", "--dbfilename", "dump.rdb"].map(String::from));
    all.extend(["--dir".into(), text(dir), "--unixsocket".into(), text(socket)]);
    all
}

#[test]
fn digest_and_dump_are_right_while_swapped_out() {
    if !can_run("redis", &["redis-server"]) {
        return;
    }
    let mut fixture = Fixture::start("2GiB");
    let socket = fixture.dir.join("redis");
    let _server = fixture.run("redis", &arguments(fixture.dir.path(), &socket));
    let mut redis = Redis::connect(&socket);
    redis.fill();
    let digest = redis.digest();
    let pid: u32 = redis
        .ask(&["INFO", "server"])
        .lines()
        .find_map(|line| line.strip_prefix("process_id:").and_then(|pid| pid.trim().parse().ok()))
        .expect("a process id");

    // Everything goes out. The daemon's word and the kernel's must agree.
    let before = fixture.wait_resident("redis", 40 << 20);
    let rss_before = rss_anon(pid);
    fixture.swap_out_at_least("redis", before.resident_bytes * 8 / 10);
    let rss_after = rss_anon(pid);
    assert!(rss_after * 2 < rss_before, "resident {rss_before} before and {rss_after} after");
    assert_eq!(redis.digest(), digest, "after a swap-out");

    // A fork while everything is out: the child writes all of it to a file.
    fixture.swap_out("redis");
    redis.save_in_background();
    let loaded = {
        let other_socket = fixture.dir.join("other");
        let words = arguments(fixture.dir.path(), &other_socket);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let _other = Program::start(&fixture.dir, "redis-alone", command);
        Redis::connect(&other_socket).digest()
    };
    assert_eq!(loaded, digest, "the dump that was written while swapped out");
    assert_eq!(redis.digest(), digest, "after the dump");

    // It forked; it must be as swappable as before.
    let before = fixture.app("redis");
    fixture.swap_out_at_least("redis", before.resident_bytes * 8 / 10);
    assert_eq!(redis.digest(), digest, "after a swap-out after the fork");

    // Writes while swapped out, and a fork that runs meanwhile.
    fixture.swap_out("redis");
    for key in (0..KEYS).step_by(97) {
        redis.ask(&["DEL", &format!("key:{key}")]);
        redis.ask(&["SET", &format!("key:{key}"), "changed"]);
    }
    let digest = redis.digest();
    fixture.swap_out("redis");
    assert!(redis.ask(&["BGSAVE"]).contains("saving started"));
    for _ in 0..5 {
        fixture.swap_out("redis");
        assert_eq!(redis.digest(), digest, "beside a dump");
    }
    let done = poll(2 * LONG, || {
        redis.ask(&["INFO", "persistence"]).contains("rdb_bgsave_in_progress:0").then_some(())
    });
    assert!(done.is_some(), "the second dump does not end");
    redis.send(&["SHUTDOWN", "NOSAVE"]);
    poll(Duration::from_secs(20), || (!is_alive(pid)).then_some(())).expect("redis ends");
    fixture.wait_all_freed("redis");
    fixture.assert_daemon_lives();
}
