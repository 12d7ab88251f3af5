//! Where stored pages are.

use serde::{Deserialize, Serialize};

/// A machine that lends memory (MobileSwap III-A), by the order in which it was named.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DonorId(u8);

impl DonorId {
    /// How many there can be.
    pub const COUNT: usize = 31;

    /// The first.
    pub const FIRST: DonorId = DonorId(0);

    /// The one of this number; `None` if there are not so many.
    pub const fn new(number: usize) -> Option<DonorId> {
        if number < DonorId::COUNT { Some(DonorId(number as u8)) } else { None }
    }

    /// Its number, less than [`DonorId::COUNT`].
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// How a donor stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DonorState {
    /// It takes pages and gives them back.
    Up,
    /// It gives back what it has and takes nothing more: its link is weak or busy.
    Weak,
    /// It wants its memory back: what it has is to leave it.
    Pressed,
    /// It does not answer, or has lost what it had.
    Lost,
    /// Of two copies there is one, or soon only one: it gives that back and takes nothing more.
    Single,
    /// As [`DonorState::Pressed`], and of all that it has there is another copy.
    Relieved,
}

impl DonorState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            DonorState::Up => "up",
            DonorState::Weak => "weak",
            DonorState::Pressed => "pressed",
            DonorState::Lost => "lost",
            DonorState::Single => "single",
            DonorState::Relieved => "relieved",
        }
    }
}

/// Where a stored page is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// The compressed pool in memory.
    Pool,
    /// The kernel's own zram.
    Kernel,
    /// A file or a block device. Of a space of files: the files themselves.
    Flash,
    /// The memory of another machine.
    Donor(DonorId),
}

impl Tier {
    /// How many kinds of tiers there are.
    pub const COUNT: usize = 4;

    /// Position in arrays of [`Tier::COUNT`] elements, where all donors are one.
    pub fn index(self) -> usize {
        match self {
            Tier::Pool => 0,
            Tier::Kernel => 1,
            Tier::Flash => 2,
            Tier::Donor(_) => Tier::DONORS,
        }
    }

    /// [`Tier::index`] of all donors.
    pub const DONORS: usize = 3;
}
