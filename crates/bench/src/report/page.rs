//! The page: one file that opens offline, in light and dark.

use std::fmt::Write;

use super::svg::escaped;
use super::{COLOURS, mib, ms, plots};
use crate::arms::ArmKind;
use crate::result::DemoResult;

const TEMPLATE: &str = include_str!("template.htm");

/// The whole page.
pub fn page(result: &DemoResult) -> String {
    let host = &result.host;
    let mut facts = format!(
        "{} programs in {} MiB · Linux {} · {} CPUs · seed {} · {:.0} s",
        result.programs.len(),
        mib(result.total_bytes),
        host.kernel,
        host.cpus,
        result.seed,
        result.duration_seconds
    );
    if let Some(commit) = &result.commit {
        let _ = write!(facts, " · {commit}");
    }
    let settings = &result.settings;
    let percent = |part: f64| format!("{:.0}", part * 100.0);
    let fraction = settings.total_fraction.map(|part| {
        format!(" ({} % of the most that the programs used in the dram arm)", percent(part))
    });
    let answers: u64 = result.arms.iter().map(|arm| arm.answers).sum();
    let lost = result.wrong_answers() > 0 || loses(result);
    let values = [
        ("colours", COLOURS.to_string()),
        ("verdict_class", if lost { " bad" } else { "" }.to_string()),
        ("verdict", escaped(&result.verdict())),
        ("facts", escaped(&facts)),
        ("overall", plots::overall(result)),
        ("skipped", skipped(result)),
        ("programs", programs(result)),
        ("legend", legend(result)),
        ("dots", plots::dots(result)),
        ("totals", plots::totals(result)),
        ("arm_rows", arm_rows(result)),
        ("program_rows", program_rows(result)),
        ("switches", settings.switches.to_string()),
        ("similarity", percent(settings.similarity)),
        ("updates", percent(settings.updates)),
        ("answers", answers.to_string()),
        ("total", mib(result.total_bytes)),
        ("fraction", fraction.unwrap_or_default()),
        ("headroom", mib(settings.headroom_bytes)),
        ("pause", settings.pause_ms.to_string()),
    ];
    filled(TEMPLATE, &values)
}

/// Puts each value in its `{{place}}`, in one pass: what a value contains is not looked at again.
pub fn filled(template: &str, values: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, behind) = after.split_once("}}").expect("the template closes its places");
        let value = values.iter().find(|(one, _)| *one == name);
        text += before;
        text += &value.unwrap_or_else(|| panic!("the template knows no place '{name}'")).1;
        rest = behind;
    }
    text + rest
}

/// Whether the kernel was faster.
fn loses(result: &DemoResult) -> bool {
    match (result.arm(ArmKind::Clew), result.arm(ArmKind::KernelZram)) {
        (Some(ours), Some(peer)) => ours.relaunch_ms.p50 > peer.relaunch_ms.p50 * 1.05,
        _ => false,
    }
}

fn legend(result: &DemoResult) -> String {
    result
        .arms
        .iter()
        .map(|arm| {
            format!(
                "<span class=\"key\"><i style=\"background: var(--{0})\"></i>{0}</span>",
                arm.name
            )
        })
        .collect()
}

fn skipped(result: &DemoResult) -> String {
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

fn programs(result: &DemoResult) -> String {
    result
        .programs
        .iter()
        .map(|program| {
            format!(
                "<div class=\"card\"><h3>{} <span>{}</span></h3>{}</div>",
                program.name,
                program.layout,
                plots::of_program(result, program.name)
            )
        })
        .collect()
}

fn arm_rows(result: &DemoResult) -> String {
    let mut rows = String::new();
    for arm in &result.arms {
        let cells = [
            arm.name.to_string(),
            ms(arm.relaunch_ms.p50),
            ms(arm.relaunch_ms.p95),
            ms(arm.relaunch_ms.max),
            arm.relaunch_ms.n.to_string(),
            format!("{:.2}", arm.cpu_seconds),
            arm.swapping_cpu_seconds.map_or("–".to_string(), |seconds| format!("{seconds:.2}")),
            mib(arm.total_bytes_peak),
            arm.ratio.map_or("–".to_string(), |ratio| format!("{ratio:.2}")),
            arm.faults.to_string(),
            mib(arm.disk_bytes_written),
        ];
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        let class = if arm.wrong_answers > 0 { " class=\"bad\"" } else { "" };
        let _ = write!(rows, "<tr>{cells}<td{class}>{}</td></tr>", arm.wrong_answers);
    }
    rows
}

fn program_rows(result: &DemoResult) -> String {
    let size = |bytes: Option<u64>| bytes.map_or("–".to_string(), mib);
    result
        .programs
        .iter()
        .map(|program| {
            format!(
                "<tr><td>{}</td><td class=\"text\">{}</td><td>{}</td><td>{}</td>\
                 <td class=\"text wrap\">{}</td></tr>",
                program.name,
                program.layout,
                size(program.anonymous_bytes),
                size(program.touched_bytes),
                escaped(&program.description)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{example, full_example};
    use super::*;

    #[test]
    fn opens_offline_and_shows_everything() {
        for result in [example(), full_example(0.5)] {
            let text = page(&result);
            assert!(!text.contains("{{") && !text.contains("NaN"));
            let outside = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in ["http:", "https:", "src=", "href=", "@import", "url("] {
                assert!(!outside.contains(forbidden), "the page refers to {forbidden}");
            }
            for arm in &result.arms {
                assert!(text.contains(&format!("<td>{}</td>", arm.name)));
            }
            assert_eq!(text.matches("<svg").count(), 3 + result.programs.len());
        }
        assert!(page(&example()).contains("no &lt;userfaultfd&gt; here"));
    }

    #[test]
    fn values_are_not_templates() {
        let values = [("a", "{{b}}".to_string()), ("b", "x".to_string())];
        assert_eq!(filled("1 {{a}} 2 {{b}}", &values), "1 {{b}} 2 x");
    }

    #[test]
    fn a_defeat_is_shown_as_one() {
        assert!(page(&full_example(2.0)).contains("class=\"verdict bad\""));
        assert!(page(&full_example(0.5)).contains("class=\"verdict\""));
    }
}
