//! What a paper says and what came out here, with the tolerance that decides whether it holds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a figure was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Work was done and timed.
    Measured,
    /// A replay with a table of costs, or another stated model.
    Modelled,
    /// It follows from the trace, or from numbers of the paper, by itself.
    Computed,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Measured => "measured",
            Kind::Modelled => "modelled",
            Kind::Computed => "computed",
        })
    }
}

/// When a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Tolerance {
    /// What lies between the figure and `neutral` is the effect: it has the paper's direction, and
    /// between the paper's size / `factor` and the paper's size x `factor`.
    Effect {
        /// The figure if there were no effect.
        neutral: f64,
        /// How much smaller or larger it may be.
        factor: f64,
    },
    /// The figure itself is within this factor of the paper's.
    Factor {
        /// How much smaller or larger it may be.
        factor: f64,
    },
    /// The figure is at most so far from the paper's, in its unit.
    Within {
        /// How far.
        off: f64,
    },
    /// The paper says a direction only: the figure is above this.
    Above {
        /// What it is above.
        limit: f64,
    },
    /// The paper says a direction only: the figure is below this.
    Below {
        /// What it is below.
        limit: f64,
    },
}

impl Tolerance {
    /// Of a ratio: the effect, from half of it to twice of it.
    pub const RATIO: Tolerance = Tolerance::Effect { neutral: 1.0, factor: 2.0 };
    /// Of a saving or an increase in per cent: the same.
    pub const CHANGE: Tolerance = Tolerance::Effect { neutral: 0.0, factor: 2.0 };

    /// Whether `here` holds beside what the `paper` says, if it says a number.
    pub fn holds(self, paper: Option<f64>, here: f64) -> bool {
        let between = |part: f64, factor: f64| part >= 1.0 / factor && part <= factor;
        match (self, paper) {
            (Tolerance::Effect { neutral, factor }, Some(paper)) => {
                between((here - neutral) / (paper - neutral), factor)
            }
            (Tolerance::Factor { factor }, Some(paper)) => between(here / paper, factor),
            (Tolerance::Within { off }, Some(paper)) => (here - paper).abs() <= off,
            (Tolerance::Above { limit }, _) => here > limit,
            (Tolerance::Below { limit }, _) => here < limit,
            (_, None) => false,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tolerance::Effect { neutral, factor } => {
                write!(f, "the distance from {neutral}, by a factor of {factor}")
            }
            Tolerance::Factor { factor } => write!(f, "by a factor of {factor}"),
            Tolerance::Within { off } => write!(f, "off by {off} at most"),
            Tolerance::Above { limit } => write!(f, "above {limit}"),
            Tolerance::Below { limit } => write!(f, "below {limit}"),
        }
    }
}

/// One statement of a paper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// The figure or table: `7`, `T2`, `text`.
    pub figure: String,
    /// What it says, in our words.
    pub claim: String,
    /// Its number; absent where the paper says a direction only, or its number is not readable.
    pub paper: Option<f64>,
    /// Ours; absent where it was not run.
    pub measured: Option<f64>,
    /// Of both.
    pub unit: String,
    /// How ours was found.
    pub kind: Kind,
    /// On which trace.
    pub trace: String,
    /// When it holds.
    pub tolerance: Tolerance,
    /// Whether it does; absent where it was not run.
    pub holds: Option<bool>,
    /// What has to be known to read it; why it was not run.
    pub note: String,
}

impl Claim {
    /// A claim that nobody has looked at yet.
    pub fn new(
        figure: &str,
        claim: impl Into<String>,
        paper: impl Into<Option<f64>>,
        unit: &str,
        tolerance: Tolerance,
    ) -> Claim {
        Claim {
            figure: figure.to_string(),
            claim: claim.into(),
            paper: paper.into(),
            measured: None,
            unit: unit.to_string(),
            kind: Kind::Modelled,
            trace: String::new(),
            tolerance,
            holds: None,
            note: String::new(),
        }
    }

    /// What came out of `trace`. What is no number was not found.
    pub fn found(self, here: Option<f64>, kind: Kind, trace: &str) -> Claim {
        let Some(here) = here.filter(|here| here.is_finite()) else {
            return self.not_run("nothing in the trace to take it from");
        };
        let holds = self.tolerance.holds(self.paper, here);
        Claim {
            measured: Some((here * 1e4).round() / 1e4),
            holds: Some(holds),
            kind,
            trace: trace.to_string(),
            ..self
        }
    }

    /// It was not run, for this reason.
    pub fn not_run(self, reason: &str) -> Claim {
        Claim { note: format!("not run: {reason}"), ..self }
    }

    /// With what has to be known to read it.
    pub fn noted(mut self, note: &str) -> Claim {
        if !self.note.is_empty() {
            self.note += "; ";
        }
        self.note += note;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_by_its_tolerance_alone() {
        let effect = Tolerance::RATIO;
        for (here, holds) in [(1.55, true), (1.28, true), (2.1, true), (1.2, false), (0.9, false)] {
            assert_eq!(effect.holds(Some(1.55), here), holds, "{here}");
        }
        // Less is better: half the time.
        for (here, holds) in [(0.5, true), (0.75, true), (0.8, false), (1.2, false)] {
            assert_eq!(effect.holds(Some(0.5), here), holds, "{here}");
        }
        assert!(Tolerance::CHANGE.holds(Some(-60.0), -31.0));
        assert!(!Tolerance::CHANGE.holds(Some(-60.0), 31.0));
        assert!(Tolerance::Factor { factor: 1.5 }.holds(Some(10.0), 7.0));
        assert!(!Tolerance::Factor { factor: 1.5 }.holds(Some(10.0), 6.0));
        assert!(Tolerance::Within { off: 3.0 }.holds(Some(26.3), 24.0));
        assert!(!Tolerance::Within { off: 2.0 }.holds(Some(26.3), 24.0));
        assert!(Tolerance::Above { limit: 1.0 }.holds(None, 1.1));
        assert!(!Tolerance::Below { limit: 1.0 }.holds(None, 1.0));
        // Without a number of the paper there is nothing to be near to.
        assert!(!effect.holds(None, 1.0));
    }

    #[test]
    fn what_is_no_number_was_not_run() {
        let claim = || Claim::new("7", "c", 1.5, "x", Tolerance::RATIO);
        for here in [None, Some(f64::NAN), Some(f64::INFINITY)] {
            let found = claim().found(here, Kind::Modelled, "t");
            assert_eq!((found.measured, found.holds), (None, None));
            assert!(found.note.starts_with("not run: "), "{}", found.note);
        }
        let found = claim().found(Some(1.4), Kind::Modelled, "t").noted("n");
        assert_eq!((found.measured, found.holds, &*found.note), (Some(1.4), Some(true), "n"));
    }
}
