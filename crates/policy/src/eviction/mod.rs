//! What leaves the pool?

pub mod cold_first;
pub mod none;
