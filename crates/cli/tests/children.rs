//! Forked children are managed as their parents are.

use std::time::Duration;

use clew_fixture::touch::{BYTES, PAGES, ZRAM, swapped_out};
use clew_fixture::*;
use clew_live::control::status::ProcessStatus;

fn fork(program: &mut Program, line: &str) -> u32 {
    let answer = program.ask(line);
    answer.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("child PID")
}

/// Waits until it is known which process the child is; then everything is taken out, and it is
/// managed, however little of it is resident.
fn manage(fixture: &Fixture, pid: u32) {
    let known = poll(LONG, || fixture.process("touch", pid));
    assert!(known.is_some(), "{pid} is not known: {:?}\n{}", fixture.app("touch"), fixture.log());
    fixture.swap_out("touch");
    wait_managed(fixture, pid);
}

fn wait_managed(fixture: &Fixture, pid: u32) -> ProcessStatus {
    let found = poll(LONG, || fixture.process("touch", pid).filter(|p| p.managed));
    found.unwrap_or_else(|| {
        panic!("{pid} is not managed: {:?}\n{}", fixture.app("touch"), fixture.log())
    })
}

/// Takes everything out: most of `pid` must be stored then, and little resident.
fn swap_out(fixture: &Fixture, pid: u32) {
    fixture.swap_out("touch");
    let status = fixture.process("touch", pid).expect("it is listed");
    let log = || format!("{status:?}\n{}", fixture.log());
    assert!(status.stored_pages * 4096 >= BYTES * 8 / 10, "{}", log());
    assert!(rss_anon(pid) <= BYTES * 3 / 10, "{} resident: {}", rss_anon(pid), log());
}

