//! `clew report`, and how every verb that compares says what it found.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clew_report::{ReportError, Results, read, text, write_all};

use crate::Failure;
use crate::output::{Format, json_text};

/// Which result to show.
#[derive(clap::Args)]
pub struct Args {
    /// What `clew demo`, `clew replay` or `clew compare` gave as JSON.
    file: PathBuf,
    /// Where the page and the picture go, with another copy of the result.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// `clew report FILE`.
pub fn report(format: Format, args: Args) -> Result<(), Failure> {
    let results = read(&args.file).map_err(|error| match &error {
        ReportError::File { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Failure::Failed(anyhow!("{error}"))
        }
        _ => Failure::Input(anyhow!("{error}")),
    })?;
    let name = args.file.file_stem().map(|name| name.to_string_lossy()).unwrap_or("result".into());
    let files = write(&results, args.out.as_deref(), &name)?;
    tell(format, &results, &files)
}

/// Writes a result, its page and its picture, if they are wanted anywhere.
pub fn write(results: &Results, out: Option<&Path>, name: &str) -> Result<Vec<PathBuf>, Failure> {
    let Some(out) = out else { return Ok(Vec::new()) };
    write_all(results, out, name).map_err(|error| Failure::Failed(anyhow!("{error}")))
}

/// Prints a result.
pub fn tell(format: Format, results: &Results, files: &[PathBuf]) -> Result<(), Failure> {
    match format {
        Format::Json => {
            let json = clew_report::json(results);
            json_text(&json.map_err(|error| Failure::Failed(anyhow!("{error}")))?);
        }
        Format::Text => {
            say_part!("{}", text(results));
            files.iter().for_each(|path| say!("wrote {}", path.display()));
        }
    }
    Ok(())
}
