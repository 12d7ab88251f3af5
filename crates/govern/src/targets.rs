//! What is governed: processes with their descendants, the processes of control groups, or all of a user's session.
//! Each process whose parent is not among them is the root of an app; its descendants are of the same app, also when
//! their parents are gone. In a session everybody descends from the desktop: there an app is the unit that systemd
//! started for it, else a process group.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clew_live::programs::proc_stat::{Stat, text_of, user_of};
use clew_live::programs::scope;
use clew_live::survival::predecessor::ProcessName;

use crate::agents::Agents;
use crate::error::GovernError;
use crate::everybody::{Seen, everybody, nobody_can_be_seen};

/// What was named.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// A process, with its descendants.
    Tree(ProcessName),
    /// A directory of a file system of control groups, with the groups in it.
    Group(PathBuf),
    /// All processes of this user, and of whoever came in as this user (sudo), with their descendants.
    Session(u32),
}

/// All that was named, and the processes that were found.
#[derive(Debug)]
pub struct Targets {
    targets: Vec<Target>,
    /// A child of this process's, whose orphans become its children, too.
    command: Option<ProcessName>,
    /// The root of each process, from the first look that found it on.
    roots: HashMap<ProcessName, ProcessName>,
    agents: Agents,
    /// What the kernel said of its processes before the last look at all, and when that was.
    looked: Option<(Processes, Instant)>,
}

/// How often all processes are looked at where none was begun.
const ALL: Duration = Duration::from_secs(10);

impl Targets {
    /// Understands process ids and directories.
    ///
    /// # Errors
    /// One of them is neither, or not there.
    pub fn named<S: AsRef<str>>(named: &[S]) -> Result<Targets, GovernError> {
        let targets =
            named.iter().map(|one| target(one.as_ref())).collect::<Result<Vec<_>, _>>()?;
        Ok(Targets {
            targets,
            command: None,
            roots: HashMap::new(),
            agents: Agents::default(),
            looked: None,
        })
    }

    /// This child of ours as well, and what it leaves behind.
    ///
    /// # Errors
    /// It has ended.
    pub fn and_command(mut self, pid: u32) -> Result<Targets, GovernError> {
        let found = target(&pid.to_string())?;
        if let Target::Tree(name) = &found {
            self.command = Some(*name);
        }
        self.targets.push(found);
        Ok(self)
    }

    /// All of this user's session as well.
    ///
    /// # Errors
    /// The user is root, of whom the whole system is.
    pub fn and_session(mut self, uid: u32) -> Result<Targets, GovernError> {
        if uid == 0 {
            return Err(GovernError::Target {
                target: "--session".to_string(),
                why: "all of the system is root's: name the user whose session is meant (--session=UID)"
                    .to_string(),
            });
        }
        self.targets.push(Target::Session(uid));
        Ok(self)
    }

    /// Whether an agent has this process's memory: then a daemon manages it, or is about to.
    pub fn has_agent(&self, pid: u32) -> bool {
        self.agents.have(pid)
    }

    /// Looks who is there now; false where nobody came or went.
    pub fn look(&mut self) -> bool {
        let now = Processes::now();
        let is_fresh = |(_, when): &&(Processes, Instant)| when.elapsed() < ALL;
        let before = self.looked.as_ref().filter(is_fresh).map(|(before, _)| before);
        match (before, &now) {
            (Some(before), Some(now)) if before == now => return false,
            (Some(before), Some(now)) if before.last == now.last => {
                self.roots.retain(|process, _| lives(*process));
                if let Some((before, _)) = &mut self.looked {
                    before.threads.clone_from(&now.threads);
                }
            }
            // Where nobody can be seen (no descriptors, no memory) nobody has ended.
            _ => match everybody().and_then(|seen| Ok((self.who_may_be(&seen)?, seen))) {
                Ok((all, seen)) => {
                    self.looked = now.map(|now| (now, Instant::now()));
                    self.agents.look(&seen, &all);
                    self.look_at_all(&all);
                }
                Err(error) => tracing::warn!("processes cannot be looked for: {error}"),
            },
        }
        true
    }

    /// Who was there at the last look: each process, and the root of its app.
    pub fn found(&self) -> impl Iterator<Item = (ProcessName, ProcessName)> {
        self.roots.iter().map(|(process, root)| (*process, *root))
    }

