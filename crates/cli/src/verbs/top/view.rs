//! What is drawn.

use clew_core::ByteSize;
use clew_core::shown::shown as seen;
use clew_live::control::status::Status;
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::looks::Rates;
use super::rows::{self, Column, Order};

/// What the keys do.
const KEYS: &str = "q quit  left/right sort by  r reverse  up/down scroll";

/// What is shown at the moment.
pub struct Shown<'a> {
    /// The last look.
    pub status: &'a Status,
    /// Since the look before.
    pub rates: Option<&'a Rates>,
    /// Why there is no newer one.
    pub trouble: Option<&'a str>,
    /// How apps are sorted.
    pub order: Order,
    /// The first app shown.
    pub scroll: usize,
}

/// Donors that have a line.
const DONORS: usize = 4;

/// The lines above the table.
pub fn header(status: &Status, rates: Option<&Rates>, width: usize) -> Vec<String> {
    let size = |bytes: u64| ByteSize(bytes).to_string();
    let default = Rates::default();
    let r = rates.unwrap_or(&default);
    let mut lines = vec![format!(
        "scheme {}, up {}; daemon {}, {:.1} % CPU",
        seen(&status.scheme),
        duration(status.uptime_seconds),
        size(status.daemon_bytes),
        r.daemon_cpu_percent,
    )];
    let used = share(status.used_bytes, Some(status.budget_bytes));
    lines.push(gauge(
        "budget",
        used,
        width,
        &format!("{} of {}", size(status.used_bytes), size(status.budget_bytes)),
    ));
    for tier in &status.tiers {
        let limit = tier.limit_bytes.map_or(String::new(), |limit| format!(" of {}", size(limit)));
        let mut text = format!("{}{limit}", size(tier.used_bytes));
        if tier.tier == "pool" && status.pool.ratio > 0.0 {
            text.push_str(&format!(", ratio {:.2}", status.pool.ratio));
        }
        if tier.tier == "pool" && status.pool.full {
            text.push_str(", FULL");
        }
        if tier.tier == "flash" && status.flash.as_ref().is_some_and(|f| f.latched.is_some()) {
            text.push_str(", TAKES NOTHING MORE");
        }
        let share = share(tier.used_bytes, tier.limit_bytes);
        lines.push(gauge(&seen(&tier.tier), share, width, &text));
    }
    for donor in status.donors.iter().take(DONORS) {
        lines.push(format!(
            "donor {}: {}, {} pages; {} sent, {} waiting, {} cuts",
            seen(&donor.at),
            donor.state.name(),
            donor.stored_pages,
            size(donor.sent_bytes),
            size(donor.waiting_bytes),
            donor.cuts,
        ));
    }
    if status.donors.len() > DONORS {
        lines.push(format!("and {} more donors ('clew ps')", status.donors.len() - DONORS));
    }
    let most = |us: Option<u64>| us.map_or("-".to_string(), |us| format!("{us} us"));
    let all = r.hits_per_second + r.stored_faults_per_second;
    let hit = if all > 0.0 {
        format!(" ({:.0} %)", r.hits_per_second / all * 100.0)
    } else {
        String::new()
    };
    lines.push(format!(
        "faults {}/s stored (p50 {}, p99 {}), {}/s fresh; hits {}/s{hit}",
        rows::count(r.stored_faults_per_second),
        most(r.stored_fault_p50_us),
        most(r.stored_fault_p99_us),
        rows::count(r.fresh_faults_per_second),
        rows::count(r.hits_per_second),
    ));
    let flow = |pages: f64| rows::bytes(pages * rows::PAGE_BYTES as f64);
    let managed = status.apps.iter().flat_map(|a| &a.processes);
    let unmanaged = managed.filter(|p| !p.managed).count();
    lines.push(format!(
        "in {}/s, out {}/s; {} apps{}",
        flow(r.restored_pages_per_second),
        flow(r.swapped_out_pages_per_second),
        status.apps.len(),
        match unmanaged {
            0 => String::new(),
            n => format!("; {n} processes are not managed ('clew ps' says why)"),
        }
    ));
    let each = status.apps.iter().map(|app| app.outside.bytes);
    let outside = each.fold(0, u64::saturating_add);
    if outside > 0 {
        lines.push(format!("outside: {} cannot be taken ('clew ps' says why)", size(outside)));
    }
    if let Some(enough) = status.enough_budget_bytes {
        let thrash = status.apps.iter().filter(|app| app.thrashing.is_some());
        let names: Vec<_> = thrash.map(|app| seen(&app.name)).collect();
        lines.push(format!(
            "THRASHING: a budget of {} would end it: {}",
            size(enough),
            names.join(", ")
        ));
    }
    // Whatever a daemon says.
    lines.into_iter().map(|line| line.chars().take(width).collect()).collect()
}

