//! The daemon dies before and after every step of the order of updates (docs/design.md, "Takeover"),
//! and the next one goes on: no byte is wrong, nobody waits for ever.
//!
//! The steps are the points of `clew_store::points`. `CLEW_POINT_TIMES` sets at how many of the times
//! that a point is passed the daemon is killed (1; the first always, the others are spread).

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use clew_fixture::Setting;
use clew_fixture::hook::{Table, Tools, point_named};
use clew_fixture::world::{FLASH, World, life, succession, tidied};
use clew_fixture::*;
use clew_store::points::NAMES;

/// What daemons live through.
#[derive(Clone, Copy)]
struct Story {
    name: &'static str,
    tell: fn(&mut World<'_>),
    scheme: &'static str,
    /// Whether it is the first daemon that is stopped, or its successor.
    is_first: bool,
}

const STORIES: [Story; 5] = [
    Story { name: "life", tell: life, scheme: "zram", is_first: true },
    Story { name: "succession", tell: succession, scheme: "zram", is_first: false },
    // Blocks of many pages, some of which are parked.
    Story { name: "ariadne", tell: life, scheme: "ariadne", is_first: true },
    Story { name: "flash", tell: life, scheme: FLASH, is_first: true },
    Story { name: "tidied", tell: tidied, scheme: "zram", is_first: true },
];

/// The point at which the first of two daemons dies in [`succession`]: in the middle of a batch.
const FIRST_DIES: (&str, u64) = ("out_taken", 3);

/// Settings of the daemons of a story, the last of them `setting`.
fn settings(tools: &Tools, is_first: bool, other: &Table, setting: Setting) -> Vec<Setting> {
    if is_first {
        return vec![setting];
    }
    let mut first = tools.environment(other, &[]);
    first.push(tools.with_points());
    first.push(tools.stop_at(point_named(FIRST_DIES.0), FIRST_DIES.1, false));
    vec![first, setting]
}

/// Tells a story with a daemon that is stopped at a point; how often the points were passed.
fn tell(tools: &Tools, story: Story, stop: Option<(usize, u64, bool)>) -> Told {
    let dir = TempDir::new();
    let (table, other) = (Table::new(dir.join("table")), Table::new(dir.join("other")));
    let mut setting = tools.environment(&table, &[]);
    setting.push(tools.with_points());
    setting.extend(stop.map(|(point, nth, panics)| tools.stop_at(point, nth, panics)));
    let settings = settings(tools, story.is_first, &other, setting);
    let mut world = World::new(tools, story.scheme, settings, Vec::new());
    (story.tell)(&mut world);
    assert!(table.is_ready(), "the hook was not loaded");
    let ends = world.ends.drain(usize::from(!story.is_first)..).collect::<Vec<_>>();
    Told { passed: table.points(), fired: table.fired(), ends, unmanaged: world.unmanaged.clone() }
}

struct Told {
    passed: Vec<u64>,
    fired: u64,
    ends: Vec<world::End>,
    unmanaged: Vec<String>,
}

struct Case {
    point: usize,
    nth: u64,
    story: Story,
}

type Counts = [u64; STORIES.len()];

fn cases(tools: &Tools, times: u64) -> (Vec<Case>, Vec<Counts>) {
    let passed = STORIES.map(|story| {
        let told = tell(tools, story, None);
        assert!(told.ends.is_empty(), "a daemon that nobody harms has ended: {:?}", told.ends);
        assert_eq!(told.unmanaged, Vec::<String>::new());
        told.passed
    });
    let counts: Vec<Counts> =
        (0..NAMES.len()).map(|point| std::array::from_fn(|story| passed[story][point])).collect();
    let mut cases = Vec::new();
    for (point, counts) in counts.iter().enumerate() {
        for (i, (story, count)) in STORIES.into_iter().zip(counts).enumerate() {
            // The short form: a successor's first steps, and else what no other story has.
            let had_before = counts[..i].iter().any(|count| *count > 0);
            if times == 1 && had_before && (story.is_first || !NAMES[point].starts_with("start_")) {
                continue;
            }
            for i in 0..times.min(*count) {
                let nth = 1 + i * count / times.min(*count);
                cases.push(Case { point, nth, story });
            }
        }
    }
    (cases, counts)
}

#[test]
fn a_daemon_that_dies_at_any_step_is_succeeded() {
    if !can_run("kill_points::any_step", &["cc", "nm", "objcopy"]) {
        return;
    }
    let _alone = alone();
    let times = number_from_env("CLEW_POINT_TIMES", 1);
    let tools = Tools::new();
    let (cases, counts) = cases(&tools, times);
    for (point, counts) in counts.iter().enumerate() {
        assert!(!tools.places()[point].is_empty(), "point {} is nowhere", NAMES[point]);
        let reached = counts.iter().any(|count| *count > 0);
        assert!(reached, "point {} was never reached", NAMES[point]);
    }
    let (next, killed) = (AtomicUsize::new(0), Mutex::new(vec![0u64; NAMES.len()]));
    let failures = Mutex::new(Vec::new());
    in_parallel(|| {
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
            let name = format!("{} #{} ({})", NAMES[case.point], case.nth, case.story.name);
            let told = std::panic::catch_unwind(|| {
                let stop = Some((case.point, case.nth, false));
                let told = tell(&tools, case.story, stop);
                // Not every run passes it as often as the first did.
                assert_eq!(told.ends.len() as u64, told.fired, "{:?}", told.ends);
                assert!(told.ends.iter().all(world::End::was_killed), "{:?}", told.ends);
                told.fired
            });
            match told {
                Ok(fired) => killed.lock().expect("whole")[case.point] += fired,
                Err(_) => failures.lock().expect("whole").push(name),
            }
        }
    });
    let (killed, failures) =
        (killed.into_inner().expect("whole"), failures.into_inner().expect("whole"));
    let columns = |names: [String; STORIES.len()]| names.map(|name| format!("{name:>10}")).concat();
    println!("{:>22} {} {:>6}", "point", columns(STORIES.map(|s| s.name.to_string())), "killed");
    for (point, counts) in counts.iter().enumerate() {
        let counts = columns(counts.map(|count| count.to_string()));
        println!("{:>22} {counts} {:>6}", NAMES[point], killed[point]);
    }
    let sum: u64 = killed.iter().sum();
    println!(
        "{} points, {} cases, {sum} daemons killed, {} failed",
        NAMES.len(),
        cases.len(),
        failures.len()
    );
    assert!(failures.is_empty(), "{failures:?}");
    let missed: Vec<_> = (0..NAMES.len()).filter(|i| killed[*i] == 0).map(|i| NAMES[i]).collect();
    assert!(missed.is_empty(), "nobody was killed at {missed:?}");
}

