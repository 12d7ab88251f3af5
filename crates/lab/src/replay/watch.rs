//! What a replay can say of each launch and relaunch, for who wants more than the sums of an arm.
//!
//! For the figures of papers: launches by app (Archer, figures 7 and 9), what is compressed while one
//! goes on (Archer 5.3), what an app's own pages cost (Ariadne, figures 11 to 13), and in which order hot,
//! warm and cold data left (Ariadne, figure 4). Nothing here changes what is decided.

use std::collections::BTreeMap;

use clew_core::{AppId, Group, PageId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::costs::Spent;

/// Parts into which what left is cut, in the order in which it did (Ariadne, figure 4).
pub const PARTS: usize = 10;

/// A launch or a relaunch that came to its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Switch {
    /// The app, by its number in the trace.
    pub app: u32,
    /// It was started, and not brought back.
    pub cold: bool,
    /// What it takes without any swapping.
    pub own_ms: f64,
    /// What it took.
    pub took_ms: f64,
    /// Pages of any app that left until the response.
    pub out_pages: u64,
    /// Of these, pages that left in a block with others.
    pub out_in_blocks: u64,
    /// Pages that were decompressed until the response.
    pub back_pages: u64,
}

/// What became of the pages of one app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppPages {
    /// Pages that left.
    pub out_pages: u64,
    /// Bytes that they took in the pool.
    pub out_bytes: u64,
    /// Processor time of taking them out.
    pub out_ms: f64,
    /// Pages that faults and prefetches brought back.
    pub back_pages: u64,
    /// Processor time of finding and decompressing them.
    pub back_ms: f64,
    /// Of what left while the app was away, in ten parts in the order in which it did: pages that
    /// the next relaunch used, that were used after it, that were not used.
    pub parts: [[u64; 3]; PARTS],
}

/// How far everything is when an app comes to the front, or at the end: sums from the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The app, by its number in the trace; none at the end.
    pub app: Option<u32>,
    /// Read from flash, swap and files, bytes.
    pub flash_read_bytes: u64,
    /// Written to flash, bytes.
    pub flash_written_bytes: u64,
    /// Anonymous pages that left DRAM.
    pub out_pages: u64,
    /// Pages of files that left DRAM.
    pub out_file_pages: u64,
    /// Pages compressed.
    pub compressed_pages: u64,
    /// Pages whose beginning admission has looked at.
    pub sampled_pages: u64,
    /// Pages in the pool now.
    pub pool_pages: u64,
    /// What they take now, bytes.
    pub pool_bytes: u64,
    /// The time of the trace, nanoseconds.
    #[serde(default)]
    pub at_ns: u64,
    /// Apps that are alive and have been in front.
    #[serde(default)]
    pub cached_apps: u64,
    /// Apps that were ended.
    #[serde(default)]
    pub kills: u64,
    /// Apps that crashed, as a donor of theirs was lost.
    #[serde(default)]
    pub crashes: u64,
    /// Relaunches of apps that had ended.
    #[serde(default)]
    pub cold_launches: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Every launch and relaunch, in their order.
    pub switches: Vec<Switch>,
    /// By the app's number.
    pub apps: BTreeMap<u32, AppPages>,
    /// One for each launch and relaunch, as it begins, and one for the end.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

/// What an app has used of what had left.
struct Return {
    app: AppId,
    order: Vec<PageId>,
    /// 0 for hot, 1 for warm; [`COLD`].
    classes: HashMap<PageId, usize, FixedState>,
    responded: bool,
}

const HOT: usize = 0;
const WARM: usize = 1;
const COLD: usize = 2;

/// Collects it.
#[derive(Default)]
pub(super) struct Watch {
    found: Watched,
    /// Since the launch or relaunch that goes on, if one does.
    now: Switch,
    left: BTreeMap<AppId, Vec<PageId>>,
    back: Option<Return>,
}

impl Watch {
    fn app(&mut self, app: AppId) -> &mut AppPages {
        self.found.apps.entry(app.0).or_default()
    }

    /// A launch or relaunch begins.
    pub fn begin(&mut self, app: AppId, cold: bool) {
        self.close();
        self.now = Switch { app: app.0, cold, ..Switch::default() };
        let order = self.left.remove(&app).unwrap_or_default();
        if !cold {
            let classes = order.iter().map(|page| (*page, COLD)).collect();
            self.back = Some(Return { app, order, classes, responded: false });
        }
    }

