//! The table of apps: which columns there is room for, what they say, in what order.

use std::cmp::Ordering;

use clap::ValueEnum;
use clew_core::shown::shown;
use clew_live::control::status::{AppStatus, ClassPages, Status};

use super::looks::{AppRates, Rates};

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Column {
    /// Its name.
    App,
    /// `fg` or `bg`.
    State,
    /// Processes.
    Procs,
    /// Resident anonymous memory.
    Resident,
    /// Pages used in relaunches, wherever they are.
    Hot,
    /// Pages used later.
    Warm,
    /// Pages not used since the launch.
    Cold,
    /// Memory whose only copy is stored.
    Stored,
    /// Compression ratio of that.
    Ratio,
    /// Faults a second that brought a stored page back.
    Faults,
    /// Pages a second that were brought back early and then used.
    Hits,
    /// Memory a second brought back.
    In,
    /// Memory a second taken out.
    Out,
    /// Processor time, per cent of one processor.
    Cpu,
}

impl Column {
    /// All, in the order in which they are shown.
    pub const ALL: [Column; 14] = [
        Column::App,
        Column::State,
        Column::Procs,
        Column::Resident,
        Column::Hot,
        Column::Warm,
        Column::Cold,
        Column::Stored,
        Column::Ratio,
        Column::Faults,
        Column::Hits,
        Column::In,
        Column::Out,
        Column::Cpu,
    ];

    /// Above it.
    pub fn title(self) -> &'static str {
        match self {
            Column::App => "APP",
            Column::State => "ST",
            Column::Procs => "PROC",
            Column::Resident => "RES",
            Column::Hot => "HOT",
            Column::Warm => "WARM",
            Column::Cold => "COLD",
            Column::Stored => "STORED",
            Column::Ratio => "RATIO",
            Column::Faults => "FLT/s",
            Column::Hits => "HIT/s",
            Column::In => "IN/s",
            Column::Out => "OUT/s",
            Column::Cpu => "CPU%",
        }
    }

    /// Columns that it takes; the name takes what is left.
    pub fn width(self) -> usize {
        self.title().len().max(if self == Column::State { 2 } else { 5 })
    }
}

/// A name that has fewer columns is cut beyond recognition.
const MIN_NAME: usize = 12;

/// Left out one after the other where there is not room for all.
const DISPENSABLE: [Column; 9] = [
    Column::Out,
    Column::In,
    Column::Procs,
    Column::Warm,
    Column::Hits,
    Column::Ratio,
    Column::Hot,
    Column::Cold,
    Column::State,
];

/// The columns that `width` has room for, one blank between each.
pub fn columns(status: &Status, width: usize) -> Vec<Column> {
    let mut columns = Column::ALL.to_vec();
    if status.apps.iter().all(|app| app.classes.is_none()) && width < 100 {
        // They say nothing: others make better use of the room.
        columns.retain(|c| !matches!(c, Column::Hot | Column::Warm | Column::Cold));
    }
    for column in DISPENSABLE {
        let others = columns.iter().filter(|c| **c != Column::App);
        let taken: usize = others.map(|c| c.width() + 1).sum();
        if taken + MIN_NAME <= width {
            break;
        }
        columns.retain(|c| *c != column);
    }
    columns
}

/// By which column apps are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The column: numbers from the largest, texts from the first.
    pub column: Column,
    /// The other way round.
    pub reverse: bool,
}

/// One app as it is shown.
pub struct Row<'a> {
    /// What is known of it.
    pub app: &'a AppStatus,
    rates: Option<&'a AppRates>,
}

/// The apps in this order; equal ones by name.
pub fn apps<'a>(status: &'a Status, rates: Option<&'a Rates>, order: Order) -> Vec<Row<'a>> {
    let row = |app: &'a AppStatus| Row { app, rates: rates.and_then(|r| r.apps.get(&app.name)) };
    let mut rows: Vec<Row<'_>> = status.apps.iter().map(row).collect();
    rows.sort_by(|a, b| {
        let by = match order.column {
            Column::App => a.app.name.cmp(&b.app.name),
            Column::State => b.app.state.cmp(&a.app.state),
            column => number_order(b.number(column), a.number(column)),
        };
        let by = if order.reverse { by.reverse() } else { by };
        by.then_with(|| a.app.name.cmp(&b.app.name))
    });
    rows
}

/// What is not known comes after every number.
fn number_order(a: Option<f64>, b: Option<f64>) -> Ordering {
    a.unwrap_or(f64::NEG_INFINITY).total_cmp(&b.unwrap_or(f64::NEG_INFINITY))
}

