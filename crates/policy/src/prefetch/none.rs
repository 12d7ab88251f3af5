//! Nothing comes back before it is asked for: page-cluster 0, what Android sets for zram.

use clew_core::{Observe, PageId, Prefetch, Trigger, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct NoPrefetch;

plain!(NoPrefetch as dyn Prefetch, About { idle: true, ..About::of("none", "nothing") });

impl Observe for NoPrefetch {}

impl Prefetch for NoPrefetch {
    fn pick_prefetch(&mut self, _trigger: Trigger, _view: &View<'_>, _out: &mut Vec<PageId>) {}
}
