//! Files that are there whole or not at all.

use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, linkat};
use tempfile::TempPath;

/// A file that has no name, or where the file system has no such files another one in the directory where it is to be, and
/// gets its own only when all of it is on the disk. Dropped before that, it leaves nothing; without a name, whatever
/// ends its process leaves nothing.
pub struct Draft {
    file: BufWriter<File>,
    /// The name that it has meanwhile.
    meanwhile: Option<TempPath>,
    /// In the directory that was there when it was begun, wherever its name leads now.
    path: PathBuf,
    /// That directory, as long as there is something of this in it.
    _directory: File,
}

/// The directory that a file is in, as it is named.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A path that leads to what is open, whatever name it has, or none.
fn opened(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// What names files of `path` have meanwhile.
fn meanwhile<T>(
    path: &Path,
    make: impl FnOnce(&mut tempfile::Builder<'_, '_>, &Path) -> io::Result<T>,
) -> io::Result<T> {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    make(tempfile::Builder::new().prefix(&prefix).suffix(".part"), directory_of(path))
        .map_err(plain)
}

/// The error without the name, which nobody has said.
fn plain(error: io::Error) -> io::Error {
    let text = error.to_string();
    match text.split_once(" at path ") {
        Some((what, _)) => io::Error::new(error.kind(), what),
        None => error,
    }
}

impl Draft {
    /// Begins a file at `path`, which only its owner may read if it is `private`.
    pub fn new(path: &Path, private: bool) -> io::Result<Draft> {
        if path.file_name().is_none() || path == Path::new("-") {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "that names no file"));
        }
        // What a link leads to stays, and is no file of ours if it is none at all: root's /dev/null, or /dev/stdout.
        if let Ok(there) = path.metadata()
            && !there.is_file()
        {
            let what = if there.is_dir() { "a directory" } else { "no regular file" };
            let why = format!("it is {what}: say the name of a file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mode = if private { 0o600 } else { 0o666 };
        // Whoever may write there need not be able to read it.
        let directory = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY)
            .open(directory_of(path))?;
        let path = match path.file_name() {
            Some(name) if Path::new(&opened(&directory)).is_dir() => {
                Path::new(&opened(&directory)).join(name)
            }
            // There is no /proc.
            _ => path.to_path_buf(),
        };
        let without_name = OpenOptions::new()
            .write(true)
            .mode(mode)
            .custom_flags(libc::O_TMPFILE)
            .open(directory_of(&path))
            .ok()
            .filter(|file| Path::new(&opened(file)).symlink_metadata().is_ok());
        let (file, meanwhile) = match without_name {
            Some(file) => (file, None),
            None => meanwhile(&path, |named, directory| {
                let named =
                    named.permissions(Permissions::from_mode(mode)).tempfile_in(directory)?;
                let (file, name) = named.into_parts();
                Ok((file, Some(name)))
            })?,
        };
        let file = BufWriter::with_capacity(256 << 10, file);
        Ok(Draft { file, meanwhile, path, _directory: directory })
    }

    /// Gives the file its name, in place of what had it.
    pub fn commit(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.sync_all()?;
        let name = match self.meanwhile {
            Some(name) => name,
            // A link takes no name that there is.
            None => meanwhile(&self.path, |named, directory| {
                let link = |name: &Path| {
                    linkat(CWD, opened(&file), CWD, name, AtFlags::SYMLINK_FOLLOW)?;
                    Ok(())
                };
                Ok(named.make_in(directory, link)?.into_temp_path())
            })?,
        };
        name.persist(&self.path).map_err(|error| error.error)
    }
}

/// Writes a file that is there whole or not at all. What has its name is replaced and never written to: in a
/// directory that others can change it may be a link to anywhere.
///
/// # Errors
/// Those of [`Draft`].
pub fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let mut draft = Draft::new(path, false)?;
    draft.write_all(text.as_bytes())?;
    draft.commit()
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

    #[test]
    fn what_is_not_done_has_no_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("file");
        let names = || fs::read_dir(dir.path()).expect("a directory").count();
        fs::write(&path, "before").expect("a file");
        let mut draft = Draft::new(&path, true).expect("a draft");
        draft.write_all(&[7; 1 << 20]).expect("room");
        assert_eq!(names(), 1 + usize::from(draft.meanwhile.is_some()));
        assert_eq!(fs::read_to_string(&path).expect("a file"), "before");
        draft.commit().expect("it is there");
        let mode = path.metadata().expect("a file").permissions().mode();
        assert_eq!((names(), mode & 0o777), (1, 0o600));
        assert!(fs::read(&path).expect("a file") == vec![7; 1 << 20]);
        // One that is given up, and one in a place of which there is nothing.
        drop(Draft::new(&path, false).expect("a draft"));
        assert_eq!(names(), 1);
        let error = Draft::new(&dir.path().join("no/file"), false).map(drop).expect_err("nothing");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error =
            write_whole(&Path::new("/proc/self/fd").join("file"), "").expect_err("no files");
        assert!(!error.to_string().contains(".part"), "{error}");
    }

    /// Whoever may rename the directory has it written where he likes otherwise.
    #[test]
    fn it_is_written_where_its_directory_was_when_it_was_begun() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for name in ["place", "other"] {
            fs::create_dir(at(name)).expect("a directory");
            fs::write(at(name).join("file"), "before").expect("a file");
        }
        let mut draft = Draft::new(&at("place/file"), false).expect("a draft");
        draft.write_all(b"text").expect("room");
        fs::rename(at("place"), at("moved")).expect("it is ours");
        symlink(at("other"), at("place")).expect("a link");
        draft.commit().expect("it is there");
        assert_eq!(fs::read_to_string(at("moved/file")).expect("a file"), "text");
        assert_eq!(fs::read_to_string(at("other/file")).expect("a file"), "before");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
        assert!(made.is_ok_and(|status| status.success()));
        symlink("/dev/null", at("null")).expect("a link");
        fs::create_dir(at("directory")).expect("a directory");
        for name in ["pipe", "null", "directory"] {
            let said = write_whole(&at(name), "text").expect_err(name);
            assert!(said.to_string().contains("say the name of a file"), "{said}");
        }
        assert!(write_whole(Path::new("-"), "text").is_err());
        assert!(at("pipe").metadata().expect("it is there").file_type().is_fifo());
        assert_eq!(fs::read_link(at("null")).expect("a link"), Path::new("/dev/null"));
        // A link to a file, or to nothing, is replaced, and what it leads to is not touched.
        fs::write(at("other"), "another's").expect("a file");
        symlink(at("other"), at("link")).expect("a link");
        symlink(at("nothing"), at("dangling")).expect("a link");
        for name in ["link", "dangling", "new"] {
            write_whole(&at(name), "text").expect(name);
            assert_eq!(fs::read_to_string(at(name)).expect(name), "text");
        }
        assert_eq!(fs::read_to_string(at("other")).expect("a file"), "another's");
        assert!(!at("nothing").exists());
    }
}
