//! A store from the segments of a process that died.
//!
//! Who names a block is known from the page tables, which the caller has: an item for every entry.
//! The pool finds out what there is ([`ObjectTier::adopt`]); here is what a block looks like.
//! A block that was put and not published yet is named by nobody, and freed with its parts.
//!
//! What is stored is not decompressed. Every read verifies the checksum of its page, now as before.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::OwnedFd;

use super::front::Front;
use super::stub::Seen;
use super::{Handle, MAX_BLOCK_BYTES, MAX_BLOCK_PAGES, Store, StoreConfig, page_bytes_are_sound};
use crate::adopt::AdoptError;
use crate::flash::Place;
use crate::pool::object::Header;
use crate::tier::ObjectTier;

/// What was found in the segments of a predecessor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adopted {
    /// Blocks that are named.
    pub blocks: u64,
    /// Their pages.
    pub pages: u64,
    /// Objects that nobody named, blocks and parts: they are gone.
    pub freed: u64,
    /// Handles that are named and have no block, ascending: memory was damaged. Reading them is an
    /// error, and no other block gets these handles while they are named.
    pub damaged: Vec<Handle>,
    /// Blocks that are in a log, and where: what [`crate::flash::Flash::adopt`] wants to know.
    pub far: Vec<(u32, Place)>,
}

impl Store {
    /// Takes over what a predecessor, which has ended, left in [`Store::segments`]. `references` are
    /// the blocks that page-table entries name, whatever the entry's state, one item an entry:
    /// [`crate::Space::handles`]. References are counted from it and from nothing else.
    ///
    /// `page_bytes` must be what it was. The limits may be others: below what is in use, nothing is
    /// stored until enough was released; above what the segments have room for, that is the limit. The pool stays of
    /// the kind that it was.
    ///
    /// # Errors
    /// See [`AdoptError`]. Can be tried again.
    pub fn adopt(
        config: StoreConfig,
        fds: Vec<OwnedFd>,
        references: impl IntoIterator<Item = Handle>,
    ) -> Result<(Store, Adopted), AdoptError> {
        Store::take_over(config, fds, references)
    }
}

impl<T: ObjectTier> Store<T> {
    /// As [`Store::adopt`], whatever the tier.
    pub(crate) fn take_over(
        config: StoreConfig,
        left: T::Left,
        references: impl IntoIterator<Item = Handle>,
    ) -> Result<(Store<T>, Adopted), AdoptError> {
        let page_bytes = config.page_bytes;
        if !page_bytes_are_sound(page_bytes) {
            return Err(AdoptError::PageSize { page_bytes });
        }
        let places: RefCell<Vec<(u32, Place, u16)>> = RefCell::default();
        let block = |header: &Header, payload: &[u8], parts: &mut Vec<u32>| {
            let seen = Seen::of(header, payload)?;
            let mut pages = 1;
            if seen.framed {
                let front = Front::parse(seen.codec, seen.body, page_bytes)?;
                pages = front.pages;
                // A stub lists none.
                if seen.place.is_some() && front.parts().len() > 0 {
                    return None;
                }
                parts.extend(front.parts());
            }
            let bytes = usize::from(pages) * page_bytes;
            if usize::from(pages) > MAX_BLOCK_PAGES || bytes > MAX_BLOCK_BYTES {
                return None;
            }
            places.borrow_mut().extend(seen.place.map(|place| (header.handle, place, pages)));
            Some(pages)
        };
        let dictionary = |header: &Header, payload: &[u8]| {
            Seen::of(header, payload)?.dictionary.map(Handle::raw)
        };
        let references = references.into_iter().map(Handle::raw);
        let (tier, found) = T::adopt(config.mem_limit_bytes, left, references, dictionary, block)?;
        let store = Store::over(config, tier, found.blocks, found.pages);
        let mut far = places.into_inner();
        far.iter().for_each(|(_, place, pages)| store.count_far(place.log, *pages));
        // What two claimed is lost to both.
        let lost: HashSet<u32> = found.lost.iter().copied().collect();
        far.retain(|(handle, ..)| !lost.contains(handle));
        let far = far.into_iter().map(|(handle, place, _)| (handle, place)).collect();
        let damaged = found.lost.into_iter().filter_map(Handle::from_raw).collect();
        let adopted =
            Adopted { blocks: found.blocks, pages: found.pages, freed: found.freed, damaged, far };
        Ok((store, adopted))
    }
}
