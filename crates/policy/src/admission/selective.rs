//! Selective admission: a page enters the pool if it is expected to be worth at least what is there on average.
//!
//! Source: ezswap III-B. Expected benefit (equation 1) = cost / compression ratio, where the ratio of a page that
//! was not compressed yet is the entropy of its first 512 bytes over 8. Average benefit (equation 2) = capacity x
//! average cost x hit rate / average compression ratio of what the pool holds; capacity is the part of the pool
//! that is used, the hit rate is that of the last 256 requests. Ratios are compressed over original size here, as
//! there. Cost is 1 for a page of a file, 4 for an anonymous one ([`crate::ezswap`]).
//!
//! With E entropy, C and B the costs and bytes of all n zpages, h hits of 256, and P bytes of a page, both sides
//! multiplied by what they are divided by:
//!
//! cost x 8 x limit x 256 x B >= used x C x h x P x E
//!
//! which takes no division and no fractions. So a page whose entropy is 0 is always admitted, and so are all as long
//! as nothing was found in the pool. A zpage counts as a chunk (64 bytes) at least, as it takes no less of a frame.
//!
//! What a zpage takes is told when it is stored. Memory is about 24 bytes a page in the pool.

use std::collections::BTreeMap;

use clew_core::{
    Admission, Admit, Candidate, Event, Metric, Observe, PageId, PageRun, SpaceId, Tier, View,
    Whole,
};
use serde::{Deserialize, Serialize};

use super::entropy::{BIT, entropy};
use super::hit_window::{HitWindow, REQUESTS};
use crate::ezswap::cost;
use crate::schemes::{About, Answer};

/// What a zpage takes of a frame at the least.
const CHUNK_BYTES: u32 = 64;
/// What is held of a page, about: tree nodes.
const PAGE_HELD_BYTES: u64 = 24;

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Clean pages of files may enter too (III-A, all-page accommodation).
    pub files: bool,
    /// Bytes at the beginning of a page whose entropy is taken (figure 5 compares 512 with 256).
    pub sample_bytes: Whole<16, 512, 512>,
}

impl Answer<dyn Admission> for Params {
    fn about(&self) -> About {
        let shown = match self.files {
            true => "selective, of files too: entropy against what is there",
            false => "selective: entropy against what is there",
        };
        About { rejects: true, takes_files: self.files, ..About::of("selective", shown) }
    }

    fn build(&self) -> Box<dyn Admission> {
        Box::new(Selective { params: *self, ..Selective::default() })
    }
}

/// A zpage in the pool.
#[derive(Clone, Copy)]
struct Zpage {
    bytes: u32,
    file: bool,
}

/// Sums over what the pool holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Costs of all zpages.
    pub cost: u64,
    /// Bytes of all zpages.
    pub bytes: u64,
}

/// Whether a page of this cost and entropy is worth as much as what the pool holds, which uses so much of its
/// limit. See the module.
pub fn is_worth(
    cost: u64,
    entropy: u32,
    held: Held,
    hits: u64,
    (used_bytes, limit_bytes): (u64, u64),
    page_bytes: u32,
) -> bool {
    let product = |factors: [u64; 5]| {
        factors.into_iter().fold(1u128, |product, factor| product.saturating_mul(factor.into()))
    };
    let expected = product([cost * 8 * u64::from(BIT), limit_bytes, REQUESTS, held.bytes, 1]);
    let average = product([used_bytes, held.cost, hits, page_bytes.into(), entropy.into()]);
    expected >= average
}

/// The policy. See the module.
#[derive(Default)]
pub struct Selective {
    params: Params,
    zpages: BTreeMap<PageId, Zpage>,
    held: Held,
    window: HitWindow,
    admitted: [u64; 2],
    rejected: [u64; 2],
}

impl Selective {
    fn entered(&mut self, page: PageId, bytes: u32, file: bool) {
        self.left(page);
        let zpage = Zpage { bytes: bytes.max(CHUNK_BYTES), file };
        self.held.bytes += u64::from(zpage.bytes);
        self.held.cost += cost(file);
        self.zpages.insert(page, zpage);
    }

    fn left(&mut self, page: PageId) {
        if let Some(zpage) = self.zpages.remove(&page) {
            self.held.bytes -= u64::from(zpage.bytes);
            self.held.cost -= cost(zpage.file);
        }
    }

    fn left_all(&mut self, gone: Vec<PageId>) {
        gone.into_iter().for_each(|page| self.left(page));
    }

    fn known(&self, run: PageRun) -> Vec<PageId> {
        self.zpages.range(run.range()).map(|(page, _)| *page).collect()
    }

    fn moved(&mut self, from: PageRun, to: PageId) {
        self.left_all(self.known(PageRun { first: to, ..from }));
        for page in self.known(from) {
            if let Some(zpage) = self.zpages.remove(&page) {
                self.zpages.insert(to.plus(page.raw() - from.first.raw()), zpage);
            }
        }
    }

    fn ended(&mut self, ended: impl Fn(SpaceId) -> bool) {
        self.left_all(self.zpages.keys().copied().filter(|page| ended(page.space())).collect());
    }
}

impl Observe for Selective {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::Stored { page, tier: Tier::Pool, bytes } => {
                self.entered(page, bytes, view.is_file(page));
            }
            Event::PageIn { page, tier, demand } => {
                // What never enters is never asked of the pool.
                if demand && (self.params.files || !view.is_file(page)) {
                    self.window.push(tier == Tier::Pool);
                }
                self.left(page);
            }
            Event::Stored { page, .. } => self.left(page),
            Event::Freed { run } => self.left_all(self.known(run)),
            Event::Moved { from, to } => self.moved(from, to),
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.ended(|of| of == space);
            }
            Event::Exit { app } => {
                self.ended(|of| view.facts.app_of(of).is_none_or(|owner| owner == app));
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let [admitted, rejected] = [self.admitted, self.rejected];
        let tracking = self.zpages.len() as u64 * PAGE_HELD_BYTES;
        [
            ("selective_tracking_bytes", tracking, "memory held for tracking pages, about"),
            ("selective_admitted_pages", admitted[0], "anonymous pages that were admitted"),
            ("selective_rejected_pages", rejected[0], "anonymous pages that were not"),
            ("selective_admitted_file_pages", admitted[1], "pages of files that were admitted"),
            ("selective_rejected_file_pages", rejected[1], "pages of files that were not"),
            ("selective_window_hits", self.window.hits(), "hits among the last 256 requests"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Admission for Selective {
    fn admit(&mut self, candidate: Candidate<'_>, view: &View<'_>) -> Admit {
        let file = view.is_file(candidate.page);
        let sample = candidate.sample;
        let bytes = sample.len().min(self.params.sample_bytes.get() as usize);
        let pool = view.facts.tiers.get(&Tier::Pool).copied().unwrap_or_default();
        let worth = is_worth(
            cost(file),
            entropy(&sample[..bytes]),
            self.held,
            self.window.hits(),
            (pool.used_bytes, pool.limit_bytes),
            view.facts.page_bytes,
        );
        let counted = if worth { &mut self.admitted } else { &mut self.rejected };
        counted[usize::from(file)] += 1;
        if worth { Admit::Yes } else { Admit::No }
    }

    fn takes_files(&self) -> bool {
        self.params.files
    }
}
