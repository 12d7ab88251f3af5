//! x
use super::Paper;
pub const PAPER: Paper =
    Paper { name: "ariadne", title: "Ariadne (HPCA 2025)", about: &[], figures: &[] };
