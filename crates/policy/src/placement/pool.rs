//! Everything to the compressed pool: zram. What the pool does not admit stays resident.

use clew_core::{AppId, Cause, Group, Observe, Place, Placement, Tier, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct ToPool;

plain!(ToPool as dyn Placement, About { tiers: &[Tier::Pool], ..About::of("pool", "pool") });

impl Observe for ToPool {}

impl Placement for ToPool {
    fn place(&mut self, _group: &Group, _app: AppId, cause: Cause, _view: &View<'_>) -> Place {
        match cause {
            Cause::SwapOut => Place::Tier(Tier::Pool),
            Cause::Rejected | Cause::Evicted => Place::Stay,
        }
    }
}
