//! The page of the full comparison: who wins, when, and why. One file that opens offline, in light
//! and dark.

use std::fmt::Write;

use super::page::filled;
use super::svg::escaped;
use super::{COLOURS, breakdowns, curves, interval, mib, ms};
use crate::arms::ArmKind;
use crate::bootstrap::{COVERAGE, Estimate};
use crate::crossing::Crossing;
use crate::full::{Comparison, FullResult, Group, PointArm, percent};

const TEMPLATE: &str = include_str!("full_template.htm");

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

/// The whole page.
pub fn full_page(result: &FullResult) -> String {
    let base = result.base;
    let settings = &result.settings;
    let mut facts = format!(
        "{} programs · {} relaunches an arm and point · Linux {} · {} CPUs · seed {} · {:.0} min",
        result.programs.len(),
        settings.relaunches,
        result.host.kernel,
        result.host.cpus,
        result.seed,
        result.duration_seconds / 60.0
    );
    if let Some(commit) = &result.commit {
        let _ = write!(facts, " · {commit}");
    }
    let (verdict, lost) = verdict(result);
    let total = result.points.first().map_or(0, |point| point.total_bytes);
    let values = [
        ("colours", COLOURS.to_string()),
        // Names of arms stay whole where lines break.
        ("verdict", escaped(&verdict).replace('-', "\u{2011}")),
        ("verdict_class", if lost { " bad" } else { "" }.to_string()),
        ("facts", escaped(&facts)),
        ("cards", cards(result)),
        ("legend", legend(result)),
        ("over_totals", curves::over_totals(result)),
        ("over_similarities", curves::over_similarities(result)),
        (
            "base",
            format!(
                "{} % of the memory, {} % alike",
                percent(base.total_part),
                percent(base.similarity)
            ),
        ),
        ("times", breakdowns::times(result)),
        ("pages", breakdowns::pages(result)),
        ("kept", breakdowns::kept(result)),
        ("classes", classes(result)),
        ("ablations", ablations(result)),
        ("equal_memory", equal_memory(result)),
        ("program_head", program_head(result)),
        ("program_rows", program_rows(result)),
        ("label_rows", label_rows(result)),
        ("point_tables", point_tables(result)),
        ("skipped", skipped(result)),
        ("cannot", cannot(result)),
        ("answers", result.answers().to_string()),
        ("wrong", result.wrong_answers().to_string()),
        ("total", mib(total)),
        ("headroom", mib(settings.headroom_bytes)),
        ("pause", settings.pause_ms.to_string()),
        ("rounds", settings.rounds.to_string()),
        ("updates", percent(settings.updates).to_string()),
        ("coverage", COVERAGE.to_string()),
    ];
    filled(TEMPLATE, &values)
}

/// The peers that ran at the base point: the kernel with and without hints.
fn peers(result: &FullResult) -> Vec<ArmKind> {
    let peers = [ArmKind::KernelZram, ArmKind::KernelZramHint];
    peers.into_iter().filter(|&peer| result.at(result.base, peer).is_some()).collect()
}

