//! Successors: a fault brings the pages that were used after the same page the last time.
//!
//! Ours, the plainest thing that knows of order: of each space a stream of the pages that were used, the latest
//! last, is kept, and where in it each page was last. A fault on a page looks there and brings those of the
//! next `pages` of the stream that are stored, and with `around_pages` what is stored of the aligned block of
//! so many pages around the fault. No page counts for more than another; nothing is ever worked out.
//!
//! Uses are what is heard of: faults, and those of pages that wait parked. So what comes waits parked, or the
//! stream would have holes where it was right. Touches of resident pages are not looked at, as hardly any is
//! heard of live.
//!
//! Memory: 8 bytes a place of the stream, of which there are `stream_pages` a space, and 24 a page in it, about.
//! Every step takes constant time.

use std::collections::{HashMap, VecDeque};

use clew_core::{Arrival, Event, Metric, Observe, PageId, Prefetch, SpaceId, Trigger, View, Whole};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Places of the stream behind the faulting page's that are looked at.
    pub pages: Whole<1, 512, 16>,
    /// Pages of the aligned block around a fault that come with it; 0: none.
    pub around_pages: Whole<0, 128, 0>,
    /// Uses of a space that are remembered.
    pub stream_pages: Whole<16, { 1 << 24 }, 262_144>,
    /// Pages that wait at once.
    pub buffer_pages: Whole<1, { 1 << 20 }, 1024>,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let shown = match self.around_pages.get() {
            0 => format!("the {} that followed a fault last time", self.pages.get()),
            around => {
                format!("the {} that followed a fault, and {around} around it", self.pages.get())
            }
        };
        About { at_fault: true, ..About::of("successors", shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(Successors::new(*self))
    }
}

/// What was used of a space, in its order.
#[derive(Debug, Default)]
struct Stream {
    uses: VecDeque<PageId>,
    /// Uses that have been dropped at the front.
    dropped: u64,
    /// The number of each page's last use, counted from the beginning.
    last: HashMap<PageId, u64>,
}

impl Stream {
    fn push(&mut self, page: PageId, at_most: usize) {
        if self.uses.len() == at_most
            && let Some(oldest) = self.uses.pop_front()
        {
            if self.last.get(&oldest) == Some(&self.dropped) {
                self.last.remove(&oldest);
            }
            self.dropped += 1;
        }
        self.last.insert(page, self.dropped + self.uses.len() as u64);
        self.uses.push_back(page);
    }

    /// What followed `page` the last time.
    fn after(&self, page: PageId, pages: usize) -> impl Iterator<Item = PageId> {
        let next = self.last.get(&page).map(|number| (number - self.dropped) as usize + 1);
        next.into_iter().flat_map(move |next| self.uses.iter().skip(next).take(pages)).copied()
    }

    /// Of the table a place and its mark, which seven eighths of are taken at most.
    fn bytes(&self) -> u64 {
        let place = size_of::<(PageId, u64)>() + 1;
        (self.uses.capacity() * size_of::<PageId>() + self.last.capacity() * place * 8 / 7) as u64
    }
}

/// The policy. See the module.
pub struct Successors {
    params: Params,
    streams: HashMap<SpaceId, Stream>,
    picked: u64,
}

impl Successors {
    /// Has seen nothing yet.
    pub fn new(params: Params) -> Successors {
        Successors { params, streams: HashMap::new(), picked: 0 }
    }

    fn used(&mut self, page: PageId) {
        let at_most = self.params.stream_pages.get() as usize;
        self.streams.entry(page.space()).or_default().push(page, at_most);
    }
}

impl Observe for Successors {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        match *event {
            Event::PrefetchUsed { page } => self.used(page),
            Event::SpaceStart { space, .. } | Event::SpaceEnd { space } => {
                self.streams.remove(&space);
            }
            Event::Exit { app } => {
                for space in view.facts.spaces_of(app) {
                    self.streams.remove(&space);
                }
            }
            _ => {}
        }
    }

    fn metrics(&self) -> Vec<Metric> {
        let bytes: u64 = self.streams.values().map(Stream::bytes).sum();
        [
            ("successors_picked_pages", self.picked, "pages asked for with one that was demanded"),
            ("successors_tracking_bytes", bytes, "memory held for what was used, about"),
        ]
        .map(|(name, value, help)| Metric { name, value: value as f64, help })
        .into()
    }
}

impl Prefetch for Successors {
    fn arrival(&self) -> Arrival {
        Arrival::Parked { pages: self.params.buffer_pages.get() as usize, keep: true }
    }

    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Fault(page) = trigger else { return };
        let before = out.len();
        let mut want = |other: PageId| {
            let is_stored = other != page && view.pages.tier(other).is_some();
            // A page may have been used twice in a row of uses.
            if is_stored && !out[before..].contains(&other) {
                out.push(other);
            }
        };
        if let Some(stream) = self.streams.get(&page.space()) {
            stream.after(page, self.params.pages.get() as usize).for_each(&mut want);
        }
        let around = u64::from(self.params.around_pages.get());
        if around > 1 {
            let block = page.vpn().0 / around * around;
            let first = page.raw() - (page.vpn().0 - block);
            let block = (first..first + around).map(PageId::from_raw);
            block.filter(|other| other.space() == page.space()).for_each(&mut want);
        }
        self.picked += (out.len() - before) as u64;
        self.used(page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use clew_core::Vpn;

    fn page(vpn: u64) -> PageId {
        PageId::new(SpaceId(1), Vpn(vpn))
    }

    #[test]
    fn what_followed_last_time_follows_again_and_what_is_too_old_is_forgotten() {
        let mut stream = Stream::default();
        for vpn in [5, 9, 2, 5, 7, 8] {
            stream.push(page(vpn), 100);
        }
        let after = |stream: &Stream, vpn| stream.after(page(vpn), 2).collect::<Vec<_>>();
        assert_eq!(after(&stream, 5), [page(7), page(8)], "and not what followed the first time");
        assert_eq!(after(&stream, 9), [page(2), page(5)]);
        assert_eq!(after(&stream, 8), []);
        assert_eq!(after(&stream, 1), []);
        for vpn in 20..24 {
            stream.push(page(vpn), 6);
        }
        assert_eq!((stream.uses.len(), stream.last.len()), (6, 6));
        assert_eq!(after(&stream, 9), [], "it was six uses ago and more");
        assert_eq!(after(&stream, 8), [page(20), page(21)]);
        stream.push(page(20), 6);
        stream.push(page(30), 6);
        assert_eq!(after(&stream, 20), [page(30)]);
    }
}
