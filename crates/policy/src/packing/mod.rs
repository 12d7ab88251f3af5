//! What is compressed together, in what chunks?

pub mod adaptive_comp;
pub mod one_page;
