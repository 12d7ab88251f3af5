//! Blocks of one size, of neighbours, whatever they are used for.
//!
//! Source: Archer 5.2, "Static Huge-Size Compression": "fix-sized (de)compression", with pages of 4 KiB
//! for all else. The paper does not name the size. Victims of an address space, in the order of their
//! addresses, fill blocks; too few for a block wait for a fuller one, or become a smaller block when
//! nothing may be left. A fault brings its whole block back.
//!
//! Neighbours are those among the victims at hand, not the aligned region as it would be of a huge page:
//! nobody who is not a victim is taken.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{
    ByteSize, CodecKind, Group, Metric, Observe, Packing, PageId, SpaceId, Unit, Victim, View,
};
use serde::{Deserialize, Serialize};

use super::adaptive_region::{block, block_bytes, block_pages, no_dictionary};
use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What compresses a block.
    pub codec: CodecKind,
    /// Bytes of a block; the same as Archer's buffer where nothing is said.
    #[serde(deserialize_with = "block_bytes")]
    pub block: ByteSize,
    /// The rest of a block that a fault brought back waits parked; otherwise it is resident.
    pub park_siblings: bool,
}

impl Default for Params {
    fn default() -> Params {
        Params { codec: CodecKind::Lz4, block: ByteSize(128 << 10), park_siblings: false }
    }
}

impl Answer<dyn Packing> for Params {
    fn about(&self) -> About {
        let shown = format!("fixed blocks of {}, {}", self.block, self.codec.shown());
        About::of("fixed-blocks", shown)
    }

    fn build(&self) -> Box<dyn Packing> {
        Box::new(FixedBlocks::new(*self))
    }

    fn validate(&self) -> Result<(), String> {
        no_dictionary(self.codec)
    }
}

/// The policy. See the module.
pub struct FixedBlocks {
    params: Params,
    pages: u64,
    blocks: u64,
    short_blocks: u64,
}

impl FixedBlocks {
    /// Has packed nothing yet.
    pub fn new(params: Params) -> FixedBlocks {
        FixedBlocks { params, pages: 0, blocks: 0, short_blocks: 0 }
    }
}

impl Observe for FixedBlocks {
    fn metrics(&self) -> Vec<Metric> {
        [
            ("fixed_blocks_pages", self.pages, "pages packed"),
            ("fixed_blocks", self.blocks, "blocks, short ones included"),
            ("fixed_blocks_short", self.short_blocks, "blocks that could not be filled"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Packing for FixedBlocks {
    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        flush: bool,
        view: &View<'_>,
        out: &mut Vec<Group>,
    ) {
        let page_bytes = view.facts.page_bytes;
        let Params { codec, block: bytes, park_siblings } = self.params;
        let most = block_pages(bytes, page_bytes);
        let mut by_space: BTreeMap<SpaceId, Vec<PageId>> = BTreeMap::new();
        for victim in victims.iter() {
            let pages = match &victim.unit {
                Unit::Page(page) => std::slice::from_ref(page),
                Unit::Pages(pages) => pages,
                Unit::App(_) => &[],
            };
            for page in pages {
                by_space.entry(page.space()).or_default().push(*page);
            }
        }
        let mut left: BTreeSet<PageId> = BTreeSet::new();
        for mut pages in by_space.into_values() {
            pages.sort_unstable();
            for pages in pages.chunks(most) {
                if pages.len() < most && !flush {
                    left.extend(pages);
                    continue;
                }
                self.pages += pages.len() as u64;
                self.blocks += 1;
                self.short_blocks += u64::from(pages.len() < most);
                out.push(block(pages.to_vec(), None, codec, park_siblings, page_bytes));
            }
        }
        // Units that are not made of pages are left: the engine expands them before it asks.
        victims.retain_mut(|victim| match &mut victim.unit {
            Unit::Page(page) => left.contains(page),
            Unit::Pages(pages) => {
                pages.retain(|page| left.contains(page));
                !pages.is_empty()
            }
            Unit::App(_) => true,
        });
    }
}
