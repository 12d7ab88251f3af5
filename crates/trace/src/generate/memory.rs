//! The anonymous memory of one app: groups of pages that are used together, and which of them a
//! relaunch uses.
//!
//! A *group* is what recurs: its pages are always used one after the other. The lengths of groups
//! give the locality of Ariadne's table 3 and the associations of Archer's figure 3. At a relaunch
//! most of the groups of the last one are hot again, others come from the warm ones; nearly all
//! that were hot and no longer are, are warm (Ariadne, insight 1).

use clew_core::Seeded;

use super::profile::AppProfile;

/// Of the pages of a relaunch, those that the one before used too (Ariadne, figure 5).
const SIMILARITY: f64 = 0.70;
/// Of the pages of a relaunch, those that the next one uses, or what runs after it (figure 5).
const REUSE: f64 = 0.98;
/// Groups whose pages are not neighbours in memory.
const SCATTERED: f64 = 0.3;
/// Longest group: what Archer's buffer holds (4.4).
const LONGEST: usize = 32;
/// Of the recurring pages, those that move to another group at each relaunch, so that 96.3 % of
/// associations last (Archer 5.4).
const DRIFT: f64 = 0.016;
/// Single pages that are always used together with one page of the system's services: the
/// associations between apps (Archer 4.3).
const SHARED: f64 = 0.19;
/// What comes behind a group in the order of last use is hot with about this part of the probability
/// that a recurring group is.
const BY_CHANCE: f64 = 0.75;

/// A group.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its pages, in the order in which they are used.
    pub pages: Vec<u32>,
    /// The page of the system that is always used after it.
    pub shared: Option<u32>,
    /// Where in the app's habits it comes, 0 to 1.
    pub habit: f64,
}

/// What an app holds.
pub struct Memory {
    lengths: Lengths,
    /// All groups; others name them by their position.
    pub groups: Vec<Group>,
    /// Used by the last relaunch; at first, those that the first one is like.
    pub hot: Vec<u32>,
    /// Used while the app ran since.
    pub warm: Vec<u32>,
    /// Not used any more.
    cold: Vec<u32>,
    /// Given up: their pages are free.
    free: Vec<u32>,
    /// Times that each page was written.
    pub versions: Vec<u16>,
    live_pages: usize,
    hot_pages: usize,
    recurring_pages: usize,
    random: Seeded,
}

impl Memory {
    /// Nothing yet. Its hot and warm groups will have so many pages.
    pub fn new(
        app: &AppProfile,
        hot_pages: usize,
        recurring_pages: usize,
        random: Seeded,
    ) -> Memory {
        let by_chance = BY_CHANCE * hot_pages as f64 / recurring_pages as f64;
        Memory {
            lengths: Lengths::new(app.next_1, app.next_3, by_chance),
            groups: Vec::new(),
            hot: Vec::new(),
            warm: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            versions: Vec::new(),
            live_pages: 0,
            hot_pages,
            recurring_pages,
            random,
        }
    }

    /// Pages that it holds.
    pub fn live_pages(&self) -> usize {
        self.live_pages
    }

    /// Pages of these groups.
    fn pages(&self, groups: &[u32]) -> usize {
        groups.iter().map(|&group| self.groups[group as usize].pages.len()).sum()
    }

    /// New groups of about `pages` pages; free ones first. They are cold. `shared` gives pages of
    /// the system.
    pub fn allocate(&mut self, pages: usize, mut shared: impl FnMut() -> u32) -> Vec<u32> {
        let mut new = Vec::new();
        let mut held = 0;
        while held < pages {
            if let Some(group) = self.free.pop() {
                held += self.groups[group as usize].pages.len();
                new.push(group);
                continue;
            }
            let lengths = [0; 2].map(|_| self.lengths.draw(&mut self.random));
            let scattered = self.random.unit() < SCATTERED && lengths.iter().all(|&n| n > 1);
            let first = self.versions.len() as u32;
            let [a, b] = lengths.map(|length| length as u32);
            self.versions.resize(self.versions.len() + (a + b) as usize, 0);
            let parts = if scattered {
                let (half_a, half_b) = (a / 2, b / 2);
                let second = first + half_a + half_b;
                [
                    (first..first + half_a).chain(second..second + a - half_a).collect(),
                    (first + half_a..second).chain(second + a - half_a..first + a + b).collect(),
                ]
            } else {
                [(first..first + a).collect(), (first + a..first + a + b).collect::<Vec<u32>>()]
            };
            for pages in parts {
                held += pages.len();
                let is_shared = pages.len() == 1 && self.random.unit() < SHARED;
                let shared = is_shared.then(&mut shared);
                new.push(self.groups.len() as u32);
                self.groups.push(Group { pages, shared, habit: self.random.unit() });
            }
        }
        self.live_pages += held;
        self.cold.extend(&new);
        new
    }

