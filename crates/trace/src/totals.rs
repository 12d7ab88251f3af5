//! What a trace holds, counted: in its end, so that a part that is missing is noticed.

use std::collections::BTreeMap;

use clew_core::{AppId, Ns};

use crate::error::Bad;
use crate::kind::Kind;
use crate::known::check_name;
use crate::packed::{Scan, put_varint};
use crate::record::Record;

const KINDS: usize = Kind::ALL.len() + 1;

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

/// No record is of later: 292 years after a trace began. So who goes by its times may add to them.
const LATEST: Ns = Ns(u64::MAX / 2);

impl Totals {
    /// Whether the next record may be of this time.
    #[inline]
    pub(crate) fn may_come(&self, at: Ns) -> Result<(), Bad> {
        if at < self.last {
            return Err(Bad::new("time", format!("{} ns, after {} ns", at.0, self.last.0)));
        }
        match at <= LATEST {
            true => Ok(()),
            false => Err(Bad::new("time", format!("{} ns, later than any", at.0))),
        }
    }

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
