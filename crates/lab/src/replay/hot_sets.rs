//! What relaunches use of memory, and what the scheme's hot list says of it beforehand.
//!
//! Source: Ariadne, figures 5 and 14. Of each relaunch there are four sets of pages: what the relaunch
//! before used (*before*), what the scheme calls hot when this one begins (*hot*), what is used up to
//! the response (*used*), and what is used until the app is sent back (*all*). Then
//! - similarity (figure 5) is the part of *used* that is in *before*;
//! - reuse (figure 5) is the part of *before* that is in *all*;
//! - coverage (figure 14) is the part of *used* that is in *hot*;
//! - accuracy (figure 14) is the part of *hot* that is in *all*.
//!
//! The first two are the trace's, and what a hot list could reach that is what the last relaunch used;
//! the others are the scheme's. A page is its address: one that is given up and made anew is the same.
//! A relaunch counts if its response is in the trace. All four are means over the relaunches that have
//! something to divide by.
//!
//! Memory: a byte a page that an app has touched.

use clew_core::{AppId, PageId, SpaceId};
use clew_report::HotSets;

use crate::page_map::PageMap;

/// In which of the sets a page is.
const BEFORE: u8 = 1;
const HOT: u8 = 2;
const USED: u8 = 4;
const LATER: u8 = 8;

