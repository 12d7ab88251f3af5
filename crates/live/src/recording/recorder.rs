//! Recording: what the engine is told and decides, and what pages hold when they leave, go to a
//! thread that writes them down as a trace.
//!
//! Nobody waits for that thread but a worker that has a page's contents for it, for a second at
//! most, and then not again before there is room. Where the policy thread cannot hand on what it
//! has, it keeps it, up to half a million records; beyond that it keeps what begins and ends apps
//! and spaces, and counts what it drops. The trace gets its name when the daemon ends in an orderly
//! way.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use clew_core::{AppId, Ns, PageId, SpaceId};
use clew_engine::mover::Witness;
use clew_engine::transcript::Transcript;
use clew_policy::Scheme;
use clew_store::codec::{Codec, Lz4, Zstd};
use clew_trace::{
    ContentStats, ContentsKind, Draft, Header, Note, Provenance, Record, Source, Stamped, Totals,
    TraceError, Writer,
};
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use twox_hash::XxHash3_128;

use crate::config::{Config, Recording};

/// Records that the policy thread keeps while the writer is busy: 20 MiB.
const PENDING: usize = 1 << 19;
/// Messages under way; each has a page or up to [`BATCH`] records: 16 MiB.
const UNDER_WAY: usize = 4096;
const BATCH: usize = 64;
/// How long a worker waits with a page's contents.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why a recording came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file cannot be written.
    #[error("cannot record to {file}: {source}; nothing was left there")]
    File {
        /// The trace.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record could not be written.
    #[error("cannot record to {file}: {source}; nothing was left there")]
    Trace {
        /// The trace.
        file: PathBuf,
        /// Why.
        source: TraceError,
    },
}

enum Message {
    Records(Vec<Item>),
    Contents(PageId, Box<[u8]>),
    End,
}

enum Item {
    Name(AppId, String),
    Record(Stamped),
}

impl Item {
    /// Whether what follows makes no sense without it.
    fn must_be_kept(&self) -> bool {
        match self {
            Item::Name(..) => true,
            Item::Record(stamped) => matches!(
                stamped.record,
                Record::Launch { .. }
                    | Record::Relaunch { .. }
                    | Record::ResponseComplete { .. }
                    | Record::Background { .. }
                    | Record::Exit { .. }
                    | Record::SpaceStart { .. }
                    | Record::SpaceEnd { .. }
                    | Record::Window { .. }
                    | Record::Note(Note::Spared { .. })
            ),
        }
    }
}

/// What did not get into the trace.
#[derive(Default)]
struct Lost {
    records: AtomicU64,
    contents: AtomicU64,
}

/// The policy thread's end.
pub struct Recorder {
    to: Sender<Message>,
    pending: Vec<Item>,
    wants_contents: bool,
    lost: Arc<Lost>,
}

impl Recorder {
    /// `app` is called `name`.
    pub fn name(&mut self, app: AppId, name: &str) {
        // Whatever a program calls itself, a name is one line.
        let name: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
        let name = if name.is_empty() { format!("app {}", app.0) } else { name };
        self.pending.push(Item::Name(app, name));
    }

    /// For another thread, until this end is gone.
    pub fn pencil(&self) -> Pencil {
        let Recorder { to, wants_contents, .. } = self;
        Pencil { to: to.clone(), pending: Vec::new(), wants_contents: *wants_contents }
    }

    /// This happened at `now`.
    pub fn record(&mut self, now: Ns, record: Record) {
        self.pending.push(Item::Record(Stamped { at: now, record }));
        if self.pending.len() >= PENDING {
            self.hand_on();
            if self.pending.len() >= PENDING {
                let before = self.pending.len();
                self.pending.retain(Item::must_be_kept);
                let lost = (before - self.pending.len()) as u64;
                self.lost.records.fetch_add(lost, Ordering::Relaxed);
            }
        }
    }

    /// Gives what there is to the writer, as far as it has room.
    pub fn hand_on(&mut self) {
        while !self.pending.is_empty() {
            let rest = self.pending.split_off(self.pending.len().min(BATCH));
            let batch = std::mem::replace(&mut self.pending, rest);
            match self.to.try_send(Message::Records(batch)) {
                Ok(()) => {}
                Err(TrySendError::Full(Message::Records(mut batch))) => {
                    batch.append(&mut self.pending);
                    self.pending = batch;
                    return;
                }
                Err(_) => {
                    self.pending.clear();
                    return;
                }
            }
        }
    }
}

/// The end of another thread, which may wait for the writer.
pub struct Pencil {
    to: Sender<Message>,
    pending: Vec<Item>,
    wants_contents: bool,
}

impl Pencil {
    /// `app` is called `name`, and holds pages of files in `space`.
    pub fn space_of_files(&mut self, now: Ns, app: AppId, name: &str, space: SpaceId) {
        self.pending.push(Item::Name(app, name.to_string()));
        self.record(now, Record::SpaceStart { space, app, file: true });
    }

