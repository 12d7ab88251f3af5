//! What lies on flash is encrypted and authenticated, with a key that dies with the run: AES-256-GCM (NIST
//! SP 800-38D), one tag an object.
//!
//! Each log has a key. The nonce is where the object is: its segment's generation and its offset there. A generation is used once
//! for ever (see [`super::log`]), so no nonce is used for two objects. The additional data are the handle and the place:
//! an object that was exchanged for another, or for what lay there before, does not pass.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use super::Place;

/// What a tag takes behind each object, bytes.
pub const TAG_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
/// The key's segment; one page.
const SEGMENT_BYTES: usize = 4096;
/// Behind the key: says that there is one.
const MARK: [u8; 8] = *b"clew-key";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The system refused.
    #[error("{call} for the key of what is on flash: {source}")]
    System {
        /// The call that failed.
        call: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// There is no key in what should have one.
    #[error("the key of what is on flash is gone: memory was damaged")]
    Gone,
}

fn failed(call: &'static str) -> KeyError {
    KeyError::System { call, source: io::Error::last_os_error() }
}

/// The object does not decrypt: it was changed, exchanged, or written by somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsound;

/// The key, and the memory that a successor finds it in.
pub struct Cipher {
    fd: OwnedFd,
    is_secret: bool,
    key: LessSafeKey,
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cipher(secret memory: {})", self.is_secret)
    }
}

impl Cipher {
    /// A new key, at random, in memory that no other process can map without its descriptor: of a kind that
    /// the kernel itself does not read (memfd_secret), or an ordinary memfd where it has none.
    ///
    /// # Errors
    /// If the system refuses memory or randomness.
    pub fn new() -> Result<Cipher, KeyError> {
        let (fd, is_secret) = memory()?;
        let mut key = [0; KEY_BYTES];
        // SAFETY: the buffer has that many writable bytes.
        let got = unsafe { libc::getrandom(key.as_mut_ptr().cast(), KEY_BYTES, 0) };
        if got != KEY_BYTES as isize {
            return Err(failed("getrandom"));
        }
        let cipher = Cipher::of(&key, fd, is_secret);
        let written = with_mapped(&cipher.fd, |bytes| {
            bytes[..KEY_BYTES].copy_from_slice(&key);
            bytes[KEY_BYTES..][..MARK.len()].copy_from_slice(&MARK);
        });
        wipe(&mut key);
        written.map(|()| cipher)
    }

    /// The key that a predecessor made.
    ///
    /// # Errors
    /// If the system refuses, or there is no key.
    pub fn adopt(fd: OwnedFd) -> Result<Cipher, KeyError> {
        // SAFETY: plain data, filled by the call before it is read.
        let len = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if libc::fstat(fd.as_raw_fd(), &mut stat) != 0 {
                return Err(failed("fstat"));
            }
            stat.st_size
        };
        // Shorter, touching it would be the end of us.
        if len != SEGMENT_BYTES as i64 {
            return Err(KeyError::Gone);
        }
        let mut found = [0; KEY_BYTES + MARK.len()];
        with_mapped(&fd, |bytes| found = *bytes.first_chunk().expect("a page"))?;
        let is_sound = found[KEY_BYTES..] == MARK;
        let key = found.first_chunk().filter(|_| is_sound).copied();
        wipe(&mut found);
        let mut key = key.ok_or(KeyError::Gone)?;
        let cipher = Cipher::of(&key, fd, false);
        wipe(&mut key);
        Ok(cipher)
    }

    fn of(key: &[u8; KEY_BYTES], fd: OwnedFd, is_secret: bool) -> Cipher {
        let unbound = UnboundKey::new(&AES_256_GCM, key).expect("the key has the length it has");
        Cipher { fd, is_secret, key: LessSafeKey::new(unbound) }
    }

    /// Whether this process made the key in memory that the kernel keeps from itself.
    pub fn is_secret(&self) -> bool {
        self.is_secret
    }

    /// Encrypts `bytes`, which lie at `place` from now on.
    pub(super) fn seal(&self, handle: u32, place: Place, bytes: &mut [u8]) -> [u8; TAG_BYTES] {
        let aad = Aad::from(additional(handle, place));
        let sealed = self.key.seal_in_place_separate_tag(nonce(place), aad, bytes);
        let tag = sealed.expect("no object is near the cipher's limit of 64 GiB");
        let mut out = [0; TAG_BYTES];
        out.copy_from_slice(tag.as_ref());
        out
    }

    /// Decrypts `bytes`, which lay at `place`.
    pub(super) fn open(
        &self,
        handle: u32,
        place: Place,
        bytes: &mut [u8],
        tag: [u8; TAG_BYTES],
    ) -> Result<(), Unsound> {
        let aad = Aad::from(additional(handle, place));
        let opened =
            self.key.open_in_place_separate_tag(nonce(place), aad, Tag::from(tag), bytes, 0..);
        opened.map(drop).map_err(|_| Unsound)
    }
}

