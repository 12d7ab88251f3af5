//! Which tier?

pub mod none;
pub mod pool;
