//! Which tier?

pub mod flash_last;
pub mod kernel_first;
pub mod none;
pub mod pool;
