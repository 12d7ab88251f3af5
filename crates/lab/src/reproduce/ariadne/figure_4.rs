//! Figure 4 (2.3): hot, warm and cold data in the order in which ZRAM compresses it.

use clew_report::{Chart, Part, Row, Shade};

use super::setting::{Order, Probe, SHOWN, orders, plain, traces};
use crate::error::LabError;
use crate::replay::PARTS;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance};

pub const FIGURE: Figure = Figure {
    number: "4",
    title: "what is compressed first",
    says: "of everything that ZRAM compresses, cut into ten parts in the order of compression, even the first has much \
           data that the next relaunch uses: LRU does not know what is hot.",
    run,
};

const KINDS: &[Part] = &[
    Part { name: "hot: the next relaunch uses it", shade: Shade::Full },
    Part { name: "warm: used later", shade: Shade::Half },
    Part { name: "cold: not used", shade: Shade::Grey },
];

/// Per cent of each part that is hot, warm and cold, over the apps that are shown.
fn parts(ran: &[Order]) -> [[f64; 3]; PARTS] {
    let mut sums = [[0u64; 3]; PARTS];
    let apps = ran.iter().flat_map(|order| &order.runs[0].watched.apps);
    for (_, pages) in apps.filter(|(number, _)| **number < SHOWN) {
        for (sum, part) in sums.iter_mut().zip(&pages.parts) {
            sum.iter_mut().zip(part).for_each(|(sum, count)| *sum += count);
        }
    }
    sums.map(|part| {
        let all = part.iter().sum::<u64>() as f64;
        part.map(|count| count as f64 / all * 100.0)
    })
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let ran = orders(desk, Probe::True, |_| Ok(vec![plain("zram")?]))?;
    let (parts, name) = (parts(&ran), traces(&ran));
    let claim = |what: &str, tolerance, here: f64| {
        let claim = Claim::new("4", what, None, "%", tolerance);
        claim.found(Some(here), Kind::Modelled, &name)
    };
    let claims = vec![
        claim("hot data in the first part", Tolerance::Above { limit: 10.0 }, parts[0][0])
            .noted("the paper says \"a significant amount\""),
        claim(
            "hot data in the last part, more than in the first by",
            Tolerance::Below { limit: 50.0 },
            parts[PARTS - 1][0] - parts[0][0],
        )
        .noted("were hotness known, the last part would be all hot and the first not at all"),
    ];
    let row = |(number, part): (usize, &[f64; 3])| Row {
        name: format!("part {number}"),
        sizes: part.map(|share| if share.is_finite() { share } else { 0.0 }).to_vec(),
        note: format!("{:.0} / {:.0} / {:.0}", part[0], part[1], part[2]),
    };
    let chart = Chart {
        title: "hot / warm / cold in the order of compression".to_string(),
        unit: "%",
        parts: KINDS,
        rows: parts.iter().enumerate().map(row).collect(),
    };
    let notes = vec![
        "The replay's LRU is told of every use. Android's looks at reference bits now and then, and knows less: that \
         hot data leaves first there is not to be seen here."
            .to_string(),
    ];
    Ok(Found { claims, charts: vec![chart], notes, ..Found::default() })
}
