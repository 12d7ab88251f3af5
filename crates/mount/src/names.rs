//! The names by which the kernel was told of inodes, the oldest first.
//!
//! Of each inode that it knows the server has a descriptor, and the kernel forgets none as long as it has memory itself: who
//! walks a large tree would leave none for others. Where there are too many it is asked to forget the oldest names; what
//! is in use it keeps.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};

use parking_lot::Mutex;

/// Names beyond those of inodes that are known, before they are looked through.
const SPARE: usize = 1024;

/// A name.
#[derive(Debug, PartialEq, Eq)]
pub struct Name {
    /// The directory, as the kernel calls it.
    pub parent: u64,
    /// The name there.
    pub name: OsString,
    /// What it was of.
    node: u64,
}

/// All of them, or of those that are still known at least one each.
#[derive(Debug)]
pub struct Names {
    told: Mutex<VecDeque<Name>>,
    /// Inodes that the kernel may know.
    most: usize,
}

impl Names {
    /// So many inodes may be known.
    pub fn new(most: usize) -> Names {
        Names { told: Mutex::default(), most }
    }

    /// The kernel is told of inode `node`, which it did not know, by this name.
    pub fn told(&self, parent: u64, name: &OsStr, node: u64) {
        self.told.lock().push_back(Name { parent, name: name.to_os_string(), node });
    }

    /// Those of what is not known any more go where they are more than the others; `known` inodes are, and which `is_known` says.
    pub fn prune(&self, known: usize, is_known: impl Fn(u64) -> bool) {
        let mut told = self.told.lock();
        if told.len() > 2 * known + SPARE {
            told.retain(|name| is_known(name.node));
        }
    }

    /// The oldest names, up to `at_a_time`, that are to be forgotten if the kernel knows `known` inodes; which these are
    /// `is_known` says.
    pub fn too_many(
        &self,
        known: usize,
        at_a_time: usize,
        is_known: impl Fn(u64) -> bool,
    ) -> Vec<Name> {
        let mut told = self.told.lock();
        let mut oldest = Vec::new();
        let many = known.saturating_sub(self.most).min(at_a_time);
        while oldest.len() < many
            && let Some(name) = told.pop_front()
        {
            if is_known(name.node) {
                oldest.push(name);
            }
        }
        oldest
    }

    /// All of them: the directory, and the name there.
    pub fn all(&self) -> Vec<(u64, OsString)> {
        self.told.lock().iter().map(|told| (told.parent, told.name.clone())).collect()
    }

    /// What was asked to be forgotten and is still known, as it was in use: it is asked again later.
    pub fn kept(&self, name: Name) {
        self.told.lock().push_back(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_where_there_are_too_many() {
        let names = Names::new(3);
        let told = |node: u64| names.told(1, OsStr::new(&node.to_string()), node);
        (10..15).for_each(told);
        let nodes = |names: Vec<Name>| -> Vec<u64> { names.iter().map(|name| name.node).collect() };
        assert!(names.too_many(3, 9, |_| true).is_empty());
        assert_eq!(nodes(names.too_many(5, 1, |_| true)), [10], "so many at a time");
        // What the kernel has forgotten by itself is none of them.
        assert_eq!(nodes(names.too_many(5, 9, |node| node != 11)), [12, 13]);
        let used = names.too_many(4, 9, |_| true).pop().expect("the last one");
        assert_eq!((used.parent, &used.name[..]), (1, OsStr::new("14")));
        names.kept(used);
        assert_eq!(nodes(names.too_many(4, 9, |_| true)), [14]);
        assert!(names.too_many(9, 9, |_| true).is_empty(), "no more is known");
    }

    #[test]
    fn names_of_what_is_forgotten_do_not_add_up() {
        let names = Names::new(9);
        for node in 0..10 * SPARE as u64 {
            names.told(1, OsStr::new("name"), node);
            names.prune(1, |known| known == node);
        }
        assert!(names.told.lock().len() <= SPARE + 3);
    }
}
