//! `clew demo`.

use crate::Failure;
use crate::output::Format;

/// How.
#[derive(clap::Args)]
pub struct Args {}

/// `clew demo`.
pub fn demo(_format: Format, _args: Args) -> Result<(), Failure> {
    Err(Failure::Failed(anyhow::anyhow!("wired up next")))
}
