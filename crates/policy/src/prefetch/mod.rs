//! What comes back early?

pub mod around;
pub mod asap;
pub mod associated;
pub mod by_trigger;
pub mod cluster;
pub mod group;
pub mod hot_list;
pub mod leave_out;
pub mod none;
pub mod pre_decomp;
pub mod readahead;
pub mod recorded_set;
pub mod runs;
pub mod successors;
pub mod whole_app;
