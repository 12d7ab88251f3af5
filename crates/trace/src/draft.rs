//! Files that are there whole or not at all.

use std::fs::Permissions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A file that is written under another name in the directory where it is to be, and gets its own
/// only when all of it is on the disk. Dropped before that, it leaves nothing.
pub struct Draft {
    file: BufWriter<NamedTempFile>,
    path: PathBuf,
}

impl Draft {
    /// Begins a file at `path`, which only its owner may read if it is `private`.
    pub fn new(path: &Path, private: bool) -> io::Result<Draft> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = path
            .file_name()
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
        if path.is_dir() {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory"));
        }
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(name);
        let mode = if private { 0o600 } else { 0o666 };
        let file = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".part")
            .permissions(Permissions::from_mode(mode))
            .tempfile_in(directory)?;
        let file = BufWriter::with_capacity(256 << 10, file);
        Ok(Draft { file, path: path.to_path_buf() })
    }

    /// Gives the file its name, in place of what had it.
    pub fn commit(self) -> io::Result<()> {
        let file = self.file.into_inner().map_err(|error| error.into_error())?;
        file.as_file().sync_all()?;
        file.persist(&self.path).map(drop).map_err(|error| error.error)
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