fn share(used: u64, limit: Option<u64>) -> f64 {
    limit.map_or(0.0, |limit| used as f64 / limit.max(1) as f64).clamp(0.0, 1.0)
}

/// A bar of which `share` is full, and what it means.
fn gauge(name: &str, share: f64, width: usize, text: &str) -> String {
    let cells = (width / 3).clamp(10, 40);
    let full = (share * cells as f64).round() as usize;
    format!("{name:<6} [{}{}] {text}", "#".repeat(full), "-".repeat(cells - full))
}

fn duration(seconds: f64) -> String {
    let s = seconds as u64;
    match (s / 86_400, s / 3600 % 24, s / 60 % 60, s % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, m, s) => format!("{m} min {s} s"),
        (0, h, m, _) => format!("{h} h {m} min"),
        (d, h, ..) => format!("{d} d {h} h"),
    }
}

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>) {
    let area = frame.area();
    let width = usize::from(area.width);
    let above = header(shown.status, shown.rates, width);
    let heights =
        [Constraint::Length(above.len() as u16 + 1), Constraint::Min(2), Constraint::Length(1)];
    let [top, middle, bottom] = Layout::vertical(heights).areas(area);
    let lines: Vec<Line<'_>> = above.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines), top);
    table(frame, shown, middle);
    let last = match shown.trouble {
        Some(trouble) => {
            let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
            Line::from(Span::styled(seen(trouble), style))
        }
        None => Line::from(Span::styled(KEYS, Style::new().add_modifier(Modifier::DIM))),
    };
    frame.render_widget(Paragraph::new(last), bottom);
}

