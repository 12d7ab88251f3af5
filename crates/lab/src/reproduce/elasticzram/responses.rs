//! Figures 2, 3a and 6 to 9: responses, kills, processor time and flash writes of five schemes.

use super::setting::{ARMS, OURS, first_missing, missing, runs};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Run};
use crate::reproduce::launches::{Launch, mean_ms, ratio};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

/// Apps of a trace; all count.
const ALL: u32 = u32::MAX;

pub const FIGURE_2: Figure = Figure {
    number: "2",
    title: "how long an app was swapped out",
    says: "with ZRAM and flash behind it, an app that has been swapped out for long answers 88 % later (YouTube, 850 MB) \
           or 93 % later (Twitter) than one that has just been; with a smaller footprint 21 and 25 %.",
    run: figure_2,
};

fn figure_2(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let why = match missing("zram-flash") {
        Some(why) => why,
        None => "no workload here brings an app back both at once and after long".to_string(),
    };
    let claims = [
        ("YouTube, 850 MB", 88.0),
        ("Twitter, 850 MB", 93.0),
        ("YouTube, 450 MB", 21.0),
        ("Twitter, 350 MB", 25.0),
    ];
    let claim = |(what, paper): (&str, f64)| {
        let what = format!("{what}: long out / just out, more by");
        Claim::new("2", what, paper, "%", Tolerance::CHANGE).not_run(&why)
    };
    Ok(Found { claims: claims.map(claim).into(), ..Found::default() })
}

pub const FIGURE_3A: Figure = Figure {
    number: "3a",
    title: "what is written to flash",
    says: "swap on flash writes 2.3 times what is written with ZRAM alone; with 1 GB of ZRAM before it 51 % less than that.",
    run: figure_3a,
};

fn figure_3a(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let all = Claim::new("3a", "flash swap / ZRAM alone", 2.3, "x", Tolerance::RATIO)
        .not_run("what apps themselves write to flash is in no trace");
    let less = Claim::new("3a", "ZRAM/flash against flash swap", -51.0, "%", Tolerance::CHANGE);
    let names = ["zram-flash", "flash-swap"];
    let less = match first_missing(&names) {
        Some(why) => less.not_run(&why),
        None => {
            let (ran, trace) = runs(desk, &names)?;
            less.found(change(&ran, written), Kind::Modelled, &trace)
        }
    };
    Ok(Found { claims: vec![all, less], ..Found::default() })
}

fn written(run: &Run) -> f64 {
    run.arm.disk_bytes_written as f64
}

fn cpu(run: &Run) -> f64 {
    run.arm.swapping_cpu_ms.unwrap_or(f64::NAN)
}

fn kills(run: &Run) -> f64 {
    run.arm.replay.as_ref().map_or(f64::NAN, |replay| replay.kills as f64)
}

/// Of the first run against the second, per cent.
fn change(ran: &[Run], of: fn(&Run) -> f64) -> Option<f64> {
    Some((of(ran.first()?) / of(ran.get(1)?) - 1.0) * 100.0)
}

/// A claim about ElasticZRAM against `peer`.
fn against(
    desk: &mut Desk<'_>,
    peer: &str,
    claim: Claim,
    of: impl Fn(&[Run]) -> Option<f64>,
) -> Result<Claim, LabError> {
    let names = [OURS, peer];
    if let Some(why) = first_missing(&names) {
        return Ok(claim.not_run(&why));
    }
    let (ran, trace) = runs(desk, &names)?;
    Ok(claim.found(of(&ran), Kind::Modelled, &trace))
}

fn responses(ran: &[Run]) -> Option<f64> {
    let of = |run: &Run| mean_ms(run, Launch::Hot, ALL);
    Some((ratio(&of(ran.first()?), &of(ran.get(1)?))? - 1.0) * 100.0)
}

pub const FIGURE_6: Figure = Figure {
    number: "6",
    title: "responses",
    says: "ElasticZRAM answers 34.5 % sooner than ZRAM, 32.1 % sooner than ZRAM with flash behind it, and 24.8 % sooner than SEAL.",
    run: figure_6,
};

fn figure_6(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let mut claims = Vec::new();
    for (shown, peer, paper) in
        [("ZRAM", "zram", -34.5), ("ZRAM/flash", "zram-flash", -32.1), ("SEAL", "seal", -24.8)]
    {
        let claim =
            Claim::new("6", format!("response against {shown}"), paper, "%", Tolerance::CHANGE);
        claims.push(against(desk, peer, claim, responses)?);
    }
    let mut rows = Vec::new();
    for (shown, name) in ARMS.into_iter().filter(|(_, name)| missing(name).is_none()) {
        let (ran, _) = runs(desk, &[name])?;
        rows.push((shown.to_string(), ran[0].arm.relaunch_ms.p50));
    }
    let charts = vec![bars("median relaunch, of the schemes that are there", "ms", rows)];
    Ok(Found { claims, charts, ..Found::default() })
}

pub const FIGURE_7: Figure = Figure {
    number: "7",
    title: "kills, processor time, writes",
    says: "ElasticZRAM kills two processes; it takes 45 % less processor time than ZRAM with flash behind it, and writes 24 % \
           less than SEAL.",
    run: figure_7,
};

fn figure_7(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let few = Claim::new("7", "apps ended", 2.0, "apps", Tolerance::Within { off: 2.0 });
    let time = Claim::new("7", "processor time against ZRAM/flash", -45.0, "%", Tolerance::CHANGE);
    let writes = Claim::new("7", "written to flash against SEAL", -24.0, "%", Tolerance::CHANGE);
    let claims = vec![
        against(desk, "zram-flash", few, |ran| ran.first().map(kills))?,
        against(desk, "zram-flash", time, |ran| change(ran, cpu))?,
        against(desk, "seal", writes, |ran| change(ran, written))?,
    ];
    Ok(Found { claims, ..Found::default() })
}

pub const FIGURE_8: Figure = Figure {
    number: "8",
    title: "responses by how full the device is",
    says: "from 30 to 90 % of the device in use, YouTube's response grows by 41 % with ZRAM and flash and by 38 % with SEAL, \
           and hardly with ElasticZRAM.",
    run: figure_8,
};

fn figure_8(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let claim = |name: &str, what: &str, paper: Option<f64>, tolerance| {
        let why = missing(name)
            .unwrap_or_else(|| "a replay's flash is as fast however full it is".to_string());
        Claim::new("8", format!("{what}: 90 % in use / 30 %, more by"), paper, "%", tolerance)
            .not_run(&why)
    };
    let claims = vec![
        claim("zram-flash", "ZRAM/flash", Some(41.0), Tolerance::CHANGE),
        claim("seal", "SEAL", Some(38.0), Tolerance::CHANGE),
        claim(OURS, "ElasticZRAM", None, Tolerance::Below { limit: 10.0 }),
    ];
    Ok(Found { claims, ..Found::default() })
}

pub const FIGURE_9: Figure = Figure {
    number: "9",
    title: "how fast the share of ZRAM moves",
    says: "responses become shorter as the share may move by more at once, from 20 % on, until they do not any more.",
    run: figure_9,
};

fn figure_9(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let why = missing(OURS).unwrap_or_else(|| "the parameter's name is not known here".to_string());
    let below = Tolerance::Below { limit: 1.0 };
    let claim = Claim::new("9", "response with a step of 60 % / of 20 %", None, "x", below);
    Ok(Found { claims: vec![claim.not_run(&why)], ..Found::default() })
}
