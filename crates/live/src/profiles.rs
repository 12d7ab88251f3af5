//! How apps are used, beyond their end and the daemon's (ElasticZRAM 3.2): by name, in an embedded database where
//! there is a file for it, else as long as the daemon lives.
//!
//! Nobody waits for the file: a thread of its own writes, all that has changed since the last time at once. The file
//! is open for as long as that takes and no longer: a descriptor, and the lock that it has, would live on in the keeper
//! when the daemon has died. Whatever is wrong with it costs no more than what was known of apps, and is looked for
//! before anything in it is followed (`whole`).

mod whole;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clew_core::Profile;
use crossbeam_channel::{Receiver, Sender, unbounded};
use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition};

use self::whole::Whole;
use crate::control::trusted_path::{self, PathError};

/// JSON of a profile, by the app's name.
const PROFILES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("profiles");
/// Apps that are known, at most: those whose names come last go first, as they could be anything.
const MAX_APPS: usize = 4096;
/// Responses of one that are believed, at most.
const MAX_RESPONSES: usize = 64;
/// A database of so many apps has some MiB at most.
const MAX_BYTES: u64 = 64 << 20;
/// What the database keeps of its file in memory.
const CACHE_BYTES: usize = 1 << 20;
/// So long what comes is gathered.
const REST: Duration = Duration::from_secs(1);
/// So long a file is waited for that another daemon has.
pub const PATIENCE: Duration = Duration::from_secs(2);
const A_MOMENT: Duration = Duration::from_millis(20);

/// Why the file is not used.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    /// Others decide what is there.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It cannot be opened, or is none of ours.
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    /// The database says what is wrong.
    #[error("{path} is no database of profiles, or is damaged ({why}): move it away", path = path.display())]
    Database { path: PathBuf, why: String },
}

/// What is known of apps.
#[derive(Debug, Default)]
pub struct Profiles {
    known: BTreeMap<String, Profile>,
    writer: Option<Writer>,
}

#[derive(Debug)]
struct Writer {
    desk: Option<Sender<(String, Profile)>>,
    thread: Option<JoinHandle<()>>,
}

impl Profiles {
    /// Those of the file at `path`, which is made if it is not there, with mode 0600. Another daemon that has it is
    /// waited for so long.
    ///
    /// # Errors
    /// See [`ProfilesError`].
    pub fn open(path: &Path, patience: Duration) -> Result<Profiles, ProfilesError> {
        let path = trusted_path::resolve(path)?;
        let known = with_database(&path, patience, read)?;
        let (desk, changes) = unbounded();
        let named = std::thread::Builder::new().name("profiles".into());
        let of_thread = path.clone();
        let thread = named.spawn(move || write_all(&of_thread, &changes));
        let thread = thread.map_err(|source| ProfilesError::File { path, source })?;
        let writer = Some(Writer { desk: Some(desk), thread: Some(thread) });
        Ok(Profiles { known, writer })
    }

    /// What is known of the app of this name.
    pub fn of(&self, name: &str) -> Option<&Profile> {
        self.known.get(name)
    }

    /// So the app of this name has been used.
    pub fn keep(&mut self, name: &str, profile: Profile) {
        if self.known.get(name) == Some(&profile) {
            return;
        }
        if let Some(desk) = self.writer.as_ref().and_then(|writer| writer.desk.as_ref()) {
            // A thread that has ended has said why.
            let _ = desk.send((name.to_string(), profile.clone()));
        }
        self.known.insert(name.to_string(), profile);
        if self.known.len() > MAX_APPS {
            self.known.pop_last();
        }
    }
}

impl Drop for Profiles {
    /// Waits until everything is written.
    fn drop(&mut self) {
        if let Some(writer) = &mut self.writer {
            drop(writer.desk.take());
            let _ = writer.thread.take().map(JoinHandle::join);
        }
    }
}

