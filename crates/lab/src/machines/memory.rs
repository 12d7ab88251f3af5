//! Where the pages of a simulated machine are.

use clew_core::{DonorId, PageCounts, PageFacts, PageId, SpaceId, Tier, Vpn};

/// Where a page lies at a donor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lies {
    /// Which of its machine's donors.
    pub tier: u8,
    /// Where there.
    pub slot: u32,
    /// What it holds: a number that nothing else has.
    pub version: u64,
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum At {
    Resident,
    /// On its way out, by the order that has this number; resident still.
    Leaving(u64),
    Stored(Lies),
}

struct Space {
    pages: Vec<At>,
    counts: PageCounts,
}

/// The pages of all programs of a machine.
#[derive(Default)]
pub struct Memory {
    spaces: Vec<Option<Space>>,
    resident: u64,
}

fn tier(lies: Lies) -> Tier {
    Tier::Donor(DonorId::new(lies.tier.into()).unwrap_or(DonorId::FIRST))
}

impl Memory {
    /// A new space of so many resident pages.
    pub fn start(&mut self, pages: u32) -> SpaceId {
        let counts = PageCounts { resident: pages.into(), ..PageCounts::default() };
        let pages = vec![At::Resident; pages as usize];
        self.resident += counts.resident;
        self.spaces.push(Some(Space { pages, counts }));
        SpaceId(self.spaces.len() as u32 - 1)
    }

    /// A space is gone; what it had at donors.
    pub fn end(&mut self, space: SpaceId) -> Vec<Lies> {
        let Some(gone) = self.spaces.get_mut(space.0 as usize).and_then(Option::take) else {
            return Vec::new();
        };
        self.resident -= gone.counts.resident;
        let stored = gone.pages.into_iter().filter_map(|at| match at {
            At::Stored(lies) => Some(lies),
            At::Resident | At::Leaving(_) => None,
        });
        stored.collect()
    }

    fn space(&self, space: SpaceId) -> Option<&Space> {
        self.spaces.get(space.0 as usize)?.as_ref()
    }

    /// `None` if there is no such page.
    pub fn at(&self, page: PageId) -> Option<At> {
        self.space(page.space())?.pages.get(page.vpn().0 as usize).copied()
    }

    /// A page is there now; nothing, if its space is gone.
    pub fn put(&mut self, page: PageId, at: At) {
        let spaces = &mut self.spaces;
        let Some(space) = spaces.get_mut(page.space().0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let Some(place) = space.pages.get_mut(page.vpn().0 as usize) else { return };
        let was_stored = matches!(std::mem::replace(place, at), At::Stored(_));
        match (was_stored, matches!(at, At::Stored(_))) {
            (false, true) => {
                space.counts.resident -= 1;
                space.counts.stored[Tier::DONORS] += 1;
                self.resident -= 1;
            }
            (true, false) => {
                space.counts.resident += 1;
                space.counts.stored[Tier::DONORS] -= 1;
                self.resident += 1;
            }
            _ => {}
        }
    }

    /// Pages that take memory here.
    pub fn resident_pages(&self) -> u64 {
        self.resident
    }

    /// Everything that is stored.
    pub fn stored(&self) -> impl Iterator<Item = Lies> {
        let pages = self.spaces.iter().flatten().flat_map(|space| &space.pages);
        pages.filter_map(|at| match at {
            At::Stored(lies) => Some(*lies),
            At::Resident | At::Leaving(_) => None,
        })
    }
}

impl PageFacts for Memory {
    fn tier(&self, page: PageId) -> Option<Tier> {
        match self.at(page)? {
            At::Stored(lies) => Some(tier(lies)),
            At::Resident | At::Leaving(_) => None,
        }
    }

    fn counts(&self, space: SpaceId) -> PageCounts {
        self.space(space).map(|space| space.counts).unwrap_or_default()
    }

    fn for_each(&self, space: SpaceId, visit: &mut dyn FnMut(PageId, Option<Tier>)) {
        let pages = self.space(space).into_iter().flat_map(|space| &space.pages);
        for (at, vpn) in pages.zip(0..) {
            let page = PageId::new(space, Vpn(vpn));
            match at {
                At::Resident => visit(page, None),
                At::Stored(lies) => visit(page, Some(tier(*lies))),
                At::Leaving(_) => {}
            }
        }
    }
}
