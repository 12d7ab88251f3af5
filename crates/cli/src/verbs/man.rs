//! `clew man`.

use std::fs;
use std::path::Path;

use anyhow::anyhow;
use clew_bench::scratch::Scratch;
use clew_trace::write_whole;

use super::demo::failure;
use super::trace::writing;
use crate::Failure;

/// `clew man DIRECTORY`. What the directory has of these names is replaced, and never written to.
pub fn man(command: clap::Command, directory: &Path) -> Result<(), Failure> {
    let scratch = Scratch::new("clew-man-").map_err(failure)?;
    clap_mangen::generate_to(command, scratch.path())?;
    fs::create_dir_all(directory)
        .map_err(|error| anyhow!("cannot make {}: {error}", directory.display()))?;
    for page in fs::read_dir(scratch.path())? {
        let page = page?;
        let path = directory.join(page.file_name());
        let text = fs::read_to_string(page.path())?;
        write_whole(&path, &text).map_err(|error| writing(&path, error))?;
    }
    Ok(())
}
