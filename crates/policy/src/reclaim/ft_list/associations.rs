//! Which resident or stored page is of which group, as the trees said last.

use std::collections::BTreeMap;

use clew_core::{AppId, PageId, PageRun, SpaceId, Vpn};

/// Groups of associated pages. A page is of one group at most.
#[derive(Default)]
pub(crate) struct Associations {
    of: BTreeMap<PageId, u32>,
    groups: Vec<Vec<PageId>>,
    /// Places in `groups` that are free.
    free: Vec<u32>,
    by_app: BTreeMap<AppId, Vec<u32>>,
    /// Groups that have pages.
    living: u64,
}

impl Associations {
    /// Whether `page` is associated with others.
    pub fn has(&self, page: PageId) -> bool {
        self.of.contains_key(&page)
    }

    /// The pages of its group; none, if it is of no group.
    pub fn group(&self, page: PageId) -> &[PageId] {
        match self.of.get(&page) {
            Some(number) => &self.groups[*number as usize],
            None => &[],
        }
    }

    /// The associated pages of `run`.
    pub fn within(&self, run: PageRun) -> impl Iterator<Item = PageId> {
        self.of.range(run.range()).map(|(page, _)| *page)
    }

    /// Pages that are associated, and groups.
    pub fn counts(&self) -> (u64, u64) {
        (self.of.len() as u64, self.living)
    }

    /// Bytes held, about: 19 a page of the index (a B-tree that is three quarters full), 8 of its group.
    pub fn bytes(&self) -> u64 {
        let places = self.groups.capacity() * size_of::<Vec<PageId>>()
            + self.free.capacity() * size_of::<u32>();
        self.of.len() as u64 * (19 + 8) + self.living * 4 + places as u64
    }

    /// Takes the groups of `app` for these; what it had before and what it has now.
    pub fn replace(
        &mut self,
        app: AppId,
        groups: impl Iterator<Item = Vec<PageId>>,
    ) -> (Vec<PageId>, Vec<PageId>) {
        let before = self.forget_app(app);
        let mut now = Vec::new();
        for group in groups {
            now.extend(&group);
            self.add(app, group);
        }
        (before, now)
    }

    fn add(&mut self, app: AppId, group: Vec<PageId>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.groups.push(Vec::new());
            (self.groups.len() - 1) as u32
        });
        self.of.extend(group.iter().map(|page| (*page, number)));
        self.groups[number as usize] = group;
        self.by_app.entry(app).or_default().push(number);
        self.living += 1;
    }

    /// `page` is of no group any more.
    pub fn remove(&mut self, page: PageId) {
        if let Some(number) = self.of.remove(&page) {
            let group = &mut self.groups[number as usize];
            group.retain(|member| *member != page);
            self.living -= u64::from(group.is_empty());
        }
    }

    /// Pages of `space` are of no group any more.
    pub fn forget_space(&mut self, space: SpaceId) {
        let first = PageId::new(space, Vpn(0));
        let last = PageId::from_raw(first.raw() | ((1 << 45) - 1));
        let pages: Vec<PageId> = self.of.range(first..=last).map(|(page, _)| *page).collect();
        pages.into_iter().for_each(|page| self.remove(page));
    }

    /// Pages of `app` are of no group any more; which these were.
    pub fn forget_app(&mut self, app: AppId) -> Vec<PageId> {
        let mut pages = Vec::new();
        for number in self.by_app.remove(&app).unwrap_or_default() {
            let group = std::mem::take(&mut self.groups[number as usize]);
            self.living -= u64::from(!group.is_empty());
            for page in &group {
                self.of.remove(page);
            }
            pages.extend(group);
            self.free.push(number);
        }
        pages
    }
}
