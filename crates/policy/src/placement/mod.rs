//! Which tier?

pub mod kernel_first;
pub mod none;
pub mod pool;
