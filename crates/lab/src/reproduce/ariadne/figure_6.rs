//! Figure 6 (3, insight 2): time and ratio by the size of chunks, by the true clock and by the probe that
//! truncates.

use clew_core::CodecKind;
use clew_report::Table;
use clew_store::codec::{Codec, Lz4, Lzo};
use clew_trace::{Content, ContentId};

use super::setting::{CHUNKS, CODECS, Probe, costs, workload};
use crate::costs::Costs;
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Workbench};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "6",
    title: "chunk size: time and ratio",
    says: "from chunks of 128 B to 128 KiB the ratio grows from 1.7 to 3.9, and compressing 576 MB takes 59.2 times as \
           long with LZ4 and 41.8 times with LZO: small chunks are much faster.",
    run,
};

/// What the paper compressed, MiB.
const ALL_MIB: f64 = 576.0;
const PAGE: u32 = 4096;
/// Neighbouring pages are taken in pieces of the largest chunk.
const PIECE: usize = 128 << 10;

/// Pages of the trace in the order in which they came up, without zeros.
fn sample(bench: &Workbench, most: usize) -> Result<Vec<u8>, LabError> {
    let trace = &bench.input.trace;
    let mut contents = trace.contents().map_err(LabError::trace(trace.path()))?;
    let mut bytes = Vec::new();
    for id in 0..contents.count() {
        let content = contents.get(ContentId(id)).map_err(LabError::trace(trace.path()))?;
        if let Content::Bytes(page) = content
            && page.iter().any(|byte| *byte != 0)
        {
            bytes.extend_from_slice(page);
        }
        if bytes.len() >= most {
            break;
        }
    }
    bytes.truncate(bytes.len() / PIECE * PIECE);
    Ok(bytes)
}

fn ratio(codec: &mut impl Codec, bytes: &[u8], chunk: usize) -> f64 {
    let mut packed = vec![0; 2 * PIECE];
    let chunks = bytes.chunks_exact(chunk);
    let stored = chunks.map(|chunk| match codec.compress(chunk, &mut packed) {
        Some(length) => length.min(chunk.len()),
        None => chunk.len(),
    });
    bytes.len() as f64 / stored.sum::<usize>().max(1) as f64
}

/// Milliseconds of everything that the paper compressed, out and back.
fn times(table: &Costs, codec: CodecKind, chunk: u32) -> Result<(f64, f64), LabError> {
    let pages = ALL_MIB * f64::from(1 << 20) / f64::from(PAGE);
    let row = table.codec(codec, chunk, PAGE)?;
    Ok((row.out_ns * pages / 1e6, row.back_ns * pages / 1e6))
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let workload = workload(desk, 0, true);
    let bench = desk.usual(&workload)?;
    let tables = [costs(Probe::True, 1.0)?, costs(Probe::Truncated, 1.0)?];
    let bytes = match bench.has_bytes() {
        true => sample(&bench, if desk.quick { 4 << 20 } else { 48 << 20 })?,
        false => Vec::new(),
    };
    let mut found = Found::default();
    for codec in CODECS {
        let (name, slower) = match codec {
            CodecKind::Lz4 => ("LZ4", 59.2),
            _ => ("LZO", 41.8),
        };
        let mut rows = Vec::new();
        for chunk in CHUNKS {
            let (out, back) = times(&tables[0], codec, chunk)?;
            let (out_cut, back_cut) = times(&tables[1], codec, chunk)?;
            let ratio = match codec {
                _ if bytes.is_empty() => f64::NAN,
                CodecKind::Lz4 => ratio(&mut Lz4, &bytes, chunk as usize),
                _ => ratio(&mut Lzo::default(), &bytes, chunk as usize),
            };
            rows.push((chunk, ratio, [out, out_cut, back, back_cut]));
        }
        let (first, last) = (&rows[0], &rows[rows.len() - 1]);
        for (what, paper, here, factor) in
            [("128 B", 1.7, first.1, 1.15), ("128 KiB", 3.9, last.1, 1.25)]
        {
            let what = format!("{name}: ratio with chunks of {what}");
            let claim = Claim::new("6", what, paper, "x", Tolerance::Factor { factor });
            found.claims.push(claim.found(Some(here), Kind::Computed, &bench.name));
        }
        for (at, probe) in Probe::BOTH.into_iter().enumerate() {
            let (small, large) = (first.2[at], last.2[at]);
            let what = format!("{name}: time with 128 B / with 128 KiB ({})", probe.said());
            let claim = Claim::new("6", what, 1.0 / slower, "x", Tolerance::Below { limit: 0.1 });
            let table = format!("table of costs: {}", tables[at].name);
            found.claims.push(claim.found(Some(small / large), Kind::Modelled, &table));
        }
        found.tables.push(table(name, &rows));
        let size = |bytes: u32| clew_core::ByteSize(bytes.into()).to_string();
        for (at, probe) in Probe::BOTH.into_iter().enumerate() {
            let rows = rows.iter().map(|(chunk, _, ms)| (size(*chunk), ms[at]));
            let title = format!("{name}: compressing {ALL_MIB} MiB, {}", probe.said());
            found.charts.push(bars(&title, "ms", rows));
        }
    }
    found.notes = vec![
        "Times are modelled: a chunk's time by the table of costs, and the same without what is beyond whole \
         microseconds. On a real clock chunks differ, and the truncated column is small instead of nothing: on 128 MiB \
         of pages of real processes LZO took 377 ms with 128 B and 134 ms with 128 KiB, truncated 6 and 133."
            .to_string(),
        "The paper's factors hold by the truncated clock alone. What is true of small chunks: less has to be \
         decompressed for one access, and the ratio is worse."
            .to_string(),
    ];
    Ok(found)
}

fn table(name: &str, rows: &[(u32, f64, [f64; 4])]) -> Table {
    let ms = |at: usize| move |row: &(u32, f64, [f64; 4])| Some(format!("{:.0}", row.2[at]));
    let (out, out_cut, back, back_cut) = (ms(0), ms(1), ms(2), ms(3));
    Table::of(
        format!("{name}, {ALL_MIB} MiB: ms by the true and by the truncated clock"),
        1,
        rows.iter().copied(),
        &[
            ("chunk", &|row| Some(clew_core::ByteSize(row.0.into()).to_string())),
            ("ratio", &|row| row.1.is_finite().then(|| format!("{:.2}", row.1))),
            ("compress, true", &out),
            ("truncated", &out_cut),
            ("decompress, true", &back),
            ("truncated", &back_cut),
        ],
    )
}
