//! Figure 10 (5.3): frames a second by the sizes of Archer's queue and transaction buffer.

use clew_report::Table;
use toml::Value;

use super::bursts::{self, Kind as Burst};
use super::setting::Reading;
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "10",
    title: "sizes of queue and buffer",
    says: "frames a second grow with both sizes, from 49.1 (queue 32, buffer 16 KiB) to 58.3 (256, 128 KiB: 18.7 % \
           more) and 59.7 at most (256, 256 KiB), and fall to 48.7 when neither has a limit.",
    run,
};

/// More than any trace fills.
const NO_LIMIT: i64 = 1 << 20;
/// A transaction is 32 uses of 8 bytes.
const A_KIB: i64 = 4;

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let claim = |what: &str, paper: f64, tolerance| Claim::new("10", what, paper, "x", tolerance);
    let small = claim("<256, 128 KiB> over <32, 16 KiB>", 1.187, Tolerance::RATIO);
    let limits = claim("<256, 128 KiB> over no limits", 58.3 / 48.7, Tolerance::RATIO);
    if desk.has_given() {
        let claims = vec![small.not_run(bursts::GIVEN), limits.not_run(bursts::GIVEN)];
        return Ok(Found { claims, ..Found::default() });
    }
    let (queues, buffers): (&[i64], &[i64]) = match desk.quick {
        true => (&[32, 256, NO_LIMIT], &[16, 128, NO_LIMIT]),
        false => (&[32, 64, 128, 256, 512, 1024, NO_LIMIT], &[16, 32, 64, 128, 256, 512, NO_LIMIT]),
    };
    let pairs: Vec<(i64, i64)> = buffers
        .iter()
        .flat_map(|buffer| queues.iter().map(move |queue| (*queue, *buffer)))
        .collect();
    let parameters: Vec<[(&str, Value); 2]> = pairs
        .iter()
        .map(|&(queue, buffer)| {
            let transactions = if buffer == NO_LIMIT { NO_LIMIT } else { buffer * A_KIB };
            [
                ("reclaim.queue", Value::Integer(queue)),
                ("reclaim.transactions", Value::Integer(transactions)),
            ]
        })
        .collect();
    let schemes: Vec<(&str, &[(&str, Value)])> =
        parameters.iter().map(|both| ("archer", &both[..])).collect();
    let scarce = bursts::scarce(desk, Burst::Frames, 8)?;
    let ran = bursts::runs(desk, Burst::Frames, 8, Reading::Favour, scarce.budget_bytes, &schemes)?;
    let rates: Vec<f64> =
        ran.iter().map(|run| bursts::rate(run, Burst::Frames).unwrap_or(f64::NAN)).collect();
    let rate = |queue, buffer| {
        let place = pairs.iter().position(|pair| *pair == (queue, buffer));
        place.map_or(f64::NAN, |place| rates[place])
    };
    let usual = rate(256, 128);
    let over = |queue, buffer| Some(usual / rate(queue, buffer));
    let claims = vec![
        small.found(over(32, 16), Kind::Modelled, &scarce.trace),
        limits.found(over(NO_LIMIT, NO_LIMIT), Kind::Modelled, &scarce.trace),
    ];
    let size = |size: i64| if size == NO_LIMIT { "no limit".to_string() } else { size.to_string() };
    let header = ["buffer KiB \\ queue".to_string()];
    let header = header.into_iter().chain(queues.iter().map(|queue| size(*queue))).collect();
    let rows = buffers.iter().map(|buffer| {
        let rates = queues.iter().map(|queue| format!("{:.1}", rate(*queue, *buffer)));
        [size(*buffer)].into_iter().chain(rates).collect()
    });
    let table = Table {
        title: "frames a second (modelled, in the paper's favour)".to_string(),
        note: "",
        keys: 1,
        header,
        rows: rows.collect(),
        detail: false,
    };
    Ok(Found { claims, tables: vec![table], ..Found::default() })
}
