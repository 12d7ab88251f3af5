//! The page of the full comparison.
use crate::full::FullResult;
/// The whole page.
pub fn full_page(_result: &FullResult) -> String {
    String::new()
}
