//! Spoiled requests, half ones, endless ones, many at once: the daemon lives, answers whoever asks
//! properly, and grows by nothing.

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clew_fixture::{Fixture, LONG, can_run, poll, rss_anon};
use clew_live::control::protocol::{MAX_REQUEST, Request};
use fuzz::{Run, corpus, spoiled};

const WORDS: [&str; 24] = [
    "\"verb\":",
    "\"app\":",
    "\"pid\":",
    "\"command\":",
    "\"unmanaged\":",
    "\"response_ns\":",
    "\"status\"",
    "\"environment\"",
    "\"started\"",
    "\"fg\"",
    "\"bg\"",
    "\"responded\"",
    "\"swap-out\"",
    "\"restore\"",
    "\"touch\"",
    "null",
    "true",
    "{",
    "}",
    "[[[[[[[[",
    "\"",
    ",",
    "\\u0000",
    "\u{1F9F6}",
];
/// More than a line may have.
const TOO_LONG: usize = 1 << 20;

/// Whether the daemon may be told this: it should not end.
fn is_harmless(line: &[u8]) -> bool {
    let ends = |request| matches!(request, Request::Stop | Request::HandOver { .. });
    !serde_json::from_slice(line).is_ok_and(ends)
}

fn connect(fixture: &Fixture) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(&fixture.socket)
        .unwrap_or_else(|e| panic!("the daemon is not there: {e}\n{}", fixture.log()));
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a limit");
    BufReader::new(stream)
}

/// A request of just the length that is allowed is answered.
fn ask_longest(fixture: &Fixture) {
    let mut line = b"{\"verb\":\"status\"}".to_vec();
    line.resize(MAX_REQUEST - 1, b' ');
    line.push(b'\n');
    let mut stream = connect(fixture);
    stream.get_mut().write_all(&line).expect("it is read");
    let mut answer = String::new();
    stream.read_line(&mut answer).expect("it is answered");
    assert!(answer.starts_with("{\"result\":\"ok\""), "{answer}");
}

/// Sends what is too long for a request, and expects one error and the end of the connection: whatever
/// stands in it, none of it is taken for a request.
fn refused_once(fixture: &Fixture, bytes: &[u8]) {
    let mut stream = connect(fixture);
    // It need not be read to its end.
    let _ = stream.get_mut().write_all(bytes);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        match stream.read_line(&mut line) {
            Ok(1..) => lines.push(line),
            Ok(0) => break,
            // It was closed with something unread in it.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error}; {lines:?}\n{}", fixture.log()),
        }
    }
    let [line] = &lines[..] else { panic!("{lines:?}\n{}", fixture.log()) };
    assert!(line.contains("a request has at most 65536 bytes"), "{line}");
}

/// Sends lines and expects an answer to each.
fn ask(fixture: &Fixture, run: &Run, bytes: &[u8]) {
    let mut stream = connect(fixture);
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| is_harmless(line)) {
        let shown = || format!("seed {}: {:?}", run.seed, String::from_utf8_lossy(line));
        let sent =
            stream.get_mut().write_all(line).and_then(|()| stream.get_mut().write_all(b"\n"));
        let mut answer = String::new();
        let read = sent.and_then(|()| stream.read_line(&mut answer));
        assert!(matches!(read, Ok(1..)), "{read:?}, {}\n{}", shown(), fixture.log());
        let value: serde_json::Value = serde_json::from_str(&answer)
            .unwrap_or_else(|e| panic!("'{answer}': {e}, {}", shown()));
        let result = value.get("result").and_then(|result| result.as_str());
        assert!(matches!(result, Some("ok" | "error")), "'{answer}', {}", shown());
    }
}

#[test]
fn the_daemon_outlives_nonsense() {
    if !can_run("fuzz_control", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = fixture.run_touch("touch", 4096, 50, 3);
    let sum = program.ask("sum");
    fixture.swap_out("touch");
    program.expect("sum", &sum);
    // Whole requests in a line that is too long, where its pieces would begin.
    for at in [MAX_REQUEST - 1, MAX_REQUEST] {
        let mut line = vec![b' '; at];
        line.extend_from_slice(b"{\"verb\":\"stop\"}\n");
        line.extend_from_slice(b"{\"verb\":\"stop\"}\n");
        refused_once(&fixture, &line);
    }
    ask_longest(&fixture);
    // Threads of as many clients as there are below have stacks afterwards.
    drop((0..100).map(|_| connect(&fixture)).collect::<Vec<_>>());
    fixture.status();
    let (descriptors, bytes) = (fixture.daemon_descriptors(), rss_anon(fixture.daemon_pid()));

    let seeds = corpus("control");
    let mut run = Run::start("control");
    while run.goes_on() {
        let line = spoiled(&mut run.random, &seeds, &WORDS);
        match run.random.below(40) {
            0 => {
                // One line without an end: a single error, and no more.
                let byte = b"{\" x"[run.random.below(4)];
                let len = MAX_REQUEST + 1 + run.random.below(TOO_LONG - MAX_REQUEST);
                refused_once(&fixture, &vec![byte; len]);
            }
            1 => {
                // Half lines, many at once.
                let mut many: Vec<_> = (0..100).map(|_| connect(&fixture)).collect();
                for stream in &mut many {
                    let half = &line[..run.random.below(line.len() + 1)];
                    if half.split(|byte| *byte == b'\n').all(is_harmless) {
                        let _ = stream.get_mut().write_all(half);
                    }
                }
                fixture.status();
            }
            2 => {
                // Nobody reads the answers.
                let mut stream = connect(&fixture);
                for _ in 0..200 {
                    if stream.get_mut().write_all(b"{\"verb\":\"status\"}\n").is_err() {
                        break;
                    }
                }
                fixture.status();
            }
            _ => ask(&fixture, &run, &line),
        }
    }

    fixture.assert_daemon_lives();
    program.expect("sum", &sum);
    fixture.swap_out_at_least("touch", 4096 * 4096 / 2);
    program.expect("sum", &sum);
    let back = poll(LONG, || (fixture.daemon_descriptors() <= descriptors).then_some(()));
    let now = fixture.daemon_descriptors();
    assert!(back.is_some(), "{descriptors} descriptors before, {now} after");
    let grown = rss_anon(fixture.daemon_pid()).saturating_sub(bytes);
    println!("fuzz control: {} cases; the daemon grew by {} KiB", run.cases, grown >> 10);
    // Stacks and what the allocator keeps; the pool is not among it.
    assert!(grown < 4 << 20, "the daemon grew by {grown} bytes");
    program.quit();
    fixture.wait_all_freed("touch");
}
