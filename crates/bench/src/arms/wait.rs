//! What faults waited for, as Clew's daemon counts it.

use clew_live::control::status::Status;
use serde::Serialize;

/// One thing that faults waited for.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Wait {
    /// A cause in the daemon's account of faults on stored pages (`held`, `lock`, `events`, `queue`,
    /// `codec`, `put`); or all of other faults: `fresh`, first touches of fresh memory; `flash`, those that
    /// waited for the device, until their page was there.
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
    let alone = [("fresh", &status.fresh_fault_latency), ("flash", &status.flash_fault_latency)];
    let alone = alone.into_iter().map(|(cause, latency)| Wait {
        cause: cause.to_string(),
        faults: latency.count,
        seconds: latency.seconds,
        ..Wait::default()
    });
    let has_some = |wait: &Wait| wait.cause != "flash" || status.flash.is_some();
    stored.chain(alone.filter(has_some)).collect()
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
        let flash = Status { flash: Some(Default::default()), ..status(1, 0.5, 1) };
        assert_eq!(of(&flash).last().map(|wait| wait.cause.clone()), Some("flash".to_string()));
    }
}
