//! The lists beside a swap-out trace: swap-ins, LRU lists, labels, logs.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::raw::decimal;
use super::{ImportError, Imported, LISTED, lines, open};

/// Ariadne's classes, as its authors' scripts give them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Label {
    Hot,
    Warm,
    Cold,
}

/// What the lists of a directory say. Sectors and frames each with their uid.
#[derive(Default)]
pub(super) struct Lines {
    /// Frames in LRU lists.
    pub resident: Vec<(u32, u64)>,
    /// Sectors swapped in up to the first frame.
    pub before_frame: Vec<(u32, u64)>,
    /// Sectors swapped in about ten seconds later.
    pub after_frame: Vec<(u32, u64)>,
    /// All sectors swapped in.
    pub all: Vec<(u32, u64)>,
    pub labels: Vec<(u32, u64, Label)>,
}

impl Lines {
    /// Reads all lists in `directory`.
    pub fn of(directory: &Path, counts: &mut Imported) -> Result<Lines, ImportError> {
        let failed = |source| ImportError::File { path: directory.to_path_buf(), source };
        let mut names = Vec::new();
        for entry in directory.read_dir().map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_file() {
                names.push((name, path));
            }
        }
        names.sort();
        let mut lines = Lines::default();
        for (name, path) in &names {
            let is_binary = name.ends_with(".meta");
            if is_binary && names.iter().any(|(other, _)| *other == name[..name.len() - 5]) {
                continue; // the same once more
            }
            match name.as_str() {
                "lru_list.txt" | "bg_lru_list.txt" => {
                    pairs(path, LISTED - 1, &mut lines.resident, counts)?;
                }
                "compression_trace.txt" => labels(path, &mut lines.labels, counts)?,
                "record.log" | "record_bg.log" => log(path, counts)?,
                _ if name.starts_with("swapout") => {}
                _ => {
                    let list = match name {
                        name if name.starts_with("ttid_") => &mut lines.before_frame,
                        name if name.starts_with("ttfd_") => &mut lines.after_frame,
                        name if name.contains("swapin") => &mut lines.all,
                        _ => continue,
                    };
                    if is_binary {
                        binary(path, list, counts)?;
                    } else {
                        pairs(path, u64::MAX, list, counts)?;
                    }
                }
            }
        }
        Ok(lines)
    }
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> ImportError + use<'_> {
    move |source| ImportError::File { path: PathBuf::from(path), source }
}

/// Entries of one kind in the lists of a round, at most: of pages of 64 GiB.
const MOST: usize = if cfg!(test) { 1 << 10 } else { 1 << 24 };

/// For another entry beside so many.
fn has_room(path: &Path, there: usize) -> Result<(), ImportError> {
    if there < MOST {
        return Ok(());
    }
    let what = format!("it and what comes before it list more than {MOST} pages");
    Err(file(path)(io::Error::new(io::ErrorKind::InvalidData, what)))
}

/// Text lines `uid,number`.
fn pairs(
    path: &Path,
    limit: u64,
    out: &mut Vec<(u32, u64)>,
    counts: &mut Imported,
) -> Result<(), ImportError> {
    for line in lines(open(path)?) {
        has_room(path, out.len())?;
        let line = line.map_err(file(path))?;
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let mut numbers = line.split(|byte| *byte == b',').map(decimal);
        let pair = match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(uid)), Some(Some(number)), None) if number <= limit => {
                u32::try_from(uid).ok().map(|uid| (uid, number))
            }
            _ => None,
        };
        match pair {
            Some(pair) => out.push(pair),
            None => counts.bad_lines += 1,
        }
    }
    Ok(())
}

/// Records of `N` numbers of 8 bytes, until one is cut off, beside so many that are listed.
fn words<const N: usize>(
    path: &Path,
    counts: &mut Imported,
    there: usize,
    mut take: impl FnMut([u64; N]) -> bool,
) -> Result<(), ImportError> {
    let mut input = open(path)?;
    let mut record = Vec::with_capacity(8 * N);
    for number in there.. {
        record.clear();
        let read = (&mut input).take(8 * N as u64).read_to_end(&mut record).map_err(file(path))?;
        if read == 0 {
            break;
        }
        has_room(path, number)?;
        let whole = read == 8 * N && {
            let mut numbers = [0; N];
            for (number, bytes) in numbers.iter_mut().zip(record.chunks_exact(8)) {
                *number = bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
            }
            take(numbers)
        };
        counts.bad_lines += u64::from(!whole);
    }
    Ok(())
}

/// Records of uid and sector.
fn binary(
    path: &Path,
    out: &mut Vec<(u32, u64)>,
    counts: &mut Imported,
) -> Result<(), ImportError> {
    words(path, counts, out.len(), |[uid, sector]: [u64; 2]| match u32::try_from(uid) {
        Ok(uid) => {
            out.push((uid, sector));
            true
        }
        Err(_) => false,
    })
}

/// Records of uid, frame, sector and scale.
fn labels(
    path: &Path,
    out: &mut Vec<(u32, u64, Label)>,
    counts: &mut Imported,
) -> Result<(), ImportError> {
    words(path, counts, out.len(), |[uid, _, sector, scale]: [u64; 4]| {
        let label = match scale {
            0 => Label::Hot,
            1 => Label::Warm,
            2 => Label::Cold,
            _ => return false,
        };
        let uid = u32::try_from(uid);
        out.extend(uid.ok().map(|uid| (uid, sector, label)));
        uid.is_ok()
    })
}

/// Lines of the kernel's log that end in `uid,pfn,is_free`.
fn log(path: &Path, counts: &mut Imported) -> Result<(), ImportError> {
    for line in lines(open(path)?) {
        let line = line.map_err(file(path))?;
        let last = line.trim_ascii().rsplit(|byte| *byte == b' ').next().unwrap_or_default();
        if last.is_empty() {
            continue;
        }
        let numbers: Vec<Option<u64>> = last.split(|byte| *byte == b',').map(decimal).collect();
        match numbers[..] {
            [Some(_), Some(_), Some(is_free @ (0 | 1))] => {
                counts.log_lines += 1;
                counts.log_frees += is_free;
            }
            _ => counts.bad_lines += 1,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    /// Of a few bytes on a disk.
    #[test]
    fn no_list_takes_all_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        let (mut counts, mut out) = (Imported::default(), Vec::new());
        let lines = [&b"1,2\n"[..], &[b'7'; 1 << 20], b"\n3,4"].concat();
        fs::write(at("lines"), lines).expect("a file");
        pairs(&at("lines"), 9, &mut out, &mut counts).expect("it is read");
        assert_eq!((&out[..], counts.bad_lines), (&[(1, 2), (3, 4)][..], 1));
        let zeros = |name: &str, bytes: usize| {
            let file = File::create(at(name)).and_then(|file| file.set_len(bytes as u64));
            file.expect("a file");
        };
        zeros("most", (MOST - 2) * 16);
        binary(&at("most"), &mut out, &mut counts).expect("it is read");
        assert_eq!(out.len(), MOST);
        zeros("more", 16);
        let error = binary(&at("more"), &mut out, &mut counts).expect_err("it is too much");
        assert!(error.to_string().contains("list more than"), "{error}");
        let error = pairs(&at("lines"), 9, &mut out, &mut counts).expect_err("the same");
        assert!(error.to_string().contains("list more than"), "{error}");
        assert_eq!(out.len(), MOST);
    }
}
