//! What policies are told of donors: how much room each has, and when one stands otherwise than before. Sans-IO: the
//! daemon's governor asks it, and so does the simulation of many machines.
//!
//! How full a donor is, its heartbeat says: what others have there counts. One that is not up has no room.

use std::collections::BTreeMap;

use clew_core::{DonorId, DonorState, TierFacts};

use crate::Standing;

/// What was told of each donor.
#[derive(Clone, Debug, Default)]
pub struct Told {
    states: BTreeMap<DonorId, DonorState>,
}

impl Told {
    /// A donor was looked at, and `log` is what lies there: what policies are to know of its room, and how it stands, if
    /// that has changed. `is_new`: that nothing was heard of it yet does not say that it is lost.
    pub fn look(
        &mut self,
        donor: DonorId,
        standing: &Standing,
        log: TierFacts,
        is_new: bool,
    ) -> (TierFacts, Option<DonorState>) {
        if is_new && standing.state == DonorState::Lost && !self.states.contains_key(&donor) {
            return (room(standing, log), None);
        }
        let before = self.states.insert(donor, standing.state);
        (room(standing, log), Some(standing.state).filter(|state| before != Some(*state)))
    }
}

/// What a donor would take, with what it has.
fn room(standing: &Standing, log: TierFacts) -> TierFacts {
    let free = match standing.state {
        DonorState::Up => standing.free_bytes,
        DonorState::Weak
        | DonorState::Pressed
        | DonorState::Lost
        | DonorState::Single
        | DonorState::Relieved => 0,
    };
    let limit_bytes = log.limit_bytes.min(log.used_bytes.saturating_add(free));
    TierFacts { limit_bytes, free_bytes: Some(free), ..log }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_has_the_room_that_it_says_and_none_when_it_is_not_up() {
        let (used_bytes, limit_bytes, limit_pages) = (100, 1000, u64::MAX);
        let log =
            TierFacts { used_bytes, limit_bytes, pages: 7, limit_pages, ..TierFacts::default() };
        let mut standing =
            Standing { state: DonorState::Up, free_bytes: 300, ..Standing::unknown() };
        assert_eq!(room(&standing, log).limit_bytes, 400);
        standing.free_bytes = 5000;
        let full = TierFacts { free_bytes: Some(5000), ..log };
        assert_eq!(room(&standing, log), full, "what is free beyond what may be used is said");
        let lends_nothing = [
            DonorState::Weak,
            DonorState::Pressed,
            DonorState::Lost,
            DonorState::Single,
            DonorState::Relieved,
        ];
        for state in lends_nothing {
            standing.state = state;
            let none = TierFacts { limit_bytes: 100, free_bytes: Some(0), ..log };
            assert_eq!(room(&standing, log), none);
        }
    }

    #[test]
    fn what_has_changed_is_told_once() {
        let mut told = Told::default();
        let mut standing = Standing::unknown();
        let mut look = |told: &mut Told, state, is_new| {
            standing.state = state;
            told.look(DonorId::FIRST, &standing, TierFacts::default(), is_new).1
        };
        let lost = Some(DonorState::Lost);
        assert_eq!(look(&mut told, DonorState::Lost, true), None, "it was not reached yet");
        assert_eq!(look(&mut told, DonorState::Lost, false), lost);
        assert_eq!(look(&mut told, DonorState::Lost, false), None);
        assert_eq!(look(&mut told, DonorState::Up, true), Some(DonorState::Up));
        assert_eq!(look(&mut told, DonorState::Lost, true), lost, "it was there");
    }
}
