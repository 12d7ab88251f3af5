//! Real files: the same histories, and what is refused.

use std::path::Path;

use super::*;
use crate::flash::device::ALIGN;
use crate::flash::file::{DeviceError, FileDevice, Open};

const BYTES: u64 = ALIGN as u64 + (16 << 16);

fn open(path: &Path) -> Open {
    Open { path: path.into(), bytes: Some(BYTES), least: CONFIG.least_bytes(), overwrite: false }
}

fn history(device: FileDevice, again: impl Fn(&FileDevice) -> FileDevice, seed: u64) {
    let mut draw = Seeded::of(seed, &[1]);
    let successor = again(&device);
    let flash = Flash::new(CONFIG, Box::new(device)).unwrap();
    let mut played = Played { flash, owner: Owner::default(), plan: plan(1), next: 1 };
    for _ in 0..300 {
        played.play(&mut draw);
    }
    played.check();
    let mut played = played.die_on(Some(Box::new(successor)));
    played.check();
    for _ in 0..300 {
        played.play(&mut draw);
    }
    assert!(played.flash.flush());
    played.check();
    assert!(played.flash.facts().reads > 0);
}

#[test]
fn a_file_is_a_device_by_io_uring_and_by_threads() {
    let dir = tempfile::tempdir().unwrap();
    for by_threads in [false, true] {
        let path = dir.path().join(format!("flash-{by_threads}"));
        let way = |device: FileDevice| if by_threads { device.by_threads() } else { device };
        let device = way(FileDevice::open(&open(&path)).unwrap());
        if device.way() != "io_uring" && !by_threads {
            eprintln!("only threads: {:?}", device.notes());
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), BYTES);
        let again = |device: &FileDevice| {
            let fd = device.fd().unwrap().try_clone_to_owned().unwrap();
            way(FileDevice::adopt(fd, BYTES).unwrap())
        };
        history(device, again, u64::from(by_threads));
        // Of what was stored nothing is to be seen.
        let bytes = std::fs::read(&path).unwrap();
        let stored: Vec<u8> = (0..64).collect();
        assert!(!bytes.windows(64).any(|window| window == stored));
    }
}

#[test]
fn one_at_a_time_has_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let first = FileDevice::open(&open(&path)).unwrap();
    let refused = FileDevice::open(&open(&path));
    assert!(matches!(refused, Err(DeviceError::InUse { .. })), "{refused:?}");
    drop(first);
    FileDevice::open(&open(&path)).unwrap();
}

#[test]
fn what_holds_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    for at in [0, 1024, 300_000, 1 << 20, BYTES as usize / 2, BYTES as usize - 1] {
        let mut bytes = vec![0; BYTES as usize];
        bytes[at] = 1;
        std::fs::write(&path, &bytes).unwrap();
        let refused = FileDevice::open(&open(&path));
        assert!(matches!(refused, Err(DeviceError::NotOurs { .. })), "byte {at}");
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
    drop(FileDevice::open(&Open { overwrite: true, ..open(&path) }).unwrap());
    // Now it is ours.
    drop(FileDevice::open(&open(&path)).unwrap());
    let small = FileDevice::open(&Open { bytes: Some(8192), ..open(&path) });
    assert!(matches!(small, Err(DeviceError::TooSmall { .. })), "{small:?}");
    let kind = FileDevice::open(&open(dir.path()));
    assert!(matches!(kind, Err(DeviceError::Kind { .. })), "{kind:?}");
    let nowhere = FileDevice::open(&open(&dir.path().join("no/such")));
    assert!(matches!(nowhere, Err(DeviceError::System { call: "open", .. })), "{nowhere:?}");
}

#[test]
fn a_file_that_became_shorter_is_an_error_and_no_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let device = FileDevice::open(&open(&path)).unwrap();
    let flash = Flash::new(CONFIG, Box::new(device)).unwrap();
    let mut played = Played { flash, owner: Owner::default(), plan: plan(1), next: 1 };
    let handles: Vec<u32> = (0..30).map(|i| played.put(vec![i; 8000]).unwrap()).collect();
    assert!(played.flash.flush());
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    let read = handles.iter().map(|handle| played.read(*handle));
    let failed = read.filter(|read| matches!(read, Err(ReadFlashError::Device { .. }))).count();
    let whole = handles.iter().filter(|handle| played.is_as_put(**handle)).count();
    assert_eq!(failed + whole, handles.len());
    assert!(failed > 10 && whole > 5, "{failed} failed, {whole} read");
    // A successor reads as much, and takes nothing.
    let fd = played.flash.device().fd().unwrap().try_clone_to_owned().unwrap();
    let device = FileDevice::adopt(fd, BYTES).unwrap();
    assert_eq!(device.bytes(), 100_000);
    let left = super::left(&played.flash);
    let named: Vec<_> =
        handles.iter().map(|handle| (*handle, played.owner.objects.lock()[handle].0)).collect();
    let (adopted, lost) = Flash::adopt(super::CONFIG, left, Box::new(device), &named).unwrap();
    assert_eq!(lost, []);
    played.flash = adopted;
    let again = handles.iter().filter(|handle| played.is_as_put(**handle)).count();
    assert_eq!(again, whole);
    let latched = played.put(vec![1; 80]).unwrap_err();
    assert!(latched.to_string().contains("100000 bytes, and had"), "{latched}");
}

#[test]
fn a_file_that_is_of_no_use_is_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("flash");
    let huge = Open { bytes: Some(1 << 60), ..open(&path) };
    assert!(matches!(FileDevice::open(&huge), Err(DeviceError::System { .. })));
    assert!(!path.exists());
    drop(FileDevice::open(&open(&path)).unwrap());
    assert!(matches!(FileDevice::open(&huge), Err(DeviceError::System { .. })));
    assert_eq!(path.metadata().unwrap().len(), BYTES);
    drop(FileDevice::open(&open(&path)).unwrap());
}

#[test]
fn a_link_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, to) = (dir.path().join("link"), dir.path().join("elsewhere"));
    std::os::unix::fs::symlink(&to, &path).unwrap();
    assert!(matches!(FileDevice::open(&open(&path)), Err(DeviceError::Kind { .. })));
    assert!(!to.exists());
}
