//! A result that is charts of bars and tables, with words around them: shown in a terminal, on a page that
//! opens offline, as a picture. Whoever has such a result says what is in it, and nothing of how it looks.

use plotters::style::{RGBAColor, RGBColor};

use crate::chart::{self, BLUE, Bar, Bars, GREY};
use crate::html::{TEMPLATE, escaped, filled, items};
use crate::shown::number;
use crate::statistics::Summary;
use crate::table::{Table, wrapped};

/// What is shown.
#[derive(Default)]
pub struct Sheet {
    pub title: String,
    /// The answer in a sentence, and whether it is bad news.
    pub verdict: String,
    pub is_bad: bool,
    /// A line about the machine and what was run.
    pub facts: String,
    pub charts: Vec<Chart>,
    pub tables: Vec<Table>,
    /// What columns mean, what did not run.
    pub notes: Vec<String>,
}

/// Bars of parts.
pub struct Chart {
    pub title: String,
    pub unit: &'static str,
    pub parts: &'static [Part],
    pub rows: Vec<Row>,
}

/// A part of each bar: what it is, and how it is drawn.
pub struct Part {
    pub name: &'static str,
    pub shade: Shade,
}

/// How strongly something is drawn.
#[derive(Clone, Copy)]
pub enum Shade {
    /// What is there anyway.
    Grey,
    Full,
    Half,
    Faint,
}

/// A bar: its name, the size of each of its parts, and what stands behind it.
pub struct Row {
    pub name: String,
    pub sizes: Vec<f64>,
    pub note: String,
}

/// Parts of a time of which some would pass without swapping.
pub const TIMES: &[Part] = &[
    Part { name: "the same in memory", shade: Shade::Grey },
    Part { name: "to the median", shade: Shade::Full },
    Part { name: "to the 95th percentile", shade: Shade::Half },
    Part { name: "to the worst", shade: Shade::Faint },
];

impl Row {
    /// A row of [`TIMES`]; `own_ms` is the median in memory.
    pub fn times(name: String, own_ms: f64, of: &Summary) -> Row {
        let own = own_ms.min(of.p50);
        let sizes = vec![own, of.p50 - own, of.p95 - of.p50, of.max - of.p95];
        let note = format!("{} / {} / {}", number(of.p50), number(of.p95), number(of.max));
        Row { name, sizes, note }
    }
}

impl Shade {
    fn ink(self) -> RGBAColor {
        let of = |RGBColor(red, green, blue): RGBColor, part| RGBAColor(red, green, blue, part);
        match self {
            Shade::Grey => of(GREY, 1.0),
            Shade::Full => of(BLUE, 1.0),
            Shade::Half => of(BLUE, 0.5),
            Shade::Faint => of(BLUE, 0.2),
        }
    }
}

impl Chart {
    fn bars(&self) -> Bars {
        let bar = |row: &Row| Bar {
            name: row.name.clone(),
            parts: row
                .sizes
                .iter()
                .zip(self.parts)
                .map(|(size, p)| (*size, p.shade.ink()))
                .collect(),
            note: row.note.clone(),
            ..Bar::default()
        };
        let rows = self.rows.iter().map(bar).collect();
        Bars { title: self.title.clone(), unit: self.unit, rows, limit: None }
    }

    pub(crate) fn html(&self) -> String {
        let keys: String =
            self.parts.iter().map(|part| chart::key(part.shade.ink(), part.name)).collect();
        format!("<p class=\"keys\">{keys}</p>\n<div class=\"charts\">{}</div>\n", self.bars().svg())
    }
}

impl Sheet {
    /// For a terminal, at most 100 columns wide.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n{}\n", wrapped(&self.title), wrapped(&self.verdict));
        for table in self.tables.iter().filter(|table| !table.is_empty()) {
            text += &table.text();
            text.push('\n');
        }
        text + &self.notes.iter().map(|note| wrapped(note)).collect::<String>()
    }

    /// A page that opens offline, in light and dark.
    pub fn page(&self) -> String {
        let values = [
            ("style", chart::style()),
            ("title", escaped(&self.title)),
            ("verdict", escaped(&self.verdict).replace('-', "\u{2011}")),
            ("verdict_class", if self.is_bad { " bad" } else { "" }.to_string()),
            ("facts", escaped(&self.facts)),
            ("notes", String::new()),
            ("base", String::new()),
            ("cards", String::new()),
            ("missing", String::new()),
            ("figures", self.charts.iter().map(Chart::html).collect()),
            ("tables", self.tables.iter().map(Table::html).collect()),
            ("method", items(&self.notes)),
        ];
        filled(TEMPLATE, &values)
    }

    /// A standalone SVG of all charts.
    pub fn picture(&self) -> String {
        let bars: Vec<Bars> = self.charts.iter().map(Chart::bars).collect();
        chart::picture(&self.title, &self.facts, &bars)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        let of = Summary::of(&[120.0, 130.0, 180.0]);
        let rows = vec![Row::times("<clew>".to_string(), 100.0, &of)];
        let columns: &[crate::table::Column<'_, u32>] = &[
            ("arm", &|_| Some("<clew>".to_string())),
            ("wrong", &|wrong| Some(wrong.to_string())),
        ];
        Sheet {
            title: "Scenario <return>".to_string(),
            verdict: "clew adds half".to_string(),
            facts: "two CPUs".to_string(),
            charts: vec![Chart { title: "visits".to_string(), unit: "ms", parts: TIMES, rows }],
            tables: vec![Table::of("numbers", 1, [0], columns)],
            notes: vec!["not run: node".to_string()],
            ..Sheet::default()
        }
    }

    #[test]
    fn everything_is_in_the_text_the_page_and_the_picture() {
        let (text, page, picture) = (sheet().text(), sheet().page(), sheet().picture());
        for part in ["clew adds half", "numbers", "wrong", "not run: node"] {
            assert!(text.contains(part) && page.contains(part), "{part}: {text}");
        }
        assert!(text.contains("<clew>"));
        for drawn in [&page, &picture] {
            assert!(drawn.contains("&lt;clew&gt;") && !drawn.contains("<clew>"), "{drawn}");
            assert!(drawn.contains("130 / ") && drawn.contains("two CPUs"), "{drawn}");
        }
        assert!(!page.contains("{{") && !page.contains("href") && page.contains("to the median"));
    }

    #[test]
    fn a_time_is_what_it_is_in_memory_and_what_comes_on_top() {
        let of = Summary { p50: 150.0, p95: 200.0, max: 260.0, ..Summary::default() };
        assert_eq!(Row::times(String::new(), 100.0, &of).sizes, [100.0, 50.0, 50.0, 60.0]);
        // Faster than in memory, by chance.
        assert_eq!(Row::times(String::new(), 180.0, &of).sizes, [150.0, 0.0, 50.0, 60.0]);
    }
}
