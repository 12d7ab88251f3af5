//! Requests that come by io_uring. The kernel offers that to mounts that are made while an administrator allows it, which these
//! tests do for as long as they run.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use support::{Chance, LONG, Mount, can_run, skip_because};

const ALLOWED_BY: &str = clew_mount::ALLOWED_BY;

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

/// Allows it, and gives back what was said before.
struct Allowed(String);

impl Allowed {
    fn now(test: &str) -> Option<Allowed> {
        let before = fs::read_to_string(ALLOWED_BY).ok()?;
        if fs::write(ALLOWED_BY, "Y").is_err() {
            skip_because(test, "nobody may allow io_uring here");
            return None;
        }
        Some(Allowed(before))
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        let _ = fs::write(ALLOWED_BY, self.0.trim());
    }
}

/// Locks a file, says so, and ends with its input. Who waits for that, keeps the request that the kernel has made for it.
fn locks(mount: &Mount) -> Child {
    let locks = "import fcntl, sys\n\
        file = open(sys.argv[1], 'r+b')\n\
        print('begins', flush=True)\n\
        fcntl.lockf(file, fcntl.LOCK_EX)\n\
        print('has it', flush=True)\n\
        sys.stdin.read()\n";
    Command::new("python3")
        .args(["-c", locks, mount.at().join("locked").to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// One test, as what is allowed is so for the whole machine.
#[test]
fn requests_by_io_uring_are_answered_as_all_are() {
    const TEST: &str = "requests_by_io_uring_are_answered_as_all_are";
    const BYTES: u64 = 3 << 20;
    if !can_run(TEST, &["python3"]) {
        return;
    }
    if fs::read_to_string(ALLOWED_BY).is_err() {
        return skip_because(TEST, "this kernel asks by /dev/fuse alone");
    }
    let Some(allowed) = Allowed::now(TEST) else { return };
    let mut mount = Mount::new(8 << 20, 1 << 20);
    drop(allowed);
    assert!(mount.status().by_io_uring, "{:?}", mount.status());

    // Of any length, from anywhere, written and read by several at once.
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let mount = &mount;
            scope.spawn(move || {
                let mut chance = Chance::new(thread);
                let path = mount.at().join(format!("f{thread}"));
                let mut wanted = vec![0u8; BYTES as usize];
                let file = File::create_new(&path).unwrap();
                file.set_len(BYTES).unwrap();
                let file = File::options().read(true).write(true).open(path).unwrap();
                for round in 0..200 {
                    let at = chance.below(BYTES);
                    let longest = if round % 10 == 0 { 1 << 20 } else { 20_000 };
                    let len = chance.below(longest.min(BYTES - at)) as usize;
                    if round % 3 == 0 {
                        let bytes = chance.bytes(len);
                        wanted[at as usize..][..len].copy_from_slice(&bytes);
                        file.write_all_at(&bytes, at).unwrap();
                    }
                    let mut found = vec![0; len];
                    file.read_exact_at(&mut found, at).unwrap();
                    assert!(found == wanted[at as usize..][..len], "{len} bytes at {at}");
                }
            });
        }
    });

    // More who wait than there are threads that answer, and others are answered meanwhile.
    File::create(mount.at().join("locked")).unwrap();
    let mut locking: Vec<Child> = (0..25).map(|_| locks(&mount)).collect();
    let lines = |child: &mut Child| BufReader::new(child.stdout.take().unwrap()).lines();
    let mut said: Vec<_> = locking.iter_mut().map(lines).collect();
    for said in &mut said {
        assert_eq!(said.next().unwrap().unwrap(), "begins");
    }
    for name in 0..200 {
        let path = mount.at().join(format!("n{name}"));
        File::create(&path).unwrap().write_all(b"meanwhile").unwrap();
        let mut found = String::new();
        File::open(&path).unwrap().read_to_string(&mut found).unwrap();
        assert_eq!(found, "meanwhile");
        fs::remove_file(&path).unwrap();
    }
    // One of them has it. Some are killed, and whoever is left gets it in turn.
    for child in locking.iter_mut().take(8) {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    for child in locking.iter_mut().skip(8) {
        drop(child.stdin.take());
    }
    for (child, said) in locking.iter_mut().zip(&mut said).skip(8) {
        assert_eq!(said.next().unwrap().unwrap(), "has it");
        assert!(child.wait().unwrap().success());
    }

    // Who dies holds up nobody.
    let asked = Instant::now();
    mount.kill();
    while File::open(mount.at().join("f0")).is_ok() {
        assert!(asked.elapsed() < LONG, "a server that is dead answers");
    }
}
