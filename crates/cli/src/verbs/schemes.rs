//! `clew schemes`.

use clew_policy::schemes::{self, SchemeRow};

use crate::Failure;
use crate::output::{Format, json, table};

/// What to show.
#[derive(clap::Args)]
pub struct Args {
    /// Print this scheme as TOML, to start one of your own.
    name: Option<String>,
}

/// `clew schemes [NAME]`.
pub fn schemes(format: Format, args: Args) -> Result<(), Failure> {
    if let Some(name) = args.name {
        let scheme = clew_live::config::load_scheme(&name).map_err(|e| Failure::Input(e.into()))?;
        match format {
            Format::Json => json(&scheme)?,
            Format::Text => {
                for missing in scheme.missing() {
                    say!("# partial, what is missing: {missing}");
                }
                say_part!("{}", scheme.to_toml());
            }
        }
        return Ok(());
    }
    let rows = schemes::table();
    if format == Format::Json {
        return json(&rows);
    }
    let missing = |row: &SchemeRow| {
        let items = row.missing.iter().map(|missing| format!("\n  - {missing}"));
        format!("{} is {}. Missing:{}", row.name, row.status, items.collect::<String>())
    };
    let partial: Vec<String> =
        rows.iter().filter(|row| !row.missing.is_empty()).map(missing).collect();
    let cells = rows
        .into_iter()
        .map(|r| {
            let asked = [r.reclaim, r.admission, r.packing, r.eviction, r.placement, r.prefetch];
            [r.name].into_iter().chain(asked).chain([r.pool]).collect()
        })
        .collect();
    let header =
        ["SCHEME", "RECLAIM", "ADMISSION", "PACKING", "EVICTION", "PLACEMENT", "PREFETCH", "POOL"];
    say!("{}", table(&header, cells));
    for line in partial {
        say!("\n{line}");
    }
    Ok(())
}