    /// Who may be governed, by numbers alone: nothing else is asked of others, as the kernel lets who asks wait for an
    /// execve that is under way, for as long as whoever began it likes.
    fn who_may_be(&self, seen: &HashMap<u32, Seen>) -> io::Result<HashMap<u32, Stat>> {
        let mut may_be: HashSet<u32> = self.roots.keys().map(|process| process.pid).collect();
        for target in &self.targets {
            match target {
                Target::Tree(root) => {
                    may_be.insert(root.pid);
                }
                Target::Group(directory) => members(directory, &mut may_be),
                Target::Session(uid) => {
                    may_be.extend(seen.keys().filter(|pid| is_of_user(**pid, *uid)));
                }
            }
        }
        if self.command.is_some() {
            may_be.insert(std::process::id());
        }
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for (pid, seen) in seen {
            children.entry(seen.parent).or_default().push(*pid);
        }
        let mut waiting: Vec<u32> = may_be.iter().copied().collect();
        while let Some(pid) = waiting.pop() {
            let of_it = children.get(&pid).into_iter().flatten();
            waiting.extend(of_it.filter(|child| may_be.insert(**child)));
        }
        may_be.retain(|pid| seen.contains_key(pid));
        stats_of(&may_be)
    }

    fn look_at_all(&mut self, all: &HashMap<u32, Stat>) {
        let own = std::process::id();
        let name = |pid: u32| all.get(&pid).map(|stat| ProcessName { pid, started: stat.started });
        let mut inside: HashSet<u32> = HashSet::new();
        for target in &self.targets {
            match target {
                Target::Tree(root) if name(root.pid) == Some(*root) => {
                    inside.insert(root.pid);
                }
                Target::Tree(_) => {}
                Target::Group(directory) => members(directory, &mut inside),
                Target::Session(uid) => {
                    inside.extend(all.keys().filter(|pid| is_of_user(**pid, *uid)));
                }
            }
        }
        let in_session = self.targets.iter().any(|target| matches!(target, Target::Session(_)));
        let trees: HashSet<ProcessName> = self.trees().collect();
        self.roots.retain(|process, _| name(process.pid) == Some(*process));
        inside.extend(self.roots.keys().map(|process| process.pid));
        if let Some(command) = self.command {
            for (pid, _) in all.iter().filter(|(_, stat)| stat.parent == own) {
                inside.insert(*pid);
                if let Some(orphan) = name(*pid) {
                    self.roots.entry(orphan).or_insert(command);
                }
            }
        }
        // Children of children come in the next round. Of groups only those that are in them.
        loop {
            let of_tree = |pid: u32| {
                name(pid).is_some_and(|name| {
                    let root = self.roots.get(&name).copied().unwrap_or(name);
                    trees.contains(&root)
                })
            };
            let children: Vec<(u32, u32, bool)> = all
                .iter()
                .filter(|(pid, stat)| !inside.contains(*pid) && inside.contains(&stat.parent))
                .map(|(pid, stat)| (*pid, stat.parent, of_tree(stat.parent)))
                .filter(|(.., of_tree)| *of_tree || in_session)
                .collect();
            if children.is_empty() {
                break;
            }
            for (pid, parent, of_tree) in children {
                inside.insert(pid);
                if of_tree && let (Some(name), Some(parent)) = (name(pid), name(parent)) {
                    let root = self.roots.get(&parent).copied().unwrap_or(parent);
                    self.roots.insert(name, root);
                }
            }
        }
        inside.remove(&own);
        // Their memory is their program's.
        inside.retain(|pid| !self.agents.has(*pid));
        self.roots.retain(|process, _| inside.contains(&process.pid));
        let mut units: HashMap<u32, Option<String>> = HashMap::new();
        let mut unit = |pid: u32| units.entry(pid).or_insert_with(|| scope::app_of(pid)).clone();
        let mut is_one_app = |pid: u32, stat: &Stat| {
            let parent = stat.parent;
            let (own, parents) = (unit(pid), unit(parent));
            let same_group = all.get(&parent).is_some_and(|parent| parent.group == stat.group);
            own == parents && (own.is_some() || same_group)
        };
        for pid in &inside {
            let Some(process) = name(*pid) else { continue };
            if self.roots.contains_key(&process) {
                continue;
            }
            // Up as far as the parents are inside.
            let (mut root, mut steps) = (*pid, 0);
            while let Some(stat) = all.get(&root).filter(|stat| inside.contains(&stat.parent))
                && steps < all.len()
                && (!in_session || is_one_app(root, stat))
            {
                (root, steps) = (stat.parent, steps + 1);
            }
            let Some(root) = name(root) else { continue };
            let root = self.roots.get(&root).copied().unwrap_or(root);
            self.roots.insert(process, root);
        }
    }

    fn trees(&self) -> impl Iterator<Item = ProcessName> {
        self.targets.iter().filter_map(|target| match target {
            Target::Tree(root) => Some(*root),
            Target::Group(_) | Target::Session(_) => None,
        })
    }

