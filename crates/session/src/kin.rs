//! Of which app a process is that is in front: its own, else that of whoever started it, else that of somebody
//! whom it has started; these in its own scope only, for one scope is one app.

use std::fs::File;
use std::io::Read;

use clew_live::programs::proc_stat::Stat;

/// How far up is looked.
const GENERATIONS: usize = 64;
/// Bytes of what is read of a process's control groups.
const MOST_BYTES: u64 = 64 << 10;

/// Who belongs to whom.
pub trait Kin {
    /// Who started this process, as far as it still runs.
    fn parent(&self, pid: u32) -> Option<u32>;
    /// The scope that it is in.
    fn scope(&self, pid: u32) -> Option<Vec<u8>>;
}

/// As the kernel has it.
pub struct Kernel;

impl Kin for Kernel {
    fn parent(&self, pid: u32) -> Option<u32> {
        Stat::of(pid).ok().map(|stat| stat.parent)
    }

    fn scope(&self, pid: u32) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let file = File::open(format!("/proc/{pid}/cgroup")).ok()?;
        file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
        Some(text)
    }
}

/// The app of process `pid`, of these: names, with their processes.
pub fn app_of<'a>(pid: u32, apps: &[(&'a str, Vec<u32>)], kin: &impl Kin) -> Option<&'a str> {
    let of = |pid: u32| apps.iter().find(|(_, pids)| pids.contains(&pid)).map(|(name, _)| *name);
    if let Some(name) = of(pid) {
        return Some(name);
    }
    let scope = kin.scope(pid)?;
    let is_near = |other: &u32| kin.scope(*other).is_some_and(|others| others == scope);
    if let Some(name) = ancestors(pid, kin).filter(is_near).find_map(of) {
        return Some(name);
    }
    let steps = |other: u32| ancestors(other, kin).position(|above| above == pid);
    let all = apps.iter().flat_map(|(name, pids)| pids.iter().map(move |pid| (*name, *pid)));
    let near = all.filter(|(_, other)| is_near(other));
    let below = near.filter_map(|(name, other)| Some((steps(other)?, other, name)));
    below.min().map(|(_, _, name)| name)
}

/// Who started it, who started that one, and so on; not the first process of all.
fn ancestors(pid: u32, kin: &impl Kin) -> impl Iterator<Item = u32> {
    let parent = |pid: u32| kin.parent(pid).filter(|parent| *parent > 1);
    std::iter::successors(parent(pid), move |pid| parent(*pid)).take(GENERATIONS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Processes with who started them and where they are.
    struct Drawn(BTreeMap<u32, (u32, &'static str)>);

    impl Kin for Drawn {
        fn parent(&self, pid: u32) -> Option<u32> {
            self.0.get(&pid).map(|(parent, _)| *parent)
        }

        fn scope(&self, pid: u32) -> Option<Vec<u8>> {
            self.0.get(&pid).map(|(_, scope)| scope.as_bytes().to_vec())
        }
    }

    #[test]
    fn an_app_is_found_by_its_process_and_by_its_kin_in_the_same_scope() {
        let kin = Drawn(BTreeMap::from([
            (10, (1, "desktop")),
            (20, (10, "terminal")),
            (21, (20, "terminal")),
            (22, (21, "terminal")),
            (30, (10, "editor")),
            (31, (30, "editor")),
            (32, (31, "editor")),
            (33, (30, "editor")),
            (40, (10, "viewer")),
            (50, (51, "loop")),
            (51, (50, "loop")),
        ]));
        let apps =
            [("desktop", vec![10]), ("terminal", vec![20]), ("far", vec![32]), ("near", vec![33])];
        let app_of = |pid| app_of(pid, &apps, &kin);
        assert_eq!(app_of(20), Some("terminal"));
        assert_eq!(app_of(22), Some("terminal"), "who started it");
        assert_eq!(app_of(30), Some("near"), "whom it has started");
        assert_eq!(app_of(31), Some("far"));
        assert_eq!(app_of(40), None, "the desktop is in another scope");
        assert_eq!(app_of(50), None, "it ends");
        assert_eq!(app_of(99), None, "there is no such process");
    }

    #[test]
    fn the_kernel_knows_us() {
        let (own, parent) = (std::process::id(), std::os::unix::process::parent_id());
        assert_eq!(Kernel.parent(own), Some(parent));
        assert!(Kernel.scope(own).is_some());
        assert_eq!(Kernel.parent(1 << 22), None);
    }
}
