//! Programs without an agent under `clew govern`: static ones, those in namespaces of their own, and others as they
//! are. Whatever becomes of the governor, they answer right. Each test has a zram device of its own.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};

use clew_bench::cgroup::Cgroup;
use clew_fixture::governed::{Ground, number, programs, touch};
use clew_fixture::touch::{BYTES, PAGES};
use clew_fixture::*;
use clew_live::programs::advice::{advise, pidfd};
use rustix::io::ioctl_fionread;

/// A process that does not outlive its test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the kernel take all of a program's pages, as it might by itself.
fn kernel_takes_all(program: &mut Program) {
    const MADV_PAGEOUT: i32 = 21;
    let place = program.ask("where");
    let address = place.strip_prefix("at ").and_then(|hex| u64::from_str_radix(hex, 16).ok());
    let range = (address.expect("an address"), BYTES);
    let process = pidfd(program.pid).expect("it lives");
    advise(&process, &[range], MADV_PAGEOUT).expect("root may");
}

#[test]
fn a_static_program_is_governed_and_answers_right() {
    let Some(ground) = Ground::new("govern::static", &[]) else { return };
    // Its name is as hostile as a name can be.
    let binary = ground.dir.join("t\x1b[2J");
    fs::rename(ground.static_touch(), &binary).expect("another name");
    let (mut program, _) = ground.start("static", touch(&binary, PAGES));
    let sum = program.ask("sum");
    assert!(sum.ends_with(" bad 0"), "{sum}");
    let pid = program.pid.to_string();
    let mut governor = ground.govern("32MiB", &[&pid]);
    let status = governor.wait_swapped(PAGES / 2);
    assert!(number(&status, "paged_out_pages") >= PAGES / 2, "{status:#}");
    let resident = poll(LONG, || (rss_anon(program.pid) < BYTES / 2).then_some(()));
    assert!(resident.is_some(), "{} bytes", rss_anon(program.pid));
    assert_eq!(program.ask("sum"), sum);
    // All of it came back by faults, which were heard, and leaves again.
    let status = governor.wait_swapped(PAGES / 2);
    assert!(number(&status["apps"][0], "faults") > PAGES / 4, "{status:#}");
    program.ask("write 500 3");
    program.expect("drop 1000 500", "dropped 500");
    program.expect("move", "moved");
    let changed = program.ask("sum");
    assert!(changed.ends_with(" bad 0"), "{changed}");
    governor.wait_swapped(PAGES / 2);
    assert_eq!(program.ask("sum"), changed);
    assert_eq!(program.ask("fork-sum"), format!("fork-{changed}"));
    let mut text = clew();
    text.args(["govern", "--budget", "32MiB", &pid]).stdin(Stdio::null());
    let mut text = Program::start(&ground.dir, "text", text);
    let said = poll(LONG, || text.errors().contains("governing").then_some(()));
    assert!(said.is_some(), "{}", text.errors());
    signal(text.pid, "INT");
    let shown = text.rest(LONG).join("\n");
    assert!(shown.contains("t\\x1b[2J") && !shown.contains('\x1b'), "{shown:?}");
    assert!(text.wait(LONG).success());
    // What it becomes is another memory, and is governed too.
    program.send("exec");
    program.wait_ready();
    governor.wait_swapped(PAGES / 2);
    assert!(program.ask("sum").ends_with(" bad 0"));
    // It ends when there is nothing left.
    program.quit();
    governor.object();
    assert!(governor.0.wait(LONG).success(), "{}", governor.0.errors());
}

