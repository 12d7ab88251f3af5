//! AdaptiveComp: chunks by hotness, small ones for what comes back soon, large ones for what does
//! not.
//!
//! Source: Ariadne 4.3, figure 9, table 5. A hot or warm page is a block of its own, compressed in
//! several chunks of a page or less. Successive cold pages of an app are joined into one block with
//! one chunk as large as the block (16 KiB: four pages); a fault on one brings all of them back. Cold
//! pages too few for a block are left for a fuller one, or become a smaller block when nothing may
//! be left. Pages of no known class count as warm.
//!
//! Sizes are named as in the paper, hot, warm, cold: `1K-2K-16K`. The paper has one codec for all
//! classes; here each class names its own.
//!
//! Choices the paper leaves open: a block is of one address space, because it is taken out of one
//! program; *successive* is the order of the victims ([`Successive::Victims`]) or that of their
//! addresses among those at hand ([`Successive::Addresses`]), where nothing is known about when
//! cold pages are used and neighbours are cheaper to put back.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use clew_core::{
    ByteSize, CodecKind, Group, Hotness, Metric, Observe, Packing, PageId, SpaceId, Unit, Victim,
    View,
};
use serde::{Deserialize, Serialize, Serializer};
use toml::Table;

use super::one_page::OnePage;
use crate::schemes::{About, Answer, Choice, Kinds, SchemeError, parameters};

/// Bytes one call of the codec compresses, by hotness.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct ChunkSizes {
    /// Hot pages: 256 B to 4 KiB. The paper's: 256 B, 512 B, 1 KiB.
    pub hot: u32,
    /// Warm pages: 256 B to 4 KiB. The paper's: 2 KiB, 4 KiB.
    pub warm: u32,
    /// Blocks of cold pages: 4 KiB to 128 KiB. The paper's: 16 KiB, 32 KiB.
    pub cold: u32,
}

impl Default for ChunkSizes {
    fn default() -> ChunkSizes {
        ChunkSizes { hot: 1 << 10, warm: 2 << 10, cold: 16 << 10 }
    }
}

impl TryFrom<String> for ChunkSizes {
    type Error = String;

    fn try_from(text: String) -> Result<ChunkSizes, String> {
        let fail = || {
            "expected hot-warm-cold such as \"1K-2K-16K\", powers of two, hot and warm from 256 to 4K, \
             cold from 4K to 128K"
                .to_string()
        };
        let sizes: Vec<u64> = text
            .split('-')
            .map(|size| size.parse().map(|ByteSize(bytes)| bytes))
            .collect::<Result<_, _>>()
            .map_err(|_| fail())?;
        let [hot, warm, cold] = sizes[..] else { return Err(fail()) };
        let page = 256..=4 << 10;
        let fits = [(hot, &page), (warm, &page), (cold, &(4 << 10..=128 << 10))];
        if fits.iter().all(|(size, range)| size.is_power_of_two() && range.contains(size)) {
            Ok(ChunkSizes { hot: hot as u32, warm: warm as u32, cold: cold as u32 })
        } else {
            Err(fail())
        }
    }
}

impl fmt::Display for ChunkSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, size) in [self.hot, self.warm, self.cold].into_iter().enumerate() {
            let dash = if position == 0 { "" } else { "-" };
            match size % 1024 {
                0 => write!(f, "{dash}{}K", size / 1024)?,
                _ => write!(f, "{dash}{size}B")?,
            }
        }
        Ok(())
    }
}

impl Serialize for ChunkSizes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// Which cold pages are successive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Successive {
    /// As the victims come (the paper).
    #[default]
    Victims,
    /// As their addresses do, among the victims at hand.
    Addresses,
}

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Chunk sizes.
    pub sizes: ChunkSizes,
    /// What compresses hot pages.
    pub hot_codec: CodecKind,
    /// What compresses warm pages.
    pub warm_codec: CodecKind,
    /// What compresses blocks of cold pages.
    pub cold_codec: CodecKind,
    /// Which cold pages are joined.
    pub successive: Successive,
    /// The rest of a block that a fault brought back waits parked; otherwise it is resident.
    pub park_siblings: bool,
}

/// Reads the parameters. `codec` is that of each class that names none.
pub fn read(mut table: Table, _: &Kinds<dyn Packing>) -> Result<Choice<dyn Packing>, SchemeError> {
    if let Some(codec) = table.remove("codec") {
        parameters::<OnePage>(Table::from_iter([("codec".to_string(), codec.clone())]))?;
        for class in ["hot_codec", "warm_codec", "cold_codec"] {
            table.entry(class).or_insert_with(|| codec.clone());
        }
    }
    Ok(Arc::new(parameters::<Params>(table)?))
}

