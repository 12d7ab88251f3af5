//! Figure 3 (2.3): processor time of the thread that reclaims.

use super::setting::{Probe, orders, over, plain, traces};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, scheme};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "3",
    title: "processor time of reclaim",
    says: "the thread that reclaims needs most under ZRAM, which compresses, less with swap on flash, and least in \
           DRAM, where it only writes pages of files.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let above = Tolerance::Above { limit: 1.0 };
    let files = Claim::new("3", "reclaim under ZRAM / in DRAM", None, "x", above)
        .not_run("no scheme here takes pages of files out, which is all that reclaim does in DRAM");
    let claim = Claim::new("3", "reclaim under ZRAM / with swap on flash", None, "x", above);
    let claim = match scheme("flash-swap", &[]) {
        Err(error) => claim.not_run(&error.to_string()),
        Ok(flash) => {
            let ran = orders(desk, Probe::True, |_| Ok(vec![plain("zram")?, flash.clone()]))?;
            let part = over(&ran, |order| {
                let of = |at: usize| Some(order.runs[at].arm.replay.as_ref()?.compress_ms);
                Some(of(0)? / of(1)?)
            });
            claim.found(part, Kind::Modelled, &traces(&ran))
        }
    };
    Ok(Found { claims: vec![files, claim], ..Found::default() })
}
