//! What came of a simulation, and what must be so at each of its steps.

use std::collections::BTreeMap;

use serde::Serialize;

/// Mean share in use below which donors are not compared: the first page of the first program is on one of them.
const COMPARED: f64 = 0.1;

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Programs started.
    pub launches: u64,
    /// Programs brought to the front again.
    pub relaunches: u64,
    /// Units that went to a donor.
    pub pages_out: u64,
    /// Units that came back.
    pub pages_back: u64,
    /// Of these, those that a program waited for.
    pub faults: u64,
    /// Times that no donor took a unit.
    pub not_taken: u64,
    /// Units of which a second copy was made again.
    pub mended_pages: u64,
    /// Programs that ended because a page of theirs could not be had.
    pub crashed: u64,
    /// Programs that were ended, by the reason that their user is told.
    pub ended: BTreeMap<&'static str, u64>,
    /// Times that a donor left with all that it had.
    pub left: u64,
    /// Times that a donor was out of reach for a while.
    pub cut: u64,
    /// Times that a link was weak.
    pub weak: u64,
    /// Times that a donor wanted its memory back.
    pub pressed: u64,
    /// Areas that a donor took back itself.
    pub taken_back: u64,
    #[serde(skip)]
    pub(super) defect: Option<String>,
}

impl Counts {
    /// Something that must never be.
    pub fn defect(&mut self, what: &str) {
        self.defect.get_or_insert_with(|| what.to_string());
    }
}

/// How evenly donors are used: the largest share in use over the mean one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Balance {
    /// The worst.
    pub worst: f64,
    /// When that was, seconds.
    pub worst_at_s: u64,
    /// The mean.
    pub mean: f64,
    /// At the end.
    pub last: f64,
    /// Mean share in use at the end.
    pub share: f64,
    #[serde(skip)]
    looks: u64,
}

impl Balance {
    /// A look at what part of what it lends each donor has in use that takes something.
    pub fn look(&mut self, at_s: u64, shares: impl Iterator<Item = f64>) {
        let (mut count, mut sum, mut most) = (0u64, 0.0, 0.0f64);
        for share in shares {
            count += 1;
            sum += share;
            most = most.max(share);
        }
        let mean = sum / count.max(1) as f64;
        if mean < COMPARED {
            return;
        }
        let ratio = most / mean;
        if ratio > self.worst {
            (self.worst, self.worst_at_s) = (ratio, at_s);
        }
        self.looks += 1;
        self.mean += (ratio - self.mean) / self.looks as f64;
        (self.last, self.share) = (ratio, mean);
    }
}

/// What came of a simulation. Everything is modelled but what is decided.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// `simulated`.
    pub kind: &'static str,
    /// The scheme.
    pub scheme: String,
    /// Machines that borrow.
    pub clients: usize,
    /// Machines that lend.
    pub donors: usize,
    /// Donors that each machine that borrows knows.
    pub known: usize,
    /// Copies of each page.
    pub copies: usize,
    /// The seed.
    pub seed: u64,
    /// How long, simulated hours.
    pub hours: f64,
    /// What each donor lends, bytes: the smallest and the largest.
    pub donor_bytes: [u64; 2],
    /// Bytes of a unit: what is called a page here.
    pub unit_bytes: u64,
    /// At donors at the end, units.
    pub stored_pages: u64,
    /// Things that happened.
    pub steps: u64,
    /// How evenly donors are used.
    pub balance: Balance,
    /// What was counted.
    #[serde(flatten)]
    pub counts: Counts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balance_is_the_largest_share_over_the_mean() {
        let mut balance = Balance::default();
        balance.look(1, [0.05, 0.01].into_iter());
        assert_eq!(balance, Balance::default(), "hardly anything is in use");
        balance.look(2, [0.2, 0.4, 0.6].into_iter());
        balance.look(3, [0.5, 0.5].into_iter());
        assert!((balance.worst - 1.5).abs() < 1e-9 && balance.worst_at_s == 2);
        assert!((balance.mean - 1.25).abs() < 1e-9 && balance.last == 1.0 && balance.share == 0.5);
    }
}
