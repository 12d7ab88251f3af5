//! What leaves the pool?

pub mod cold_first;
pub mod none;
pub mod z3fold_lru;