impl AsFd for Cipher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn nonce(place: Place) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&place.generation.to_le_bytes());
    nonce[8..].copy_from_slice(&place.offset.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn additional(handle: u32, place: Place) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..4].copy_from_slice(&handle.to_le_bytes());
    bytes[4..].copy_from_slice(&place.to_bytes());
    bytes
}

/// The compiler may not leave it out because nobody reads it again.
fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        // SAFETY: a reference is a valid place to write.
        unsafe { std::ptr::write_volatile(byte, 0) };
    }
}

fn memory() -> Result<(OwnedFd, bool), KeyError> {
    // SAFETY: takes no pointers.
    let secret = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
    let (fd, is_secret) = if secret >= 0 {
        (secret as i32, true)
    } else {
        // SAFETY: the name is a C string.
        (unsafe { libc::memfd_create(c"clew-flash-key".as_ptr(), libc::MFD_CLOEXEC) }, false)
    };
    if fd < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: the descriptor was just created and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain system calls on our descriptor. Secret memory has no mode to change, nor a need to.
    unsafe {
        if !is_secret && libc::fchmod(fd.as_raw_fd(), 0o600) != 0 {
            return Err(failed("fchmod"));
        }
        if libc::ftruncate(fd.as_raw_fd(), SEGMENT_BYTES as libc::off_t) != 0 {
            return Err(failed("ftruncate"));
        }
    }
    Ok((fd, is_secret))
}

/// Shows `f` the segment, mapped for so long only.
fn with_mapped(fd: &OwnedFd, f: impl FnOnce(&mut [u8])) -> Result<(), KeyError> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a fresh mapping at an address of the kernel's choice.
    let base = unsafe {
        libc::mmap(std::ptr::null_mut(), SEGMENT_BYTES, protection, flags, fd.as_raw_fd(), 0)
    };
    if base == libc::MAP_FAILED {
        return Err(failed("mmap"));
    }
    // SAFETY: our own mapping of that length; its predecessor has ended, and nobody else writes there.
    f(unsafe { std::slice::from_raw_parts_mut(base.cast::<u8>(), SEGMENT_BYTES) });
    // SAFETY: our own mapping, which nobody uses any more.
    unsafe { libc::munmap(base.cast::<c_void>(), SEGMENT_BYTES) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use clew_core::DonorId;

    use super::*;
    use crate::flash::LogId;

    const PLACE: Place =
        Place { log: LogId::FLASH, slot: 3, generation: 1 << 40, offset: 512, len: 100 };

    #[test]
    fn what_was_sealed_opens_with_the_key_that_a_successor_finds() {
        let cipher = Cipher::new().unwrap();
        let plain: Vec<u8> = (0..100).collect();
        let mut bytes = plain.clone();
        let tag = cipher.seal(7, PLACE, &mut bytes);
        assert_ne!(bytes, plain);
        let fd = cipher.as_fd().try_clone_to_owned().unwrap();
        drop(cipher);
        let next = Cipher::adopt(fd).unwrap();
        next.open(7, PLACE, &mut bytes, tag).unwrap();
        assert_eq!(bytes, plain);
    }

    #[test]
    fn nothing_else_opens() {
        let cipher = Cipher::new().unwrap();
        let mut sealed = [7; 100];
        let tag = cipher.seal(7, PLACE, &mut sealed);
        let refused = |cipher: &Cipher, handle, place, bytes: [u8; 100], tag| {
            let mut bytes = bytes;
            assert_eq!(cipher.open(handle, place, &mut bytes, tag), Err(Unsound));
        };
        refused(&cipher, 8, PLACE, sealed, tag);
        refused(&Cipher::new().unwrap(), 7, PLACE, sealed, tag);
        for place in [
            Place { slot: 4, ..PLACE },
            Place { generation: PLACE.generation + 1, ..PLACE },
            Place { offset: 528, ..PLACE },
            Place { len: 99, ..PLACE },
            Place { log: LogId::at(DonorId::new(0).unwrap()), ..PLACE },
        ] {
            refused(&cipher, 7, place, sealed, tag);
        }
        for bit in 0..8 * 100 {
            let mut bytes = sealed;
            bytes[bit / 8] ^= 1 << (bit % 8);
            refused(&cipher, 7, PLACE, bytes, tag);
        }
        for byte in 0..TAG_BYTES {
            let mut tag = tag;
            tag[byte] ^= 0x10;
            refused(&cipher, 7, PLACE, sealed, tag);
        }
        cipher.open(7, PLACE, &mut sealed, tag).unwrap();
        assert_eq!(sealed, [7; 100]);
    }

    #[test]
    fn what_has_no_key_is_refused() {
        let (pipe, _other) = io::pipe().unwrap();
        assert!(matches!(Cipher::adopt(pipe.into()), Err(KeyError::Gone)));
        let (empty, _) = memory().unwrap();
        assert!(matches!(Cipher::adopt(empty), Err(KeyError::Gone)));
    }
}
