//! Every page may enter the pool: zram and, for anonymous pages, zswap (ezswap II-C).

use clew_core::{Admission, Admit, Candidate, Observe, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct AdmitAll;

plain!(AdmitAll as dyn Admission, About::of("all", "every anonymous page"));

impl Observe for AdmitAll {}

impl Admission for AdmitAll {
    fn admit(&mut self, _candidate: Candidate<'_>, _view: &View<'_>) -> Admit {
        Admit::Yes
    }

    fn admits_all(&self) -> bool {
        true
    }
}
