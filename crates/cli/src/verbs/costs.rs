//! `clew costs`.

use std::path::{Path, PathBuf};

use clew_lab::costs;
use clew_trace::{Trace, write_whole};

use super::replay::failure;
use super::trace::{reading, writing};
use crate::Failure;
use crate::output::{Format, json};
use crate::progress::Bar;

/// On what to measure, and where the table goes.
#[derive(clap::Args)]
pub struct Args {
    /// A trace with contents.
    trace: PathBuf,
    /// Where the table goes [default: standard output].
    #[arg(short, long, value_name = "FILE.toml")]
    output: Option<PathBuf>,
}

/// `clew costs TRACE`.
pub fn costs(format: Format, args: Args) -> Result<(), Failure> {
    let trace = Trace::open(&args.trace).map_err(|error| reading(&args.trace, error))?;
    let bar = Bar::of_steps("codecs and chunk sizes", 0);
    let measured = costs::measure(&trace, &mut |done, of| {
        bar.of(of);
        bar.at(done);
    });
    bar.end();
    let measured = measured.map_err(failure)?;
    let write = |path: &Path| write_whole(path, &measured.to_toml()).map_err(|e| writing(path, e));
    match (&args.output, format) {
        (Some(path), _) => {
            write(path)?;
            say!("wrote {}", path.display());
        }
        (None, Format::Json) => json(&measured)?,
        (None, Format::Text) => say_part!("{}", measured.to_toml()),
    }
    Ok(())
}
