//! `clew import`.

use std::path::PathBuf;

use clew_trace::ariadne::{self, ImportError, Imported};
use clew_trace::{Draft, TraceError, Writer, regular};

use super::trace::{show, writing};
use crate::Failure;
use crate::output::{Format, json, table};

/// Whose format.
#[derive(clap::Subcommand)]
pub enum From {
    /// The traces that Ariadne's authors publish: APP/roundN/{hot,cold}. Records that are torn,
    /// holes and other damage are passed over, and counted.
    Ariadne {
        /// The directory of the traces, of an app, of a round, or of a kind.
        directory: PathBuf,
        /// The trace.
        #[arg(short, long, value_name = "FILE", default_value = "ariadne.trace")]
        output: PathBuf,
    },
}

/// `clew import FORMAT`.
pub fn import(format: Format, from: From) -> Result<(), Failure> {
    let From::Ariadne { directory, output } = from;
    let tool = concat!("clew import ariadne ", env!("CARGO_PKG_VERSION"));
    let header = ariadne::header(tool, &directory);
    // The memory of somebody's apps.
    let draft = Draft::new(&output, true).map_err(|error| writing(&output, error))?;
    let failure = |error: TraceError| match error {
        TraceError::Write { source, .. } => writing(&output, source),
        other => Failure::Failed(other.into()),
    };
    let mut writer = Writer::new(draft, &header).map_err(failure)?;
    let began = std::time::Instant::now();
    let progress = |path: &std::path::Path, left: usize| {
        if began.elapsed().as_secs() >= 2 {
            remark!("reading {} ({left} left)", path.display());
        }
    };
    let report =
        ariadne::import(&directory, &mut writer, progress).map_err(|error| match error {
            ImportError::Trace(error) => failure(error),
            ImportError::Nothing(_) | ImportError::TooMany(_) => Failure::Input(error.into()),
            ImportError::File { ref source, .. } if regular::is_misnamed(source) => {
                Failure::Input(error.into())
            }
            ImportError::File { .. } => Failure::Failed(error.into()),
        })?;
    let (draft, totals) = writer.finish().map_err(failure)?;
    draft.commit().map_err(|error| writing(&output, error))?;
    if format == Format::Json {
        return json(&serde_json::json!({ "file": output, "imported": report }));
    }
    let columns = [
        "trace",
        "pages",
        "hot",
        "warm",
        "cold",
        "torn",
        "bad headers",
        "holes",
        "reused",
        "lost",
        "bad lines",
    ];
    let rows = report.iter().map(|one: &Imported| {
        let mut row = vec![format!("{}/{}/{}", one.app, one.round, one.kind)];
        let reused = format!("{}/{}", one.reused_sectors, one.reused_frames);
        row.extend([one.pages, one.hot, one.warm, one.cold, one.torn].map(|n| n.to_string()));
        row.extend([one.bad_headers.to_string(), one.holes.to_string(), reused]);
        row.extend([one.lost_swap_ins, one.bad_lines].map(|n| n.to_string()));
        row
    });
    say!("{}", table(&columns, rows.collect()));
    say!("reused: sectors/frames; lost: swap-ins of what was never swapped out");
    say!();
    let bytes = output.metadata().map_or(0, |metadata| metadata.len());
    show(format, &header, &totals, bytes, &format!("wrote {}", output.display()))
}
