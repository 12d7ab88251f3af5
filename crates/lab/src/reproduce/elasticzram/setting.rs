//! The phone and the arms of ElasticZRAM's evaluation (4.1).

use clew_core::Tier;
use clew_trace::generate::Workload;
use clew_trace::generate::profile::ARCHER;
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

/// The apps that are brought back again and again; the others are in the background. The paper has ten of 36.
pub const TESTED: u32 = 8;

/// Some apps of many, in rounds.
fn workload(desk: &Desk<'_>) -> Workload {
    let scale = if desk.quick { 0.01 } else { 0.1 };
    let events = desk.quick.then_some(60_000);
    Workload { scale, events, contents: false, ..Workload::new(&ARCHER, 1) }
}

/// What is run besides a scheme's name.
#[derive(Clone, Copy, Default)]
pub struct How {
    /// How much of the device of flash is in use, per cent.
    pub flash_used_pct: u32,
    /// ElasticZRAM's delta, per cent, unless it is the scheme's own.
    pub delta_pct: Option<u32>,
}

/// Replays the schemes of these names, which are all there; in a swap of 1 GiB of ZRAM and 3 GiB of flash, and in
/// so much of the memory that all pages take that ZRAM/flash writes half of what flash swap does, as in figure 3a.
/// The name of the trace comes with them.
pub fn runs(desk: &mut Desk<'_>, arms: &[(&str, How)]) -> Result<(Vec<Run>, String), LabError> {
    const SHARE: f64 = 0.35;
    let workload = workload(desk);
    let bench = desk.usual(&workload)?;
    let budget = (bench.input.footprint_bytes() as f64 * SHARE) as u64;
    let each = arms.iter().map(|(name, how)| settings(&bench, name, *how, budget));
    let each: Vec<Settings> = each.collect::<Result<_, _>>()?;
    Ok((desk.runs(&bench, &each)?, bench.name.clone()))
}

fn settings(
    bench: &Workbench,
    name: &str,
    how: How,
    budget_bytes: u64,
) -> Result<Settings, LabError> {
    const GIB: f64 = (1u64 << 30) as f64;
    let page_bytes = f64::from(bench.input.trace.header().page_bytes);
    let mut parameters = vec![("on_full", Value::String("kill".to_string()))];
    let delta = how.delta_pct.map(|pct| ("placement.delta_pct", Value::Integer(pct.into())));
    parameters.extend(delta);
    let mut scheme = scheme(name, &parameters)?;
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
        flash_used_pct: how.flash_used_pct,
        ..Settings::new(scheme, budget_bytes)
    })
}
