//! A mount by a process of its own, so that it can be killed and nobody waits for itself.
//!
//! The process is this test's program again, which runs one test alone, [`serve`]: it is asked for by name
//! and by environment.
#![allow(dead_code, reason = "each test uses some of it")]

#[path = "../../../../tests/skip.rs"]
mod skip;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clew_core::CodecKind;
use clew_mount::{Leaves, MountConfig, Status, mount, status};
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, kill_process, setrlimit, waitpid,
};

/// Longer than anything here takes on a slow and busy machine.
pub const LONG: Duration = Duration::from_secs(60);

/// Whether `test` can run: root, FUSE, and `programs`. Says so if not.
pub fn can_run(test: &str, programs: &[&str]) -> bool {
    let there = |program: &&&str| {
        std::env::var_os("PATH").is_some_and(|path| {
            std::env::split_paths(&path).any(|directory| directory.join(program).exists())
        })
    };
    let reason = if !rustix::process::geteuid().is_root() {
        "not root".to_string()
    } else if !Path::new("/dev/fuse").exists() {
        "the kernel has no FUSE".to_string()
    } else if let Some(missing) = programs.iter().find(|program| !there(program)) {
        format!("no {missing}")
    } else {
        return true;
    };
    skip::skip(test, &reason);
    false
}

/// Says that a test did not run, and why.
pub fn skip_because(test: &str, reason: &str) {
    skip::skip(test, reason);
}