    /// Whether nothing is left that could be governed, as of the last look: no process, and no group that may
    /// get some.
    pub fn are_over(&self) -> bool {
        if let Some(command) = self.command {
            return !self.roots.values().any(|root| *root == command);
        }
        let is_over = |target: &Target| match target {
            Target::Tree(_) => self.roots.is_empty(),
            Target::Group(directory) => !directory.exists(),
            // The user may come again.
            Target::Session(_) => false,
        };
        self.targets.iter().all(is_over)
    }
}

fn target(named: &str) -> Result<Target, GovernError> {
    let refuse =
        |why: &str| GovernError::Target { target: named.to_string(), why: why.to_string() };
    if let Ok(pid) = named.parse::<u32>() {
        let found = ProcessName::of(pid).map_err(|_| refuse("there is no process of this id"))?;
        if let Some(process) = process_of_thread(pid).filter(|process| *process != pid) {
            return Err(refuse(&format!("it is a thread of process {process}: name that")));
        }
        return match pid == std::process::id() || is_dead(pid) {
            true => Err(refuse("it has ended, or is this command itself")),
            false => Ok(Target::Tree(found)),
        };
    }
    let directory = fs::canonicalize(named).unwrap_or_default();
    if !directory.is_dir() {
        return Err(refuse("expected a process id or the directory of a control group"));
    }
    match is_a_group(&directory) {
        true => Ok(Target::Group(directory)),
        false => Err(refuse("this directory is not that of a control group")),
    }
}

/// Who makes a directory elsewhere is not to say which processes are governed.
fn is_a_group(directory: &Path) -> bool {
    const CGROUP_V1: u64 = 0x27_e0eb;
    const CGROUP_V2: u64 = 0x6367_7270;
    rustix::fs::statfs(directory)
        .is_ok_and(|is| [CGROUP_V1, CGROUP_V2].contains(&(is.f_type as u64)))
}

/// The process that a thread, or a process, is of.
fn process_of_thread(tid: u32) -> Option<u32> {
    text_of(&format!("/proc/{tid}/status"))
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:"))?
        .trim()
        .parse()
        .ok()
}

fn is_dead(pid: u32) -> bool {
    Stat::of(pid).is_ok_and(|stat| matches!(stat.state, b'Z' | b'X'))
}

/// Adds the processes of a group and of those in it.
fn members(directory: &Path, found: &mut HashSet<u32>) {
    // One above it may be another by now.
    if !is_a_group(directory) {
        return;
    }
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let is_group = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    // Closed before those in it are opened: groups may be deeper than there are descriptors.
    let groups: Vec<PathBuf> = entries.filter(is_group).map(|entry| entry.path()).collect();
    for group in groups {
        members(&group, found);
    }
}

