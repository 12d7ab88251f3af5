//! Who leaves DRAM next?

pub mod hotness_org;
pub mod lru;
pub mod none;
pub mod page_lists;
