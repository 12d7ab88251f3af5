//! Who wins, and what is aimed at.

use crate::html::escaped;
use crate::percent;
use crate::result::{Arm, Comparison, Group, Results, Role};
use crate::shown::{interval, ratio};
use crate::statistics::{Crossing, Estimate};

/// Whom Clew has to beat: the kernel's zram with and without hints.
const PEERS: [&str; 2] = ["kernel-zram", "kernel-zram+hint"];

/// The peers that ran at the base point.
pub fn peers(results: &Results) -> impl Iterator<Item = &'static str> {
    PEERS.into_iter().filter(|peer| results.at(results.base(), peer).is_some())
}

/// The arm that stands for Clew: the first of these that ran at the base point.
pub fn ours(results: &Results) -> Option<&Arm> {
    let ours = ["clew", "clew-ariadne", "clew-zram"];
    ours.into_iter().find_map(|arm| results.at(results.base(), arm))
}

/// The comparison of our arm with the peer that is harder to beat: the one with the larger ratio.
pub fn hardest(results: &Results, group: Group) -> Option<&Comparison> {
    let ours = ours(results)?;
    peers(results)
        .filter_map(|peer| results.comparison(results.base(), &ours.name, peer, group))
        .max_by(|one, other| one.p50.value.total_cmp(&other.p50.value))
}

/// A factor as people say it, from a ratio of times.
fn factor(estimate: &Estimate) -> String {
    match estimate.value {
        _ if estimate.low <= 1.0 && 1.0 <= estimate.high => "as fast as".to_string(),
        ratio if ratio < 1.0 => format!("{:.1} times faster than", 1.0 / ratio),
        ratio => format!("{ratio:.1} times slower than"),
    }
}

/// The result in a sentence, and whether it is bad news. A replay has none: its schemes are peers.
pub fn verdict(results: &Results) -> Option<(String, bool)> {
    let wrong = results.wrong_answers();
    if wrong > 0 {
        return Some((format!("{wrong} answers were wrong: the times mean nothing"), true));
    }
    if results.base_arms().iter().any(|arm| arm.role == Role::Scheme) {
        return None;
    }
    let nothing =
        |who: &str| Some((format!("There is nothing to compare: {who} did not run"), true));
    let Some(ours) = ours(results) else { return nothing("clew") };
    let parts: Vec<(Group, &Comparison)> = Group::OF_LAYOUTS
        .into_iter()
        .filter_map(|group| Some((group, hardest(results, group)?)))
        .collect();
    if parts.is_empty() {
        return nothing("kernel-zram");
    }
    let said: Vec<String> = parts
        .iter()
        .map(|(group, one)| format!("{} {} on {group} heaps", factor(&one.p50), one.peer))
        .collect();
    let lost = parts.iter().any(|(_, one)| one.p50.low > 1.0);
    Some((format!("{} is {}, in equal memory", ours.name, said.join(" and ")), lost))
}

/// What is aimed at: relaunch time on clustered and on scattered programs, processor time, memory
/// for equal p95, all as parts of the peer's; and the compression ratio, as a multiple.
struct Goal {
    title: &'static str,
    unit: &'static str,
    /// The bound of the goal, and whether less is better.
    bound: f64,
    less: bool,
}

const CLUSTERED: Goal =
    Goal { title: "Clustered heaps", unit: "relaunch p50", bound: 0.5, less: true };
const SCATTERED: Goal =
    Goal { title: "Scattered heaps", unit: "relaunch p50", bound: 0.77, less: true };
const CPU: Goal = Goal { title: "Processor time", unit: "of swapping", bound: 0.85, less: true };
const RATIO: Goal = Goal { title: "Compression", unit: "ratio", bound: 1.2, less: false };
const MEMORY: Goal = Goal { title: "Memory", unit: "for equal p95", bound: 0.8, less: true };

