//! Measurements as plain text, at most 100 columns wide.

use clew_report::aligned;

use super::measured::{Costs, Measured};

/// A table for each benchmark, one line a measurement, and what the columns mean.
pub fn table(measured: &[Measured]) -> String {
    let mut text = String::new();
    for part in measured.chunk_by(|a, b| a.bench == b.bench) {
        text += &match part[0].bench.as_str() {
            "sensor" => of_the_sensor(part),
            "donors" => of_donors(part),
            "lottery" => with_spread(
                part,
                nanoseconds,
                "ns; lru: the same lists, of which there is only one\n",
            ),
            "admission" => with_spread(part, nanoseconds, "ns a page\n"),
            "mount" => with_spread(part, microseconds, "us; in-a-row: a MiB\n"),
            "density" => of_density(part),
            bench => one_bench(bench, part),
        };
        text.push('\n');
    }
    text +=
        "ratio: Clew / peer at p50, smaller is better; density: compression ratio, Clew / peer\n";
    text
}

fn one_bench(bench: &str, measured: &[Measured]) -> String {
    let header = [bench, "clew p50", "p99", "peer", "peer p50", "p99", "ratio", "density"];
    let header = header.map(String::from);
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|one| {
            vec![
                one.case.clone(),
                time(one.clew.p50_us),
                time(one.clew.p99_us),
                one.peer.name.clone(),
                time(one.peer.costs.p50_us),
                time(one.peer.costs.p99_us),
                format!("{:.2}", one.ratio),
                compression(&one.clew, &one.peer.costs),
            ]
        })
        .collect();
    aligned(&header, &rows, 1)
}

/// What was learned, and what it cost.
fn of_the_sensor(measured: &[Measured]) -> String {
    let header =
        ["sensor", "relaunch p50", "worst", "peer", "peer p50", "coverage", "accuracy", "touches"]
            .map(String::from);
    let more = |one: &Measured, name: &str| one.clew.more.get(name).copied().unwrap_or_default();
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|one| {
            vec![
                one.case.clone(),
                time(one.clew.p50_us),
                time(one.clew.max_us),
                one.peer.name.clone(),
                time(one.peer.costs.p50_us),
                format!("{:.0} %", more(one, "coverage_pct")),
                format!("{:.0} %", more(one, "accuracy_pct")),
                format!("{:.0}", more(one, "touches")),
            ]
        })
        .collect();
    let note = "coverage: of what a relaunch used, the share that was held for hot before it;\n\
                accuracy: of what was held for hot, the share that was used; touches: of samples\n";
    aligned(&header, &rows, 1) + note
}

/// What a page costs, and what that makes in Mbit/s.
fn of_donors(measured: &[Measured]) -> String {
    let header =
        ["donors", "clew p50", "spread", "Mbit/s", "peer", "peer p50", "spread", "Mbit/s", "ratio"]
            .map(String::from);
    let spread = |costs: &Costs| format!("{:.1}-{:.1}", costs.min_us, costs.max_us);
    let mbit = |costs: &Costs| {
        costs.more.get("mbit_per_second").map_or("-".to_string(), |mbit| format!("{mbit:.0}"))
    };
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|one| {
            let peer = &one.peer.costs;
            vec![
                one.case.clone(),
                time(one.clew.p50_us),
                spread(&one.clew),
                mbit(&one.clew),
                one.peer.name.clone(),
                time(peer.p50_us),
                spread(peer),
                mbit(peer),
                format!("{:.2}", one.ratio),
            ]
        })
        .collect();
    let delay = measured.iter().find_map(|one| one.clew.more.get("delay_us"));
    let delay = delay.map_or(String::new(), |us| format!("; late: {us:.0} us each way"));
    aligned(&header, &rows, 1) + &format!("a 4 KiB page each, or one read of it{delay}\n")
}

/// Medians, tails and the spread of both sides, in a unit that the note names.
fn with_spread(measured: &[Measured], number: fn(f64) -> String, note: &str) -> String {
    let bench = &measured[0].bench;
    let header =
        [bench.as_str(), "clew p50", "p99", "spread", "peer", "peer p50", "p99", "spread", "ratio"]
            .map(String::from);
    let spread = |costs: &Costs| format!("{}-{}", number(costs.min_us), number(costs.max_us));
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|one| {
            let (clew, peer) = (&one.clew, &one.peer.costs);
            vec![
                one.case.clone(),
                number(clew.p50_us),
                number(clew.p99_us),
                spread(clew),
                one.peer.name.clone(),
                number(peer.p50_us),
                number(peer.p99_us),
                spread(peer),
                format!("{:.2}", one.ratio),
            ]
        })
        .collect();
    aligned(&header, &rows, 1) + note
}

fn nanoseconds(us: f64) -> String {
    format!("{:.1}", us * 1e3)
}

fn microseconds(us: f64) -> String {
    format!("{us:.1}")
}

/// Pages a MiB of each pool, and what storing one of them took.
fn of_density(measured: &[Measured]) -> String {
    let header = ["density", "pages/MiB", "store", "peer", "pages/MiB", "store", "more pages"]
        .map(String::from);
    let held = |costs: &Costs| costs.more.get("pages_per_mib").copied().unwrap_or_default();
    let rows: Vec<Vec<String>> = measured
        .iter()
        .map(|one| {
            let (clew, peer) = (&one.clew, &one.peer.costs);
            vec![
                one.case.clone(),
                format!("{:.0}", held(clew)),
                time(clew.p50_us),
                one.peer.name.clone(),
                format!("{:.0}", held(peer)),
                time(peer.p50_us),
                format!("{:.2}", held(clew) / held(peer)),
            ]
        })
        .collect();
    let note = "pages/MiB: of all that the pool takes; more pages: Clew / peer, larger is better\n";
    aligned(&header, &rows, 1) + note
}

fn compression(clew: &Costs, peer: &Costs) -> String {
    let of = |costs: &Costs| costs.more.get("compression_ratio").copied();
    match (of(clew), of(peer)) {
        (Some(clew), Some(peer)) => format!("{clew:.2}/{peer:.2}"),
        _ => "-".to_string(),
    }
}

fn time(us: f64) -> String {
    match us {
        us if us < 99.95 => format!("{us:.1} us"),
        us if us < 9_950.0 => format!("{us:.0} us"),
        us => format!("{:.0} ms", us / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_a_terminal() {
        let costs = Costs { p50_us: 123_456.0, p99_us: 5_321.4, ..Costs::default() };
        let costs = costs.with("compression_ratio", 2.511);
        let peer = ("kernel-zram-willneed", costs.clone());
        let one = Measured::of("restore", "clustered-overlapped", "all pages", costs, peer);
        let text = table(&[one]);
        assert!(text.contains("123 ms") && text.contains("1.00"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    }

    #[test]
    fn spreads_fit_a_terminal_too() {
        let costs = Costs::of(&[123.456, 54_321.9]).with("pages_per_mib", 812.4);
        for (bench, case, peer) in [
            ("mount", "hit-128KiB", "disk O_DIRECT"),
            ("admission", "mobile-2019", "lzo"),
            ("lottery", "evict-10^7", "lru"),
            ("density", "mobile-2019-lzo-blocks-16", "z3fold"),
        ] {
            let one = Measured::of(bench, case, "one", costs.clone(), (peer, costs.clone()));
            let text = table(&[one]);
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
            assert!(text.contains(if bench == "density" { "812" } else { "1.00" }), "{text}");
        }
    }
}
