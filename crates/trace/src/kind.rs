//! The kinds of records.

use clew_core::{AccessKind, Trigger};

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
    Used = 40, "used";
}

impl Kind {
    /// Whether traces of this version have it.
    pub(crate) fn is_of(self, version: u16) -> bool {
        let last = match version {
            1 => Kind::PrefetchEnd,
            2 => Kind::Spared,
            3 => Kind::JobDone,
            4 => Kind::DeviceSample,
            5 => Kind::Donor,
            _ => Kind::Used,
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
                Note::Used { .. } => Kind::Used,
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
