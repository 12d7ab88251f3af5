//! Pages and how they are named.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::app::SpaceId;

/// Bits of a virtual page number: 57-bit addresses (five-level paging) of 4 KiB pages.
const VPN_BITS: u32 = 45;

/// Address spaces are numbered below this.
pub const SPACES: u32 = 1 << (u64::BITS - VPN_BITS);

/// A virtual page number: address divided by the page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Vpn(pub u64);

impl Vpn {
    /// The page that holds `addr`, for pages of `page_size` bytes.
    pub fn of_addr(addr: u64, page_size: u64) -> Vpn {
        Vpn(addr / page_size)
    }

    /// The address of the page's first byte.
    pub fn addr(self, page_size: u64) -> u64 {
        self.0 * page_size
    }
}

/// One page of one address space, in one word: 19 bits of space, 45 bits of page number.
///
/// Ordered by space, then by address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct PageId(u64);

impl PageId {
    /// Names page `vpn` of `space`.
    ///
    /// # Panics
    /// If either number does not fit its bits (524,288 spaces, 57-bit addresses).
    pub fn new(space: SpaceId, vpn: Vpn) -> PageId {
        assert!(vpn.0 >> VPN_BITS == 0, "page number {:#x} exceeds 57-bit addresses", vpn.0);
        assert!(space.0 < SPACES, "space {} out of range", space.0);
        PageId(u64::from(space.0) << VPN_BITS | vpn.0)
    }

    /// The address space.
    pub fn space(self) -> SpaceId {
        SpaceId((self.0 >> VPN_BITS) as u32)
    }

    /// The page number within the space.
    pub fn vpn(self) -> Vpn {
        Vpn(self.0 & ((1 << VPN_BITS) - 1))
    }

    /// The page `n` pages further on in the same space.
    pub fn plus(self, n: u64) -> PageId {
        PageId::new(self.space(), Vpn(self.vpn().0 + n))
    }

    /// The word itself, for tables.
    pub fn raw(self) -> u64 {
        self.0
    }

    /// The inverse of [`PageId::raw`].
    pub fn from_raw(raw: u64) -> PageId {
        PageId(raw)
    }
}

/// Neighbouring pages of one space: `count` pages from `first`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct PageRun {
    /// The first page.
    pub first: PageId,
    /// How many pages, at least one.
    pub count: u32,
}

impl PageRun {
    /// Whether `page` is one of the run.
    pub fn contains(self, page: PageId) -> bool {
        page >= self.first && page.raw() - self.first.raw() < u64::from(self.count)
    }

    /// From its first page to the one behind its last, for ordered collections.
    pub fn range(self) -> Range<PageId> {
        self.first..self.first.plus(u64::from(self.count))
    }

    /// Every page of the run, in address order.
    pub fn pages(self) -> impl Iterator<Item = PageId> {
        (0..u64::from(self.count)).map(move |i| self.first.plus(i))
    }
}

/// How likely a page is to be used at the next relaunch (Ariadne 4.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Hotness {
    /// Used during a relaunch.
    Hot,
    /// Used while the app runs, after the relaunch.
    Warm,
    /// Not used since its launch.
    Cold,
}