#[derive(Clone, Copy)]
struct Open {
    app: AppId,
    responded: bool,
    before: u64,
    hot: u64,
    used: u64,
    used_before: u64,
    used_hot: u64,
    all_before: u64,
    all_hot: u64,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    fn add(&mut self, part: u64, of: u64) {
        if of > 0 {
            self.sum += part as f64 / of as f64;
            self.count += 1;
        }
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

/// Follows the apps of a replay.
#[derive(Default)]
pub(super) struct Follower {
    sets: PageMap<u8>,
    open: Option<Open>,
    relaunches: u64,
    similarity: Mean,
    reuse: Mean,
    coverage: Mean,
    accuracy: Mean,
}

impl Follower {
    /// A relaunch of `app` begins, which has these spaces and whose hot list this is.
    pub fn relaunch(
        &mut self,
        app: AppId,
        spaces: impl Iterator<Item = SpaceId>,
        hot_list: impl Iterator<Item = PageId>,
    ) {
        self.close();
        let (mut before, mut hot) = (0, 0);
        for space in spaces {
            self.sets.each_of_space(space, |sets| {
                *sets = if *sets & USED != 0 { BEFORE } else { 0 };
                before += u64::from(*sets == BEFORE);
            });
        }
        for page in hot_list {
            *self.sets.entry(page) |= HOT;
            hot += 1;
        }
        self.open = Some(Open {
            app,
            responded: false,
            before,
            hot,
            used: 0,
            used_before: 0,
            used_hot: 0,
            all_before: 0,
            all_hot: 0,
        });
    }

    /// The app's first complete response.
    pub fn responded(&mut self, app: AppId) {
        if let Some(open) = self.open.as_mut().filter(|open| open.app == app) {
            open.responded = true;
        }
    }

    /// `page` of `app` is used.
    #[inline]
    pub fn used(&mut self, page: PageId, app: Option<AppId>) {
        let Some(open) = self.open.as_mut().filter(|open| Some(open.app) == app) else { return };
        let sets = self.sets.entry(page);
        let now = if open.responded { LATER } else { USED };
        if *sets & now != 0 {
            return;
        }
        let (before, hot) = (u64::from(*sets & BEFORE != 0), u64::from(*sets & HOT != 0));
        if *sets & USED == 0 {
            open.all_before += before;
            open.all_hot += hot;
        }
        if now == USED {
            open.used += 1;
            open.used_before += before;
            open.used_hot += hot;
        }
        *sets |= now;
    }

    /// The app in front is not any more: what it used is known.
    pub fn close(&mut self) {
        let Some(open) = self.open.take().filter(|open| open.responded) else { return };
        self.relaunches += 1;
        if open.before > 0 && open.used > 0 {
            self.similarity.add(open.used_before, open.used);
            self.reuse.add(open.all_before, open.before);
        }
        self.coverage.add(open.used_hot, open.used);
        self.accuracy.add(open.all_hot, open.hot);
    }

    /// The same, if it is `app`.
    pub fn close_app(&mut self, app: AppId) {
        if self.open.is_some_and(|open| open.app == app) {
            self.close();
        }
    }

    /// A space has ended.
    pub fn end_space(&mut self, space: SpaceId) {
        self.sets.remove_space(space);
    }

    /// What came of it. `has_hot_list` is whether the scheme keeps one.
    pub fn finish(mut self, has_hot_list: bool) -> HotSets {
        self.close();
        HotSets {
            relaunches: self.relaunches,
            similarity: self.similarity.get(),
            reuse: self.reuse.get(),
            coverage: self.coverage.get().filter(|_| has_hot_list),
            accuracy: self.accuracy.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clew_core::Vpn;

    use super::*;

    const APP: AppId = AppId(1);
    const SPACE: SpaceId = SpaceId(4);

    fn pages(vpns: &[u64]) -> Vec<PageId> {
        vpns.iter().map(|vpn| PageId::new(SPACE, Vpn(*vpn))).collect()
    }

    /// A relaunch with a hot list, what it uses, and what is used afterwards.
    fn relaunch(follower: &mut Follower, hot: &[u64], used: &[u64], later: &[u64]) {
        follower.relaunch(APP, [SPACE].into_iter(), pages(hot).into_iter());
        pages(used).into_iter().for_each(|page| follower.used(page, Some(APP)));
        follower.responded(APP);
        pages(later).into_iter().for_each(|page| follower.used(page, Some(APP)));
        follower.close_app(APP);
    }

    /// Ariadne's definitions, by hand.
    #[test]
    fn four_numbers_of_two_relaunches() {
        let mut follower = Follower::default();
        // 3 of the 4 used pages are hot: coverage 3/4. Of 5 hot pages, 1, 2, 3 and (later) 9 are used:
        // accuracy 4/5. There is no relaunch before.
        relaunch(&mut follower, &[1, 2, 3, 8, 9], &[1, 2, 3, 4, 4, 1], &[9, 1, 9]);
        // Used before: 1, 2, 3, 4. Used now: 1, 2, 5, 6, 7: similarity 2/5. Of the four, 1, 2 and
        // (later) 3 are used again: reuse 3/4. Hot: 1, 2, 3, 4, 5, 10; of these used now 1, 2, 5:
        // coverage 3/5; used at all 1, 2, 5, 3: accuracy 4/6.
        relaunch(&mut follower, &[1, 2, 3, 4, 5, 10], &[1, 2, 5, 6, 7], &[3, 11]);
        // Neither an app in the background nor one that was sent back before its response counts.
        follower.used(pages(&[10])[0], Some(APP));
        follower.relaunch(APP, [SPACE].into_iter(), pages(&[1]).into_iter());
        follower.used(pages(&[12])[0], Some(AppId(2)));
        follower.close_app(AppId(2));
        follower.close_app(APP);
        let found = follower.finish(true);
        assert_eq!(found.relaunches, 2);
        assert_eq!((found.similarity, found.reuse), (Some(2.0 / 5.0), Some(3.0 / 4.0)));
        assert_eq!(found.coverage, Some((3.0 / 4.0 + 3.0 / 5.0) / 2.0));
        assert_eq!(found.accuracy, Some((4.0 / 5.0 + 4.0 / 6.0) / 2.0));
    }

    #[test]
    fn without_a_hot_list_there_is_nothing_to_say_of_it() {
        let mut follower = Follower::default();
        relaunch(&mut follower, &[], &[1, 2], &[]);
        relaunch(&mut follower, &[], &[2], &[1]);
        let found = follower.finish(false);
        assert_eq!((found.similarity, found.reuse), (Some(1.0), Some(1.0)));
        assert_eq!((found.coverage, found.accuracy), (None, None));
    }

    #[test]
    fn a_space_that_ends_takes_its_pages_with_it() {
        let mut follower = Follower::default();
        relaunch(&mut follower, &[], &[1, 2], &[]);
        follower.end_space(SPACE);
        relaunch(&mut follower, &[], &[1, 2], &[]);
        // A hot list that is empty covers nothing.
        let found = follower.finish(true);
        assert_eq!((found.similarity, found.coverage, found.accuracy), (None, Some(0.0), None));
    }
}
