//! What is read stays near, what is written goes to the cloud.
//!
//! Source: Chae et al., "CloudSwap: A cloud-assisted swap mechanism for mobile devices" (CCGrid 2016), as MobileSwap
//! IV-A has it for comparison: "some pages are swapped to the cloud, ..., while some pages are swapped to local"; which,
//! CloudSwap says: read-intensive pages to the flash of the device, which is quick to read and wears when it is written,
//! write-intensive ones to the cloud.
//!
//! A page is write-intensive if more of its uses were writes than reads, since it entered DRAM as far as is known. Uses
//! are counted up to 15 and halved then, so that what was long ago weighs less. Live, only a fault says whether it was
//! a write. Where the one place is missing or full, the other takes what there is.
//!
//! Memory: one byte a page that was used, in a map.

use std::collections::HashMap;

use clew_core::{
    AppId, Cause, DonorId, Event, Group, Metric, Observe, PageId, Place, Placement, Tier, View,
};
use serde::{Deserialize, Serialize};

use super::donors::{first_with_room, to_donor};
use super::flash::to_flash;
use crate::schemes::{About, Answer};

/// Uses that are counted of each kind.
const MOST_USES: u8 = 15;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Pages travel and lie compressed, here and there.
    pub compressed: bool,
}

impl Answer<dyn Placement> for Params {
    fn about(&self) -> About {
        About {
            tiers: &[Tier::Donor(DonorId::FIRST)],
            may_use: &[Tier::Flash],
            ..About::of("read-local", "what is read to flash, what is written to a donor")
        }
    }

    fn build(&self) -> Box<dyn Placement> {
        Box::new(ReadLocal { params: *self, uses: HashMap::new(), local: 0, cloud: 0 })
    }
}

/// The policy. See the module.
pub struct ReadLocal {
    params: Params,
    /// Reads in the low four bits, writes in the high ones.
    uses: HashMap<PageId, u8>,
    local: u64,
    cloud: u64,
}

impl ReadLocal {
    fn used(&mut self, page: PageId, write: bool) {
        let uses = self.uses.entry(page).or_default();
        let (mut reads, mut writes) = (*uses & 0xf, *uses >> 4);
        if reads.max(writes) == MOST_USES {
            (reads, writes) = (reads / 2, writes / 2);
        }
        if write {
            writes += 1;
        } else {
            reads += 1;
        }
        *uses = reads | writes << 4;
    }

    fn is_written(&self, page: PageId) -> bool {
        self.uses.get(&page).is_some_and(|uses| uses >> 4 > *uses & 0xf)
    }
}

impl Observe for ReadLocal {
    fn on_event(&mut self, event: &Event, _view: &View<'_>) {
        match *event {
            Event::Access { page, write, .. } => self.used(page, write),
            Event::Freed { run } => match run.count as usize > self.uses.len() {
                true => self.uses.retain(|page, _| !run.contains(*page)),
                false => run.pages().for_each(|page| {
                    self.uses.remove(&page);
                }),
            },
            Event::SpaceEnd { space } => self.uses.retain(|page, _| page.space() != space),
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        [
            (
                "read_local_local_pages",
                self.local,
                "pages placed on flash, as read more than written",
            ),
            (
                "read_local_cloud_pages",
                self.cloud,
                "pages placed at a donor, as written more than read",
            ),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Placement for ReadLocal {
    fn place(&mut self, group: &Group, _app: AppId, cause: Cause, view: &View<'_>) -> Place {
        if cause == Cause::Evicted {
            return Place::Stay;
        }
        let flash = view.facts.tiers.get(&Tier::Flash);
        let has_flash = flash.is_some_and(|facts| facts.used_bytes < facts.limit_bytes);
        let local = has_flash.then(|| to_flash(self.params.compressed));
        let cloud = first_with_room(view).map(|donor| to_donor(donor, self.params.compressed));
        let is_written = group.pages.iter().any(|page| self.is_written(*page));
        let place = if is_written { cloud.or(local) } else { local.or(cloud) };
        let pages = group.pages.len() as u64;
        match place {
            Some(place) if Some(place) == local => self.local += pages,
            Some(_) => self.cloud += pages,
            None => {}
        }
        place.unwrap_or(Place::Stay)
    }
}
