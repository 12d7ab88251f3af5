//! To a donor, page by page: swapping to a swap area that lies in another machine's memory.
//!
//! Source: MobileSwap IV-A, "RemoteSwap": "similar to LocalSwap, except that partitions (Linux swap files) are built
//! remotely". The first donor with room takes what leaves, whosever it is, as the kernel fills swap areas of different
//! priority. What becomes of the apps of a donor that is lost, nobody decides: who needs a page of it cannot go on.

use clew_core::{AppId, Cause, DonorId, DonorState, Group, Observe, Place, Placement, Tier, View};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// The policy, which is its parameters. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToDonors {
    /// Pages travel compressed, and lie so at the donor.
    pub compressed: bool,
}

/// To a donor, in the form that a scheme wants.
pub(super) fn to_donor(donor: DonorId, compressed: bool) -> Place {
    if compressed { Place::Tier(Tier::Donor(donor)) } else { Place::DonorPages(donor) }
}

/// The first donor that takes something.
pub(super) fn first_with_room(view: &View<'_>) -> Option<DonorId> {
    view.facts.tiers.iter().find_map(|(tier, facts)| match tier {
        Tier::Donor(donor) => {
            let is_up = view.facts.donors.get(donor) == Some(&DonorState::Up);
            (is_up && facts.used_bytes < facts.limit_bytes).then_some(*donor)
        }
        _ => None,
    })
}

impl Answer<dyn Placement> for ToDonors {
    fn about(&self) -> About {
        let form = if self.compressed { ", compressed" } else { "" };
        About {
            tiers: &[Tier::Donor(DonorId::FIRST)],
            page_by_page: true,
            ..About::of("donors", format!("the first donor with room, page by page{form}"))
        }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(*self)
    }
}

impl Observe for ToDonors {}

impl Placement for ToDonors {
    fn place(&mut self, _group: &Group, _app: AppId, cause: Cause, view: &View<'_>) -> Place {
        match (cause, first_with_room(view)) {
            (Cause::SwapOut | Cause::Rejected, Some(donor)) => to_donor(donor, self.compressed),
            _ => Place::Stay,
        }
    }
}
