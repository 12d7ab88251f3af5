//! `clew trace stats`.

use std::path::PathBuf;

use clew_core::ByteSize;
use clew_trace::Trace;
use clew_trace::statistics::{CHUNKS, Look, Ratio, Statistics};

use super::reading;
use crate::Failure;
use crate::output::{Format, json, table};
use crate::progress::Bar;

/// Which trace.
#[derive(clap::Args)]
pub struct Args {
    /// The trace.
    file: PathBuf,
    /// DRAM, to see what leaves it [default: what a generated trace was made for].
    #[arg(long, value_name = "SIZE")]
    dram: Option<ByteSize>,
    /// How many pages are compressed, about.
    #[arg(long, value_name = "N", default_value_t = Look::default().pages)]
    pages: usize,
}

/// `clew trace stats FILE`.
pub fn statistics(format: Format, args: Args) -> Result<(), Failure> {
    let trace = Trace::open(&args.file).map_err(|error| reading(&args.file, error))?;
    let look = Look { dram_bytes: args.dram.map(|dram| dram.0), pages: args.pages };
    let bar = Bar::of_parts("reading");
    let statistics = Statistics::of(&trace, &look, &mut |part| bar.at((part * 100.0) as u64))
        .map_err(|error| reading(&args.file, error))?;
    bar.end();
    if format == Format::Json {
        return json(&statistics);
    }
    say!("{}", apps(&statistics));
    say!();
    say!("{}", facts(&statistics));
    for (of, ratios) in [("anonymous", &statistics.ratios), ("files", &statistics.file_ratios)] {
        if !ratios.is_empty() {
            say!();
            say!("{}", chunks(of, ratios));
        }
    }
    Ok(())
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_string(), |share| format!("{:.1}", share * 100.0))
}

fn apps(statistics: &Statistics) -> String {
    let columns = [
        "app", "MiB 10 s", "MiB end", "at s", "back", "hot", "warm", "alike %", "again %",
        "next %", "3 %",
    ];
    let rows = statistics.apps.iter().map(|app| {
        vec![
            app.app.clone(),
            app.early_mib.map_or("-".to_string(), |mib| format!("{mib:.1}")),
            format!("{:.1}", app.late_mib),
            format!("{:.0}", app.late_seconds),
            app.relaunches.to_string(),
            format!("{:.0}", app.hot_pages),
            format!("{:.0}", app.warm_pages),
            percent(app.similarity),
            percent(app.reuse),
            percent(app.next_1),
            percent(app.next_3),
        ]
    });
    table(&columns, rows.collect())
}

fn facts(statistics: &Statistics) -> String {
    let association = &statistics.association;
    let mut rows = vec![
        ("hot set similar to the last one, %", percent(statistics.similarity)),
        ("hot set used again, %", percent(statistics.reuse)),
        ("pairs of confidence above 80 %, %", percent(Some(association.strong))),
        ("pairs of confidence below 20 %, %", percent(Some(association.weak))),
        ("pages that are associated, %", percent(Some(association.associated))),
        ("of them, within their app, %", percent(Some(association.within_app))),
        ("of them, still in the second half, %", percent(Some(association.stable))),
    ];
    if let Some(evictions) = &statistics.evictions {
        let ratio = evictions.file_per_anonymous();
        rows.push(("DRAM, pages", evictions.dram_pages.to_string()));
        rows.push(("anonymous pages evicted", evictions.anonymous.to_string()));
        rows.push(("pages of files evicted", evictions.file.to_string()));
        rows.push((
            "pages of files for each anonymous one",
            ratio.map_or("-".to_string(), |ratio| format!("{ratio:.1}")),
        ));
    }
    if statistics.zero_share.is_some() {
        rows.push(("anonymous pages that are zero, %", percent(statistics.zero_share)));
    }
    table(&[], rows.into_iter().map(|(name, value)| vec![name.to_string(), value]).collect())
}

/// One row a codec, one column a size.
fn chunks(of: &str, ratios: &[Ratio]) -> String {
    let sizes = CHUNKS.iter().map(|bytes| ByteSize(*bytes as u64).to_string());
    let sizes: Vec<String> = sizes.map(|size| size.replace(".0 ", " ")).collect();
    let mut header = vec![of];
    header.extend(sizes.iter().map(String::as_str));
    let rows = ["lz4", "zstd"].map(|codec| {
        let ratios = ratios.iter().filter(|ratio| ratio.codec == codec);
        let ratios = ratios.map(|ratio| format!("{:.2}", ratio.ratio));
        [codec.to_string()].into_iter().chain(ratios).collect()
    });
    table(&header, rows.into())
}
