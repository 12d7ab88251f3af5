//! stress-ng, unmodified, under a storm of swap-outs: what it verifies of itself must hold.
//!
//! `CLEW_STRESS_SECONDS` sets how long each stressor runs (3).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use clew_fixture::*;

/// Names, and what they are told besides. The sizes are small, so that all of it goes out and comes back often.
const STRESSORS: [(&str, &[&str]); 9] = [
    ("vm", &["vm-bytes 16m", "vm-method all"]),
    ("mremap", &["mremap-bytes 8m"]),
    ("fork", &[]),
    ("madvise", &[]),
    ("mmap", &["mmap-bytes 16m"]),
    ("brk", &[]),
    ("malloc", &["malloc-bytes 1m", "malloc-max 64", "malloc-touch"]),
    ("vforkmany", &[]),
    ("exec", &["exec-max 8"]),
];

/// The number of bogo operations in the metrics that stress-ng prints.
fn bogo_ops(text: &str, stressor: &str) -> Option<u64> {
    let lines = text.lines().filter_map(|line| line.split_once("] ").map(|(_, rest)| rest));
    lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words.len() >= 8 && words[0] == stressor)
        .and_then(|words| words[1].parse().ok())
}

/// What was seen of a stressor's processes.
#[derive(Default)]
struct Seen {
    managed: BTreeSet<u32>,
    /// Reasons, and of whom.
    others: BTreeMap<String, BTreeSet<u32>>,
    pages_out: u64,
    pages_back: u64,
    faults: u64,
    /// Pages out and faults of each process of the stressor itself: what ran before it, and stress-ng
    /// around it, are others.
    own: BTreeMap<u32, (u64, u64)>,
}

impl Seen {
    fn look(&mut self, fixture: &Fixture, leader: u32, stressor: &str) {
        let app = fixture.app(stressor);
        let listed: BTreeSet<u32> = app.processes.iter().map(|process| process.pid).collect();
        for pid in descendants(leader).into_iter().filter(|pid| !listed.contains(pid)) {
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if comm.starts_with("stress-ng") {
                self.others.entry("not listed".into()).or_default().insert(pid);
            }
        }
        // As the kernel keeps it: 15 characters.
        let name: String = format!("stress-ng-{stressor}").chars().take(15).collect();
        for process in app.processes {
            let comm = fs::read_to_string(format!("/proc/{}/comm", process.pid));
            if comm.is_ok_and(|comm| comm.trim() == name) {
                let own = self.own.entry(process.pid).or_default();
                own.0 = own.0.max(process.swapped_out_pages);
                own.1 = own.1.max(process.faults);
            }
            if process.managed {
                self.managed.insert(process.pid);
            } else {
                self.others.entry(process.reason).or_default().insert(process.pid);
            }
        }
        // Zero again once the app is gone.
        self.pages_out = self.pages_out.max(app.swapped_out_pages);
        self.pages_back = self.pages_back.max(app.restored_pages);
        self.faults = self.faults.max(app.faults);
    }
}

/// Whether its own memory went out while it worked, and came back when it touched it; what was seen if not.
fn stress(fixture: &Fixture, stressor: &str, flags: &[&str], seconds: u64) -> Result<(), String> {
    // stress-ng forks its stressors when it begins, before it is managed. So that they are children
    // of a managed program, another one runs for a moment first.
    let first = match stressor {
        "fork" => ["madvise 1", "madvise-ops 12"],
        _ => ["fork 1", "fork-ops 500"],
    };
    let mut lines: Vec<String> = vec![format!("timeout {seconds}s")];
    lines.extend(
        ["run sequential", "verify", "metrics", "oomable", "no-rand-seed"].map(String::from),
    );
    lines.push(format!("temp-path {}", fixture.dir.path().display()));
    lines.extend(first.map(String::from));
    lines.push(format!("{stressor} 1"));
    lines.extend(flags.iter().map(|flag| flag.to_string()));
    let job = fixture.dir.join(format!("{stressor}.job"));
    fs::write(&job, lines.join("\n") + "\n").expect("a job file");
    let job = job.to_str().expect("UTF-8");
    // exec refuses to run as root.
    let words: &[&str] = match stressor {
        "exec" => &["unshare", "--map-user=1000", "--map-group=1000", "stress-ng", "--job", job],
        _ => &["stress-ng", "--job", job],
    };
    let mut program = fixture.run(stressor, words);

    let limit = Duration::from_secs(seconds * 5) + 2 * LONG;
    let began = Instant::now();
    let (mut seen, mut rounds) = (Seen::default(), 0u64);
    while program.is_running() {
        if began.elapsed() > limit {
            panic!("{stressor} does not end\n{}{}", program.report(), fixture.log());
        }
        // Refused before it has said hello and after it has ended.
        if fixture.try_swap_out(stressor).is_ok() {
            rounds += 1;
        }
        seen.look(fixture, program.pid, stressor);
        std::thread::sleep(Duration::from_millis(rounds % 8 * 15));
    }
    let status = program.wait(LONG);
    let text = program.rest(LONG).join("\n") + &program.errors();
    let message = || format!("{stressor}: {status}\n{text}\n{}", fixture.log());
    assert!(status.success(), "{}", message());
    let failed = |line: &str| line.contains(" fail: ") || line.contains(" error: ");
    assert!(!text.lines().any(failed), "{}", message());
    let ops = bogo_ops(&text, stressor).unwrap_or_else(|| panic!("no metrics: {}", message()));
    assert!(rounds > 0 && !seen.managed.is_empty(), "{rounds} swap-outs, {}", message());
    let own_out: u64 = seen.own.values().map(|own| own.0).sum();
    let own_faults: u64 = seen.own.values().map(|own| own.1).sum();
    let others: Vec<String> =
        seen.others.iter().map(|(reason, who)| format!("{} '{reason}'", who.len())).collect();
    println!(
        "stress-ng {stressor}: {ops} bogo ops, {rounds} swap-outs; of {} processes of the stressor \
         itself {own_out} pages out, {own_faults} faults; of all {} pages out, {} back, {} faults; \
         processes seen: {} managed, others: {}",
        seen.own.len(),
        seen.pages_out,
        seen.pages_back,
        seen.faults,
        seen.managed.len(),
        if others.is_empty() { "none".to_string() } else { others.join(", ") }
    );
    match ops > 0 && own_out > 0 && own_faults > 0 {
        true => Ok(()),
        false => Err(format!("{ops} ops, {own_out} pages out, {own_faults} faults: {}", message())),
    }
}

#[test]
fn stressors_verify_while_they_are_swapped_out() {
    if !can_run("stress_ng", &["stress-ng", "unshare"]) {
        return;
    }
    let seconds = number_from_env("CLEW_STRESS_SECONDS", 3);
    // stress-ng itself is small.
    let mut fixture = Fixture::start_configured(
        "2GiB",
        "zram",
        "min-process = \"16KiB\"
",
    );
    for (stressor, flags) in STRESSORS {
        // On a busy machine it may have done next to nothing in that time.
        let mut times = 1;
        while let Err(seen) = stress(&fixture, stressor, flags, seconds * times) {
            assert!(times < 16, "{seen}");
            fixture.wait_all_freed(stressor);
            times *= 4;
        }
        fixture.wait_all_freed(stressor);
        fixture.assert_daemon_lives();
    }
}
