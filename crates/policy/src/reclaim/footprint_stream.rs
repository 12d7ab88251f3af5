//! The footprint stream generator: which pages are used close to each other in time.
//!
//! Source: Archer 4.2, figure 5. Every use of a page is an item of a circular queue; when the queue is
//! looked at, a window at its head turns items into transactions:
//! 1. `window` items are there: they are one transaction;
//! 2. the timeout is over, and at least half a window is there: that is one;
//! 3. less than half a window: it waits until one of the former is so.
//!
//! The timeout runs from the last item of the transaction before, for the first one from the first
//! item. So the times of figure 5 have it; the text, which lets it begin when half a window is there,
//! contradicts them. Where less than half was there when it was over, it begins anew once half is there:
//! rule 2 as it is written. What arrives when a timeout is over is not of that transaction, however late the
//! queue is looked at.
//!
//! Items are collected as they come and looked at from time to time (the paper's daemon). What comes
//! in between beyond the length of the queue pushes out the oldest items, which is counted.
//!
//! An item is a page of an address space. The paper's is a physical page, because virtual addresses of
//! several apps are equal; a space and a virtual page are not. What that changes: memory that two
//! processes share counts as two pages, and a page keeps its name while it is swapped out and back,
//! when a physical one has another one each time. A page that is unmapped or moved meanwhile keeps its old
//! name here, of which nobody will find anything resident.
//!
//! Memory: 16 bytes an item, 4 KiB at 256. The paper stores no times, and counts 8.

use std::collections::VecDeque;

use clew_core::{Ns, PageId, SpaceId};

/// Pages that were used close to each other in time, in the order of use, some more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// When it was complete.
    pub at: Ns,
    /// At most a window of them.
    pub pages: Vec<PageId>,
}

/// Sizes and times of a [`FootprintStream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Items that the queue holds; no fewer than a window has.
    pub queue: usize,
    /// Items of a whole transaction, at least 1.
    pub items: usize,
    /// How long an incomplete transaction waits.
    pub timeout: Ns,
}

/// What the window waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// Its first item.
    First,
    /// The end of the timeout.
    Until(Ns),
    /// Half a window: the timeout is over.
    Half,
}

/// The generator. See the module.
#[derive(Debug)]
pub struct FootprintStream {
    window: Window,
    queue: VecDeque<(Ns, PageId)>,
    wait: Wait,
    items: u64,
    dropped: u64,
}

impl FootprintStream {
    /// Has seen nothing yet.
    ///
    /// # Panics
    /// If a window has no items, or more than the queue, or takes no time: no item would be in it.
    pub fn new(window: Window) -> FootprintStream {
        assert!(
            (1..=window.queue).contains(&window.items) && window.timeout > Ns(0),
            "a window that does not fit: {window:?}"
        );
        FootprintStream { window, queue: VecDeque::new(), wait: Wait::First, items: 0, dropped: 0 }
    }

    /// `page` was used at `at`, no earlier than what was told before.
    pub fn push(&mut self, at: Ns, page: PageId) {
        if self.queue.len() == self.window.queue {
            self.queue.pop_front();
            self.dropped += 1;
        }
        self.queue.push_back((at, page));
        self.items += 1;
    }

    /// The next transaction that is complete by `now`, if there is one.
    pub fn next(&mut self, now: Ns) -> Option<Transaction> {
        let Window { items, timeout, .. } = self.window;
        let half = items.div_ceil(2);
        loop {
            let time_of = |at: usize| self.queue.get(at).map(|(time, _)| *time);
            match self.wait {
                Wait::First => self.wait = Wait::Until(after(time_of(0)?, timeout)),
                Wait::Half => self.wait = Wait::Until(after(time_of(half - 1)?, timeout)),
                Wait::Until(end) => {
                    if let Some(full) = time_of(items - 1).filter(|full| *full < end) {
                        return Some(self.take(items, full));
                    }
                    if now < end {
                        return None;
                    }
                    let there = self.queue.partition_point(|(time, _)| *time < end);
                    if there >= half {
                        return Some(self.take(there, end));
                    }
                    self.wait = Wait::Half;
                }
            }
        }
    }

    fn take(&mut self, items: usize, at: Ns) -> Transaction {
        let taken: Vec<(Ns, PageId)> = self.queue.drain(..items).collect();
        let last = taken.last().map_or(at, |(time, _)| *time);
        self.wait = Wait::Until(after(last, self.window.timeout));
        Transaction { at, pages: taken.into_iter().map(|(_, page)| page).collect() }
    }

    /// All pages of `space` are gone; another one may get its number.
    pub fn forget_space(&mut self, space: SpaceId) {
        self.queue.retain(|(_, page)| page.space() != space);
    }

    /// Items told so far.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Items that a full queue pushed out.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.queue.capacity() * size_of::<(Ns, PageId)>()) as u64
    }
}

fn after(time: Ns, timeout: Ns) -> Ns {
    Ns(time.0.saturating_add(timeout.0))
}

#[cfg(test)]
mod tests {
    use clew_core::Vpn;
    use proptest::prelude::*;

    use super::*;

    fn page(vpn: u64) -> PageId {
        PageId::new(SpaceId(0), Vpn(vpn))
    }

    fn ms(ms: u64) -> Ns {
        Ns::from_ms(ms)
    }

    fn vpns(transaction: &Transaction) -> Vec<u64> {
        transaction.pages.iter().map(|page| page.vpn().0).collect()
    }

