//! The adaptive compression region: what leaves together is compressed together.
//!
//! Source: Archer 4.4, figure 6. Narrow track: a page that comes by itself ([`Unit::Page`]) is a block with
//! one chunk. Wide track: pages that belong together ([`Unit::Pages`]) are one block, cut at the
//! compression buffer (128 KiB, 32 pages of 4 KiB). A fault on one of them brings the whole block back;
//! the others wait parked for their use, as they do in the paper's swap cache.
//!
//! The paper's two layers of handles, one for the block with an array of its pages, and below it those of
//! its objects, are what every block of the pool has: its handle is that of the first object, whose front
//! says where the pages were in their program and which objects hold the rest.
//!
//! Choices the paper leaves open: pages of a group that are of several address spaces are as many blocks,
//! because a block is taken out of one program (the engine cuts it there). One call of a codec compresses
//! 128 KiB at most, so a larger buffer makes blocks of several chunks, of which a fault decompresses its
//! own first.

use clew_core::{
    ByteSize, CodecKind, Group, Hotness, Metric, Observe, Packing, PageId, Unit, Victim, View,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::schemes::{About, Answer, size};

/// Bytes that one call of a codec compresses, at most.
const CHUNK_BYTES: u32 = 128 << 10;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// What compresses pages and groups.
    pub codec: CodecKind,
    /// Bytes of a block, at most.
    #[serde(deserialize_with = "block_bytes")]
    pub buffer: ByteSize,
    /// The rest of a block that a fault brought back waits parked; otherwise it is resident.
    pub park_siblings: bool,
}

impl Default for Params {
    fn default() -> Params {
        Params { codec: CodecKind::Lz4, buffer: ByteSize(128 << 10), park_siblings: true }
    }
}

/// For `deserialize_with`: how large a block of several pages may be.
pub(super) fn block_bytes<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    let bytes = size::<8192, ByteSize, D>(from).ok();
    let fits = bytes.filter(|bytes| bytes.0.is_power_of_two() && bytes.0 <= 512 << 10);
    let why = "expected a power of two from 8KiB to 512KiB, such as \"128KiB\"";
    fits.ok_or_else(|| D::Error::custom(why))
}

/// How many pages of `page_bytes` a block of `bytes` has.
pub(super) fn block_pages(bytes: ByteSize, page_bytes: u32) -> usize {
    ((bytes.0 / u64::from(page_bytes)) as usize).max(1)
}

/// A block of `pages` with as large chunks as there may be.
pub(super) fn block(
    pages: Vec<PageId>,
    hotness: Option<Hotness>,
    codec: CodecKind,
    park_siblings: bool,
    page_bytes: u32,
) -> Group {
    let chunk_bytes = (pages.len() as u32).saturating_mul(page_bytes).min(CHUNK_BYTES);
    let park_siblings = park_siblings && pages.len() > 1;
    Group { pages, hotness, codec, chunk_bytes, park_siblings }
}

impl Answer<dyn Packing> for Params {
    fn about(&self) -> About {
        let shown = format!("page, or group in blocks of {}, {}", self.buffer, self.codec.shown());
        About::of("adaptive-region", shown)
    }

    fn build(&self) -> Box<dyn Packing> {
        Box::new(AdaptiveRegion::new(*self))
    }

    fn validate(&self) -> Result<(), String> {
        no_dictionary(self.codec)
    }
}

/// Refuses a codec that is for single pages.
pub(super) fn no_dictionary(codec: CodecKind) -> Result<(), String> {
    let why = "a dictionary is for single pages; choose another codec";
    (!codec.learns()).then_some(()).ok_or_else(|| why.to_string())
}

/// The policy. See the module.
pub struct AdaptiveRegion {
    params: Params,
    narrow_pages: u64,
    wide_pages: u64,
    blocks: u64,
}

impl AdaptiveRegion {
    /// Has packed nothing yet.
    pub fn new(params: Params) -> AdaptiveRegion {
        AdaptiveRegion { params, narrow_pages: 0, wide_pages: 0, blocks: 0 }
    }
}

impl Observe for AdaptiveRegion {
    fn metrics(&self) -> Vec<Metric> {
        [
            ("adaptive_region_narrow_pages", self.narrow_pages, "pages packed one by one"),
            ("adaptive_region_wide_pages", self.wide_pages, "pages packed into blocks of several"),
            ("adaptive_region_blocks", self.blocks, "blocks of several pages"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Packing for AdaptiveRegion {
    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        _flush: bool,
        view: &View<'_>,
        out: &mut Vec<Group>,
    ) {
        let page_bytes = view.facts.page_bytes;
        let most = block_pages(self.params.buffer, page_bytes);
        // Units that are not made of pages are left: the engine expands them before it asks.
        victims.retain(|victim| {
            let pages = match &victim.unit {
                Unit::Page(page) => std::slice::from_ref(page),
                Unit::Pages(pages) => pages,
                Unit::App(_) => return true,
            };
            for pages in pages.chunks(most) {
                match pages.len() {
                    1 => self.narrow_pages += 1,
                    several => {
                        self.wide_pages += several as u64;
                        self.blocks += 1;
                    }
                }
                let Params { codec, park_siblings, .. } = self.params;
                out.push(block(pages.to_vec(), victim.hotness, codec, park_siblings, page_bytes));
            }
            false
        });
    }
}
