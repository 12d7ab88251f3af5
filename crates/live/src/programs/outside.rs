//! Memory of apps that Clew cannot take: shared memory of any of their processes, what managed ones have that may be
//! executed, and what processes have that are not managed.
//!
//! A thread of its own looks every few seconds when the policy thread asks: at `/proc`, which takes
//! its time. A process is of an app if it was told of, or if its parent is. Agents do not count:
//! their memory is their program's.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;

use clew_core::AppId;
use crossbeam_channel::{Receiver, Sender};

use crate::control::status::{OutsideProcess, OutsideStatus};
use crate::control::trusted_path::own_uid;
use crate::message::Message;
use crate::programs::environment;
use crate::programs::kcmp::share_memory;
use crate::programs::name;
use crate::programs::proc_stat::{Stat, text_of};
use crate::programs::process::Process;
use crate::programs::sharing::{self, Sizes};
use crate::programs::without_agent;
use crate::survival::predecessor::ProcessName;

/// Processes of one app that are named; the sum counts all.
const NAMED: usize = 16;

/// What the daemon knows of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is managed, and shares so many bytes with the daemon: pages on their way.
    Managed { buffer_bytes: u64 },
    /// It is small, or being prepared, or silent for a while.
    Soon,
    /// It is not managed, for this reason.
    Refused(String),
    /// It was said to start, and nothing has been heard of it.
    Started,
}

/// An app, and whose it is.
pub type Owned = (AppId, u32);

/// A process that the daemon knows.
#[derive(Clone, Debug)]
pub struct Told {
    /// Its app, and whose that is.
    pub app: Owned,
    /// Its process id.
    pub pid: u32,
    /// What is known.
    pub known: Known,
}

/// What was found, by app.
pub type Found = HashMap<AppId, OutsideStatus>;

/// What is looked at: processes that are known, and forked children of which what is their own is.
pub type Asked = (Vec<Told>, Vec<Arc<Process>>);

/// Looks whenever it is asked, until nobody asks any more. What is smaller than `least_bytes` is not
/// worth a word.
pub fn watch(
    asked: &Receiver<Asked>,
    (least_bytes, page_bytes): (u64, u64),
    is_service: bool,
    to_governor: &Sender<Message>,
) {
    let (seen, parts) = (HashMap::new(), HashMap::new());
    let mut watch = Watch { least_bytes, page_bytes, is_service, seen, parts };
    while let Ok((told, children)) = asked.recv() {
        children.iter().for_each(|child| child.look_what_is_its_own(page_bytes));
        drop(children);
        let found = watch.look(&told);
        if to_governor.send(Message::Outside(found)).is_err() {
            return;
        }
    }
}

struct Watch {
    least_bytes: u64,
    page_bytes: u64,
    /// Other users' programs reach this daemon, too.
    is_service: bool,
    /// Processes of apps: a parent may be gone by the next look.
    seen: HashMap<ProcessName, Owned>,
    /// What [`Part`] gave, and for which sizes.
    parts: HashMap<ProcessName, (Sizes, Sizes)>,
}