    /// Figure 5, with times that fit those which its text gives.
    fn figure_5() -> Vec<(u64, u64)> {
        let pages = [
            0x3E, 0x29, 0x313, 0x32, 0x10, 0x2F, 0x45, 0x3E, 0x29, 0x32, 0x10, 0x2F, 0x11, 0x3E,
            0x29, 0x13, 0x28, 0x29, 0x13, 0x37, 0x2F, 0x28, 0x3E, 0x51, 0x29, 0x10, 0x10,
        ];
        let first = (0..=1500).step_by(100);
        let times = first.chain((4200..=4400).step_by(50)).chain((4600..=5100).step_by(100));
        let items: Vec<(u64, u64)> = times.zip(pages).collect();
        assert_eq!(items.len(), 27);
        items
    }

    const FIGURE_5: [(u64, &[u64]); 5] = [
        (500, &[0x3E, 0x29, 0x313, 0x32, 0x10, 0x2F]),
        (1100, &[0x45, 0x3E, 0x29, 0x32, 0x10, 0x2F]),
        (4100, &[0x11, 0x3E, 0x29, 0x13]),
        (4500, &[0x28, 0x29, 0x13, 0x37, 0x2F]),
        (5100, &[0x28, 0x3E, 0x51, 0x29, 0x10, 0x10]),
    ];

    fn of_figure_5(queue: usize) -> FootprintStream {
        FootprintStream::new(Window { queue, items: 6, timeout: ms(3000) })
    }

    fn is_figure_5(transactions: &[Transaction]) {
        let found: Vec<(Ns, Vec<u64>)> = transactions.iter().map(|t| (t.at, vpns(t))).collect();
        let expected = FIGURE_5.map(|(at, pages)| (ms(at), pages.to_vec()));
        assert_eq!(found, expected);
    }

    #[test]
    fn figure_5_in_time() {
        let mut stream = of_figure_5(10);
        let (mut found, mut items) = (Vec::new(), figure_5().into_iter().peekable());
        for now in 0..6000 {
            while let Some((_, vpn)) = items.next_if(|(at, _)| *at == now) {
                stream.push(ms(now), page(vpn));
            }
            while let Some(transaction) = stream.next(ms(now)) {
                assert_eq!(transaction.at, ms(now), "it is there as soon as it is complete");
                found.push(transaction);
            }
        }
        is_figure_5(&found);
        assert_eq!((stream.items(), stream.dropped()), (27, 0));
    }

    #[test]
    fn figure_5_looked_at_once_at_the_end() {
        let mut stream = of_figure_5(27);
        figure_5().into_iter().for_each(|(at, vpn)| stream.push(ms(at), page(vpn)));
        let found: Vec<Transaction> = std::iter::from_fn(|| stream.next(ms(5100))).collect();
        is_figure_5(&found);
    }

    #[test]
    fn a_full_queue_pushes_out_the_oldest() {
        let mut stream = of_figure_5(10);
        (0..25).for_each(|n| stream.push(ms(n), page(n)));
        let first = stream.next(ms(25)).expect("a window");
        assert_eq!(vpns(&first), [15, 16, 17, 18, 19, 20]);
        assert_eq!((stream.items(), stream.dropped()), (25, 15));
        assert_eq!(stream.next(ms(25)), None);
    }

    #[test]
    fn fewer_than_half_wait_for_half_and_then_for_the_timeout() {
        let mut stream = of_figure_5(10);
        stream.push(ms(0), page(1));
        stream.push(ms(10), page(2));
        assert_eq!(stream.next(ms(60_000)), None);
        stream.push(ms(60_000), page(3));
        assert_eq!(stream.next(ms(60_000)), None);
        assert_eq!(stream.next(ms(62_999)), None);
        let found = stream.next(ms(63_000)).expect("a timeout");
        assert_eq!((found.at, vpns(&found)), (ms(63_000), vec![1, 2, 3]));
    }

    #[test]
    fn what_ends_leaves_the_queue() {
        let mut stream = of_figure_5(10);
        for vpn in 1..6 {
            stream.push(ms(0), page(vpn));
            stream.push(ms(0), PageId::new(SpaceId(1), Vpn(vpn)));
        }
        stream.forget_space(SpaceId(1));
        assert_eq!(stream.next(ms(1)), None);
        stream.push(ms(1), page(21));
        let found = stream.next(ms(1)).expect("a window");
        assert_eq!(vpns(&found), [1, 2, 3, 4, 5, 21]);
    }

    proptest! {
        /// However often the queue is looked at, the transactions are those that looking at every item
        /// gives, as long as nothing is pushed out; none is larger than a window, and no item is lost.
        #[test]
        fn looking_seldom_changes_nothing(
            gaps in prop::collection::vec(prop_oneof![0u64..40, 0u64..4000, Just(0), Just(3000)], 1..120),
            looks in prop::collection::vec(any::<bool>(), 120),
            items in 1usize..9,
        ) {
            let window = Window { queue: 128, items, timeout: ms(3000) };
            let (mut often, mut seldom) = (FootprintStream::new(window), FootprintStream::new(window));
            let (mut of_often, mut of_seldom, mut now) = (Vec::new(), Vec::new(), 0);
            for ((vpn, gap), look) in gaps.iter().enumerate().zip(looks) {
                now += gap;
                for stream in [&mut often, &mut seldom] {
                    stream.push(ms(now), page(vpn as u64));
                }
                of_often.extend(std::iter::from_fn(|| often.next(ms(now))));
                if look {
                    of_seldom.extend(std::iter::from_fn(|| seldom.next(ms(now))));
                }
            }
            of_seldom.extend(std::iter::from_fn(|| seldom.next(ms(now))));
            prop_assert_eq!(&of_often, &of_seldom);
            prop_assert!(of_often.iter().all(|t| (items.div_ceil(2)..=items).contains(&t.pages.len())));
            let told = of_often.iter().flat_map(vpns).chain(often.queue.iter().map(|(_, p)| p.vpn().0));
            prop_assert!(told.eq(0..gaps.len() as u64));
        }
    }
}
