//! `clew bench`.

use crate::Failure;
use crate::output::Format;

/// How.
#[derive(clap::Args)]
pub struct Args {}

/// `clew bench`.
pub fn bench(_format: Format, _args: Args) -> Result<(), Failure> {
    Err(Failure::Failed(anyhow::anyhow!("wired up next")))
}
