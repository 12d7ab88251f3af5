//! Agents of a daemon's among the processes: they are called so, and have the memory of somebody who is not.
//!
//! Anybody may call his processes that. So they are asked about their own user's processes alone, of about their size,
//! so many times in a look, and who was none is left alone for a while.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use clew_live::programs::kcmp::share_memory;
use clew_live::programs::proc_stat::{Stat, text_of, user_of};
use clew_live::survival::predecessor::ProcessName;

use crate::everybody::Seen;

/// How long who was found to be no agent is not asked again.
const NONE: Duration = Duration::from_secs(10);
/// Questions about one user's processes in a look. Who was not asked has his turn in a later one.
const QUESTIONS: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Agents {
    /// Those that are there, and their users.
    found: HashMap<u32, u32>,
    /// The same, whatever their programs do later.
    were: HashSet<ProcessName>,
    /// Who was none, and when.
    none: HashMap<ProcessName, Instant>,
}

impl Agents {
    /// Whether it is one.
    pub fn has(&self, pid: u32) -> bool {
        self.found.contains_key(&pid)
    }

    /// Whether one has this process's memory. It is of the same user, or of root if the process was root's and became
    /// another user's; what others call an agent is not asked for.
    pub fn have(&self, pid: u32) -> bool {
        if self.found.is_empty() {
            return false;
        }
        let Some(user) = user_of(pid) else { return false };
        let mut of_user = self.found.iter().filter(|(_, uid)| [0, user].contains(uid));
        of_user.any(|(agent, _)| share_memory(pid, *agent) == Some(true))
    }

    /// Looks for those of the users of whom `ours` are; how often it asked.
    pub fn look(&mut self, all: &HashMap<u32, Seen>, ours: &HashMap<u32, Stat>) -> usize {
        let of_ours = ours.keys().filter_map(|pid| all.get(pid)).map(|seen| seen.user);
        let users: HashSet<u32> = of_ours.chain([0]).collect();
        let called_so = all.iter().filter(|(_, seen)| seen.is_agent && users.contains(&seen.user));
        let mut questions = Questions { all, users: &users, sizes: None, asked: HashMap::new() };
        let (mut were, mut none) = (HashSet::new(), HashMap::new());
        self.found.clear();
        for (pid, seen) in called_so {
            let Ok(name) = ProcessName::of(*pid) else { continue };
            let was_none = self.none.get(&name).filter(|when| when.elapsed() < NONE);
            if let Some(when) = was_none {
                none.insert(name, *when);
                continue;
            }
            match self
                .were
                .contains(&name)
                .then_some(true)
                .or_else(|| questions.ask(*pid, seen.user))
            {
                Some(true) => {
                    were.insert(name);
                    self.found.insert(*pid, seen.user);
                }
                Some(false) => drop(none.insert(name, Instant::now())),
                None => {}
            }
        }
        (self.were, self.none) = (were, none);
        questions.asked.values().sum()
    }
}

/// What is asked in one look.
struct Questions<'a> {
    all: &'a HashMap<u32, Seen>,
    /// Nobody else's processes are asked about.
    users: &'a HashSet<u32>,
    /// Of their processes that are called otherwise: size, id and user, ascending.
    sizes: Option<Vec<(u64, u32, u32)>>,
    /// How often it was asked about each user's.
    asked: HashMap<u32, usize>,
}

impl Questions<'_> {
    /// Whether this one of `user` has the memory of another; `None` if there were too many questions.
    fn ask(&mut self, pid: u32, user: u32) -> Option<bool> {
        if user != 0 && self.asked.get(&user) == Some(&QUESTIONS) {
            return None;
        }
        let (all, users) = (self.all, self.users);
        let sizes = self.sizes.get_or_insert_with(|| {
            let others = all.iter().filter(|(_, of)| !of.is_agent && users.contains(&of.user));
            let mut sizes: Vec<_> =
                others.filter_map(|(pid, of)| Some((size_of(*pid)?, *pid, of.user))).collect();
            sizes.sort_unstable();
            sizes
        });
        let Some(size) = size_of(pid) else { return Some(false) };
        // It may have grown or shrunk a little since.
        let like = size - size / 8..=size + size / 8;
        let from = sizes.partition_point(|(size, ..)| size < like.start());
        let mut is_complete = true;
        for (_, other, of) in sizes[from..].iter().take_while(|(size, ..)| like.contains(size)) {
            if ![0, *of].contains(&user) {
                continue;
            }
            let asked = self.asked.entry(*of).or_default();
            if *asked == QUESTIONS {
                is_complete = false;
                continue;
            }
            *asked += 1;
            if share_memory(*other, pid) == Some(true) {
                return Some(true);
            }
        }
        is_complete.then_some(false)
    }
}

/// The size of a process's memory, pages; `None` if it has none. Asking waits for nobody.
fn size_of(pid: u32) -> Option<u64> {
    let statm = text_of(&format!("/proc/{pid}/statm")).ok()?;
    statm.split_ascii_whitespace().next()?.parse().ok().filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::everybody::everybody;

    #[test]
    fn who_calls_himself_an_agent_is_asked_about_his_own_programs_alone() {
        let own = std::process::id();
        let user = user_of(own).expect("it lives");
        for (uid, asked) in [(user, true), (0, true), (47_110, false)] {
            let agents = Agents { found: HashMap::from([(own, uid)]), ..Agents::default() };
            assert_eq!(agents.have(own), asked, "an agent of user {uid}");
        }
    }

    /// Processes that call themselves agents, and as many others of the same size.
    #[test]
    fn many_who_call_themselves_agents_are_asked_seldom() {
        // They end soon, and keep nobody's pipe open, where this fails.
        let sleep = || {
            let mut sleep = std::process::Command::new("sleep");
            let nothing = std::process::Stdio::null;
            sleep.arg("60").stdout(nothing()).stderr(nothing()).spawn().expect("sleep")
        };
        let mut children: Vec<_> = (0..100).map(|_| sleep()).collect();
        let hang = Instant::now() + Duration::from_secs(60);
        // Of a child before its execve the memory is this test's.
        let is_sleep = |pid: u32| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
        };
        while !children.iter().all(|child| is_sleep(child.id())) {
            assert!(Instant::now() < hang);
            std::thread::yield_now();
        }
        let mut all = everybody().expect("it can be seen");
        all.retain(|pid, _| children.iter().any(|child| child.id() == *pid));
        for child in &children[..50] {
            all.get_mut(&child.id()).expect("it lives").is_agent = true;
        }
        let of = |user: u32| {
            let mut all = all.clone();
            all.values_mut().for_each(|seen| seen.user = user);
            all
        };
        let first = children[99].id();
        let ours = HashMap::from([(first, Stat::of(first).expect("it lives"))]);
        let mut agents = Agents::default();
        // All of 50 about 50 would be more than there are questions.
        assert_eq!(agents.look(&of(5), &ours), QUESTIONS);
        assert_eq!(agents.look(&of(5), &ours), QUESTIONS);
        let rest = agents.look(&of(5), &ours);
        assert!(rest < QUESTIONS, "who was none is asked no more");
        assert_eq!(agents.look(&of(5), &ours), 0);
        assert!(agents.found.is_empty());
        // Nobody of this user is governed.
        let mut others = of(6);
        others.get_mut(&first).expect("it lives").user = 5;
        assert_eq!(Agents::default().look(&others, &ours), 0);
        for child in &mut children {
            child.kill().and_then(|()| child.wait()).expect("it ends");
        }
    }
}