/// A child's pages are its parent's until one of them writes: both have them, and there is room for others.
#[test]
fn what_a_child_has_from_its_parent_is_counted_once() {
    if !can_run("children::counted", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start_with("2GiB", &ZRAM);
    let mut program = fixture.run_touch("touch", PAGES, 50, 7);
    fixture.wait_resident("touch", BYTES * 9 / 10);
    let child = fork(&mut program, "fork-keep");
    let known = poll(LONG, || fixture.process("touch", child));
    assert!(known.is_some_and(|p| p.resident_bytes >= BYTES / 2), "{:?}", fixture.app("touch"));
    // Before it was looked at, and after: that is every two seconds.
    for _ in 0..60 {
        let counted = fixture.status().used.programs_bytes;
        assert!(counted < BYTES * 7 / 4, "{counted} bytes of {BYTES}\n{}", fixture.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let pages = PAGES * 8;
    program.expect(&format!("child write {pages} 3"), &format!("wrote {pages}"));
    let counted = || fixture.status().used.programs_bytes;
    let is_counted = poll(LONG, || (counted() > BYTES * 7 / 4).then_some(()));
    assert!(is_counted.is_some(), "{} bytes of its own are not", counted());
    program.expect("child quit", "child ended");
    let is_gone = poll(LONG, || (counted() < BYTES * 5 / 4).then_some(()));
    assert!(is_gone.is_some(), "{} bytes without it", counted());
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn a_child_is_swapped_out_itself() {
    let Some((mut fixture, mut program, sum)) = swapped_out("children::itself", &ZRAM) else {
        return;
    };
    let child = fork(&mut program, "fork-keep");
    let listed = poll(LONG, || fixture.process("touch", child));
    assert!(listed.is_some(), "{:?}\n{}", fixture.app("touch"), fixture.log());
    // All of it comes into the child alone, and is changed there.
    program.expect("child sum", &sum);
    program.expect("child write 3000 5", "wrote 3000");
    let childs = program.ask("child sum");
    assert!(childs != sum && childs.ends_with(" bad 0"), "{childs}");
    wait_managed(&fixture, child);
    assert!(rss_anon(child) >= BYTES * 8 / 10, "{} resident", rss_anon(child));
    for _ in 0..2 {
        swap_out(&fixture, child);
        swap_out(&fixture, program.pid);
        program.expect("child sum", &childs);
        program.expect("sum", &sum);
    }
    // Pages that both share after the fork, too.
    program.expect("child quit", "child ended");
    let child = fork(&mut program, "fork-keep");
    manage(&fixture, child);
    swap_out(&fixture, child);
    program.expect("child sum", &sum);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn grandchildren_and_many_at_once() {
    let Some((mut fixture, mut program, sum)) = swapped_out("children::many", &ZRAM) else {
        return;
    };
    let mut pids: Vec<u32> = (0..4).map(|_| fork(&mut program, "fork-keep")).collect();
    pids.extend((0..2).map(|_| fork(&mut program, "child fork-keep")));
    pids.push(fork(&mut program, "child child fork-keep"));
    pids.iter().for_each(|pid| manage(&fixture, *pid));
    program.expect("child child child sum", &sum);
    program.expect("child child child write 2000 5", "wrote 2000");
    let last = program.ask("child child child sum");
    swap_out(&fixture, pids[6]);
    program.expect("child child sum", &sum);
    program.expect("child sum", &sum);
    program.expect("sum", &sum);
    program.expect("child child child sum", &last);
    let app = fixture.app("touch");
    assert_eq!(app.processes.len(), 8, "{app:?}");
    assert!(app.processes.iter().all(|p| p.managed), "{app:?}");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn a_child_of_a_program_that_is_not_managed_yet() {
    let test = "children::unmanaged";
    if !can_run(test, &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let binary = compile(&fixture.dir, "touch.c", &[]);
    // Too small to be managed before it is asked for.
    let mut program = fixture.run("touch", &[binary.to_str().expect("UTF-8"), "300", "50", "7"]);
    program.wait_ready();
    let sum = program.ask("sum");
    let child = fork(&mut program, "fork-keep");
    let listed = poll(LONG, || fixture.process("touch", child));
    let listed = listed.unwrap_or_else(|| panic!("{:?}\n{}", fixture.app("touch"), fixture.log()));
    assert!(!listed.managed && listed.reason.starts_with("smaller than"), "{listed:?}");
    fixture.swap_out("touch");
    wait_managed(&fixture, child);
    let grandchild = fork(&mut program, "child fork-keep");
    let too_small =
        || fixture.process("touch", grandchild).filter(|p| p.reason.starts_with("smaller"));
    assert!(poll(LONG, too_small).is_some(), "{:?}", fixture.app("touch"));
    fixture.swap_out("touch");
    wait_managed(&fixture, grandchild);
    for (line, pid) in [("child child sum", grandchild), ("child sum", child), ("sum", program.pid)]
    {
        assert!(fixture.process("touch", pid).is_some_and(|p| p.stored_pages >= 250), "{line}");
        program.expect(line, &sum);
    }
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn storms_of_short_lived_children() {
    let Some((mut fixture, mut program, sum)) = swapped_out("children::storms", &ZRAM) else {
        return;
    };
    let child = fork(&mut program, "fork-keep");
    for _ in 0..3 {
        program.expect("storm 30", "stormed 30");
        program.expect("child storm 30", "stormed 30");
        fixture.swap_out("touch");
    }
    manage(&fixture, child);
    program.expect("child sum", &sum);
    program.expect("sum", &sum);
    let gone = poll(LONG, || (fixture.app("touch").processes.len() == 2).then_some(()));
    assert!(gone.is_some(), "{:?}", fixture.app("touch"));
    // No descriptor is left over from fork to fork.
    let high = std::fs::read_dir(format!("/proc/{child}/fd")).expect("its descriptors");
    let high = high.flatten().filter_map(|f| f.file_name().to_str()?.parse::<u32>().ok());
    assert_eq!(high.filter(|fd| *fd >= 500).count(), 1);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

#[test]
fn managed_children_are_taken_over() {
    // Daemons are killed as fast as they come here.
    let dir = TempDir::new();
    let config = dir.join("clew.toml");
    std::fs::write(&config, "max-short-lives = 1000000\n").expect("a config");
    let arguments = [&ZRAM[..], &["--config", config.to_str().expect("UTF-8")]].concat();
    let test = "children::taken_over";
    let Some((mut fixture, mut program, sum)) = swapped_out(test, &arguments) else { return };
    let child = fork(&mut program, "fork-keep");
    manage(&fixture, child);
    program.expect("child write 3000 5", "wrote 3000");
    let childs = program.ask("child sum");
    for round in 0..3 {
        swap_out(&fixture, child);
        fixture.kill_daemon();
        program.send("child sum");
        assert_eq!(
            program.read_within(Duration::from_millis(200)),
            None,
            "nobody brings its pages"
        );
        fixture.start_successor(&[]);
        assert_eq!(program.read(LONG), childs, "round {round}\n{}", fixture.log());
        wait_managed(&fixture, child);
        program.expect("sum", &sum);
    }
    // Killed while a child is being completed.
    for round in 0..12 {
        program.expect("child quit", "child ended");
        let child = fork(&mut program, "fork-keep");
        // It grows, and is prepared as soon as its agent has said who it is.
        program.send("child sum");
        std::thread::sleep(Duration::from_millis(95 + round * 20));
        fixture.kill_daemon();
        fixture.start_successor(&[]);
        assert_eq!(program.read(LONG), sum, "round {round}\n{}", fixture.log());
        fixture.swap_out("touch");
        program.expect("child sum", &sum);
        program.expect("sum", &sum);
        let app = fixture.app("touch");
        let alone = app.processes.iter().filter(|p| p.pid == child || p.pid == 0).count();
        assert_eq!(alone, 1, "{app:?}");
    }
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}
