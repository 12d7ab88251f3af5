//! Charts, drawn by plotters as SVG: bars of parts, curves with whiskers, rows of dots. What a chart
//! shows is said by its caller.
//!
//! plotters writes colours into the drawing. A page in dark surroundings maps each of them to another
//! one ([`style`]).

use std::fmt::Write;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::html::escaped;
use crate::statistics::{Estimate, Summary};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const WIDTH: u32 = 920;
/// Of two charts beside each other.
const HALF: u32 = 460;
/// Height of a row of bars.
pub const ROW: u32 = 27;
/// Above and below the rows.
pub const FRAME: u32 = 66;

const INK: RGBColor = RGBColor(28, 33, 40);
const SOFT: RGBColor = RGBColor(91, 100, 112);
const GRID: RGBColor = RGBColor(221, 225, 230);
const PAPER: RGBColor = RGBColor(254, 254, 254);
pub const GREY: RGBColor = RGBColor(168, 176, 186);
pub const ORANGE: RGBColor = RGBColor(217, 130, 43);
pub const BROWN: RGBColor = RGBColor(163, 82, 0);
pub const CLAY: RGBColor = RGBColor(160, 128, 118);
pub const BLUE: RGBColor = RGBColor(31, 111, 235);
pub const SKY: RGBColor = RGBColor(122, 167, 240);
pub const TEAL: RGBColor = RGBColor(11, 138, 125);
pub const VIOLET: RGBColor = RGBColor(123, 79, 208);
pub const RED: RGBColor = RGBColor(198, 40, 40);
pub const MOSS: RGBColor = RGBColor(110, 140, 50);

/// Each colour in dark surroundings.
const DARK: [(RGBColor, &str); 14] = [
    (INK, "#e8ebef"),
    (SOFT, "#9aa5b1"),
    (GRID, "#333b45"),
    (PAPER, "#12151a"),
    (GREY, "#6a7480"),
    (ORANGE, "#f0a04b"),
    (BROWN, "#ffd08a"),
    (CLAY, "#a98577"),
    (BLUE, "#58a6ff"),
    (SKY, "#2f62b5"),
    (TEAL, "#2bb5a4"),
    (VIOLET, "#b794ff"),
    (RED, "#ff7b72"),
    (MOSS, "#b5cc6a"),
];

/// A colour as pages write it.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// The rules that give drawings their colours in dark surroundings, and their font.
pub fn style() -> String {
    let mut css = "svg text { font-family: system-ui, -apple-system, \"Segoe UI\", sans-serif; }\n\
                   @media (prefers-color-scheme: dark) {\n"
        .to_string();
    for (light, dark) in DARK {
        let light = hex(light);
        // Writing to a String does not fail.
        let _ = writeln!(
            css,
            "svg [fill=\"{light}\"] {{ fill: {dark}; }} svg [stroke=\"{light}\"] {{ stroke: {dark}; }}\n\
             .key i[data-ink=\"{light}\"] {{ background: {dark} !important; }}"
        );
    }
    css + "}\n"
}

/// What stands beside a colour in a legend.
pub fn key(ink: RGBAColor, text: &str) -> String {
    let solid = hex(RGBColor(ink.0, ink.1, ink.2));
    format!(
        "<span class=\"key\"><i data-ink=\"{solid}\" style=\"background: {solid}; opacity: {}\"></i>{}</span>",
        ink.3,
        escaped(text)
    )
}

