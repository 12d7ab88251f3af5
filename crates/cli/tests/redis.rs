//! redis-server, unmodified: swapped out, asked for a digest, forked for a dump while swapped out.

use std::process::Command;

use clew_fixture::redis::{KEYS, Redis, redis_server};
use clew_fixture::*;

#[test]
fn digest_and_dump_are_right_while_swapped_out() {
    if !can_run("redis", &["redis-server"]) {
        return;
    }
    let mut fixture = Fixture::start("2GiB");
    let socket = fixture.dir.join("redis");
    let _server = fixture.run("redis", &redis_server(fixture.dir.path(), &socket));
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
        let words = redis_server(fixture.dir.path(), &other_socket);
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
    poll(LONG, || (!is_alive(pid)).then_some(())).expect("redis ends");
    fixture.wait_all_freed("redis");
    fixture.assert_daemon_lives();
}
