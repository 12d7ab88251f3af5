//! Figure 2 (2.3): relaunches with everything in DRAM, under ZRAM, and with swap on flash.

use super::setting::{PUBLISHED_MS, Probe, SHOWN, orders, over, plain, published_slowdown, traces};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, scheme};
use crate::reproduce::launches::{Launch, mean_ms, own_ms, slowdown};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "2",
    title: "relaunches in DRAM, under ZRAM, from flash",
    says: "ZRAM makes relaunches of five apps about twice as long as DRAM would, swap on flash longer still. The \
           authors' scripts have 63, 104, 56, 86 and 65 ms in DRAM, and 122, 262, 149, 170 and 138 ms under ZRAM.",
    run,
};

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let flash = scheme("flash-swap", &[]);
    let schemes =
        |_| Ok([plain("zram")?].into_iter().chain(flash.as_ref().ok().cloned()).collect());
    let ran = orders(desk, Probe::True, schemes)?;
    let name = traces(&ran);
    let first = &ran[0];
    let mut claims = vec![first.pressure.claim(
        "2",
        "relaunches under ZRAM / in DRAM, mean of five apps",
        published_slowdown(),
        &first.bench.name,
    )];
    let mut rows = Vec::new();
    for (number, (app, dram, zram)) in PUBLISHED_MS.into_iter().enumerate() {
        let number = number as u32;
        let of = |at: usize, own: bool| {
            over(&ran, |order| {
                let run = &order.runs[at];
                let times = if own {
                    own_ms(run, Launch::Hot, SHOWN)
                } else {
                    mean_ms(run, Launch::Hot, SHOWN)
                };
                times.get(&number).copied()
            })
        };
        let slow = of(0, false).zip(of(0, true)).map(|(zram, dram)| zram / dram);
        let what = format!("{app}: relaunch under ZRAM / in DRAM");
        let claim = Claim::new("2", what, zram / dram, "x", Tolerance::RATIO);
        claims.push(claim.found(slow, Kind::Modelled, &name));
        rows.extend(of(0, true).map(|ms| (format!("{app}, DRAM"), ms)));
        rows.extend(of(0, false).map(|ms| (format!("{app}, ZRAM"), ms)));
        if flash.is_ok() {
            rows.extend(of(1, false).map(|ms| (format!("{app}, flash"), ms)));
        }
    }
    let slower = Tolerance::Above { limit: 1.0 };
    let claim = Claim::new("2", "relaunches from flash / under ZRAM", None, "x", slower);
    claims.push(match &flash {
        Err(error) => claim.not_run(&error.to_string()),
        Ok(_) => {
            let both = over(&ran, |order| {
                let of = |at: usize| slowdown(&order.runs[at], Launch::Hot, SHOWN);
                Some(of(1)? / of(0)?)
            });
            claim.found(both, Kind::Modelled, &name)
        }
    });
    let notes = ran.iter().map(|order| format!("{}: {}.", order.bench.name, order.pressure.said()));
    Ok(Found {
        claims,
        charts: vec![bars("mean relaunch", "ms", rows)],
        notes: notes.collect(),
        ..Found::default()
    })
}