/// What the process is: the body of the test `serve` of every program that uses this.
pub fn serve() {
    let of = |name: &str| std::env::var_os(name);
    let (Some(directory), Some(mount_point)) = (of("CLEW_MOUNT_LOWER"), of("CLEW_MOUNT_AT")) else {
        return;
    };
    let number = |name: &str| of(name).unwrap().into_string().unwrap().parse::<u64>().unwrap();
    if let files @ 1.. = number("CLEW_MOUNT_FILES") {
        let limit = Rlimit { current: Some(files), maximum: Some(files) };
        setrlimit(Resource::Nofile, limit).unwrap();
    }
    let mounted = mount(MountConfig {
        may_follow: true,
        may_follow_below: true,
        directory: directory.into(),
        mount_point: mount_point.into(),
        memory_bytes: number("CLEW_MOUNT_POOL"),
        cache_bytes: number("CLEW_MOUNT_CACHE"),
        codec: CodecKind::Lz4,
        leaves: if number("CLEW_MOUNT_LOTTERY") == 1 { Leaves::Lottery } else { Leaves::Oldest },
        selective: true,
        allow_other: number("CLEW_MOUNT_OTHERS") == 1,
        timeout: Duration::from_millis(number("CLEW_MOUNT_BELIEVE")),
    })
    .unwrap();
    // It ends in order when nobody has the other end any more.
    let asked = std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    while !mounted.is_over() && !asked.is_finished() {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A directory, a mount of it, and its server.
pub struct Mount {
    place: tempfile::TempDir,
    server: Option<Child>,
    /// How long the kernel believes names and attributes, ms.
    believe_ms: u64,
    /// Whether other users may use it.
    others: bool,
    /// Descriptors that its server may have; zero for as many as there are.
    files: u64,
    /// Whether what leaves its pool is drawn, from the next server on.
    pub lottery: bool,
}

impl Mount {
    /// Mounts an empty directory.
    pub fn new(pool_bytes: u64, cache_bytes: u64) -> Mount {
        Mount::believing(0, pool_bytes, cache_bytes)
    }

    /// The same, and the kernel believes names and attributes for that long.
    pub fn believing(believe_ms: u64, pool_bytes: u64, cache_bytes: u64) -> Mount {
        Mount::of(believe_ms, false, 0, pool_bytes, cache_bytes)
    }

    /// The same, and the server may have so many descriptors.
    pub fn with_descriptors(files: u64) -> Mount {
        Mount::of(0, false, files, 8 << 20, 8 << 20)
    }

    /// The same for all users, of whom each may make files there.
    pub fn for_all(pool_bytes: u64, cache_bytes: u64) -> Mount {
        let mount = Mount::of(0, true, 0, pool_bytes, cache_bytes);
        for (path, mode) in [(mount.place.path(), 0o755), (&mount.lower(), 0o1777)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        mount
    }

    /// Mounts a file system of so many bytes; `None` where none can be made.
    pub fn of_so_many_bytes(bytes: u64) -> Option<Mount> {
        let place = Mount::place();
        let mut tmpfs = Command::new("mount");
        tmpfs.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "none"]);
        if !tmpfs.arg(place.path().join("lower")).status().unwrap().success() {
            return None;
        }
        let mut mount =
            Mount { place, server: None, believe_ms: 0, others: false, files: 0, lottery: false };
        mount.start(1 << 20, 64 << 10);
        Some(mount)
    }

    /// Mounts a file system that keeps times in whole seconds; `None` where none can be made.
    pub fn with_times_in_seconds() -> Option<Mount> {
        let place = Mount::place();
        let image = place.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
        // Inodes of 128 bytes have no room for more.
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-F", "-I", "128"]).arg(&image).stderr(Stdio::null());
        let mut over = Command::new("mount");
        over.args(["-o", "loop"]).args([&image, &place.path().join("lower")]);
        if !(make.status().unwrap().success() && over.status().unwrap().success()) {
            return None;
        }
        let mut mount =
            Mount { place, server: None, believe_ms: 0, others: false, files: 0, lottery: false };
        mount.start(1 << 20, 1 << 20);
        Some(mount)
    }

    fn place() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        for name in ["lower", "mnt", "plain"] {
            std::fs::create_dir(place.path().join(name)).unwrap();
        }
        place
    }

    fn of(believe_ms: u64, others: bool, files: u64, pool_bytes: u64, cache_bytes: u64) -> Mount {
        let place = Mount::place();
        let mut mount = Mount { place, server: None, believe_ms, others, files, lottery: false };
        mount.start(pool_bytes, cache_bytes);
        mount
    }

    /// Starts a server.
    pub fn start(&mut self, pool_bytes: u64, cache_bytes: u64) {
        let server = Command::new(std::env::current_exe().unwrap())
            .args(["serve", "--exact", "--ignored", "--nocapture"])
            .env("CLEW_MOUNT_LOWER", self.lower())
            // As people may write it.
            .env("CLEW_MOUNT_AT", self.place.path().join("lower/../mnt/"))
            .env("CLEW_MOUNT_POOL", pool_bytes.to_string())
            .env("CLEW_MOUNT_CACHE", cache_bytes.to_string())
            .env("CLEW_MOUNT_BELIEVE", self.believe_ms.to_string())
            .env("CLEW_MOUNT_OTHERS", u8::from(self.others).to_string())
            .env("CLEW_MOUNT_FILES", self.files.to_string())
            .env("CLEW_MOUNT_LOTTERY", u8::from(self.lottery).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = server.id();
        self.server = Some(server);
        let until = Instant::now() + LONG;
        while !status(&self.at()).is_ok_and(|status| status.pid == pid) {
            assert!(Instant::now() < until, "it does not mount");
            assert!(self.server.as_mut().unwrap().try_wait().unwrap().is_none(), "it has ended");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The directory below.
    pub fn lower(&self) -> PathBuf {
        self.place.path().join("lower")
    }

    /// Where it is mounted.
    pub fn at(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    /// A directory beside it, to compare with.
    pub fn plain(&self) -> PathBuf {
        self.place.path().join("plain")
    }

    /// What it has done.
    pub fn status(&self) -> Status {
        status(&self.at()).unwrap()
    }

    /// Waits until something about it is so.
    pub fn wait(&self, what: &str, is_so: impl Fn(&Status) -> bool) {
        let until = Instant::now() + LONG;
        while !is_so(&self.status()) {
            assert!(Instant::now() < until, "never: {what}: {:?}", self.status());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops the server; when this returns, none of its threads runs.
    pub fn stop(&self) {
        let server = Pid::from_child(self.server.as_ref().unwrap());
        kill_process(server, Signal::STOP).unwrap();
        let (_, status) = waitpid(Some(server), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        kill_process(Pid::from_child(self.server.as_ref().unwrap()), Signal::CONT).unwrap();
    }

    /// Has the server end in order, and does not wait for it.
    pub fn end(&mut self) -> Child {
        let mut server = self.server.take().unwrap();
        drop(server.stdin.take());
        server
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        kill_process(Pid::from_child(&server), Signal::KILL).unwrap();
        server.wait().unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let flags = rustix::mount::UnmountFlags::DETACH;
        for mounted in [self.at(), self.lower()] {
            while rustix::mount::unmount(&mounted, flags).is_ok() {}
        }
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// Numbers by chance, from a seed.
pub struct Chance(u64);

impl Chance {
    /// The same numbers for the same seed.
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// One below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }

    /// Bytes, about half of which compress.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let salt = self.below(256) as u8;
        (0..len).map(|at| if at % 2 == 0 { salt } else { self.below(256) as u8 }).collect()
    }
}

/// Lets files settle: only then they are read past the lower page cache, and the pool takes their pages.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(2_300));
}