/// One figure that has a goal.
fn card(goal: &Goal, estimate: Option<Estimate>, detail: &str) -> String {
    let (figure, class, range) = match estimate {
        None => ("-".to_string(), "", "not measured".to_string()),
        Some(one) => {
            let reached = match goal.less {
                true => one.value <= goal.bound,
                false => one.value >= goal.bound,
            };
            let worse = if goal.less { one.low > 1.0 } else { one.high < 1.0 };
            let class = match (reached, worse) {
                (true, _) => "good",
                (false, true) => "bad",
                _ => "",
            };
            let range = match one.low == one.high {
                true => String::new(),
                false => format!("{:.2} to {:.2}", one.low, one.high),
            };
            (format!("{:.2}×", one.value), class, range)
        }
    };
    let word = if goal.less { "at most" } else { "at least" };
    format!(
        "<div class=\"card\"><h3>{}</h3><p class=\"figure {class}\">{figure}</p>\
         <p class=\"note\">{}{}<br>{range}<br>goal: {word} {}</p></div>",
        goal.title,
        goal.unit,
        escaped(detail),
        goal.bound
    )
}

/// The figures that have goals; none where nothing was compared.
pub fn cards(results: &Results) -> String {
    if results.comparisons.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    for (goal, group) in [(CLUSTERED, Group::Clustered), (SCATTERED, Group::Scattered)] {
        let found = hardest(results, group);
        let detail = found.map_or(String::new(), |one| {
            format!(" / {}; p95 {}", one.peer, interval(&one.p95, ratio))
        });
        text += &card(&goal, found.map(|one| one.p50), &detail);
    }
    let all = hardest(results, Group::All);
    let against = all.map_or(String::new(), |one| format!(" / {}", one.peer));
    text += &card(&CPU, all.and_then(|one| one.swapping_cpu), &against);
    let exact = |value: f64| Estimate { value, low: value, high: value };
    text += &card(&RATIO, all.and_then(|one| one.ratio).map(exact), &against);
    let equal = all.and_then(|all| {
        results.memory_for_equal_p95.iter().find(|one| {
            (&one.arm, &one.peer, one.group) == (&all.arm, &all.peer, Group::All)
                && Some(one.peer_total_part) == results.base().total_part
        })
    });
    let detail = match equal.map(|one| one.needed_part) {
        Some(Crossing::AtMost(_)) => format!("{against}, or less"),
        Some(Crossing::MoreThan(_)) => format!("{against}, or more"),
        _ => against,
    };
    text + &card(&MEMORY, equal.map(|one| one.ratio), &detail)
}

/// A part of memory as it is known.
pub fn needed(crossing: Crossing) -> String {
    match crossing {
        Crossing::At(part) => format!("{:.0} %", percent(part)),
        Crossing::AtMost(part) => format!("at most {:.0} %", percent(part)),
        Crossing::MoreThan(part) => format!("more than {:.0} %", percent(part)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example::{demo, replay};

    #[test]
    fn the_verdict_is_about_the_harder_peer_and_admits_defeat() {
        let mut results = demo();
        let said = |results: &Results| verdict(results).expect("a verdict");
        // Twice and four times as fast: the one with hints is harder.
        let (sentence, lost) = said(&results);
        assert!(
            sentence.contains("2.0 times faster than kernel-zram+hint on clustered"),
            "{sentence}"
        );
        assert!(!lost);
        for one in &mut results.comparisons {
            one.p50 = Estimate { value: 1.6, low: 1.4, high: 1.8 };
        }
        let (sentence, lost) = said(&results);
        assert!(sentence.contains("1.6 times slower than") && lost, "{sentence}");
        for one in &mut results.comparisons {
            one.p50 = Estimate { value: 1.1, low: 0.9, high: 1.2 };
        }
        let (sentence, lost) = said(&results);
        assert!(sentence.contains("as fast as kernel-zram") && !lost, "{sentence}");
        results.points[0].arms[1].wrong_answers = 3;
        assert!(said(&results).0.contains("3 answers were wrong") && said(&results).1);
    }

    #[test]
    fn without_an_arm_or_a_peer_there_is_nothing_to_compare() {
        let mut results = demo();
        results.points[0].arms.retain(|arm| arm.role != Role::Clew);
        assert!(
            verdict(&results).expect("a verdict").0.contains("nothing to compare: clew did not")
        );
        let mut results = demo();
        results.comparisons.clear();
        let (sentence, bad) = verdict(&results).expect("a verdict");
        assert!(sentence.contains("kernel-zram did not run") && bad, "{sentence}");
        assert!(cards(&results).is_empty());
        assert_eq!(verdict(&replay()), None);
    }
}
