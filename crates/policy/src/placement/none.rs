//! No place but DRAM: the placement of `dram`.

use clew_core::{AppId, Cause, Group, Observe, Place, Placement, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct NoPlace;

plain!(NoPlace as dyn Placement, About { idle: true, ..About::of("none", "nowhere") });

impl Observe for NoPlace {}

impl Placement for NoPlace {
    fn place(&mut self, _group: &Group, _app: AppId, _cause: Cause, _view: &View<'_>) -> Place {
        Place::Stay
    }
}
