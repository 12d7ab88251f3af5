//! Everything to flash: swapping to a partition of it, as systems without zram do.
//!
//! Source: ElasticZRAM 4.1, "Flash-swap", which "stores the swapped-out pages in the local storage". A page lies
//! there as it is, uncompressed, unless the scheme says otherwise. Nothing enters the pool.

use clew_core::{AppId, Cause, Group, Observe, Place, Placement, Tier, View};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// The policy, which is its parameters. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToFlash {
    /// What goes to flash is compressed there.
    pub compressed: bool,
}

/// To flash, in the form that a scheme wants.
pub(super) fn to_flash(compressed: bool) -> Place {
    if compressed { Place::Tier(Tier::Flash) } else { Place::FlashPages }
}

impl Answer<dyn Placement> for ToFlash {
    fn about(&self) -> About {
        let form = if self.compressed { "compressed" } else { "uncompressed" };
        About { tiers: &[Tier::Flash], ..About::of("flash", format!("flash, {form}")) }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(*self)
    }
}

impl Observe for ToFlash {}

impl Placement for ToFlash {
    fn place(&mut self, _group: &Group, _app: AppId, cause: Cause, view: &View<'_>) -> Place {
        match cause {
            Cause::SwapOut | Cause::Rejected if view.facts.tiers.contains_key(&Tier::Flash) => {
                to_flash(self.compressed)
            }
            Cause::SwapOut | Cause::Rejected | Cause::Evicted => Place::Stay,
        }
    }
}
