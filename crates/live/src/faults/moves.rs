//! What a program moved lately. mremap is told as a move, and then, later, as an unmapping of where it
//! was: by then another thread may have moved something else there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long a move is remembered for the unmapping that belongs to it.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Moves that are remembered, at most. Each thread is told of one at a time; but of one that leaves its
/// old range mapped (MREMAP_DONTUNMAP) no unmapping is told.
const MOST: usize = 4096;

/// One applied move.
#[derive(Clone, Copy)]
pub struct Move {
    /// Where it was.
    pub from: (u64, u64),
    /// Where it is.
    pub to: (u64, u64),
    /// When it was applied.
    pub when: Instant,
    /// The unmapping of `from` is still to be told.
    pub owes_unmap: bool,
}

/// Moves, the oldest first: none before the first whose unmapping is still to be told.
#[derive(Default)]
pub struct Moves(VecDeque<Move>);

impl FromIterator<Move> for Moves {
    fn from_iter<T: IntoIterator<Item = Move>>(moves: T) -> Moves {
        Moves(moves.into_iter().collect())
    }
}

impl Moves {
    /// This was moved.
    pub fn push(&mut self, from: (u64, u64), to: (u64, u64)) {
        self.forget(Instant::now());
        self.is_mapped(from);
        self.0.push_back(Move { from, to, when: Instant::now(), owes_unmap: true });
    }

    /// `range` was unmapped. Whether that belongs to a move and something else was moved there since: it
    /// is not what was unmapped.
    pub fn is_taken_again(&mut self, range: (u64, u64)) -> bool {
        self.forget(Instant::now());
        let Some(i) = self.0.iter().position(|m| m.owes_unmap && m.from == range) else {
            self.is_mapped(range);
            return false;
        };
        self.0[i].owes_unmap = false;
        self.0.range(i + 1..).any(|m| m.to.0 < range.1 && range.0 < m.to.1)
    }

    /// The program has done something to `range` that is told of mappings only. So what a move had left there was not
    /// unmapped with it (MREMAP_DONTUNMAP), and no unmapping of that is to be told any more, unless something else was moved
    /// there since: then that is what it did something to.
    pub fn is_mapped(&mut self, range: (u64, u64)) {
        let overlaps = |other: (u64, u64)| other.0 < range.1 && range.0 < other.1;
        let since = self.0.iter().rposition(|m| overlaps(m.to)).map_or(0, |last| last + 1);
        for left in self.0.range_mut(since..).filter(|m| overlaps(m.from)) {
            left.owes_unmap = false;
        }
    }

    /// The last `most`, the oldest first.
    pub fn last(&self, most: usize) -> impl ExactSizeIterator<Item = &Move> {
        self.0.range(self.0.len().saturating_sub(most)..)
    }

    /// Only what comes behind a move whose unmapping is still to be told can matter to that.
    fn forget(&mut self, now: Instant) {
        let is_over = |m: &Move| !m.owes_unmap || now.duration_since(m.when) >= REMEMBERED;
        while self.0.len() >= MOST || self.0.front().is_some_and(is_over) {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmapping_that_belongs_to_a_move_leaves_alone_what_came_there_since() {
        let mut moves = Moves::default();
        moves.push((10, 20), (50, 60));
        moves.push((70, 80), (10, 20));
        assert!(moves.is_taken_again((10, 20)), "the second is there");
        assert!(!moves.is_taken_again((70, 80)), "nothing has come there");
        assert!(!moves.is_taken_again((10, 20)), "this is the program's own");
        moves.push((1, 2), (3, 4));
        assert!(!moves.is_taken_again((0, 2)), "it belongs to no move");
    }

    /// Of a move that leaves its old range mapped no unmapping is told; what is done to that range later tells.
    #[test]
    fn what_was_left_mapped_owes_no_unmapping() {
        let done: [fn(&mut Moves); 5] = [
            // Unmapped in pieces, with what is beside it, given up, moved away again.
            |moves| assert!(!moves.is_taken_again((10, 12)) && !moves.is_taken_again((12, 20))),
            |moves| assert!(!moves.is_taken_again((8, 20))),
            |moves| moves.is_mapped((10, 20)),
            |moves| moves.is_mapped((19, 20)),
            |moves| moves.push((10, 15), (90, 95)),
        ];
        for done in done {
            let mut moves = Moves::default();
            moves.push((10, 20), (50, 60));
            done(&mut moves);
            moves.push((70, 80), (10, 20));
            assert!(
                !moves.is_taken_again((10, 20)),
                "the program has unmapped what it moved there"
            );
        }
    }

    /// Another thread is in the middle of its move.
    #[test]
    fn what_is_done_to_what_came_there_since_tells_nothing_of_a_move() {
        let mut moves = Moves::default();
        moves.push((10, 20), (50, 60));
        moves.push((70, 80), (10, 20));
        moves.is_mapped((10, 12));
        assert!(!moves.is_taken_again((18, 20)));
        assert!(
            moves.is_taken_again((10, 20)),
            "the unmapping of the first, and the second is there"
        );
    }

    #[test]
    fn what_is_remembered_does_not_grow_with_what_was_moved() {
        let mut moves = Moves::default();
        for _ in 0..100_000 {
            moves.push((10, 20), (50, 60));
            assert!(!moves.is_taken_again((10, 20)));
        }
        assert!(moves.last(usize::MAX).len() <= 1, "all have been told");
        // Of none of these an unmapping is told.
        for at in 0..100_000 {
            moves.push((at, at + 1), (at + 1, at + 2));
        }
        assert!(moves.last(usize::MAX).len() <= MOST);
        assert!(moves.last(3).map(|m| m.from.0).eq([99_997, 99_998, 99_999]));
    }
}
