//! Figure 9 (IV-B): launches and evictions by how many apps are used.

use super::setting::{Arms, arms, arms_on, counted, launch_ms, workload};
use crate::error::LabError;
use crate::reproduce::desk::Desk;
use crate::reproduce::{Claim, Figure, Found, Kind, Tolerance, bars};

pub const FIGURE: Figure = Figure {
    number: "9",
    title: "8 to 16 apps",
    says: "with 16 apps APA launches 4 % and ezswap 10 % faster than zswap, with 12 and 14 ezswap is the fastest, with 8 and 10 \
           it is slower than APA. 51,408 anonymous pages are evicted from DRAM with 14 apps, 4,050 with 8 and 8,085 with 10; \
           with 16 there are 34 pages of files for each. \"More than 16 % in all cases\" contradicts the 10 % with 16 apps.",
    run,
};

const NAMES: [&str; 3] = ["zswap", "APA", "ezswap"];

fn run(desk: &mut Desk<'_>) -> Result<Found, LabError> {
    let is_given = desk.has_given();
    let counts: &[usize] = if is_given {
        &[]
    } else if desk.quick {
        &[8, 14]
    } else {
        &[8, 10, 12, 14, 16]
    };
    let mut all: Vec<(usize, Arms)> = Vec::new();
    for apps in counts {
        let arms = match apps {
            14 => arms(desk, &NAMES)?,
            apps => {
                let workload = workload(desk, *apps);
                let bench = desk.generated(&workload)?;
                arms_on(desk, bench, &NAMES)?
            }
        };
        all.push((*apps, arms));
    }
    let with = |apps: usize| all.iter().find(|(count, _)| *count == apps).map(|(_, arms)| arms);
    let claim = |apps, claim: Claim, of: &dyn Fn(&Arms) -> Option<f64>| match with(apps) {
        Some(arms) => claim.found(of(arms), Kind::Modelled, &arms.bench.name),
        None if is_given => claim.not_run("it takes traces of other numbers of apps"),
        None => claim.not_run("--quick has 8 and 14 apps only"),
    };
    let mut claims = Vec::new();
    for (arm, paper) in [("APA", -4.0), ("ezswap", -10.0)] {
        let what = format!("16 apps: launch, {arm} against zswap");
        let says = Claim::new("9", what, paper, "%", Tolerance::CHANGE);
        claims.push(claim(16, says, &|arms| {
            Some((arms.part(arm, "zswap", launch_ms)? - 1.0) * 100.0)
        }));
    }
    let [below, above] = [Tolerance::Below { limit: 1.0 }, Tolerance::Above { limit: 1.0 }];
    for (apps, tolerance) in [(8, above), (10, above), (12, below), (14, below)] {
        let what = format!("{apps} apps: launch, ezswap / APA");
        let says = Claim::new("9", what, None, "x", tolerance);
        claims.push(claim(apps, says, &|arms| arms.part("ezswap", "APA", launch_ms)));
    }
    let anonymous = |arms: &Arms| arms.of("zswap", |run| counted(run, |mark| mark.out_pages));
    for (apps, paper) in [(8, 4050.0 / 51_408.0), (10, 8085.0 / 51_408.0)] {
        let what = format!("anonymous pages evicted, {apps} apps / 14");
        let says = Claim::new("9", what, paper, "x", Tolerance::Factor { factor: 2.0 });
        claims.push(claim(apps, says, &|arms| Some(anonymous(arms)? / anonymous(with(14)?)?)));
    }
    let says = Claim::new(
        "9",
        "16 apps, zswap: pages of files for each anonymous one",
        34.0,
        "x",
        Tolerance::Factor { factor: 2.0 },
    );
    claims.push(claim(16, says, &|arms| {
        Some(arms.of("zswap", |run| counted(run, |mark| mark.out_file_pages))? / anonymous(arms)?)
    }));
    let charts = NAMES.map(|arm| {
        let rows = all.iter().filter_map(|(apps, arms)| {
            Some((format!("{apps} apps"), arms.part(arm, "zswap", launch_ms)?))
        });
        bars(&format!("launch with {arm}, as a part of zswap's"), "x", rows)
    });
    Ok(Found { claims, charts: charts.into(), ..Found::default() })
}
