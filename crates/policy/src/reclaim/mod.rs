//! Who leaves DRAM next?

pub mod lru;
pub mod none;
pub mod page_lists;
