//! Whose processes are recorded: managed programs, and what they have begun, also what has ended by the time that its doings
//! are heard of.
//!
//! Numbers of processes are used again. Who has one when is told in the order in which it happened, so what somebody did
//! who had it before is not taken for the doing of who has it now.

use std::collections::{HashMap, HashSet};

use super::page_cache::Told;
use crate::programs::proc_stat::Stat;

/// Processes whose parents are known.
const PROCESSES: usize = 1 << 16;
/// Generations between a program and what it has started.
const GENERATIONS: usize = 16;
/// The first process; who is given to it has no other parent any more. Below it is nobody: a child that has not said who it is yet.
const FIRST: u32 = 1;

/// The processes.
#[derive(Default)]
pub struct Family {
    /// Who is managed, or was and may be heard of late.
    programs: HashSet<u32>,
    /// Who is managed now.
    now: HashSet<u32>,
    /// Who began each process, since listening began.
    parents: HashMap<u32, u32>,
    /// When the last one with this number began of those that begin in this round.
    begin: HashMap<u32, u64>,
    /// What was found out in this round.
    known: HashMap<u32, bool>,
}

impl Family {
    /// What is `told` is dealt with from now on. `programs` are managed behind it.
    pub fn begin_round(&mut self, programs: HashSet<u32>, told: &[(u64, Told)]) {
        self.programs.extend(&programs);
        self.now = programs;
        self.known.clear();
        if self.parents.len() > PROCESSES {
            self.parents.clear();
        }
        let began = told.iter().filter_map(|(when, told)| match told {
            Told::Began { child, .. } => Some((*child, *when)),
            Told::Used(_) => None,
        });
        self.begin = began.collect();
    }

    /// A process began another one.
    pub fn began(&mut self, child: u32, parent: u32) {
        self.parents.insert(child, parent);
        self.known.remove(&child);
        if !self.now.contains(&child) {
            self.programs.remove(&child);
        }
    }

    /// Whether what process `pid` did at this time is recorded. Asked in the order in which things happened.
    pub fn is_recorded(&mut self, pid: u32, when: u64) -> bool {
        // Its number is another's at the end of the round.
        let is_earlier = self.begin.get(&pid).is_some_and(|began| when < *began);
        if is_earlier {
            return self.is_of_a_program(pid, true);
        }
        match self.known.get(&pid) {
            Some(known) => *known,
            None => {
                let is_recorded = self.is_of_a_program(pid, false);
                self.known.insert(pid, is_recorded);
                is_recorded
            }
        }
    }

    /// The same of what it did before, if it is who had its number then.
    pub fn is_recorded_now(&self, pid: u32) -> bool {
        self.is_of_a_program(pid, false)
    }

    fn is_of_a_program(&self, pid: u32, is_earlier: bool) -> bool {
        if pid == std::process::id() {
            return false;
        }
        let parent = |pid: &u32| {
            let begun = self.parents.get(pid).copied();
            begun.or_else(|| Stat::of(*pid).ok().filter(|s| !s.is_agent).map(|s| s.parent))
        };
        // Who has the number now is not who had it then, if that one is managed.
        let is_program = |at: &u32| {
            self.programs.contains(at) && !(is_earlier && *at == pid && self.now.contains(at))
        };
        let ancestors = std::iter::successors(Some(pid), parent).take(GENERATIONS);
        ancestors.take_while(|pid| *pid > FIRST).any(|pid| is_program(&pid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far above all numbers of processes.
    const PROGRAM: u32 = 1 << 30;

    fn began(child: u32, parent: u32) -> Told {
        Told::Began { child, parent }
    }

    #[test]
    fn a_programs_children_are_recorded_and_nobody_else() {
        let mut family = Family::default();
        // A child that has not said who it is has no number.
        family.begin_round(HashSet::from([0, PROGRAM]), &[]);
        family.began(PROGRAM + 1, PROGRAM);
        family.began(PROGRAM + 2, PROGRAM + 1);
        family.began(PROGRAM + 3, 1);
        family.began(PROGRAM + 4, 0);
        for pid in [PROGRAM, PROGRAM + 1, PROGRAM + 2] {
            assert!(family.is_recorded(pid, 5) && family.is_recorded_now(pid), "{pid}");
        }
        // Also what descends from whom everybody does.
        for pid in [0, 1, PROGRAM + 3, PROGRAM + 4, PROGRAM + 5, std::process::id()] {
            assert!(!family.is_recorded(pid, 5) && !family.is_recorded_now(pid), "{pid}");
        }
    }

    #[test]
    fn who_had_a_number_before_is_another() {
        let mut family = Family::default();
        let told = [(10, began(PROGRAM + 1, 1)), (20, began(PROGRAM + 1, PROGRAM))];
        family.begin_round(HashSet::from([PROGRAM]), &told);
        family.began(PROGRAM + 1, 1);
        assert!(!family.is_recorded(PROGRAM + 1, 15));
        family.began(PROGRAM + 1, PROGRAM);
        assert!(family.is_recorded(PROGRAM + 1, 25));
        // A program that is managed at the end of the round, and began in it.
        family.begin_round(HashSet::from([PROGRAM + 7]), &[(30, began(PROGRAM + 7, 1))]);
        assert!(!family.is_recorded(PROGRAM + 7, 29));
        family.began(PROGRAM + 7, 1);
        assert!(family.is_recorded(PROGRAM + 7, 31));
        // It has ended, and is heard of late, until somebody else has its number.
        family.begin_round(HashSet::new(), &[(50, began(PROGRAM + 7, 1))]);
        assert!(family.is_recorded(PROGRAM + 7, 40));
        family.began(PROGRAM + 7, 1);
        assert!(!family.is_recorded(PROGRAM + 7, 60));
    }
}
