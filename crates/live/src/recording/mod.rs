//! A trace of what programs do and policies decide, as it happens.

pub mod decisions;
pub mod recorder;