    /// After the launch: which groups are hot, which warm.
    pub fn launched(&mut self) {
        self.random.shuffle(&mut self.cold);
        let mut cold = std::mem::take(&mut self.cold);
        self.hot = self.take(&mut cold, self.hot_pages as f64);
        let warm = self.recurring_pages.saturating_sub(self.hot_pages);
        self.warm = self.take(&mut cold, warm as f64);
        self.cold = cold;
    }

    /// At a relaunch: which groups it uses, and which are warm after it.
    pub fn relaunched(&mut self) {
        self.drift();
        let mut before = std::mem::take(&mut self.hot);
        self.random.shuffle(&mut before);
        let held = self.pages(&before) as f64;
        self.hot = self.take(&mut before, held * SIMILARITY);
        let cooled = self.take(&mut before, held * (REUSE - SIMILARITY));
        self.cold.extend(before);
        let mut warm = std::mem::take(&mut self.warm);
        self.random.shuffle(&mut warm);
        let missing = self.hot_pages as f64 - self.pages(&self.hot) as f64;
        let warmed = self.take(&mut warm, missing);
        self.hot.extend(warmed);
        warm.extend(cooled);
        // What cooled down for good is replaced by something that was cold.
        let missing =
            self.recurring_pages as f64 - (self.pages(&self.hot) + self.pages(&warm)) as f64;
        self.random.shuffle(&mut self.cold);
        let mut cold = std::mem::take(&mut self.cold);
        warm.extend(self.take(&mut cold, missing));
        self.cold = cold;
        self.warm = warm;
    }

    /// Gives up cold groups of about `pages` pages.
    pub fn give_up(&mut self, pages: usize) -> Vec<u32> {
        self.random.shuffle(&mut self.cold);
        let mut cold = std::mem::take(&mut self.cold);
        let given = self.take(&mut cold, pages as f64);
        self.cold = cold;
        self.live_pages -= self.pages(&given);
        self.free.extend(&given);
        given
    }

    /// Takes groups from the end of `from` until they have as close to `pages` pages as they can.
    fn take(&mut self, from: &mut Vec<u32>, pages: f64) -> Vec<u32> {
        let (mut taken, mut held) = (Vec::new(), 0.0);
        while let Some(&last) = from.last() {
            let more = held + self.groups[last as usize].pages.len() as f64;
            if more - pages > pages - held {
                break;
            }
            held = more;
            taken.extend(from.pop());
        }
        taken
    }

    /// Some pages change places with pages of other groups.
    fn drift(&mut self) {
        let recurring: Vec<u32> = self.hot.iter().chain(&self.warm).copied().collect();
        let expected = self.pages(&recurring) as f64 * DRIFT / 2.0;
        let count = expected as usize + usize::from(self.random.unit() < expected.fract());
        for _ in 0..count {
            let [a, b] = [0; 2].map(|_| {
                let group = recurring[self.random.below(recurring.len() as u64) as usize];
                let pages = self.groups[group as usize].pages.len() as u64;
                (group as usize, self.random.below(pages) as usize)
            });
            let (first, second) = (self.groups[a.0].pages[a.1], self.groups[b.0].pages[b.1]);
            self.groups[a.0].pages[a.1] = second;
            self.groups[b.0].pages[b.1] = first;
        }
    }

