//! A client of redis.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use super::{LONG, poll};

/// Keys that [`Redis::fill`] makes.
pub const KEYS: u64 = 100_000;

/// A connection that speaks redis' protocol.
pub struct Redis {
    stream: BufReader<UnixStream>,
}

impl Redis {
    /// Waits until it answers.
    pub fn connect(socket: &Path) -> Redis {
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

    /// Sends one request.
    pub fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.stream.get_mut().write_all(request.as_bytes()).expect("redis takes a request");
    }

    /// A simple, integer, bulk or array answer; `None` when there is none within the limit.
    fn try_answer(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if let Some(count) = line.strip_prefix('*') {
            let parts: Option<Vec<String>> =
                (0..count.parse().ok()?).map(|_| self.try_answer()).collect();
            return parts.map(|parts| parts.join(" "));
        }
        let Some(length) = line.strip_prefix('$') else {
            return Some(line.trim_start_matches(['+', ':']).to_string());
        };
        let Ok(length) = length.parse::<usize>() else { return Some(String::new()) };
        let mut bulk = vec![0; length + 2];
        self.stream.read_exact(&mut bulk).ok()?;
        bulk.truncate(length);
        Some(String::from_utf8_lossy(&bulk).into_owned())
    }

    /// The next answer.
    pub fn answer(&mut self) -> String {
        self.try_answer().expect("redis answers in time")
    }

    /// One request and its answer.
    pub fn ask(&mut self, words: &[&str]) -> String {
        self.send(words);
        self.answer()
    }

    /// Of all keys of all databases.
    pub fn digest(&mut self) -> String {
        let digest = self.ask(&["DEBUG", "DIGEST"]);
        assert!(digest.len() == 40 && !digest.starts_with("ERR"), "DEBUG DIGEST: {digest}");
        digest
    }

    /// Strings, hashes, lists and sets of words and numbers.
    pub fn fill(&mut self) {
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

    /// Forks for a dump and waits until it is written.
    pub fn save_in_background(&mut self) {
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

/// `redis-server` that listens at `socket` only.
pub fn redis_server(dir: &Path, socket: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_str().expect("UTF-8").to_string();
    let fixed = ["redis-server", "--port", "0", "--save", "", "--appendonly", "no"];
    let mut all: Vec<String> = fixed.map(String::from).into();
    all.extend(["--enable-debug-command", "yes", "--dbfilename", "dump.rdb"].map(String::from));
    all.extend(["--dir".into(), text(dir), "--unixsocket".into(), text(socket)]);
    all
}
