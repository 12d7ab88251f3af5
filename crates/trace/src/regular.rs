//! Small files, read so that nothing that lies there in their place, a pipe or a file without an end,
//! makes anybody wait or takes all memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a regular file without waiting, whatever lies there.
///
/// # Errors
/// Those of opening; `InvalidInput` if it is of another kind.
pub fn open(path: &Path, how: &OpenOptions, flags: i32) -> io::Result<File> {
    let file = how.clone().custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | flags).open(path)?;
    // What was opened is there, whatever the call says: who reads "not found" here begins without the file.
    let metadata = file.metadata().map_err(|e| io::Error::other(format!("looking at it: {e}")))?;
    match metadata.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Whether an error says that what was named is not what it should be, as opposed to a medium that fails.
pub fn is_misnamed(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound};
    [InvalidData, InvalidInput, IsADirectory, NotADirectory, NotFound].contains(&error.kind())
}

/// The text of a regular file of at most `most` bytes. With `libc::O_NOFOLLOW` in `flags` it is no
/// symbolic link either.
///
/// # Errors
/// As [`open`], and of reading; `InvalidData` if it is longer, or not UTF-8.
pub fn read_text(path: &Path, most: u64, flags: i32) -> io::Result<String> {
    let mut text = String::new();
    let file = open(path, OpenOptions::new().read(true), flags)?;
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        let what = format!("it has more than {most} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(text)
}
