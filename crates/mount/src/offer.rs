//! How the kernel may be asked here: what `clew doctor` says of mounts.

use std::path::Path;

/// Where an administrator allows requests by io_uring.
pub const ALLOWED_BY: &str = "/sys/module/fuse/parameters/enable_uring";

/// How requests of a mount come to its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// The kernel has no FUSE.
    Nothing,
    /// By `/dev/fuse`: the kernel knows nothing else (before Linux 6.14).
    Device,
    /// The same, as nobody has allowed more.
    DeviceUnlessAllowed,
    /// By io_uring.
    IoUring,
}

/// What this machine offers.
pub fn offer() -> Offer {
    if !Path::new("/dev/fuse").exists() {
        return Offer::Nothing;
    }
    match std::fs::read_to_string(ALLOWED_BY) {
        Ok(allowed) if allowed.trim() == "Y" => Offer::IoUring,
        Ok(_) => Offer::DeviceUnlessAllowed,
        Err(_) => Offer::Device,
    }
}