/// The comparison of our arm with the peer that is harder to beat: the one with the larger ratio.
fn hardest(result: &FullResult, group: Group) -> Option<&Comparison> {
    let ours = result.ours()?;
    peers(result)
        .into_iter()
        .filter_map(|peer| result.comparison(result.base, ours, peer, group))
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

/// The result in a sentence, and whether it is bad news.
fn verdict(result: &FullResult) -> (String, bool) {
    let wrong = result.wrong_answers();
    if wrong > 0 {
        return (format!("{wrong} answers were wrong: the times mean nothing"), true);
    }
    let Some(ours) = result.ours() else {
        return ("There is nothing to compare: no arm of Clew ran at the base point".into(), true);
    };
    let parts: Vec<(Group, &Comparison)> = [Group::Clustered, Group::Scattered]
        .into_iter()
        .filter_map(|group| Some((group, hardest(result, group)?)))
        .collect();
    if parts.is_empty() {
        return ("There is nothing to compare: no arm of the kernel's zram ran".into(), true);
    }
    let said: Vec<String> = parts
        .iter()
        .map(|(group, one)| format!("{} {} on {group} heaps", factor(&one.p50), one.peer))
        .collect();
    let lost = parts.iter().any(|(_, one)| one.p50.low > 1.0);
    (format!("{ours} is {}", said.join(" and ")), lost)
}

/// One figure that has a goal.
fn card(goal: &Goal, estimate: Option<Estimate>, detail: &str) -> String {
    let (figure, class, range) = match estimate {
        None => ("–".to_string(), "", "not measured".to_string()),
        Some(one) => {
            let reached = match goal.less {
                true => one.value <= goal.bound,
                false => one.value >= goal.bound,
            };
            let worse = if goal.less { one.low > 1.0 } else { one.high < 1.0 };
            let class = if reached {
                "good"
            } else if worse {
                "bad"
            } else {
                ""
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
         <p class=\"note\">{}{detail}<br>{range}<br>goal: {word} {}</p></div>",
        goal.title, goal.unit, goal.bound
    )
}

fn cards(result: &FullResult) -> String {
    let mut text = String::new();
    for (goal, group) in [(CLUSTERED, Group::Clustered), (SCATTERED, Group::Scattered)] {
        let found = hardest(result, group);
        let detail = found
            .map_or(String::new(), |one| format!(" / {}; p95 {}", one.peer, interval(&one.p95)));
        text += &card(&goal, found.map(|one| one.p50), &detail);
    }
    let all = hardest(result, Group::All);
    let against = all.map_or(String::new(), |one| format!(" / {}", one.peer));
    text += &card(&CPU, all.and_then(|one| one.swapping_cpu), &against);
    let exact = |value: f64| Estimate { value, low: value, high: value };
    text += &card(&RATIO, all.and_then(|one| one.ratio).map(exact), &against);
    let equal = result.ours().and_then(|ours| {
        result.memory_for_equal_p95.iter().find(|one| {
            one.arm == ours
                && Some(one.peer) == all.map(|all| all.peer)
                && one.group == Group::All
                && one.peer_total_part == result.base.total_part
        })
    });
    let detail = match equal.map(|one| one.needed_part) {
        Some(Crossing::AtMost(_)) => format!("{against}, or less"),
        Some(Crossing::MoreThan(_)) => format!("{against}, or more"),
        _ => against,
    };
    text += &card(&MEMORY, equal.map(|one| one.ratio), &detail);
    text
}

/// Arms that ran anywhere, in the order of the first point that has them.
fn arms(result: &FullResult) -> Vec<ArmKind> {
    let mut arms: Vec<ArmKind> = Vec::new();
    for arm in result.points.iter().flat_map(|point| &point.arms) {
        if !arms.contains(&arm.name) {
            arms.push(arm.name);
        }
    }
    arms
}

fn legend(result: &FullResult) -> String {
    arms(result)
        .into_iter()
        .filter(|arm| !matches!(arm, ArmKind::Without(_)))
        .map(|arm| {
            format!(
                "<span class=\"key\"><i style=\"background: var(--{})\"></i>{arm}</span>",
                super::class(arm)
            )
        })
        .collect()
}

/// Hot, warm and cold pages of the arms whose schemes know them.
fn classes(result: &FullResult) -> String {
    let mut rows = String::new();
    for arm in base_arms(result) {
        let Some(classes) = arm.kept.classes else { continue };
        let cells = [
            classes.hot_resident_bytes,
            classes.warm_resident_bytes,
            classes.cold_resident_bytes,
            classes.hot_stored_bytes,
            classes.warm_stored_bytes,
            classes.cold_stored_bytes,
        ];
        let cells: String = cells.iter().map(|&bytes| format!("<td>{}</td>", mib(bytes))).collect();
        let _ = write!(rows, "<tr><td>{}</td>{cells}</tr>", arm.name);
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>MiB, uncompressed</th>\
         <th>hot in memory</th><th>warm</th><th>cold</th><th>hot stored</th><th>warm</th>\
         <th>cold</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

/// What each mechanism is worth: the arm without it / the whole of Ariadne.
fn ablations(result: &FullResult) -> String {
    let whole = result.at(result.base, ArmKind::ClewAriadne);
    let base_arms = result.points.first().map(|point| point.arms.as_slice()).unwrap_or_default();
    let mut rows = String::new();
    for arm in base_arms {
        let (ArmKind::Without(_), Some(whole)) = (arm.name, whole) else { continue };
        let cell = |group: Group| {
            let of = |arm: &PointArm| {
                let found = arm.groups.iter().find(|one| one.group == group);
                found.map(|one| (one.p50_ms.value, one.p95_ms.value))
            };
            of(arm).zip(of(whole)).map_or("–".to_string(), |(without, with)| {
                format!(
                    "{} → {} ({:.2}×), p95 {:.2}×",
                    ms(with.0),
                    ms(without.0),
                    without.0 / with.0,
                    without.1 / with.1
                )
            })
        };
        let _ = write!(
            rows,
            "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            arm.name,
            escaped(&arm.scheme),
            cell(Group::Clustered),
            cell(Group::Scattered),
            arm.ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}"))
        );
    }
    if rows.is_empty() {
        return "<p class=\"note\">No ablation ran (--ablations).</p>".to_string();
    }
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>arm</th><th class=\"text\">scheme</th>\
         <th>clustered p50, with → without</th><th>scattered</th><th>ratio</th></tr></thead>\
         <tbody>{rows}</tbody></table></div>"
    )
}

/// A row a peer and group, a column a total of the peer.
fn equal_memory(result: &FullResult) -> String {
    let Some(ours) = result.ours() else { return String::new() };
    let mut totals = result.settings.total_parts.clone();
    totals.sort_by(f64::total_cmp);
    let mut rows = String::new();
    for (peer, group) in peers(result).into_iter().flat_map(|peer| Group::EACH.map(|g| (peer, g))) {
        let mut cells = String::new();
        let mut found = false;
        for &total in &totals {
            let one = result.memory_for_equal_p95.iter().find(|one| {
                (one.arm, one.peer, one.group) == (ours, peer, group)
                    && one.peer_total_part == total
            });
            let cell = one.map(|one| {
                let needed = match one.needed_part {
                    Crossing::At(part) => format!("{:.0} %", percent(part)),
                    Crossing::AtMost(part) => format!("≤ {:.0} %", percent(part)),
                    Crossing::MoreThan(part) => format!("> {:.0} %", percent(part)),
                };
                format!("{needed} <i>{}</i>", interval(&one.ratio))
            });
            found |= cell.is_some();
            let _ = write!(cells, "<td>{}</td>", cell.unwrap_or_else(|| "–".to_string()));
        }
        if found {
            let _ = write!(rows, "<tr><td>{peer}</td><td class=\"text\">{group}</td>{cells}</tr>");
        }
    }
    if rows.is_empty() {
        return "<p class=\"note\">At least two totals are needed for this.</p>".to_string();
    }
    let head: String =
        totals.iter().map(|&total| format!("<th>{:.0} %</th>", percent(total))).collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr><th>the peer has</th>\
         <th class=\"text\">programs</th>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

fn base_arms(result: &FullResult) -> &[PointArm] {
    result.points.first().map(|point| point.arms.as_slice()).unwrap_or_default()
}

fn program_head(result: &FullResult) -> String {
    base_arms(result).iter().map(|arm| format!("<th>{}</th>", arm.name)).collect()
}

fn program_rows(result: &FullResult) -> String {
    let mut rows = String::new();
    for program in &result.programs {
        let _ =
            write!(rows, "<tr><td>{}</td><td class=\"text\">{}</td>", program.name, program.layout);
        for arm in base_arms(result) {
            let one = arm.per_program.iter().find(|one| one.name == program.name);
            let cell = one.map_or("–".to_string(), |one| {
                format!("{} / {}", ms(one.relaunch_ms.p50), ms(one.relaunch_ms.p95))
            });
            let _ = write!(rows, "<td>{cell}</td>");
        }
        rows += "</tr>";
    }
    rows
}

fn label_rows(result: &FullResult) -> String {
    let mut rows = String::new();
    for program in &result.programs {
        let label = result.labels.iter().find(|label| label.program == program.name);
        let cells = label.map_or("<td>–</td>".repeat(5), |label| {
            format!(
                "<td>{}</td><td>{:.0}</td><td>{:.0} %</td><td>{:.1}</td><td>{:.0} %</td>",
                mib(label.data_bytes),
                label.touched_pages,
                label.adjacent_share * 100.0,
                label.run_pages,
                label.similarity * 100.0
            )
        });
        let _ = write!(
            rows,
            "<tr><td>{}</td><td class=\"text\">{}</td>{cells}<td class=\"text wrap\">{}</td></tr>",
            program.name,
            program.layout,
            escaped(&program.description)
        );
    }
    rows
}

fn point_tables(result: &FullResult) -> String {
    let mut text = String::new();
    for point in result.points.iter().filter(|point| !point.arms.is_empty()) {
        let mut rows = String::new();
        for arm in &point.arms {
            let of = |group: Group| {
                let found = arm.groups.iter().find(|one| one.group == group);
                found.map_or("<td>–</td><td>–</td>".to_string(), |one| {
                    let cell = |one: &Estimate| {
                        format!(
                            "<td>{} <i>{}–{}</i></td>",
                            ms(one.value),
                            ms(one.low),
                            ms(one.high)
                        )
                    };
                    cell(&one.p50_ms) + &cell(&one.p95_ms)
                })
            };
            let class = if arm.wrong_answers > 0 { " class=\"bad\"" } else { "" };
            let _ = write!(
                rows,
                "<tr><td>{}</td>{}{}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
                 <td{class}>{}</td></tr>",
                arm.name,
                of(Group::Clustered),
                of(Group::Scattered),
                arm.relaunch_ms.n,
                arm.swapping_cpu_seconds
                    .map_or("–".to_string(), |seconds| format!("{seconds:.1}")),
                mib(arm.total_bytes_peak),
                arm.ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}")),
                arm.faults,
                arm.wrong_answers
            );
        }
        let _ = write!(
            text,
            "<h3>{} % of the memory ({} MiB), {} % alike</h3><div class=\"scroll\"><table>\
             <thead><tr><th>arm</th><th>clustered p50 ms</th><th>p95 ms</th><th>scattered p50 ms</th>\
             <th>p95 ms</th><th>n</th><th>swap CPU s</th><th>peak MiB</th><th>ratio</th>\
             <th>faults</th><th>wrong</th></tr></thead><tbody>{rows}</tbody></table></div>",
            percent(point.point.total_part),
            mib(point.total_bytes),
            percent(point.point.similarity)
        );
    }
    text
}

fn skipped(result: &FullResult) -> String {
    if result.skipped.is_empty() {
        return String::new();
    }
    let items: String = result
        .skipped
        .iter()
        .map(|one| format!("<li>{}: {}</li>", escaped(&one.name), escaped(&one.reason)))
        .collect();
    format!("<div class=\"card\"><h3>Did not run</h3><ul>{items}</ul></div>")
}

fn cannot(result: &FullResult) -> String {
    if result.kernel_cannot.is_empty() {
        return String::new();
    }
    format!(
        "<li>This kernel cannot, so no arm stands for it: {}.</li>",
        escaped(&result.kernel_cannot.join("; "))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::full::derive::tests::example;

    #[test]
    fn opens_offline_and_shows_everything() {
        let result = example();
        let text = full_page(&result);
        assert!(!text.contains("{{") && !text.contains("NaN") && !text.contains("inf"));
        let outside = text.replace("http://www.w3.org/2000/svg", "");
        for forbidden in ["http:", "https:", "src=", "href=", "@import", "url("] {
            assert!(!outside.contains(forbidden), "the page refers to {forbidden}");
        }
        for arm in arms(&result) {
            assert!(text.contains(&format!("<td>{arm}</td>")), "{arm} is missing");
        }
        // p50 and p95 of two groups, over totals and similarities; two breakdowns of two groups;
        // what was kept.
        assert_eq!(text.matches("<svg").count(), 2 * 4 + 2 * 2 + 1);
        assert!(text.contains("no &lt;userfaultfd&gt; here"));
    }

    /// Each figure of the result is on the page, and follows when the result is another one.
    #[test]
    fn every_figure_comes_from_the_result() {
        let mut result = example();
        let (base, clew, kernel) = (result.base, ArmKind::Clew, ArmKind::KernelZram);
        let mark = |result: &mut FullResult, by: f64| {
            for one in result.comparisons.iter_mut().filter(|one| one.point == base) {
                if (one.arm, one.group) == (clew, Group::Clustered) {
                    one.p50 = Estimate { value: 0.31 + by, low: 0.29 + by, high: 0.33 + by };
                    one.p95 = Estimate { value: 0.41 + by, low: 0.39 + by, high: 0.43 + by };
                }
            }
            let arms = &mut result.points[0].arms;
            let arm = arms.iter_mut().find(|arm| arm.name == kernel).expect("it ran");
            arm.faults = 987_654 + (by * 100.0) as u64;
            arm.groups[1].p95_ms.value = 777.0 + by * 100.0;
            arm.groups[1].breakdown.relaunch_ms = 555.0 + by * 100.0;
            arm.groups[1].breakdown.faulted_pages = 4_321.0 + by * 100.0;
            arm.kept.pool_bytes = (222 + (by * 100.0) as u64) << 20;
            result.memory_for_equal_p95[0].ratio.value = 0.61 + by;
            result.labels[0].run_pages = 6.4 + by * 10.0;
        };
        for (by, figures) in [
            (0.0, ["0.31×", "0.29 to 0.33", "0.41 (0.39-0.43)", "987654", "777", "555"]),
            (0.2, ["0.51×", "0.49 to 0.53", "0.61 (0.59-0.63)", "987674", "797", "575"]),
        ] {
            mark(&mut result, by);
            let ours = result.memory_for_equal_p95[0].arm;
            let text = full_page(&result);
            for figure in figures {
                assert!(text.contains(figure), "{figure} is not on the page");
            }
            let more = if by == 0.0 {
                ["4321 faults", "in 222", "6.4"]
            } else {
                ["4341 faults", "in 242", "8.4"]
            };
            for figure in more {
                assert!(text.contains(figure), "{figure} is not on the page");
            }
            assert!(ours != clew || text.contains(&format!("{:.2} (", 0.61 + by)));
        }
    }

    #[test]
    fn the_verdict_is_about_the_harder_peer_and_admits_defeat() {
        let mut result = example();
        let (sentence, lost) = verdict(&result);
        // 2 / 3.5: the kernel with hints is the harder one.
        assert!(
            sentence.contains("1.8 times faster than kernel-zram+hint on clustered"),
            "{sentence}"
        );
        assert!(!lost);
        for one in &mut result.comparisons {
            one.p50 = Estimate { value: 1.6, low: 1.4, high: 1.8 };
        }
        let (sentence, lost) = verdict(&result);
        assert!(sentence.contains("1.6 times slower than") && lost, "{sentence}");
        for one in &mut result.comparisons {
            one.p50 = Estimate { value: 1.1, low: 0.9, high: 1.2 };
        }
        assert!(verdict(&result).0.contains("as fast as") && !verdict(&result).1);
        result.points[0].arms[1].wrong_answers = 3;
        assert!(full_page(&result).contains("3 answers were wrong"));
    }

    #[test]
    fn a_part_of_the_arms_is_enough() {
        let mut result = example();
        result.points.truncate(1);
        result.points[0].arms.truncate(2);
        result.comparisons.clear();
        result.memory_for_equal_p95.clear();
        result.labels.clear();
        let text = full_page(&result);
        assert!(text.contains("nothing to compare") && !text.contains("NaN"));
    }
}
