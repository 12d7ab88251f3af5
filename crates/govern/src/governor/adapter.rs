//! What the driver wants done, done through the kernel's own swap.
//!
//! Every command is matched. Those that no scheme gives that is read here ([`crate::scheme`]) are refused: their pages
//! stay where they are, and the policies hear of it.

use clew_core::{Event, Group, SpaceId, Tier};
use clew_engine::driver::Command;

use crate::governor::Governor;
use crate::pages::Where;

impl Governor {
    /// Does what the driver wants done; true if that took pages out.
    pub(super) fn carry_out(&mut self) -> bool {
        let mut progress = false;
        while let Some(command) = self.driver.next_command() {
            match command {
                Command::SwapOut { space, groups, number } => {
                    progress |= self.page_out(space, &groups, number);
                }
                Command::Restore { space, pages, park: _, number } => {
                    self.bring_back(space, &pages, number);
                }
                // The kernel keeps clean copies in its swap by itself, and gives them up by itself.
                Command::GiveUp { wanted_bytes } => {
                    let dropped = self.driver.give_up_kept(wanted_bytes, |_| None);
                    self.driver.gave_up(dropped, self.swap.facts, &self.pages);
                }
                Command::Run(job) => self.run_beside(job),
                // Admission looks into pages, and is refused with the scheme; all of them may enter.
                Command::Peek { space: _, groups, number }
                | Command::PutFar { space: _, groups, to: _, form: _, number }
                | Command::Lend { space: _, groups, number } => {
                    self.refuse("a place beside the kernel's swap", &groups, number);
                }
                Command::Move {
                    space: _,
                    groups,
                    tier: Tier::Pool | Tier::Kernel | Tier::Flash | Tier::Donor(_),
                    form: _,
                    number,
                } => self.refuse("a move between tiers", &groups, number),
                // How what is stored is packed is the kernel's business.
                Command::Repack { space: _, groups: _, number } => {
                    self.driver.carried_out(number, 0);
                }
                // No sensor was set: what is brought early tells of uses.
                Command::Watch { space, groups: _ } | Command::EndWatch { space, pages: _ } => {
                    self.refuse_watch(space);
                }
                Command::EndApp { app, reason } => {
                    tracing::error!("{app:?} is not ended ({reason}): what is governed never is");
                }
            }
        }
        progress
    }

    /// The pages of a command that cannot be carried out stay where they are.
    fn refuse(&mut self, what: &str, groups: &[Group], number: u64) {
        tracing::error!("the scheme wants {what}, which there is not: its pages stay");
        for page in groups.iter().flat_map(|group| &group.pages).copied() {
            match self.pages.get(page) {
                Where::Out => {
                    let bytes = self.stored_page_bytes();
                    let event = Event::Stored { page, tier: Tier::Pool, bytes };
                    self.driver.tell(self.now, &event, &self.pages);
                }
                Where::Nowhere | Where::Resident | Where::Leaving | Where::Brought => {
                    self.driver.stayed(self.now, page);
                }
            }
        }
        self.driver.carried_out(number, 0);
    }

    fn refuse_watch(&self, space: SpaceId) {
        tracing::error!("pages of {space:?} are not watched: resident pages cannot be here");
    }
}
