//! What leaves the pool?

pub mod none;
