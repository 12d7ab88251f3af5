//! Operations by chance, on a mount and on a plain directory: after each, both are the same. Pages leave the
//! kernel's page cache all the time, files are changed behind the mount's back, and its server is killed every few
//! seconds, after which the next one goes on.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use support::{Chance, Mount, can_run, settle};

/// Files are no longer than this.
const MAX_BYTES: u64 = 300_000;

#[test]
#[ignore = "the server, not a test"]
fn serve() {
    support::serve();
}

/// Does the same in both; both succeed or fail alike.
fn both<R: PartialEq + std::fmt::Debug>(
    mount: &Path,
    plain: &Path,
    what: &str,
    act: impl Fn(&Path) -> std::io::Result<R>,
) -> Option<R> {
    let kind = |result: std::io::Result<R>| result.map_err(|error| error.raw_os_error());
    let (ours, theirs) = (kind(act(mount)), kind(act(plain)));
    assert_eq!(ours, theirs, "{what}");
    ours.ok()
}

fn name(chance: &mut Chance) -> PathBuf {
    format!("d{}/f{}", chance.below(2), chance.below(4)).into()
}

/// Writes or reads through a shared mapping of what was opened with `flags`, by a process of its own.
fn mapped(
    path: &Path,
    flags: OFlags,
    offset: u64,
    data: Option<&[u8]>,
) -> std::io::Result<Vec<u8>> {
    let program = "import mmap,os,sys\n\
        data=sys.stdin.buffer.read()\n\
        o=int(sys.argv[2])\n\
        m=mmap.mmap(os.open(sys.argv[1],int(sys.argv[3])),0)\n\
        if data: m[o:o+len(data)]=data\n\
        sys.stdout.buffer.write(m[:])\n";
    let mut child = Command::new("python3")
        .args(["-c", program])
        .arg(path)
        .arg(offset.to_string())
        .arg((OFlags::RDWR | flags).bits().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    child.stdin.take().unwrap().write_all(data.unwrap_or_default())?;
    let output = child.wait_with_output()?;
    assert!(output.status.success(), "python has failed");
    Ok(output.stdout)
}

/// Reads one page past the page cache, or writes it.
fn direct(path: &Path, page: u64, data: Option<&[u8]>) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::DIRECT.bits() as i32;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(data.is_some()).custom_flags(flags).open(path)?;
    let mut room = vec![0; 8192];
    let start = room.as_ptr().align_offset(4096);
    let aligned = &mut room[start..start + 4096];
    if let Some(data) = data {
        aligned.copy_from_slice(data);
        file.write_all_at(aligned, page * 4096)?;
        aligned.fill(0);
    }
    let read = file.read_at(aligned, page * 4096)?;
    Ok(aligned[..read].to_vec())
}

