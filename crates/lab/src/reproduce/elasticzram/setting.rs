//! The phone and the arms of ElasticZRAM's evaluation (4.1).

use clew_core::Tier;
use clew_trace::generate::Workload;
use clew_trace::generate::profile::MOBILE_2025;
use toml::Value;

use crate::costs::{Clock, Costs};
use crate::device::Device;
use crate::error::LabError;
use crate::replay::Settings;
use crate::reproduce::desk::{BARE, Desk, Run, Workbench, scheme};

/// The scheme that all others are compared with.
pub const OURS: &str = "elasticzram";
/// All of them, by the paper's names and by ours.
pub const ARMS: [(&str, &str); 5] = [
    ("ZRAM", "zram"),
    ("flash swap", "flash-swap"),
    ("ZRAM/flash", "zram-flash"),
    ("SEAL", "seal"),
    ("ElasticZRAM", OURS),
];

/// Why the scheme `name` cannot be run, if it cannot.
pub fn missing(name: &str) -> Option<String> {
    scheme(name, &[]).err().map(|error| error.to_string())
}

/// The reason for which one of `names` cannot be run.
pub fn first_missing(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| missing(name))
}

/// The ten apps.
fn workload(desk: &Desk<'_>) -> Workload {
    let scale = if desk.quick { 0.01 } else { 0.1 };
    let events = desk.quick.then_some(60_000);
    Workload { scale, events, contents: false, ..Workload::new(&MOBILE_2025, 1) }
}

/// Replays the schemes of these names, which are all there; in a swap of 1 GiB of ZRAM and 3 GiB of flash, and in
/// half of the memory that all pages take. The name of the trace comes with them.
pub fn runs(desk: &mut Desk<'_>, names: &[&str]) -> Result<(Vec<Run>, String), LabError> {
    const SHARE: f64 = 0.5;
    let workload = workload(desk);
    let bench = desk.usual(&workload)?;
    let budget = (bench.input.footprint_bytes() as f64 * SHARE) as u64;
    let each = names.iter().map(|name| settings(&bench, name, budget));
    let each: Vec<Settings> = each.collect::<Result<_, _>>()?;
    Ok((desk.runs(&bench, &each)?, bench.name.clone()))
}

fn settings(bench: &Workbench, name: &str, budget_bytes: u64) -> Result<Settings, LabError> {
    const GIB: f64 = (1u64 << 30) as f64;
    let page_bytes = f64::from(bench.input.trace.header().page_bytes);
    let kill = Value::String("kill".to_string());
    let mut scheme = scheme(name, &[("on_full", kill)])?;
    if scheme.uses(Tier::Pool) {
        scheme.disksize_pages = Some((GIB / page_bytes / bench.grain) as u64);
    }
    let has_flash = scheme.uses(Tier::Flash);
    let costs = Device::named("pixel-6-pro")?.costs(Costs::reference())?;
    Ok(Settings {
        pages: BARE,
        clock: Clock::Modelled(
            costs.slowed(bench.grain, &format!("one page for {:.0}", bench.grain)),
        ),
        flash_bytes: has_flash.then_some((3.0 * GIB / bench.grain) as u64),
        ..Settings::new(scheme, budget_bytes)
    })
}
