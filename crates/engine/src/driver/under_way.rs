//! Commands that are being carried out: what is on its way out, which the budget counts as good as
//! gone, and what is on its way back.

use std::collections::{BTreeMap, BTreeSet};

use clew_core::{SpaceId, Tier};

use super::{Command, Driver};

#[derive(Default)]
pub(super) struct UnderWay {
    /// Numbers that were given.
    numbers: u64,
    /// How many pages each command is to take out, and of which space.
    out: BTreeMap<u64, (SpaceId, usize)>,
    out_pages: usize,
    /// Commands to store pages anew.
    repacks: BTreeSet<u64>,
    /// How many pages each command is to bring back.
    back: BTreeMap<u64, usize>,
}

impl UnderWay {
    /// For the next command.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Somebody carries `command` out.
    #[inline]
    pub fn begin(&mut self, command: &Command) {
        match command {
            Command::SwapOut { space, groups, number, .. }
            | Command::PutFar { space, groups, number, .. }
            | Command::Peek { space, groups, number, .. }
            | Command::Move { space, groups, number, tier: Tier::Pool | Tier::Kernel, .. }
            | Command::Lend { space, groups, number, .. } => {
                let pages = groups.iter().map(|group| group.pages.len()).sum();
                self.out.insert(*number, (*space, pages));
                self.out_pages += pages;
            }
            // What goes from the pool to a log frees what it takes in the pool, and no pages.
            Command::Move { space, number, tier: Tier::Flash | Tier::Donor(_), .. } => {
                self.out.insert(*number, (*space, 0));
            }
            Command::Repack { number, .. } => {
                self.repacks.insert(*number);
            }
            Command::Watch { .. }
            | Command::Restore { .. }
            | Command::EndWatch { .. }
            | Command::GiveUp { .. }
            | Command::EndApp { .. }
            | Command::Run(_) => {}
        }
    }

    /// So many pages are wanted back.
    pub fn begin_back(&mut self, pages: usize) -> u64 {
        let number = self.number();
        self.back.insert(number, pages);
        number
    }

    /// Whether something is being stored anew.
    pub fn repacks(&self) -> bool {
        !self.repacks.is_empty()
    }

    /// Pages on their way back.
    pub fn back_pages(&self) -> usize {
        self.back.values().sum()
    }
}

impl Driver {
    /// The command of this number is over. It took out or brought back so many pages.
    pub fn carried_out(&mut self, number: u64, pages: usize) {
        if let Some((_, left)) = self.under_way.out.remove(&number) {
            self.under_way.out_pages -= left;
        } else if self.under_way.back.remove(&number).is_some() {
            self.early.came(pages);
        } else {
            self.under_way.repacks.remove(&number);
        }
    }

    /// Pages that are on their way out.
    #[inline]
    pub fn leaving_pages(&self) -> usize {
        self.under_way.out_pages
    }

    /// The same of these spaces.
    pub fn leaving_pages_of(&self, is_one: impl Fn(SpaceId) -> bool) -> usize {
        let out = self.under_way.out.values();
        out.filter(|(space, _)| is_one(*space)).map(|(_, pages)| pages).sum()
    }
}
