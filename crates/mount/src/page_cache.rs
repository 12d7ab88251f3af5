//! What the kernel's page cache has of the mount's own files: cachestat(2), of files that are opened by the number that they
//! have here.
//!
//! That makes the server open files of its own mount, which its other threads answer: nobody who answers the
//! kernel may call this. It is for root, whom the kernel lets open files by their numbers, on Linux 6.5 and later; where it is
//! not, nothing is known.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use clew_store::page_cache::{cache_stat, open_node};
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

use crate::PAGE_BYTES;
use crate::handed_out::Run;

/// The way to ask.
#[derive(Debug)]
pub struct PageCache {
    path: PathBuf,
    /// The mount's device: what is at the place later may be another.
    device: Option<(u32, u32)>,
}

impl PageCache {
    /// Of what was just mounted there. Nobody has to answer for that yet.
    pub fn of(path: &Path) -> PageCache {
        let mut page_cache = PageCache { path: path.to_path_buf(), device: None };
        page_cache.device = page_cache.tree().and_then(|tree| device(&tree));
        page_cache
    }

    /// How many pages of each run are there; nothing where that cannot be said. Runs of one file are next to each other.
    pub fn held(&mut self, runs: &[Run]) -> Option<Vec<u64>> {
        self.device?;
        let tree = self.tree().filter(|tree| device(tree) == self.device)?;
        let mut held = Vec::with_capacity(runs.len());
        for of_file in runs.chunk_by(|a, b| a.node == b.node) {
            match of_one(&tree, of_file) {
                Ok(counts) => held.extend(counts),
                Err(error) => match Errno::from_io_error(&error) {
                    // The kernel does not know it any more, and has nothing of it.
                    Some(Errno::STALE | Errno::NOENT) => held.extend(of_file.iter().map(|_| 0)),
                    // Not here, or not for us: it will not be otherwise the next time.
                    Some(Errno::NOSYS | Errno::PERM) => {
                        tracing::debug!("what the page cache holds is not known: {error}");
                        self.device = None;
                        return None;
                    }
                    _ => return None,
                },
            }
        }
        Some(held)
    }

    /// The mount, as one of our own that is nowhere in the tree and goes when this does: so that nobody who unmounts the
    /// other one finds it busy.
    fn tree(&self) -> Option<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        open_tree(CWD, &self.path, flags).ok()
    }
}

fn device(tree: &OwnedFd) -> Option<(u32, u32)> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(tree, "", flags, StatxFlags::TYPE).ok()?;
    Some((found.stx_dev_major, found.stx_dev_minor))
}

fn of_one(tree: &OwnedFd, runs: &[Run]) -> io::Result<Vec<u64>> {
    let Some(first) = runs.first() else { return Ok(Vec::new()) };
    let file = open_node(tree, first.node, 0)?;
    // The kernel's pages may be larger than ours.
    let scale = (rustix::param::page_size() / PAGE_BYTES).max(1) as u64;
    let count = |run: &Run| {
        let bytes = run.pages.start * PAGE_BYTES as u64..run.pages.end * PAGE_BYTES as u64;
        let cached = cache_stat(&file, bytes)?.cached * scale;
        Ok(cached.min(run.pages.end - run.pages.start))
    };
    runs.iter().map(count).collect()
}