/// The file, and whether it was made by this.
fn open_file(path: &Path) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    // Neither a link's end nor a pipe's reader is waited for.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let (file, is_new) = match options.create_new(true).open(path) {
        Ok(file) => (file, true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            (options.create_new(false).open(path)?, false)
        }
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    if !found.is_file() {
        return refuse("it is no file");
    }
    if found.uid() != trusted_path::own_uid() {
        return refuse("it belongs to another user");
    }
    if found.len() > MAX_BYTES {
        return refuse("it is larger than any database of profiles");
    }
    Ok((file, is_new))
}

fn damaged(path: &Path, why: impl Into<redb::Error>) -> ProfilesError {
    ProfilesError::Database { path: path.to_path_buf(), why: why.into().to_string() }
}

thread_local! {
    /// A panic of this thread is caught.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Whether a panic of this thread is caught: the database panics where a file is damaged.
pub fn is_caught() -> bool {
    IS_CAUGHT.get()
}

/// Opens the database of a file, for this alone.
fn with_database<T>(
    path: &Path,
    patience: Duration,
    what: impl FnOnce(&Database) -> Result<T, redb::Error>,
) -> Result<T, ProfilesError> {
    IS_CAUGHT.set(true);
    let made = Cell::new(None);
    // What is broken by a panic is the database, and that is gone with it.
    let done = catch_unwind(AssertUnwindSafe(|| {
        let database = patiently(path, patience, &made)?;
        what(&database).map_err(|why| damaged(path, why))
    }));
    IS_CAUGHT.set(false);
    let done = done.unwrap_or_else(|panic| {
        let why = panic.downcast_ref::<&str>().map(|why| why.to_string());
        let why = why.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        Err(ProfilesError::Database { path: path.to_path_buf(), why })
    });
    match (done, made.get()) {
        (Err(ProfilesError::Database { path, why }), Some(made)) => {
            remove_half(&path, made);
            Err(ProfilesError::File { path, source: io::Error::other(why) })
        }
        (done, _) => done,
    }
}

/// Which file one is.
type FileId = (u64, u64);

/// What could not be completed (a full disk) would be refused by all later daemons.
fn remove_half(path: &Path, made: FileId) {
    let is_it = |found: std::fs::Metadata| (found.dev(), found.ino()) == made;
    if path.symlink_metadata().is_ok_and(is_it)
        && let Err(error) = std::fs::remove_file(path)
    {
        tracing::warn!(%error, path = %path.display(), "half a database of profiles is left");
    }
}

/// The database of a file, and which one, if it was `made` by this. Another daemon has it for a moment only.
fn patiently(
    path: &Path,
    patience: Duration,
    made: &Cell<Option<FileId>>,
) -> Result<Database, ProfilesError> {
    let since = Instant::now();
    loop {
        let opened = open_file(path).and_then(|(file, is_new)| {
            let found = file.metadata()?;
            made.set(is_new.then(|| (found.dev(), found.ino())));
            Ok(file)
        });
        let file =
            opened.map_err(|source| ProfilesError::File { path: path.to_path_buf(), source })?;
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let file = FileBackend::new(file).map(Whole::new);
        match file.and_then(|file| builder.create_with_backend(file)) {
            Ok(database) => return Ok(database),
            Err(why @ redb::DatabaseError::DatabaseAlreadyOpen) => {
                // Whoever was quicker completes it.
                made.set(None);
                if since.elapsed() >= patience {
                    return Err(damaged(path, why));
                }
                std::thread::sleep(A_MOMENT);
            }
            Err(why) => return Err(damaged(path, why)),
        }
    }
}

fn read(database: &Database) -> Result<BTreeMap<String, Profile>, redb::Error> {
    let mut known = BTreeMap::new();
    let reading = database.begin_read()?;
    let table = match reading.open_table(PROFILES) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(known),
        Err(error) => return Err(error.into()),
    };
    for entry in table.iter()?.take(MAX_APPS) {
        let (name, json) = entry?;
        // One that another version wrote is not known.
        let profile = serde_json::from_slice::<Profile>(json.value()).ok();
        if let Some(profile) = profile.filter(|p| p.responses_ns.len() <= MAX_RESPONSES) {
            known.insert(name.value().to_string(), profile);
        }
    }
    Ok(known)
}

