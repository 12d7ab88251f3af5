//! The files that programs open, by their names in the page cache's stream: fanotify hands a descriptor of each.
//!
//! Of every file system on a device. Those of servers (FUSE, networks) are left alone: one whose server hangs would hang
//! who listens.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;

use nix::errno::Errno;
use nix::sys::fanotify::{EventFFlags, Fanotify, InitFlags, MarkFlags, MaskFlags};
use rustix::fs::{CWD, major, minor};

use super::page_cache::FileName;

/// Files that are kept open at most. Those of strangers are among them.
const MOST: usize = 1 << 15;

/// The files.
pub struct OpenedFiles {
    group: Fanotify,
    files: HashMap<FileName, File>,
    left_out: u64,
}

impl OpenedFiles {
    /// Listens from now on, on what is mounted now.
    ///
    /// # Errors
    /// CAP_SYS_ADMIN is needed.
    pub fn listen() -> io::Result<OpenedFiles> {
        let init = InitFlags::FAN_CLASS_NOTIF
            | InitFlags::FAN_CLOEXEC
            | InitFlags::FAN_NONBLOCK
            | InitFlags::FAN_UNLIMITED_QUEUE;
        let opened = EventFFlags::O_RDONLY
            | EventFFlags::O_LARGEFILE
            | EventFFlags::O_CLOEXEC
            | EventFFlags::O_NOATIME;
        let group = Fanotify::init(init, opened)?;
        let mut marked = 0;
        for place in mounted()? {
            let flags = MarkFlags::FAN_MARK_ADD | MarkFlags::FAN_MARK_FILESYSTEM;
            // One that is hidden below another, or that does not let itself be listened to, has nothing to tell.
            marked +=
                usize::from(group.mark(flags, MaskFlags::FAN_OPEN, CWD, Some(&place)).is_ok());
        }
        match marked {
            0 => Err(io::Error::other("no file system tells which files are opened")),
            _ => Ok(OpenedFiles { group, files: HashMap::new(), left_out: 0 }),
        }
    }

    /// Hears of what was opened since the last time.
    pub fn hear(&mut self) -> io::Result<()> {
        loop {
            let events = match self.group.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            for event in events {
                let Some(opened) = event.fd() else { continue };
                let Ok(stat) = rustix::fs::fstat(opened) else { continue };
                let device = (major(stat.st_dev), minor(stat.st_dev));
                match self.files.len() {
                    MOST.. => self.left_out += 1,
                    _ => {
                        if let Entry::Vacant(free) =
                            self.files.entry(FileName { device, inode: stat.st_ino })
                        {
                            free.insert(File::from(opened.try_clone_to_owned()?));
                        }
                    }
                }
            }
        }
    }

    /// A file that was opened since listening began.
    pub fn get(&self, name: &FileName) -> Option<&File> {
        self.files.get(name)
    }

    /// Openings that nobody looked at, as too many files are open already.
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
