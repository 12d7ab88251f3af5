//! The device that flash is on (ElasticZRAM 3.2), for schemes that ask for it: looked at when the daemon begins,
//! then as often as the scheme says.
//!
//! A file's device is its file system: what is used of it by everybody (statvfs). A block device is Clew's alone:
//! what of it holds live bytes. What was written to it the kernel counts since the machine began
//! (`/sys/dev/block/MAJOR:MINOR/stat`); of a file system that is on no single device, what Clew wrote counts.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use clew_core::{DeviceFacts, Event};
use clew_store::flash::{FlashFacts, LogId};
use rustix::fs::FileType;

use super::Governor;

/// Of the kernel's count.
const SECTOR_BYTES: u64 = 512;

/// When it was looked at last.
#[derive(Default)]
pub(super) struct FlashDevice {
    last: Option<Instant>,
}

impl Governor {
    /// Tells the policies, as often as they want it.
    pub(super) fn look_at_flash_device(&mut self) {
        let Some(every) = self.config.scheme.device_sample_s() else { return };
        let every = Duration::from_secs(every.into());
        if self.flash_device.last.is_some_and(|last| last.elapsed() < every) {
            return;
        }
        let Some(flash) = self.shared.mover.store.log(LogId::FLASH) else { return };
        let Some(fd) = flash.device().fd() else { return };
        self.flash_device.last = Some(Instant::now());
        match look(fd, &flash.facts()) {
            Ok(device) => {
                tracing::debug!(?device, "the device that flash is on");
                self.tell(&Event::DeviceSample { device });
            }
            Err(error) => tracing::warn!(%error, "the device of flash cannot be looked at"),
        }
    }
}

fn look(fd: BorrowedFd<'_>, flash: &FlashFacts) -> std::io::Result<DeviceFacts> {
    let stat = rustix::fs::fstat(fd)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let device = if is_device { stat.st_rdev } else { stat.st_dev };
    let (used_bytes, total_bytes) = match is_device {
        true => (flash.live_bytes, flash.capacity_bytes),
        false => {
            let found = rustix::fs::fstatvfs(fd)?;
            let used = found.f_blocks.saturating_sub(found.f_bfree);
            (used * found.f_frsize, found.f_blocks * found.f_frsize)
        }
    };
    let counted = [rustix::fs::major(device), rustix::fs::minor(device)];
    let stat = format!("/sys/dev/block/{}:{}/stat", counted[0], counted[1]);
    let written = std::fs::read_to_string(stat).ok().and_then(|stat| written_bytes(&stat));
    let written_bytes = written.unwrap_or(flash.written_bytes);
    Ok(DeviceFacts { used_bytes, total_bytes, written_bytes })
}

/// Reads, merged reads, sectors read, time; the same of writes; and more.
fn written_bytes(stat: &str) -> Option<u64> {
    let sectors: u64 = stat.split_ascii_whitespace().nth(6)?.parse().ok()?;
    sectors.checked_mul(SECTOR_BYTES)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_kernels_count_is_of_sectors_written() {
        // Of a disk here: 15 reads, 8 GB written.
        let stat = "      15        2     1160        3   501232    17000 15625000   912345        0  88000\n";
        assert_eq!(written_bytes(stat), Some(15_625_000 * 512));
        assert_eq!(written_bytes("1 2 3"), None);
        assert_eq!(written_bytes("1 2 3 4 5 6 x"), None);
    }

    #[test]
    fn a_file_is_on_its_file_system() {
        let facts = FlashFacts { written_bytes: 77, capacity_bytes: 1 << 20, ..Default::default() };
        let dir = std::fs::File::open(std::env::temp_dir()).expect("it is there");
        let device = look(dir.as_fd(), &facts).expect("it is open");
        assert!(device.total_bytes > 1 << 20 && device.used_bytes <= device.total_bytes);
    }
}
