//! Locks of files, between who uses a mount and who uses the directory below it.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use support::{LONG, Mount, can_run};

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

/// Opens a file again and again, and does with locks what lines say: `ok`, or the error's name.
const PROGRAM: &str = r#"
import errno, fcntl, os, signal, struct, sys
def interrupted(*_): raise InterruptedError(errno.EINTR, 'interrupted')
signal.signal(signal.SIGALRM, interrupted)
files = {}
def lock(command, kind, first, length):
    asked = struct.pack('hhqqi4x', kind, os.SEEK_SET, first, length, 0)
    return struct.unpack('hhqqi4x', fcntl.fcntl(file, command, asked))
kinds = {'shared': fcntl.F_RDLCK, 'exclusive': fcntl.F_WRLCK, 'none': fcntl.F_UNLCK}
whole = {'shared': fcntl.LOCK_SH, 'exclusive': fcntl.LOCK_EX, 'none': fcntl.LOCK_UN}
tries = {'process': fcntl.F_SETLK, 'open': fcntl.F_OFD_SETLK}
waits = {'process': fcntl.F_SETLKW, 'open': fcntl.F_OFD_SETLKW}
print('ready', flush=True)
for line in sys.stdin:
    what, name, *words = line.split()
    said = 'ok'
    try:
        if what == 'open':
            files[name] = os.open(words[0], os.O_RDONLY if words[1:] else os.O_RDWR)
        elif what == 'close':
            os.close(files.pop(name))
        else:
            file = files[name]
            whose, kind, *range = words
            if what == 'soon': signal.alarm(1)
            if whose == 'file':
                fcntl.flock(file, whole[kind] | (fcntl.LOCK_NB if what == 'try' else 0))
            elif what == 'who':
                found = lock(fcntl.F_GETLK, kinds[kind], *map(int, range))
                said = 'none' if found[0] == fcntl.F_UNLCK else f'{found[4]} {found[2]} {found[3]}'
            else:
                lock((tries if what == 'try' else waits)[whose], kinds[kind], *map(int, range))
            signal.alarm(0)
    except OSError as error:
        said = errno.errorcode[error.errno].replace('EACCES', 'EAGAIN')
    print(said, flush=True)
"#;

/// A process that locks.
struct Locker {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Locker {
    /// One that has opened the file as `a`.
    fn new(file: &Path) -> Locker {
        let mut process = Command::new("python3")
            .args(["-c", PROGRAM])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        let mut locker = Locker { process, orders, answers };
        assert_eq!(locker.answer(), "ready");
        locker.open("a", file);
        locker
    }

    fn open(&mut self, name: &str, file: &Path) {
        assert_eq!(self.says(&format!("open {name} {}", file.display())), "ok");
    }

