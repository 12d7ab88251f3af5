//! What a trace holds, counted: in its end, so that a part that is missing is noticed.

use std::collections::BTreeMap;

use clew_core::{AccessKind, AppId, Ns, Trigger};

use crate::error::Bad;
use crate::known::check_name;
use crate::packed::{Scan, put_varint};
use crate::record::{Note, Record};

macro_rules! kinds {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// The kinds of records. Their numbers are in every trace.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        #[allow(missing_docs)] // each is named as its record
        pub enum Kind { $($name = $number,)* }

        impl Kind {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Kind] = &[$(Kind::$name,)*];

            #[inline]
            pub(crate) fn from_number(number: u8) -> Option<Kind> {
                match number { $($number => Some(Kind::$name),)* _ => None }
            }

            /// Its name in tables and exports.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    Launch = 1, "launch";
    Relaunch = 2, "relaunch";
    ResponseComplete = 3, "response";
    Background = 4, "background";
    Exit = 5, "exit";
    SpaceStart = 6, "space-start";
    SpaceEnd = 7, "space-end";
    Resident = 8, "resident";
    AccessSeen = 9, "access";
    AccessFresh = 10, "access-fresh";
    AccessFault = 11, "access-fault";
    Contents = 12, "contents";
    Candidate = 13, "candidate";
    Freed = 14, "freed";
    Moved = 15, "moved";
    Window = 16, "window";
    AskedPages = 17, "asked-pages";
    AskedApp = 18, "asked-app";
    AskedRelaunch = 19, "asked-relaunch";
    AskedFault = 20, "asked-fault";
    Unused = 21, "unused";
    Group = 22, "group";
    Victim = 23, "victim";
    Prefetch = 24, "prefetch";
    EndApp = 25, "end-app";
    Stored = 26, "stored";
    Stayed = 27, "stayed";
    PageIn = 28, "page-in";
    Dropped = 29, "dropped";
    TierUse = 30, "tier-use";
    PrefetchEnd = 31, "prefetch-end";
    AskedSamples = 32, "asked-samples";
    Sample = 33, "sample";
    Spared = 34, "spared";
    Tick = 35, "tick";
    Pressure = 36, "pressure";
    JobDone = 37, "job-done";
    DeviceSample = 38, "device-sample";
    Donor = 39, "donor";
}

impl Kind {
    /// Whether traces of this version have it.
    pub(crate) fn is_of(self, version: u16) -> bool {
        let last = match version {
            1 => Kind::PrefetchEnd,
            2 => Kind::Spared,
            3 => Kind::JobDone,
            4 => Kind::DeviceSample,
            _ => Kind::Donor,
        };
        self as u8 <= last as u8
    }

    /// The kind of `record`.
    #[inline]
    pub fn of(record: &Record) -> Kind {
        match record {
            Record::Launch { .. } => Kind::Launch,
            Record::Relaunch { .. } => Kind::Relaunch,
            Record::ResponseComplete { .. } => Kind::ResponseComplete,
            Record::Background { .. } => Kind::Background,
            Record::Exit { .. } => Kind::Exit,
            Record::SpaceStart { .. } => Kind::SpaceStart,
            Record::SpaceEnd { .. } => Kind::SpaceEnd,
            Record::Resident { .. } => Kind::Resident,
            Record::Access { kind: AccessKind::Seen, .. } => Kind::AccessSeen,
            Record::Access { kind: AccessKind::Fresh, .. } => Kind::AccessFresh,
            Record::Access { kind: AccessKind::Fault, .. } => Kind::AccessFault,
            Record::Contents { .. } => Kind::Contents,
            Record::Candidate { .. } => Kind::Candidate,
            Record::Freed { .. } => Kind::Freed,
            Record::Moved { .. } => Kind::Moved,
            Record::Window { .. } => Kind::Window,
            Record::Note(note) => match note {
                Note::AskedPages { .. } => Kind::AskedPages,
                Note::AskedApp { .. } => Kind::AskedApp,
                Note::AskedPrefetch { trigger: Trigger::Relaunch(_) } => Kind::AskedRelaunch,
                Note::AskedPrefetch { trigger: Trigger::Fault(_) | Trigger::Hit(_) } => {
                    Kind::AskedFault
                }
                Note::PrefetchUsed { .. } | Note::PrefetchExpired { .. } => Kind::PrefetchEnd,
                Note::Unused { .. } => Kind::Unused,
                Note::Group { .. } => Kind::Group,
                Note::Victim { .. } => Kind::Victim,
                Note::Prefetch { .. } => Kind::Prefetch,
                Note::EndApp { .. } => Kind::EndApp,
                Note::Stored { .. } => Kind::Stored,
                Note::Stayed { .. } => Kind::Stayed,
                Note::PageIn { .. } => Kind::PageIn,
                Note::Dropped { .. } => Kind::Dropped,
                Note::TierUse { .. } => Kind::TierUse,
                Note::AskedSamples { .. } => Kind::AskedSamples,
                Note::Sample { .. } => Kind::Sample,
                Note::Spared { .. } => Kind::Spared,
                Note::Tick => Kind::Tick,
                Note::Pressure { .. } => Kind::Pressure,
                Note::JobDone { .. } => Kind::JobDone,
                Note::DeviceSample { .. } => Kind::DeviceSample,
                Note::Donor { .. } => Kind::Donor,
            },
        }
    }
}

