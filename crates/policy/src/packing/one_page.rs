//! One page a block, as zram and zswap compress (Ariadne 4.3, figure 9a; Archer 2).
//!
//! The codec, and the bytes one call of it compresses, are parameters: below a page, a page is
//! several chunks; never more than a page. Groups come in the order of the victims.

use clew_core::{
    ByteSize, CodecKind, Group, Hotness, Observe, Packing, PageId, Unit, Victim, View,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::schemes::{About, Answer, size};

/// The policy. See the module.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OnePage {
    /// What compresses a page.
    pub codec: CodecKind,
    /// Bytes that one call of it compresses. A chunk larger than the page means the page.
    #[serde(deserialize_with = "chunk")]
    pub chunk: ByteSize,
}

impl Default for OnePage {
    fn default() -> OnePage {
        OnePage { codec: CodecKind::Lz4, chunk: ByteSize(4096) }
    }
}

/// A chunk: the largest page of the systems in question, Android's, has 16 KiB.
fn chunk<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    const ALLOWED: &str = "expected a power of two from 256 to 16KiB, such as \"4KiB\" (with one page a \
                           block, a chunk is at most a page)";
    let chunk = size::<256, ByteSize, D>(from).ok();
    let fits = chunk.filter(|chunk| chunk.0.is_power_of_two() && chunk.0 <= 16 << 10);
    fits.ok_or_else(|| D::Error::custom(ALLOWED))
}

impl Answer<dyn Packing> for OnePage {
    fn about(&self) -> About {
        let chunks = match self.chunk {
            ByteSize(4096) => String::new(),
            chunk => format!(" in chunks of {chunk}"),
        };
        About::of("one-page", format!("one page, {}{chunks}", self.codec.shown()))
    }

    fn build(&self) -> Box<dyn Packing> {
        Box::new(*self)
    }

    fn validate(&self) -> Result<(), String> {
        let why = "codec and chunk contradict each other: a dictionary is for whole pages; leave out \
                   the chunk, or choose another codec";
        let fits = !self.codec.learns() || self.chunk.0 >= 4096;
        fits.then_some(()).ok_or_else(|| why.to_string())
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
        let chunk_bytes = view.facts.page_bytes.min(self.chunk.0 as u32);
        let push = |page: PageId, hotness| {
            out.push(Group {
                pages: vec![page],
                hotness,
                codec: self.codec,
                chunk_bytes,
                park_siblings: false,
            });
        };
        each_page(victims, push);
    }
}

/// Takes the pages of the victims one by one. Units that are not made of pages are left: the engine expands them before
/// it asks.
pub(super) fn each_page(victims: &mut Vec<Victim>, mut push: impl FnMut(PageId, Option<Hotness>)) {
    victims.retain(|victim| match &victim.unit {
        Unit::Page(page) => {
            push(*page, victim.hotness);
            false
        }
        Unit::Pages(pages) => {
            pages.iter().for_each(|page| push(*page, victim.hotness));
            false
        }
        Unit::App(_) => true,
    });
}
