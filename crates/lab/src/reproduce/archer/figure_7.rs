//! Figure 7 (5.2.1): cold and hot launches of eight apps among twenty others, on three phones.

use std::collections::BTreeMap;

use super::setting::{
    P20, PIXEL_3, PIXEL_6, Phone, Reading, SCHEMES, TESTED, launches, launching, pressure,
};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Run, Workbench};
use crate::reproduce::launches::{Launch, mean_ms, ratio};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "7",
    title: "launches",
    says: "against ZRAM, Archer launches cold 37.2 %, 30.6 % and 32.9 % faster (Pixel 6, P20, Pixel 3), and hot 55.3 %, \
           47.5 % and 29.6 %. Fixed large blocks (SHSC) take 39.5 % off a cold launch of 3,902 ms on the Pixel 6, \
           but make 43.75 % of the hot ones slower. ASAP does nothing for cold launches and makes hot ones \
           28.3 %, 25.4 % and 28.1 % faster; Archer's are 16.6 % faster than that.",
    run,
};

/// What the paper says of one phone: how much faster than ZRAM.
struct Says {
    phone: Phone,
    cold: f64,
    hot: f64,
    asap_hot: f64,
}

const SAYS: [Says; 3] = [
    Says { phone: PIXEL_6, cold: 1.372, hot: 1.553, asap_hot: 1.283 },
    Says { phone: P20, cold: 1.306, hot: 1.475, asap_hot: 1.254 },
    Says { phone: PIXEL_3, cold: 1.329, hot: 1.296, asap_hot: 1.281 },
];

/// A scheme's times of each app.
type Times = BTreeMap<u32, f64>;

struct Ran {
    cold: Vec<Times>,
    hot: Vec<Times>,
}

impl Ran {
    fn of(runs: &[Run]) -> Ran {
        let times = |kind| runs.iter().map(|run| mean_ms(run, kind, TESTED)).collect();
        Ran { cold: times(Launch::Cold), hot: times(Launch::Hot) }
    }

    /// How many times as fast as `peer` a scheme is.
    fn faster(times: &[Times], name: &str, peer: &str) -> Option<f64> {
        let of = |name| Some(&times[SCHEMES.iter().position(|one| *one == name)?]);
        ratio(of(peer)?, of(name)?)
    }
}

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let bench = launching(desk)?;
    let pressure = pressure(desk, &bench)?;
    let mut found = Found { notes: vec![pressure.said()], ..Found::default() };
    for reading in Reading::BOTH {
        let runs = launches(desk, &bench, reading, pressure.budget_bytes)?;
        let ran = Ran::of(&runs);
        found.claims.extend(claims(&ran, reading, &bench));
        for (kind, times) in [("cold", &ran.cold), ("hot", &ran.hot)] {
            let rows =
                SCHEMES.iter().zip(times).map(|(name, times)| (name.to_string(), mean_of(times)));
            let title = format!("{kind} launches, {}: mean of the tested apps", reading.said());
            found.charts.push(bars(&title, "ms", rows));
        }
        for (name, run) in SCHEMES.iter().zip(&runs) {
            found.notes.push(ended(name, reading, run));
        }
    }
    for says in &SAYS[1..] {
        let Phone { name, .. } = says.phone;
        let why = says.phone.unknown().unwrap_or_else(|| "only the Pixel 6 is run".to_string());
        for (figure, what, paper) in [
            ("7a", "cold, archer over zram", says.cold),
            ("7b", "hot, archer over zram", says.hot),
            ("7b", "hot, asap over zram", says.asap_hot),
        ] {
            let claim = Claim::new(figure, format!("{name}: {what}"), paper, "x", Tolerance::RATIO);
            found.claims.push(claim.not_run(&why));
        }
    }
    Ok(found)
}

fn mean_of(times: &Times) -> f64 {
    times.values().sum::<f64>() / times.len() as f64
}

fn ended(name: &str, reading: Reading, run: &Run) -> String {
    let replay = run.arm.replay.clone().unwrap_or_default();
    format!(
        "{name}, {}: {} apps were ended for want of memory, {} returns were cold launches, which are not timed; {} \
         faults, {} pages came back with another or early.",
        reading.said(),
        replay.kills,
        replay.cold_launches,
        run.arm.faults,
        replay.prefetch.pages
    )
}

fn claims(ran: &Ran, reading: Reading, bench: &Workbench) -> Vec<Claim> {
    let Says { cold, hot, asap_hot, .. } = SAYS[0];
    let claim = |figure: &str, what: &str, paper: f64, tolerance, here: Option<f64>| {
        let unit = if what.ends_with("slower") { "%" } else { "x" };
        let claim =
            Claim::new(figure, format!("{what} ({})", reading.said()), paper, unit, tolerance);
        claim.found(here, Kind::Modelled, &bench.name)
    };
    let faster = |times: &[Times], scheme| Ran::faster(times, scheme, SCHEMES[0]);
    let shsc = 1.0 / (1.0 - 0.395);
    let against_asap = Ran::faster(&ran.hot, "archer", "asap");
    let pairs: Vec<bool> =
        ran.hot[2].iter().filter_map(|(app, shsc)| Some(shsc > ran.hot[0].get(app)?)).collect();
    let slower = pairs.iter().filter(|slower| **slower).count() as f64 / pairs.len() as f64;
    let seconds = (!ran.cold[0].is_empty()).then(|| mean_of(&ran.cold[0]) / 3902.0);
    let (ratio, same) = (Tolerance::RATIO, Tolerance::Within { off: 0.05 });
    vec![
        claim(
            "7a",
            "cold, zram's time / 3,902 ms",
            1.0,
            Tolerance::Factor { factor: 1.25 },
            seconds,
        ),
        claim("7a", "cold, archer over zram", cold, ratio, faster(&ran.cold, "archer")),
        claim("7a", "cold, shsc over zram", shsc, ratio, faster(&ran.cold, "shsc")),
        claim("7a", "cold, asap over zram", 1.0, same, faster(&ran.cold, "asap")),
        claim("7b", "hot, archer over zram", hot, ratio, faster(&ran.hot, "archer")),
        claim("7b", "hot, asap over zram", asap_hot, ratio, faster(&ran.hot, "asap")),
        claim("7b", "hot, archer over asap", 1.166, ratio, against_asap),
        claim(
            "7b",
            "hot launches that shsc makes slower",
            43.75,
            Tolerance::Within { off: 20.0 },
            Some(slower * 100.0),
        ),
    ]
}
