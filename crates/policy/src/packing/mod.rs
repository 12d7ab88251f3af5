//! What is compressed together, in what chunks?

pub mod one_page;