    /// How far everything is.
    pub fn mark(&mut self, mark: Mark) {
        self.found.marks.push(mark);
    }

    /// It came to its response.
    pub fn responded(&mut self, app: AppId, own_ns: f64, took_ns: f64) {
        if let Some(back) = self.back.as_mut().filter(|back| back.app == app) {
            back.responded = true;
        }
        let switch = Switch { own_ms: own_ns / 1e6, took_ms: took_ns / 1e6, ..self.now };
        if switch.app == app.0 {
            self.found.switches.push(switch);
        }
    }

    /// A page of `app` is used.
    pub fn used(&mut self, page: PageId, app: Option<AppId>) {
        let Some(back) = self.back.as_mut().filter(|back| Some(back.app) == app) else { return };
        if let Some(class) = back.classes.get_mut(&page) {
            let now = if back.responded { WARM } else { HOT };
            *class = (*class).min(now);
        }
    }

    /// The app in front is not any more.
    pub fn close(&mut self) {
        let Some(back) = self.back.take().filter(|back| back.responded) else { return };
        let Return { app, order, classes, .. } = back;
        let parts = &mut self.app(app).parts;
        for (place, page) in order.iter().enumerate() {
            parts[place * PARTS / order.len()][classes[page]] += 1;
        }
    }

    /// All of an app is gone.
    pub fn ended(&mut self, app: AppId) {
        self.back.take_if(|back| back.app == app);
        self.left.remove(&app);
    }

    /// Groups of `app` leave, at that cost.
    pub fn took_out(&mut self, app: Option<AppId>, groups: &[Group], spent: &Spent) {
        let pages = |least: usize| {
            let large = groups.iter().filter(|group| group.pages.len() >= least);
            large.map(|group| group.pages.len() as u64).sum::<u64>()
        };
        self.now.out_pages += pages(1);
        self.now.out_in_blocks += pages(2);
        if let Some(app) = app {
            self.app(app).out_ms += spent.out_ns / 1e6;
        }
    }

    /// A page left.
    pub fn stored(&mut self, page: PageId, app: Option<AppId>, bytes: u32) {
        let Some(app) = app else { return };
        let of = self.app(app);
        of.out_pages += 1;
        of.out_bytes += u64::from(bytes);
        if self.back.as_ref().is_none_or(|back| back.app != app) {
            self.left.entry(app).or_default().push(page);
        }
    }

    /// Pages of `app` came back, at that cost.
    pub fn brought(&mut self, app: Option<AppId>, spent: &Spent) {
        self.now.back_pages += spent.decompressed_pages;
        if let Some(app) = app {
            let of = self.app(app);
            of.back_pages += spent.decompressed_pages;
            of.back_ms += spent.back_ns / 1e6;
        }
    }

    pub fn finish(mut self) -> Watched {
        self.close();
        self.found
    }
}

#[cfg(test)]
mod tests {
    use clew_core::{SpaceId, Vpn};

    use super::*;

    fn page(number: u64) -> PageId {
        PageId::new(SpaceId(0), Vpn(number))
    }

    #[test]
    fn what_left_is_hot_warm_or_cold_by_what_the_next_relaunch_uses() {
        let app = AppId(3);
        let mut watch = Watch::default();
        for number in 0..20 {
            watch.stored(page(number), Some(app), 100);
        }
        watch.begin(app, false);
        watch.used(page(0), Some(app));
        watch.used(page(99), Some(app));
        watch.responded(app, 1e6, 3e6);
        // What was hot stays so, whoever uses it later.
        watch.used(page(0), Some(app));
        watch.used(page(19), Some(app));
        let found = watch.finish();
        let parts = found.apps[&3].parts;
        assert_eq!((parts[0], parts[5], parts[9]), ([1, 0, 1], [0, 0, 2], [0, 1, 1]));
        assert_eq!((found.apps[&3].out_pages, found.apps[&3].out_bytes), (20, 2000));
        assert_eq!((found.switches[0].own_ms, found.switches[0].took_ms), (1.0, 3.0));
    }

    #[test]
    fn without_a_response_nothing_is_said() {
        let app = AppId(0);
        let mut watch = Watch::default();
        watch.stored(page(1), Some(app), 100);
        watch.begin(app, false);
        watch.used(page(1), Some(app));
        let found = watch.finish();
        assert!(found.switches.is_empty());
        assert_eq!(found.apps[&0].parts, [[0; 3]; PARTS]);
    }
}
