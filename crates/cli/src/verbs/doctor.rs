//! `clew doctor`.

use anyhow::anyhow;
use clew_live::doctor::{Check, Level, examine};
use clew_mount::{ALLOWED_BY, Offer, offer};

use crate::Failure;
use crate::output::{Format, json, table};

/// `clew doctor`. Fails (3) where the daemon could not run.
pub fn doctor(format: Format) -> Result<(), Failure> {
    let mut checks = examine();
    checks.extend(clew_govern::doctor::examine());
    checks.push(mounts());
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

/// How requests of `clew mount` come to it.
fn mounts() -> Check {
    let (level, found, advice) = match offer() {
        Offer::Nothing => (Level::Info, "the kernel has no FUSE", "no mounts".to_string()),
        Offer::Device => (Level::Ok, "by /dev/fuse", String::new()),
        Offer::DeviceUnlessAllowed => {
            let advice = format!("by io_uring they cost less: echo Y > {ALLOWED_BY}");
            (Level::Ok, "by /dev/fuse", advice)
        }
        Offer::IoUring => (Level::Ok, "by io_uring", String::new()),
    };
    Check { name: "requests of mounts", level, found: found.to_string(), advice }
}
