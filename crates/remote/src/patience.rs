//! How long a donor is waited for.

use std::time::Duration;

/// How long a donor may be silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Before its link is given up and made anew.
    pub link: Duration,
    /// Before a read cannot be answered, and the donor counts as lost.
    pub donor: Duration,
    /// A round trip that is longer than this, for two seconds, is that of a weak or busy link.
    pub round_trip: Duration,
    /// Writes are given up with the donor, too: somebody else has a copy.
    pub gives_up_writes: bool,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience {
            link: Duration::from_millis(750),
            donor: Duration::from_millis(1500),
            round_trip: Duration::from_millis(250),
            gives_up_writes: false,
        }
    }
}
