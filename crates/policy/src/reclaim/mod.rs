//! Who leaves DRAM next?

pub mod files_first;
pub mod footprint_stream;
pub mod fp_tree;
pub mod ft_list;
pub mod hotness_org;
pub mod least_recent_app;
pub mod least_used_app;
pub mod lru;
pub mod none;
pub mod page_lists;
