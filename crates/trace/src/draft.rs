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
            .filter(|_| path != Path::new("-"))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "that names no file"))?;
        // What a link leads to stays, and is no file of ours if it is none at all: root's /dev/null, or /dev/stdout.
        if let Ok(there) = path.metadata()
            && !there.is_file()
        {
            let what = if there.is_dir() { "a directory" } else { "no regular file" };
            let why = format!("it is {what}: say the name of a file");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, symlink};

    use super::*;

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
