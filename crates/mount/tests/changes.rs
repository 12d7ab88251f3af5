//! Changes below that nobody asks about: the kernel drops what it has of them all the same.

mod support;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use support::{LONG, Mount, can_run, settle, skip_because};

/// Longer than any test takes: what is seen before was not looked for.
const BELIEVED_MS: u64 = 3_600_000;

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The first bytes of an open file. To open it anew would be to look at it.
fn begins(file: &File) -> [u8; 6] {
    let mut bytes = [0; 6];
    let _ = file.read_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn what_the_kernel_believes_is_dropped_when_it_changes_below() {
    if !can_run("what_the_kernel_believes_is_dropped_when_it_changes_below", &[]) {
        return;
    }
    let mount = Mount::believing(BELIEVED_MS, 1 << 20, 1 << 20);
    let (at, lower) = (mount.at(), mount.lower());
    let is = |name: &str, bytes: &[u8]| fs::read(at.join(name)).is_ok_and(|read| read == bytes);
    for (name, bytes) in [("f", &b"before"[..]), ("gone", b"x"), ("other", b"y")] {
        fs::write(lower.join(name), bytes).unwrap();
        assert!(is(name, bytes));
    }
    let open = File::open(at.join("f")).unwrap();
    assert_eq!(begins(&open), *b"before");
    // Of the same size, with the same time.
    let file = File::options().write(true).open(lower.join("f")).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    file.write_all_at(b"behind", 0).unwrap();
    file.set_modified(modified).unwrap();
    until("other contents", || begins(&open) == *b"behind");
    file.set_len(3).unwrap();
    until("a shorter file", || begins(&open) == *b"beh\0\0\0");
    fs::set_permissions(lower.join("f"), fs::Permissions::from_mode(0o604)).unwrap();
    let mode = || fs::metadata(at.join("f")).unwrap().permissions().mode() & 0o777;
    until("other permissions", || mode() == 0o604);
    // Names.
    fs::remove_file(lower.join("gone")).unwrap();
    until("no such name", || !at.join("gone").exists());
    fs::write(lower.join("new"), b"new").unwrap();
    fs::rename(lower.join("new"), lower.join("other")).unwrap();
    until("a name of another file", || is("other", b"new"));
    assert!(mount.status().changes_told >= 5, "{:?}", mount.status());
}

/// What was read ahead is of before, whoever changes the file, and how.
#[test]
fn who_reads_in_a_row_has_no_byte_of_before_a_change() {
    if !can_run("who_reads_in_a_row_has_no_byte_of_before_a_change", &[]) {
        return;
    }
    const REQUEST: usize = 128 << 10;
    // Read so far, and where it changes then.
    const READ: u64 = 4 * REQUEST as u64;
    const CHANGED: u64 = READ + 3 * 4096;
    let mount = Mount::new(8 << 20, 1 << 20);
    let flags = OFlags::DIRECT.bits() as i32;
    let open = |path: &Path, writes| {
        File::options().read(true).write(writes).custom_flags(flags).open(path).unwrap()
    };
    let mut room = vec![0; REQUEST + 4096];
    let start = room.as_ptr().align_offset(4096);
    let bytes = &mut room[start..start + REQUEST];
    for (round, through) in [false, true, false, true].into_iter().enumerate() {
        let name = format!("f{round}");
        let (lower, at) = (mount.lower().join(&name), mount.at().join(&name));
        fs::write(&lower, vec![1; 16 * REQUEST]).unwrap();
        File::open(&lower).unwrap().sync_all().unwrap();
        settle();
        let before = mount.status().pages_read_ahead;
        let file = open(&at, false);
        for number in 0..4 {
            file.read_exact_at(bytes, number * REQUEST as u64).unwrap();
        }
        until("it is read ahead", || {
            file.read_exact_at(bytes, READ - REQUEST as u64).unwrap();
            mount.status().pages_read_ahead > before
        });
        let changed = open(if through { &at } else { &lower }, true);
        bytes.fill(2);
        changed.write_all_at(&bytes[..4096], CHANGED).unwrap();
        file.read_exact_at(bytes, READ).unwrap();
        let changed = (CHANGED - READ) as usize;
        assert_eq!([bytes[0], bytes[changed], bytes[changed + 4096]], [1, 2, 1], "round {round}");
        // A part of it that is not there any more.
        File::options()
            .write(true)
            .open(if through { &at } else { &lower })
            .unwrap()
            .set_len(READ + 4096)
            .unwrap();
        assert_eq!(file.read_at(bytes, READ).unwrap(), 4096, "round {round}");
    }
}

/// A process that maps a file, and says of which byte it begins whenever it is asked.
struct Mapping {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Mapping {
    fn of(path: &Path) -> Mapping {
        let program = "import mmap,sys\n\
            f=open(sys.argv[1],'rb')\n\
            m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)\n\
            for line in sys.stdin: print(m[0],flush=True)\n";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Mapping { child, ask, answers }
    }

    fn first(&mut self) -> u8 {
        self.ask.write_all(b"\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn who_maps_a_file_sees_what_is_written_below() {
    if !can_run("who_maps_a_file_sees_what_is_written_below", &["python3"]) {
        return;
    }
    let mount = Mount::new(1 << 20, 1 << 20);
    let lower = mount.lower().join("f");
    fs::write(&lower, [1; 10_000]).unwrap();
    let mut mapping = Mapping::of(&mount.at().join("f"));
    assert_eq!(mapping.first(), 1);
    let file = File::options().write(true).open(&lower).unwrap();
    for byte in 2..10 {
        file.write_all_at(&[byte], 0).unwrap();
        until("the new byte", || mapping.first() == byte);
    }
}

/// Writes a page of twos to a file past the page cache, which keeps no reader out, when it is told to, or there is nobody to do
/// so: the kernel sets the file's time, and waits for the memory that is to be written.
const SLOW_WRITE: &str = "
import ctypes, fcntl, mmap, os, struct, sys, threading
uffd = ctypes.CDLL(None, use_errno=True).syscall(323, os.O_CLOEXEC | os.O_NONBLOCK)
if uffd < 0: sys.exit('no userfaultfd')
fcntl.ioctl(uffd, 0xc018aa3f, struct.pack('QQQ', 0xaa, 0, 0))
memory = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
fcntl.ioctl(uffd, 0xc020aa00, struct.pack('QQQQ', at, 4096, 1, 0))
twos = ctypes.create_string_buffer(b'\\x02' * 4096, 4096)
def fill():
    sys.stdin.readline()
    fcntl.ioctl(uffd, 0xc028aa03, struct.pack('QQQQq', at, ctypes.addressof(twos), 4096, 0, 0))
threading.Thread(target=fill).start()
os.pwrite(os.open(sys.argv[1], os.O_WRONLY | os.O_DIRECT), memory, 0)
";

#[test]
fn what_is_read_during_a_long_write_below_is_dropped_at_its_end() {
    if !can_run("what_is_read_during_a_long_write_below_is_dropped_at_its_end", &["python3"]) {
        return;
    }
    let mount = Mount::new(1 << 20, 1 << 20);
    let lower = mount.lower().join("f");
    fs::write(&lower, [1; 4096]).unwrap();
    // What is written anew where nothing was on disk yet keeps readers out.
    File::open(&lower).unwrap().sync_all().unwrap();
    let open = File::open(mount.at().join("f")).unwrap();
    assert_eq!(begins(&open), [1; 6]);
    let time = || fs::metadata(&lower).unwrap().modified().unwrap();
    let before = time();
    let mut writer = Command::new("python3")
        .args(["-c", SLOW_WRITE])
        .arg(&lower)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    until("a write has begun", || time() != before || writer.try_wait().unwrap().is_some());
    // A change from now on would give another time, it seems.
    until("it is settled", || time().elapsed().is_ok_and(|age| age > Duration::from_millis(1500)));
    let again = open.try_clone().unwrap();
    let reader = std::thread::spawn(move || begins(&again));
    until("it is read meanwhile", || reader.is_finished());
    assert_eq!(reader.join().unwrap(), [1; 6], "nothing is written yet");
    writer.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(writer.wait().unwrap().success());
    until("what was written", || begins(&open) == [2; 6]);
}

/// Names that come to be of files which the kernel knows by other names.
#[test]
fn a_name_that_is_of_another_known_file_is_seen() {
    let test = "a_name_that_is_of_another_known_file_is_seen";
    if !can_run(test, &[]) {
        return;
    }
    let mount = Mount::believing(BELIEVED_MS, 1 << 20, 1 << 20);
    let (at, lower) = (mount.at(), mount.lower());
    let is =
        |name: &str, bytes: &str| fs::read_to_string(at.join(name)).is_ok_and(|read| read == bytes);
    let names = ["conf", "conf.tmp", "log", "log.1", "one", "two", "link"];
    for name in names {
        fs::write(lower.join(name), name).unwrap();
        assert!(is(name, name));
    }
    fs::rename(lower.join("conf.tmp"), lower.join("conf")).unwrap();
    fs::rename(lower.join("log"), lower.join("log.1")).unwrap();
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    rustix::fs::renameat_with(
        rustix::fs::CWD,
        lower.join("one"),
        rustix::fs::CWD,
        lower.join("two"),
        flags,
    )
    .unwrap();
    fs::remove_file(lower.join("link")).unwrap();
    fs::hard_link(lower.join("conf"), lower.join("link")).unwrap();
    until("what was replaced", || is("conf", "conf.tmp"));
    until("what was rotated", || is("log.1", "log"));
    until("what was exchanged", || is("one", "two") && is("two", "one"));
    until("what was linked anew", || is("link", "conf.tmp"));
}

/// Whoever appends writes behind what others have appended below, or to what is left of it.
#[test]
fn what_is_appended_goes_to_the_end() {
    if !can_run("what_is_appended_goes_to_the_end", &[]) {
        return;
    }
    for believed in [0, BELIEVED_MS] {
        let mount = Mount::believing(believed, 1 << 20, 1 << 20);
        let (above, below) = (mount.at().join("log"), mount.lower().join("log"));
        let append = |path: &Path| File::options().create(true).append(true).open(path).unwrap();
        let (mut ours, mut theirs) = (append(&above), append(&below));
        let mut wanted = String::new();
        for round in 0..20 {
            let (one, other) = (format!("above {round}\n"), format!("below {}\n", round * round));
            ours.write_all(one.as_bytes()).unwrap();
            theirs.write_all(other.as_bytes()).unwrap();
            wanted += &(one + &other);
        }
        assert_eq!(fs::read_to_string(&below).unwrap(), wanted);
        until("all of it above", || fs::read_to_string(&above).unwrap() == wanted);
        theirs.set_len(0).unwrap();
        ours.write_all(b"new\n").unwrap();
        assert_eq!(fs::read_to_string(&below).unwrap(), "new\n");
        until("what is left, above", || fs::read_to_string(&above).unwrap() == "new\n");
    }
}

#[test]
fn what_could_not_be_told_is_looked_for() {
    const QUEUE: &str = "/proc/sys/fs/inotify/max_queued_events";
    let test = "what_could_not_be_told_is_looked_for";
    if !can_run(test, &[]) {
        return;
    }
    let events: u64 = fs::read_to_string(QUEUE).unwrap().trim().parse().unwrap();
    if events > 1_000_000 {
        return skip_because(test, "the system's queue of events is too long to fill");
    }
    let mount = Mount::believing(BELIEVED_MS, 1 << 20, 1 << 20);
    let (at, lower) = (mount.at(), mount.lower());
    fs::write(lower.join("name"), "old").unwrap();
    assert_eq!(fs::read_to_string(at.join("name")).unwrap(), "old");
    let names = ["a", "b", "last"];
    let open = names.map(|name| {
        fs::write(lower.join(name), "before").unwrap();
        File::open(at.join(name)).unwrap()
    });
    assert!(open.iter().all(|file| begins(file) == *b"before"));
    mount.stop();
    let files = ["a", "b"].map(|name| File::options().write(true).open(lower.join(name)).unwrap());
    // In turn: what is told twice in a row is told once.
    for event in 0..events + 10 {
        files[(event % 2) as usize].write_all_at(b"B", 0).unwrap();
    }
    fs::write(lower.join("last"), "behind").unwrap();
    fs::write(lower.join("new"), "new").unwrap();
    fs::rename(lower.join("new"), lower.join("name")).unwrap();
    mount.go_on();
    until("all three", || open.each_ref().map(begins) == [*b"Before", *b"Before", *b"behind"]);
    until("the name", || fs::read_to_string(at.join("name")).is_ok_and(|read| read == "new"));
    assert!(mount.status().changes_lost > 0, "{:?}", mount.status());
}

/// Past the page cache is only what is read: a mapping of the same descriptor has its pages there, as any has.
#[test]
fn what_is_mapped_by_a_descriptor_for_direct_io_is_taken_back_too() {
    const TEST: &str = "what_is_mapped_by_a_descriptor_for_direct_io_is_taken_back_too";
    if !can_run(TEST, &["python3"]) {
        return;
    }
    const MAPS: &str = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
room = mmap.mmap(-1, 1 << 20)
for at in range(0, 8 << 20, 1 << 20): os.preadv(file, [room], at)
print('read', flush=True)
sys.stdin.readline()
seen = mmap.mmap(file, 8 << 20, prot=mmap.PROT_READ)
print(sum(seen[at] for at in range(0, 8 << 20, 4096)), flush=True)
sys.stdin.readline()
";
    let mount = Mount::new(16 << 20, 1 << 20);
    fs::write(mount.lower().join("f"), vec![1; 8 << 20]).unwrap();
    settle();
    let mut child = Command::new("python3")
        .args(["-c", MAPS])
        .arg(mount.at().join("f"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.next().unwrap(), "read");
    assert_eq!(mount.status().cached_pages, 0, "nothing is kept of what goes past it");
    let mut orders = child.stdin.take().unwrap();
    orders.write_all(b"\n").unwrap();
    assert_eq!(said.next().unwrap(), "2048");
    mount.wait("what it mapped is taken back", |status| {
        status.pages_evicted >= 1024 && status.cached_pages <= 256
    });
    drop(orders);
    assert!(child.wait().unwrap().success());
}

/// A change by a mapping is told by nobody, and where times are whole seconds it may leave them as they were.
#[test]
fn a_change_within_the_second_of_the_one_before_is_seen() {
    const TEST: &str = "a_change_within_the_second_of_the_one_before_is_seen";
    if !can_run(TEST, &["mkfs.ext4", "mount", "python3"]) {
        return;
    }
    let Some(mount) = Mount::with_times_in_seconds() else {
        return skip_because(TEST, "no file system can be made in a file");
    };
    let (below, above) = (mount.lower().join("f"), mount.at().join("f"));
    let writes = "import mmap, sys\n\
        file = open(sys.argv[1], 'r+b')\n\
        memory = mmap.mmap(file.fileno(), 8192)\n\
        print('ready', flush=True)\n\
        for line in sys.stdin:\n    \
            memory[:8192] = line.strip().encode() * 8192\n    \
            memory.flush()\n    \
            print('done', flush=True)\n";
    let changed = || fs::metadata(&below).unwrap().modified().unwrap();
    // In a second that is over too soon nothing is shown.
    for round in 0..20 {
        fs::write(&below, vec![b'0'; 8192]).unwrap();
        let mut writer = Command::new("python3")
            .args(["-c", writes, below.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut ask = |line: &str| {
            if !line.is_empty() {
                writeln!(writer.stdin.as_mut().unwrap(), "{line}").unwrap();
            }
            answers.next().unwrap().unwrap();
        };
        ask("");
        let second = || {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.unwrap().as_secs()
        };
        let before = second();
        while second() == before {
            std::thread::sleep(Duration::from_millis(1));
        }
        ask("A");
        let (open, first) = (File::open(&above).unwrap(), changed());
        assert_eq!(begins(&open), *b"AAAAAA");
        ask("B");
        let is_hidden = changed() == first;
        until("other contents, of an open file", || begins(&open) == *b"BBBBBB");
        drop(open);
        until("other contents", || begins(&File::open(&above).unwrap()) == *b"BBBBBB");
        drop(writer.stdin.take());
        assert!(writer.wait().unwrap().success());
        if is_hidden {
            return;
        }
        println!("round {round}: the second was over");
    }
    panic!("no two changes within a second in 20 rounds");
}
