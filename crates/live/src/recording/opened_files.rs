//! The files that programs open, by their names in the page cache's stream: fanotify hands a descriptor of each.
//!
//! Of every file system on a device. Those of servers (FUSE, networks) are left alone: one whose server hangs would hang
//! who listens.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::{CWD, fstat, major, minor};
use rustix::process::{Resource, getrlimit};

use super::page_cache::FileName;
use crate::agents::seqpacket::is_readable;

/// Files that are kept open at most, those of strangers among them; and no more than a part of the descriptors that this process
/// may have.
const MOST: usize = 1 << 15;
const PART: u64 = 4;
/// How often is looked for those that need not be.
const LOOK: Duration = Duration::from_secs(1);
/// Openings that are heard of in one go.
const AT_ONCE: usize = 1 << 14;

/// The files.
pub struct OpenedFiles {
    group: Fanotify,
    files: HashMap<FileName, Opened>,
    /// Files of which nobody has asked are let go after that time.
    patience: Duration,
    looked: Instant,
    most: usize,
    left_out: u64,
}

struct Opened {
    file: File,
    since: Instant,
    is_wanted: bool,
}

impl OpenedFiles {
    /// Listens from now on, on what is mounted now. A file is kept for `patience` until it is asked for.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN is needed.
    pub fn listen(patience: Duration) -> io::Result<OpenedFiles> {
        let init = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::FAN_UNLIMITED_QUEUE;
        // Who has a lease of a file, or a pipe without another end, is not waited for.
        let opened = EventFFlags::O_RDONLY
            | EventFFlags::O_LARGEFILE
            | EventFFlags::O_CLOEXEC
            | EventFFlags::O_NOATIME
            | EventFFlags::O_NONBLOCK;
        let group = Fanotify::init(init, opened)?;
        let mut marked = 0;
        for place in mounted()? {
            let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
            // One that is hidden below another, or that does not let itself be listened to, has nothing to tell.
            marked +=
                usize::from(group.mark(flags, MaskFlags::FAN_OPEN, CWD, Some(&place)).is_ok());
        }
        if marked == 0 {
            return Err(io::Error::other("no file system tells which files are opened"));
        }
        let may = getrlimit(Resource::Nofile).current.map_or(MOST as u64, |may| may / PART);
        let (files, looked) = (HashMap::new(), Instant::now());
        let most = usize::try_from(may).unwrap_or(MOST).min(MOST);
        Ok(OpenedFiles { group, files, patience, looked, most, left_out: 0 })
    }

    /// Hears of what was opened since the last time.
    pub fn hear(&mut self) {
        let group = &self.group;
        let mut heard = 0;
        while heard < AT_ONCE && is_readable(&group.as_fd(), Duration::ZERO) {
            let events = match group.read_events() {
                Ok(events) => events,
                // One that cannot be opened now, or for want of descriptors.
                Err(_) => {
                    self.left_out += 1;
                    heard += 1;
                    continue;
                }
            };
            heard += events.len();
            for event in events {
                let Some(opened) = event.fd() else { continue };
                let Ok(stat) = fstat(opened) else { continue };
                let device = (major(stat.st_dev), minor(stat.st_dev));
                let (is_full, name) =
                    (self.files.len() >= self.most, FileName { device, inode: stat.st_ino });
                match self.files.entry(name) {
                    Entry::Occupied(mut known) => known.get_mut().since = Instant::now(),
                    Entry::Vacant(_) if is_full => self.left_out += 1,
                    Entry::Vacant(free) => match opened.try_clone_to_owned() {
                        Ok(own) => {
                            let (file, since) = (File::from(own), Instant::now());
                            free.insert(Opened { file, since, is_wanted: false });
                        }
                        Err(_) => self.left_out += 1,
                    },
                }
            }
        }
        self.let_go();
    }

    /// Closes what nobody has asked for, and what has been removed.
    fn let_go(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let patience = self.patience;
        self.files.retain(|_, opened| match opened.is_wanted {
            true => fstat(&opened.file).is_ok_and(|stat| stat.st_nlink > 0),
            false => opened.since.elapsed() < patience,
        });
    }

    /// A file that was opened since listening began; it is kept from now on.
    pub fn want(&mut self, name: &FileName) -> Option<&File> {
        let opened = self.files.get_mut(name)?;
        opened.is_wanted = true;
        Some(&opened.file)
    }

    /// Openings that nobody looked at, as too many files are open already, or they could not be opened.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}

/// Where file systems on devices are, one place each.
fn mounted() -> io::Result<Vec<PathBuf>> {
    let (kinds, mounts) =
        (fs::read_to_string("/proc/filesystems")?, fs::read_to_string("/proc/self/mounts")?);
    Ok(on_devices(&kinds, &mounts).map(PathBuf::from).collect())
}

/// The same, of the kinds that the kernel knows and of what is mounted, in its words. A place that has to be written in
/// another way (a blank in it) is passed over.
fn on_devices<'a>(kinds: &'a str, mounts: &'a str) -> impl Iterator<Item = &'a str> {
    let is_on_device = move |kind: &str| {
        let mut known = kinds.lines().filter_map(|line| line.strip_prefix('\t'));
        known.any(|known| known == kind)
    };
    let mut seen = HashSet::new();
    mounts.lines().filter_map(move |line| {
        let mut words = line.split(' ');
        let (device, place, kind) = (words.next()?, words.next()?, words.next()?);
        let is_new = is_on_device(kind) && !place.contains('\\') && seen.insert(device);
        is_new.then_some(place)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_system_on_a_device_is_listened_to_once() {
        let kinds = "nodev\ttmpfs\n\text4\nnodev\tfuse\n\tvfat\n";
        let mounts = "/dev/a / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/b /a\\040b vfat rw 0 0\n\
                      /dev/b /b vfat rw 0 0\n/dev/a /again ext4 rw 0 0\nclew /m fuse.clew rw 0 0\n";
        assert!(on_devices(kinds, mounts).eq(["/", "/b"]));
        assert_eq!(on_devices(kinds, "a line\n\n").count(), 0);
    }
}
