//! Tables: made once, shown in a terminal and on a page.

use crate::html::escaped;

/// Columns of a terminal.
const WIDTH: usize = 100;
/// From this length on a cell of a page may have several lines.
const LONG: usize = 40;

/// A table.
pub struct Table {
    pub title: String,
    /// What its columns mean; for the page.
    pub note: &'static str,
    /// Columns that say what a row is about.
    pub keys: usize,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// For the page only.
    pub detail: bool,
}

/// A column: its head, and what it says of a row, if anything.
pub type Column<'a, T> = (&'a str, &'a dyn Fn(&T) -> Option<String>);

impl Table {
    /// A row for each of `items`. Columns in which no row says anything are left out, but for keys.
    pub fn of<T>(
        title: impl Into<String>,
        keys: usize,
        items: impl IntoIterator<Item = T>,
        columns: &[Column<'_, T>],
    ) -> Table {
        let items: Vec<T> = items.into_iter().collect();
        let mut table = Table {
            title: title.into(),
            note: "",
            keys,
            header: Vec::new(),
            rows: vec![Vec::new(); items.len()],
            detail: false,
        };
        for (number, (head, of)) in columns.iter().enumerate() {
            let cells: Vec<Option<String>> = items.iter().map(of).collect();
            if number >= keys && cells.iter().all(Option::is_none) {
                continue;
            }
            table.header.push(head.to_string());
            for (row, cell) in table.rows.iter_mut().zip(cells) {
                row.push(cell.unwrap_or_else(|| "-".to_string()));
            }
        }
        table
    }

    /// The same with a note, for the page only.
    pub fn detail(self, note: &'static str) -> Table {
        Table { note, detail: true, ..self }
    }

    /// Whether it says anything.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.header.len() <= self.keys
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let title = if self.title.is_empty() { String::new() } else { wrapped(&self.title) };
        title + &aligned(&self.header, &self.rows, self.keys)
    }

    /// For a page.
    pub fn html(&self) -> String {
        let class = |column: usize, cell: &str| match column < self.keys {
            _ if self.header[column] == "wrong" && !["0", "-"].contains(&cell) => " class=\"bad\"",
            _ if cell.chars().count() >= LONG => " class=\"text wrap\"",
            true => " class=\"text\"",
            false => "",
        };
        let line = |cells: &[String], tag: &str| {
            let cell = |(column, cell): (usize, &String)| {
                format!("<{tag}{}>{}</{tag}>", class(column, cell), escaped(cell))
            };
            let cells: String = cells.iter().enumerate().map(cell).collect();
            format!("<tr>{cells}</tr>\n")
        };
        let rows: String = self.rows.iter().map(|row| line(row, "td")).collect();
        format!(
            "<h3>{}</h3>\n<p class=\"note\">{}</p>\n<div class=\"scroll\"><table>\n<thead>{}</thead>\n\
             <tbody>\n{rows}</tbody></table></div>\n",
            escaped(&self.title),
            escaped(self.note),
            line(&self.header, "th")
        )
    }
}

/// Columns two spaces apart: the first `keys` to the left, numbers to the right. What a line of a
/// terminal does not hold comes below, with the keys again.
pub fn aligned<Cell: AsRef<str>>(header: &[Cell], rows: &[Vec<Cell>], keys: usize) -> String {
    let length = |cell: &Cell| cell.as_ref().chars().count();
    let widths: Vec<usize> = (0..header.len())
        .map(|column| {
            let cells = rows.iter().map(|row| length(&row[column]));
            cells.chain([length(&header[column])]).max().unwrap_or_default()
        })
        .collect();
    let keyed: usize = widths[..keys].iter().map(|width| width + 2).sum();
    let mut text = String::new();
    let mut from = keys;
    loop {
        let mut to = from;
        let mut width = keyed;
        while to < header.len() && (to == from || width + widths[to] <= WIDTH) {
            width += widths[to] + 2;
            to += 1;
        }
        for row in std::iter::once(header).chain(rows.iter().map(Vec::as_slice)) {
            let mut line = String::new();
            for column in (0..keys).chain(from..to) {
                let cell = &row[column];
                // Cells may be longer than what format! pads to.
                let pad = " ".repeat(widths[column] - length(cell));
                match column < keys {
                    true => line.extend([cell.as_ref(), &pad, "  "]),
                    false => line.extend([&pad, cell.as_ref(), "  "]),
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        if to >= header.len() {
            return text;
        }
        from = to;
    }
}

/// Lines that a terminal holds; a longer word has a line of its own.
pub fn wrapped(paragraph: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > WIDTH {
            text.push('\n');
            column = 0;
        }
        if column > 0 {
            text.push(' ');
            column += 1;
        }
        text += word;
        column += length;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_wide_goes_on_below() {
        let header: Vec<String> = (0..12).map(|column| format!("{column:>12}")).collect();
        let rows = vec![header.clone(); 2];
        let text = aligned(&header, &rows, 1);
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert_eq!(text.lines().count(), 6, "{text}");
        for column in &header {
            assert!(text.contains(column.trim()), "{column} is missing");
        }
        assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("0 ")).count(), 6);
    }

    /// A result that somebody else wrote may say anything.
    #[test]
    fn no_cell_is_too_long() {
        let long = "x".repeat(70_000);
        let rows = [["a", &long], [&long, "b"]].map(Vec::from);
        let text = aligned(&["key", "value"], &rows, 1);
        assert_eq!(text.matches(&long).count(), 2);
    }

    #[test]
    fn columns_that_say_nothing_are_left_out_and_text_cannot_break_out() {
        let nothing: Column<'_, u32> = ("nothing", &|_| None);
        let columns: [Column<'_, u32>; 4] = [
            ("<name>", &|one| Some(format!("<b>{one}"))),
            nothing,
            ("some", &|one| (*one > 1).then(|| one.to_string())),
            ("wrong", &|one| Some((one / 2).to_string())),
        ];
        let table = Table::of("a & b", 1, [1, 2], &columns);
        assert_eq!(table.header, ["<name>", "some", "wrong"]);
        assert_eq!(table.rows[0][1], "-");
        let html = table.html();
        assert!(html.contains("a &amp; b") && html.contains("&lt;b&gt;1"), "{html}");
        assert!(html.contains("<td class=\"bad\">1</td>") && html.contains("<td>0</td>"), "{html}");
        assert!(Table::of("t", 1, [1], &[columns[0], nothing]).is_empty());
    }
}
