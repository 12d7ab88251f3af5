//! What policies may look at: read-only facts that the engine keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::app::{AppId, AppStats, SpaceId};
use crate::page::{Hotness, PageId};
use crate::tier::{DonorId, DonorState, Tier};
use crate::units::Ns;

/// How full a tier is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierFacts {
    /// Bytes used, allocator overhead included.
    pub used_bytes: u64,
    /// Bytes it may use.
    pub limit_bytes: u64,
    /// Pages stored.
    pub pages: u64,
    /// Pages it may store (what zram calls disksize).
    pub limit_pages: u64,
    /// Of a donor: what is free there, bytes, also beyond what may be used of it. `None` where nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
}

impl TierFacts {
    /// Whether more than one part in `parts` of it is free.
    pub fn has_part_free(&self, parts: u64) -> bool {
        let room = self.limit_bytes.saturating_sub(self.used_bytes);
        room > self.limit_bytes / parts && self.pages < self.limit_pages
    }
}

/// The device that flash is on, as it was when it was last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Bytes used of it by everybody: of the file system, or of a device that is Clew's alone.
    pub used_bytes: u64,
    /// Bytes it has.
    pub total_bytes: u64,
    /// Bytes that were written to it, as far as anybody counts.
    pub written_bytes: u64,
}

/// How many pages of a space or an app are where. Moving pages count as resident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Resident or parked.
    pub resident: u64,
    /// Stored, by [`Tier::index`].
    #[serde(deserialize_with = "by_tier")]
    pub stored: [u64; Tier::COUNT],
}

/// What was written when there were fewer tiers has nothing in those that came since.
fn by_tier<'de, D: Deserializer<'de>>(from: D) -> Result<[u64; Tier::COUNT], D::Error> {
    let written = Vec::<u64>::deserialize(from)?;
    let mut stored = [0; Tier::COUNT];
    match stored.get_mut(..written.len()) {
        Some(known) => known.copy_from_slice(&written),
        None => return Err(D::Error::invalid_length(written.len(), &"one number a tier")),
    }
    Ok(stored)
}

impl PageCounts {
    /// Stored pages, all tiers.
    pub fn stored_total(&self) -> u64 {
        self.stored.iter().sum()
    }

    /// Stored pages of one tier.
    pub fn stored_in(&self, tier: Tier) -> u64 {
        self.stored[tier.index()]
    }
}

/// A launch or relaunch that is going on: it begins when its app comes to the front, and ends with
/// the first complete response, when the app is sent back, or after ten seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starting {
    /// The app.
    pub app: AppId,
    /// A relaunch (hot launch); otherwise a launch.
    pub relaunch: bool,
    /// Since when.
    pub since: Ns,
}

/// Everything that several policies need and nobody decides: kept by the engine.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The present time.
    pub now: Ns,
    /// Bytes a page.
    pub page_bytes: u32,
    /// Apps alive.
    pub apps: BTreeMap<AppId, AppStats>,
    /// The owner of each address space, indexed by space.
    pub space_app: Vec<Option<AppId>>,
    /// Of these spaces, those that hold clean pages of files: they may be dropped instead of written, and
    /// are read again from their file.
    pub file_spaces: BTreeSet<SpaceId>,
    /// Where the pages of each app are (ElasticZRAM 3.3 asks for its share of the pool).
    pub app_pages: BTreeMap<AppId, PageCounts>,
    /// The apps in front: one at most of each user, whose desktops are machines of their own.
    pub fronts: Vec<AppId>,
    /// The launch or relaunch that is going on, if any.
    pub starting: Option<Starting>,
    /// Every touch is told (a trace). Otherwise touches of resident pages are seen by a sample only
    /// (live), and a resident page of which nothing was told may have been used.
    pub all_touches_seen: bool,
    /// The pages each app was seen to use during its last relaunches, in the order of their first
    /// use, newest relaunch last.
    pub launch_sets: BTreeMap<AppId, Vec<Vec<PageId>>>,
    /// The tiers that exist.
    pub tiers: BTreeMap<Tier, TierFacts>,
    /// The device that flash is on, once it was looked at.
    pub device: Option<DeviceFacts>,
    /// How each donor stands; how full it is, [`Facts::tiers`] say.
    pub donors: BTreeMap<DonorId, DonorState>,
    /// CPU load of the machine, 0 to 1, over the last second. In a replay: what swapping takes of one
    /// CPU (modelled or measured, as its time is).
    pub cpu_load: f32,
}