const KINDS: usize = Kind::Donor as usize + 1;

/// Counts of a whole trace.
#[derive(Clone, PartialEq, Debug)]
pub struct Totals {
    counts: [u64; KINDS],
    /// Different contents.
    pub contents: u32,
    /// Time of the first record.
    pub first: Ns,
    /// Time of the last record.
    pub last: Ns,
    /// The apps and their names.
    pub apps: BTreeMap<AppId, String>,
}

impl Default for Totals {
    fn default() -> Totals {
        let (contents, first, last, apps) = Default::default();
        Totals { counts: [0; KINDS], contents, first, last, apps }
    }
}

impl Totals {
    /// Records of `kind`.
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// All records.
    pub fn records(&self) -> u64 {
        self.counts.iter().sum()
    }

    #[inline]
    pub(crate) fn add(&mut self, at: Ns, record: &Record) {
        self.counts[Kind::of(record) as usize] += 1;
        self.last = at;
    }

    /// For the end of a trace.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        for kind in Kind::ALL {
            put_varint(out, self.count(*kind));
        }
        put_varint(out, u64::from(self.contents));
        put_varint(out, self.first.0);
        put_varint(out, self.last.0);
        put_varint(out, self.apps.len() as u64);
        for (app, name) in &self.apps {
            put_app(out, *app, name);
        }
    }

    /// The inverse of [`Totals::put`].
    pub(crate) fn scan(scan: &mut Scan<'_>, version: u16) -> Result<Totals, Bad> {
        let mut totals = Totals::default();
        let mut sum = 0u64;
        for kind in Kind::ALL.iter().filter(|kind| kind.is_of(version)) {
            let count = scan.number(kind.name())?;
            totals.counts[*kind as usize] = count;
            let more = sum.checked_add(count);
            sum = more.ok_or_else(|| Bad::new(kind.name(), "more records than can be"))?;
        }
        totals.contents = scan.number32("contents")?;
        totals.first = Ns(scan.number("first time")?);
        totals.last = Ns(scan.number("last time")?);
        for _ in 0..scan.number("apps")? {
            let (app, name) = scan_app(scan)?;
            check_name(&totals.apps, app, name)?;
            if totals.apps.insert(app, name.to_string()).is_some() {
                return Err(Bad::new("apps", format!("{} comes twice", app.0)));
            }
        }
        Ok(totals)
    }
}

/// An app and its name.
pub(crate) fn put_app(out: &mut Vec<u8>, app: AppId, name: &str) {
    put_varint(out, u64::from(app.0));
    put_varint(out, name.len() as u64);
    out.extend(name.as_bytes());
}

/// The inverse of [`put_app`].
pub(crate) fn scan_app<'a>(scan: &mut Scan<'a>) -> Result<(AppId, &'a str), Bad> {
    let app = AppId(scan.number32("app")?);
    let length = scan.number("name")?.min(u64::from(u16::MAX)) as usize;
    let name = std::str::from_utf8(scan.bytes(length, "name")?);
    Ok((app, name.map_err(|error| Bad::new("name", error.to_string()))?))
}
