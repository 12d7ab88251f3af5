//! What a link knows of its donor, by what it has heard of it and when. Sans-IO: the worker of a link asks it, and so does
//! the simulation of many machines.

use std::time::{Duration, Instant};

use clew_core::DonorState;

use crate::Standing;
use crate::patience::Patience;
use crate::wire::DonorFacts;

/// A link is weak after its round trips were long for so long.
const WEAK: Duration = Duration::from_secs(2);

/// What is known of a donor.
#[derive(Clone, Debug)]
pub struct Heard {
    last: Instant,
    /// When its link began, where nothing has come over that yet.
    linked: Option<Instant>,
    /// Since when round trips are long.
    slow_since: Option<Instant>,
    /// It has something of this session.
    has: bool,
}

impl Heard {
    /// Nothing yet; `has` says that it has something of this session, from an earlier link.
    pub fn new(now: Instant, has: bool) -> Heard {
        Heard { last: now, linked: None, slow_since: None, has }
    }

    /// A link to it has begun. That it takes links says nothing of whether it answers.
    pub fn linked(&mut self, now: Instant) {
        self.linked = Some(now);
    }

    /// Something came from it.
    pub fn something(&mut self, now: Instant) {
        (self.last, self.linked) = (now, None);
    }

    /// It has taken something.
    pub fn took(&mut self) {
        self.has = true;
    }

    /// Whether a donor has lost what it had that says, at the beginning of a link, whether it knows the session.
    pub fn has_lost(&self, knows: bool) -> bool {
        self.has && !knows
    }

    /// Whether its link is to be given up.
    pub fn is_silent(&self, now: Instant, patience: &Patience) -> bool {
        now.duration_since(self.linked.unwrap_or(self.last)) > patience.link
    }

    /// It says how it stands, as an answer after `round_trip` or by itself.
    pub fn says(
        &mut self,
        now: Instant,
        facts: DonorFacts,
        round_trip: Option<Duration>,
        patience: &Patience,
        standing: &mut Standing,
    ) {
        standing.free_bytes = facts.free_bytes;
        standing.in_vain = false;
        standing.round_trip = round_trip.or(standing.round_trip);
        if let Some(round_trip) = round_trip {
            let is_slow = round_trip > patience.round_trip;
            self.slow_since = self.slow_since.or(Some(now)).filter(|_| is_slow);
        }
        let is_weak = self.slow_since.is_some_and(|since| now.duration_since(since) >= WEAK);
        (standing.state, standing.why) = match (facts.pressed, is_weak) {
            (true, _) => (DonorState::Pressed, Some("it wants its memory back".to_string())),
            (false, true) => (DonorState::Weak, Some("its link is weak or busy".to_string())),
            (false, false) => (DonorState::Up, None),
        };
    }

    /// Time has passed, and a question of `asked` is not answered yet. Whether the donor is lost.
    pub fn is_lost(&mut self, now: Instant, asked: Option<Instant>, patience: &Patience) -> bool {
        if let Some(asked) = asked.filter(|asked| now.duration_since(*asked) > patience.round_trip)
        {
            self.slow_since.get_or_insert(asked);
        }
        now.duration_since(self.last) > patience.donor
    }
}

impl Standing {
    /// It does not answer.
    pub fn lose(&mut self) {
        (self.state, self.in_vain) = (DonorState::Lost, true);
        self.why.get_or_insert_with(|| "it does not answer".to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_donor_is_up_weak_pressed_or_lost_by_what_is_heard() {
        let (begin, patience) = (Instant::now(), Patience::default());
        let at = |ms| begin + Duration::from_millis(ms);
        let mut heard = Heard::new(begin, false);
        let mut standing = Standing::unknown();
        let mut says = |heard: &mut Heard, ms, trip_ms, pressed| {
            heard.something(at(ms));
            let facts = DonorFacts { free_bytes: ms, pressed, ..DonorFacts::default() };
            let trip = Some(Duration::from_millis(trip_ms));
            heard.says(at(ms), facts, trip, &patience, &mut standing);
            (standing.state, standing.free_bytes)
        };
        assert_eq!(says(&mut heard, 100, 1, false), (DonorState::Up, 100));
        assert_eq!(says(&mut heard, 1000, 300, false), (DonorState::Up, 1000), "once");
        assert_eq!(says(&mut heard, 3000, 300, false), (DonorState::Weak, 3000), "for two seconds");
        assert_eq!(says(&mut heard, 3100, 1, false), (DonorState::Up, 3100));
        assert_eq!(says(&mut heard, 3200, 1, true), (DonorState::Pressed, 3200));
        assert!(!heard.is_silent(at(3900), &patience) && heard.is_silent(at(4000), &patience));
        assert!(!heard.is_lost(at(4600), None, &patience));
        assert!(heard.is_lost(at(4800), None, &patience));
        // Links alone do not make it another.
        for ms in [4700, 5500] {
            heard.linked(at(ms));
            assert!(!heard.is_silent(at(ms + 700), &patience), "{ms}");
            assert!(heard.is_silent(at(ms + 1000), &patience), "{ms}");
        }
        assert!(heard.is_lost(at(5600), None, &patience));
        assert_eq!(says(&mut heard, 5700, 1, false), (DonorState::Up, 5700));
        assert!(!heard.is_silent(at(6400), &patience) && !heard.is_lost(at(7100), None, &patience));
        assert!(!heard.has_lost(false), "it had nothing");
        heard.took();
        assert!(heard.has_lost(false) && !heard.has_lost(true));
    }
}
