//! To the pool first, and from there to flash, where there is flash (Ariadne 4.2, figure 4): what leaves
//! its program is compressed into the pool, what is evicted goes on, as it is. What the pool does not
//! admit goes to flash at once. Without flash this is [`super::pool`].

use clew_core::{AppId, Cause, Group, Observe, Place, Placement, Tier, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct FlashLast;

plain!(
    FlashLast as dyn Placement,
    About {
        tiers: &[Tier::Pool],
        may_use: &[Tier::Flash],
        ..About::of("flash-last", "pool, then flash where there is one")
    }
);

impl Observe for FlashLast {}

impl Placement for FlashLast {
    fn place(&mut self, _group: &Group, _app: AppId, cause: Cause, view: &View<'_>) -> Place {
        match cause {
            Cause::SwapOut => Place::Tier(Tier::Pool),
            Cause::Rejected | Cause::Evicted if view.facts.tiers.contains_key(&Tier::Flash) => {
                Place::Tier(Tier::Flash)
            }
            Cause::Rejected | Cause::Evicted => Place::Stay,
        }
    }
}
