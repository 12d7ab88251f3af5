//! Drawings of bars, as SVG with classes that the page gives colours to.

use std::fmt::Write;

/// Text that is safe in HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// One row of bars: a name, parts that follow each other (class and length), and what stands behind.
pub struct Row {
    pub name: String,
    pub parts: Vec<(&'static str, f64)>,
    pub label: String,
}

const WIDTH: f64 = 920.0;
const NAMES: f64 = 150.0;
const LABELS: f64 = 190.0;
const ROW: f64 = 30.0;

/// A round number at least as large as `most`.
fn end_of_scale(most: f64) -> f64 {
    if !(most.is_finite() && most > 0.0) {
        return 1.0;
    }
    let power = 10f64.powf(most.log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];
    steps.into_iter().map(|step| step * power).find(|end| *end >= most).unwrap_or(10.0 * power)
}

/// Bars from zero, with a scale below.
pub fn bars(title: &str, unit: &str, rows: &[Row]) -> String {
    let total = |row: &Row| row.parts.iter().map(|(_, length)| length.max(0.0)).sum::<f64>();
    let end = end_of_scale(rows.iter().map(total).fold(0.0, f64::max));
    let x = |value: f64| NAMES + value / end * (WIDTH - NAMES - LABELS);
    let bottom = ROW * rows.len() as f64;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">",
        bottom + 24.0,
        escaped(title)
    );
    for tick in 0..=4 {
        let value = end * f64::from(tick) / 4.0;
        let (at, text) =
            (x(value), if end >= 8.0 { format!("{value:.0}") } else { format!("{value:.2}") });
        let unit = if tick == 4 { format!(" {unit}") } else { String::new() };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{bottom}\"/>\
             <text class=\"soft\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{text}{unit}</text>",
            bottom + 18.0
        );
    }
    for (position, row) in rows.iter().enumerate() {
        let y = ROW * position as f64;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            NAMES - 10.0,
            y + 20.0,
            escaped(&row.name)
        );
        let mut from = 0.0;
        for (class, length) in &row.parts {
            let to = from + length.max(0.0);
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{}\" width=\"{:.1}\" height=\"18\"/>",
                x(from),
                y + 6.0,
                x(to) - x(from)
            );
            from = to;
        }
        let _ = write!(
            svg,
            "<text class=\"soft\" x=\"{:.1}\" y=\"{}\">{}</text>",
            x(from) + 8.0,
            y + 20.0,
            escaped(&row.label)
        );
    }
    svg + "</svg>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round_and_hold_everything() {
        for (most, end) in [(0.0, 1.0), (f64::NAN, 1.0), (7.2, 8.0), (97.0, 100.0), (0.31, 0.4)] {
            assert!((end_of_scale(most) - end).abs() < 1e-9, "{most}: {}", end_of_scale(most));
        }
    }

    #[test]
    fn bars_follow_each_other_and_text_cannot_break_out() {
        let row = Row {
            name: "<b>".to_string(),
            parts: vec![("a", 25.0), ("b", 75.0)],
            label: "\"x\"".to_string(),
        };
        let svg = bars("t & u", "ms", &[row]);
        assert!(svg.contains("&lt;b&gt;") && !svg.contains("<b>") && svg.contains("t &amp; u"));
        assert!(svg.contains("class=\"a\" x=\"150.0\" y=\"6\" width=\"145.0\""), "{svg}");
        assert!(svg.contains("class=\"b\" x=\"295.0\" y=\"6\" width=\"435.0\""), "{svg}");
    }
}