impl Watch {
    fn look(&mut self, told: &[Told]) -> Found {
        let told: HashMap<u32, &Told> = told.iter().map(|told| (told.pid, told)).collect();
        if told.is_empty() && self.seen.is_empty() {
            return Found::new();
        }
        let processes = processes();
        let before = self.find(&told, &processes);
        self.parts.retain(|name, _| before.contains_key(name));
        let mut found = Found::new();
        for (name, (app, owner)) in &self.seen {
            let Some((uid, sizes)) = status(name.pid) else { continue };
            // A number passes on, and what a user has started may become another's: neither is the user's to see.
            if self.is_service && *owner != 0 && uid != *owner {
                continue;
            }
            let Some(command) = command(name.pid).filter(|c| c != "clew-agent") else { continue };
            if sizes.anonymous.max(sizes.shared) < self.least_bytes {
                continue;
            }
            let known = told.get(&name.pid).map_or(&Known::Started, |told| &told.known);
            // A process that has just come may still get an agent, or go on to be another.
            let is_new = !before.get(name).copied().unwrap_or(false);
            let is_outside = match known {
                Known::Managed { .. } | Known::Soon => false,
                Known::Refused(_) => true,
                Known::Started => !is_new && !borrows_memory(name.pid),
            };
            let parts = part_of(&mut self.parts, *name, sizes, self.page_bytes);
            let buffer_bytes = match known {
                Known::Managed { buffer_bytes } => *buffer_bytes,
                _ => 0,
            };
            let shared = parts.shared.saturating_sub(buffer_bytes);
            let of_app = found.entry(*app).or_default();
            if shared >= self.least_bytes && (is_outside || *known != Known::Started) {
                of_app.shared_bytes += shared;
            }
            if matches!(known, Known::Managed { .. }) && parts.executable >= self.least_bytes {
                of_app.executable_bytes += parts.executable;
            }
            if is_outside && parts.anonymous >= self.least_bytes {
                of_app.processes.push(OutsideProcess {
                    pid: name.pid,
                    command,
                    uid,
                    bytes: parts.anonymous,
                    reason: why(name.pid, uid, known, self.is_service),
                });
            }
        }
        for of_app in found.values_mut() {
            of_app.processes.sort_by_key(|p| (std::cmp::Reverse(p.bytes), p.pid));
            let of_processes: u64 = of_app.processes.iter().map(|p| p.bytes).sum();
            of_app.bytes = of_app.shared_bytes + of_app.executable_bytes + of_processes;
            of_app.processes.truncate(NAMED);
        }
        found.retain(|_, of_app| of_app.bytes > 0);
        found
    }

    /// Finds the apps' processes among all; answers those of now, and whether each was seen before.
    fn find(
        &mut self,
        told: &HashMap<u32, &Told>,
        processes: &HashMap<u32, Stat>,
    ) -> HashMap<ProcessName, bool> {
        let before = std::mem::take(&mut self.seen);
        let mut apps: HashMap<u32, Owned> = HashMap::new();
        for (pid, stat) in processes {
            let name = ProcessName { pid: *pid, started: stat.started };
            let app = told.get(pid).map(|told| told.app).or_else(|| before.get(&name).copied());
            apps.extend(app.map(|app| (*pid, app)));
        }
        // Children of children come in the next round.
        loop {
            let child = |(pid, stat): (&u32, &Stat)| {
                let app = *apps.get(&stat.parent)?;
                (!apps.contains_key(pid) && *pid != std::process::id()).then_some((*pid, app))
            };
            let children: Vec<(u32, Owned)> = processes.iter().filter_map(child).collect();
            if children.is_empty() {
                break;
            }
            apps.extend(children);
        }
        let name = |pid: u32| processes.get(&pid).map(|s| ProcessName { pid, started: s.started });
        self.seen =
            apps.iter().filter_map(|(pid, app)| name(*pid).map(|name| (name, *app))).collect();
        self.seen.keys().map(|name| (*name, before.contains_key(name))).collect()
    }
}

/// Living processes.
fn processes() -> HashMap<u32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return HashMap::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| Some((pid, Stat::of(pid).ok()?)))
        .filter(|(_, stat)| !matches!(stat.state, b'Z' | b'X'))
        .collect()
}

fn command(pid: u32) -> Option<String> {
    let bytes = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(name::bounded(bytes.strip_suffix(b"\n").unwrap_or(&bytes)))
}

/// Effective user and resident memory; `None` if it is gone.
fn status(pid: u32) -> Option<(u32, Sizes)> {
    parse_status(&text_of(&format!("/proc/{pid}/status")).ok()?)
}

fn parse_status(text: &str) -> Option<(u32, Sizes)> {
    let field = |name: &str, at: usize| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().nth(at)?.parse().ok()
    };
    let kib = |name| field(name, 0).unwrap_or(0) << 10;
    let (anonymous, shared) = (kib("RssAnon:"), kib("RssShmem:"));
    let sizes = Sizes { anonymous, shared, executable: 0 };
    Some((field("Uid:", 1)? as u32, sizes))
}