impl Default for Facts {
    fn default() -> Facts {
        Facts {
            now: Ns::default(),
            page_bytes: 4096,
            apps: BTreeMap::new(),
            space_app: Vec::new(),
            file_spaces: BTreeSet::new(),
            app_pages: BTreeMap::new(),
            fronts: Vec::new(),
            starting: None,
            all_touches_seen: false,
            launch_sets: BTreeMap::new(),
            tiers: BTreeMap::new(),
            device: None,
            donors: BTreeMap::new(),
            cpu_load: 0.0,
        }
    }
}

impl Facts {
    /// The app that owns `space`.
    pub fn app_of(&self, space: SpaceId) -> Option<AppId> {
        self.space_app.get(space.0 as usize).copied().flatten()
    }

    /// Whether `app` is in front.
    #[inline]
    pub fn is_in_front(&self, app: AppId) -> bool {
        self.fronts.contains(&app)
    }

    /// Whether the pages of `space` are clean pages of files (ezswap III-A).
    #[inline]
    pub fn is_file(&self, space: SpaceId) -> bool {
        !self.file_spaces.is_empty() && self.file_spaces.contains(&space)
    }

    /// The address spaces of `app`, in the order of their numbers.
    pub fn spaces_of(&self, app: AppId) -> impl Iterator<Item = SpaceId> {
        let owners = self.space_app.iter().enumerate();
        owners
            .filter(move |&(_, owner)| *owner == Some(app))
            .map(|(number, _)| SpaceId(number as u32))
    }
}

/// Where pages are now; answered from the page table.
pub trait PageFacts {
    /// The tier that holds the page's only copy, or `None` while it is resident or unknown.
    fn tier(&self, page: PageId) -> Option<Tier>;

    /// How many pages of `space` are where; in constant time, as it is asked after most events.
    fn counts(&self, space: SpaceId) -> PageCounts;

    /// Visits the pages of `space` in address order: with `None` those that are resident and can
    /// be taken out, with their tier those that are stored. Pages that are moving are left out.
    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>));

    /// Whether a stored copy of this resident page may be kept. True where it costs too much to say.
    fn may_have_copy(&self, _page: PageId) -> bool {
        true
    }

    /// The frame of the pool that a page's zpage is in, and what that holds now. `None` where the page is not in
    /// the pool, or takes no part of a frame there (a page of one repeated word), and always where frames are
    /// nothing that the pool shares out and gives back as such.
    fn frame(&self, _page: PageId) -> Option<FrameFacts> {
        None
    }
}

/// A frame of a pool whose frames are shared by a few zpages each (z3fold), and can be evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameFacts {
    /// Which one. Of one that was given back the number is used again.
    pub frame: u32,
    /// Zpages in it.
    pub zpages: u8,
    /// Chunks of the largest zpage that it could take.
    pub free_chunks: u8,
    /// Chunks that its zpages have, of 64.
    #[serde(default)]
    pub used_chunks: u8,
}

/// How many pages of a class are where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounts {
    /// Resident.
    pub resident: u64,
    /// Stored, or on their way out.
    pub out: u64,
}

/// Where pages are that are out of DRAM, as far as the keeper of the lists tells them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// In the pool, or on their way out.
    Pool,
    /// In another tier.
    Beyond,
}

/// The present class of a page, resident or stored; answered by whoever keeps the lists.
pub trait Classes {
    /// `None` for a page that is not on any list.
    fn class(&self, page: PageId) -> Option<Hotness>;

    /// How many pages of `app` are of this class, in constant time. None, where no classes are
    /// kept.
    fn class_counts(&self, _app: AppId, _class: Hotness) -> ClassCounts {
        ClassCounts::default()
    }

    /// Visits the pages of `app` and this class that are out of DRAM at `place`, the least recently
    /// used first, until told to break. Nothing, where no classes are kept.
    fn for_each_out(
        &self,
        _app: AppId,
        _class: Hotness,
        _place: Out,
        _visit: &mut dyn FnMut(PageId) -> ControlFlow<()>,
    ) {
    }
}

/// What a policy sees when it is told or asked something.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Facts about apps and tiers.
    pub facts: &'a Facts,
    /// Where pages are.
    pub pages: &'a dyn PageFacts,
    /// Classes of pages; `None` while the keeper of the lists itself is asked.
    pub classes: Option<&'a dyn Classes>,
}

impl View<'_> {
    /// The app that owns `page`.
    pub fn app_of(&self, page: PageId) -> Option<AppId> {
        self.facts.app_of(page.space())
    }

    /// Whether `page` is a clean page of a file.
    #[inline]
    pub fn is_file(&self, page: PageId) -> bool {
        self.facts.is_file(page.space())
    }

    /// Whether `page` belongs to an app in front.
    pub fn is_foreground(&self, page: PageId) -> bool {
        !self.facts.fronts.is_empty()
            && self.app_of(page).is_some_and(|app| self.facts.is_in_front(app))
    }
}
