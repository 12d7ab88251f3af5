//! What leaves the pool?

mod answered;
pub mod by_app;
pub mod cold_first;
pub mod compressibility;
mod frame_kinds;
pub mod lottery;
pub mod none;
pub mod oldest_first;
pub mod z3fold_lru;
