//! Language runtimes, unmodified: digests over all their data, swapped out again and again, and their
//! daemon killed now and then.
//!
//! The same lines are given to the program alone first; under Clew it must give the same answers.

use std::process::Command;
use std::time::Duration;

use clew_fixture::*;

const SWAP_OUTS: u64 = 20;

/// What is done, in order. The seed makes it the same each time.
enum Step {
    Ask(String),
    SwapOut,
    /// Asked, and swapped out while it computes.
    AskDuring(String),
    /// The daemon is killed, and the program asked before there is another.
    AskWithoutDaemon(String),
}

fn steps(seed: u64) -> Vec<Step> {
    let mut random = Random(seed);
    let mut draw = move |limit| random.below(limit);
    let mut steps = vec![Step::Ask("check".to_string())];
    for number in 0..SWAP_OUTS {
        steps.push(Step::SwapOut);
        if number % 8 == 5 {
            steps.push(Step::AskWithoutDaemon("check".to_string()));
            continue;
        }
        match draw(4) {
            0 => steps.push(Step::Ask("check".to_string())),
            1 => steps.push(Step::AskDuring("check".to_string())),
            2 => steps.push(Step::AskDuring(format!("mutate {}", 1 + draw(3000)))),
            _ => steps.push(Step::Ask(format!("mutate {}", 1 + draw(1000)))),
        }
    }
    steps.push(Step::SwapOut);
    steps.push(Step::Ask("check".to_string()));
    steps
}

fn same_digests(name: &str, words: &[String]) {
    let mut fixture = Fixture::start_configured("2GiB", "zram", storm::CONFIG);
    let steps = steps(name.len() as u64);

    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let mut alone = Program::start(&fixture.dir, &format!("{name}-alone"), command);
    alone.wait_ready();
    let wanted: Vec<String> = steps
        .iter()
        .filter_map(|step| match step {
            Step::SwapOut => None,
            Step::Ask(line) | Step::AskDuring(line) | Step::AskWithoutDaemon(line) => {
                Some(alone.ask(line))
            }
        })
        .collect();
    alone.quit();
    assert!(wanted.iter().filter(|line| line.starts_with("digest ")).count() >= 4, "{wanted:?}");

    let mut program = fixture.run(name, words);
    program.wait_ready();
    // Where its name is that of a script, the shell that read it is still known for a moment.
    let alone = || fixture.app(name).processes.len() == 1;
    assert!(poll(LONG, || alone().then_some(())).is_some(), "{:?}", fixture.app(name));
    let before = fixture.wait_resident(name, 30 << 20);
    let mut wanted = wanted.iter();
    let mut most_stored = 0;
    for (number, step) in steps.iter().enumerate() {
        let answer = match step {
            Step::SwapOut => {
                fixture.swap_out(name);
                most_stored = most_stored.max(fixture.app(name).stored_pages);
                continue;
            }
            Step::Ask(line) => program.ask(line),
            Step::AskDuring(line) => {
                program.send(line);
                std::thread::sleep(Duration::from_millis(20));
                fixture.swap_out(name);
                program.read(2 * LONG)
            }
            Step::AskWithoutDaemon(line) => {
                fixture.kill_daemon();
                program.send(line);
                fixture.start_successor(&[]);
                program.read(2 * LONG)
            }
        };
        let wanted = wanted.next().expect("as many answers");
        assert_eq!(&answer, wanted, "{name}, step {number}\n{}{}", program.report(), fixture.log());
    }
    assert!(
        most_stored * page_size() >= before.resident_bytes / 2,
        "only {most_stored} pages of {} bytes were ever stored",
        before.resident_bytes
    );
    program.quit();
    fixture.wait_all_freed(name);
    fixture.assert_daemon_lives();
}

fn script(name: &str) -> String {
    program_source(name).to_str().expect("UTF-8").to_string()
}

#[test]
fn python() {
    if can_run("runtimes::python", &["python3"]) {
        same_digests("python", &["python3".into(), script("checksum.py"), "7".into()]);
    }
}

#[test]
fn node() {
    if can_run("runtimes::node", &["node"]) {
        same_digests("node", &["node".into(), script("checksum.js"), "7".into()]);
    }
}

#[test]
fn node_workers_with_web_assembly() {
    if can_run("runtimes::node_workers_with_web_assembly", &["node"]) {
        same_digests("workers", &["node".into(), script("wasm.js"), "7".into()]);
    }
}

fn java(test: &str, collector: &str) {
    if !can_run(test, &["java", "javac"]) {
        return;
    }
    let classes = TempDir::new();
    let mut compile = Command::new("javac");
    compile.arg("-d").arg(classes.path()).arg(program_source("Checksum.java"));
    let output = run_to_end(&mut compile, 2 * LONG);
    assert!(output.status.success(), "javac: {}", texts(&output));
    let path = classes.path().to_str().expect("UTF-8");
    let words = ["java", collector, "-Xmx512m", "-cp", path, "Checksum", "7"];
    same_digests("java", &words.map(String::from));
}

#[test]
fn java_serial_collector() {
    java("runtimes::java_serial_collector", "-XX:+UseSerialGC");
}

#[test]
fn java_g1_collector() {
    java("runtimes::java_g1_collector", "-XX:+UseG1GC");
}
