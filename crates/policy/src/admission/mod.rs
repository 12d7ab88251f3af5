//! May it enter the pool?

pub mod all;
pub mod entropy;
pub mod hit_window;
pub mod selective;
