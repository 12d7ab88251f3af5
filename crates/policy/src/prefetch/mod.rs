//! What comes back early?

pub mod none;
pub mod readahead;
