//! A comparison as rows of text, as JSON, and as one page that opens offline.

mod page;
mod svg;

use clew_core::ByteSize;

use crate::compare::Comparison;
use crate::error::LabError;
use crate::replay::Outcome;

pub use page::page;

/// The head of [`rows`].
pub const HEADER: [&str; 13] = [
    "SCHEME", "P50", "P95", "WORST", "N", "COLD", "CPU MS", "RATIO", "FAULTS", "HITS", "ACCURACY",
    "AMPLIF.", "PEAK",
];

fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn optional(value: Option<f64>) -> String {
    value.map_or("-".to_string(), number)
}

fn percent(part: Option<f64>) -> String {
    part.map_or("-".to_string(), |part| format!("{:.1} %", part * 100.0))
}

fn hits(outcome: &Outcome) -> Option<f64> {
    let old = outcome.hits + outcome.faults;
    (old > 0).then(|| outcome.hits as f64 / old as f64)
}

/// One row a scheme; times in milliseconds.
pub fn rows(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    outcomes
        .iter()
        .map(|o| {
            let relaunch = o.relaunch_ms;
            vec![
                if o.missing.is_empty() { o.scheme.clone() } else { format!("{}*", o.scheme) },
                number(relaunch.p50),
                number(relaunch.p95),
                number(relaunch.max),
                relaunch.n.to_string(),
                format!("{}/{}", o.cold_launches, o.kills),
                number(o.cpu_ms),
                optional(o.ratio),
                o.faults.to_string(),
                percent(hits(o)),
                percent(o.prefetch.accuracy),
                optional(o.read_amplification),
                ByteSize(o.peak_bytes).to_string(),
            ]
        })
        .collect()
}

/// What the table is about, and what its marks mean.
pub fn notes(comparison: &Comparison) -> Vec<String> {
    let Comparison { trace, source, budget_bytes, footprint_bytes, outcomes } = comparison;
    let mut notes = vec![format!(
        "{trace} ({source}): {} of memory for {} of pages",
        ByteSize(*budget_bytes),
        ByteSize(*footprint_bytes)
    )];
    if let Some(first) = outcomes.first() {
        let sizes = match first.pages.as_str() {
            "real" => "real codecs on the trace's bytes".to_string(),
            other => format!("no contents: sizes by {other}"),
        };
        notes.push(format!("time {} (costs: {}); {sizes}", first.time, first.costs));
        notes.push(format!(
            "relaunches in ms, of which the programs themselves take {} at the median; COLD: \
             launched cold / ended; HITS: of accesses to pages that held something",
            number(first.own_ms.p50)
        ));
        let sets = &first.hot_sets;
        if sets.similarity.is_some() {
            notes.push(format!(
                "of what a relaunch uses, the one before used {}; of what that one used, {} is used \
                 again (Ariadne, figure 5)",
                percent(sets.similarity),
                percent(sets.reuse)
            ));
        }
        if let Some(bound) = first.belady {
            notes.push(format!(
                "no scheme brings back fewer than {} pages at a ratio of {} (Belady)",
                bound.pages, bound.ratio
            ));
        }
    }
    for outcome in outcomes.iter().filter(|outcome| outcome.hot_sets.coverage.is_some()) {
        notes.push(format!(
            "hot list of {}: coverage {}, accuracy {} (Ariadne, figure 14)",
            outcome.scheme,
            percent(outcome.hot_sets.coverage),
            percent(outcome.hot_sets.accuracy)
        ));
    }
    for outcome in outcomes.iter().filter(|outcome| !outcome.missing.is_empty()) {
        notes.push(format!("* {} lacks: {}", outcome.scheme, outcome.missing.join("; ")));
    }
    let refused: u64 = outcomes.iter().map(|outcome| outcome.unseen_writes).sum();
    if refused > 0 {
        notes.push(format!(
            "{refused} writes that the trace's source could not see were played when their contents \
             were told"
        ));
    }
    notes
}

/// The outcomes as JSON: an array, one object a scheme.
pub fn json(outcomes: &[Outcome]) -> Result<String, LabError> {
    let text = serde_json::to_string_pretty(outcomes);
    let text = text.map_err(|error| LabError::Setting {
        what: "writing JSON".to_string(),
        why: error.to_string(),
    })?;
    Ok(text + "\n")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::replay::{Belady, Relaunches};

    /// Two schemes, one of them partial.
    pub fn example() -> Comparison {
        let outcome = |scheme: &str, p50: f64| -> Outcome {
            let mut outcome: Outcome = serde_json::from_str(include_str!("empty.json"))
                .expect("an outcome without anything");
            outcome.scheme = scheme.to_string();
            outcome.relaunch_ms = Relaunches { p50, p95: p50 * 2.0, max: p50 * 3.0, n: 7 };
            outcome.cpu_ms = 1234.5;
            outcome.compress_ms = 1000.0;
            outcome.ratio = Some(2.5);
            outcome.peak.resident_bytes = 20 << 20;
            outcome.peak.pool_bytes = 4 << 20;
            outcome.peak_bytes = 24 << 20;
            outcome.hot_sets.similarity = Some(0.7);
            outcome.hot_sets.reuse = Some(0.98);
            outcome.belady = Some(Belady { pages: 4711, ratio: 2.5 });
            outcome
        };
        let mut outcomes = vec![outcome("zram", 30.0), outcome("<mine>", 12.0)];
        outcomes[1].missing = vec!["flash".to_string()];
        (outcomes[1].hot_sets.coverage, outcomes[1].hot_sets.accuracy) = (Some(0.71), Some(0.92));
        Comparison {
            trace: "a & b.clew".to_string(),
            source: "generated by a test, seed 7".to_string(),
            budget_bytes: 24 << 20,
            footprint_bytes: 40 << 20,
            outcomes,
        }
    }

    #[test]
    fn a_row_a_scheme_with_all_columns() {
        let comparison = example();
        let rows = rows(&comparison.outcomes);
        assert!(rows.iter().all(|row| row.len() == HEADER.len()), "{rows:?}");
        assert_eq!(rows[0][..5], ["zram", "30.0", "60.0", "90.0", "7"]);
        assert_eq!((rows[1][0].as_str(), rows[1][7].as_str()), ("<mine>*", "2.50"));
        let notes = notes(&comparison).join("\n");
        assert!(notes.contains("<mine> lacks: flash") && notes.contains("4711"), "{notes}");
        assert!(notes.contains("used 70.0 %; of what that one used, 98.0 %"), "{notes}");
        assert!(notes.contains("hot list of <mine>: coverage 71.0 %, accuracy 92.0 %"), "{notes}");
        assert!(!notes.contains("hot list of zram"), "{notes}");
    }

    #[test]
    fn json_is_read_back() {
        let comparison = example();
        let text = json(&comparison.outcomes).expect("JSON");
        let back: Vec<Outcome> = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back, comparison.outcomes);
    }
}
