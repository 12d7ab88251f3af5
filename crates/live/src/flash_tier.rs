//! Flash of a daemon: the file or block device that it is told, and what a successor needs of it.

use std::os::fd::AsRawFd;

use clew_store::flash::file::{DeviceError, FileDevice, Open};
use clew_store::flash::{Flash, FlashConfig, FlashError};

use crate::config::FlashPlace;
use crate::control::trusted_path::{self, PathError};
use crate::survival::records::FlashDescriptors;

/// Why there is no flash.
#[derive(Debug, thiserror::Error)]
pub enum FlashTierError {
    /// Others decide what is there.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// It is of no use to a log.
    #[error(transparent)]
    Log(#[from] FlashError),
    /// A file has no size of its own.
    #[error("state how large it is: --flash-size, or size in [flash]")]
    NoSize,
}

/// Makes a log at `place`. It has threads.
///
/// # Errors
/// See [`FlashTierError`].
pub fn open(place: &FlashPlace) -> Result<Flash, FlashTierError> {
    let FlashPlace { path, size } = place;
    let path = trusted_path::resolve(path)?;
    let is_device = || {
        use std::os::unix::fs::FileTypeExt;
        path.metadata().is_ok_and(|meta| meta.file_type().is_block_device())
    };
    if size.is_none() && !is_device() {
        return Err(FlashTierError::NoSize);
    }
    let config = FlashConfig::default();
    let device = FileDevice::open(&Open {
        path: path.clone(),
        bytes: size.map(|size| size.0),
        least: config.least_bytes(),
        overwrite: false,
    })?;
    for note in device.notes() {
        tracing::warn!("flash: {note}");
    }
    let flash = Flash::new(config, Box::new(device))?;
    if !flash.has_secret_memory() {
        tracing::warn!("flash: this kernel has no memory that is secret from itself for the key");
    }
    Ok(flash)
}

/// What a successor takes over.
pub fn descriptors(flash: &Flash) -> Option<FlashDescriptors> {
    let device = flash.device();
    Some(FlashDescriptors {
        log: flash.segments().map(|fd| fd.as_raw_fd()),
        device: device.fd()?.as_raw_fd(),
        bytes: device.bytes(),
    })
}
