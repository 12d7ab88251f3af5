//! One page a block, as zram and zswap compress (Ariadne 4.3, figure 9a; Archer 2).
//!
//! The codec, and the bytes one call of it compresses, are parameters: below a page, a page is
//! several chunks; never more than a page. Groups come in the order of the victims.

use clew_core::{CodecKind, Group, Observe, Packing, PageId, Unit, Victim, View};

/// The policy. See the module.
pub struct OnePage {
    codec: CodecKind,
    chunk_bytes: u32,
}

impl OnePage {
    /// Packs single pages. A chunk larger than the page means the page.
    pub fn new(codec: CodecKind, chunk_bytes: u32) -> OnePage {
        OnePage { codec, chunk_bytes }
    }
}

impl Observe for OnePage {}

impl Packing for OnePage {
    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        _flush: bool,
        view: &View<'_>,
        out: &mut Vec<Group>,
    ) {
        let chunk_bytes = self.chunk_bytes.min(view.facts.page_bytes);
        let mut push = |page: PageId, hotness| {
            out.push(Group {
                pages: vec![page],
                hotness,
                codec: self.codec,
                chunk_bytes,
                park_siblings: false,
            });
        };
        // Units that are not made of pages are left: the engine expands them before it asks.
        victims.retain(|victim| match &victim.unit {
            Unit::Page(page) => {
                push(*page, victim.hotness);
                false
            }
            Unit::Pages(pages) => {
                pages.iter().for_each(|page| push(*page, victim.hotness));
                false
            }
            Unit::Frame(_) | Unit::App(_) => true,
        });
    }
}
