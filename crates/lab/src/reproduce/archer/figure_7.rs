//! Figure 7 (5.2.1): cold and hot launches of eight apps among twenty others, on three phones.

use std::collections::BTreeMap;

use super::setting::{
    P20, PIXEL_3, PIXEL_6, Phone, SCHEMES, Speed, TESTED, launches, launching, pressure,
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
    for speed in Speed::BOTH {
        let (mut slower, mut compared) = (0usize, 0usize);
        for says in &SAYS {
            let runs = launches(desk, &bench, says.phone, speed, pressure.budget_bytes)?;
            let ran = Ran::of(&runs);
            claims(&mut found.claims, says, &ran, speed, &bench);
            for (app, shsc) in &ran.hot[2] {
                let Some(zram) = ran.hot[0].get(app) else { continue };
                compared += 1;
                slower += usize::from(shsc > zram);
            }
            if speed == Speed::Ours {
                found.notes.push(cached(says.phone, &runs[0]));
            }
            let rows = SCHEMES.iter().enumerate().flat_map(|(at, scheme)| {
                let all = [("cold", &ran.cold[at]), ("hot", &ran.hot[at])];
                all.map(|(kind, times)| (format!("{scheme}, {kind}"), mean_of(times)))
            });
            let title = format!("{}, {}: mean of the tested apps", says.phone.name, speed.said());
            found.charts.push(bars(&title, "ms", rows));
        }
        let share = (compared > 0).then(|| slower as f64 / compared as f64 * 100.0);
        let what = format!("hot launches that SHSC makes slower ({})", speed.said());
        let claim = Claim::new("7b", what, 43.75, "%", Tolerance::Within { off: 20.0 });
        found.claims.push(claim.found(share, Kind::Modelled, &bench.name));
    }
    found.notes.push(
        "A hot launch counts that was one in the run: apps that had been ended are launched cold, without being \
         timed, and an app whose launches were all so is in no mean."
            .to_string(),
    );
    Ok(found)
}

fn mean_of(times: &Times) -> f64 {
    times.values().sum::<f64>() / times.len() as f64
}

fn cached(phone: Phone, run: &Run) -> String {
    let replay = run.arm.replay.clone().unwrap_or_default();
    format!(
        "{}: under ZRAM {} apps were ended for want of memory, and {} returns had to be cold launches.",
        phone.name, replay.kills, replay.cold_launches
    )
}

fn claims(all: &mut Vec<Claim>, says: &Says, ran: &Ran, speed: Speed, bench: &Workbench) {
    let name = says.phone.name;
    let mut add = |figure: &str, what: String, paper: f64, tolerance, here: Option<f64>| {
        let claim =
            Claim::new(figure, format!("{name}: {what} ({})", speed.said()), paper, "x", tolerance);
        all.push(claim.found(here, Kind::Modelled, &bench.name));
    };
    let faster = |times: &[Times], scheme| Ran::faster(times, scheme, SCHEMES[0]);
    let same = Tolerance::Within { off: 0.05 };
    add(
        "7a",
        "cold, archer over zram".into(),
        says.cold,
        Tolerance::RATIO,
        faster(&ran.cold, "archer"),
    );
    add("7a", "cold, asap over zram".into(), 1.0, same, faster(&ran.cold, "asap"));
    add(
        "7b",
        "hot, archer over zram".into(),
        says.hot,
        Tolerance::RATIO,
        faster(&ran.hot, "archer"),
    );
    add(
        "7b",
        "hot, asap over zram".into(),
        says.asap_hot,
        Tolerance::RATIO,
        faster(&ran.hot, "asap"),
    );
    if name == PIXEL_6.name {
        let shsc = 1.0 / (1.0 - 0.395);
        add("7a", "cold, shsc over zram".into(), shsc, Tolerance::RATIO, faster(&ran.cold, "shsc"));
        let archer = Ran::faster(&ran.hot, "archer", "asap");
        add("7b", "hot, archer over asap".into(), 1.166, Tolerance::RATIO, archer);
        let zram = (!ran.cold[0].is_empty()).then(|| mean_of(&ran.cold[0]) / 3902.0);
        add(
            "7a",
            "cold, zram's time / 3,902 ms".into(),
            1.0,
            Tolerance::Factor { factor: 1.25 },
            zram,
        );
    }
}