impl Answer<dyn Packing> for Params {
    fn about(&self) -> About {
        let mut codecs = vec![self.hot_codec, self.warm_codec, self.cold_codec];
        if codecs.iter().all(|codec| *codec == self.hot_codec) {
            codecs.truncate(1);
        }
        let names: Vec<&str> = codecs.into_iter().map(CodecKind::shown).collect();
        let shown = format!("AdaptiveComp {}, {}", self.sizes, names.join(", "));
        About::of("adaptive-comp", shown)
    }

    fn build(&self) -> Box<dyn Packing> {
        Box::new(AdaptiveComp::new(*self))
    }
}

/// The policy. See the module.
pub struct AdaptiveComp {
    params: Params,
    hot_pages: u64,
    warm_pages: u64,
    cold_pages: u64,
    blocks: u64,
    short_blocks: u64,
}

impl AdaptiveComp {
    /// Packs by hotness. Chunks of hot and warm pages that are larger than a page mean the page.
    pub fn new(params: Params) -> AdaptiveComp {
        AdaptiveComp {
            params,
            hot_pages: 0,
            warm_pages: 0,
            cold_pages: 0,
            blocks: 0,
            short_blocks: 0,
        }
    }

    fn block(&mut self, pages: &[PageId], full: bool, page_bytes: u32) -> Group {
        self.cold_pages += pages.len() as u64;
        self.blocks += 1;
        self.short_blocks += u64::from(!full);
        Group {
            pages: pages.to_vec(),
            hotness: Some(Hotness::Cold),
            codec: self.params.cold_codec,
            chunk_bytes: self.params.sizes.cold.min(pages.len() as u32 * page_bytes),
            park_siblings: self.params.park_siblings,
        }
    }

    fn single(&mut self, page: PageId, hotness: Option<Hotness>, page_bytes: u32) -> Group {
        let Params { sizes, hot_codec, warm_codec, .. } = self.params;
        let (chunk, codec, count) = match hotness {
            Some(Hotness::Hot) => (sizes.hot, hot_codec, &mut self.hot_pages),
            _ => (sizes.warm, warm_codec, &mut self.warm_pages),
        };
        *count += 1;
        let chunk_bytes = chunk.min(page_bytes);
        Group { pages: vec![page], hotness, codec, chunk_bytes, park_siblings: false }
    }
}

impl Observe for AdaptiveComp {
    fn metrics(&self) -> Vec<Metric> {
        [
            ("adaptive_comp_hot_pages", self.hot_pages, "hot pages packed"),
            ("adaptive_comp_warm_pages", self.warm_pages, "warm pages packed"),
            ("adaptive_comp_cold_pages", self.cold_pages, "cold pages packed into blocks"),
            ("adaptive_comp_blocks", self.blocks, "blocks of cold pages, short ones included"),
            ("adaptive_comp_short_blocks", self.short_blocks, "blocks that could not be filled"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Packing for AdaptiveComp {
    fn pack(
        &mut self,
        victims: &mut Vec<Victim>,
        flush: bool,
        view: &View<'_>,
        out: &mut Vec<Group>,
    ) {
        let page_bytes = view.facts.page_bytes;
        let block_pages = (self.params.sizes.cold / page_bytes).max(1) as usize;
        let mut cold: BTreeMap<SpaceId, Vec<PageId>> = BTreeMap::new();
        // Cold pages in the order of the victims, to leave what is left in that order.
        let mut order: Vec<PageId> = Vec::new();
        // Units that are not made of pages are left: the engine expands them before it asks.
        victims.retain(|victim| {
            let pages = match &victim.unit {
                Unit::Page(page) => std::slice::from_ref(page),
                Unit::Pages(pages) => pages,
                Unit::App(_) => return true,
            };
            for page in pages {
                if victim.hotness == Some(Hotness::Cold) {
                    cold.entry(page.space()).or_default().push(*page);
                    order.push(*page);
                } else {
                    out.push(self.single(*page, victim.hotness, page_bytes));
                }
            }
            false
        });
        let mut left: std::collections::HashSet<PageId> = std::collections::HashSet::new();
        for mut pages in cold.into_values() {
            if self.params.successive == Successive::Addresses {
                pages.sort_unstable();
            }
            for block in pages.chunks(block_pages) {
                let full = block.len() == block_pages;
                if full || flush {
                    out.push(self.block(block, full, page_bytes));
                } else {
                    left.extend(block);
                }
            }
        }
        if !left.is_empty() {
            let left = order.into_iter().filter(|page| left.contains(page));
            let wait = |page| Victim { unit: Unit::Page(page), hotness: Some(Hotness::Cold) };
            victims.extend(left.map(wait));
        }
    }
}