/// The process's own part of memory that several map, or one several times: a heap may be mapped three
/// times, the buffers of a database by each of its processes. This walks its page tables, so it is
/// done again only after the sizes have changed by a sixteenth. Where it cannot be read, all of it.
fn part_of(
    known: &mut HashMap<ProcessName, (Sizes, Sizes)>,
    name: ProcessName,
    sizes: Sizes,
    page_bytes: u64,
) -> Sizes {
    let near = |a: u64, b: u64| a.abs_diff(b) <= a.max(b) / 16;
    if let Some((of, part)) = known.get(&name)
        && near(of.anonymous, sizes.anonymous)
        && near(of.shared, sizes.shared)
    {
        return *part;
    }
    let part = Sizes {
        executable: sharing::executable_bytes(name.pid, page_bytes),
        ..sharing::part_of(name.pid).unwrap_or(sizes)
    };
    known.insert(name, (sizes, part));
    part
}

/// Whether its memory is its parent's (vfork, or an agent under another name).
fn borrows_memory(pid: u32) -> bool {
    Stat::of(pid).is_ok_and(|stat| share_memory(pid, stat.parent) == Some(true))
}

/// Why it is not managed, as far as that can be told.
fn why(pid: u32, uid: u32, known: &Known, is_service: bool) -> String {
    if let Some(reason) = without_agent::why_of(pid) {
        return reason.to_string();
    }
    if uid != own_uid() && !is_service {
        return "it runs as another user, who does not reach the daemon".to_string();
    }
    if let Known::Refused(reason) = known {
        return reason.clone();
    }
    match environment::agents_socket(pid) {
        Ok(None) => "it was started without CLEW_AGENT_SOCKET in its environment".to_string(),
        _ => "no agent has come from it (a forked child without one, a sandbox?)".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_reached_by_programs_of_others() {
        let (own, known) = (std::process::id(), Known::Refused("its agent is gone".to_string()));
        let other = own_uid() + 1;
        assert!(why(own, other, &known, false).contains("another user"));
        assert_eq!(why(own, other, &known, true), "its agent is gone");
        assert_eq!(why(own, own_uid(), &known, false), "its agent is gone");
    }

    #[test]
    fn the_kernels_words_are_understood() {
        let text = "Name:\tx\nUid:\t0\t101\t0\t0\nRssAnon:\t   1024 kB\nRssShmem:\t  8 kB\n";
        let sizes = Sizes { anonymous: 1 << 20, shared: 8 << 10, executable: 0 };
        assert_eq!(parse_status(text), Some((101, sizes)));
        assert_eq!(parse_status("Name:\tx\nUid:\t0\t0\t0\t0\n"), Some((0, Sizes::default())));
        assert!(status(std::process::id()).is_some_and(|(_, sizes)| sizes.anonymous > 0));
    }

    #[test]
    fn descendants_are_found_and_stay_when_their_parents_are_gone() {
        let (seen, parts) = (HashMap::new(), HashMap::new());
        let mut watch = Watch { least_bytes: 0, page_bytes: 4096, is_service: false, seen, parts };
        let stat = |parent| Stat {
            state: b'S',
            parent,
            group: 1,
            is_agent: false,
            cpu_ticks: 0,
            started: 7,
        };
        let told = Told { app: (AppId(3), 0), pid: 10, known: Known::Soon };
        let told = HashMap::from([(10, &told)]);
        let all = [(1, stat(0)), (10, stat(1)), (12, stat(11)), (11, stat(10)), (20, stat(1))];
        let pids = |found: HashMap<ProcessName, bool>| {
            let mut pids: Vec<_> = found.into_iter().map(|(name, old)| (name.pid, old)).collect();
            pids.sort_unstable();
            pids
        };
        let found = watch.find(&told, &all.into());
        assert_eq!(pids(found), [(10, false), (11, false), (12, false)]);
        // 10 and 11 have ended; 12 is another's child now. 11 is the number of somebody else.
        let other = Stat { started: 8, ..stat(1) };
        let all = [(1, stat(0)), (12, stat(1)), (13, stat(12)), (11, other)];
        let found = watch.find(&HashMap::new(), &all.into());
        assert_eq!(pids(found), [(12, true), (13, false)]);
    }
}
