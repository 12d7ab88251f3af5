//! What has been named so far: a record that points nowhere is no record.
//!
//! Reader and writer keep to the same rules, so that whatever was written can be read.

use std::collections::BTreeMap;

use clew_core::{AppId, PageId, PageRun, SPACES, SpaceId, Trigger};

use crate::error::Bad;
use crate::record::{Note, Record};

/// Longest name of an app, in bytes.
pub(crate) const NAME_BYTES: usize = 255;
/// Apps of a trace at most.
const APPS: usize = 65_536;
/// Page numbers are below this: a program's half of 57-bit addresses, in pages of 4 KiB. Whoever counts on
/// from a page of a trace stays within its space.
pub(crate) const VPNS: u64 = 1 << 44;

/// Whether `app` may be called `name` among these.
pub(crate) fn check_name(
    apps: &BTreeMap<AppId, String>,
    app: AppId,
    name: &str,
) -> Result<(), Bad> {
    if name.is_empty() || name.len() > NAME_BYTES || name.contains(char::is_control) {
        let why = format!("{name:?} is no name (1 to {NAME_BYTES} bytes, nothing to control)");
        return Err(Bad::new("name", why));
    }
    if apps.len() == APPS && !apps.contains_key(&app) {
        return Err(Bad::new("app", format!("more than {APPS} apps")));
    }
    Ok(())
}

/// Apps that have a name, spaces that live, contents that there are.
#[derive(Default)]
pub(crate) struct Known {
    pub apps: BTreeMap<AppId, String>,
    /// By space: whose it is, while it lives.
    spaces: Vec<Option<AppId>>,
    pub contents: u32,
}

impl Known {
    /// `app` is called `name`. An app has one name.
    pub fn name(&mut self, app: AppId, name: &str) -> Result<(), Bad> {
        check_name(&self.apps, app, name)?;
        match self.apps.get(&app) {
            Some(before) if before != name => {
                let why = format!("app {} is called '{before}' and '{name}'", app.0);
                Err(Bad::new("name", why))
            }
            Some(_) => Ok(()),
            None => {
                self.apps.insert(app, name.to_string());
                Ok(())
            }
        }
    }

    fn app(&self, app: AppId) -> Result<(), Bad> {
        match self.apps.contains_key(&app) {
            true => Ok(()),
            false => Err(Bad::new("app", format!("{} has no name", app.0))),
        }
    }

    /// Whether `space` has started and has not ended.
    pub fn lives(&self, space: SpaceId) -> bool {
        self.spaces.get(space.0 as usize).is_some_and(Option::is_some)
    }

    fn space(&self, space: SpaceId) -> Result<(), Bad> {
        match self.lives(space) {
            true => Ok(()),
            false => Err(Bad::new("space", format!("{} has not started, or has ended", space.0))),
        }
    }

    #[inline]
    fn page(&self, page: PageId) -> Result<(), Bad> {
        if page.vpn().0 >= VPNS {
            return Err(Bad::new("page", format!("number {:#x}", page.vpn().0)));
        }
        self.space(page.space())
    }

    fn run(&self, run: PageRun) -> Result<(), Bad> {
        self.space(run.first.space())?;
        let last = run.first.vpn().0.checked_add(u64::from(run.count));
        if run.count == 0 || last.is_none_or(|last| last > VPNS) {
            let why = format!("{} pages from page {:#x}", run.count, run.first.vpn().0);
            return Err(Bad::new("pages", why));
        }
        Ok(())
    }

    /// Whether `record` may come now; if so, it has.
    #[inline]
    pub fn take(&mut self, record: &Record) -> Result<(), Bad> {
        match *record {
            Record::Access { page, .. }
            | Record::Candidate { page }
            | Record::Note(
                Note::Victim { page }
                | Note::Prefetch { page }
                | Note::Stored { page, .. }
                | Note::Stayed { page }
                | Note::PageIn { page, .. }
                | Note::Dropped { page, .. }
                | Note::PrefetchUsed { page }
                | Note::PrefetchExpired { page }
                | Note::AskedPrefetch { trigger: Trigger::Fault(page) | Trigger::Hit(page) },
            ) => self.page(page),
            Record::Contents { page, content } => {
                if content.0 >= self.contents {
                    let why = format!("{} of {}", content.0, self.contents);
                    return Err(Bad::new("contents", why));
                }
                self.page(page)
            }
            Record::Resident { run }
            | Record::Freed { run }
            | Record::Note(Note::Used { run } | Note::Unused { run } | Note::Sample { run }) => {
                self.run(run)
            }
            Record::Moved { from, to } => {
                self.run(from)?;
                self.run(PageRun { first: to, count: from.count })
            }
            Record::Launch { app }
            | Record::Relaunch { app }
            | Record::ResponseComplete { app, .. }
            | Record::Background { app }
            | Record::Window { app }
            | Record::Note(
                Note::AskedApp { app }
                | Note::EndApp { app }
                | Note::AskedSamples { app, .. }
                | Note::Spared { app }
                | Note::AskedPrefetch { trigger: Trigger::Relaunch(app) },
            ) => self.app(app),
            Record::Exit { app } => {
                self.app(app)?;
                for owner in &mut self.spaces {
                    owner.take_if(|owner| *owner == app);
                }
                Ok(())
            }
            Record::SpaceStart { space, app, .. } => {
                self.app(app)?;
                if space.0 >= SPACES {
                    return Err(Bad::new("space", format!("{}; {SPACES} is the limit", space.0)));
                }
                let number = space.0 as usize;
                if self.spaces.len() <= number {
                    self.spaces.resize(number + 1, None);
                }
                self.spaces[number] = Some(app);
                Ok(())
            }
            Record::SpaceEnd { space } => {
                self.space(space)?;
                self.spaces[space.0 as usize] = None;
                Ok(())
            }
            Record::Note(
                Note::AskedPages { .. }
                | Note::Group { .. }
                | Note::TierUse { .. }
                | Note::Tick
                | Note::Pressure { .. }
                | Note::JobDone { .. }
                | Note::DeviceSample { .. }
                | Note::Donor { .. },
            ) => Ok(()),
        }
    }
}
