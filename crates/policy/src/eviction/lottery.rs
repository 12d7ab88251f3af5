//! Lists of frames, of which a lottery draws one: a victim in constant time, whatever the pool's size.
//!
//! Source: ezswap III-C, equation 4, after Waldspurger and Weihl, "Lottery scheduling" (OSDI 1994). Each list has a
//! weight, and as many tickets as its frames times that. A number below the sum of all tickets picks the list, and its
//! oldest frame, the tail, is the victim. "If the time stamp sum of the to-be-inserted page is bigger than the list
//! average, the swap page will be attached to the list head. Otherwise, it will be placed at the list tail." The
//! first frame of an empty list is both. The average is kept as a sum and a number, and compared without dividing.
//!
//! Frames are named by their position in one table. All operations take constant time: memory is 32 bytes a frame.

use clew_core::Seeded;

/// No frame.
const NONE: u32 = u32::MAX;
/// On no list.
const UNLISTED: u8 = u8::MAX;

#[derive(Clone, Copy)]
struct Node {
    /// Sum of its zpages' time stamps, when it was put on its list.
    stamps: u64,
    newer: u32,
    older: u32,
    list: u8,
}

const FREE: Node = Node { stamps: 0, newer: NONE, older: NONE, list: UNLISTED };

#[derive(Clone, Copy)]
struct List {
    weight: u64,
    frames: u64,
    /// Sum of its frames' sums.
    stamps: u128,
    head: u32,
    tail: u32,
}

/// The lists. See the module.
pub struct Lottery {
    lists: Vec<List>,
    nodes: Vec<Node>,
    /// Of all lists.
    tickets: u64,
    random: Seeded,
}

impl Lottery {
    /// Empty lists with these weights, fewer than 255; what is drawn follows from the seed.
    pub fn new(weights: &[u64], seed: u64) -> Lottery {
        assert!(weights.len() < usize::from(UNLISTED), "{} lists are too many", weights.len());
        let list =
            |weight: &u64| List { weight: *weight, frames: 0, stamps: 0, head: NONE, tail: NONE };
        Lottery {
            lists: weights.iter().map(list).collect(),
            nodes: Vec::new(),
            tickets: 0,
            random: Seeded::of(seed, &[]),
        }
    }

    /// The list that a frame is on.
    pub fn list_of(&self, frame: u32) -> Option<u8> {
        self.nodes.get(frame as usize).map(|node| node.list).filter(|list| *list != UNLISTED)
    }

    /// Frames on a list.
    pub fn frames(&self, list: u8) -> u64 {
        self.lists[usize::from(list)].frames
    }

    /// Puts a frame that is on no list on one, by the sum of its time stamps; if `newest`, at the head whatever
    /// that is.
    pub fn insert(&mut self, frame: u32, list: u8, stamps: u64, newest: bool) {
        if self.nodes.len() <= frame as usize {
            self.nodes.resize(frame as usize + 1, FREE);
        }
        let to = &mut self.lists[usize::from(list)];
        let above_average = u128::from(stamps) * u128::from(to.frames) > to.stamps;
        let node = &mut self.nodes[frame as usize];
        debug_assert_eq!(node.list, UNLISTED);
        *node = Node { stamps, list, ..FREE };
        if newest || above_average || to.head == NONE {
            node.older = std::mem::replace(&mut to.head, frame);
            match node.older {
                NONE => to.tail = frame,
                older => self.nodes[older as usize].newer = frame,
            }
        } else {
            node.newer = std::mem::replace(&mut to.tail, frame);
            let newer = node.newer;
            self.nodes[newer as usize].older = frame;
        }
        to.frames += 1;
        to.stamps += u128::from(stamps);
        self.tickets += to.weight;
    }

    /// Takes a frame off its list; nothing, if it is on none.
    pub fn remove(&mut self, frame: u32) {
        let Some(list) = self.list_of(frame) else { return };
        let Node { stamps, newer, older, .. } =
            std::mem::replace(&mut self.nodes[frame as usize], FREE);
        let from = &mut self.lists[usize::from(list)];
        match newer {
            NONE => from.head = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => from.tail = newer,
            older => self.nodes[older as usize].newer = newer,
        }
        from.frames -= 1;
        from.stamps -= u128::from(stamps);
        self.tickets -= from.weight;
    }

    /// Draws a victim, which stays where it is; none where no list with a weight has frames.
    pub fn draw(&mut self) -> Option<u32> {
        if self.tickets == 0 {
            return None;
        }
        let mut ticket = self.random.below(self.tickets);
        for list in &self.lists {
            let of_list = list.frames * list.weight;
            match ticket.checked_sub(of_list) {
                Some(rest) => ticket = rest,
                None => return Some(list.tail),
            }
        }
        None
    }

    /// Memory that it takes, bytes.
    pub fn held_bytes(&self) -> u64 {
        (self.nodes.capacity() * size_of::<Node>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of a list, the newest first.
    fn order(lottery: &Lottery, list: u8) -> Vec<u32> {
        let next = |frame: &u32| Some(lottery.nodes[*frame as usize].older).filter(|f| *f != NONE);
        let head = Some(lottery.lists[usize::from(list)].head).filter(|frame| *frame != NONE);
        std::iter::successors(head, next).collect()
    }

    #[test]
    fn above_the_average_a_frame_goes_to_the_head() {
        let mut lottery = Lottery::new(&[1], 0);
        for (frame, stamps) in [(0, 10), (1, 20), (2, 15), (3, 16), (4, 1)] {
            lottery.insert(frame, 0, stamps, false);
        }
        // Averages are 10, 15, 15, 15.25: an equal one goes to the tail.
        assert_eq!(order(&lottery, 0), [3, 1, 0, 2, 4]);
        lottery.remove(0);
        lottery.remove(0);
        lottery.insert(0, 0, 0, true);
        assert_eq!(order(&lottery, 0), [0, 3, 1, 2, 4]);
        assert_eq!((lottery.draw(), lottery.frames(0)), (Some(4), 5));
    }

    #[test]
    fn lists_are_drawn_by_their_tickets() {
        let mut lottery = Lottery::new(&[2500, 0, 500], 7);
        assert_eq!(lottery.draw(), None);
        // 2500 : 0 : 10 * 500, that is 1 : 0 : 2.
        lottery.insert(0, 0, 5, false);
        lottery.insert(1, 1, 5, false);
        (2..12).for_each(|frame| lottery.insert(frame, 2, u64::from(frame), false));
        let mut drawn = [0; 12];
        for _ in 0..30_000 {
            drawn[lottery.draw().expect("there are tickets") as usize] += 1;
        }
        assert_eq!(drawn[0] + drawn[2], 30_000, "the tails of two lists: {drawn:?}");
        assert!((9_600..10_400).contains(&drawn[0]), "{drawn:?}");
    }
}