fn compare(mount: &Mount, what: &str) {
    for directory in ["d0", "d1"] {
        let list = |root: &Path| {
            let mut names: Vec<_> = fs::read_dir(root.join(directory))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        let names = list(&mount.plain());
        assert_eq!(list(&mount.at()), names, "{what}");
        for name in names {
            let path = Path::new(directory).join(name);
            let (ours, theirs) = (mount.at().join(&path), mount.plain().join(&path));
            let (a, b) = (fs::read(&ours).unwrap(), fs::read(&theirs).unwrap());
            let differs = a.iter().zip(&b).position(|(a, b)| a != b);
            assert!(a == b, "{what}: {path:?}: {} and {} bytes, {differs:?}", a.len(), b.len());
            let links = |path: &Path| fs::metadata(path).unwrap().nlink();
            assert_eq!(links(&ours), links(&theirs), "{what}: links of {path:?}");
        }
    }
}

fn step(mount: &Mount, chance: &mut Chance) -> String {
    let (at, plain) = (mount.at(), mount.plain());
    let (file, other) = (name(chance), name(chance));
    let offset = chance.below(MAX_BYTES);
    let len = chance.below(20_000) as usize + 1;
    match chance.below(100) {
        0..20 => {
            let data = chance.bytes(len);
            let what = format!("write {file:?} {offset} {len}");
            both(&at, &plain, &what, |root| {
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(root.join(&file))?
                    .write_all_at(&data, offset)
            });
            what
        }
        20..50 => {
            let what = format!("read {file:?} {offset} {len}");
            both(&at, &plain, &what, |root| {
                let mut bytes = vec![0; len];
                let read = File::open(root.join(&file))?.read_at(&mut bytes, offset)?;
                bytes.truncate(read);
                Ok(bytes)
            });
            what
        }
        50..57 => {
            let what = format!("direct read {file:?} {}", offset / 4096);
            both(&at, &plain, &what, |root| direct(&root.join(&file), offset / 4096, None));
            what
        }
        57..60 => {
            let data = chance.bytes(4096);
            let what = format!("direct write {file:?} {}", offset / 4096);
            both(&at, &plain, &what, |root| direct(&root.join(&file), offset / 4096, Some(&data)));
            what
        }
        60..66 => {
            let what = format!("truncate {file:?} {offset}");
            both(&at, &plain, &what, |root| {
                OpenOptions::new().write(true).open(root.join(&file))?.set_len(offset)
            });
            what
        }
        66..71 => {
            let what = format!("rename {file:?} {other:?}");
            both(&at, &plain, &what, |root| fs::rename(root.join(&file), root.join(&other)));
            what
        }
        71..75 => {
            let what = format!("link {file:?} {other:?}");
            both(&at, &plain, &what, |root| fs::hard_link(root.join(&file), root.join(&other)));
            what
        }
        75..78 => {
            let what = format!("unlink {file:?}");
            both(&at, &plain, &what, |root| fs::remove_file(root.join(&file)));
            what
        }
        78..81 => {
            let what = format!("append {file:?} {len}");
            let data = chance.bytes(len);
            both(&at, &plain, &what, |root| {
                OpenOptions::new().append(true).open(root.join(&file))?.write_all(&data)
            });
            what
        }
        81..84 => {
            let size = fs::metadata(plain.join(&file)).map_or(0, |file| file.len());
            let flags = [OFlags::empty(), OFlags::DIRECT][chance.below(2) as usize];
            let what = format!("map {file:?} {flags:?} {offset} {len}");
            if size == 0 {
                return what;
            }
            let offset = offset % size;
            let data = chance.bytes((len as u64).min(size - offset) as usize);
            both(&at, &plain, &what, |root| mapped(&root.join(&file), flags, offset, Some(&data)));
            what
        }
        84..94 => {
            // Below, not through the mount.
            let data = chance.bytes(len);
            let keeps_time = chance.below(2) == 0;
            let what = format!("write below {file:?} {offset} {len} {keeps_time}");
            both(&mount.lower(), &plain, &what, |root| {
                let file = OpenOptions::new().write(true).open(root.join(&file))?;
                let modified = file.metadata()?.modified()?;
                let offset =
                    if keeps_time { offset % file.metadata()?.len().max(1) } else { offset };
                file.write_all_at(&data, offset)?;
                if keeps_time { file.set_modified(modified) } else { Ok(()) }
            });
            if keeps_time {
                // The kernel does not see that: the server does, and has it drop its pages.
                let _ = fs::metadata(at.join(&file));
                std::thread::sleep(Duration::from_millis(50));
            }
            what
        }
        94..97 => {
            let what = format!("replace below {file:?} {other:?}");
            both(&mount.lower(), &plain, &what, |root| {
                fs::rename(root.join(&file), root.join(&other))
            });
            what
        }
        _ => {
            let what = format!("truncate below {file:?} {offset}");
            both(&mount.lower(), &plain, &what, |root| {
                OpenOptions::new().write(true).open(root.join(&file))?.set_len(offset)
            });
            what
        }
    }
}

/// For as long as `CLEW_MOUNT_SECONDS` says; a quarter of a minute if it says nothing.
#[test]
fn a_mount_is_the_same_as_a_plain_directory() {
    if !can_run("a_mount_is_the_same_as_a_plain_directory", &["python3"]) {
        return;
    }
    let given = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let seconds = given("CLEW_MOUNT_SECONDS", 15);
    let seed = given("CLEW_MOUNT_SEED", 1);
    let mut mount = Mount::new(1 << 20, 64 << 10);
    for root in [mount.at(), mount.plain()] {
        for directory in ["d0", "d1"] {
            fs::create_dir(root.join(directory)).unwrap();
        }
    }
    let mut chance = Chance::new(seed);
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut last: Vec<String> = Vec::new();
    let mut steps = 0;
    // Of the servers that were killed, and of this one.
    let mut done = Done::default();
    while Instant::now() < until {
        for _ in 0..60 {
            last.push(step(&mount, &mut chance));
            steps += 1;
        }
        compare(
            &mount,
            &format!("seed {seed}, after {:?}", &last[last.len().saturating_sub(60)..]),
        );
        // Into the pool, and from it, with changes between.
        settle();
        for round in 0..4 {
            compare(&mount, &format!("seed {seed}, settled, {round}"));
            std::thread::sleep(Duration::from_millis(20));
        }
        for _ in 0..10 {
            let what = step(&mount, &mut chance);
            compare(&mount, &format!("seed {seed}, settled, then {what}"));
            last.push(what);
        }
        done.add(&mount);
        // The next server knows nothing of what this one did.
        mount.kill();
        mount.lottery = !mount.lottery;
        mount.start(1 << 20, 64 << 10);
        compare(&mount, &format!("seed {seed}, killed after {:?}", last.last()));
    }
    eprintln!("{steps} operations, {done:?}");
    assert!(done.from_pool > 100 && done.evicted > 100, "{done:?}");
    // In a short time there may be none that the pool had pages of.
    assert!(done.foreign > 0 || seconds < 60, "{done:?}");
    assert_eq!(done.damaged, 0);
}

/// What servers have done.
#[derive(Debug, Default)]
struct Done {
    servers: u64,
    from_pool: u64,
    evicted: u64,
    foreign: u64,
    damaged: u64,
}

impl Done {
    fn add(&mut self, mount: &Mount) {
        let status = mount.status();
        self.servers += 1;
        self.from_pool += status.pages_from_pool;
        self.evicted += status.pages_evicted;
        self.foreign += status.foreign_changes;
        self.damaged += status.damaged_pages;
    }
}