    /// This happened at `now`.
    pub fn record(&mut self, now: Ns, record: Record) {
        self.pending.push(Item::Record(Stamped { at: now, record }));
        if self.pending.len() >= BATCH {
            self.hand_on();
        }
    }

    /// Whether anybody wants to know what pages hold.
    pub fn wants_contents(&self) -> bool {
        self.wants_contents
    }

    /// `page` holds this.
    pub fn contents(&mut self, page: PageId, bytes: Box<[u8]>) {
        self.hand_on();
        let _ = self.to.send(Message::Contents(page, bytes));
    }

    /// Gives what there is to the writer, and waits until it has room. Of one that has ended nobody needs to know.
    pub fn hand_on(&mut self) {
        if !self.pending.is_empty() {
            let _ = self.to.send(Message::Records(std::mem::take(&mut self.pending)));
        }
    }
}

impl Drop for Recorder {
    /// The end, for which the writer is waited for.
    fn drop(&mut self) {
        let rest = std::mem::take(&mut self.pending);
        let _ = self.to.send(Message::Records(rest));
        let _ = self.to.send(Message::End);
    }
}

/// The thread that writes.
pub struct Scribe {
    thread: JoinHandle<Result<Totals, TraceError>>,
    file: PathBuf,
    lost: Arc<Lost>,
}

/// Begins a recording. The witness is for the mover, and is none if contents are not recorded.
pub fn start(
    recording: &Recording,
    config: &Config,
) -> Result<(Recorder, Option<Witness>, Scribe), RecordError> {
    let file = recording.file.clone();
    let mut provenance =
        Provenance::new(Source::Recorded, concat!("clew ", env!("CARGO_PKG_VERSION")));
    provenance.notes.clone_from(&recording.notes);
    let every = recording.windows.map_or("none".to_string(), |every| format!("{every:?}"));
    let notes = [
        ("scheme", config.scheme_name.clone()),
        ("scheme_toml", config.scheme.to_toml()),
        ("budget_bytes", config.budget.0.to_string()),
        ("windows", every),
    ];
    provenance.notes.extend(notes.map(|(name, note)| (name.to_string(), note)));
    let header = Header { page_bytes: 4096, contents: recording.contents, provenance };
    let failed = |source| RecordError::File { file: file.clone(), source };
    let draft = Draft::new(&file, true).map_err(failed)?;
    let writer = Writer::new(draft, &header)
        .map_err(|source| RecordError::Trace { file: file.clone(), source })?;
    let (to, inbox) = bounded(UNDER_WAY);
    let lost = Arc::new(Lost::default());
    let kind = recording.contents;
    let wants_contents = kind != ContentsKind::None;
    let for_thread = lost.clone();
    let thread = std::thread::Builder::new()
        .name("recorder".into())
        .spawn(move || write(writer, &inbox, kind, &for_thread))
        .map_err(failed)?;
    let witness = wants_contents.then(|| {
        let (to, lost) = (to.clone(), lost.clone());
        // Who has waited once does not wait again before there is room.
        let is_behind = AtomicBool::new(false);
        let witness: Witness = Box::new(move |page, bytes| {
            let patience =
                if is_behind.load(Ordering::Relaxed) { Duration::ZERO } else { PATIENCE };
            let sent = to.send_timeout(Message::Contents(page, bytes.into()), patience);
            is_behind.store(sent.is_err(), Ordering::Relaxed);
            if sent.is_err() {
                lost.contents.fetch_add(1, Ordering::Relaxed);
            }
        });
        witness
    });
    let recorder = Recorder { to, pending: Vec::new(), wants_contents, lost: lost.clone() };
    Ok((recorder, witness, Scribe { thread, file, lost }))
}

/// Begins a transcript. The policy thread writes it by itself, so a slow disk holds it up.
pub fn transcript(file: &Path, scheme: &Scheme) -> Result<Transcript, RecordError> {
    let failed = |source| RecordError::File { file: file.to_path_buf(), source };
    let to = BufWriter::new(File::create_new(file).map_err(failed)?);
    Ok(Transcript::new(Box::new(to), scheme))
}

impl Scribe {
    /// Waits until all is written, after the [`Recorder`] is gone, and says what was not.
    pub fn finish(self) -> Result<(), RecordError> {
        let Scribe { thread, file, lost } = self;
        let written = thread.join().expect("a panic ends the daemon");
        let totals = written.map_err(|source| RecordError::Trace { file: file.clone(), source })?;
        let (records, contents) =
            (lost.records.load(Ordering::Relaxed), lost.contents.load(Ordering::Relaxed));
        tracing::info!(records = totals.records(), contents = totals.contents, "recorded");
        if records + contents > 0 {
            tracing::warn!(
                "{} could not keep up: {records} records and the contents of {contents} pages \
                 are missing",
                file.display()
            );
        }
        Ok(())
    }
}

