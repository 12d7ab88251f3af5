//! Programs that use a userfaultfd of their own, or their own memory as a file: they get their memory back, all
//! of it, and are left alone from then on.

use clew_fixture::*;
use clew_live::programs::alone::Alone;

const UFFD: &str = "own_uffd.c";
const MEMORY: &str = "own_mem.c";

const BYTES: u64 = 16 << 20;
const SERVED: &str = "registered served 16 bad 0";

/// Under a daemon, filled.
fn start(fixture: &Fixture, source: &str, mode: &str) -> Program {
    let binary = compile(&fixture.dir, source, &[]);
    let mut program = fixture.run("own", &[binary.to_str().expect("UTF-8"), mode]);
    program.wait_ready();
    program
}

/// The same, managed, and most of it out.
fn swapped_out(fixture: &Fixture, source: &str, mode: &str) -> Program {
    let program = start(fixture, source, mode);
    fixture.wait_resident("own", BYTES * 9 / 10);
    fixture.swap_out_at_least("own", BYTES * 8 / 10);
    program
}

/// It is listed with the reason, has no agent, and nothing of it is out.
fn is_left_alone(fixture: &Fixture, program: &mut Program, why: Alone) {
    let listed = poll(LONG, || {
        let process = fixture.process("own", program.pid)?;
        (!process.managed && process.reason == why.to_string() && process.stored_pages == 0)
            .then_some(())
    });
    assert!(listed.is_some(), "{:?}\n{}", fixture.app("own"), fixture.log());
    let no_agent = poll(LONG, || agents_of(program.pid).is_empty().then_some(()));
    assert!(no_agent.is_some(), "{}", program.report());
    let said = fixture.verb(&["ps", "--format", "json"]);
    assert!(String::from_utf8_lossy(&said.stdout).contains(&why.to_string()), "{}", texts(&said));
    stays(fixture, program);
}

/// Nobody takes anything out of it.
fn stays(fixture: &Fixture, program: &mut Program) {
    let _ = fixture.try_swap_out("own"); // there is nothing to be taken
    // Copies that were kept of what came back go with what is known of it.
    let none = poll(LONG, || (fixture.status().pool.stored_pages == 0).then_some(()));
    assert!(none.is_some(), "{:?}\n{}", fixture.app("own"), fixture.log());
    assert!(rss_anon(program.pid) >= BYTES, "{} resident", rss_anon(program.pid));
    program.expect("check", "bad 0");
}

fn end(mut fixture: Fixture, program: Program) {
    program.quit();
    fixture.wait_all_freed("own");
    fixture.assert_daemon_lives();
}

#[test]
fn its_own_request_is_granted() {
    if !can_run("own_userfaultfd::its_own_request_is_granted", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let mut program = swapped_out(&fixture, UFFD, "libc");
    program.expect("register", SERVED);
    is_left_alone(&fixture, &mut program, Alone::Userfaultfd);
    end(fixture, program);
}

/// It makes system calls of its own: it is refused until its descriptor is found.
#[test]
fn it_is_found_out_where_it_does_not_ask() {
    if !can_run("own_userfaultfd::it_is_found_out_where_it_does_not_ask", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let mut program = swapped_out(&fixture, UFFD, "raw");
    program.expect("register", "registered at last served 16 bad 0");
    is_left_alone(&fixture, &mut program, Alone::Userfaultfd);
    end(fixture, program);
}

#[test]
fn one_that_has_it_already_is_not_managed() {
    if !can_run("own_userfaultfd::one_that_has_it_already_is_not_managed", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let mut program = start(&fixture, UFFD, "early");
    is_left_alone(&fixture, &mut program, Alone::Userfaultfd);
    program.expect("register", SERVED);
    stays(&fixture, &mut program);
    end(fixture, program);
}

/// A child has its parent's pages where they are stored, and lets go of its own memory only.
#[test]
fn a_child_goes_alone() {
    if !can_run("own_userfaultfd::a_child_goes_alone", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let mut program = swapped_out(&fixture, UFFD, "libc");
    program.expect("fork", "child 0");
    program.expect("check", "bad 0");
    let process = fixture.process("own", program.pid).expect("it is listed");
    assert!(process.managed && process.reason.is_empty(), "{process:?}");
    fixture.swap_out_at_least("own", BYTES * 8 / 10);
    program.expect("register", SERVED);
    is_left_alone(&fixture, &mut program, Alone::Userfaultfd);
    program.expect("fork", "child 0");
    end(fixture, program);
}

#[test]
fn a_successor_lets_go_and_takes_nothing_back() {
    if !can_run("own_userfaultfd::a_successor_lets_go_and_takes_nothing_back", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = start(&fixture, UFFD, "libc");
    fixture.wait_resident("own", BYTES * 9 / 10);
    // It asks while there is no daemon.
    program.expect("soon", "waiting");
    fixture.kill_daemon();
    assert!(signal(program.pid, "USR1"));
    // It waits: for an answer, or for a page before that.
    const SIGWAIT: &str = "128 ";
    let asks = poll(LONG, || {
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", program.pid)).ok()?;
        (!call.starts_with(SIGWAIT) && !call.starts_with("running")).then_some(())
    });
    assert!(asks.is_some(), "it does not ask\n{}", program.report());
    fixture.start_successor(&[]);
    assert_eq!(program.read(LONG), SERVED, "{}\n{}", program.report(), fixture.log());
    is_left_alone(&fixture, &mut program, Alone::Userfaultfd);
    fixture.kill_daemon();
    program.expect("check", "bad 0");
    fixture.start_successor(&[]);
    stays(&fixture, &mut program);
    let listed = fixture.process("own", program.pid);
    assert!(listed.is_none_or(|process| !process.managed), "{:?}", fixture.app("own"));
    end(fixture, program);
}

#[test]
fn memory_that_is_open_as_a_file_is_left_alone() {
    if !can_run("own_userfaultfd::memory_that_is_open_as_a_file_is_left_alone", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let mut program = start(&fixture, MEMORY, "early");
    is_left_alone(&fixture, &mut program, Alone::MemoryAsFile);
    program.expect("map", "mapped");
    program.expect("new", "refused 0");
    program.expect("old", "refused 0");
    stays(&fixture, &mut program);
    end(fixture, program);
}

/// What it maps after it has opened the file is not registered, and what is out comes back.
#[test]
fn memory_that_is_opened_late_comes_back() {
    if !can_run("own_userfaultfd::memory_that_is_opened_late_comes_back", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let mut program = swapped_out(&fixture, MEMORY, "late");
    program.expect("open", "open");
    program.expect("map", "mapped");
    // For this it is looked through, nearly always before its open files are anyway.
    let _ = fixture.try_swap_out("own");
    program.expect("new", "refused 0");
    is_left_alone(&fixture, &mut program, Alone::MemoryAsFile);
    program.expect("old", "refused 0");
    stays(&fixture, &mut program);
    end(fixture, program);
}
