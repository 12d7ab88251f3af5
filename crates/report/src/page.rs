//! The page: one file that opens offline, in light and dark.

use crate::chart;
use crate::figures::figures;
use crate::html::{TEMPLATE, escaped, filled, items};
use crate::result::Results;
use crate::tables::{facts, missing, named, tables};
use crate::verdict::{cards, verdict};

/// The whole page.
pub fn page(results: &Results) -> String {
    let (verdict, is_bad) = verdict(results).unwrap_or_default();
    let figures: String = figures(results)
        .iter()
        .map(|figure| {
            format!(
                "<h2>{}</h2>\n<figcaption>{}</figcaption>\n<p class=\"keys\">{}</p>\n\
                 <div class=\"charts\">{}</div>\n",
                escaped(figure.title),
                escaped(figure.note),
                figure.keys,
                figure.charts.concat()
            )
        })
        .collect();
    let base = results.points.first().map(named).unwrap_or_default();
    let values = [
        ("style", chart::style()),
        ("title", escaped(&results.title)),
        // Names of arms stay whole where lines break.
        ("verdict", escaped(&verdict).replace('-', "\u{2011}")),
        ("verdict_class", if is_bad { " bad" } else { "" }.to_string()),
        ("facts", escaped(&facts(results))),
        ("notes", items(&results.notes)),
        ("base", escaped(&base)),
        ("cards", cards(results)),
        ("missing", items(&missing(results))),
        ("figures", figures),
        ("tables", tables(results).iter().map(|table| table.html()).collect()),
        ("method", items(&results.method)),
    ];
    filled(TEMPLATE, &values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Estimate;
    use crate::example::{demo, replay};
    use crate::result::Group;

    #[test]
    fn opens_offline_and_shows_everything() {
        for results in [demo(), replay(), Results::default()] {
            let text = page(&results);
            assert!(!text.contains("{{") && !text.contains("NaN") && !text.contains(">inf"));
            let outside = text.replace("http://www.w3.org/2000/svg", "");
            for forbidden in ["http:", "https:", "src=", "href=", "@import", "url(", "<script"] {
                assert!(!outside.contains(forbidden), "the page refers to {forbidden}");
            }
            for arm in results.base_arms() {
                let cell = format!("<td class=\"text\">{}", escaped(&arm.name));
                assert!(text.contains(&cell), "{} is missing", arm.name);
            }
        }
        let text = page(&demo());
        for words in [
            "no &lt;java&gt; here",
            "a server &lt;with&gt; data",
            "Equal totals",
            "Nothing is pinned",
            "not run: java",
            "this kernel cannot, so no arm stands for it: zram with zstd",
            "ariadne-no-buffer",
            "1.50 → 3.00 (2.00×), p95 2.00×",
            "0 wrong of",
        ] {
            assert!(text.contains(words), "'{words}' is missing");
        }
        let text = page(&replay());
        assert!(!text.contains("<mine>") && text.contains("a &amp; b.clew"));
        assert!(text.contains("<td>4711 at 2.5</td>") && text.contains("lacks: flash"));
        assert!(text.contains("<td>modelled</td>"));
    }

    /// Each figure of the result is on the page, and follows when the result is another one.
    #[test]
    fn every_figure_comes_from_the_result() {
        for (by, figures) in [
            (0.0, ["0.31×", "0.29 to 0.33", "0.41 (0.39-0.43)", "987654", "777", "555"]),
            (0.2, ["0.51×", "0.49 to 0.53", "0.61 (0.59-0.63)", "987674", "797", "575"]),
        ] {
            let mut results = demo();
            for one in &mut results.comparisons {
                if one.group == Group::Clustered {
                    one.p50 = Estimate { value: 0.31 + by, low: 0.29 + by, high: 0.33 + by };
                    one.p95 = Estimate { value: 0.41 + by, low: 0.39 + by, high: 0.43 + by };
                }
            }
            results.memory_for_equal_p95[0].ratio.value = 0.61 + by;
            results.programs[0].label.as_mut().expect("a label").run_pages = 6.4 + by * 10.0;
            let arm = &mut results.points[0].arms[1];
            arm.faults = 987_654 + (by * 100.0) as u64;
            arm.groups[1].p95_ms.value = 777.0 + by * 100.0;
            arm.groups[1].breakdown.relaunch_ms = 555.0 + by * 100.0;
            arm.groups[1].breakdown.faulted_pages = 4_321.0 + by * 100.0;
            let kept = arm.kept.as_mut().expect("it is known");
            kept.pool_bytes = (222 + (by * 100.0) as u64) << 20;
            let text = page(&results);
            let more = match by {
                0.0 => ["4321 faults", "in 222", "<td>6.4</td>", "<td>0.61 ("],
                _ => ["4341 faults", "in 242", "<td>8.4</td>", "<td>0.81 ("],
            };
            for figure in figures.iter().chain(&more) {
                assert!(text.contains(figure), "{figure} is not on the page");
            }
        }
    }

    #[test]
    fn a_defeat_is_shown_as_one() {
        let mut results = demo();
        assert!(page(&results).contains("class=\"verdict\""));
        for one in &mut results.comparisons {
            one.p50 = Estimate { value: 1.6, low: 1.4, high: 1.8 };
        }
        assert!(page(&results).contains("class=\"verdict bad\""));
        results.points[0].arms[1].wrong_answers = 3;
        let text = page(&results);
        assert!(text.contains("3 answers were wrong") && text.contains("<td class=\"bad\">3</td>"));
    }

    #[test]
    fn a_part_of_the_arms_is_enough() {
        let mut results = demo();
        results.points.truncate(1);
        results.points[0].arms.truncate(2);
        results.comparisons.clear();
        results.memory_for_equal_p95.clear();
        results.programs.iter_mut().for_each(|one| one.label = None);
        let text = page(&results);
        assert!(text.contains("nothing to compare") && !text.contains("NaN"));
    }

    #[test]
    fn values_are_not_templates() {
        let values = [("a", "{{b}}".to_string()), ("b", "x".to_string())];
        assert_eq!(filled("1 {{a}} 2 {{b}}", &values), "1 {{b}} 2 x");
    }
}