/// A drawing; `label` is what it is for those who do not see it.
fn drawing(
    label: &str,
    (width, height): (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> String {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
    draw(&root).and_then(|()| Ok(root.present()?)).expect("text in memory takes any drawing");
    drop(root);
    let named = format!("<svg role=\"img\" aria-label=\"{}\" ", escaped(label));
    let mut svg = svg.replacen("<svg ", &named, 1);
    // Names may have some, and XML none.
    svg.retain(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    svg
}

fn words(size: u32, ink: &'static RGBColor) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size)).color(ink)
}

/// One row: its name, the parts of its bar one behind the other, dots with a stroke at their median,
/// and what stands behind.
#[derive(Default)]
pub struct Bar {
    pub name: String,
    pub parts: Vec<(f64, RGBAColor)>,
    pub dots: Vec<(f64, RGBAColor)>,
    pub note: String,
}

/// Bars from zero.
pub struct Bars {
    pub title: String,
    pub unit: &'static str,
    pub rows: Vec<Bar>,
    /// A line across all of them, and what it is.
    pub limit: Option<(f64, &'static str)>,
}

impl Bars {
    fn height(&self) -> u32 {
        FRAME + ROW * self.rows.len() as u32
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let count = self.rows.len();
        let whole = |row: &Bar| {
            let bar = row.parts.iter().map(|part| part.0.max(0.0)).sum::<f64>();
            row.dots.iter().map(|dot| dot.0).fold(bar, f64::max)
        };
        let mut sizes: Vec<f64> = self.rows.iter().map(whole).filter(|f| f.is_finite()).collect();
        sizes.sort_by(f64::total_cmp);
        let limit = self.limit.map_or(0.0, |limit| limit.0);
        let most = sizes.last().copied().unwrap_or_default().max(limit);
        // Where one arm is far beyond all others, its bar is cut, so that the others are seen; not within
        // its first part, which is what is compared.
        let second = sizes.iter().rev().nth(1).copied().unwrap_or(most).max(limit);
        let parts = |row: &Bar| row.parts.iter().map(|part| part.0).find(|part| *part > 0.0);
        let first_parts = self.rows.iter().filter_map(parts);
        let first = first_parts.filter(|part| part.is_finite()).fold(0.0, f64::max);
        let has_dots = self.rows.iter().any(|row| !row.dots.is_empty());
        let cut = match most > second * 2.5 && second > 0.0 && !has_dots {
            true => (second * 1.15).max(first * 1.3).min(most),
            false => most,
        };
        let end = if cut > 0.0 { cut } else { 1.0 };
        area.draw(&Text::new(self.title.clone(), (4, 4), words(14, &INK)))?;
        let mut chart = ChartBuilder::on(area)
            .margin_top(24)
            .margin_right(190)
            .x_label_area_size(38)
            .y_label_area_size(190)
            .build_cartesian_2d(0.0..end, 0.0..count as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .y_labels(0)
            .x_labels(8)
            .x_label_formatter(&|value| short(*value))
            .x_desc(self.unit)
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(words(12, &INK))
            .axis_desc_style(words(12, &SOFT))
            .draw()?;
        for (number, row) in self.rows.iter().enumerate() {
            let place = (count - 1 - number) as f64;
            let middle = place + 0.5;
            let style = words(12, &INK).pos(Pos::new(HPos::Right, VPos::Center));
            let at = EmptyElement::at((0.0, middle));
            chart.plotting_area().draw(&(at + Text::new(row.name.clone(), (-8, 0), style)))?;
            let mut from = 0.0f64;
            for (size, ink) in &row.parts {
                let to = from + size.max(0.0);
                if from < end && to > from {
                    let ends = [(from, place), (to.min(end), place + 1.0)];
                    let mut bar = Rectangle::new(ends, ink.filled());
                    bar.set_margin(5, 5, 0, 0);
                    chart.draw_series([bar])?;
                }
                from = to;
            }
            let dots =
                row.dots.iter().map(|(value, ink)| Circle::new((*value, middle), 4, ink.filled()));
            chart.draw_series(dots)?;
            let times: Vec<f64> = row.dots.iter().map(|dot| dot.0).collect();
            if !times.is_empty() {
                let at = EmptyElement::at((Summary::of(&times).p50.min(end), middle));
                let stroke = PathElement::new([(0, -7), (0, 7)], INK.stroke_width(2));
                chart.plotting_area().draw(&(at + stroke))?;
            }
            let note = if from > end { format!("→ {}", row.note) } else { row.note.clone() };
            let style = words(12, &SOFT).pos(Pos::new(HPos::Left, VPos::Center));
            let at = EmptyElement::at((from.min(end), middle));
            chart.plotting_area().draw(&(at + Text::new(note, (8, 0), style)))?;
        }
        if let Some((limit, what)) = self.limit.filter(|limit| limit.0 <= end) {
            let ends = [(limit, 0.0), (limit, count as f64)];
            chart.draw_series([PathElement::new(ends, SOFT)])?;
            let style = words(12, &SOFT).pos(Pos::new(HPos::Right, VPos::Bottom));
            let at = EmptyElement::at((limit, count as f64));
            chart.plotting_area().draw(&(at + Text::new(what, (0, -2), style)))?;
        }
        Ok(())
    }

    /// As a drawing; nothing where there are no rows.
    pub fn svg(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        drawing(&self.title, (WIDTH, self.height()), |area| self.draw(area))
    }
}

/// A number on an axis.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Several charts of bars below a title and a line of facts, with paper behind them: a picture that
/// stands alone.
pub fn picture(title: &str, facts: &str, parts: &[Bars]) -> String {
    const HEAD: u32 = 58;
    let height = HEAD + parts.iter().map(Bars::height).sum::<u32>();
    let svg = drawing(title, (WIDTH, height), |area| {
        area.fill(&PAPER)?;
        area.draw(&Text::new(title, (16, 14), words(17, &INK)))?;
        area.draw(&Text::new(facts, (16, 38), words(13, &SOFT)))?;
        let mut rest = area.split_vertically(HEAD).1;
        for part in parts {
            let (upper, lower) = rest.split_vertically(part.height());
            part.draw(&upper)?;
            rest = lower;
        }
        Ok(())
    });
    let end = svg.find(">\n").map_or(0, |at| at + 2);
    format!("{}<style>\n{}</style>\n{}", &svg[..end], style(), &svg[end..])
}

/// One arm's line: where, how much, between what.
pub struct Line {
    pub name: String,
    pub ink: RGBColor,
    pub points: Vec<(f64, Estimate)>,
}

/// Curves.
pub struct Curves {
    pub title: String,
    /// What the axes are.
    pub across: &'static str,
    pub up: &'static str,
    /// Whether equal distances upwards are equal ratios.
    pub is_logarithmic: bool,
    pub limit: Option<(f64, &'static str)>,
    pub lines: Vec<Line>,
}

/// The numbers 1, 2 and 5 times powers of ten between `low` and `high`, for a logarithmic axis; all
/// digits where these are few.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let ticks = |digits: &[i32]| -> Vec<f64> {
        let all = powers.clone().flat_map(|power| {
            digits.iter().map(move |&digit| f64::from(digit) * 10f64.powi(power))
        });
        all.filter(|tick| (low..=high).contains(tick)).collect()
    };
    match ticks(&[1, 2, 5]) {
        few if few.len() < 3 => ticks(&[1, 2, 3, 4, 5, 6, 7, 8, 9]),
        enough => enough,
    }
}

/// All lines but one that is so far above all others that they could not be told apart any more.
fn within_sight(lines: &[Line]) -> (Vec<&Line>, Option<&Line>) {
    const FAR: f64 = 2.5;
    let lowest =
        |line: &Line| line.points.iter().map(|(_, time)| time.value).fold(f64::INFINITY, f64::min);
    let highest = |line: &Line| line.points.iter().map(|(_, time)| time.value).fold(0.0, f64::max);
    let worst = lines.iter().max_by(|one, other| lowest(one).total_cmp(&lowest(other)));
    let beyond = worst.filter(|worst| {
        let mut others = lines.iter().filter(|line| line.name != worst.name);
        // Between two there is nobody to hide.
        lines.len() > 2 && others.all(|line| highest(line) * FAR < lowest(worst))
    });
    let near = lines.iter().filter(|line| beyond.is_none_or(|beyond| line.name != beyond.name));
    (near.collect(), beyond)
}

impl Curves {
    /// As a drawing.
    pub fn svg(&self) -> String {
        /// Where a logarithmic scale begins at the lowest.
        const LEAST: f64 = 0.01;
        let (lines, beyond) = match self.is_logarithmic {
            true => within_sight(&self.lines),
            false => (self.lines.iter().collect(), None),
        };
        let all = || lines.iter().flat_map(|line| &line.points);
        let ends = |of: &dyn Fn(&(f64, Estimate)) -> f64| {
            let finite = all().map(of).filter(|value| value.is_finite());
            finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            })
        };
        let (left, right) = ends(&|point| point.0);
        let (low, high) = (ends(&|point| point.1.low).0, ends(&|point| point.1.high).1);
        if !(left <= right && low <= high) {
            return String::new();
        }
        let title = match beyond {
            None => self.title.clone(),
            Some(line) => {
                let values = line.points.iter().map(|(_, time)| time.value);
                let low = values.clone().fold(f64::INFINITY, f64::min);
                let high = values.fold(0.0, f64::max);
                format!("{} (not drawn: {}, {low:.0} to {high:.0})", self.title, line.name)
            }
        };
        drawing(&title, if self.is_logarithmic { (HALF, 290) } else { (WIDTH, 300) }, |area| {
            area.draw(&Text::new(title.clone(), (4, 4), words(14, &INK)))?;
            let limit = self.limit.map_or(0.0, |limit| limit.0);
            let edge = (right - left).max(1e-9) * if self.is_logarithmic { 0.05 } else { 0.0 };
            let across = left - edge..right + edge.max(1e-9);
            let mut builder = ChartBuilder::on(area);
            builder.margin_top(26).margin_right(16).x_label_area_size(40).y_label_area_size(64);
            match self.is_logarithmic {
                true => {
                    let low = low.max(LEAST);
                    let (bottom, top) = (low / 1.15, high.max(low * 2.0) * 1.15);
                    let up = (bottom..top).log_scale().with_key_points(log_ticks(bottom, top));
                    self.fill(builder.build_cartesian_2d(across, up)?, &lines, low, edge / 8.0)
                }
                false => {
                    let up = 0.0..high.max(limit).max(1e-9) * 1.08;
                    self.fill(builder.build_cartesian_2d(across, up)?, &lines, 0.0, 0.0)
                }
            }
        })
    }

    /// Lines, dots and whiskers; those of two arms at the same place `aside` from each other.
    fn fill<'a, Up>(
        &self,
        mut chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, Up>>,
        lines: &[&Line],
        low: f64,
        aside: f64,
    ) -> Drawn
    where
        Up: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        chart
            .configure_mesh()
            .x_label_formatter(&|value| short(*value))
            .y_label_formatter(&|value| short(*value))
            .x_desc(self.across)
            .y_desc(self.up)
            .axis_style(GRID)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .label_style(words(12, &SOFT))
            .axis_desc_style(words(12, &SOFT))
            .draw()?;
        let middle = (lines.len() as f64 - 1.0) / 2.0;
        for (number, line) in lines.iter().enumerate() {
            let shift = (number as f64 - middle) * aside;
            let points: Vec<(f64, Estimate)> =
                line.points.iter().map(|(at, time)| (at + shift, *time)).collect();
            let path = points.iter().map(|(at, time)| (*at, time.value.max(low)));
            chart.draw_series(LineSeries::new(path, line.ink.stroke_width(2)))?;
            for (at, time) in points.iter().filter(|(_, time)| time.low < time.high) {
                let ends = [(*at, time.low.max(low)), (*at, time.high)];
                chart.draw_series([PathElement::new(ends, line.ink.mix(0.55).stroke_width(2))])?;
                chart.draw_series([Circle::new((*at, time.value), 4, line.ink.filled())])?;
            }
        }
        if let Some((limit, what)) = self.limit {
            let across = chart.as_coord_spec().x_spec().range();
            let ends = [(across.start, limit), (across.end, limit)];
            chart.draw_series([PathElement::new(ends, SOFT)])?;
            let style = words(12, &SOFT).pos(Pos::new(HPos::Right, VPos::Bottom));
            let at = EmptyElement::at((across.end, limit));
            chart.plotting_area().draw(&(at + Text::new(what, (0, -2), style)))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, times: &[f64]) -> Line {
        let at = |(place, &value): (usize, &f64)| {
            (place as f64, Estimate { value, low: value * 0.9, high: value * 1.1 })
        };
        let points = times.iter().enumerate().map(at).collect();
        Line { name: name.to_string(), ink: BLUE, points }
    }

    fn curves(lines: Vec<Line>) -> Curves {
        let title = "title".to_string();
        Curves { title, across: "x", up: "y", is_logarithmic: true, limit: None, lines }
    }

    #[test]
    fn an_arm_that_is_far_above_is_said_and_not_drawn() {
        let near = || {
            vec![line("dram", &[20.0, 20.0]), line("a", &[40.0, 30.0]), line("b", &[50.0, 20.0])]
        };
        assert!(within_sight(&near()).1.is_none());
        let mut far = near();
        far.push(line("swap-file", &[900.0, 600.0]));
        let (drawn, beyond) = within_sight(&far);
        assert_eq!((drawn.len(), beyond.map(|line| line.name.as_str())), (3, Some("swap-file")));
        let text = curves(far).svg();
        assert!(text.contains("not drawn: swap-file, 600 to 900"), "{text}");
        // Two arms alone: there is nobody to hide.
        assert!(within_sight(&[line("a", &[1.0]), line("b", &[900.0])]).1.is_none());
    }

    #[test]
    fn logarithmic_ticks_are_round() {
        assert_eq!(log_ticks(3.0, 120.0), [5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(log_ticks(1.6, 4.7), [2.0, 3.0, 4.0]);
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        assert_eq!(curves(Vec::new()).svg(), "");
        assert_eq!(curves(vec![line("a", &[f64::NAN])]).svg(), "");
        let one = curves(vec![line("a", &[0.0])]).svg();
        assert!(one.contains("<svg") && !one.contains("NaN"), "{one}");
        let row = |size: f64| Bar {
            name: "x".into(),
            parts: vec![(size, BLUE.mix(1.0))],
            ..Bar::default()
        };
        for rows in [Vec::new(), vec![row(0.0)], vec![row(f64::NAN), row(-1.0)]] {
            let bars = Bars { title: "t".into(), unit: "ms", rows, limit: None };
            assert!(!bars.svg().contains("NaN"));
        }
    }

    #[test]
    fn a_bar_is_cut_behind_its_first_part() {
        let row = |first: f64, rest: f64, note: &str| Bar {
            name: note.into(),
            parts: vec![(0.0, INK.mix(1.0)), (first, BLUE.mix(1.0)), (rest, ORANGE.mix(1.0))],
            note: note.into(),
            ..Bar::default()
        };
        let rows = vec![row(10.0, 2.0, "short"), row(18.0, 50.0, "long")];
        let svg = Bars { title: "t\u{1b}".into(), unit: "ms", rows, limit: None }.svg();
        assert!(!svg.contains('\u{1b}'), "no XML has it: {svg}");
        assert!(svg.contains("→ long") && !svg.contains("→ short"), "{svg}");
        let bars = |ink: RGBColor| {
            let ink = hex(ink);
            svg.lines().filter(move |l| l.contains("<rect") && l.contains(&ink)).count()
        };
        assert_eq!((bars(BLUE), bars(ORANGE)), (2, 2), "what follows the first part begins, too");
    }

    #[test]
    fn bars_follow_each_other_and_text_cannot_break_out() {
        let parts = vec![(25.0, BLUE.mix(1.0)), (75.0, ORANGE.mix(1.0))];
        let rows = vec![Bar { name: "<b>".into(), parts, note: "\"x\"".into(), ..Bar::default() }];
        let bars = Bars { title: "t & u".into(), unit: "ms", rows, limit: Some((90.0, "limit")) };
        let svg = bars.svg();
        assert!(
            svg.contains("&lt;b&gt;") && !svg.contains("<b>") && svg.contains("t &amp; u"),
            "{svg}"
        );
        let number = |ink: RGBColor, name: &str| -> f64 {
            let line =
                svg.lines().find(|l| l.contains("<rect") && l.contains(&hex(ink))).expect("a bar");
            let (_, rest) = line.split_once(&format!(" {name}=\"")).expect("it has one");
            rest.split_once('"').and_then(|(number, _)| number.parse().ok()).expect("a number")
        };
        let (first, second) = (number(BLUE, "width"), number(ORANGE, "width"));
        assert!((second / first - 3.0).abs() < 0.05, "{first} {second}");
        assert!((number(BLUE, "x") + first - number(ORANGE, "x")).abs() < 1.5);
    }

    #[test]
    fn every_colour_has_one_for_dark_surroundings() {
        let style = style();
        for ink in
            [GREY, ORANGE, BROWN, CLAY, BLUE, SKY, TEAL, VIOLET, RED, MOSS, INK, SOFT, GRID, PAPER]
        {
            assert!(style.contains(&format!("svg [fill=\"{}\"]", hex(ink))), "{ink:?}");
        }
    }
}
