//! The file that names a keeper, removed or changed by whoever may write beside the socket.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use clew_fixture::touch::{BYTES, ZRAM, swapped_out};
use clew_fixture::*;
use clew_live::control::client::Client;
use clew_live::control::protocol::Request;
use clew_live::survival::predecessor::ProcessName;

/// Does it in each way: while the daemon lives, right before it is killed, or afterwards.
fn keeper_is_found(case: &str, is_before: bool) {
    let Some((mut fixture, mut program, sum)) = swapped_out(case, &ZRAM) else { return };
    let file = fixture.socket.with_extension("keeper");
    let own = ProcessName::of(std::process::id()).expect("it lives");
    let own = format!("{} {} 1 5\n", own.pid, own.started);
    // Process 1 began at no such time. What the next one says of it, if it begins nothing.
    let ways = [
        ("removed", None, None),
        ("nobody's", Some("1 1 1 5\n"), None),
        ("damaged", Some("none"), Some("damaged?")),
        ("another's", Some(&own), Some("taking over")),
    ];
    for (name, text, refused) in ways {
        let change = || match text {
            None => fs::remove_file(&file).expect("it is ours"),
            Some(text) => fs::write(&file, text).expect("it is ours"),
        };
        let status = fixture.status();
        if is_before {
            // It would write it again.
            assert!(signal(status.daemon_pid, "STOP"));
            change();
        }
        fixture.kill_daemon();
        if is_before {
            // Its keeper looks at once what is written there.
            sleep(Duration::from_millis(300));
        } else {
            change();
        }
        let comm = fs::read(format!("/proc/{}/comm", status.keeper_pid));
        assert_eq!(comm.expect("the keeper lives"), b"clew-keeper\n", "{name}");
        program.send("sum");
        if let Some(why) = refused {
            let refused = fixture.verb(&["daemon", "--budget", "1GiB", "--scheme", "zram"]);
            assert_eq!(refused.status.code(), Some(1), "{}", texts(&refused));
            assert!(texts(&refused).contains(why), "{}", texts(&refused));
            fs::remove_file(&file).expect("it is ours");
        }
        fixture.start_successor(&[]);
        assert_eq!(program.read(LONG), sum, "{name}\n{}", fixture.log());
        let said = fixture.log().contains("does not name the keeper of the last daemon");
        assert!(said, "{name}\n{}", fixture.log());
        let now = fs::read_to_string(&file).expect("it is there again");
        let keeper = fixture.status().keeper_pid;
        assert!(now.starts_with(&format!("{keeper} ")), "{now}, and not {keeper}");
        fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    }
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success());
    program.expect("sum", &sum);
    program.quit();
}

#[test]
fn a_keeper_is_found_whose_file_is_gone_after_a_death() {
    keeper_is_found("badge::after", false);
}

#[test]
fn a_keeper_stays_whose_file_is_gone_before_a_death() {
    keeper_is_found("badge::before", true);
}

