//! What may enter the pool (ezswap III-B): of what is to leave for it, the adapter reads the beginning of
//! each page, and the scheme says which go on.

use std::collections::BTreeMap;

use clew_core::{FlashForm, Group, Ns, PageFacts, PageId, Place, Tier};
use clew_store::flash::LogId;

use super::{Answer, Call, Command, Driver};
use crate::decide::{Admitted, Engine};

/// Bytes of a page that the scheme sees.
pub const SAMPLE_BYTES: usize = 512;

impl Driver {
    /// For [`Command::Peek`]: `samples` has the beginning of each page of `groups`, in their order, at
    /// most [`SAMPLE_BYTES`]; nothing for a page that cannot be read now.
    ///
    /// # Panics
    /// If there is not one sample a page.
    pub fn peeked(
        &mut self,
        now: Ns,
        groups: Vec<Group>,
        samples: &[Vec<u8>],
        pages: &dyn PageFacts,
    ) {
        self.now = self.now.max(now);
        let mut rest = samples.iter();
        let (mut admitted, mut lent) = (Vec::new(), Vec::new());
        let mut far: BTreeMap<(LogId, FlashForm), Vec<Group>> = BTreeMap::new();
        for group in groups {
            let read: Vec<(PageId, &[u8])> =
                group.pages.iter().copied().zip(rest.by_ref().map(Vec::as_slice)).collect();
            assert_eq!(read.len(), group.pages.len(), "one sample a page");
            let (seen, unseen): (Vec<_>, Vec<_>) =
                read.into_iter().partition(|(_, sample)| !sample.is_empty());
            unseen.into_iter().for_each(|(page, _)| self.stayed(now, page));
            if seen.is_empty() {
                continue;
            }
            let (seen, samples): (Vec<PageId>, Vec<&[u8]>) = seen.into_iter().unzip();
            let answer = self.admit(&Group { pages: seen, ..group }, &samples, pages);
            admitted.extend(answer.group);
            match answer.rejected {
                Some((group, Place::Tier(Tier::Kernel))) => lent.push(group),
                Some((group, Place::Tier(Tier::Flash))) => {
                    far.entry((LogId::FLASH, FlashForm::AsStored)).or_default().push(group);
                }
                Some((group, Place::FlashPages)) => {
                    far.entry((LogId::FLASH, FlashForm::Pages)).or_default().push(group);
                }
                Some((group, Place::Tier(Tier::Donor(donor)))) => {
                    far.entry((LogId::at(donor), FlashForm::AsStored)).or_default().push(group);
                }
                Some((group, Place::DonorPages(donor))) => {
                    far.entry((LogId::at(donor), FlashForm::Pages)).or_default().push(group);
                }
                // Rejected once, it is not asked about again at once.
                Some((group, Place::Tier(Tier::Pool) | Place::Stay)) => {
                    group.pages.into_iter().for_each(|page| self.stayed(now, page));
                }
                Some((group, Place::EndApp(app))) => {
                    group.pages.into_iter().for_each(|page| self.stayed(now, page));
                    let reason = "there is no place for its memory";
                    self.commands.push_back(Command::EndApp { app, reason });
                }
                None => {}
            }
        }
        if let Some(page) = admitted.first().and_then(|group: &Group| group.pages.first()) {
            let (space, number) = (page.space(), self.under_way.number());
            self.commands.push_back(Command::SwapOut { space, groups: admitted, number });
        }
        if let Some(page) = lent.first().and_then(|group| group.pages.first()) {
            let (space, number) = (page.space(), self.under_way.number());
            self.commands.push_back(Command::Lend { space, groups: lent, number });
        }
        for ((to, form), groups) in far {
            if let Some(page) = groups.first().and_then(|group: &Group| group.pages.first()) {
                let (space, number) = (page.space(), self.under_way.number());
                self.commands.push_back(Command::PutFar { space, groups, to, form, number });
            }
        }
    }

    /// Which pages of a group may enter the pool.
    pub(crate) fn admit(
        &mut self,
        group: &Group,
        samples: &[&[u8]],
        pages: &dyn PageFacts,
    ) -> Admitted {
        let call = || Call::Admit(group.clone(), samples.iter().map(|s| s.to_vec()).collect());
        let ask = |engine: &mut Engine, pages: &dyn PageFacts| {
            engine.admit(group.clone(), samples, pages)
        };
        self.ask(call, pages, ask, |admitted| Answer::Admitted(admitted))
    }
}
