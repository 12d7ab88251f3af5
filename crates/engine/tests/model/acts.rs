//! What programs and the daemon do, at random.

use std::collections::BTreeSet;

use clew_core::{CodecKind, FlashForm, Group};
use proptest::prelude::*;

use crate::kernel::Point;
use crate::world::{PAGES, Program, group};

/// More programs are not forked.
pub const PROGRAMS: usize = 6;

/// Something that one program does, or that is done to it.
#[derive(Clone, Debug)]
pub enum Act {
    Write(u64),
    /// Writes zeros, or what another page holds.
    Copy(u64, u64),
    Read(u64),
    Remove(u64, u64),
    Unmap(u64, u64),
    Map(u64, u64),
    Remap {
        from: u64,
        count: u64,
        to: u64,
        told: bool,
        keep: bool,
    },
    Fork,
    SwapOut(Out),
    /// To flash, past the pool.
    PutFar(Out, FlashForm),
    /// From the pool to flash.
    Evict(u64, u64, FlashForm),
    /// In the pool, stored anew.
    Repack(Out),
    Restore(u64, u64),
    Park(u64, u64),
    Sample(u64, u64),
    EndSample(u64, u64),
    Lend(u64, u64),
    /// Looks what came back of what was lent.
    Look,
    DropKept(u64, u64),
    End,
    Compact,
}

/// Pages with the beginnings of groups between them.
#[derive(Clone, Debug)]
pub struct Out {
    pages: Vec<(u64, bool)>,
    codec: CodecKind,
    chunk_bytes: u32,
    park_siblings: bool,
}

#[derive(Clone, Debug)]
pub struct Turn {
    pub who: usize,
    pub act: Act,
    /// The event of it is not read at once.
    pub unread: bool,
}

#[derive(Clone, Debug)]
pub enum Op {
    Turn(Turn),
    /// A swap-out, and what happens in its course.
    During {
        who: usize,
        out: Out,
        turns: Vec<(Point, Turn)>,
    },
    /// A restore, and what happens between lending and putting.
    Lent {
        who: usize,
        first: u64,
        turns: Vec<Act>,
    },
}

impl Out {
    pub fn groups(&self, program: &Program) -> Vec<Group> {
        let mut seen = BTreeSet::new();
        let mut groups: Vec<Vec<u64>> = Vec::new();
        for (vpn, begins) in self.pages.iter().filter(|(vpn, _)| seen.insert(*vpn)) {
            match groups.last_mut() {
                Some(last) if !begins => last.push(*vpn),
                _ => groups.push(vec![*vpn]),
            }
        }
        let group = |pages: &Vec<u64>| Group {
            park_siblings: self.park_siblings,
            ..group(program, pages, self.codec, self.chunk_bytes)
        };
        groups.iter().map(group).collect()
    }
}

fn vpn() -> impl Strategy<Value = u64> {
    // Most of what happens, happens to the same few pages.
    prop_oneof![3 => 0u64..12, 1 => 0..PAGES]
}

fn range() -> impl Strategy<Value = (u64, u64)> {
    let short = (0u64..12, 1u64..6);
    let long = (0..PAGES, 1u64..40);
    prop_oneof![3 => short, 1 => long].prop_map(|(first, n)| (first, n.min(PAGES - first)))
}

fn out() -> impl Strategy<Value = Out> {
    let page = (vpn(), prop::bool::weighted(0.4));
    let few = prop::collection::vec(page, 1..14);
    let all = Just((0..PAGES).map(|vpn| (vpn, vpn % 20 == 0)).collect());
    let codec = prop::sample::select(vec![
        CodecKind::Raw,
        CodecKind::Lz4,
        CodecKind::Lzo,
        CodecKind::BaseDeltaImmediate,
        CodecKind::Zstd,
    ]);
    let chunk = prop::sample::select(vec![1024u32, 4096, 16384]);
    (prop_oneof![4 => few, 1 => all], codec, chunk, any::<bool>()).prop_map(
        |(pages, codec, chunk_bytes, park_siblings)| Out {
            pages,
            codec,
            chunk_bytes,
            park_siblings,
        },
    )
}

fn form() -> impl Strategy<Value = FlashForm> {
    prop::sample::select(vec![FlashForm::AsStored, FlashForm::Pages])
}

fn act() -> impl Strategy<Value = Act> {
    let remap = (range(), vpn(), any::<bool>(), any::<bool>());
    prop_oneof![
        8 => vpn().prop_map(Act::Write),
        2 => (vpn(), vpn()).prop_map(|(from, to)| Act::Copy(from, to)),
        8 => vpn().prop_map(Act::Read),
        4 => range().prop_map(|(first, n)| Act::Remove(first, n)),
        1 => range().prop_map(|(first, n)| Act::Unmap(first, n)),
        2 => range().prop_map(|(first, n)| Act::Map(first, n)),
        5 => remap.prop_map(|((from, n), to, told, keep)| {
            let count = n.min(PAGES - to);
            Act::Remap { from, count, to, told, keep }
        }),
        2 => Just(Act::Fork),
        3 => out().prop_map(Act::SwapOut),
        1 => (out(), form()).prop_map(|(out, form)| Act::PutFar(out, form)),
        3 => (range(), form()).prop_map(|((first, n), form)| Act::Evict(first, n, form)),
        2 => out().prop_map(Act::Repack),
        3 => range().prop_map(|(first, n)| Act::Restore(first, n)),
        2 => range().prop_map(|(first, n)| Act::Park(first, n)),
        2 => range().prop_map(|(first, n)| Act::Sample(first, n)),
        1 => range().prop_map(|(first, n)| Act::EndSample(first, n)),
        1 => range().prop_map(|(first, n)| Act::DropKept(first, n)),
        1 => Just(Act::End),
        1 => Just(Act::Compact),
        3 => range().prop_map(|(first, n)| Act::Lend(first, n)),
        1 => Just(Act::Look),
    ]
}

fn turn() -> impl Strategy<Value = Turn> {
    let unread = prop::bool::weighted(0.3);
    // Mostly the first program, in whose batches the others take part.
    let who = prop_oneof![2 => Just(0usize), 1 => 0..PROGRAMS];
    (who, act(), unread).prop_map(|(who, act, unread)| Turn { who, act, unread })
}

fn point() -> impl Strategy<Value = Point> {
    prop_oneof![
        3 => (0usize..10).prop_map(Point::Taking),
        2 => Just(Point::Released),
        6 => (0usize..10).prop_map(Point::Copying),
        1 => Just(Point::Published),
        1 => Just(Point::Unsharing),
        1 => Just(Point::Lending),
    ]
}

pub fn op() -> impl Strategy<Value = Op> {
    let who = || prop_oneof![2 => Just(0usize), 1 => 0..PROGRAMS];
    let turns = prop::collection::vec((point(), turn()), 0..8);
    prop_oneof![
        6 => turn().prop_map(Op::Turn),
        4 => (who(), out(), turns).prop_map(|(who, out, turns)| Op::During { who, out, turns }),
        1 => (who(), vpn(), prop::collection::vec(act(), 0..5))
            .prop_map(|(who, first, turns)| Op::Lent { who, first, turns }),
    ]
}

/// Limits of the pool: none, of memory, of pages.
pub fn limits() -> impl Strategy<Value = (u64, u64)> {
    prop_oneof![
        3 => Just((64 << 20, u64::MAX)),
        1 => (8u64..40).prop_map(|frames| (frames * 4096, u64::MAX)),
        1 => (0u64..24).prop_map(|pages| (64 << 20, pages)),
    ]
}
