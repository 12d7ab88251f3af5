//! Which list a page is on: of which app, where it is, and of which class.

use clew_core::{AppId, PageId, PageRun, SpaceId, View};

use super::HotnessOrg;
use crate::reclaim::page_lists::{Flag, ListId, PageLists, Slot};

/// Where a page of a list is.
pub(super) const IN: usize = 0;
/// Handed out, or in the pool.
pub(super) const OUT: usize = 1;
/// In another tier.
pub(super) const BEYOND: usize = 2;
pub(super) const SIDES: [usize; 3] = [IN, OUT, BEYOND];
/// Classes as they are kept: hot pages that the present relaunch used are apart until it is over.
pub(super) const COLD: usize = 0;
pub(super) const WARM: usize = 1;
pub(super) const HOT: usize = 2;
pub(super) const USED: usize = 3;
/// The order in which classes leave.
pub(super) const CLASSES: [usize; 4] = [COLD, WARM, HOT, USED];
/// The bits of a page's class, and where it is. A page beyond the pool is out too.
pub(super) const CLASS_LOW: Flag = Flag::A;
pub(super) const CLASS_HIGH: Flag = Flag::B;
pub(super) const IS_OUT: Flag = Flag::C;
pub(super) const IS_BEYOND: Flag = Flag::D;
/// No app, in the table of owners.
pub(super) const NOBODY: u32 = u32::MAX;

pub(super) struct App {
    pub id: AppId,
    pub lists: [[ListId; 4]; 3],
    pub pages: [[u64; 4]; 3],
}

impl HotnessOrg {
    /// The number of the app that owns `page`, which is new if it was not heard of.
    pub(super) fn app_of(&mut self, page: PageId, view: &View<'_>) -> Option<usize> {
        let space = page.space().0 as usize;
        match self.owners.get(space) {
            Some(&number) if number != NOBODY => return Some(number as usize),
            Some(_) => {}
            None => self.owners.resize(space + 1, NOBODY),
        }
        let id = view.app_of(page)?;
        let HotnessOrg { numbers, apps, lists, .. } = self;
        let number = *numbers.entry(id).or_insert_with(|| {
            let number = apps.iter().position(Option::is_none).unwrap_or(apps.len());
            let mut list = || lists.new_list();
            let lists = std::array::from_fn(|_| std::array::from_fn(|_| list()));
            let app = Some(App { id, lists, pages: [[0; 4]; 3] });
            match apps.get_mut(number) {
                Some(free) => *free = app,
                None => apps.push(app),
            }
            number as u32
        });
        self.owners[space] = number;
        Some(number as usize)
    }

    pub(super) fn app(&self, number: usize) -> &App {
        self.apps[number].as_ref().expect("an app that has pages")
    }

    pub(super) fn app_mut(&mut self, number: usize) -> &mut App {
        self.apps[number].as_mut().expect("an app that has pages")
    }

    pub(super) fn owner(&self, slot: Slot) -> usize {
        self.owners[self.lists.page(slot).space().0 as usize] as usize
    }

    pub(super) fn place(&self, slot: Slot) -> (usize, usize) {
        place(&self.lists, slot)
    }

    pub(super) fn label(&mut self, slot: Slot, side: usize, class: usize) {
        self.lists.set_flag(slot, IS_OUT, side != IN);
        self.lists.set_flag(slot, IS_BEYOND, side == BEYOND);
        self.lists.set_flag(slot, CLASS_LOW, class & 1 != 0);
        self.lists.set_flag(slot, CLASS_HIGH, class & 2 != 0);
    }

    /// Puts a listed page at the front of another (or the same) list of its app.
    pub(super) fn move_to(&mut self, slot: Slot, side: usize, class: usize) {
        let number = self.owner(slot);
        let (old_side, old_class) = self.place(slot);
        let app = self.app_mut(number);
        app.pages[old_side][old_class] -= 1;
        app.pages[side][class] += 1;
        let list = app.lists[side][class];
        self.label(slot, side, class);
        self.lists.move_to_front(list, slot);
    }

    /// Lists a page that is not known.
    pub(super) fn enter(&mut self, page: PageId, number: usize, side: usize, class: usize) {
        let slot = self.lists.slot(page);
        self.label(slot, side, class);
        let app = self.app_mut(number);
        app.pages[side][class] += 1;
        let list = app.lists[side][class];
        self.lists.push_front(list, slot);
    }

    pub(super) fn forget_run(&mut self, run: PageRun) {
        let HotnessOrg { lists, apps, owners, .. } = self;
        lists.forget_run(run, |lists, slot| uncount(lists, slot, apps, owners));
    }

    pub(super) fn forget_space(&mut self, space: SpaceId) {
        let HotnessOrg { lists, apps, owners, .. } = self;
        lists.forget_space(space, |lists, slot| uncount(lists, slot, apps, owners));
        if let Some(owner) = owners.get_mut(space.0 as usize) {
            *owner = NOBODY;
        }
    }

    pub(super) fn forget_app(&mut self, app: AppId) {
        let Some(number) = self.numbers.remove(&app) else { return };
        for space in 0..self.owners.len() {
            if self.owners[space] == number {
                self.forget_space(SpaceId(space as u32));
            }
        }
        let Some(ended) = self.apps[number as usize].take() else { return };
        ended.lists.into_iter().flatten().for_each(|list| self.lists.end_list(list));
    }

    /// Both are of one space: a page stays its app's.
    pub(super) fn moved(&mut self, from: PageRun, to: PageId) {
        debug_assert_eq!(from.first.space(), to.space(), "moved between spaces");
        let HotnessOrg { lists, apps, owners, .. } = self;
        lists.move_run(from, to, |lists, slot| uncount(lists, slot, apps, owners));
    }

    pub(super) fn apps(&self) -> impl Iterator<Item = &App> {
        self.apps.iter().flatten()
    }
}

fn place(lists: &PageLists, slot: Slot) -> (usize, usize) {
    let bit = |flag| usize::from(lists.flag(slot, flag));
    (bit(IS_OUT) + bit(IS_BEYOND), bit(CLASS_LOW) | bit(CLASS_HIGH) << 1)
}

fn uncount(lists: &PageLists, slot: Slot, apps: &mut [Option<App>], owners: &[u32]) {
    let (side, class) = place(lists, slot);
    let number = owners[lists.page(slot).space().0 as usize] as usize;
    apps[number].as_mut().expect("an app that has pages").pages[side][class] -= 1;
}
