//! Just enough SVG: shapes with classes, text, and axes with round numbers.

use std::fmt::{Display, Write};

/// A drawing under construction. Coordinates are pixels from the upper left corner.
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

/// Where a text is held.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    pub fn new(width: f64, height: f64) -> Svg {
        Svg { width, height, body: String::new() }
    }

    fn push(&mut self, element: impl Display) {
        // Writing to a String does not fail.
        let _ = writeln!(self.body, "{element}");
    }

    pub fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\" rx=\"2\"/>",
            width.max(0.0)
        ));
    }

    /// A rectangle that tells what it is when pointed at.
    pub fn tipped_rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64, tip: &str) {
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"><title>{}</title></rect>",
            escaped(tip)
        ));
    }

    pub fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        self.push(format_args!(
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// A dot that tells what it is when pointed at.
    pub fn dot(&mut self, class: &str, x: f64, y: f64, tip: &str) {
        self.push(format_args!(
            "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{}</title></circle>",
            escaped(tip)
        ));
    }

    pub fn path(&mut self, class: &str, points: impl Iterator<Item = (f64, f64)>) {
        let mut steps = String::new();
        for (x, y) in points {
            let _ = write!(steps, "{}{x:.1} {y:.1}", if steps.is_empty() { "M" } else { "L" });
        }
        self.push(format_args!("<path class=\"line {class}\" d=\"{steps}\"/>"));
    }

    pub fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        self.push(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        ));
    }

    /// The finished element; `style` makes it a picture of its own.
    pub fn finish(self, label: &str, style: Option<&str>) -> String {
        let style = style.map(|css| format!("<style>{css}</style>\n")).unwrap_or_default();
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" \
             aria-label=\"{}\">\n{style}{}</svg>\n",
            self.width,
            self.height,
            escaped(label),
            self.body
        )
    }
}

/// Text that is safe in HTML and SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Round numbers from zero to at least `max`, about `count` steps.
pub fn ticks(max: f64, count: usize) -> Vec<f64> {
    if !(max.is_finite() && max > 0.0) {
        return vec![0.0, 1.0];
    }
    let rough = max / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    (0..=(max / step).ceil() as usize).map(|i| i as f64 * step).collect()
}

/// The numbers 1, 2 and 5 times powers of ten between `low` and `high`, for a logarithmic axis.
pub fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    powers
        .flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)))
        .filter(|tick| (low..=high).contains(tick))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_cover_all() {
        assert_eq!(ticks(97.0, 5), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        for max in [0.3, 1.0, 7.7, 42.0, 1234.5] {
            let ticks = ticks(max, 5);
            assert!(ticks.last().is_some_and(|&last| last >= max));
            assert!((3..=7).contains(&ticks.len()), "{max}: {ticks:?}");
        }
        assert_eq!(ticks(0.0, 5), [0.0, 1.0]);
        assert_eq!(ticks(f64::NAN, 5), [0.0, 1.0]);
    }

    #[test]
    fn logarithmic_ticks_are_round_too() {
        assert_eq!(log_ticks(3.0, 120.0), [5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(log_ticks(1.0, 2.0), [1.0, 2.0]);
    }

    #[test]
    fn text_cannot_break_out() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text("x", 0.0, 0.0, Anchor::Start, "<script>\"&");
        let text = svg.finish("a \"label\"", None);
        assert!(text.contains("&lt;script&gt;&quot;&amp;") && !text.contains("<script>"));
    }
}
