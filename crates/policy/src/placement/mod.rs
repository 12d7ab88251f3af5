//! Which tier?

pub mod adaptive_path;
pub mod app_aware;
pub mod donors;
pub mod flash;
pub mod flash_last;
pub mod kernel_first;
pub mod launch_pages;
pub mod none;
pub mod pool;
pub mod read_local;
