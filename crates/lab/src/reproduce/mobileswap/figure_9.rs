//! Figure 9 (IV-D): the size of a chunk, and how much of an app may be swapped.

use super::setting::{How, NUMBERS, OURS, bench, link};
use crate::costs::LinkCost;
use crate::error::LabError;
use crate::replay::Switch;
use crate::reproduce::desk::{Desk, Run};
use crate::reproduce::launches::mean;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "9",
    title: "chunk size C_s and peak size P_s",
    says: "with larger chunks more is swapped in a second, and apps come back sooner; the smaller the peak size, the more \
           apps have pages at donors, and the sooner each of them comes back. Both level off. Bringing back an app that \
           was swapped takes 7 to 16 % longer (III-C).",
    run,
};

/// How much longer relaunches of apps took that had pages at a donor: per cent, in the mean.
fn longer(run: &Run) -> Option<f64> {
    let came_back = |switch: &&Switch| !switch.cold && switch.back_pages > 0;
    let longer = |switch: &Switch| (switch.took_ms / switch.own_ms - 1.0) * 100.0;
    let each: Vec<f64> = run.watched.switches.iter().filter(came_back).map(longer).collect();
    (!each.is_empty()).then(|| mean(&each))
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    const CHUNKS_KIB: [u64; 5] = [4, 16, 32, 64, 128];
    const PEAKS_MIB: [u64; 5] = [16, 32, 64, 128, 256];
    let bench = bench(desk)?;
    let trace = bench.bench.name.clone();
    let link = link()?;
    let speed = |kib: u64| LinkCost { chunk_bytes: kib << 10, ..link }.bits_per_second() / 1e6;
    let by_chunk = CHUNKS_KIB.map(|kib| (OURS, How { chunk_kib: Some(kib), ..How::default() }));
    let by_peak = PEAKS_MIB.map(|mib| (OURS, How { peak_mib: Some(mib), ..How::default() }));
    let (by_chunk, by_peak) = (bench.runs(desk, &by_chunk)?, bench.runs(desk, &by_peak)?);
    let ratio = |one: Option<f64>, other: Option<f64>| Some(one? / other?);
    let kills = |run: &Run| run.watched.marks.last().map(|mark| mark.kills as f64);
    let below = Tolerance::Below { limit: 1.0 };
    let claims = vec![
        Claim::new(
            "9",
            "throughput, chunks of 64 KiB / of 4",
            828.0 / 355.0,
            "x",
            Tolerance::RATIO,
        )
        .found(Some(speed(64) / speed(4)), Kind::Computed, NUMBERS),
        Claim::new(
            "9",
            "and of 128 KiB / of 64: it levels off",
            None,
            "x",
            Tolerance::Below { limit: 1.1 },
        )
        .found(Some(speed(128) / speed(64)), Kind::Computed, NUMBERS),
        Claim::new(
            "9",
            "what swapping adds to a relaunch, chunks of 64 KiB / of 4",
            None,
            "x",
            below,
        )
        .found(ratio(longer(&by_chunk[3]), longer(&by_chunk[0])), Kind::Modelled, &trace),
        Claim::new(
            "9",
            "what swapping adds to a relaunch, P_s of 32 MiB / of 256",
            None,
            "x",
            below,
        )
        .found(ratio(longer(&by_peak[1]), longer(&by_peak[4])), Kind::Modelled, &trace),
        Claim::new(
            "9",
            "a relaunch of an app that was swapped, longer by",
            11.5,
            "%",
            Tolerance::Factor { factor: 2.0 },
        )
        .found(longer(&by_chunk[3]), Kind::Modelled, &trace)
        .noted(
            "the paper has 7 to 16; but what P_s lets out of an app, 128 MiB, takes 1.3 s on the way back at 828 Mbit/s, and \
             the room that it needs as long again",
        ),
    ];
    let chunk = CHUNKS_KIB.iter().map(|kib| (format!("{kib} KiB"), speed(*kib)));
    let rows = |sizes: [String; 5], runs: &[Run], of: &dyn Fn(&Run) -> Option<f64>| {
        let found: Vec<Option<f64>> = runs.iter().map(of).collect();
        sizes
            .into_iter()
            .zip(found)
            .filter_map(|(size, value)| Some((size, value?)))
            .collect::<Vec<_>>()
    };
    let (kib, mib) =
        (CHUNKS_KIB.map(|kib| format!("{kib} KiB")), PEAKS_MIB.map(|mib| format!("{mib} MiB")));
    let charts = vec![
        bars("throughput by C_s (computed)", "Mbit/s", chunk),
        bars("a relaunch takes longer by, by C_s", "%", rows(kib, &by_chunk, &longer)),
        bars("a relaunch takes longer by, by P_s", "%", rows(mib.clone(), &by_peak, &longer)),
        bars("apps ended, by P_s", "apps", rows(mib, &by_peak, &kills)),
    ];
    Ok(Found { claims, charts, ..Found::default() })
}
