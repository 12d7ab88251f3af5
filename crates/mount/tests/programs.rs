//! Real programs on a mount, with pages leaving the kernel's page cache all the time.

mod support;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use support::{Chance, Mount, can_run, settle};

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

/// Runs a program in a directory; what it printed.
fn run(directory: &Path, program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {text}{errors}");
    text
}

#[test]
fn git_keeps_its_repository_there() {
    if !can_run("git_keeps_its_repository_there", &["git"]) {
        return;
    }
    let mount = Mount::new(8 << 20, 256 << 10);
    let at = mount.at();
    let git = |args: &[&str]| {
        let who = ["-c", "user.name=A", "-c", "user.email=a@b", "-c", "safe.directory=*"];
        run(&at, "git", &[&who[..], args].concat())
    };
    git(&["init", "-q"]);
    let mut chance = Chance::new(3);
    for round in 0..4 {
        for file in 0..30 {
            let len = chance.below(60_000) as usize;
            fs::write(at.join(format!("f{file}")), chance.bytes(len)).unwrap();
        }
        git(&["add", "-A"]);
        git(&["commit", "-q", "-m", &format!("round {round}")]);
    }
    git(&["gc", "-q"]);
    settle();
    for _ in 0..3 {
        git(&["fsck", "--full", "--strict"]);
        assert_eq!(git(&["status", "--porcelain"]), "");
    }
    git(&["checkout", "-q", "HEAD~2"]);
    git(&["fsck", "--full"]);
    // The lower directory has the same repository.
    run(&mount.lower(), "git", &["-c", "safe.directory=*", "fsck", "--full"]);
    assert!(mount.status().pages_from_pool > 0, "{:?}", mount.status());
}

#[test]
fn sqlite_keeps_its_database_there() {
    if !can_run("sqlite_keeps_its_database_there", &["python3"]) {
        return;
    }
    let mount = Mount::new(8 << 20, 16 << 10);
    let program = "import sqlite3,sys,time\n\
        for mode in ('DELETE','WAL'):\n\
        \x20 d=sqlite3.connect('data-'+mode)\n\
        \x20 d.execute('pragma journal_mode='+mode)\n\
        \x20 d.execute('create table t(k integer primary key, v text)')\n\
        \x20 for r in range(20):\n\
        \x20  with d: d.executemany('insert into t(v) values(?)', [('v%d-%d'%(r,i)*9,) for i in range(500)])\n\
        \x20  with d: d.execute('delete from t where k%7=?', (r%7,))\n\
        \x20 d.close()\n\
        time.sleep(2.3)\n\
        for mode in ('DELETE','WAL'):\n\
        \x20 for i in range(4):\n\
        \x20  d=sqlite3.connect('data-'+mode)\n\
        \x20  assert d.execute('pragma integrity_check').fetchall()==[('ok',)]\n\
        \x20  print(d.execute('select count(*), sum(length(v)), min(k), max(k) from t').fetchall())\n\
        \x20  d.close()\n";
    let there = run(&mount.at(), "python3", &["-c", program]);
    let plain = run(&mount.plain(), "python3", &["-c", program]);
    assert_eq!(there, plain);
    assert!(mount.status().pages_from_pool > 0, "{:?}", mount.status());
}

#[test]
fn python_imports_from_it() {
    if !can_run("python_imports_from_it", &["python3"]) {
        return;
    }
    let mount = Mount::new(8 << 20, 64 << 10);
    let package = mount.at().join("parts");
    fs::create_dir(&package).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    for number in 0..40 {
        let text =
            format!("def f():\n    return {number}\n\nTEXT = '''{}'''\n", "x y z ".repeat(2000));
        fs::write(package.join(format!("m{number}.py")), text).unwrap();
    }
    let program = "import importlib\n\
        print(sum(importlib.import_module('parts.m%d' % i).f() for i in range(40)))";
    assert_eq!(run(&mount.at(), "python3", &["-c", program]).trim(), "780");
    settle();
    for _ in 0..3 {
        assert_eq!(run(&mount.at(), "python3", &["-c", program]).trim(), "780");
    }
    assert!(mount.status().pages_from_pool > 0, "{:?}", mount.status());
}

#[test]
fn a_program_is_compiled_and_run_there() {
    if !can_run("a_program_is_compiled_and_run_there", &["cc"]) {
        return;
    }
    let mount = Mount::new(8 << 20, 256 << 10);
    let at = mount.at();
    let main = "#include <stdio.h>\nint part(int);\nint main(void){int s=0;for(int i=0;i<9;i++)s+=part(i);printf(\"%d\\n\",s);return 0;}\n";
    fs::write(at.join("main.c"), main).unwrap();
    fs::write(at.join("part.c"), "int part(int i){return i*i;}\n").unwrap();
    run(&at, "cc", &["-g", "-c", "main.c", "part.c"]);
    run(&at, "cc", &["-o", "program", "main.o", "part.o"]);
    assert_eq!(run(&at, "./program", &[]).trim(), "204");
    settle();
    for _ in 0..3 {
        assert_eq!(run(&at, "./program", &[]).trim(), "204");
    }
}

