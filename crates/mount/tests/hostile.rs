//! Users of a mount who are hostile to others of it.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{StatVfsMountFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use support::{LONG, Mount, can_run, skip_because};

/// Somebody else.
const NOBODY: u32 = 65534;
const NOEXEC: StatVfsMountFlags = StatVfsMountFlags::NOEXEC;

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

/// A script that somebody else runs.
fn python_as_nobody(script: &str, arguments: &[&Path]) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", script]).args(arguments).uid(NOBODY).gid(NOBODY).current_dir("/");
    python.stdin(Stdio::piped()).stdout(Stdio::piped());
    python
}

#[test]
fn who_creates_a_file_opens_none_of_anothers() {
    if !can_run("who_creates_a_file_opens_none_of_anothers", &["python3"]) {
        return;
    }
    let mount = Mount::for_all(1 << 20, 64 << 10);
    // Looks and creates, again and again: root's file appears in between.
    let script = "import os,sys,time\n\
        until=time.time()+10\n\
        while time.time() < until:\n\
        \x20 try: fd=os.open(sys.argv[1],os.O_CREAT|os.O_RDWR,0o600)\n\
        \x20 except OSError: continue\n\
        \x20 if os.fstat(fd).st_uid==0:\n\
        \x20  print(os.pread(fd,99,0),flush=True)\n\
        \x20  break\n\
        \x20 os.close(fd)\n\
        \x20 try: os.unlink(sys.argv[1])\n\
        \x20 except OSError: pass\n";
    let secret = mount.plain().join("secret");
    fs::write(&secret, "root's own").unwrap();
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let mut other = python_as_nobody(script, &[&mount.at().join("x")]).spawn().unwrap();
    let there = mount.lower().join("x");
    while other.try_wait().unwrap().is_none() {
        if fs::hard_link(&secret, &there).is_ok() {
            std::thread::sleep(Duration::from_micros(200));
            let _ = fs::remove_file(&there);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    let said = other.wait_with_output().unwrap();
    assert!(said.status.success());
    assert_eq!(String::from_utf8_lossy(&said.stdout), "", "another's file was opened");
}

#[test]
fn any_time_of_a_file_is_set_and_ends_nothing() {
    if !can_run("any_time_of_a_file_is_set_and_ends_nothing", &[]) {
        return;
    }
    let mount = Mount::for_all(1 << 20, 64 << 10);
    let [through, plain] = [mount.at(), mount.plain()].map(|directory| directory.join("f"));
    let times = [(i64::MIN, 1), (i64::MIN, 0), (-2, 900_000_000), (-1, 0), (1, 5), (i64::MAX, 9)];
    for (tv_sec, tv_nsec) in times {
        let [a, b] = [&through, &plain].map(|path| {
            let file = File::create(path).unwrap();
            let time = Timespec { tv_sec, tv_nsec };
            let times = Timestamps { last_access: time, last_modification: time };
            rustix::fs::futimens(&file, &times).unwrap();
            let has = file.metadata().unwrap();
            (has.atime(), has.atime_nsec(), has.mtime(), has.mtime_nsec())
        });
        assert_eq!(a, b, "{tv_sec} s and {tv_nsec} ns");
    }
}

/// What is another's in a directory like `/tmp` stays, also if it takes the name of what was his own who removes or replaces
/// that: root's file does, again and again.
fn anothers_file_stays(act: &str) {
    let mount = Mount::for_all(1 << 20, 64 << 10);
    let script = "import os,sys,time\n\
        low,up=sys.argv[1:3]\n\
        until=time.time()+10\n\
        def make(path):\n\
        \x20 try: os.close(os.open(path,os.O_CREAT|os.O_EXCL|os.O_WRONLY,0o600))\n\
        \x20 except OSError: pass\n\
        while time.time() < until:\n\
        \x20 make(low+'/x'); make(low+'/y')\n\
        \x20 try: ACT\n\
        \x20 except OSError: pass\n";
    let script = script.replace("ACT", act);
    let root = mount.plain().join("root");
    fs::write(&root, "root's own").unwrap();
    let ino = fs::metadata(&root).unwrap().ino();
    let mut other = python_as_nobody(&script, &[&mount.lower(), &mount.at()]).spawn().unwrap();
    let (mine, there) = (mount.lower().join("mine"), mount.lower().join("x"));
    let mut has_it = true;
    while has_it && other.try_wait().unwrap().is_none() {
        fs::hard_link(&root, &mine).unwrap();
        fs::rename(&mine, &there).unwrap();
        std::thread::sleep(Duration::from_micros(300));
        has_it = fs::symlink_metadata(&there).is_ok_and(|found| found.ino() == ino);
        let _ = fs::remove_file(&there);
        std::thread::sleep(Duration::from_micros(300));
    }
    let _ = other.kill();
    other.wait().unwrap();
    assert!(has_it, "root's file is gone by {act}");
}

#[test]
fn who_removes_a_file_removes_none_of_anothers() {
    if can_run("who_removes_a_file_removes_none_of_anothers", &["python3"]) {
        anothers_file_stays("os.unlink(up+'/x')");
    }
}

#[test]
fn who_renames_a_file_replaces_none_of_anothers() {
    if can_run("who_renames_a_file_replaces_none_of_anothers", &["python3"]) {
        anothers_file_stays("os.rename(up+'/y',up+'/x')");
    }
}

/// What root has taken over below is root's to change, also for who has it open since it was his.
#[test]
fn who_has_anothers_file_open_changes_none_of_its_attributes() {
    if !can_run("who_has_anothers_file_open_changes_none_of_its_attributes", &["python3"]) {
        return;
    }
    let mount = Mount::for_all(1 << 20, 64 << 10);
    let script = "import os,struct,sys\n\
        fd=os.open(sys.argv[1],os.O_CREAT|os.O_EXCL|os.O_RDWR,0o755)\n\
        acts=[lambda: os.fchmod(fd,0o6777), lambda: os.utime(fd,(1,1)), lambda: os.chown(fd,-1,65534),\n\
        \x20 lambda: os.setxattr(fd,'system.posix_acl_access',struct.pack('<I',2)+b''.join(struct.pack('<HHI',*e)\n\
        \x20  for e in ((1,6,0xffffffff),(2,7,65534),(4,4,0xffffffff),(16,7,0xffffffff),(32,4,0xffffffff)))),\n\
        \x20 lambda: os.removexattr(fd,'system.posix_acl_access')]\n\
        for who in ('own','taken over'):\n\
        \x20 print(who,flush=True); sys.stdin.readline()\n\
        \x20 for n,act in enumerate(acts):\n\
        \x20  try: act(); print(n,'done',flush=True)\n\
        \x20  except OSError as e: print(n,e.errno,flush=True)\n\
        print('end',flush=True)\n";
    let mut other = python_as_nobody(script, &[&mount.at().join("x")]).spawn().unwrap();
    let (mut stdin, stdout) = (other.stdin.take().unwrap(), other.stdout.take().unwrap());
    let mut lines = BufReader::new(stdout).lines().map(|line| line.unwrap());
    assert_eq!(lines.next().unwrap(), "own");
    writeln!(stdin).unwrap();
    let said: Vec<String> = lines.by_ref().take_while(|line| line != "taken over").collect();
    let missing = rustix::io::Errno::OPNOTSUPP.raw_os_error().to_string();
    let is_done = |line: &String| line.ends_with(" done") || line.ends_with(&missing);
    assert!(said.len() == 5 && said.iter().all(is_done), "{said:?}");
    let below = mount.lower().join("x");
    std::os::unix::fs::chown(&below, Some(0), Some(0)).unwrap();
    fs::set_permissions(&below, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let before = fs::metadata(&below).unwrap();
    writeln!(stdin).unwrap();
    let said: Vec<String> = lines.take_while(|line| line != "end").collect();
    assert!(said.len() == 5 && !said.iter().any(|line| line.ends_with(" done")), "{said:?}");
    let after = fs::metadata(&below).unwrap();
    let seen = |of: &fs::Metadata| (of.mode(), of.uid(), of.gid(), of.mtime());
    assert_eq!(seen(&after), seen(&before));
    assert!(other.wait().unwrap().success());
}

#[test]
fn who_keeps_a_lease_holds_up_nobody_else() {
    if !can_run("who_keeps_a_lease_holds_up_nobody_else", &["python3"]) {
        return;
    }
    let mount = Mount::for_all(1 << 20, 64 << 10);
    fs::write(mount.lower().join("other"), "other").unwrap();
    // More than there are threads that answer the kernel.
    let script = "import fcntl,os,signal,sys\n\
        signal.signal(signal.SIGIO,signal.SIG_IGN)\n\
        for i in range(8):\n\
        \x20 fd=os.open('%s/f%d'%(sys.argv[1],i),os.O_CREAT|os.O_RDWR,0o644)\n\
        \x20 fcntl.fcntl(fd,fcntl.F_SETLEASE,fcntl.F_WRLCK)\n\
        print('taken',flush=True)\n\
        sys.stdin.readline()\n";
    let mut holder = python_as_nobody(script, &[&mount.lower()]).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "taken\n");
    let opens: Vec<_> = (0..8)
        .map(|number| {
            let path = mount.at().join(format!("f{number}"));
            std::thread::spawn(move || match number {
                0 => {
                    let script = "import os,sys; os.truncate(sys.argv[1],5)";
                    let status = Command::new("python3").args(["-c", script]).arg(path).status();
                    assert!(status.unwrap().success());
                    Ok(())
                }
                _ => File::open(path).map(drop),
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let since = Instant::now();
    assert_eq!(fs::read(mount.at().join("other")).unwrap(), b"other");
    assert!(since.elapsed() < LONG / 6, "held up for {:?}", since.elapsed());
    assert!(opens.iter().all(|open| !open.is_finished()), "they wait");
    holder.stdin.take().unwrap().write_all(b"\n").unwrap();
    holder.wait().unwrap();
    opens.into_iter().for_each(|open| open.join().unwrap().expect("it is given up"));
    assert_eq!(fs::metadata(mount.lower().join("f0")).unwrap().len(), 5);
}

#[test]
fn what_is_roots_alone_is_named_to_nobody_else() {
    let test = "what_is_roots_alone_is_named_to_nobody_else";
    if !can_run(test, &["python3"]) {
        return;
    }
    let mount = Mount::for_all(1 << 20, 64 << 10);
    let file = mount.lower().join("file");
    fs::write(&file, "").unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    for name in ["trusted.secret", "user.known"] {
        if let Err(error) = rustix::fs::setxattr(&file, name, b"1", XattrFlags::empty()) {
            return skip_because(test, &format!("{name}: {error}"));
        }
    }
    let script = "import os,sys; print(sorted(os.listxattr(sys.argv[1])))";
    let of_nobody = python_as_nobody(script, &[&mount.at().join("file")]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&of_nobody.stdout), "['user.known']\n");
    let mut names = [0; 256];
    let len = rustix::fs::listxattr(mount.at().join("file"), &mut names[..]).unwrap();
    let names = String::from_utf8_lossy(&names[..len]).into_owned();
    assert!(names.contains("trusted.secret") && names.contains("user.known"), "{names}");
}

/// A file system in a file, in the tree until it is dropped.
struct Disk<'a>(&'a Path);

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn what_a_file_system_keeps_for_root_is_left_to_root() {
    let test = "what_a_file_system_keeps_for_root_is_left_to_root";
    if !can_run(test, &["python3", "mkfs.ext4", "mount"]) {
        return;
    }
    let mut mount = Mount::for_all(1 << 20, 64 << 10);
    mount.kill();
    let (image, disk) = (mount.plain().join("image"), mount.lower());
    File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "40"]).arg(&image).status();
    let there = Command::new("mount").args(["-o", "loop"]).args([&image, &disk]).status();
    if !made.is_ok_and(|made| made.success()) || !there.is_ok_and(|there| there.success()) {
        return skip_because(test, "no file system can be made in a file");
    }
    let _disk = Disk(&disk);
    fs::set_permissions(&disk, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
    mount.start(1 << 20, 64 << 10);
    let script = "import mmap,os,sys\n\
        at=sys.argv[1]\n\
        def file(name):\n\
        \x20 fd=os.open(at+'/'+name,os.O_CREAT|os.O_RDWR,0o600); os.ftruncate(fd,32<<20); return fd\n\
        def fill(fd):\n\
        \x20 for i in range(512): os.pwrite(fd,b'x'*65536,i*65536)\n\
        def map(fd):\n\
        \x20 m=mmap.mmap(fd,32<<20)\n\
        \x20 for i in range(0,32<<20,4096): m[i]=1\n\
        \x20 m.flush()\n\
        def make(fd): os.posix_fallocate(fd,0,32<<20)\n\
        for way in fill,map,make:\n\
        \x20 try: way(file(way.__name__)); print('there was room')\n\
        \x20 except OSError: pass\n";
    let filled = python_as_nobody(script, &[&mount.at()]).output().unwrap();
    assert!(filled.status.success());
    assert_eq!(String::from_utf8_lossy(&filled.stdout), "");
    let room = rustix::fs::statvfs(&disk).unwrap();
    let (free, for_all, blocks) = (room.f_bfree, room.f_bavail, room.f_blocks);
    assert!(for_all < blocks / 20, "{for_all} of {blocks} are not filled");
    assert!(free > blocks / 4, "{free} of {blocks} are left to root");
}

/// Each inode that the kernel knows is a descriptor of the server's: it has it forget some in time.
#[test]
fn a_tree_of_more_files_than_descriptors_is_walked() {
    if !can_run("hostile::tree", &[]) {
        return;
    }
    let mount = Mount::with_descriptors(256);
    let file = |i: u32| format!("{}/{i}", i % 10);
    for i in 0..10 {
        std::fs::create_dir(mount.lower().join(i.to_string())).unwrap();
    }
    (0..2000).for_each(|i| std::fs::write(mount.lower().join(file(i)), i.to_string()).unwrap());
    let held = std::fs::File::open(mount.at().join(file(7))).unwrap();
    for round in 0..3 {
        for i in 0..2000 {
            let at = mount.at().join(file(i));
            let looked = std::fs::metadata(&at);
            assert!(looked.is_ok(), "{round}, {i}: {looked:?}");
            // One of many is opened, too.
            if i % 20 == 0 {
                assert_eq!(std::fs::read_to_string(&at).unwrap(), i.to_string());
            }
        }
    }
    assert_eq!(held.metadata().unwrap().len(), 1, "what is in use is kept");
}

/// Who lists a directory into memory that never comes: as long as he is there, its lock is taken.
struct Lister(Child);

impl Lister {
    /// None where there is no such memory.
    fn of(directory: &Path) -> Option<Lister> {
        let script = "import ctypes,fcntl,mmap,os,platform,struct,sys\n\
            calls={'x86_64':(323,217),'aarch64':(282,61)}[platform.machine()]\n\
            libc=ctypes.CDLL(None)\n\
            uffd=libc.syscall(calls[0],os.O_CLOEXEC)\n\
            fcntl.ioctl(uffd,0xc018aa3f,bytearray(struct.pack('3Q',0xaa,0,0)))\n\
            m=mmap.mmap(-1,65536,mmap.MAP_PRIVATE|mmap.MAP_ANONYMOUS)\n\
            at=ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
            fcntl.ioctl(uffd,0xc020aa00,bytearray(struct.pack('4Q',at,65536,1,0)))\n\
            fd=os.open(sys.argv[1],os.O_RDONLY)\n\
            print('lists',flush=True)\n\
            libc.syscall(calls[1],fd,ctypes.c_void_p(at),4096)\n";
        let mut python = Command::new("python3");
        python.args(["-c", script]).arg(directory).stdout(Stdio::piped());
        let mut lister = Lister(python.spawn().unwrap());
        let mut said = String::new();
        let stdout = lister.0.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        (said == "lists\n").then_some(lister)
    }
}

impl Drop for Lister {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG / 3;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_holds_a_directory_holds_up_neither_others_nor_the_end() {
    let test = "who_holds_a_directory_holds_up_neither_others_nor_the_end";
    if !can_run(test, &["python3"]) {
        return;
    }
    let mut mount = Mount::believing(3_600_000, 1 << 20, 64 << 10);
    let (at, lower) = (mount.at(), mount.lower());
    fs::create_dir(lower.join("held")).unwrap();
    for name in ["held/a", "held/b", "other", "f"] {
        fs::write(lower.join(name), "before").unwrap();
        assert_eq!(fs::read(at.join(name)).unwrap(), b"before");
    }
    let (root, open) = (File::open(&at).unwrap(), File::open(at.join("f")).unwrap());
    let Some(lister) = Lister::of(&at.join("held")) else {
        return skip_because(test, "the system has no memory that never comes");
    };
    fs::remove_file(lower.join("held/a")).unwrap();
    std::thread::sleep(Duration::from_millis(300));

    // Others go on: contents that change, and the limit of the page cache.
    fs::write(lower.join("f"), "behind").unwrap();
    let begins = || {
        let mut bytes = [0; 6];
        open.read_at(&mut bytes, 0).map(|_| bytes)
    };
    until("other contents", || begins().is_ok_and(|bytes| bytes == *b"behind"));
    fs::write(lower.join("big"), vec![b'x'; 4 << 20]).unwrap();
    assert_eq!(fs::read(at.join("big")).unwrap().len(), 4 << 20);
    mount.wait("little is cached", |status| status.cached_pages * 4096 <= status.cache_bytes);
    // More names than are kept until they are told.
    fs::write(lower.join("new"), "behind").unwrap();
    fs::rename(lower.join("new"), lower.join("other")).unwrap();
    (0..5_000).for_each(|i| drop(File::create(lower.join(format!("held/{i}"))).unwrap()));
    drop(lister);
    until("what is gone", || !at.join("held/a").exists());
    until("another file", || fs::read(at.join("other")).is_ok_and(|read| read == b"behind"));

    let lister = Lister::of(&at.join("held"));
    fs::remove_file(lower.join("held/b")).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let mut server = mount.end();
    let through = format!("/proc/self/fd/{}/nothing", root.as_raw_fd());
    let not_there = Some(Errno::NOTCONN.raw_os_error());
    until("users get errors", || fs::metadata(&through).unwrap_err().raw_os_error() == not_there);
    mount.start(1 << 20, 64 << 10);
    assert_eq!(fs::read(at.join("other")).unwrap(), b"behind", "the next one takes the place");
    drop(lister);
    assert!(server.wait().unwrap().success());
}

#[test]
fn an_end_unmounts_nothing_else() {
    let test = "an_end_unmounts_nothing_else";
    if !can_run(test, &["mount"]) {
        return;
    }
    let mut mount = Mount::for_all(1 << 20, 64 << 10);
    assert!(mount.end().wait().unwrap().success());
    let (home, other) = (mount.plain().join("home"), mount.plain().join("other"));
    for directory in [&home, &other.join("mnt")] {
        fs::create_dir_all(directory).unwrap();
    }
    let there = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(other.join("mnt")).status();
    if !there.is_ok_and(|there| there.success()) {
        return skip_because(test, "no other file system can be mounted");
    }
    let (precious, (a, b)) = (other.join("mnt"), (home.join("a"), home.join("b")));
    let _other = Disk(&precious);
    fs::write(precious.join("file"), "precious").unwrap();
    // The place lies in a user's directory, who puts a link there, or in the way.
    fs::remove_dir(mount.at()).unwrap();
    std::os::unix::fs::symlink(a.join("mnt"), mount.at()).unwrap();
    for last in [true, false] {
        fs::create_dir_all(a.join("mnt")).unwrap();
        mount.start(1 << 20, 64 << 10);
        let moved = b.join("mnt");
        let _own = Disk(&moved);
        fs::rename(&a, &b).unwrap();
        let (link, to) = if last { (a.join("mnt"), &precious) } else { (a.clone(), &other) };
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, link).unwrap();
        assert!(mount.end().wait().unwrap().success());
        let has = fs::read_to_string(precious.join("file"));
        assert!(has.is_ok_and(|has| has == "precious"), "it was unmounted; the last: {last}");
        let is_there = fs::metadata(&moved).map(|found| found.dev());
        let below = fs::metadata(&b).unwrap().dev();
        assert_eq!(is_there.ok(), Some(below), "its own is not; the last: {last}");
        if last { fs::remove_dir_all(&a) } else { fs::remove_file(&a) }.unwrap();
        fs::remove_dir_all(&b).unwrap();
    }
}

#[test]
fn what_a_file_system_forbids_is_forbidden_through_a_mount() {
    let test = "what_a_file_system_forbids_is_forbidden_through_a_mount";
    if !can_run(test, &["mount", "true"]) {
        return;
    }
    let mut mount = Mount::for_all(1 << 20, 64 << 10);
    let (disk, program) = (mount.lower(), mount.at().join("true"));
    let forbids = |mount: &Mount| rustix::fs::statvfs(mount.at()).unwrap().f_flag;
    let always = StatVfsMountFlags::NOSUID | StatVfsMountFlags::NODEV;
    let put = || {
        fs::copy("/bin/true", disk.join("true")).unwrap();
        fs::set_permissions(disk.join("true"), fs::Permissions::from_mode(0o755)).unwrap();
    };
    put();
    assert!(Command::new(&program).status().unwrap().success());
    assert!(forbids(&mount).contains(always) && !forbids(&mount).contains(NOEXEC));
    assert!(mount.end().wait().unwrap().success());
    let mut there = Command::new("mount");
    there.args(["-t", "tmpfs", "-o", "noexec", "none"]).arg(&disk);
    if !there.status().is_ok_and(|there| there.success()) {
        return skip_because(test, "no other file system can be mounted");
    }
    let _disk = Disk(&disk);
    put();
    mount.start(1 << 20, 64 << 10);
    let denied = Command::new(&program).status().unwrap_err();
    assert_eq!(denied.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(forbids(&mount).contains(always | NOEXEC));
}
