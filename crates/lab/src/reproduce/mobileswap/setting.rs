//! The phone, its donors and the arms of MobileSwap's evaluation (IV-A).

use std::sync::Arc;

use clew_core::{DonorId, Ns, Tier};
use clew_trace::generate::Workload;
use clew_trace::generate::profile::MOBILESWAP;
use toml::Value;

use crate::costs::{Clock, Costs, LinkCost};
use crate::device::Device;
use crate::error::LabError;
use crate::replay::{Donor, Donors, Mark, Settings};
use crate::reproduce::desk::{BARE, Desk, Run, Workbench, scheme};
use crate::reproduce::pressure::{Pressure, find};

/// The scheme that all others are compared with.
pub const OURS: &str = "mobileswap";
/// All of them, by the paper's names and by ours.
pub const ARMS: [(&str, &str); 5] = [
    ("NoSwap", "nosw"),
    ("LocalSwap", "flash-swap"),
    ("RemoteSwap", "remoteswap"),
    ("CloudSwap", "cloudswap"),
    ("MobileSwap", OURS),
];
/// Apps that live without any swap (IV-C: half of 14).
pub const WITHOUT_SWAP: f64 = 7.0;
/// Its swap area, MiB (IV-C).
pub const AREA_MIB: f64 = 2048.0;
/// What stands in place of a trace where a figure follows from the paper's own numbers.
pub const NUMBERS: &str = "none: the paper's numbers";
/// Rounds that the counts are of, the last ones.
const COUNTED_ROUNDS: usize = 5;

/// The phone.
pub fn client() -> Result<Device, LabError> {
    Device::named("kirin-970")
}

/// The link, where each page stands for one.
pub fn link() -> Result<LinkCost, LabError> {
    LinkCost::published(&client()?)
}

/// What is run besides a scheme's name.
#[derive(Clone)]
pub struct How {
    /// What each donor lends, MiB, and the round in whose middle it is lost, if it is.
    pub donors: Vec<(f64, Option<usize>)>,
    /// C_s, KiB, unless it is the paper's.
    pub chunk_kib: Option<u64>,
    /// P_s, MiB, unless it is the scheme's own.
    pub peak_mib: Option<u64>,
}

impl Default for How {
    fn default() -> How {
        How { donors: vec![(AREA_MIB, None)], chunk_kib: None, peak_mib: None }
    }
}

/// Runs of one workload.
pub struct Bench {
    pub bench: Arc<Workbench>,
    /// The memory in which so many apps live without swap as published.
    pub pressure: Pressure,
    pub apps: usize,
    /// When each switch is.
    times: Vec<Ns>,
}

/// The workload, and the memory that goes with it.
pub fn bench(desk: &mut Desk<'_>) -> Result<Bench, LabError> {
    const SHARES: [f64; 8] = [0.06, 0.07, 0.08, 0.09, 0.1, 0.11, 0.12, 0.14];
    let scale = if desk.quick { 0.01 } else { 0.05 };
    let events = desk.quick.then_some(250_000);
    let workload = Workload { scale, events, contents: false, ..Workload::new(&MOBILESWAP, 1) };
    let bench = desk.usual(&workload)?;
    let apps = match desk.has_given() {
        true => bench.input.trace.totals().apps.len(),
        false => workload.apps,
    };
    let shares = if desk.quick { &SHARES[2..5] } else { &SHARES[..] };
    let without = |bytes| settings(&bench, &[], ARMS[0].1, &How::default(), bytes);
    let cached = |run: &Run| Some(cached(run, apps));
    let pressure = find(desk, &bench, shares, WITHOUT_SWAP, &without, &cached)?;
    let any = desk.runs(&bench, &[without(pressure.budget_bytes)?])?;
    let times = any[0].watched.marks.iter().map(|mark| Ns(mark.at_ns)).collect();
    Ok(Bench { bench, pressure, apps, times })
}

impl Bench {
    /// Replays the schemes of these names.
    pub fn runs(&self, desk: &Desk<'_>, arms: &[(&str, How)]) -> Result<Vec<Run>, LabError> {
        let budget = self.pressure.budget_bytes;
        // Between two switches, when the app in front has got all that it had elsewhere.
        let pairs = self.times.windows(2).skip(self.apps / 2).step_by(self.apps);
        let lost: Vec<Ns> = pairs.map(|pair| Ns(pair[0].0.midpoint(pair[1].0))).collect();
        let each = arms.iter().map(|(name, how)| settings(&self.bench, &lost, name, how, budget));
        let each: Vec<Settings> = each.collect::<Result<_, _>>()?;
        desk.runs(&self.bench, &each)
    }

    /// Apps that live, in the mean.
    pub fn cached(&self, run: &Run) -> f64 {
        cached(run, self.apps)
    }

    /// Marks of the switches after a round's middle.
    pub fn after<'a>(&self, run: &'a Run, round: usize) -> &'a [Mark] {
        run.watched.marks.get(round * self.apps + self.apps / 2 + 1..).unwrap_or_default()
    }
}

fn cached(run: &Run, apps: usize) -> f64 {
    let switches: Vec<&Mark> = run.watched.marks.iter().filter(|mark| mark.app.is_some()).collect();
    let last = &switches[switches.len().saturating_sub(COUNTED_ROUNDS * apps)..];
    last.iter().map(|mark| mark.cached_apps as f64).sum::<f64>() / last.len() as f64
}

/// `middles`: when the middle of each round is.
fn settings(
    bench: &Workbench,
    middles: &[Ns],
    name: &str,
    how: &How,
    budget_bytes: u64,
) -> Result<Settings, LabError> {
    const MIB: f64 = (1u64 << 20) as f64;
    let mut parameters = vec![("on_full", Value::String("kill".to_string()))];
    let peak = how.peak_mib.map(|mib| mib as f64).or((name == OURS).then_some(128.0));
    let peak = peak.map(|mib| format!("{}B", (mib * MIB / bench.grain) as u64));
    parameters.extend(peak.map(|size| ("reclaim.peak", Value::String(size))));
    let scheme = scheme(name, &parameters)?;
    let has_flash = scheme.uses(Tier::Flash);
    // Where some go to the cloud and some to flash, each has half of the area (IV-C).
    let part = if has_flash && scheme.uses(Tier::Donor(DonorId::FIRST)) { 0.5 } else { 1.0 };
    let bytes = |mib: f64| (mib * MIB * part / bench.grain) as u64;
    let donor = |(mib, round): &(f64, Option<usize>)| Donor {
        bytes: bytes(*mib),
        lost_at: round.and_then(|round| middles.get(round).copied()),
    };
    let link = link()?.slowed(bench.grain);
    let link =
        LinkCost { chunk_bytes: how.chunk_kib.map_or(link.chunk_bytes, |kib| kib << 10), ..link };
    let mut costs =
        Costs::reference().slowed(bench.grain, &format!("one page for {:.0}", bench.grain));
    if let Some(flash) = &mut costs.flash {
        let hint = "LocalSwap swaps to it";
        let byte_ns = 8e9 / client()?.need("local_swap_bits_per_second", hint)?;
        (flash.write_byte_ns, flash.read_byte_ns) = (byte_ns * bench.grain, byte_ns * bench.grain);
        flash.read_ns *= bench.grain;
    }
    Ok(Settings {
        pages: BARE,
        clock: Clock::Modelled(costs),
        flash_bytes: has_flash.then_some(bytes(AREA_MIB)),
        donors: Some(Donors { each: how.donors.iter().map(donor).collect(), link }),
        ..Settings::new(scheme, budget_bytes)
    })
}
