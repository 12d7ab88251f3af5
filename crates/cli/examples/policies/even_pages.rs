//! Rejects every second page.

use clew_core::{Admission, Admit, Candidate, Observe, View};
use clew_policy::plain;
use clew_policy::schemes::About;

#[derive(Default)]
struct EvenPages;

plain!(EvenPages as dyn Admission, About::of("even-pages", "every second page"));

impl Observe for EvenPages {}

impl Admission for EvenPages {
    fn admit(&mut self, candidate: Candidate<'_>, _: &View<'_>) -> Admit {
        assert!(!candidate.sample.is_empty(), "it sees how the page begins");
        match candidate.page.vpn().0.is_multiple_of(2) {
            true => Admit::Yes,
            false => Admit::No,
        }
    }
}