/// Whether a process is of this user, or of root and begun by somebody who came in as this user. Where nobody has come in
/// (a service) others may say of themselves what they like, so root has to have begun it, or this user: a program
/// that sets its user (`sg`, `newgrp`) is root's, whoever runs it.
fn is_of_user(pid: u32, uid: u32) -> bool {
    let came_in_as = || {
        let text = fs::read_to_string(format!("/proc/{pid}/loginuid")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    match fs::metadata(format!("/proc/{pid}")).map(|of| of.uid()) {
        Ok(of) if of == uid => true,
        Ok(0) => {
            came_in_as() == Some(uid) && user_of(pid).is_some_and(|real| [0, uid].contains(&real))
        }
        Ok(_) => false,
        Err(_) => false,
    }
}

/// What the kernel says of all processes together: where it says the same again, nobody has come, and nobody has gone and been
/// waited for.
#[derive(Debug, PartialEq, Eq)]
struct Processes {
    /// The id of the one that was begun last.
    last: String,
    /// How many threads there are.
    threads: String,
}

impl Processes {
    fn now() -> Option<Processes> {
        Processes::of(&fs::read_to_string("/proc/loadavg").ok()?)
    }

    fn of(loadavg: &str) -> Option<Processes> {
        let words: Vec<&str> = loadavg.split_ascii_whitespace().collect();
        let [_, _, _, running, last] = words[..] else { return None };
        let (_, threads) = running.split_once('/')?;
        Some(Processes { last: last.to_string(), threads: threads.to_string() })
    }
}

fn lives(process: ProcessName) -> bool {
    match Stat::of(process.pid) {
        Ok(stat) => stat.started == process.started && !matches!(stat.state, b'Z' | b'X'),
        Err(error) => nobody_can_be_seen(&error),
    }
}

/// Those of them that live.
///
/// # Errors
/// They cannot all be looked at: what has ended meanwhile is left out, and no error.
fn stats_of(pids: &HashSet<u32>) -> io::Result<HashMap<u32, Stat>> {
    let mut found = HashMap::new();
    for pid in pids {
        match Stat::of(*pid) {
            Ok(stat) if matches!(stat.state, b'Z' | b'X') => {}
            Ok(stat) => {
                found.insert(*pid, stat);
            }
            Err(error) if nobody_can_be_seen(&error) => return Err(error),
            // It has ended.
            Err(_) => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    /// Where nobody has come in, anybody says that he came in as whom he likes.
    #[test]
    fn what_a_process_says_of_who_came_in_counts_where_root_says_it() {
        const CAME_IN: u32 = 4711;
        let of = |ids: &[&str]| {
            let script = format!("echo {CAME_IN} > /proc/self/loginuid && exec \"$@\"");
            let mut command = Command::new("sh");
            command.args(["-c", &script, "sh"]).args(ids).args([
                "sh",
                "-p",
                "-c",
                "echo ready; read line",
            ]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
        };
        let other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        let sets_user = ["setpriv", "--ruid=65534", "--clear-groups"];
        for (ids, own, expected) in
            [(&[][..], 0, true), (&other[..], 65534, false), (&sets_user[..], 0, false)]
        {
            let mut child = of(ids).expect("sh starts");
            let mut ready = [0; 6];
            let out = child.stdout.as_mut().expect("a pipe");
            if io::Read::read_exact(out, &mut ready).is_err() {
                child.wait().expect("it has ended");
                return crate::skip::skip("targets::who_came_in", "root may not say who came in");
            }
            let is = is_of_user(child.id(), CAME_IN);
            let is_its_own = is_of_user(child.id(), own);
            drop(child.stdin.take());
            child.wait().expect("it ends");
            assert_eq!((is, is_its_own), (expected, true), "{ids:?}");
        }
    }

    #[test]
    fn what_is_nothing_to_govern_is_refused() {
        for (named, why) in [
            ("4194305", "no process"),
            ("/tmp", "not that of a control group"),
            ("nosuch", "expected a process id"),
            ("-1", "expected a process id"),
        ] {
            let error = Targets::named(&[named]).expect_err(named).to_string();
            assert!(error.contains(why), "{named}: {error}");
        }
        let own = std::process::id().to_string();
        assert!(Targets::named(&[own]).is_err());
    }

    #[test]
    fn who_came_or_went_is_seen_in_what_the_kernel_says_of_all() {
        let of = |text: &str| Processes::of(text);
        let before = of("0.08 0.03 0.05 1/123 4567\n").expect("as it is");
        assert_eq!(of("9.00 0.07 0.05 3/123 4567\n").as_ref(), Some(&before));
        for other in ["0.08 0.03 0.05 1/122 4567\n", "0.08 0.03 0.05 1/123 4568\n"] {
            assert_ne!(of(other).expect("as it is"), before, "{other}");
        }
        assert!(of("").is_none() && of("1 2 3 4 5\n").is_none() && Processes::now().is_some());
    }

    #[test]
    fn descendants_are_found_and_stay_when_their_parents_are_gone() {
        // A shell, its child, and a grandchild that outlives it.
        let mut shell = Command::new("sh");
        shell.args(["-c", "sh -c 'sleep 600 & echo $!; read _'; read _"]);
        let mut shell =
            shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        let output = shell.stdout.take().expect("piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)
            .expect("it says");
        let sleeper: u32 = line.trim().parse().expect("a pid");
        let mut targets = Targets::named(&[shell.id().to_string()]).expect("it is there");
        let pids = |targets: &mut Targets| {
            targets.look();
            let mut found: Vec<u32> = targets.found().map(|(name, _)| name.pid).collect();
            found.sort_unstable();
            found
        };
        let found = pids(&mut targets);
        assert!(found.contains(&shell.id()) && found.contains(&sleeper), "{found:?}");
        assert!(targets.found().all(|(_, root)| root.pid == shell.id()));
        shell.kill().expect("it lives");
        shell.wait().expect("it ends");
        let found = pids(&mut targets);
        assert!(found.contains(&sleeper) && !found.contains(&shell.id()), "{found:?}");
        assert!(!targets.are_over());
        assert!(targets.found().all(|(_, root)| root.pid == shell.id()), "the app stays");
        Command::new("kill").arg(sleeper.to_string()).status().expect("kill");
        let hang = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !pids(&mut targets).is_empty() {
            assert!(std::time::Instant::now() < hang, "{:?}", pids(&mut targets));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(targets.are_over());
    }
}