/// A keeper's start is told differently there, as if it were another process.
#[test]
fn in_another_time_namespace_nothing_is_begun_anew() {
    let Some((mut fixture, mut program, sum)) = swapped_out("badge::time", &ZRAM) else { return };
    if !run_to_end(Command::new("unshare").args(["-T", "true"]), LONG).status.success() {
        return skip("badge::time", "no time namespaces");
    }
    let file = fixture.socket.with_extension("keeper");
    fixture.kill_daemon();
    for is_there in [true, false] {
        let mut command = Command::new("unshare");
        command.args(["-T", "--boottime", "100000", "--fork", env!("CARGO_BIN_EXE_clew")]);
        command.args(["daemon", "--budget", "1GiB", "--socket"]).arg(&fixture.socket);
        let refused = run_to_end(&mut command, LONG);
        assert_eq!(refused.status.code(), Some(1), "{is_there}: {}", texts(&refused));
        assert!(texts(&refused).contains("time namespace"), "{is_there}: {}", texts(&refused));
        if is_there {
            fs::remove_file(&file).expect("it is ours");
        }
    }
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// All that is beside the socket of one that lives is removed: it makes that again, and whoever comes before is no second one.
#[test]
fn a_keeper_is_taken_from_no_daemon_that_lives() {
    let Some((mut fixture, mut program, sum)) = swapped_out("badge::living", &ZRAM) else { return };
    let status = fixture.status();
    assert!(signal(status.daemon_pid, "STOP"));
    let beside = ["pid", "keeper", "agents"].map(|what| fixture.socket.with_extension(what));
    for path in beside.iter().chain([&fixture.socket]) {
        fs::remove_file(path).expect("it is ours");
    }
    let second = fixture.verb(&["daemon", "--budget", "1GiB", "--scheme", "zram"]);
    assert_eq!(second.status.code(), Some(1), "{}", texts(&second));
    let pid = format!("process {}", status.daemon_pid);
    assert!(texts(&second).contains(&pid), "{}", texts(&second));
    assert!(signal(status.daemon_pid, "CONT"));
    program.expect("sum", &sum);
    let is_back = || {
        let client = Client::connect(&fixture.socket);
        client.and_then(|mut client| client.status()).ok()
    };
    assert_eq!(poll(LONG, is_back).map(|status| status.daemon_pid), Some(status.daemon_pid));
    fixture.swap_out_at_least("touch", BYTES * 8 / 10);
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// The file names the keeper of another place, whose daemon lives, in the moment of a death.
#[test]
fn a_keeper_of_another_place_is_not_taken() {
    let test = "badge::elsewhere";
    if !can_run(test, &["python3"]) {
        return;
    }
    let Some((mut fixture, mut program, sum)) = swapped_out(test, &ZRAM) else { return };
    let elsewhere = fixture.dir.join("elsewhere");
    fs::create_dir(&elsewhere).expect("it is ours");
    let mut other = forger(&["python3"], &elsewhere.join("s"), 9, 0);
    let name = ProcessName::of(other.0.id()).expect("it lives");
    assert!(signal(fixture.status().daemon_pid, "STOP"));
    let file = fixture.socket.with_extension("keeper");
    let change = || {
        let text = format!("{} {} 9 3\n", name.pid, name.started);
        fs::write(&file, text).expect("it is ours");
    };
    change();
    fixture.kill_daemon();
    // Its keeper looks at once what is written there.
    sleep(Duration::from_millis(300));
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.order(&Request::Stop);
    assert!(fixture.wait_daemon(LONG).success());
    // Where there is no keeper of this place, either.
    change();
    let refused = fixture.verb(&["daemon", "--budget", "1GiB", "--scheme", "zram"]);
    assert_eq!(refused.status.code(), Some(1), "{}", texts(&refused));
    assert!(texts(&refused).contains(&format!("process {}", name.pid)), "{}", texts(&refused));
    assert!(other.0.try_wait().expect("it is ours").is_none(), "the other one was ended");
}

/// Whoever cannot look at what there is begins nothing: the next one finds the keeper.
#[test]
fn without_descriptors_nothing_is_begun_anew() {
    let Some((mut fixture, mut program, sum)) = swapped_out("badge::descriptors", &ZRAM) else {
        return;
    };
    fixture.kill_daemon();
    fs::remove_file(fixture.socket.with_extension("keeper")).expect("it is ours");
    let mut said = String::new();
    for limit in 3..=12 {
        let mut command = Command::new("prlimit");
        command.args([&format!("--nofile={limit}"), env!("CARGO_BIN_EXE_clew")]);
        command.args(["daemon", "--budget", "1GiB", "--socket"]).arg(&fixture.socket);
        let refused = run_to_end(&mut command, LONG);
        // With the fewest of them the loader finds none for a library.
        assert!(!refused.status.success(), "{limit}: {}", texts(&refused));
        said += &texts(&refused);
    }
    assert!(said.contains("looking for the keeper of"), "none came as far as that:\n{said}");
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// What a container's root has is not this machine's root's, whatever it is called and says of itself.
#[test]
fn a_keeper_in_a_container_is_nobodys() {
    let test = "badge::container";
    if !can_run(test, &["python3", "unshare"]) {
        return;
    }
    if !run_to_end(Command::new("unshare").args(["-Urpf", "true"]), LONG).status.success() {
        return skip(test, "no user namespaces");
    }
    let Some((mut fixture, mut program, sum)) = swapped_out(test, &ZRAM) else { return };
    let keeper = fixture.socket.with_extension("keeper");
    let said = fs::read_to_string(&keeper).expect("it is there");
    let generation: u64 = said.split(' ').nth(2).and_then(|n| n.parse().ok()).expect("a number");
    fixture.kill_daemon();
    fs::remove_file(&keeper).expect("it is ours");
    let container = ["unshare", "-Urpf", "--kill-child", "python3"];
    let mut forger = forger(&container, &fixture.socket, generation + 1, 0);
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    assert!(forger.0.try_wait().expect("it is ours").is_none(), "it has ended before");
    program.quit();
    fixture.wait_all_freed("touch");
    fixture.assert_daemon_lives();
}

/// Who executes a program that becomes root decides what that is called and what descriptors it has, and so what is in them.
#[test]
fn memory_that_another_user_made_is_no_keepers() {
    let test = "badge::another_user";
    if !can_run(test, &["python3"]) {
        return;
    }
    let Some((mut fixture, mut program, sum)) = swapped_out(test, &ZRAM) else { return };
    let keeper = fixture.socket.with_extension("keeper");
    let said = fs::read_to_string(&keeper).expect("it is there");
    fixture.kill_daemon();
    fs::remove_file(&keeper).expect("it is ours");
    let mut forger = forger(&["python3"], &fixture.socket, 1 << 40, other_user::ID);
    fixture.start_successor(&[]);
    program.expect("sum", &sum);
    program.quit();
    fixture.wait_all_freed("touch");
    // Whoever is named must have memory of ours, too.
    fixture.kill_daemon();
    let own = fs::read_to_string(&keeper).expect("it is there");
    assert_ne!(own, said);
    let name = ProcessName::of(forger.0.id()).expect("it lives");
    fs::write(&keeper, format!("{} {} 9 3\n", name.pid, name.started)).expect("it is ours");
    let refused = fixture.verb(&["daemon", "--budget", "1GiB", "--scheme", "zram"]);
    assert_eq!(refused.status.code(), Some(1), "{}", texts(&refused));
    assert!(texts(&refused).contains("another user's"), "{}", texts(&refused));
    assert!(forger.0.try_wait().expect("it is ours").is_none(), "it was ended");
    fs::write(&keeper, own).expect("it is ours");
    fixture.start_successor(&[]);
    fixture.assert_daemon_lives();
}

/// A process that says of itself that it is the keeper of that socket, and its daemon, too; begun by `command`. Its memory
/// is of `user`.
fn forger(command: &[&str], socket: &Path, generation: u64, user: u32) -> KilledAtEnd {
    let mut python = Command::new(command[0]);
    python.args(&command[1..]).args(["-c", FORGER]).arg(socket);
    python.args([generation.to_string(), user.to_string()]);
    let forger = KilledAtEnd(python.spawn().expect("it starts"));
    let ready = socket.with_file_name("forged");
    poll(LONG, || ready.exists().then_some(())).expect("it forges");
    forger
}

/// It finds out by itself which process it is where `/proc` was mounted, outside of its container.
const FORGER: &str = r#"
import ctypes, os, sys, time

socket, generation = sys.argv[1], int(sys.argv[2])
directory = os.path.dirname(socket)
ctypes.CDLL(None).prctl(15, b"clew-keeper", 0, 0, 0)
pid = int(os.readlink("/proc/self"))
stat = open("/proc/self/stat").read()
started = int(stat.rsplit(")", 1)[1].split()[19])
place = os.stat(directory)
numbers = [pid, started, generation, 3, pid, started, place.st_dev, place.st_ino]
os.seteuid(int(sys.argv[3]))
badge = os.memfd_create("clew-keeper-badge")
os.seteuid(0)
os.fchmod(badge, 0o600)
os.write(badge, " ".join(map(str, numbers)).encode() + b" " + os.path.basename(socket).encode())
open(os.path.join(directory, "forged"), "w").close()
time.sleep(600)
"#;