/// Writes until the end. After an error it goes on taking what comes, so that nobody waits for it.
fn write(
    writer: Writer<Draft>,
    inbox: &Receiver<Message>,
    kind: ContentsKind,
    lost: &Lost,
) -> Result<Totals, TraceError> {
    let mut pen = Pen { writer, kind, now: Ns(0), lost };
    let mut result = Ok(());
    for message in inbox {
        if let Message::End = message {
            break;
        }
        if result.is_ok() {
            result = pen.write(message);
            if let Err(error) = &result {
                tracing::error!("the recording ends here: {error}");
            }
        }
    }
    result?;
    let offset = pen.writer.written_bytes();
    let (draft, totals) = pen.writer.finish()?;
    draft.commit().map_err(|source| TraceError::Write { offset, source })?;
    Ok(totals)
}

struct Pen<'a> {
    writer: Writer<Draft>,
    kind: ContentsKind,
    now: Ns,
    lost: &'a Lost,
}

impl Pen<'_> {
    fn write(&mut self, message: Message) -> Result<(), TraceError> {
        match message {
            Message::Records(items) => {
                for item in items {
                    match item {
                        Item::Name(app, name) => self.writer.app(app, &name)?,
                        Item::Record(Stamped { at, record }) => {
                            self.now = self.now.max(at);
                            self.record(record)?;
                        }
                    }
                }
                Ok(())
            }
            Message::Contents(page, bytes) => {
                if !self.writer.lives(page.space()) {
                    self.lost.contents.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                let content = match self.kind {
                    ContentsKind::Bytes => self.writer.bytes(&bytes)?,
                    ContentsKind::Stats | ContentsKind::None => {
                        let hash = XxHash3_128::oneshot(&bytes);
                        match self.writer.known_stats(hash) {
                            Some(content) => content,
                            None => self.writer.stats(hash, &statistics(&bytes))?,
                        }
                    }
                };
                self.record(Record::Contents { page, content })
            }
            Message::End => Ok(()),
        }
    }

    /// Events may name spaces nobody knows (yet, or any more): a trace does not.
    fn record(&mut self, record: Record) -> Result<(), TraceError> {
        match self.writer.record(self.now, record) {
            Err(TraceError::Record { field, why, .. }) => {
                tracing::debug!(?record, field, why, "not recorded");
                self.lost.records.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            other => other,
        }
    }
}

/// How a page compresses.
fn statistics(page: &[u8]) -> ContentStats {
    let mut scratch = vec![0; page.len()];
    ContentStats {
        same_filled: page.chunks_exact(8).all(|word| *word == page[..8]),
        entropy: entropy(&page[..512]),
        lz4_256: in_chunks(&mut Lz4, page, 256, &mut scratch),
        lz4_1k: in_chunks(&mut Lz4, page, 1024, &mut scratch),
        lz4_page: in_chunks(&mut Lz4, page, page.len(), &mut scratch),
        zstd_page: in_chunks(&mut Zstd::default(), page, page.len(), &mut scratch),
    }
}

/// Bytes that `page` takes in chunks of its own each; one that does not shrink is kept as it is.
fn in_chunks(codec: &mut impl Codec, page: &[u8], chunk: usize, scratch: &mut [u8]) -> u16 {
    let chunks = page.chunks(chunk);
    let each = chunks.map(|c| codec.compress(c, &mut scratch[..c.len()]).unwrap_or(c.len()));
    each.sum::<usize>() as u16
}

/// Shannon's entropy of `bytes`, in 1/32 bit a byte, at most 255.
fn entropy(bytes: &[u8]) -> u8 {
    let mut counts = [0u32; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let total = bytes.len() as f64;
    let bits = counts.iter().filter(|count| **count > 0).map(|count| {
        let part = f64::from(*count) / total;
        -part * part.log2()
    });
    (bits.sum::<f64>() * 32.0).round().min(255.0) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_are_of_the_page() {
        let same = statistics(&[7; 4096]);
        assert!(same.same_filled);
        assert_eq!(same.entropy, 0);
        assert!(same.lz4_page < 64 && same.zstd_page < 64, "{same:?}");
        // Nothing compresses this.
        let mut state = 1u64;
        let noise: Vec<u8> = (0..4096)
            .map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e);
                (state >> 56) as u8
            })
            .collect();
        let random = statistics(&noise);
        assert!(!random.same_filled);
        // 512 bytes of noise have 7.6 bits a byte.
        assert!(random.entropy > 235, "{random:?}");
        for bytes in [random.lz4_256, random.lz4_1k, random.lz4_page, random.zstd_page] {
            assert_eq!(bytes, 4096, "{random:?}");
        }
        // The larger the chunk, the denser.
        let text: Vec<u8> =
            (0..4096u32).map(|i| b"the same words again "[i as usize % 21]).collect();
        let words = statistics(&text);
        assert!(words.lz4_256 > words.lz4_1k && words.lz4_1k > words.lz4_page, "{words:?}");
    }
}
