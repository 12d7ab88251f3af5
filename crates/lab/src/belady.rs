//! Belady's MIN: how few pages any scheme brings back that stores every page at the same size.
//!
//! Source: L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
//! Systems Journal 5(2), 1966. With `budget` bytes, pages of `page` bytes and a ratio r, of P pages
//! that exist R are resident, where R x page + (P - R) x page / r = budget; so what may be resident
//! follows from how many there are. Whoever is to leave is the page that is used again last; pages
//! that are found without being used may leave at once. No scheme knows the future, and none brings
//! back fewer pages, whether it waits for the demand or not.
//!
//! Page tables, watermarks and kept copies are left out: it is a bound for schemes that have none.
//!
//! Memory: 12 bytes an access, 24 a page.

use std::collections::BinaryHeap;

use clew_core::{PageId, PageRun};
use clew_trace::{Record, Trace};

use crate::error::LabError;
use crate::page_map::PageMap;
use crate::spaces::Spaces;
use clew_report::Belady;

/// Never used again.
const NEVER: u32 = u32::MAX;

/// What concerns the bound, in order.
enum Step {
    /// The page of this number is used, and comes into being if it is not there.
    Use(u32),
    /// It comes into being without being used.
    Found(u32),
    /// It is gone.
    Gone(u32),
}

/// Pages get a new number each time they come into being.
#[derive(Default)]
struct Reader {
    numbers: PageMap<u32>,
    pages: u32,
    steps: Vec<Step>,
}

impl Reader {
    fn page(&mut self, page: PageId, is_use: bool) {
        let number = self.numbers.entry(page);
        let new = *number == 0;
        if new {
            self.pages += 1;
            *number = self.pages;
        }
        let number = *number - 1;
        if is_use {
            self.steps.push(Step::Use(number));
        } else if new {
            self.steps.push(Step::Found(number));
        }
    }

    fn gone(&mut self, run: PageRun) {
        let steps = &mut self.steps;
        self.numbers.take_run(run, |_, number| steps.push(Step::Gone(number - 1)));
    }

    fn read(mut self, trace: &Trace) -> Result<Reader, LabError> {
        let mut spaces = Spaces::default();
        let failed = LabError::trace;
        for stamped in trace.records().map_err(failed(trace.path()))? {
            let record = stamped.map_err(failed(trace.path()))?.record;
            for space in spaces.note(&record) {
                let steps = &mut self.steps;
                self.numbers.take_space(space, |number| steps.push(Step::Gone(number - 1)));
            }
            let Some(run) = record.pages() else { continue };
            if !spaces.is_anonymous(run.first.space()) {
                continue;
            }
            match record {
                Record::Access { page, .. } => self.page(page, true),
                Record::Candidate { page } => self.page(page, false),
                Record::Resident { run } => run.pages().for_each(|page| self.page(page, false)),
                Record::Freed { run } => self.gone(run),
                Record::Moved { from, to } => {
                    self.gone(PageRun { first: to, ..from });
                    self.numbers.move_run(from, to);
                }
                _ => {}
            }
        }
        Ok(self)
    }
}

/// The bound for `trace` in `budget_bytes`, if every page is stored at `ratio`.
pub fn belady(trace: &Trace, budget_bytes: u64, ratio: f64) -> Result<Belady, LabError> {
    let page_bytes = f64::from(trace.header().page_bytes);
    let Reader { pages, steps, .. } = Reader::default().read(trace)?;
    Ok(Belady { pages: least(pages, &steps, budget_bytes as f64 / page_bytes, ratio), ratio })
}

/// How many of `pages` may be resident, if `there` are there and `budget` pages' bytes.
fn capacity(there: u64, budget: f64, ratio: f64) -> u64 {
    let there_pages = there as f64;
    if there_pages <= budget {
        return there;
    }
    if ratio <= 1.0 {
        return budget.max(1.0) as u64;
    }
    let stored_share = 1.0 / ratio;
    // Where even all of it stored does not fit, one page at a time has to be resident all the same.
    ((budget - there_pages * stored_share) / (1.0 - stored_share)).max(1.0) as u64
}

