//! Table 2 (2.3): energy in a minute of light and heavy use. By a model.

use super::energy::{CORE_WATTS, USES};
use super::setting::{Order, Probe, orders, over, plain, traces};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "T2",
    title: "energy",
    says: "a minute of light use takes 178.8 J in DRAM, 12.2 % more under ZRAM and 0.3 % more with swap on flash; one of \
           heavy use 231.8 J, 19.5 % and 1.7 % more.",
    run,
};

/// Processor time of swapping for each time that an app comes to the front, milliseconds of the whole phone.
fn busy_ms(order: &Order) -> Option<f64> {
    let arm = &order.runs[0].arm;
    let replay = arm.replay.as_ref()?;
    let switches = arm.relaunch_ms.n as u64 + replay.launches + replay.cold_launches;
    Some(arm.swapping_cpu_ms? / switches as f64)
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let ran = orders(desk, Probe::True, |_| Ok(vec![plain("zram")?]))?;
    let (busy, name) = (over(&ran, busy_ms), traces(&ran));
    let claims = USES.iter().flat_map(|one| {
        let claim = |arm: &str, paper: f64| {
            let what = format!("{} use: {arm} / DRAM", one.name);
            Claim::new("T2", what, paper, "x", Tolerance::RATIO)
        };
        let zram = claim("ZRAM", one.published());
        let flash = claim("swap on flash", if one.name == "light" { 1.003 } else { 1.017 });
        [
            zram.found(busy.map(|ms| one.part(ms)), Kind::Modelled, &name),
            flash.not_run("the model knows processors only, and no device"),
        ]
    });
    let notes = vec![format!(
        "The model: what the paper has for DRAM, and {CORE_WATTS} W (an assumption) for as long as swapping keeps a \
         processor busy: {:.0} ms for each app that comes to the front, of which there are {:.0} a minute in light and \
         {:.0} in heavy use (assumptions, too).",
        busy.unwrap_or_default(),
        USES[0].switches,
        USES[1].switches
    )];
    Ok(Found { claims: claims.collect(), notes, ..Found::default() })
}
