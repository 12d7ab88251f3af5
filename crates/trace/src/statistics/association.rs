//! Pages that are used together (Archer, section 3).

use std::collections::VecDeque;

use clew_core::{Ns, PageId, Seeded};
use serde::Serialize;

use super::{ByPage, Spaces, anonymous_access};
use crate::record::Stamped;

/// Two pages are used together if there are at most so many accesses from one to the other.
const NEAR: usize = 32;
/// Confidence above which pages are associated, and below which they are not.
const STRONG: f64 = 0.8;
const WEAK: f64 = 0.2;
/// Uses of a page before anything is said about it.
const USES: u32 = 16;
/// The same in a half of a trace.
const USES_IN_HALF: u32 = 5;
/// Times that two pages are used together before they are a pair.
const TOGETHER: u32 = 3;
/// Pages that are looked at, about.
const SAMPLE: u64 = 4_000;

/// How pages of anonymous memory are associated. Pairs are rules X -> Y; the confidence of a rule is
/// the share of the uses of X that are within 32 accesses of one of Y.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Association {
    /// Pairs that were looked at: used together three times or more, X sixteen times or more.
    pub pairs: u64,
    /// Of them, those of a confidence above 80 % (Archer, figure 3: 26.3 %).
    pub strong: f64,
    /// Those of a confidence below 20 % (figure 3: 71.1 %).
    pub weak: f64,
    /// Of all pages, those that are X in a strong pair (Archer 5.4: 24.7 %).
    pub associated: f64,
    /// Of the associated pages, those that are with a page of their own app (4.3: 93.1 %).
    pub within_app: f64,
    /// Of the pages associated in the first half of the trace, those that still are in the second
    /// (5.4: 96.3 %), where they are used in it.
    pub stable: f64,
}

#[derive(Default)]
struct Uses {
    /// In each half.
    count: [u32; 2],
    with: ByPage<[u32; 2]>,
}

impl Uses {
    fn all(&self) -> u32 {
        self.count[0] + self.count[1]
    }
}

/// Collects it, of a sample of the pages.
pub struct Miner {
    one_in: u64,
    middle: Ns,
    /// The last accesses, and when.
    near: VecDeque<(PageId, usize)>,
    uses: ByPage<Uses>,
    owners: ByPage<u32>,
}

impl Miner {
    /// Of a trace of about so many pages.
    pub fn new(pages: u64, middle: Ns) -> Miner {
        Miner {
            one_in: (pages / SAMPLE).max(1),
            middle,
            near: VecDeque::new(),
            uses: ByPage::default(),
            owners: ByPage::default(),
        }
    }

    pub fn take(&mut self, spaces: &Spaces, stamped: &Stamped) {
        let Some((page, _)) = anonymous_access(spaces, &stamped.record) else { return };
        if let Some(app) = spaces.app(page.space()) {
            self.owners.entry(PageId::new(page.space(), clew_core::Vpn(0))).or_insert(app.0);
        }
        self.near.push_back((page, usize::from(stamped.at > self.middle)));
        if self.near.len() > 2 * NEAR {
            self.look(NEAR);
            if self.near.len() > 2 * NEAR {
                self.near.pop_front();
            }
        }
    }

    /// Looks at the access at `place`, with those around it.
    fn look(&mut self, place: usize) {
        let (page, half) = self.near[place];
        if Seeded::of(page.raw(), &[]).below(self.one_in) > 0 {
            return;
        }
        let mut others: Vec<PageId> = self.near.iter().map(|(page, _)| *page).collect();
        others.sort_unstable();
        others.dedup();
        let uses = self.uses.entry(page).or_default();
        uses.count[half] += 1;
        for other in others.into_iter().filter(|other| *other != page) {
            uses.with.entry(other).or_default()[half] += 1;
        }
    }

    fn is_own(&self, page: PageId, other: PageId) -> bool {
        let owner = |page: PageId| self.owners.get(&PageId::new(page.space(), clew_core::Vpn(0)));
        owner(page) == owner(other)
    }

    pub fn finish(self) -> Association {
        let mut association = Association::default();
        let (mut strong, mut weak, mut associated, mut own) = (0u64, 0u64, 0u64, 0u64);
        let (mut were, mut still) = (0u64, 0u64);
        for (page, uses) in &self.uses {
            let confidence = |with: &[u32; 2], half: usize| {
                f64::from(with[half]) / f64::from(uses.count[half].max(1))
            };
            let (mut is_associated, mut is_own) = (false, false);
            if uses.all() >= USES {
                for (other, with) in &uses.with {
                    if with[0] + with[1] < TOGETHER {
                        continue;
                    }
                    association.pairs += 1;
                    let confidence = f64::from(with[0] + with[1]) / f64::from(uses.all());
                    weak += u64::from(confidence < WEAK);
                    if confidence > STRONG {
                        strong += 1;
                        is_associated = true;
                        is_own |= self.is_own(*page, *other);
                    }
                }
            }
            associated += u64::from(is_associated);
            own += u64::from(is_own);
            if uses.count.iter().all(|count| *count >= USES_IN_HALF) {
                let first = uses.with.values().any(|with| confidence(with, 0) > STRONG);
                let both =
                    |with: &[u32; 2]| confidence(with, 0) > STRONG && confidence(with, 1) > STRONG;
                were += u64::from(first);
                still += u64::from(uses.with.values().any(both));
            }
        }
        let share = |part: u64, of: u64| part as f64 / of.max(1) as f64;
        association.strong = share(strong, association.pairs);
        association.weak = share(weak, association.pairs);
        association.associated = share(associated, self.uses.len() as u64);
        association.within_app = share(own, associated);
        association.stable = share(still, were);
        association
    }
}