fn least(pages: u32, steps: &[Step], budget: f64, ratio: f64) -> u64 {
    // When the page of each use is used next.
    let mut next = vec![NEVER; steps.len()];
    let mut later = vec![NEVER; pages as usize];
    for (at, step) in steps.iter().enumerate().rev() {
        match step {
            Step::Use(page) => {
                next[at] = later[*page as usize];
                later[*page as usize] = at as u32;
            }
            Step::Found(page) => next[at] = later[*page as usize],
            Step::Gone(page) => later[*page as usize] = NEVER,
        }
    }
    #[derive(Clone, Copy, PartialEq)]
    enum At {
        Nowhere,
        Resident(u32),
        Stored,
    }
    let mut pages_at = vec![At::Nowhere; pages as usize];
    let mut by_next_use: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let (mut there, mut resident, mut back) = (0u64, 0u64, 0u64);
    for (at, step) in steps.iter().enumerate() {
        let page = match *step {
            Step::Use(page) | Step::Found(page) => page,
            Step::Gone(page) => {
                resident -= u64::from(matches!(pages_at[page as usize], At::Resident(_)));
                there -= u64::from(pages_at[page as usize] != At::Nowhere);
                pages_at[page as usize] = At::Nowhere;
                continue;
            }
        };
        match pages_at[page as usize] {
            At::Resident(_) => {}
            At::Stored => {
                back += 1;
                resident += 1;
            }
            At::Nowhere => {
                there += 1;
                resident += 1;
            }
        }
        pages_at[page as usize] = At::Resident(next[at]);
        by_next_use.push((next[at], page));
        // The page in use stays, whatever the capacity.
        let is_used = matches!(step, Step::Use(_));
        let mut in_use = None;
        while resident > capacity(there, budget, ratio) {
            let Some((use_at, victim)) = by_next_use.pop() else { break };
            if pages_at[victim as usize] != At::Resident(use_at) {
                continue;
            }
            if victim == page && is_used {
                in_use = Some((use_at, victim));
                continue;
            }
            pages_at[victim as usize] = At::Stored;
            resident -= 1;
        }
        by_next_use.extend(in_use);
    }
    back
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// So many of `there` pages fit at their size if the others are stored at a part of it; one always
    /// does.
    fn most_resident(there: u64, budget: f64, ratio: f64) -> u64 {
        let fits = |r: &u64| *r as f64 + (there - r) as f64 / ratio <= budget;
        (0..=there).filter(fits).max().unwrap_or(0).max(1)
    }

    /// The least over every choice of victims.
    fn brute(steps: &[Step], resident: &[u32], stored: &[u32], budget: f64) -> u64 {
        let Some((step, rest)) = steps.split_first() else { return 0 };
        let (mut r, mut s) = (resident.to_vec(), stored.to_vec());
        let mut back = 0;
        let page = match *step {
            Step::Gone(page) => {
                r.retain(|other| *other != page);
                s.retain(|other| *other != page);
                return brute(rest, &r, &s, budget);
            }
            Step::Use(page) | Step::Found(page) => page,
        };
        let in_use = matches!(step, Step::Use(_)).then_some(page);
        if s.contains(&page) {
            s.retain(|other| *other != page);
            r.push(page);
            back = 1;
        } else if !r.contains(&page) {
            r.push(page);
        }
        fn shrink(rest: &[Step], in_use: Option<u32>, r: &[u32], s: &[u32], budget: f64) -> u64 {
            let there = (r.len() + s.len()) as u64;
            let choices: Vec<u32> =
                r.iter().copied().filter(|other| Some(*other) != in_use).collect();
            if r.len() as u64 <= most_resident(there, budget, 2.0) || choices.is_empty() {
                return brute(rest, r, s, budget);
            }
            choices
                .into_iter()
                .map(|victim| {
                    let (mut r, mut s) = (r.to_vec(), s.to_vec());
                    r.retain(|other| *other != victim);
                    s.push(victim);
                    shrink(rest, in_use, &r, &s, budget)
                })
                .min()
                .unwrap_or(0)
        }
        back + shrink(rest, in_use, &r, &s, budget)
    }

    #[test]
    fn capacity_makes_everything_fit() {
        assert_eq!(capacity(10, 10.0, 2.0), 10);
        // 12 pages, 8 pages of memory: 4 resident and 8 at half.
        assert_eq!(capacity(12, 8.0, 2.0), 4);
        assert_eq!(capacity(12, 8.0, 1.0), 8);
        assert_eq!(capacity(100, 8.0, 2.0), 1);
    }

    #[test]
    fn the_textbook_example() {
        // Belady's anomaly string with room for three pages and backing store that costs nothing.
        let uses = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5];
        let steps: Vec<Step> = uses.iter().map(|page| Step::Use(page - 1)).collect();
        // 7 faults, 5 of them first touches.
        assert_eq!(least(5, &steps, 3.0, f64::INFINITY), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn nothing_is_less(acts in prop::collection::vec((0u32..5, 0u32..8), 1..12)) {
            let mut there = std::collections::HashSet::new();
            let steps: Vec<Step> = acts.into_iter().filter_map(|(page, kind)| match kind {
                0 => there.remove(&page).then_some(Step::Gone(page)),
                1 => there.insert(page).then_some(Step::Found(page)),
                _ => {
                    there.insert(page);
                    Some(Step::Use(page))
                }
            }).collect();
            let fewest = brute(&steps, &[], &[], 3.0);
            prop_assert_eq!(least(5, &steps, 3.0, 2.0), fewest);
        }
    }
}
