//! Figure 6 (III-B): the entropy of the beginning of a page against what LZO makes of it, and what either costs.

use clew_core::CodecKind;
use clew_policy::admission::entropy::{BIT, entropy};
use clew_report::Table;
use clew_store::codec::{Codec, Lz4, Lzo};

use super::sample::{correlation, pages};
use super::setting::usual;
use crate::costs::Costs;
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "6",
    title: "entropy and compression ratio",
    says: "the entropy of a page's first 512 bytes and its ratio after LZO have a correlation of 0.88; computing it takes 14 % \
           of the time that LZO takes.",
    run,
};

/// Entropy and compressed over original size of each page.
fn pairs(codec: &mut impl Codec, bytes: &[u8], page_bytes: usize) -> Vec<(f64, f64)> {
    let mut packed = vec![0; 2 * page_bytes];
    let of = |page: &[u8]| {
        let stored = codec.compress(page, &mut packed).unwrap_or(page.len()).min(page.len());
        (f64::from(entropy(page)) / f64::from(BIT), stored as f64 / page.len() as f64)
    };
    bytes.chunks_exact(page_bytes).map(of).collect()
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = usual(desk)?;
    let (bytes, page_bytes) = pages(&bench)?;
    let (lzo, lz4) =
        (pairs(&mut Lzo::default(), &bytes, page_bytes), pairs(&mut Lz4, &bytes, page_bytes));
    let costs = Costs::reference();
    let part = |codec| Some(costs.sample_ns / costs.codec(codec, 4096, 4096).ok()?.out_ns * 100.0);
    let ratio =
        Claim::new("6", "correlation with LZO's ratio", 0.88, "r", Tolerance::Within { off: 0.08 });
    let time = Claim::new("6", "time against LZO's", 14.0, "%", Tolerance::Below { limit: 14.0 });
    let claims = vec![
        ratio.found(correlation(&lzo), Kind::Computed, &bench.name),
        time.found(part(CodecKind::Lzo), Kind::Modelled, &bench.name).noted(
            "by the table of costs, where LZO's time has copying and finding room in it; clew costs measures both",
        ),
    ];
    // By entropy: how many pages, and what they become.
    let buckets = (0..8).map(|bits| {
        let of = |pairs: &[(f64, f64)]| {
            let within = |pair: &&(f64, f64)| (pair.0.min(7.999)) as usize == bits;
            let found: Vec<f64> = pairs.iter().filter(within).map(|pair| pair.1).collect();
            (found.len(), found.iter().sum::<f64>() / found.len().max(1) as f64)
        };
        (bits, of(&lzo), of(&lz4))
    });
    type Row = (usize, (usize, f64), (usize, f64));
    let table = Table::of(
        "compressed over original size, by entropy",
        1,
        buckets,
        &[
            ("bits a byte", &|row: &Row| Some(format!("{} to {}", row.0, row.0 + 1))),
            ("pages", &|row: &Row| Some(row.1.0.to_string())),
            ("estimated", &|row: &Row| Some(format!("{:.2}", (row.0 as f64 + 0.5) / 8.0))),
            ("LZO", &|row: &Row| (row.1.0 > 0).then(|| format!("{:.2}", row.1.1))),
            ("LZ4", &|row: &Row| (row.2.0 > 0).then(|| format!("{:.2}", row.2.1))),
        ],
    );
    let notes = vec![format!(
        "correlation with LZ4's ratio {:.3}; time against LZ4's {:.0} %.",
        correlation(&lz4).unwrap_or(f64::NAN),
        part(CodecKind::Lz4).unwrap_or(f64::NAN)
    )];
    Ok(Found { claims, tables: vec![table], notes, ..Found::default() })
}
