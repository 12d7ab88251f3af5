//! What a replay moves pages with: the daemon's mover and page tables, on the bytes of the trace, with the
//! daemon's codecs and pool ([`Bytes`]), or on no bytes at all and a store of numbers ([`Sizes`]), for
//! questions about policies.
//!
//! [`WithKernel`] is either of them beside a kernel that swaps to zram.
//!
//! Both tell the same events in the same order, which is a test.

mod bytes;
mod frames;
mod kernel;
mod numbers;
mod programs;
mod sizes;
#[cfg(test)]
mod tests;

pub use bytes::Bytes;
pub use kernel::WithKernel;
pub use numbers::SizeModel;
pub use sizes::Sizes;

use clew_core::{
    CodecKind, Event, FlashForm, Group, PageFacts, PageId, PageRun, SpaceId, TierFacts,
};
use clew_store::State;
use clew_store::flash::LogId;

use crate::costs::{FarCost, Spent};
use crate::error::LabError;
use crate::world::World;

/// How pages that come back early wait, if parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Pages it holds.
    pub pages: usize,
    /// What is pushed out keeps its stored copy; else it is compressed again.
    pub keep: bool,
}

/// What to move pages with. Pages are of anonymous spaces that were started.
///
/// What the policies are to know is appended to `events`, in order.
pub trait Mechanism: PageFacts {
    /// A space begins, without pages.
    fn start(&mut self, space: SpaceId) -> Result<(), LabError>;

    /// A space is gone.
    fn end(&mut self, space: SpaceId);

    /// Where a page is.
    fn state(&self, page: PageId) -> State;

    /// Pages that are found resident, of those the absent ones become so.
    fn adopt(&mut self, run: PageRun, events: &mut Vec<Event>) -> Result<(), LabError>;

    /// A page that is not resident is touched.
    fn fault(
        &mut self,
        page: PageId,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError>;

    /// The first bytes of a resident page, at most so many; nothing where contents are not known.
    fn beginning_of(
        &mut self,
        page: PageId,
        bytes: usize,
        world: Option<&World<'_>>,
    ) -> Result<Vec<u8>, LabError>;

    /// A resident page was written to: what is kept of it is no longer what it holds.
    fn written(&mut self, page: PageId);

    /// Takes groups out of one space. Pages that are not resident are skipped.
    fn swap_out(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError>;

    /// As [`Mechanism::swap_out`], into a log, in this form.
    fn put_far(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: (LogId, FlashForm),
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError>;

    /// Moves the blocks of stored pages of one space to a log, in this form.
    fn evict(
        &mut self,
        space: SpaceId,
        groups: &[Group],
        to: (LogId, FlashForm),
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError>;

    /// Stores groups of one space, which are in the pool, anew.
    fn repack(&mut self, space: SpaceId, groups: &[Group]) -> Result<Spent, LabError>;

    /// How full each log is.
    fn logs(&self) -> Vec<(LogId, TierFacts)>;

    /// Brings stored pages of one space back (ascending): resident, or to the buffer if `park`.
    fn restore(
        &mut self,
        pages: &[PageId],
        park: bool,
        world: Option<&World<'_>>,
        events: &mut Vec<Event>,
    ) -> Result<Spent, LabError>;

    /// The program gave these pages up.
    fn free(&mut self, run: PageRun);

    /// The program moved these pages; the ranges do not overlap.
    fn moved(&mut self, from: PageRun, to: PageId) -> Result<(), LabError>;

    /// Gives up the copy kept of a resident page, if there is one; the bytes that this frees.
    fn drop_kept(&mut self, page: PageId) -> Option<u64>;

    /// Moves what is left together, after so many copies were given up.
    fn compact(&mut self, copies: u64);

    /// Memory of the pool.
    fn pool_used_bytes(&self) -> u64;

    /// How full the pool is, and its limits.
    fn pool(&self) -> TierFacts;

    /// Resident pages of all spaces.
    fn resident_pages(&self) -> u64;

    /// Pages in the buffer.
    fn parked_pages(&self) -> u64;

    /// Memory of the page tables.
    fn tables_bytes(&self) -> u64;

    /// The last swap-out found no room.
    fn was_full(&self) -> bool;
}

/// A place beyond memory: which log it is, how large, what it costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FarTier {
    /// The log.
    pub log: LogId,
    /// Its size, bytes.
    pub bytes: u64,
    /// What it costs.
    pub cost: FarCost,
}

/// What pages were stored as, as far as it decides what bringing them back costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Form {
    pub codec: CodecKind,
    pub chunk_bytes: u32,
    pub park: bool,
}

impl Form {
    pub fn of(group: &Group) -> Form {
        Form { codec: group.codec, chunk_bytes: group.chunk_bytes, park: group.park_siblings }
    }

    /// The same, of a block that lies in a log in that form.
    pub fn far(self, form: FlashForm, page_bytes: u32) -> Form {
        match form {
            FlashForm::AsStored => self,
            FlashForm::Pages => Form { codec: CodecKind::Raw, chunk_bytes: page_bytes, ..self },
        }
    }
}

/// Consecutive groups of one form.
pub(crate) fn by_form(groups: &[Group]) -> impl Iterator<Item = &[Group]> {
    groups.chunk_by(|a, b| Form::of(a) == Form::of(b))
}
