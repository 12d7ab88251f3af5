//! In which order a program's events can have been.
//!
//! A thread that changes its memory tells so after the fact and without any lock, and waits until that
//! is read. What one thread does because another has done something is therefore read after it. Only
//! the kernel makes an order that the program did not: it gives the addresses that one thread has just
//! left to another, whose event may be read first. Applied as read, what moved there would be
//! forgotten with what was there before. So a move waits as long as something is known at its target,
//! and what has to do with a move that waits, waits behind it. All else is applied as it was read.
//!
//! Which of two that leave a place was there first may be told by nothing: if both are there, it is
//! [`Next::Unclear`]. Only who does not wait for all ([`Trust::Fitting`]) takes the one that fits for the
//! only one. The model in the tests waits.

use crate::faults::uffd::Message;

/// What is known of a program's memory while events are applied to it.
pub trait Layout {
    /// Whether anything is known in `[start, end)`.
    fn is_occupied(&self, start: u64, end: u64) -> bool;
    /// Whether `[start, end)` is one mapping that is known, from edge to edge.
    fn is_mapping(&self, start: u64, end: u64) -> bool;
}

/// What to do with the events that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This one can be applied.
    Apply(usize),
    /// One that comes before them is still to be read.
    Wait,
    /// Nothing tells their order.
    Unclear,
}

/// What is taken for a sign that a place is free for a move that waits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trust {
    /// What can only have been there before the move.
    Sure,
    /// What fits it exactly: it may also be the move's own memory that leaves again. Enough when it has
    /// been waited for what else may come.
    Fitting,
    /// All that is left, as no event is outstanding.
    AllThere,
}

/// Which of `messages`, in the order in which they were read and not empty, is applied next.
pub fn next(messages: &[Message], layout: &impl Layout, trust: Trust) -> Next {
    for level in [Trust::Sure, Trust::Fitting, Trust::AllThere] {
        if level > trust {
            return Next::Wait;
        }
        let is_possible = |i: &usize| is_possible(messages, *i, layout, level, trust);
        let Some(i) = (0..messages.len()).find(is_possible) else { continue };
        return match level > Trust::Sure && is_one_of_two(messages, i) {
            true => Next::Unclear,
            false => Next::Apply(i),
        };
    }
    Next::Unclear
}

fn is_possible(
    messages: &[Message],
    i: usize,
    layout: &impl Layout,
    level: Trust,
    trust: Trust,
) -> bool {
    let earlier = &messages[..i];
    // A child has what was there at its fork: nothing comes before that which it need not wait for.
    let fork = earlier.iter().position(|e| matches!(e, Message::Fork { .. }));
    let awaited = |e: &Message| matches!(*e, Message::Remap { to, len, .. } if leaves(&messages[i], to, to + len));
    if fork.is_some_and(|fork| !earlier[..fork].iter().any(awaited)) {
        return false;
    }
    match messages[i] {
        Message::Fault { .. } => true,
        // It also has all that was done before.
        Message::Fork { .. } => i == 0,
        Message::Remove { start, end } => !earlier.iter().any(|e| touches(e, start, end)),
        Message::Unmap { start, end } => may_leave(earlier, (start, end), layout, level),
        Message::Remap { from, to, len } => {
            let leaves = |m: &Message| leaves(m, to, to + len);
            let others = || messages.iter().enumerate().filter(|(o, _)| *o != i).map(|(_, m)| m);
            // Once all are there, what nobody says has left was never there.
            let is_free = !layout.is_occupied(to, to + len)
                || trust == Trust::AllThere && !others().any(leaves);
            is_free
                && !earlier.iter().any(|e| touches(e, to, to + len))
                && may_leave(earlier, (from, from + len), layout, level)
        }
    }
}

/// Whether what leaves `range` can have been there before the `earlier` ones, which wait. Who brought what
/// they take away was read before them, so one that leaves the target of a move is either who was
/// there or comes after it.
fn may_leave(earlier: &[Message], range: (u64, u64), layout: &impl Layout, level: Trust) -> bool {
    let (start, end) = range;
    let is_known = layout.is_mapping(start, end);
    earlier.iter().all(|e| match *e {
        Message::Remap { from, to, len } => {
            let needed = match (to, to + len) {
                target if target == range && is_known => Trust::Fitting,
                target if target == range => Trust::AllThere,
                (s, e) if is_known || start <= s && e <= end => Trust::Sure,
                (s, e) if overlap(s, e, start, end) => Trust::AllThere,
                _ => Trust::Sure,
            };
            let own_end = (from, from + len) == range;
            let elsewhere = !overlap(from, from + len, start, end);
            !own_end && (elsewhere || is_known) && needed <= level
        }
        Message::Unmap { start: s, end: e } | Message::Remove { start: s, end: e } => {
            (s, e) != range && (is_known || !overlap(s, e, start, end))
        }
        Message::Fork { .. } | Message::Fault { .. } => true,
    })
}

/// Whether `messages[i]` takes what was at the target of a move that waits, and another one may be it
/// instead, with another outcome.
fn is_one_of_two(messages: &[Message], i: usize) -> bool {
    let owed = |m: &Message| {
        let Message::Unmap { start, end } = *m else { return 0 };
        let moves = |m: &&Message| matches!(**m, Message::Remap { from, len, .. } if (from, from + len) == (start, end));
        messages.iter().filter(moves).count()
    };
    let same = |m: &Message| messages.iter().filter(|o| *o == m).count();
    messages[..i].iter().enumerate().any(|(waits, e)| {
        let Message::Remap { from, to, len } = *e else { return false };
        // A move is told once more, as an unmapping of where it came from.
        let takes = |m: &Message| leaves(m, to, to + len) && same(m) > owed(m);
        let is_unmap = |m: &Message| matches!(m, Message::Unmap { .. });
        // What went to where the waiting move came from, and was read after it, came after it: nobody moves what he has not heard
        // of.
        let follows = |o: usize, m: &Message| {
            o > waits
                && matches!(*m, Message::Remap { to, len: l, .. } if overlap(to, to + l, from, from + len))
        };
        let other = |(o, m): (usize, &Message)| {
            o != i && takes(m) && !(is_unmap(m) && is_unmap(&messages[i])) && !follows(o, m)
        };
        takes(&messages[i]) && messages.iter().enumerate().any(other)
    })
}

fn overlap(a: u64, a_end: u64, b: u64, b_end: u64) -> bool {
    a < b_end && b < a_end
}

/// Whether `message` has to do with `[start, end)`.
fn touches(message: &Message, start: u64, end: u64) -> bool {
    match *message {
        Message::Remap { from, to, len } => {
            overlap(from, from + len, start, end) || overlap(to, to + len, start, end)
        }
        Message::Unmap { start: s, end: e } | Message::Remove { start: s, end: e } => {
            overlap(s, e, start, end)
        }
        Message::Fork { .. } | Message::Fault { .. } => false,
    }
}

/// Whether `message` takes something away from `[start, end)`.
fn leaves(message: &Message, start: u64, end: u64) -> bool {
    match *message {
        Message::Remap { from, len, .. } => overlap(from, from + len, start, end),
        Message::Unmap { start: s, end: e } => overlap(s, e, start, end),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
