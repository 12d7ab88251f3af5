//! What faults waited for, as Clew's daemon counts it.

use clew_live::control::status::Status;
use serde::Serialize;

/// One thing that faults waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wait {
    /// A cause in the daemon's account of faults on stored pages (`held`, `lock`, `events`, `queue`,
    /// `codec`, `put`); or `fresh`, all of first touches of fresh memory.
    pub cause: String,
    /// Faults that waited, all of them.
    pub faults: u64,
    /// All together, seconds.
    pub seconds: f64,
    /// Faults of more than 100 us that spent the most of it so, and what they spent so, seconds.
    pub slow_faults: u64,
    pub slow_seconds: f64,
}

impl Wait {
    /// What was waited for since an earlier look.
    fn since(&self, before: &Wait) -> Wait {
        Wait {
            cause: self.cause.clone(),
            faults: self.faults - before.faults,
            seconds: self.seconds - before.seconds,
            slow_faults: self.slow_faults - before.slow_faults,
            slow_seconds: self.slow_seconds - before.slow_seconds,
        }
    }
}

/// What faults waited for since the daemon began.
pub(super) fn of(status: &Status) -> Vec<Wait> {
    let stored = status.fault_account.causes.iter().map(|cause| Wait {
        cause: cause.cause.clone(),
        faults: status.fault_account.faults,
        seconds: cause.seconds,
        slow_faults: cause.slow_faults,
        slow_seconds: cause.slow_seconds,
    });
    let fresh = &status.fresh_fault_latency;
    let fresh = Wait {
        cause: "fresh".to_string(),
        faults: fresh.count,
        seconds: fresh.seconds,
        ..Wait::default()
    };
    stored.chain([fresh]).collect()
}

/// What was waited for between two looks.
pub(crate) fn between(before: &[Wait], after: &[Wait]) -> Vec<Wait> {
    let then = |wait: &Wait| before.iter().find(|one| one.cause == wait.cause);
    after.iter().map(|wait| then(wait).map_or(wait.clone(), |then| wait.since(then))).collect()
}

#[cfg(test)]
mod tests {
    use clew_live::faults::account::{CauseStatus, FaultAccount};
    use clew_live::faults::latency::Latency;

    use super::*;

    #[test]
    fn waits_are_those_between_two_looks() {
        let status = |faults, seconds, fresh| Status {
            fault_account: FaultAccount {
                faults,
                slow_faults: 0,
                causes: vec![CauseStatus {
                    cause: "lock".to_string(),
                    seconds,
                    ..Default::default()
                }],
            },
            fresh_fault_latency: Latency { count: fresh, ..Latency::default() },
            ..Status::default()
        };
        let (before, after) = (of(&status(10, 0.5, 3)), of(&status(14, 0.75, 10)));
        let waits = between(&before, &after);
        assert_eq!(waits.len(), 2);
        assert_eq!((waits[0].cause.as_str(), waits[0].faults, waits[0].seconds), ("lock", 4, 0.25));
        assert_eq!((waits[1].cause.as_str(), waits[1].faults), ("fresh", 7));
        assert_eq!(between(&[], &after), after);
    }
}
