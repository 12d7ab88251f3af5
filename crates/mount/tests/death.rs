//! The server dies: whoever reads gets an error and no wrong byte, and the next server takes the place.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clew_core::CodecKind;
use clew_mount::{Leaves, MountConfig, MountError, StatusError, status};
use rustix::io::Errno;
use support::{Chance, Mount, can_run, settle};

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

#[test]
fn readers_get_errors_and_the_next_server_takes_the_place() {
    if !can_run("readers_get_errors_and_the_next_server_takes_the_place", &[]) {
        return;
    }
    let mut mount = Mount::new(4 << 20, 256 << 10);
    let data = Chance::new(7).bytes(8 << 20);
    fs::write(mount.lower().join("f"), &data).unwrap();
    settle();
    for round in 0..5 {
        let path = mount.at().join("f");
        let (over, good) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for reader in 0..3 {
                let (path, data, over, good) = (&path, &data, &over, &good);
                scope.spawn(move || {
                    let mut chance = Chance::new(round * 10 + reader);
                    let file = File::open(path).unwrap();
                    let mut bytes = vec![0; 50_000];
                    loop {
                        let at = chance.below(data.len() as u64 - 50_000) as usize;
                        match file.read_at(&mut bytes, at as u64) {
                            Ok(read) => {
                                assert!(bytes[..read] == data[at..at + read], "a wrong byte");
                                good.fetch_add(1, Relaxed);
                            }
                            Err(_) if over.load(Relaxed) => return,
                            Err(error) => panic!("before its death: {error}"),
                        }
                    }
                });
            }
            while good.load(Relaxed) < 300 {
                std::thread::sleep(Duration::from_millis(1));
            }
            over.store(true, Relaxed);
            mount.kill();
        });
        let error = File::open(&path).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOTCONN.raw_os_error()));
        // A write is what it was: there, or not.
        mount.start(4 << 20, 256 << 10);
        assert!(fs::read(&path).unwrap() == data, "round {round}");
    }
}

/// Who asks a mount whose server is stopped, or would mount there, is told so, and waits no longer than that takes.
#[test]
fn who_asks_a_server_that_is_stopped_is_told_that_it_does_not_answer() {
    if !can_run("who_asks_a_server_that_is_stopped_is_told_that_it_does_not_answer", &[]) {
        return;
    }
    let mount = Mount::new(1 << 20, 1 << 20);
    fs::write(mount.lower().join("f"), b"text").unwrap();
    assert_eq!(fs::read(mount.at().join("f")).unwrap(), b"text");
    mount.stop();
    let asked = status(&mount.at());
    assert!(matches!(asked, Err(StatusError::Silent(_))), "{asked:?}");
    let config = MountConfig {
        directory: mount.lower(),
        mount_point: mount.at(),
        memory_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        codec: CodecKind::Lz4,
        leaves: Leaves::Oldest,
        selective: false,
        allow_other: false,
        may_follow: true,
        may_follow_below: true,
        timeout: Duration::ZERO,
    };
    let mounted = clew_mount::mount(config);
    assert!(matches!(mounted, Err(MountError::Silent(_))), "{mounted:?}");
    mount.go_on();
    assert_eq!(fs::read(mount.at().join("f")).unwrap(), b"text");
    assert!(status(&mount.at()).is_ok());
}
