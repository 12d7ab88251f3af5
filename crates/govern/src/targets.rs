//! What is governed: processes with their descendants, the processes of control groups, or all of a user's session.
//! Each process whose parent is not among them is the root of an app; its descendants are of the same app, also when
//! their parents are gone. In a session everybody descends from the desktop: there an app is the unit that systemd
//! started for it, else a process group.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clew_live::programs::kcmp::share_memory;
use clew_live::programs::proc_stat::{Stat, user_of};
use clew_live::programs::scope;
use clew_live::survival::predecessor::ProcessName;

use crate::error::GovernError;

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
    /// The root of each process, from the first look that found it on.
    roots: HashMap<ProcessName, ProcessName>,
    /// Agents of a daemon's, and their users.
    agents: Vec<(u32, u32)>,
    /// The last process that this machine began, as of the last look at all, and when that was.
    looked: Option<(String, Instant)>,
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
        Ok(Targets { targets, roots: HashMap::new(), agents: Vec::new(), looked: None })
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

    /// Whether an agent has this process's memory: then a daemon manages it, or is about to. It is of the same user, or
    /// of root if the process was root's and became another user's; what others call an agent is not asked for.
    pub fn has_agent(&self, pid: u32) -> bool {
        let Some(user) = user_of(pid) else { return false };
        let mut of_user = self.agents.iter().filter(|(_, uid)| [0, user].contains(uid));
        of_user.any(|(agent, _)| share_memory(pid, *agent) == Some(true))
    }

    /// Looks who is there now: each process, and the root of its app.
    pub fn look(&mut self) -> Vec<(ProcessName, ProcessName)> {
        let last = last_process();
        let is_known = |(before, when): &(String, Instant)| {
            *before == last && !last.is_empty() && when.elapsed() < ALL
        };
        match self.looked.as_ref().is_some_and(is_known) {
            // Nobody came.
            true => self.roots.retain(|process, _| lives(*process)),
            false => {
                self.looked = Some((last, Instant::now()));
                self.look_at_all();
            }
        }
        self.roots.iter().map(|(process, root)| (*process, *root)).collect()
    }

    fn look_at_all(&mut self) {
        let all = processes();
        let agents = all.iter().filter(|(_, stat)| stat.is_agent);
        self.agents = agents.filter_map(|(pid, _)| Some((*pid, user_of(*pid)?))).collect();
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
        inside.retain(|pid| all.get(pid).is_some_and(|stat| !stat.is_agent));
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
        return match pid == std::process::id() || is_dead(pid) {
            true => Err(refuse("it has ended, or is this command itself")),
            false => Ok(Target::Tree(found)),
        };
    }
    let directory = Path::new(named);
    if !directory.is_dir() {
        return Err(refuse("expected a process id or the directory of a control group"));
    }
    // Who makes a directory elsewhere is not to say which processes are governed.
    const CGROUP_V1: u64 = 0x27_e0eb;
    const CGROUP_V2: u64 = 0x6367_7270;
    let kind = rustix::fs::statfs(directory).map_err(|e| refuse(&e.to_string()))?.f_type as u64;
    match [CGROUP_V1, CGROUP_V2].contains(&kind) {
        true => Ok(Target::Group(directory.to_path_buf())),
        false => Err(refuse("this directory is not that of a control group")),
    }
}

fn is_dead(pid: u32) -> bool {
    Stat::of(pid).is_ok_and(|stat| matches!(stat.state, b'Z' | b'X'))
}

/// Adds the processes of a group and of those in it.
fn members(directory: &Path, found: &mut HashSet<u32>) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        members(&entry.path(), found);
    }
}

/// Whether a process is of this user, or of somebody who came in as this user.
fn is_of_user(pid: u32, uid: u32) -> bool {
    let came_in_as = || {
        let text = fs::read_to_string(format!("/proc/{pid}/loginuid")).ok()?;
        text.trim().parse::<u32>().ok()
    };
    fs::metadata(format!("/proc/{pid}")).is_ok_and(|of| of.uid() == uid)
        || came_in_as() == Some(uid)
}

/// The id of the process that was begun last; nothing, where nobody says it.
fn last_process() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_ascii_whitespace().last().unwrap_or_default().to_string()
}

fn lives(process: ProcessName) -> bool {
    Stat::of(process.pid)
        .is_ok_and(|stat| stat.started == process.started && !matches!(stat.state, b'Z' | b'X'))
}

/// Living processes.
fn processes() -> HashMap<u32, Stat> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| Some((pid, Stat::of(pid).ok()?)))
        .filter(|(_, stat)| !matches!(stat.state, b'Z' | b'X'))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

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
    fn who_calls_himself_an_agent_is_asked_about_his_own_programs_alone() {
        let own = std::process::id();
        let user = user_of(own).expect("it lives");
        let mut targets = Targets::named::<&str>(&[]).expect("nothing");
        for (uid, asked) in [(user, true), (0, true), (47_110, false)] {
            targets.agents = vec![(own, uid)];
            assert_eq!(targets.has_agent(own), asked, "an agent of user {uid}");
        }
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
            let mut found: Vec<u32> = targets.look().iter().map(|(name, _)| name.pid).collect();
            found.sort_unstable();
            found
        };
        let found = pids(&mut targets);
        assert!(found.contains(&shell.id()) && found.contains(&sleeper), "{found:?}");
        assert!(targets.look().iter().all(|(_, root)| root.pid == shell.id()));
        shell.kill().expect("it lives");
        shell.wait().expect("it ends");
        let found = pids(&mut targets);
        assert!(found.contains(&sleeper) && !found.contains(&shell.id()), "{found:?}");
        assert!(!targets.are_over());
        assert!(targets.look().iter().all(|(_, root)| root.pid == shell.id()), "the app stays");
        Command::new("kill").arg(sleeper.to_string()).status().expect("kill");
        let hang = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !targets.look().is_empty() {
            assert!(std::time::Instant::now() < hang, "{:?}", targets.look());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(targets.are_over());
    }
}
