//! Figures 2, 3a and 6 to 9: responses, kills, processor time and flash writes of five schemes.

use super::setting::{ARMS, How, OURS, TESTED, runs};
use crate::error::LabError;
use crate::reproduce::desk::{Desk, Run};
use crate::reproduce::launches::{Launch, mean_ms, ratio};
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE_2: Figure = Figure {
    number: "2",
    title: "how long an app was swapped out",
    says: "with ZRAM and flash behind it, an app that has been swapped out for long answers 88 % later (YouTube, 850 MB) \
           or 93 % later (Twitter) than one that has just been; with a smaller footprint 21 and 25 %.",
    run: figure_2,
};

fn figure_2(_: &mut Desk<'_>) -> Result<Found, LabError> {
    let why = "no workload here brings an app back both at once and after long";
    let claims = [
        ("YouTube, 850 MB", 88.0),
        ("Twitter, 850 MB", 93.0),
        ("YouTube, 450 MB", 21.0),
        ("Twitter, 350 MB", 25.0),
    ];
    let claim = |(what, paper): (&str, f64)| {
        let what = format!("{what}: long out / just out, more by");
        Claim::new("2", what, paper, "%", Tolerance::CHANGE).not_run(why)
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
    let (ran, trace) = runs(desk, &as_they_are(["zram-flash", "flash-swap"]))?;
    let less = less.found(change(&ran, written), Kind::Modelled, &trace);
    Ok(Found { claims: vec![all, less], ..Found::default() })
}

fn as_they_are<const N: usize>(names: [&str; N]) -> [(&str, How); N] {
    names.map(|name| (name, How::default()))
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
    let (ran, trace) = runs(desk, &as_they_are([OURS, peer]))?;
    Ok(claim.found(of(&ran), Kind::Modelled, &trace))
}

fn responses(ran: &[Run]) -> Option<f64> {
    let of = |run: &Run| mean_ms(run, Launch::Hot, TESTED);
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
    for (shown, name) in ARMS {
        let (ran, _) = runs(desk, &as_they_are([name]))?;
        rows.push((shown.to_string(), ran[0].arm.relaunch_ms.p50));
    }
    let charts = vec![bars("median relaunch", "ms", rows)];
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

fn figure_8(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let mut claims = Vec::new();
    for (shown, name, paper, tolerance) in [
        ("ZRAM/flash", "zram-flash", Some(41.0), Tolerance::CHANGE),
        ("SEAL", "seal", Some(38.0), Tolerance::CHANGE),
        ("ElasticZRAM", OURS, None, Tolerance::Below { limit: 10.0 }),
    ] {
        let used = |flash_used_pct| (name, How { flash_used_pct, ..How::default() });
        let (ran, trace) = runs(desk, &[used(90), used(30)])?;
        let what = format!("{shown}: 90 % in use / 30 %, more by");
        let claim = Claim::new("8", what, paper, "%", tolerance);
        claims.push(claim.found(responses(&ran), Kind::Modelled, &trace));
    }
    Ok(Found { claims, ..Found::default() })
}

pub const FIGURE_9: Figure = Figure {
    number: "9",
    title: "how fast the share of ZRAM moves",
    says: "responses become shorter as the share may move by more at once, from 20 % on, until they do not any more.",
    run: figure_9,
};

fn figure_9(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let steps = [20, 40, 60, 80, 100];
    let arms = steps.map(|pct| (OURS, How { delta_pct: Some(pct), ..How::default() }));
    let (ran, trace) = runs(desk, &arms)?;
    let of = |at: usize| mean_ms(&ran[at], Launch::Hot, TESTED);
    let found = ratio(&of(2), &of(0));
    let claim = Claim::new(
        "9",
        "response with a step of 60 % / of 20 %",
        None,
        "x",
        Tolerance::Below { limit: 1.0 },
    );
    let rows = steps.iter().enumerate().filter_map(|(at, pct)| {
        let of_app = of(at);
        let mean = of_app.values().sum::<f64>() / of_app.len() as f64;
        (!of_app.is_empty()).then(|| (format!("{pct} %"), mean))
    });
    let charts = vec![bars("mean response by the step", "ms", rows.collect::<Vec<_>>())];
    Ok(Found {
        claims: vec![claim.found(found, Kind::Modelled, &trace)],
        charts,
        ..Found::default()
    })
}
