//! x
use super::Paper;
pub const PAPER: Paper =
    Paper { name: "elasticzram", title: "ElasticZRAM (DAC 2024)", about: &[], figures: &[] };