    fn begin(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn answer(&mut self) -> String {
        assert!(self.has_said(), "no answer");
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_string()
    }

    /// Whether it says something in time.
    fn has_said(&self) -> bool {
        let mut said = [PollFd::new(self.answers.get_ref(), PollFlags::IN)];
        !self.answers.buffer().is_empty()
            || poll(&mut said, Some(&LONG.try_into().unwrap())).unwrap() > 0
    }

    fn says(&mut self, order: &str) -> String {
        self.begin(order);
        self.answer()
    }
}

impl Drop for Locker {
    fn drop(&mut self) {
        // Who waits where no signal comes ends with the mount.
        let _ = self.process.kill();
        if !std::thread::panicking() {
            let _ = self.process.wait();
        }
    }
}

/// A mount with a file, as who uses it sees it and as who uses the directory does.
fn mounted() -> (Mount, PathBuf, PathBuf) {
    let mount = Mount::new(8 << 20, 256 << 10);
    let (through, below) = (mount.at().join("f"), mount.lower().join("f"));
    std::fs::write(&below, [7; 100]).unwrap();
    (mount, through, below)
}

/// The mount's end is told what was closed a moment later.
fn at_last(locker: &mut Locker, order: &str) {
    let until = std::time::Instant::now() + LONG;
    loop {
        match locker.says(order).as_str() {
            "ok" => return,
            said => assert!(said == "EAGAIN" && until > std::time::Instant::now(), "{said}"),
        }
    }
}

#[test]
fn who_locks_either_way_keeps_the_other_away() {
    if !can_run("who_locks_either_way_keeps_the_other_away", &["python3"]) {
        return;
    }
    let (_mount, through, below) = mounted();
    for (first, second) in [(&through, &below), (&below, &through), (&through, &through)] {
        let at = format!("{} {}", first.display(), second.display());
        for (whose, part, other) in [
            ("process", " 10 10", " 15 20"),
            ("open", " 10 10", " 5 6"),
            ("process", " 0 0", " 99 1"),
            ("file", "", ""),
        ] {
            let mut has = Locker::new(first);
            let mut wants = Locker::new(second);
            let exclusive = format!("a {whose} exclusive{part}");
            let overlaps = |kind: &str| format!("try a {whose} {kind}{other}");
            assert_eq!(has.says(&format!("try {exclusive}")), "ok");
            assert_eq!(wants.says(&overlaps("exclusive")), "EAGAIN", "{whose}, {at}");
            assert_eq!(wants.says(&overlaps("shared")), "EAGAIN", "{whose}, {at}");
            if part == " 10 10" {
                assert_eq!(wants.says(&format!("try a {whose} exclusive 20 5")), "ok");
                assert_eq!(wants.says(&format!("try a {whose} none 20 5")), "ok");
            }
            // One that goes down to shared lets readers in.
            assert_eq!(has.says(&format!("try a {whose} shared{part}")), "ok");
            assert_eq!(wants.says(&overlaps("shared")), "ok", "{whose}, {at}");
            assert_eq!(has.says(&format!("try {exclusive}")), "EAGAIN", "{whose}, {at}");
            assert_eq!(wants.says(&overlaps("none")), "ok");
            // Given up by unlocking, by closing, and by dying.
            assert_eq!(has.says(&format!("try {exclusive}")), "ok");
            assert_eq!(has.says(&format!("try a {whose} none{part}")), "ok");
            assert_eq!(wants.says(&overlaps("exclusive")), "ok", "{whose}, {at}");
            assert_eq!(wants.says(&overlaps("none")), "ok");
            has.open("b", first);
            assert_eq!(has.says(&format!("try b {whose} exclusive{part}")), "ok");
            assert_eq!(has.says("close b"), "ok");
            at_last(&mut wants, &overlaps("exclusive"));
            assert_eq!(wants.says(&overlaps("none")), "ok");
            assert_eq!(has.says(&format!("try {exclusive}")), "ok");
            drop(has);
            at_last(&mut wants, &overlaps("exclusive"));
        }
    }
}

#[test]
fn who_has_a_lock_is_named() {
    if !can_run("who_has_a_lock_is_named", &["python3"]) {
        return;
    }
    let (_mount, through, below) = mounted();
    for first in [&through, &below] {
        let mut has = Locker::new(first);
        let mut other = Locker::new(&through);
        let mut asks = Locker::new(&through);
        assert_eq!(other.says("try a process shared 50 5"), "ok");
        assert_eq!(has.says("try a process exclusive 10 10"), "ok");
        assert_eq!(asks.says("who a process shared 15 1"), format!("{} 10 10", has.process.id()));
        let reads = format!("{} 50 5", other.process.id());
        assert_eq!(asks.says("who a process exclusive 40 0"), reads);
        assert_eq!(asks.says("who a process shared 40 0"), "none");
        assert_eq!(has.says("who a process exclusive 10 10"), "none", "its own");
    }
}

#[test]
fn a_process_that_closes_any_of_its_descriptors_has_no_lock_of_the_file() {
    if !can_run("a_process_that_closes_any_of_its_descriptors", &["python3"]) {
        return;
    }
    let (_mount, through, below) = mounted();
    let mut has = Locker::new(&through);
    let mut wants = Locker::new(&below);
    has.open("b", &through);
    assert_eq!(has.says("try a process exclusive 0 0"), "ok");
    assert_eq!(has.says("try b process exclusive 0 0"), "ok", "its own keeps nobody away");
    assert_eq!(wants.says("try a process shared 3 1"), "EAGAIN");
    assert_eq!(has.says("close b"), "ok");
    assert_eq!(wants.says("try a process shared 3 1"), "ok");
    assert_eq!(wants.says("try a process none 0 0"), "ok");
    // One of an open file stays until that is closed.
    has.open("b", &through);
    assert_eq!(has.says("try a open exclusive 0 0"), "ok");
    assert_eq!(has.says("try b open exclusive 0 0"), "EAGAIN");
    assert_eq!(has.says("close b"), "ok");
    assert_eq!(wants.says("try a process shared 3 1"), "EAGAIN");
}

#[test]
fn who_locks_by_a_file_for_reading_and_then_by_one_for_writing_has_both() {
    if !can_run("who_locks_by_a_file_for_reading", &["python3"]) {
        return;
    }
    let (_mount, through, below) = mounted();
    let mut has = Locker::new(&through);
    let mut wants = Locker::new(&below);
    let reads = format!("open r {} reads", through.display());
    assert_eq!(has.says(&reads), "ok");
    for order in
        ["try r process shared 0 10", "try r process shared 50 10", "try r process none 5 2"]
    {
        assert_eq!(has.says(order), "ok");
    }
    assert_eq!(has.says("try a process exclusive 20 10"), "ok");
    for (order, said) in [
        ("try a process exclusive 0 1", "EAGAIN"),
        ("try a process exclusive 5 2", "ok"),
        ("try a process exclusive 55 1", "EAGAIN"),
        ("try a process shared 55 1", "ok"),
        ("try a process shared 25 1", "EAGAIN"),
    ] {
        assert_eq!(wants.says(order), said, "{order}");
    }
    // The file of the first is closed, and with it all of this process's locks of that file.
    assert_eq!(has.says("close r"), "ok");
    assert_eq!(wants.says("try a process exclusive 0 0"), "ok");
}

/// What is open for writing nobody can execute.
#[test]
fn who_locks_for_reading_keeps_nobody_from_executing() {
    if !can_run("who_locks_for_reading_keeps_nobody_from_executing", &["python3", "true"]) {
        return;
    }
    let (mount, _, _) = mounted();
    let (through, below) = (mount.at().join("true"), mount.lower().join("true"));
    let program = ["/usr/bin/true", "/bin/true"].into_iter().find(|path| Path::new(path).exists());
    std::fs::copy(program.unwrap(), &below).unwrap();
    let mut has = Locker::new(&below);
    assert_eq!(has.says("close a"), "ok");
    assert_eq!(has.says(&format!("open r {} reads", through.display())), "ok");
    assert_eq!(has.says("try r process shared 0 0"), "ok");
    for way in [&through, &below] {
        assert!(Command::new(way).status().unwrap().success());
    }
}

#[test]
fn who_waits_for_a_lock_gets_it_or_is_interrupted() {
    if !can_run("who_waits_for_a_lock_gets_it_or_is_interrupted", &["python3"]) {
        return;
    }
    let (_mount, through, below) = mounted();
    for holder in [&below, &through] {
        for (whose, part) in [("process", " 0 0"), ("open", " 0 0"), ("file", "")] {
            let mut has = Locker::new(holder);
            let mut waits: Vec<Locker> = (0..3).map(|_| Locker::new(&through)).collect();
            let (locks, unlocks) =
                (format!("a {whose} exclusive{part}"), format!("try a {whose} none{part}"));
            assert_eq!(has.says(&format!("try {locks}")), "ok");
            // A signal ends a wait, and what is asked for afterwards is another one.
            assert_eq!(waits[0].says(&format!("soon {locks}")), "EINTR", "{whose}");
            waits.iter_mut().for_each(|waits| waits.begin(&format!("wait {locks}")));
            // So does a death.
            drop(waits.pop());
            assert_eq!(has.says(&unlocks), "ok");
            let mut others = waits.into_iter();
            let (mut one, mut other) = (others.next().unwrap(), others.next().unwrap());
            let one_first = readable_first(&one, &other);
            let (next, last) =
                if one_first { (&mut one, &mut other) } else { (&mut other, &mut one) };
            assert_eq!(next.answer(), "ok", "{whose}");
            assert_eq!(has.says(&format!("try {locks}")), "EAGAIN");
            assert_eq!(next.says(&unlocks), "ok");
            assert_eq!(last.answer(), "ok", "{whose}");
        }
    }
}

/// Whether the first of two has answered, and not the second.
fn readable_first(one: &Locker, other: &Locker) -> bool {
    let [one, other] = [one, other].map(|locker| locker.answers.get_ref());
    let mut both = [PollFd::new(one, PollFlags::IN), PollFd::new(other, PollFlags::IN)];
    poll(&mut both, Some(&LONG.try_into().unwrap())).unwrap();
    let [one, other] = both.map(|fd| !fd.revents().is_empty());
    assert_ne!(one, other, "one of them has it");
    one
}

#[test]
fn sqlite_loses_nothing_where_both_ways_are_used() {
    if !can_run("sqlite_loses_nothing_where_both_ways_are_used", &["python3"]) {
        return;
    }
    let mount = Mount::new(8 << 20, 256 << 10);
    let program = "import sqlite3,sys\n\
        d=sqlite3.connect(sys.argv[1],timeout=120,isolation_level=None)\n\
        d.execute('create table if not exists t(who,i)')\n\
        for i in range(150):\n\
        \x20 d.execute('begin immediate')\n\
        \x20 n,=d.execute('select count(*) from t where who=?',(sys.argv[2],)).fetchone()\n\
        \x20 assert n==i,(n,i)\n\
        \x20 d.execute('insert into t values(?,?)',(sys.argv[2],i))\n\
        \x20 d.execute('commit')\n";
    let ways = [mount.at(), mount.lower(), mount.at()];
    let writers = ways.iter().enumerate().map(|(number, way)| {
        let (database, who) = (way.join("data"), number.to_string());
        Command::new("python3").args(["-c", program]).arg(database).arg(who).spawn().unwrap()
    });
    for mut writer in writers.collect::<Vec<Child>>() {
        assert!(writer.wait().unwrap().success());
    }
    for way in ways {
        let count = "import sqlite3,sys\n\
            d=sqlite3.connect(sys.argv[1])\n\
            print(d.execute('select count(*),count(distinct who||i) from t').fetchone(),\n\
            \x20 d.execute('pragma integrity_check').fetchone())\n";
        let output = Command::new("python3").args(["-c", count]).arg(way.join("data")).output();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        assert_eq!(said.trim(), "(450, 450) ('ok',)");
    }
}

/// The kernel tells a moment later that a file is closed; its locks are gone by then for who asks.
#[test]
fn who_locks_right_after_another_has_closed_is_not_refused() {
    if !can_run("who_locks_right_after_another_has_closed_is_not_refused", &["python3"]) {
        return;
    }
    const OPENS: &str = "
import fcntl, os, struct, sys
ask = lambda kind: struct.pack('hhqqi4x', kind, os.SEEK_SET, 0, 0, 0)
refused = 0
own = os.open(sys.argv[1], os.O_RDWR)
for round in range(2000):
    other = os.open(sys.argv[1], os.O_RDWR)
    fcntl.fcntl(other, fcntl.F_OFD_SETLK, ask(fcntl.F_WRLCK))
    os.close(other)
    command = [fcntl.F_OFD_SETLK, fcntl.F_SETLK][round % 2]
    try:
        fcntl.fcntl(own, command, ask(fcntl.F_WRLCK))
        fcntl.fcntl(own, command, ask(fcntl.F_UNLCK))
    except OSError: refused += 1
print(refused)
";
    let (_mount, above, _) = mounted();
    // On a machine that is busy enough the server is told after more than it waits.
    let refused = [(); 3].map(|()| {
        let output = Command::new("python3").args(["-c", OPENS]).arg(&above).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().parse::<u32>().unwrap()
    });
    assert!(refused.contains(&0), "{refused:?} of 2000 each");
}
