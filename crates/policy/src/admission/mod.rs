//! May it enter the pool?

pub mod all;