#[test]
fn a_long_file_is_read_at_random_from_pool_and_disk() {
    if !can_run("a_long_file_is_read_at_random_from_pool_and_disk", &[]) {
        return;
    }
    let mount = Mount::new(4 << 20, 1 << 20);
    let mut chance = Chance::new(5);
    let data = chance.bytes(24 << 20);
    fs::write(mount.lower().join("film"), &data).unwrap();
    settle();
    let file = File::open(mount.at().join("film")).unwrap();
    let mut bytes = vec![0; 200_000];
    for _ in 0..3_000 {
        // Some parts are read more often than others.
        let limit = if chance.below(2) == 0 { 2 << 20 } else { data.len() as u64 };
        let at = chance.below(limit);
        let len = chance.below(bytes.len() as u64) as usize;
        let read = file.read_at(&mut bytes[..len], at).unwrap();
        let until = (at as usize + len).min(data.len());
        assert!(bytes[..read] == data[at as usize..until], "{len} bytes at {at}");
    }
    let status = mount.status();
    assert!(status.reads_whole > 0 && status.reads_partly > 0, "{status:?}");
    assert!(status.pool_bytes <= status.memory_bytes && status.pool_left_pages > 0, "{status:?}");
    assert!(status.cached_pages <= (8 << 20) / 4096, "{status:?}");
}

#[test]
fn a_file_is_all_that_a_file_is() {
    if !can_run("a_file_is_all_that_a_file_is", &[]) {
        return;
    }
    let mount = Mount::new(1 << 20, 64 << 10);
    let (at, lower) = (mount.at(), mount.lower());
    // Names of any bytes.
    let odd = OsStr::from_bytes(b"\xff\x01 new\nline");
    fs::write(at.join(odd), "odd").unwrap();
    assert_eq!(fs::read(lower.join(odd)).unwrap(), b"odd");
    assert_eq!(fs::read_dir(&at).unwrap().next().unwrap().unwrap().file_name(), odd);
    // Attributes.
    rustix::fs::setxattr(at.join(odd), "user.a", b"b", rustix::fs::XattrFlags::empty()).unwrap();
    let mut value = [0; 9];
    assert_eq!(rustix::fs::getxattr(lower.join(odd), "user.a", &mut value[..]), Ok(1));
    fs::set_permissions(at.join(odd), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(lower.join(odd)).unwrap().permissions().mode() & 0o7777, 0o640);
    // A link is a link, wherever it leads; nothing is followed by the server.
    symlink("/etc/hostname", lower.join("out")).unwrap();
    assert_eq!(fs::read_link(at.join("out")).unwrap(), Path::new("/etc/hostname"));
    symlink("../../..", lower.join("up")).unwrap();
    assert_eq!(fs::read_link(at.join("up")).unwrap(), Path::new("../../.."));
    // A file that has no name any more.
    let file =
        File::options().read(true).write(true).create_new(true).open(at.join("gone")).unwrap();
    fs::remove_file(at.join("gone")).unwrap();
    file.write_all_at(b"still here", 0).unwrap();
    let mut bytes = [0; 10];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"still here");
    assert!(!lower.join("gone").exists());
    // A directory of many names.
    fs::create_dir(at.join("many")).unwrap();
    for number in 0..3_000 {
        File::create(lower.join(format!("many/{number}"))).unwrap();
    }
    assert_eq!(fs::read_dir(at.join("many")).unwrap().count(), 3_000);
    fs::remove_dir_all(at.join("many")).unwrap();
    assert!(!lower.join("many").exists());
}

#[test]
fn what_may_only_be_appended_to_is() {
    let name = "what_may_only_be_appended_to_is";
    if !can_run(name, &["chattr"]) {
        return;
    }
    let mount = Mount::new(1 << 20, 64 << 10);
    let below = mount.lower().join("log");
    fs::write(&below, "one\n").unwrap();
    let chattr = |what: &str| Command::new("chattr").arg(what).arg(&below).status().unwrap();
    if !chattr("+a").success() {
        return support::skip_because(name, "no such attribute there");
    }
    let above = mount.at().join("log");
    let mut appended = File::options().append(true).open(&above).unwrap();
    appended.write_all(b"two\n").unwrap();
    let rewritten = File::options().write(true).open(&above).map(drop);
    let read = fs::read_to_string(&above);
    assert!(chattr("-a").success());
    assert_eq!(read.unwrap(), "one\ntwo\n");
    assert_eq!(fs::read_to_string(&below).unwrap(), "one\ntwo\n");
    assert_eq!(rewritten.unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()));
}