impl Row<'_> {
    /// The value of a column that is a number; bytes, counts a second, per cent.
    fn number(&self, column: Column) -> Option<f64> {
        let (app, rates) = (self.app, self.rates);
        let bytes = |pages: u64| pages as f64 * PAGE_BYTES as f64;
        let class = |pages: fn(&clew_live::control::status::ClassStatus) -> ClassPages| {
            app.classes.as_ref().map(|c| bytes(pages(c).pages()))
        };
        match column {
            Column::App | Column::State => None,
            Column::Procs => Some(app.processes.len() as f64),
            Column::Resident => Some(app.resident_bytes as f64),
            Column::Hot => class(|c| c.hot),
            Column::Warm => class(|c| c.warm),
            Column::Cold => class(|c| c.cold),
            Column::Stored => Some(bytes(app.stored_pages)),
            Column::Ratio => (app.ratio > 0.0).then_some(app.ratio),
            Column::Faults => rates.map(|r| r.demand_faults_per_second),
            Column::Hits => rates.map(|r| r.hits_per_second),
            Column::In => rates.map(|r| r.restored_pages_per_second * PAGE_BYTES as f64),
            Column::Out => rates.map(|r| r.swapped_out_pages_per_second * PAGE_BYTES as f64),
            Column::Cpu => rates.map(|r| r.cpu_percent),
        }
    }

    /// What a column says; `-` where there is nothing to say.
    pub fn cell(&self, column: Column) -> String {
        let text = match column {
            Column::App => return shown(&self.app.name).into_owned(),
            Column::State => {
                return if self.app.state == "foreground" { "fg" } else { "bg" }.to_string();
            }
            Column::Procs => self.number(column).map(count),
            Column::Ratio => self.number(column).map(|ratio| format!("{ratio:.2}")),
            Column::Faults | Column::Hits => self.number(column).map(count),
            Column::Cpu => self.number(column).map(|cpu| format!("{cpu:.1}")),
            Column::Resident
            | Column::Hot
            | Column::Warm
            | Column::Cold
            | Column::Stored
            | Column::In
            | Column::Out => self.number(column).map(bytes),
        };
        text.unwrap_or_else(|| "-".to_string())
    }
}

/// Bytes of a page, as everywhere in the control protocol.
pub const PAGE_BYTES: u64 = 4096;

/// Bytes in five columns.
pub fn bytes(bytes: f64) -> String {
    let mut value = bytes;
    for unit in ["", "K", "M", "G", "T"] {
        if value < 1023.5 || unit == "T" {
            return match value {
                _ if unit.is_empty() => format!("{value:.0}"),
                v if v < 9.995 => format!("{v:.2}{unit}"),
                v if v < 99.95 => format!("{v:.1}{unit}"),
                v => format!("{v:.0}{unit}"),
            };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit is always taken")
}

/// A number in five columns.
pub fn count(count: f64) -> String {
    match count {
        n if n < 99_999.5 => format!("{n:.0}"),
        n if n < 9_999_500.0 => format!("{:.0}k", n / 1e3),
        n => format!("{:.0}M", n / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_live::control::status::ClassStatus;

    fn app(name: &str, resident: u64, hot: Option<u64>) -> AppStatus {
        AppStatus {
            name: name.into(),
            resident_bytes: resident,
            classes: hot.map(|resident_pages| ClassStatus {
                hot: ClassPages { resident_pages, out_pages: 0 },
                ..ClassStatus::default()
            }),
            ..AppStatus::default()
        }
    }

    #[test]
    fn numbers_fit_their_columns() {
        for (value, text) in [
            (0.0, "0"),
            (1023.0, "1023"),
            (1024.0, "1.00K"),
            (67_000_000.0, "63.9M"),
            (1_072_693_248.0, "1023M"),
            (1_073_741_823.0, "1.00G"),
            (1e15, "909T"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for exponent in 0..200 {
            let value = 1.19f64.powi(exponent);
            assert!(bytes(value.min(1e16)).len() <= 5, "{value}: {}", bytes(value));
            assert!(count(value.min(9e9)).len() <= 5, "{value}: {}", count(value));
        }
    }

    #[test]
    fn columns_fit_every_width() {
        let with = Status { apps: vec![app("a", 1, Some(1))], ..Status::default() };
        let without = Status { apps: vec![app("a", 1, None)], ..Status::default() };
        for width in 40..200 {
            for status in [&with, &without] {
                let columns = columns(status, width);
                let others = columns.iter().filter(|c| **c != Column::App);
                let taken: usize = others.map(|c| c.width() + 1).sum();
                assert!(taken + MIN_NAME <= width, "{width}: {columns:?}");
            }
        }
        assert_eq!(columns(&with, 100), Column::ALL);
        let at_80 = columns(&with, 80);
        for column in [Column::Hot, Column::Warm, Column::Cold, Column::Hits, Column::Cpu] {
            assert!(at_80.contains(&column), "{at_80:?}");
        }
        assert!(columns(&without, 80).contains(&Column::Out));
    }

    #[test]
    fn rows_are_sorted_by_any_column() {
        let mut front = app("front", 5, None);
        front.state = "foreground".into();
        let apps_known = vec![app("a", 7, None), app("b", 9, Some(1)), front];
        let status = Status { apps: apps_known, ..Status::default() };
        let names = |column, reverse| -> Vec<String> {
            let rows = apps(&status, None, Order { column, reverse });
            rows.iter().map(|row| row.app.name.clone()).collect()
        };
        assert_eq!(names(Column::Resident, false), ["b", "a", "front"]);
        assert_eq!(names(Column::Resident, true), ["front", "a", "b"]);
        assert_eq!(names(Column::App, true), ["front", "b", "a"]);
        assert_eq!(names(Column::State, false)[0], "front");
        assert_eq!(names(Column::Hot, false), ["b", "a", "front"]);
        // Nothing is known: by name.
        assert_eq!(names(Column::Cpu, false), ["a", "b", "front"]);
    }

    #[test]
    fn a_name_moves_no_cursor() {
        let status = Status { apps: vec![app("a\u{1b}[2J\nb", 0, None)], ..Status::default() };
        let rows = apps(&status, None, Order { column: Column::App, reverse: false });
        assert_eq!(rows[0].cell(Column::App), "a\\x1b[2J\\nb");
        assert_eq!(rows[0].cell(Column::Hot), "-");
    }
}
