//! How numbers are shown.

use crate::statistics::Estimate;

/// A figure with three digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{value:.2e}"),
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A ratio.
pub fn ratio(value: f64) -> String {
    if value.abs() < 9.995 { format!("{value:.2}") } else { number(value.round()) }
}

/// A figure with its interval.
pub fn interval(estimate: &Estimate, shown: fn(f64) -> String) -> String {
    format!("{} ({}-{})", shown(estimate.value), shown(estimate.low), shown(estimate.high))
}

/// Whole mebibytes; with a digit behind the point where there are few.
pub fn mib(bytes: u64) -> String {
    match bytes as f64 / f64::from(1 << 20) {
        few if few > 0.0 && few < 9.95 => format!("{few:.1}"),
        many => format!("{many:.0}"),
    }
}