/// Writes until nobody has anything to say any more.
fn write_all(path: &Path, changes: &Receiver<(String, Profile)>) {
    while let Ok(first) = changes.recv() {
        let mut changed = HashMap::from([first]);
        // What comes soon is written with it, the last word on each app; an end is not waited for.
        let until = Instant::now() + REST;
        while let Ok((name, profile)) = changes.recv_deadline(until) {
            changed.insert(name, profile);
        }
        if let Err(error) = with_database(path, PATIENCE, |database| write(database, &changed)) {
            tracing::warn!(%error, "how apps are used is written down no more");
            return;
        }
    }
}

fn write(database: &Database, changed: &HashMap<String, Profile>) -> Result<(), redb::Error> {
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(PROFILES)?;
        for (name, profile) in changed {
            let json = serde_json::to_vec(profile).map_err(io::Error::from)?;
            table.insert(name.as_str(), json.as_slice())?;
        }
        while redb::ReadableTableMetadata::len(&table)? > MAX_APPS as u64 {
            table.pop_last()?;
        }
    }
    writing.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn profile(launches: u64) -> Profile {
        Profile { launches, footprint_pages: 7 * launches, responses_ns: vec![1, launches] }
    }

    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("profiles");
        (dir, path)
    }

    #[test]
    fn what_is_kept_is_there_for_the_next_daemon() {
        let (_dir, path) = place();
        let mut profiles = Profiles::open(&path, PATIENCE).expect("a new one");
        assert_eq!(profiles.of("a"), None);
        for launches in 1..50 {
            profiles.keep("a", profile(launches));
            profiles.keep("b\u{7f}\u{e4}", profile(2 * launches));
        }
        drop(profiles);
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let profiles = Profiles::open(&path, PATIENCE).expect("the same");
        assert_eq!(profiles.of("a"), Some(&profile(49)));
        assert_eq!(profiles.of("b\u{7f}\u{e4}"), Some(&profile(98)));
    }

    #[test]
    fn without_a_file_it_is_known_for_as_long_as_the_daemon_lives() {
        let mut profiles = Profiles::default();
        profiles.keep("a", profile(3));
        assert_eq!(profiles.of("a"), Some(&profile(3)));
    }

    #[test]
    fn apps_are_not_more_than_so_many() {
        let (_dir, path) = place();
        let mut profiles = Profiles::open(&path, PATIENCE).expect("a new one");
        for number in 0..MAX_APPS + 50 {
            profiles.keep(&format!("{number:08}"), profile(1));
        }
        assert_eq!(profiles.known.len(), MAX_APPS);
        drop(profiles);
        assert_eq!(Profiles::open(&path, PATIENCE).expect("the same").known.len(), MAX_APPS);
    }

    #[test]
    fn daemons_that_have_the_same_file_do_not_disturb_each_other() {
        let (_dir, path) = place();
        let mut all = [(); 3].map(|()| Profiles::open(&path, PATIENCE).expect("each"));
        for launches in 1..20 {
            for (number, profiles) in all.iter_mut().enumerate() {
                profiles.keep(&number.to_string(), profile(launches));
            }
        }
        drop(all);
        let profiles = Profiles::open(&path, PATIENCE).expect("a later one");
        for number in 0..3 {
            assert_eq!(profiles.of(&number.to_string()), Some(&profile(19)));
        }
    }

    /// A full disk leaves no half database, which every later daemon would refuse.
    #[test]
    fn what_could_not_be_completed_is_gone_again() {
        let test = "profiles::full_disk";
        let dir = tempfile::tempdir().expect("a directory");
        let place = dir.path().join("small");
        std::fs::create_dir(&place).expect("a directory");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs"]).arg(&place);
        if !mount.status().is_ok_and(|status| status.success()) {
            return crate::skip::skip(test, "no tmpfs can be mounted (not root)");
        }
        let (path, rest) = (place.join("profiles"), place.join("rest"));
        std::fs::write(&rest, [7; 128 << 10]).expect_err("there is less room than that");
        let full = Profiles::open(&path, PATIENCE).map(drop);
        let is_left = path.exists();
        std::fs::remove_file(&rest).expect("it is there");
        // One that was there is not removed.
        std::fs::write(&path, [7; 5000]).expect("there is room");
        let other = Profiles::open(&path, PATIENCE).map(drop);
        let stays = path.exists();
        let unmounted = std::process::Command::new("umount").arg(&place).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
        let said = full.expect_err("it is too small").to_string();
        assert!(!is_left && !said.contains("move it away"), "{said}");
        assert!(matches!(other, Err(ProfilesError::Database { .. })) && stays, "{other:?}");
    }

    #[test]
    fn other_files_are_left_alone() {
        let (dir, path) = place();
        std::fs::write(&path, b"dear diary").expect("written");
        assert!(matches!(Profiles::open(&path, PATIENCE), Err(ProfilesError::Database { .. })));
        assert_eq!(std::fs::read(&path).expect("still there"), b"dear diary");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        assert!(
            Profiles::open(&link, PATIENCE).is_err()
                && Profiles::open(dir.path(), PATIENCE).is_err()
        );
    }

    #[test]
    fn whatever_is_damaged_is_an_error_or_less_is_known() {
        let (_dir, path) = place();
        let mut profiles = Profiles::open(&path, PATIENCE).expect("a new one");
        for number in 0..200 {
            profiles.keep(&number.to_string(), profile(number));
        }
        drop(profiles);
        let whole = std::fs::read(&path).expect("it is there");
        let mut draw = clew_core::seeded::Seeded::of(1, &[1]);
        let mut errors = 0;
        for _ in 0..200 {
            let mut bytes = whole.clone();
            for _ in 0..draw.size(1, 40) {
                let at = draw.below(bytes.len() as u64) as usize;
                bytes[at] = draw.draw() as u8;
            }
            bytes.truncate(draw.size(1, whole.len()));
            std::fs::write(&path, &bytes).expect("written");
            let opened = Profiles::open(&path, PATIENCE).map(drop);
            errors += u32::from(opened.is_err());
        }
        assert!(errors > 50, "{errors} of 200 are noticed");
    }

    #[test]
    fn what_was_changed_in_the_file_is_not_believed() {
        let (_dir, path) = place();
        let mut profiles = Profiles::open(&path, PATIENCE).expect("a new one");
        profiles.keep("a", profile(41));
        drop(profiles);
        let mut bytes = std::fs::read(&path).expect("it is there");
        let (from, to) = (b"\"launches\":41", b"\"launches\":49");
        let mut changed = 0;
        for at in 0..bytes.len() - from.len() {
            if bytes[at..].starts_with(from) {
                bytes[at..at + to.len()].copy_from_slice(to);
                changed += 1;
            }
        }
        assert!(changed > 0, "it is written down");
        std::fs::write(&path, &bytes).expect("written");
        let opened = Profiles::open(&path, PATIENCE);
        assert!(opened.is_err() || opened.is_ok_and(|known| known.of("a").is_none()));
    }

    /// Memory that nobody has would be the end of the daemon.
    #[test]
    fn no_byte_of_the_file_takes_more_memory_than_there_is() {
        let (_dir, path) = place();
        let mut profiles = Profiles::open(&path, PATIENCE).expect("a new one");
        for number in 0..100 {
            profiles.keep(&number.to_string(), profile(number));
        }
        drop(profiles);
        let whole = std::fs::read(&path).expect("it is there");
        let used = |at: &usize| *at < 320 || whole[*at] != 0 && at.is_multiple_of(7);
        let mut errors = 0;
        for at in (0..whole.len()).filter(used).take(1000) {
            let mut bytes = whole.clone();
            bytes[at] = 0xff;
            std::fs::write(&path, &bytes).expect("written");
            errors += u32::from(Profiles::open(&path, PATIENCE).is_err());
        }
        assert!(errors > 20, "{errors} are noticed");
    }
}
