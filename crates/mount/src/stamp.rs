//! What the state of a lower file is known by.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::Statx;

/// Names a file of the lower file system, as long as it exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileKey {
    /// Its device.
    pub dev: u64,
    /// Its inode number there.
    pub ino: u64,
}

/// A page of a file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageKey {
    /// Which file.
    pub file: FileKey,
    /// Its number there.
    pub page: u64,
}

/// Equal stamps mean that nobody has changed the file, as far as its file system tells: the time of the last
/// change of the inode cannot be set by anybody, and that of its birth tells a file from the next one with its
/// number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// Last change of its contents, s and ns.
    pub mtime: (i64, u32),
    /// Last change of anything, s and ns.
    pub ctime: (i64, u32),
    /// Birth, s and ns; zero where the file system does not know.
    pub btime: (i64, u32),
}

/// How long a file must have been left alone before the pool takes its pages. A change that comes in the same
/// tick of the file system's clock as the look at it could not be told (4 ms in the kernel).
const SETTLED: Duration = Duration::from_secs(1);
/// The same where times are whole seconds, as file systems have them (FAT: every other).
const SETTLED_IN_SECONDS: Duration = Duration::from_secs(2);
/// A tick of the kernel's clock, at least.
const TICK: Duration = Duration::from_millis(20);

impl Stamp {
    /// The stamp of a file that was looked at.
    pub(crate) fn of(stat: &Statx) -> Stamp {
        Stamp {
            size: stat.stx_size,
            mtime: (stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
            ctime: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            btime: (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
        }
    }

    /// Whether any change from now on will give another stamp.
    pub(crate) fn is_settled(&self, now: SystemTime) -> bool {
        self.is_older_than(if self.is_in_seconds() { SETTLED_IN_SECONDS } else { SETTLED }, now)
    }

    /// Whether a change in this moment could leave the same stamp.
    pub(crate) fn may_hide_a_change(&self, now: SystemTime) -> bool {
        !self.is_older_than(if self.is_in_seconds() { SETTLED_IN_SECONDS } else { TICK }, now)
    }

    /// Whether the file system seems to keep times in whole seconds.
    pub(crate) fn is_in_seconds(&self) -> bool {
        self.ctime.1 == 0
    }

    fn is_older_than(&self, least: Duration, now: SystemTime) -> bool {
        now.duration_since(time(self.ctime)).is_ok_and(|age| age > least)
    }
}

/// A file when the kernel began to keep pages of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    /// What it was known by.
    pub stamp: Stamp,
    /// It may have been changed since without another stamp.
    pub is_in_doubt: bool,
}

impl Seen {
    /// A file that was looked at just now.
    pub fn of(stamp: Stamp) -> Seen {
        Seen { stamp, is_in_doubt: stamp.may_hide_a_change(SystemTime::now()) }
    }

    /// A file that was changed through us just now, of which the kernel has all.
    pub fn by_us(stamp: Stamp) -> Seen {
        Seen { stamp, is_in_doubt: stamp.is_in_seconds() }
    }

    /// Whether the kernel's pages of it are those of a file that is known by `now`, also of the moments after the look.
    pub fn is_still(&self, now: Stamp) -> bool {
        self.stamp == now && (!self.is_in_doubt || now.may_hide_a_change(SystemTime::now()))
    }
}

/// A file's time as the standard library has it.
pub(crate) fn time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let nanoseconds = Duration::from_nanos(u64::from(nanoseconds));
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = match seconds < 0 {
        true => UNIX_EPOCH.checked_sub(whole),
        false => UNIX_EPOCH.checked_add(whole),
    };
    time.and_then(|time| time.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_settles_a_second_after_its_last_change() {
        let stamp = Stamp { size: 1, mtime: (5, 0), ctime: (100, 500_000_000), btime: (0, 0) };
        let at = |ms| UNIX_EPOCH + Duration::from_millis(ms);
        assert!(!stamp.is_settled(at(101_500)));
        assert!(stamp.is_settled(at(101_501)));
        // The clock was set back: nobody knows.
        assert!(!stamp.is_settled(at(50_000)));
    }

    #[test]
    fn times_before_1970_are_times() {
        assert_eq!(UNIX_EPOCH.duration_since(time((-2, 500_000_000))).unwrap().as_millis(), 1500);
    }
}