#[test]
fn who_reads_nothing_of_what_it_says_keeps_it_neither_from_governing_nor_from_its_end() {
    let Some(ground) = Ground::new("govern::unread", &[]) else { return };
    let (mut program, _) = ground.start("static", touch(&ground.static_touch(), PAGES));
    let sum = program.ask("sum");
    let mut command = clew();
    command.args(["--format", "json", "govern", "--orders", "--budget", "24MiB"]);
    command.arg(program.pid.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut governor = Ended(command.spawn().expect("a governor"));
    let mut orders = governor.0.stdin.take().expect("a pipe");
    let unread = governor.0.stdout.take().expect("a pipe");
    // Who is told too much does not listen, either.
    let asking = std::thread::spawn(move || {
        let _ = orders.write_all("status\n".repeat(2_000).as_bytes());
        orders
    });
    // When nothing more comes the pipe is full.
    let (mut had, mut looks) = (0, 0);
    let is_full = poll(LONG, || {
        let has = ioctl_fionread(&unread).expect("a pipe");
        looks = if has > 0 && has == had { looks + 1 } else { 0 };
        had = has;
        std::thread::sleep(std::time::Duration::from_millis(50));
        (looks > 40).then_some(())
    });
    assert!(is_full.is_some(), "{had} bytes");
    assert_eq!(program.ask("sum"), sum);
    let resident = poll(LONG, || (rss_anon(program.pid) < BYTES / 2).then_some(()));
    assert!(resident.is_some(), "{} bytes", rss_anon(program.pid));
    assert_eq!(program.ask("sum"), sum);
    signal(governor.0.id(), "TERM");
    let ended = poll(LONG, || governor.0.try_wait().expect("ours"));
    assert!(ended.is_some(), "it goes on");
    drop(asking.join());
    program.quit();
}

#[test]
fn a_governor_that_is_killed_takes_nothing_with_it() {
    let Some(ground) = Ground::new("govern::killed", &[]) else { return };
    let (mut program, _) = ground.start("static", touch(&ground.static_touch(), PAGES));
    let (sum, pid) = (program.ask("sum"), program.pid.to_string());
    for least in [PAGES / 16, PAGES / 4, PAGES / 2] {
        let mut governor = ground.govern("24MiB", &[&pid]);
        governor.wait_swapped(least);
        governor.0.kill();
        assert_eq!(program.ask("sum"), sum);
    }
    // The next one finds what is out.
    let mut governor = ground.govern("24MiB", &[&pid]);
    governor.wait_swapped(PAGES / 2);
    governor.end();
    let mut governor = ground.govern("2GiB", &[&pid]);
    let status = governor.wait_swapped(PAGES / 2);
    assert_eq!(number(&status, "paged_out_pages"), 0, "{status:#}");
    assert_eq!(program.ask("sum"), sum);
    governor.end();
    program.quit();
}

#[test]
fn what_a_return_will_use_is_read_ahead() {
    let Some(ground) = Ground::new("govern::ahead", &[]) else { return };
    let (mut program, _) = ground.start("static", touch(&ground.static_touch(), PAGES));
    let pid = program.pid.to_string();
    // With room for all of it: what is out, the kernel took.
    let mut governor = ground.govern("1GiB", &[&pid]);
    let mut status = governor.status();
    let mut rounds_with_use = 0;
    // On a busy machine what was read may wait too long for its use; then nothing is read for some returns.
    for round in 0..64 {
        let used = number(&status, "brought_used_pages");
        kernel_takes_all(&mut program);
        governor.wait_swapped(PAGES * 9 / 10);
        governor.0.send(&format!("fg {pid}"));
        // Answered behind the order.
        status = governor.status();
        assert_eq!(status["apps"][0]["state"], "foreground", "round {round}: {status:#}");
        assert_eq!(status["apps"][0]["told"], true);
        program.expect("touch random 1500 5", "touched 1500 bad 0");
        governor.0.send(&format!("bg {pid}"));
        status = governor.status();
        rounds_with_use += u32::from(number(&status, "brought_used_pages") > used);
        if rounds_with_use == 2 {
            break;
        }
    }
    assert_eq!(rounds_with_use, 2, "what was read is not used: {status:#}");
    assert!(number(&status, "brought_pages") >= number(&status, "brought_used_pages"));
    governor.0.send("fg 1");
    governor.0.send("nonsense");
    governor.status();
    let errors = governor.0.errors();
    assert!(errors.contains("process 1 is not governed"), "{errors}");
    assert!(errors.contains("'nonsense': expected"), "{errors}");
    assert!(program.ask("sum").ends_with(" bad 0"));
    governor.end();
    program.quit();
}

#[test]
fn who_works_is_in_front_where_nobody_says_so() {
    let Some(ground) = Ground::new("govern::activity", &[]) else { return };
    let (mut program, _) = ground.start("static", touch(&ground.static_touch(), PAGES));
    let mut governor = ground.govern("1GiB", &[&program.pid.to_string()]);
    let found = poll(LONG, || {
        program.ask("sum");
        (governor.status()["apps"][0]["state"] == "foreground").then_some(())
    });
    assert!(found.is_some(), "{:#}", governor.status());
    let status = governor.wait("quiet", |status| status["apps"][0]["state"] == "background");
    assert_eq!(status["apps"][0]["told"], false);
    governor.end();
    program.quit();
}

#[test]
fn a_program_in_namespaces_of_its_own_is_governed() {
    let Some(ground) = Ground::new("govern::namespaces", &["unshare"]) else { return };
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc"]);
    command.arg(ground.static_touch()).args([&PAGES.to_string(), "50", "7"]);
    let mut probe = Command::new("unshare");
    let probe =
        probe.args(["--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "true"]);
    if !run_to_end(probe, LONG).status.success() {
        return skip("govern::namespaces", "no user and pid namespaces");
    }
    let (mut program, root) = ground.start("unshared", command);
    assert_ne!(program.pid, root, "it has another id in there");
    let sum = program.ask("sum");
    let mut governor = ground.govern("32MiB", &[&root.to_string()]);
    let status = governor.wait_swapped(PAGES / 2);
    assert_eq!(programs(&status).len(), 1, "{status:#}");
    assert_eq!(program.ask("sum"), sum);
    let status = governor.wait("faults", |status| number(&status["apps"][0], "faults") > PAGES / 8);
    assert_eq!(number(&status["apps"][0], "root"), u64::from(root));
    governor.end();
    program.quit();
}

#[test]
fn a_database_is_governed_as_it_is() {
    let Some(ground) = Ground::new("govern::sqlite", &["sqlite3"]) else { return };
    let mut command = Command::new("sqlite3");
    command.args(["-batch", ":memory:"]);
    let mut database = Program::start(&ground.dir, "sqlite3", command);
    database.send(
        "create table t(i integer primary key, b text); \
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000) \
         insert into t select i, printf('%01000d', i * 7919) from n; select 'filled';",
    );
    database.wait_line("filled", LONG);
    const QUESTION: &str = "select sum(i * unicode(substr(b, 998, 1))), count(*) from t;";
    let answer = database.ask(QUESTION);
    assert!(answer.ends_with("|40000"), "{answer}");
    let mut governor = ground.govern("24MiB", &[&database.pid.to_string()]);
    for _ in 0..3 {
        governor.wait_swapped(3000);
        assert_eq!(database.ask(QUESTION), answer);
    }
    governor.end();
    database.kill();
}

#[test]
fn recurring_pages_are_kept_young_while_the_kernel_reclaims() {
    let Some(ground) = Ground::new("govern::young", &[]) else { return };
    let group = match Cgroup::create("govern-young") {
        Ok(group) => group,
        Err(error) => return skip("govern::young", &error.to_string()),
    };
    let binary = ground.static_touch();
    let enter = |pid: u32| {
        for entrance in group.entrances() {
            fs::write(entrance, pid.to_string()).expect("the group takes a process");
        }
    };
    let entered = |name: &str| {
        // In the group before it fills its memory.
        let mut command = Command::new("sh");
        command.args(["-c", "read go; exec \"$@\"", "sh"]).arg(&binary);
        command.args([&PAGES.to_string(), "50", "7"]);
        let mut program = Program::start(&ground.dir, name, command);
        enter(program.pid);
        program.send("go");
        program.wait_ready();
        program
    };
    let (mut behind, mut other) = (entered("behind"), entered("other"));
    let sums = (behind.ask("sum"), other.ask("sum"));
    group.prefer_swapping().expect("ours to set");
    group.limit(BYTES * 3 / 4).expect("what is too much is swapped");
    let pids = [behind.pid.to_string(), other.pid.to_string()];
    // It never takes out anything by itself: the kernel does.
    let mut governor = ground.govern("2GiB", &[&pids[0], &pids[1]]);
    let kept = poll(LONG, || {
        governor.0.send(&format!("fg {}", pids[0]));
        governor.status();
        behind.expect("touch random 1500 5", "touched 1500 bad 0");
        governor.0.send(&format!("bg {}", pids[0]));
        // The other's memory alone does not fit.
        for _ in 0..3 {
            other.expect("touch seq", &format!("touched {PAGES} bad 0"));
        }
        Some(governor.status()).filter(|status| number(status, "kept_young_pages") > 0)
    });
    let status = kept.unwrap_or_else(|| panic!("{:#}", governor.status()));
    assert!(number(&status, "kernel_out_pages") > 0, "{status:#}");
    assert_eq!(number(&status, "paged_out_pages"), 0, "{status:#}");
    assert_eq!((behind.ask("sum"), other.ask("sum")), sums);
    governor.end();
    behind.quit();
    other.quit();
}

#[test]
fn the_processes_of_a_control_group_are_governed_until_it_is_gone() {
    let Some(ground) = Ground::new("govern::group", &[]) else { return };
    let group = match Cgroup::create("govern-group") {
        Ok(group) => group,
        Err(error) => return skip("govern::group", &error.to_string()),
    };
    let entrance = group.entrances().remove(0);
    let directory = entrance.parent().expect("a directory").to_str().expect("UTF-8").to_string();
    let mut governor = ground.govern("40MiB", &[&directory]);
    assert_eq!(programs(&governor.status()).len(), 0);
    let binary = ground.static_touch();
    let mut started: Vec<Program> = Vec::new();
    for name in ["first", "second"] {
        let (program, _) = ground.start(name, touch(&binary, PAGES / 2));
        fs::write(&entrance, program.pid.to_string()).expect("the group takes a process");
        started.push(program);
    }
    let status = governor.wait_swapped(PAGES / 2);
    assert_eq!(status["apps"].as_array().map(Vec::len), Some(2), "each is an app: {status:#}");
    for program in &mut started {
        assert!(program.ask("sum").ends_with(" bad 0"));
    }
    started.into_iter().for_each(Program::quit);
    governor.wait("end of the apps", |status| status["apps"].as_array().is_some_and(Vec::is_empty));
    drop(group);
    governor.object();
    assert!(governor.0.wait(LONG).success(), "{}", governor.0.errors());
}

#[test]
fn a_program_can_be_started_and_its_end_is_the_end() {
    let Some(ground) = Ground::new("govern::run", &[]) else { return };
    let _ = &ground;
    let ends = |words: &[&str]| {
        let output = run_to_end(clew().args(["govern", "--"]).args(words), LONG);
        output.status.code()
    };
    assert_eq!(ends(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(ends(&["true"]), Some(0));
    assert_eq!(ends(&["no-such-program-anywhere"]), Some(127));
}

#[test]
fn what_cannot_be_governed_is_refused_with_the_reason() {
    let refused = |words: &[&str]| {
        let output = run_to_end(clew().arg("govern").args(words), LONG);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    for (words, why) in [
        (&["--scheme", "mobileswap", "1"][..], "donors"),
        (&["--scheme", "flash-swap", "1"], "flash"),
        (&["--scheme", "nosw", "1"], "takes nothing out"),
        (&["--scheme", "nosuch", "1"], "nosuch"),
        (&["--budget", "1MiB", "1"], "16MiB"),
        (&["4194305"], "no process"),
        (&["/tmp"], "not that of a control group"),
    ] {
        let (code, said) = refused(words);
        assert!(code == Some(2) && said.contains(why), "{words:?}: {code:?} {said}");
    }
    let swaps = fs::read_to_string("/proc/swaps").expect("/proc/swaps");
    if swaps.lines().count() > 1 {
        return skip("govern::refused", "this machine has swap; that it says so is not tried");
    }
    let (code, said) = refused(&[&std::process::id().to_string()]);
    assert!(code == Some(3) && said.contains("no swap"), "{code:?} {said}");
}
