//! `clew doctor`.

use anyhow::anyhow;
use clew_live::doctor::{Level, examine};

use crate::Failure;
use crate::output::{Format, json, table};

/// `clew doctor`. Fails (3) where the daemon could not run.
pub fn doctor(format: Format) -> Result<(), Failure> {
    let mut checks = examine();
    checks.extend(clew_govern::doctor::examine());
    match format {
        Format::Json => json(&checks)?,
        Format::Text => {
            let word = |level| match level {
                Level::Ok => "ok",
                Level::Limited => "limited",
                Level::Missing => "MISSING",
                Level::Info => "",
            };
            let rows = checks
                .iter()
                .map(|c| {
                    let found = match c.advice.is_empty() {
                        true => c.found.clone(),
                        false => format!("{}: {}", c.found, c.advice),
                    };
                    vec![word(c.level).to_string(), c.name.to_string(), found]
                })
                .collect();
            say!("{}", table(&["", "WHAT", "FOUND"], rows));
        }
    }
    let missing = checks.iter().filter(|c| c.level == Level::Missing).count();
    if missing > 0 {
        return Err(Failure::Unfit(anyhow!(
            "{missing} of the above must be mended before Clew runs"
        )));
    }
    Ok(())
}
