//! What is compressed together, in what chunks?

pub mod adaptive_comp;
pub mod adaptive_region;
pub mod by_age;
pub mod fixed_blocks;
pub mod one_page;
