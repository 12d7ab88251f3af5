//! A trace of what programs do and policies decide, as it happens.

pub mod decisions;
mod family;
pub mod file_reads;
mod opened_files;
mod page_cache;
pub mod recorder;
