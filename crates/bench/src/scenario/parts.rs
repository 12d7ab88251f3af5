//! What is done in each scenario: which programs, who is in front, and whose turn it is.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::error::BenchError;
use crate::plan;
use crate::programs::Kind;

/// A scenario of natural programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// Users return to one program after the other.
    Return,
    /// One program works in front, and the memory of all does not fit; the others are visited in
    /// between.
    Pressure,
    /// One program after the other is started, until something has to give.
    Growth,
}

impl Scenario {
    pub const ALL: [Scenario; 3] = [Scenario::Return, Scenario::Pressure, Scenario::Growth];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::Return => "return",
            Scenario::Pressure => "pressure",
            Scenario::Growth => "growth",
        }
    }

    /// Its parts.
    pub fn parts(self) -> Vec<Part> {
        let part = |title, programs: &[Kind], front, passes, returns| Part {
            title,
            programs: programs.to_vec(),
            front,
            passes,
            returns,
        };
        let (tsserver, jupyter) = (Kind::Tsserver, Kind::Jupyter);
        match self {
            // Natural ones first; the last three are synthetic.
            Scenario::Growth => {
                let natural = [
                    tsserver,
                    jupyter,
                    Kind::Redis,
                    Kind::Pyright,
                    Kind::Clangd,
                    Kind::Chromium,
                    Kind::Libreoffice,
                ];
                let synthetic = [Kind::Node, Kind::Sqlite, Kind::Python];
                let programs = [&natural[..], &synthetic].concat();
                vec![part("one after the other", &programs, None, 0, 0)]
            }
            Scenario::Return => {
                let servers = [tsserver, jupyter, Kind::Pyright, Kind::Clangd];
                let programs = [&servers[..], &[Kind::Chromium, Kind::Libreoffice]].concat();
                vec![part("programs in turn", &programs, None, 0, 32)]
            }
            Scenario::Pressure => vec![
                part(
                    "in front: the same data again and again",
                    &[jupyter, tsserver, Kind::Redis],
                    Some(jupyter),
                    2,
                    8,
                ),
                part(
                    "in front: fresh memory all the time",
                    &[Kind::Compile, tsserver, jupyter],
                    Some(Kind::Compile),
                    1,
                    2,
                ),
            ],
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scenario {
    type Err = BenchError;

    fn from_str(text: &str) -> Result<Scenario, BenchError> {
        Scenario::ALL.into_iter().find(|scenario| scenario.name() == text).ok_or_else(|| {
            let names = Scenario::ALL.map(Scenario::name).join(", ");
            BenchError::Setting(format!("there is no scenario '{text}' (there are {names})"))
        })
    }
}

impl Serialize for Scenario {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Programs that run beside each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub title: &'static str,
    pub programs: Vec<Kind>,
    /// Who works in front, and how often before each return of another.
    pub front: Option<Kind>,
    pub passes: usize,
    /// Returns that are measured.
    pub returns: usize,
}

impl Part {
    /// Without what is not `there`; nothing, if then nobody is in front who should be, or nobody is
    /// left who returns.
    pub fn with_only(&self, there: &[Kind]) -> Option<Part> {
        let programs: Vec<Kind> =
            self.programs.iter().copied().filter(|kind| there.contains(kind)).collect();
        let has_front = self.front.is_none_or(|front| programs.contains(&front));
        let returning = programs.iter().any(|&kind| Some(kind) != self.front);
        (has_front && returning).then(|| Part { programs, ..self.clone() })
    }

    /// The program of each measured visit, as its place among the programs.
    pub fn sequence(&self, seed: u64) -> Vec<usize> {
        let front = self.front_place();
        let others: Vec<usize> =
            (0..self.programs.len()).filter(|&place| Some(place) != front).collect();
        let mut sequence = Vec::new();
        for other in plan::switches(seed, others.len(), self.returns) {
            sequence.extend(front.into_iter().cycle().take(self.passes));
            sequence.push(others[other]);
        }
        sequence
    }

    /// Where the program in front is among the programs.
    pub fn front_place(&self) -> Option<usize> {
        self.programs.iter().position(|&kind| Some(kind) == self.front)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.name().parse::<Scenario>().ok(), Some(scenario));
        }
        assert!("shrink".parse::<Scenario>().is_err());
    }

    #[test]
    fn the_one_in_front_works_between_the_returns() {
        for part in [Scenario::Return, Scenario::Pressure].into_iter().flat_map(Scenario::parts) {
            let (sequence, front) = (part.sequence(1), part.front_place());
            let is_front = |place: &&usize| Some(**place) == front;
            assert_eq!(sequence.iter().filter(|place| !is_front(place)).count(), part.returns);
            assert_eq!(sequence.iter().filter(is_front).count(), part.returns * part.passes);
            assert_eq!(sequence, part.sequence(1));
            for place in 0..part.programs.len() {
                assert!(sequence.contains(&place), "{} is never visited", part.programs[place]);
            }
        }
        let pressure = &Scenario::Pressure.parts()[0];
        assert_eq!(pressure.sequence(1)[..2], [0, 0]);
    }

    #[test]
    fn what_is_missing_is_left_out() {
        let [again, fresh] = &Scenario::Pressure.parts()[..] else { panic!("two parts") };
        let there = [Kind::Jupyter, Kind::Redis];
        let left = again.with_only(&there).expect("one returns");
        assert_eq!((left.programs.as_slice(), left.front), (&there[..], Some(Kind::Jupyter)));
        assert_eq!(fresh.with_only(&there), None);
        assert_eq!(again.with_only(&[Kind::Jupyter]), None);
        assert_eq!(Scenario::Return.parts()[0].with_only(&[]), None);
    }
}