fn table(frame: &mut Frame<'_>, shown: &Shown<'_>, area: ratatui::layout::Rect) {
    if shown.status.apps.is_empty() {
        frame.render_widget(Paragraph::new("no apps ('clew run -- CMD' starts one)"), area);
        return;
    }
    let mut columns = rows::columns(shown.status, usize::from(area.width));
    if !columns.contains(&shown.order.column) {
        // What the order comes from is always seen: in place of the first that can be spared.
        let spared = columns.iter().position(|c| *c != Column::App && c.width() >= 5);
        if let Some(at) = spared {
            columns[at] = shown.order.column;
        }
    }
    let apps = rows::apps(shown.status, shown.rates, shown.order);
    let aligned = |column: Column, text: String| {
        let alignment = match column {
            Column::App | Column::State => Alignment::Left,
            _ => Alignment::Right,
        };
        Cell::from(Line::from(text).alignment(alignment))
    };
    let titles = columns.iter().map(|column| {
        let style = Style::new().add_modifier(match *column == shown.order.column {
            true => Modifier::BOLD | Modifier::REVERSED,
            false => Modifier::BOLD,
        });
        aligned(*column, column.title().to_string()).style(style)
    });
    let lines = apps.iter().skip(shown.scroll).map(|app| {
        let row = Row::new(columns.iter().map(|column| aligned(*column, app.cell(*column))));
        match app.app.state.as_str() {
            "foreground" => row.style(Style::new().add_modifier(Modifier::BOLD)),
            _ => row,
        }
    });
    let widths = columns.iter().map(|column| match column {
        Column::App => Constraint::Min(4),
        column => Constraint::Length(column.width() as u16),
    });
    let table = Table::new(lines, widths).header(Row::new(titles)).column_spacing(1);
    frame.render_stateful_widget(table, area, &mut TableState::new());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::ps::tests::a_donor;
    use clew_live::control::status::{
        AppStatus, ClassPages, ClassStatus, DonorStatus, PoolStatus, TierStatus,
    };
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn status(apps: usize) -> Status {
        let app = |i: usize| AppStatus {
            name: format!("app-{i:03}"),
            state: if i == 1 { "foreground" } else { "background" }.into(),
            resident_bytes: (1000 - i as u64) << 20,
            stored_pages: 16_384,
            ratio: 2.5,
            classes: Some(ClassStatus {
                hot: ClassPages { resident_pages: 256, out_pages: 256 },
                ..ClassStatus::default()
            }),
            ..AppStatus::default()
        };
        Status {
            scheme: "ariadne".into(),
            budget_bytes: 2 << 30,
            used_bytes: 1 << 30,
            tiers: ["pool", "flash"]
                .map(|tier| TierStatus {
                    tier: tier.into(),
                    used_bytes: 512 << 20,
                    limit_bytes: Some(2 << 30),
                    ..TierStatus::default()
                })
                .into(),
            pool: PoolStatus { ratio: 3.0, full: true, ..PoolStatus::default() },
            apps: (0..apps).map(app).collect(),
            ..Status::default()
        }
    }

    fn drawn(width: u16, height: u16, shown: &Shown<'_>) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| draw(frame, shown)).expect("drawn");
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    #[test]
    fn everything_is_seen_at_80_by_24() {
        let status = status(40);
        let order = Order { column: Column::Resident, reverse: false };
        for width in [80, 100] {
            let shown = Shown { status: &status, rates: None, trouble: None, order, scroll: 0 };
            let lines = drawn(width, 24, &shown);
            let text = lines.join("\n");
            let half = lines.iter().find(|l| l.starts_with("budget")).expect("a budget");
            let count = |c| half.matches(c).count();
            assert!(count('#').abs_diff(count('-')) <= 1, "{half}");
            for word in ["1.00 GiB of 2.00 GiB", "flash  [", "ratio 3.00, FULL", "q quit"] {
                assert!(text.contains(word), "no '{word}' at {width}:\n{text}");
            }
            let header = lines.iter().position(|l| l.starts_with("APP")).expect("a header");
            for title in ["HOT", "WARM", "COLD", "STORED", "FLT/s", "HIT/s", "CPU%"] {
                assert!(lines[header].contains(title), "no {title} at {width}:\n{text}");
            }
            let words: Vec<&str> = lines[header + 1].split_whitespace().collect();
            assert_eq!(words[..2], ["app-000", "bg"], "{text}");
            assert!(words.contains(&"1000M") && words.contains(&"64.0M"), "{text}");
            assert!(words.contains(&"2.00M"), "hot, resident and out:\n{text}");
            // Scrolled: others come first.
            let lines = drawn(width, 24, &Shown { scroll: 5, ..shown });
            assert!(lines[header + 1].starts_with("app-005"), "{}", lines.join("\n"));
        }
    }

    #[test]
    fn donors_have_a_line_each_as_far_as_there_is_room() {
        let donor = |number: u64| DonorStatus {
            at: format!("tv{number}:7471"),
            state: clew_core::DonorState::Up,
            why: None,
            stored_pages: 100 + number,
            ..a_donor()
        };
        let status = Status { donors: (0..6).map(donor).collect(), ..status(1) };
        let lines = header(&status, None, 80);
        let first = "donor tv0:7471: up, 100 pages; 6.0 MiB sent, 64.0 KiB waiting, 2 cuts";
        assert!(lines.iter().any(|line| line == first), "{lines:?}");
        assert!(lines.iter().any(|line| line == "and 2 more donors ('clew ps')"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
    }

    #[test]
    fn whatever_a_tier_is_called_it_has_one_line() {
        let mut status = status(1);
        let lines = header(&status, None, 80).len();
        status.tiers[0].tier = "a\n\u{202e}".to_string() + &"x".repeat(1000);
        let hostile = header(&status, None, 80);
        assert_eq!(hostile.len(), lines);
        let fits = |line: &String| line.chars().count() <= 80 && !line.contains(char::is_control);
        assert!(hostile.iter().all(fits), "{hostile:?}");
    }

    #[test]
    fn trouble_and_emptiness_are_said() {
        let status = status(0);
        let order = Order { column: Column::Cpu, reverse: false };
        let trouble = Some("the daemon is gone");
        let shown = Shown { status: &status, rates: None, trouble, order, scroll: 0 };
        let text = drawn(80, 24, &shown).join("\n");
        assert!(text.contains("the daemon is gone") && text.contains("no apps"), "{text}");
        // Too small for anything: still no panic.
        drawn(3, 2, &shown);
    }
}
