//! Pages of a trace, and how what is known of them goes together.

use clew_trace::{Content, ContentId};

use crate::error::LabError;
use crate::reproduce::desk::Workbench;

/// Pages that are looked at: of a trace that has more, every n-th. The paper looked at 200,000 (figure 6).
const PAGES: u32 = 20_000;

/// Bytes of some pages of the trace, one after the other, and how many bytes a page has.
pub fn pages(bench: &Workbench) -> Result<(Vec<u8>, usize), LabError> {
    let trace = &bench.input.trace;
    let mut contents = trace.contents().map_err(LabError::trace(trace.path()))?;
    let step = (contents.count() / PAGES).max(1);
    let mut bytes = Vec::new();
    for id in (0..contents.count()).step_by(step as usize) {
        let content = contents.get(ContentId(id)).map_err(LabError::trace(trace.path()))?;
        if let Content::Bytes(page) = content {
            bytes.extend_from_slice(page);
        }
    }
    Ok((bytes, trace.header().page_bytes as usize))
}

/// Pearson's coefficient; none where one of them does not vary.
pub fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    let count = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let sum =
        |of: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
    let (both, xx, yy) = (sum(&|x, y| x * y), sum(&|x, _| x * x), sum(&|_, y| y * y));
    Some(both / (xx * yy).sqrt()).filter(|found| found.is_finite())
}

/// Shannon's entropy of `bytes`, bits a byte.
pub fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let parts = counts.iter().filter(|count| **count > 0);
    let parts = parts.map(|count| f64::from(*count) / bytes.len() as f64);
    -parts.map(|part| part * part.log2()).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_together_correlates() {
        let line: Vec<(f64, f64)> = (0..9).map(|x| (f64::from(x), 3.0 - f64::from(x))).collect();
        assert!((correlation(&line).expect("they vary") + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[(1.0, 2.0), (1.0, 3.0)]), None);
        assert_eq!(correlation(&[]), None);
        let square = [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0)];
        assert_eq!(correlation(&square), Some(0.0));
        assert_eq!((entropy(&[3; 8]), entropy(&[1, 2, 3, 4])), (0.0, 2.0));
    }
}
