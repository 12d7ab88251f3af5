//! `clew trace`.

mod statistics;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clew_core::{AppId, ByteSize, Ns};
use clew_trace::cut::Cut;
use clew_trace::{Draft, Header, Kind, Reader, Totals, Trace, TraceError, Writer, export, regular};
use serde_json::{Value, json};

use crate::Failure;
use crate::output::{Format, json, table};
use crate::progress::Bar;

/// What to do with traces.
#[derive(clap::Subcommand)]
pub enum Action {
    /// Say what a trace holds and where it comes from.
    Info {
        /// The trace.
        file: PathBuf,
    },
    /// Read all of a trace, and say if anything is wrong with it, and where.
    Verify {
        /// The trace; - is standard input.
        file: PathBuf,
    },
    /// Write a trace's records in a form that other programs read.
    Export {
        /// The trace; - is standard input.
        file: PathBuf,
        /// One row a record.
        #[arg(long, required = true)]
        csv: bool,
        /// Where to [default: standard output].
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Write a part of a trace as a trace.
    Cut(CutArgs),
    /// Say what a trace is like: sizes, hot sets, locality, associations, evictions, ratios.
    Stats(statistics::Args),
}

/// Which part, and where to.
#[derive(clap::Args)]
pub struct CutArgs {
    /// The trace.
    file: PathBuf,
    /// The part.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Where it begins, in seconds since the trace began.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    from: f64,
    /// Before what time it ends [default: the end].
    #[arg(long, value_name = "SECONDS")]
    until: Option<f64>,
    /// Only these apps, and nothing of what was decided when it was recorded.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    app: Vec<String>,
    /// Leave out what pages hold.
    #[arg(long)]
    without_contents: bool,
    /// Leave out what was decided when it was recorded.
    #[arg(long)]
    without_notes: bool,
}

/// `clew trace ACTION`.
pub fn trace(format: Format, action: Action) -> Result<(), Failure> {
    match action {
        Action::Info { file } => info(format, &file),
        Action::Verify { file } => verify(format, &file),
        Action::Export { file, csv: _, output } => export_csv(format, &file, output.as_deref()),
        Action::Cut(args) => cut(format, args),
        Action::Stats(args) => statistics::statistics(format, args),
    }
}

fn info(format: Format, file: &Path) -> Result<(), Failure> {
    let trace = Trace::open(file).map_err(|error| reading(file, error))?;
    show(format, trace.header(), trace.totals(), trace.file_bytes(), "")
}

fn verify(format: Format, file: &Path) -> Result<(), Failure> {
    let (input, bar) = input(file)?;
    let read = || -> Result<(Header, Totals, u64), TraceError> {
        let mut reader = Reader::new(input)?.checking_contents();
        let mut records = 0u64;
        while let Some(record) = reader.next() {
            record?;
            records += 1;
            if records.is_multiple_of(1 << 16) {
                bar.at(reader.position());
            }
        }
        Ok((reader.header().clone(), reader.totals().clone(), reader.position()))
    };
    let (header, totals, bytes) = read().map_err(|error| reading(file, error))?;
    bar.end();
    if file != Path::new("-") {
        // The way that those take who look for contents.
        Trace::open(file).map_err(|error| reading(file, error))?;
    }
    show(format, &header, &totals, bytes, "nothing is wrong with it")
}

fn export_csv(format: Format, file: &Path, output: Option<&Path>) -> Result<(), Failure> {
    let (input, bar) = input(file)?;
    let reader = Reader::new(input).map_err(|error| reading(file, error))?;
    let failure = |error: TraceError, to: &Path| match error {
        TraceError::Write { source, .. } => writing(to, source),
        other => reading(file, other),
    };
    let Some(output) = output else {
        let stdout = Path::new("standard output");
        let out = io::BufWriter::with_capacity(256 << 10, io::stdout().lock());
        return match export::csv(reader, out, |bytes| bar.at(bytes)) {
            // Whoever reads has seen enough.
            Err(TraceError::Write { source, .. }) if source.kind() == io::ErrorKind::BrokenPipe => {
                Ok(())
            }
            Err(error) => Err(failure(error, stdout)),
            Ok(_) => Ok(()),
        };
    };
    let mut draft = Draft::new(output, false).map_err(|error| writing(output, error))?;
    let rows = export::csv(reader, &mut draft, |bytes| bar.at(bytes))
        .map_err(|error| failure(error, output))?;
    draft.commit().map_err(|error| writing(output, error))?;
    bar.end();
    match format {
        Format::Json => json(&json!({ "file": output, "rows": rows })),
        Format::Text => {
            say!("wrote {} ({rows} rows)", output.display());
            Ok(())
        }
    }
}

fn cut(format: Format, args: CutArgs) -> Result<(), Failure> {
    let CutArgs { file, output, app, without_contents, without_notes, .. } = &args;
    let (from, until) = (seconds("--from", args.from)?, args.until);
    let until = until.map(|until| seconds("--until", until)).transpose()?;
    if until.is_some_and(|until| until <= from) {
        return Err(Failure::Input(anyhow!("--until must be later than --from")));
    }
    let trace = Trace::open(file).map_err(|error| reading(file, error))?;
    let apps = named(&trace, app)?;
    let cut = Cut {
        from,
        until,
        apps,
        without_contents: *without_contents,
        without_notes: *without_notes,
    };
    let private = private(file)?;
    let draft = Draft::new(output, private).map_err(|error| writing(output, error))?;
    let failure = |error: TraceError| match error {
        TraceError::Write { source, .. } => writing(output, source),
        other => reading(file, other),
    };
    let header = cut.header(trace.header());
    let bar = Bar::of_bytes("cutting", trace.file_bytes());
    let mut writer = Writer::new(draft, &header).map_err(failure)?;
    cut.write(&trace, &mut writer, |bytes| bar.at(bytes)).map_err(failure)?;
    let (draft, totals) = writer.finish().map_err(failure)?;
    draft.commit().map_err(|error| writing(output, error))?;
    bar.end();
    let bytes = output.metadata().map_or(0, |metadata| metadata.len());
    show(format, &header, &totals, bytes, &format!("wrote {}", output.display()))
}

/// Apps that an error names, at most.
const MOST_NAMED: usize = 16;

/// The apps called so.
fn named(trace: &Trace, names: &[String]) -> Result<BTreeSet<AppId>, Failure> {
    let mut found = BTreeSet::new();
    for name in names {
        let before = found.len();
        let apps = trace.totals().apps.iter().filter(|(_, other)| *other == name);
        found.extend(apps.map(|(app, _)| *app));
        if found.len() == before {
            let all = &trace.totals().apps;
            let mut some: Vec<&str> = all.values().take(MOST_NAMED).map(String::as_str).collect();
            some.extend((all.len() > MOST_NAMED).then_some("…"));
            let some = some.join(", ");
            return Err(Failure::Input(anyhow!("no app '{name}' is in the trace, but {some}")));
        }
    }
    Ok(found)
}

fn seconds(option: &str, value: f64) -> Result<Ns, Failure> {
    let ns = value * 1e9;
    if !(0.0..1e19).contains(&ns) {
        return Err(Failure::Input(anyhow!("{option} {value}: not a time within a trace")));
    }
    Ok(Ns(ns as u64))
}

/// Whether others may not read `file`: then they may not read a part of it either.
fn private(file: &Path) -> Result<bool, Failure> {
    use std::os::unix::fs::PermissionsExt;
    let metadata = file.metadata().with_context(|| file.display().to_string())?;
    Ok(metadata.permissions().mode() & 0o044 == 0)
}

/// Prints what a trace holds.
pub fn show(
    format: Format,
    header: &Header,
    totals: &Totals,
    bytes: u64,
    outcome: &str,
) -> Result<(), Failure> {
    let records = totals.records();
    let apps: Vec<&str> = totals.apps.values().map(String::as_str).collect();
    let kinds = Kind::ALL.iter().map(|kind| (kind.name(), totals.count(*kind)));
    let kinds: Vec<(&str, u64)> = kinds.filter(|(_, count)| *count > 0).collect();
    let seconds = totals.last.since(totals.first).0 as f64 / 1e9;
    if format == Format::Json {
        let kinds: serde_json::Map<String, Value> =
            kinds.iter().map(|(name, count)| (name.to_string(), (*count).into())).collect();
        return json(&json!({
            "version": clew_trace::VERSION,
            "page_bytes": header.page_bytes,
            "contents": header.contents,
            "provenance": header.provenance,
            "file_bytes": bytes,
            "records": records,
            "different_contents": totals.contents,
            "first_ns": totals.first.0,
            "last_ns": totals.last.0,
            "apps": apps,
            "kinds": kinds,
        }));
    }
    let provenance = &header.provenance;
    let mut rows = vec![
        ("source", format!("{:?} by {}", provenance.source, provenance.tool).to_lowercase()),
        ("pages of", ByteSize(u64::from(header.page_bytes)).to_string()),
        (
            "contents",
            match totals.contents {
                0 => format!("{:?}", header.contents).to_lowercase(),
                count => format!("{:?}, {count} different", header.contents).to_lowercase(),
            },
        ),
        ("records", records.to_string()),
        ("time", format!("{seconds:.3} s")),
        ("size", format!("{} ({:.2} bytes a record)", ByteSize(bytes), each(bytes, records))),
        ("apps", apps.join(", ")),
    ];
    if let Some(seed) = provenance.seed {
        rows.push(("seed", seed.to_string()));
    }
    // What has several lines is for programs.
    let notes = provenance.notes.iter().filter(|(_, note)| !note.contains('\n'));
    rows.extend(notes.map(|(name, note)| (name.as_str(), note.clone())));
    let mut cells: Vec<Vec<String>> =
        rows.into_iter().map(|(name, value)| vec![name.to_string(), value]).collect();
    cells.extend(kinds.iter().map(|(name, count)| vec![format!("  {name}"), count.to_string()]));
    say!("{}", table(&[], cells));
    if !outcome.is_empty() {
        say!("{outcome}");
    }
    Ok(())
}

fn each(bytes: u64, records: u64) -> f64 {
    if records == 0 { 0.0 } else { bytes as f64 / records as f64 }
}

/// The trace at `file`, or standard input, and how long it is.
fn input(file: &Path) -> Result<(Box<dyn Read>, Bar), Failure> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin()), Bar::of_bytes("reading", 0)));
    }
    let opened = regular::open(file, OpenOptions::new().read(true), 0).map_err(TraceError::opening);
    let opened = opened.map_err(|error| reading(file, error))?;
    let bytes = opened.metadata().map_or(0, |metadata| metadata.len());
    Ok((Box::new(opened), Bar::of_bytes("reading", bytes)))
}

/// A trace that is bad, or is not there, is bad input.
pub fn reading(file: &Path, error: TraceError) -> Failure {
    let said = anyhow!("{}: {error}", file.display());
    if error.is_bad_input() { Failure::Input(said) } else { Failure::Failed(said) }
}

/// A file that could not be written. Nothing of it is left.
pub fn writing(file: &Path, error: io::Error) -> Failure {
    Failure::Failed(anyhow!("cannot write {}: {error}; nothing was left there", file.display()))
}