/// A panic in any thread of the daemon: it ends with a reason, and the next one takes over.
#[test]
fn a_panic_in_any_thread_is_a_death_with_a_reason() {
    if !can_run("kill_points::panic", &["cc", "nm", "objcopy"]) {
        return;
    }
    let _alone = alone();
    let tools = Tools::new();
    // Of each thread a step that it makes; the daemon serves already.
    let threads = [
        ("out_stored", 10, "worker-"),
        ("back_put", 20, "fault-"),
        ("gone_forgotten", 1, "main"),
        ("hello_recorded", 1, "hellos"),
        ("manage_recorded", 1, "strangers"),
    ];
    for (point, nth, thread) in threads {
        let told = tell(&tools, STORIES[0], Some((point_named(point), nth, true)));
        assert_eq!(told.fired, 1, "{point} was not passed {nth} times");
        let [end] = &told.ends[..] else { panic!("{point}: {:?}", told.ends) };
        assert!(end.has_reason(), "{point}: {end:?}");
        let names = format!("thread '{thread}");
        let where_it_was = end.said.lines().find(|line| line.contains(&names));
        assert!(where_it_was.is_some_and(|l| l.contains("panicked")), "{point}: {end:?}");
        println!("{point}: {} {}", where_it_was.unwrap_or_default(), end.last_words());
    }
}
