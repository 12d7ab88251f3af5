//! Which address spaces live, whose they are, and which hold pages of files.

use clew_core::{AppId, SpaceId};
use clew_trace::Record;

#[derive(Clone, Copy)]
struct Known {
    app: AppId,
    file: bool,
}

/// The spaces of a trace at one moment.
#[derive(Default)]
pub struct Spaces {
    known: Vec<Option<Known>>,
    noted: u64,
}

impl Spaces {
    /// Brings the spaces up to date; returns those that ended with this record, in the order of
    /// their numbers.
    pub fn note(&mut self, record: &Record) -> Vec<SpaceId> {
        self.noted += 1;
        match *record {
            Record::SpaceStart { space, app, file } => {
                let number = space.0 as usize;
                if self.known.len() <= number {
                    self.known.resize(number + 1, None);
                }
                let before = self.known[number].replace(Known { app, file });
                before.map(|_| space).into_iter().collect()
            }
            Record::SpaceEnd { space } => self.take(space).into_iter().collect(),
            Record::Exit { app } => {
                let of_app: Vec<SpaceId> = self.of_app(app).collect();
                of_app.into_iter().filter_map(|space| self.take(space)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Records noted.
    pub fn noted(&self) -> u64 {
        self.noted
    }

    fn take(&mut self, space: SpaceId) -> Option<SpaceId> {
        self.known.get_mut(space.0 as usize)?.take().map(|_| space)
    }

    /// Whether `space` lives and holds pages of files, which are no business of a scheme that does not take them.
    #[inline]
    pub fn is_file(&self, space: SpaceId) -> bool {
        matches!(self.known.get(space.0 as usize), Some(Some(known)) if known.file)
    }

    /// Whether `space` lives and holds anonymous memory.
    #[inline]
    pub fn is_anonymous(&self, space: SpaceId) -> bool {
        matches!(self.known.get(space.0 as usize), Some(Some(known)) if !known.file)
    }

    /// Whose it is.
    #[inline]
    pub fn app(&self, space: SpaceId) -> Option<AppId> {
        self.known.get(space.0 as usize).copied().flatten().map(|known| known.app)
    }

    /// The spaces of `app` that hold anonymous memory or files.
    pub fn of_app(&self, app: AppId) -> impl Iterator<Item = SpaceId> {
        let known = self.known.iter().enumerate();
        known
            .filter(move |(_, known)| known.is_some_and(|known| known.app == app))
            .map(|(number, _)| SpaceId(number as u32))
    }
}
