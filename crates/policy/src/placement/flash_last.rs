//! To the pool first, and from there to flash, where there is flash: what leaves its program is compressed into
//! the pool, what is evicted goes on. What the pool does not admit goes to flash at once. Without flash this is
//! [`super::pool`].
//!
//! Source: Ariadne 4.2, figure 4, where what goes on stays compressed; ElasticZRAM 2.1 and 2.2.1 ("when ZRAM is
//! almost full, the page is decompressed and written to the storage device") for `compressed = false`.

use clew_core::{AppId, Cause, Group, Observe, Place, Placement, Tier, View};
use serde::{Deserialize, Serialize};

use super::flash::to_flash;
use crate::schemes::{About, Answer};

/// The policy, which is its parameters. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlashLast {
    /// What goes to flash stays compressed.
    pub compressed: bool,
}

impl Default for FlashLast {
    fn default() -> FlashLast {
        FlashLast { compressed: true }
    }
}

impl Answer<dyn Placement> for FlashLast {
    fn about(&self) -> About {
        let form = if self.compressed { "" } else { ", decompressed," };
        let shown = format!("pool, then flash{form} where there is one");
        About { tiers: &[Tier::Pool], may_use: &[Tier::Flash], ..About::of("flash-last", shown) }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(*self)
    }
}

impl Observe for FlashLast {}

impl Placement for FlashLast {
    fn place(&mut self, _group: &Group, _app: AppId, cause: Cause, view: &View<'_>) -> Place {
        match cause {
            Cause::SwapOut => Place::Tier(Tier::Pool),
            Cause::Rejected | Cause::Evicted if view.facts.tiers.contains_key(&Tier::Flash) => {
                to_flash(self.compressed)
            }
            Cause::Rejected | Cause::Evicted => Place::Stay,
        }
    }
}