    /// The order in which `groups` are used: by habit for the most part, but never quite.
    pub fn in_order(&mut self, groups: &[u32], habit: Habit) -> Vec<u32> {
        let width = habit.width_pages / self.recurring_pages.max(1) as f64;
        let mut keyed: Vec<(f64, u32)> = groups
            .iter()
            .map(|&group| {
                let (noise, place) = (self.random.unit() - 0.5, self.groups[group as usize].habit);
                let key = match self.random.unit() < habit.share {
                    true => place + width * noise,
                    false => self.random.unit(),
                };
                (key, group)
            })
            .collect();
        keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
        keyed.into_iter().map(|(_, group)| group).collect()
    }
}

/// How much the order in which an app uses its groups is the same each time.
#[derive(Clone, Copy, Debug)]
pub struct Habit {
    /// Groups that are used where they always are; the others anywhere.
    pub share: f64,
    /// How far around that place, in pages that are used.
    pub width_pages: f64,
}

/// Lengths of groups: one page, or more with a geometric tail.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// Share of the groups that have more than one page.
    longer: f64,
    /// Of those that have `k > 1` pages or more, the share that has more than `k`.
    ratio: f64,
}

impl Lengths {
    /// So that of the pages that are used a share of `next_1` is followed by one that is used too,
    /// and of `next_3` by three, in the order of their last use. Behind the end of a group that is
    /// used comes the beginning of another one that is used with probability `by_chance`.
    fn new(next_1: f64, next_3: f64, by_chance: f64) -> Lengths {
        let mut best = (f64::INFINITY, Lengths { longer: 0.5, ratio: 0.5 });
        for longer in 1..100 {
            for ratio in 1..100 {
                let lengths =
                    Lengths { longer: longer as f64 / 100.0, ratio: ratio as f64 / 100.0 };
                let [one, _, three] = lengths.followed(by_chance);
                let off = (one - next_1).powi(2) + (three - next_3).powi(2);
                if off < best.0 {
                    best = (off, lengths);
                }
            }
        }
        best.1
    }

    /// Shares of the pages that are followed by one, two and three that are used.
    fn followed(self, by_chance: f64) -> [f64; 3] {
        let mean = 1.0 + self.longer / (1.0 - self.ratio);
        // From a first page of a group on, and from one behind it.
        let (mut first, mut later) = (1.0, 1.0);
        [0; 3].map(|_| {
            let begins = by_chance * first;
            (first, later) = (
                self.longer * later + (1.0 - self.longer) * begins,
                self.ratio * later + (1.0 - self.ratio) * begins,
            );
            first / mean + (1.0 - 1.0 / mean) * later
        })
    }

    fn draw(&self, random: &mut Seeded) -> usize {
        let mut length = 1;
        if random.unit() < self.longer {
            length += 1;
            while length < LONGEST && random.unit() < self.ratio {
                length += 1;
            }
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws groups, each used or followed by chance, and counts.
    fn drawn(lengths: Lengths, by_chance: f64, seed: u64) -> [f64; 3] {
        let mut random = Seeded::of(seed, &[]);
        let mut used = Vec::new();
        for _ in 0..200_000 {
            used.extend(vec![true; lengths.draw(&mut random)]);
            if random.unit() >= by_chance {
                used.push(false);
            }
        }
        let count = used.iter().filter(|used| **used).count() as f64;
        [1, 2, 3].map(|n| {
            let runs = used.windows(n + 1).filter(|run| run.iter().all(|used| *used));
            runs.count() as f64 / count
        })
    }

    #[test]
    fn lengths_give_the_locality_they_were_chosen_for() {
        for [next_1, next_3] in [[0.86, 0.72], [0.81, 0.61], [0.69, 0.43], [0.61, 0.33]] {
            for by_chance in [0.0, 0.1, 0.3] {
                let lengths = Lengths::new(next_1, next_3, by_chance);
                let [one, two, three] = drawn(lengths, by_chance, 5);
                assert!((one - next_1).abs() < 0.03, "{one:.3}, wanted {next_1}, {lengths:?}");
                assert!((three - next_3).abs() < 0.04, "{three:.3}, wanted {next_3}, {lengths:?}");
                assert!(one > two && two > three);
            }
        }
    }
}
