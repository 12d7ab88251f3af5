//! Records as CSV, one a row.

use std::collections::BTreeMap;
use std::io::Write;

use clew_core::shown::shown;
use clew_core::{AppId, DeviceFacts, Trigger};

use crate::error::TraceError;
use crate::kind::Kind;
use crate::reader::Reader;
use crate::record::{Note, Record, Stamped};

/// The columns. `page` is a page number: the address divided by the size of a page. `flag` is
/// `write`, `file`, `urgent`, `demand`, `hit`, `used` or `siblings` where the record says yes to
/// that, else empty.
/// `detail` is what only this kind of record has, as `name=value` separated by blanks.
pub const COLUMNS: [&str; 9] =
    ["ns", "record", "app", "space", "page", "pages", "flag", "contents", "detail"];

/// Writes all records of `reader` to `out`, with a header row, and returns how many. `progress` is
/// told after each 65,536 of them how many bytes of the trace are done.
pub fn csv<R: std::io::Read>(
    mut reader: Reader<R>,
    out: impl Write,
    mut progress: impl FnMut(u64),
) -> Result<u64, TraceError> {
    let mut out = csv::Writer::from_writer(out);
    let failed = |error: csv::Error| {
        let source = match error.into_kind() {
            csv::ErrorKind::Io(source) => source,
            other => std::io::Error::other(format!("{other:?}")),
        };
        TraceError::Write { offset: 0, source }
    };
    out.write_record(COLUMNS).map_err(failed)?;
    let mut rows = 0u64;
    while let Some(stamped) = reader.next() {
        out.write_record(row(&stamped?, reader.apps()).cells()).map_err(failed)?;
        rows += 1;
        if rows.is_multiple_of(1 << 16) {
            progress(reader.position());
        }
    }
    out.flush().map_err(|source| TraceError::Write { offset: 0, source })?;
    Ok(rows)
}

/// A record as [`COLUMNS`] have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// When, nanoseconds since the trace began.
    pub ns: u64,
    /// What kind it is.
    pub record: &'static str,
    /// Whose.
    pub app: Option<&'a str>,
    /// Which address space.
    pub space: Option<u32>,
    /// The first page.
    pub page: Option<u64>,
    /// How many.
    pub pages: Option<u64>,
    /// Empty for none.
    pub flag: &'static str,
    /// Number of the contents.
    pub contents: Option<u64>,
    /// Empty for none.
    pub detail: String,
}

impl Row<'_> {
    fn cells(self) -> [String; 9] {
        let Row { ns, record, app, space, page, pages, flag, contents, detail } = self;
        let number = |number: Option<u64>| number.map_or(String::new(), |n| n.to_string());
        let space = number(space.map(u64::from));
        let [page, pages, contents] = [page, pages, contents].map(number);
        // Names come from programs, and whoever looks at the file does it with a terminal.
        let app = shown(app.unwrap_or_default()).into_owned();
        let (record, flag) = (record.to_string(), flag.to_string());
        [ns.to_string(), record, app, space, page, pages, flag, contents, detail]
    }
}

/// A record; `apps` are those that were named before it.
pub fn row<'a>(stamped: &Stamped, apps: &'a BTreeMap<AppId, String>) -> Row<'a> {
    let Stamped { at, record } = stamped;
    let pages = record.pages();
    let mut row = Row {
        ns: at.0,
        record: Kind::of(record).name(),
        app: record.app().map(|app| apps.get(&app).map_or("", String::as_str)),
        space: pages.map(|run| run.first.space().0),
        page: pages.map(|run| run.first.vpn().0),
        pages: pages.map(|run| u64::from(run.count)),
        flag: "",
        contents: None,
        detail: String::new(),
    };
    match *record {
        Record::Access { write: true, .. } => row.flag = "write",
        Record::SpaceStart { space, file, .. } => {
            row.space = Some(space.0);
            row.flag = if file { "file" } else { "" };
        }
        Record::SpaceEnd { space } => row.space = Some(space.0),
        Record::Contents { content, .. } => row.contents = Some(u64::from(content.0)),
        Record::ResponseComplete { response_ns, .. } => {
            row.detail = format!("response_ns={response_ns}");
        }
        Record::Moved { to, .. } => {
            row.detail = format!("to_space={} to_page={}", to.space().0, to.vpn().0);
        }
        Record::Note(note) => (row.flag, row.detail) = detail(note),
        _ => {}
    }
    row
}

fn detail(note: Note) -> (&'static str, String) {
    match note {
        Note::AskedPages { pages, urgent } | Note::Pressure { pages, urgent } => {
            (if urgent { "urgent" } else { "" }, format!("wanted={pages}"))
        }
        Note::Group { pages, tier, codec, chunk_bytes, hotness, park_siblings } => {
            let hotness = hotness.map_or(String::new(), |class| format!(" hotness={class:?}"));
            let flag = if park_siblings { "siblings" } else { "" };
            let group = format!(
                "victims={pages} tier={tier:?} codec={codec:?} chunk_bytes={chunk_bytes}{hotness}"
            );
            (flag, group.to_lowercase())
        }
        Note::Stored { tier, bytes, .. } => {
            ("", format!("tier={tier:?} bytes={bytes}").to_lowercase())
        }
        Note::PageIn { tier, demand, .. } => {
            (if demand { "demand" } else { "" }, format!("tier={tier:?}").to_lowercase())
        }
        Note::Dropped { tier, .. } => ("", format!("tier={tier:?}").to_lowercase()),
        Note::TierUse { tier, used_bytes, pages } => {
            let used = format!("tier={tier:?} used_bytes={used_bytes} stored_pages={pages}");
            ("", used.to_lowercase())
        }
        Note::AskedSamples { pages, run_pages, .. } => {
            ("", format!("wanted={pages} run_pages={run_pages}"))
        }
        Note::DeviceSample { device } => {
            let DeviceFacts { used_bytes, total_bytes, written_bytes } = device;
            let sizes = format!("used_bytes={used_bytes} total_bytes={total_bytes}");
            ("", format!("{sizes} written_bytes={written_bytes}"))
        }
        Note::Donor { donor, state } => {
            ("", format!("donor={} state={state:?}", donor.number()).to_lowercase())
        }
        Note::JobDone { job } => ("", format!("job={job}")),
        Note::AskedPrefetch { trigger: Trigger::Hit(_) } => ("hit", String::new()),
        Note::PrefetchUsed { .. } => ("used", String::new()),
        Note::AskedApp { .. }
        | Note::AskedPrefetch { .. }
        | Note::PrefetchExpired { .. }
        | Note::Used { .. }
        | Note::Unused { .. }
        | Note::Sample { .. }
        | Note::Spared { .. }
        | Note::Victim { .. }
        | Note::Prefetch { .. }
        | Note::EndApp { .. }
        | Note::Tick
        | Note::Stayed { .. } => ("", String::new()),
    }
}

#[cfg(test)]
mod tests {
    use clew_core::Ns;

    use super::*;

    #[test]
    fn a_name_turns_no_line_round() {
        let app = AppId(7);
        let stamped = Stamped { at: Ns(5), record: Record::Launch { app } };
        let apps = BTreeMap::from([(app, "a\u{202e}\x1b[2Jb".to_string())]);
        assert_eq!(row(&stamped, &apps).cells()[2], "a\\u{202e}\\x1b[2Jb");
    }
}