/// A mapping that writes more than there is room for below: who syncs it is told.
#[test]
fn what_a_mapping_has_no_room_for_is_told() {
    let test = "what_a_mapping_has_no_room_for_is_told";
    if !can_run(test, &["python3", "mount"]) {
        return;
    }
    let Some(mount) = Mount::of_so_many_bytes(512 << 10) else {
        return support::skip_because(test, "no tmpfs can be mounted");
    };
    let script = "import mmap,os,sys\n\
        fd=os.open(sys.argv[1],os.O_RDWR|os.O_CREAT)\n\
        os.ftruncate(fd,1<<20)\n\
        m=mmap.mmap(fd,1<<20)\n\
        m[:]=b'Y'*len(m)\n\
        def told(what):\n\
        \x20 try: what()\n\
        \x20 except OSError as e: print(e.errno)\n\
        told(m.flush)\n\
        told(lambda: os.fsync(fd))\n";
    let file = mount.at().join("file");
    let told = Command::new("python3").args(["-c", script]).arg(file).output().unwrap();
    let no_room = Errno::NOSPC.raw_os_error().to_string();
    let said = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(said.lines().any(|line| line == no_room), "{told:?}");
}

/// The umask is nothing to a directory that says itself who may what of new files.
#[test]
fn what_is_made_has_the_permissions_that_its_directory_gives() {
    let test = "what_is_made_has_the_permissions_that_its_directory_gives";
    if !can_run(test, &["sh", "mkfifo"]) {
        return;
    }
    let mount = Mount::new(1 << 20, 64 << 10);
    // Its owner and group everything, others read (acl(5), posix_acl_xattr.h).
    let entries = [(1u16, 7u16), (4, 7), (0x20, 4)];
    let entry = |(tag, may): (u16, u16)| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &u32::MAX.to_le_bytes()].concat()
    };
    let lists = [&2u32.to_le_bytes()[..], &entries.map(entry).concat()].concat();
    for directory in [mount.lower(), mount.plain()] {
        fs::create_dir(directory.join("shared")).unwrap();
        let name = "system.posix_acl_default";
        let flags = rustix::fs::XattrFlags::empty();
        match rustix::fs::setxattr(directory.join("shared"), name, &lists, flags) {
            Err(Errno::OPNOTSUPP) => return support::skip_because(test, "no access lists there"),
            set => set.unwrap(),
        }
    }
    let made = |directory: &Path| {
        let script = "umask 077; for at in . shared; do echo x > $at/file; mkdir $at/directory; \
                      mkfifo $at/pipe; done; stat -c '%n %a' file directory pipe shared/*";
        run(directory, "sh", &["-c", script])
    };
    let (ours, wanted) = (made(&mount.at()), made(&mount.plain()));
    assert_eq!(ours, wanted);
    assert!(wanted.contains("\nfile 600") || wanted.starts_with("file 600"), "{wanted}");
    assert!(wanted.contains("shared/file 664"), "{wanted}");
}

#[test]
fn a_change_below_is_seen_at_once() {
    if !can_run("a_change_below_is_seen_at_once", &[]) {
        return;
    }
    let mount = Mount::new(1 << 20, 64 << 10);
    let (at, lower) = (mount.at().join("f"), mount.lower().join("f"));
    let mut chance = Chance::new(9);
    fs::write(&lower, chance.bytes(100_000)).unwrap();
    settle();
    let open = File::open(&at).unwrap();
    for round in 0..20 {
        // Into the pool.
        for _ in 0..3 {
            assert!(fs::read(&at).unwrap() == fs::read(&lower).unwrap());
        }
        let len = 1 + chance.below(90_000) as usize;
        let data = chance.bytes(len);
        if round % 2 == 0 {
            File::options().write(true).open(&lower).unwrap().write_all_at(&data, 4_000).unwrap();
        } else {
            fs::write(&lower, &data).unwrap();
        }
        let expected = fs::read(&lower).unwrap();
        let mut bytes = vec![0; 200_000];
        let mut read = 0;
        loop {
            match open.read_at(&mut bytes[read..], read as u64).unwrap() {
                0 => break,
                more => read += more,
            }
        }
        assert!(bytes[..read] == expected, "round {round}");
        assert_eq!(fs::metadata(&at).unwrap().len(), expected.len() as u64);
        std::thread::sleep(std::time::Duration::from_millis(if round % 4 == 3 {
            1_200
        } else {
            0
        }));
    }
    mount.wait("a change below", |status| status.foreign_changes > 0);
}
