//! A paper that was replayed: figure by figure, what it says beside what came out, on a page that opens
//! offline.

use std::path::{Path, PathBuf};

use clew_trace::write_whole;

use crate::chart;
use crate::file::ReportError;
use crate::html::{TEMPLATE, escaped, filled, items};
use crate::sheet::Chart;
use crate::table::Table;

/// What is shown.
#[derive(Default)]
pub struct Study {
    pub title: String,
    /// The answer in a sentence.
    pub verdict: String,
    /// Whether that is bad news.
    pub is_bad: bool,
    /// A line about how it was run.
    pub facts: String,
    /// What has to be known before the first figure.
    pub before: Vec<String>,
    pub sections: Vec<Section>,
    /// Everything in one table.
    pub all: Option<Table>,
    /// How it was found.
    pub method: Vec<String>,
}

/// One figure.
#[derive(Default)]
pub struct Section {
    pub title: String,
    /// What the paper says there.
    pub says: String,
    pub charts: Vec<Chart>,
    pub tables: Vec<Table>,
    pub notes: Vec<String>,
}

impl Section {
    fn html(&self) -> String {
        let charts: String =
            self.charts.iter().filter(|chart| !chart.rows.is_empty()).map(Chart::html).collect();
        let tables: String =
            self.tables.iter().filter(|table| !table.is_empty()).map(Table::html).collect();
        format!(
            "<h2>{}</h2>\n<figcaption>The paper: {}</figcaption>\n{charts}{tables}<ul class=\"note\">{}</ul>\n",
            escaped(&self.title),
            escaped(&self.says),
            items(&self.notes)
        )
    }
}

impl Study {
    /// A page that opens offline, in light and dark.
    pub fn page(&self) -> String {
        let values = [
            ("style", chart::style()),
            ("title", escaped(&self.title)),
            ("verdict", escaped(&self.verdict)),
            ("verdict_class", if self.is_bad { " bad" } else { "" }.to_string()),
            ("facts", escaped(&self.facts)),
            ("notes", items(&self.before)),
            ("base", String::new()),
            ("cards", String::new()),
            ("missing", String::new()),
            ("figures", self.sections.iter().map(Section::html).collect()),
            ("tables", self.all.as_ref().map(Table::html).unwrap_or_default()),
            ("method", items(&self.method)),
        ];
        filled(TEMPLATE, &values)
    }

    /// Writes NAME.json, which is that text, and NAME.html into `directory`, which is there, and tells where
    /// they are.
    pub fn write(
        &self,
        json: &str,
        directory: &Path,
        name: &str,
    ) -> Result<Vec<PathBuf>, ReportError> {
        let written = [("json", json.to_string()), ("html", self.page())];
        let write = |(ending, text): (&str, String)| {
            let path = directory.join(format!("{name}.{ending}"));
            write_whole(&path, &text).map_err(|source| ReportError::File {
                action: "write",
                path: path.clone(),
                source,
            })?;
            Ok(path)
        };
        written.into_iter().map(write).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::{Part, Row, Shade};

    #[test]
    fn every_figure_is_on_the_page_and_text_cannot_break_out() {
        const PARTS: &[Part] = &[Part { name: "a part", shade: Shade::Full }];
        let row = Row { name: "<zram>".to_string(), sizes: vec![2.0], note: "2 <s>".to_string() };
        let chart = Chart { title: "times".to_string(), unit: "s", parts: PARTS, rows: vec![row] };
        let table = Table::of(
            "numbers",
            1,
            [1.5],
            &[("<claim>", &|_| Some("<c>".to_string())), ("here", &|x: &f64| Some(x.to_string()))],
        );
        let study = Study {
            title: "A <paper>".to_string(),
            verdict: "1 of 2".to_string(),
            before: vec!["what to <know>".to_string()],
            sections: vec![
                Section {
                    title: "Figure <1>".to_string(),
                    says: "half of <it>".to_string(),
                    charts: vec![chart],
                    tables: vec![table],
                    notes: vec!["not run: <b>".to_string()],
                },
                Section { title: "Figure 2".to_string(), ..Section::default() },
            ],
            ..Study::default()
        };
        let page = study.page();
        for words in ["Figure &lt;1&gt;", "half of &lt;it&gt;", "&lt;zram&gt;", "&lt;c&gt;", "1.5"]
        {
            assert!(page.contains(words), "'{words}' is missing");
        }
        for words in ["<1>", "<it>", "<zram>", "<c>", "<know>", "{{", "href", "src=", "<script"] {
            assert!(!page.contains(words), "'{words}' is there");
        }
        assert!(page.contains("Figure 2") && page.contains("a part"));
    }
}
