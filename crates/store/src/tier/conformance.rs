//! What every tier of objects must keep, whoever wrote it: [`all`], to which its test gives what makes the
//! tier and says what is left of it when its process dies ([`Subject`]).
//!
//! Drawn histories of puts, references, removals and compactions are played to the tier and to a map beside it.
//! What is checked:
//!
//! - what was put is read as it was put, header and payload, until it is removed; then it is nowhere;
//! - references are counted, and the last one says so; a handle in use is given to nobody else;
//! - what is replaced is the one or the other, also for whoever reads meanwhile or takes over;
//! - where there is no room, nothing changed; what is in use stays within the limit; what was removed makes room;
//! - a damaged byte is in its own object and nowhere else;
//! - several threads do not disturb each other;
//! - whoever dies between two operations, inside of one, or by surprise: his successor has all that was named,
//!   with as many references as name it, and nothing else, and goes on.

use std::collections::HashMap;
use std::time::Duration;

use clew_core::seeded::Seeded;

use super::ObjectTier;
use crate::adopt::tests::step;
use crate::codec::Stored;
use crate::pool::Found;
use crate::pool::budget::For;
use crate::pool::object::{Header, MAX_PAYLOAD_BYTES};

/// A tier under test.
pub trait Subject {
    /// What it is.
    type Tier: ObjectTier;

    /// An empty one of at most so many bytes.
    fn make(&self, limit_bytes: u64) -> Self::Tier;

    /// What its process leaves if it dies now: the same memory, which nobody else uses from now on.
    fn left(&self, tier: &Self::Tier) -> <Self::Tier as ObjectTier>::Left;
}

/// Everything.
pub fn all<S: Subject>(name: &str, subject: &S) {
    histories(subject);
    no_room(subject);
    damage(subject);
    threads(subject);
    parts_and_dictionaries(subject);
    deaths_between(subject);
    deaths_inside(name, subject);
    deaths_by_surprise(subject);
}

const LIMIT: u64 = 1 << 20;

/// An object, as whoever put it knows it.
#[derive(Clone)]
struct Object {
    checksum: u64,
    codec: Stored,
    framed: bool,
    payload: Vec<u8>,
    refs: u32,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, len) = (self.payload.first(), self.payload.len());
        write!(f, "{:?}, {len} bytes from {first:?} on, {} references", self.codec, self.refs)
    }
}

impl Object {
    fn drawn(draw: &mut Seeded, largest: usize) -> Object {
        let codecs = [Stored::Raw, Stored::Same, Stored::Lz4, Stored::Zstd];
        let len = draw.size(1, largest + 1).min(largest);
        let first = draw.draw() as u8;
        Object {
            checksum: draw.draw(),
            codec: codecs[draw.below(4) as usize],
            framed: draw.below(4) == 0,
            payload: (0..len).map(|i| first.wrapping_add(i as u8)).collect(),
            refs: 1 + draw.below(4) as u32,
        }
    }

    fn put(&self, tier: &impl ObjectTier) -> Option<u32> {
        let Object { checksum, codec, framed, .. } = *self;
        let header = Header { checksum, handle: 0, len: 0, codec, framed };
        let (one, other) = self.payload.split_at(self.payload.len() / 3);
        let handle = tier.reserve().ok()?;
        match tier.insert(handle, self.refs, header, &[one, other]) {
            Ok(()) => Some(handle),
            Err(_) => {
                tier.unreserve(handle);
                None
            }
        }
    }

    /// Puts it in the place of `old`, whose references it keeps; `None` for no room.
    fn replace(&self, tier: &impl ObjectTier, handle: u32, old: &Object) -> Option<bool> {
        let Object { checksum, codec, framed, .. } = *self;
        let header = Header { checksum, handle: 0, len: 0, codec, framed };
        let (one, other) = self.payload.split_at(self.payload.len() / 3);
        let still = |header: &Header, payload: &[u8]| {
            header.checksum == old.checksum && payload == old.payload
        };
        tier.replace(handle, header, &[one, other], For::New, still).ok()
    }

    fn is_at(&self, tier: &impl ObjectTier, handle: u32) -> bool {
        tier.read(handle, |header, payload| {
            let same = (header.checksum, header.codec, header.framed)
                == (self.checksum, self.codec, self.framed);
            same && header.handle == handle && payload == self.payload
        }) == Some(true)
    }
}

/// A tier, and what is in it.
struct Played<T> {
    tier: T,
    objects: HashMap<u32, Object>,
}

/// What is done next; handles are drawn when it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Put,
    Retain,
    Release,
    Remove,
    Replace,
    Compact,
}

fn act(draw: &mut Seeded) -> Act {
    match draw.below(14) {
        0..=4 => Act::Put,
        5 => Act::Retain,
        6..=8 => Act::Release,
        9..=10 => Act::Remove,
        11..=12 => Act::Replace,
        _ => Act::Compact,
    }
}

impl<T: ObjectTier> Played<T> {
    fn begin(tier: T) -> Played<T> {
        assert_eq!(tier.usage().objects, 0);
        Played { tier, objects: HashMap::new() }
    }

    fn any(&self, draw: &mut Seeded) -> Option<u32> {
        let mut handles: Vec<u32> = self.objects.keys().copied().collect();
        handles.sort_unstable();
        (!handles.is_empty()).then(|| handles[draw.below(handles.len() as u64) as usize])
    }

    fn put(&mut self, object: Object) -> Option<u32> {
        let handle = object.put(&self.tier)?;
        assert!(self.objects.insert(handle, object).is_none(), "handle {handle} is in use");
        Some(handle)
    }

    fn gone(&self, handle: u32) {
        assert_eq!(self.tier.read(handle, |_, _| ()), None, "{handle} was removed");
        assert!(!self.tier.retain(handle), "{handle} was removed");
        let header = Header { checksum: 0, handle: 0, len: 0, codec: Stored::Raw, framed: false };
        let replaced = self.tier.replace(handle, header, &[&[1]], For::New, |_, _| true);
        assert_ne!(replaced, Ok(true), "{handle} was removed");
    }

    fn play(&mut self, act: Act, draw: &mut Seeded) {
        let handle = self.any(draw);
        match (act, handle) {
            (Act::Put, _) => {
                let object = Object::drawn(draw, MAX_PAYLOAD_BYTES);
                if self.put(object).is_none()
                    && let Some(handle) = handle
                {
                    self.remove(handle);
                }
            }
            (Act::Retain, Some(handle)) => {
                assert!(self.tier.retain(handle));
                self.objects.get_mut(&handle).expect("it is there").refs += 1;
            }
            (Act::Release, Some(handle)) => {
                let object = self.objects.get_mut(&handle).expect("it is there");
                object.refs -= 1;
                let last = object.refs == 0;
                assert_eq!(self.tier.release(handle), last, "references of {handle}");
                if last {
                    assert_eq!(self.tier.read(handle, |_, _| ()), None, "nobody names {handle}");
                    let still = |_: &Header, payload: &[u8]| payload.len();
                    let len = self.tier.read_unowned(handle, still);
                    assert_eq!(len, Some(self.objects[&handle].payload.len()));
                    self.remove(handle);
                }
            }
            (Act::Remove, Some(handle)) => self.remove(handle),
            (Act::Replace, Some(handle)) => {
                let old = self.objects[&handle].clone();
                let new = Object { refs: old.refs, ..Object::drawn(draw, MAX_PAYLOAD_BYTES) };
                let other = Object { checksum: !old.checksum, ..old.clone() };
                assert_ne!(new.replace(&self.tier, handle, &other), Some(true), "{handle}");
                assert!(old.is_at(&self.tier, handle), "{handle} was left alone");
                match new.replace(&self.tier, handle, &old) {
                    Some(done) => {
                        assert!(done, "{handle} is {old:?}");
                        self.objects.insert(handle, new);
                    }
                    None => assert!(old.is_at(&self.tier, handle), "no room"),
                }
            }
            (Act::Compact, _) => drop(self.tier.compact(draw.below(40) as usize)),
            (_, None) => {}
        }
    }

    fn remove(&mut self, handle: u32) {
        self.tier.remove(handle);
        self.objects.remove(&handle);
        self.gone(handle);
    }

    fn check(&self) {
        for (handle, object) in &self.objects {
            assert!(object.is_at(&self.tier, *handle), "{handle} is not {object:?}");
        }
        let usage = self.tier.usage();
        let payload = self.objects.values().map(|object| object.payload.len() as u64);
        let counted = (self.objects.len() as u64, payload.sum::<u64>());
        assert_eq!((usage.objects, usage.payload_bytes), counted);
        assert_eq!(usage.used_bytes, self.tier.used_bytes());
        let object_bytes = |o: &Object| self.tier.object_bytes(o.payload.len()) as u64;
        assert_eq!(usage.object_bytes, self.objects.values().map(object_bytes).sum::<u64>());
        self.tier.check();
    }

    /// Everything is given up, as by whoever names it.
    fn end(mut self) {
        self.check();
        for (handle, object) in std::mem::take(&mut self.objects) {
            for left in (0..object.refs).rev() {
                assert_eq!(self.tier.release(handle), left == 0, "references of {handle}");
            }
            self.tier.remove(handle);
            self.gone(handle);
        }
        self.check();
    }
}

fn adopted<S: Subject>(
    subject: &S,
    played: Played<S::Tier>,
    limit: u64,
) -> (Played<S::Tier>, Found) {
    adopted_or(subject, played, limit, None)
}

/// One object may be another one.
fn adopted_or<S: Subject>(
    subject: &S,
    played: Played<S::Tier>,
    limit: u64,
    or: Option<(u32, Object)>,
) -> (Played<S::Tier>, Found) {
    let Played { tier, mut objects } = played;
    let left = subject.left(&tier);
    drop(tier);
    let named = objects.iter().flat_map(|(handle, o)| (0..o.refs).map(move |_| *handle));
    let (tier, found) =
        S::Tier::adopt(limit, left, named, |_, _| None, |_, _, _| Some(1)).expect("a successor");
    assert!(found.lost.is_empty(), "{found:?}");
    assert_eq!((found.blocks, found.pages), (objects.len() as u64, objects.len() as u64));
    if let Some((handle, object)) = or.filter(|(handle, object)| object.is_at(&tier, *handle)) {
        objects.insert(handle, object);
    }
    let played = Played { tier, objects };
    played.check();
    (played, found)
}

fn histories<S: Subject>(subject: &S) {
    for seed in 0..12 {
        let mut draw = Seeded::of(seed, &[1]);
        let limit = [LIMIT, LIMIT / 8][seed as usize % 2];
        let mut played = Played::begin(subject.make(limit));
        for step in 0..600 {
            let act = act(&mut draw);
            played.play(act, &mut draw);
            assert!(played.tier.used_bytes() <= limit, "step {step} of {seed}");
            if step % 50 == 0 {
                played.check();
            }
        }
        played.end();
    }
}

fn no_room<S: Subject>(subject: &S) {
    let mut draw = Seeded::of(1, &[2]);
    for largest in [64, 700, MAX_PAYLOAD_BYTES] {
        let mut played = Played::begin(subject.make(LIMIT));
        while played.put(Object::drawn(&mut draw, largest)).is_some() {
            assert!(played.tier.used_bytes() <= LIMIT);
        }
        let all = played.objects.len();
        assert!(all > 100, "{all} objects of {largest} bytes at most");
        played.check();
        for _ in 0..20 {
            played.put(Object::drawn(&mut draw, MAX_PAYLOAD_BYTES));
        }
        played.check();
        // What goes makes room for what comes.
        for handle in played.objects.keys().copied().collect::<Vec<_>>() {
            played.remove(handle);
        }
        while played.put(Object::drawn(&mut draw, largest)).is_some() {}
        let again = played.objects.len();
        assert!(again * 10 >= all * 9, "{again} objects after {all}");
        played.end();
    }
}

fn damage<S: Subject>(subject: &S) {
    let mut draw = Seeded::of(1, &[3]);
    let mut played = Played::begin(subject.make(LIMIT));
    for _ in 0..60 {
        played.put(Object::drawn(&mut draw, MAX_PAYLOAD_BYTES));
    }
    for _ in 0..20 {
        let Some(handle) = played.any(&mut draw) else { break };
        let object = played.objects.remove(&handle).expect("it is there");
        let at = draw.below(object.payload.len() as u64) as usize;
        assert!(played.tier.damage(handle, at));
        let mut expected = object.payload.clone();
        expected[at] ^= 0xff;
        let read = played.tier.read(handle, |_, payload| payload.to_vec());
        assert!(read.is_none_or(|found| found == expected), "byte {at} of {handle}, no other");
        for (handle, object) in &played.objects {
            assert!(object.is_at(&played.tier, *handle), "{handle} was not damaged");
        }
        played.tier.remove(handle);
    }
    assert!(!played.tier.damage(u32::MAX, 0), "nobody has this handle");
    played.end();
}

fn threads<S: Subject>(subject: &S) {
    let tier = &subject.make(8 * LIMIT);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let mut draw = Seeded::of(thread, &[4]);
                let mut mine: Vec<(u32, Object)> = Vec::new();
                for _ in 0..800 {
                    match draw.below(4) {
                        0 | 1 => {
                            let object = Object::drawn(&mut draw, 2000);
                            mine.push((object.put(tier).expect("there is room"), object));
                        }
                        2 if !mine.is_empty() && draw.below(3) == 0 => {
                            let at = draw.below(mine.len() as u64) as usize;
                            let (handle, old) = &mut mine[at];
                            let new = Object { refs: old.refs, ..Object::drawn(&mut draw, 2000) };
                            assert_eq!(new.replace(tier, *handle, old), Some(true));
                            *old = new;
                        }
                        2 if !mine.is_empty() => {
                            let at = draw.below(mine.len() as u64) as usize;
                            let (handle, object) = mine.swap_remove(at);
                            assert!(object.is_at(tier, handle));
                            tier.remove(handle);
                        }
                        _ => drop(tier.compact(8)),
                    }
                }
                for (handle, object) in mine {
                    assert!(object.is_at(tier, handle));
                    tier.remove(handle);
                }
            });
        }
    });
    assert_eq!(tier.usage().objects, 0);
    tier.check();
}

/// Objects whose payload is the handle of another: a framed one lists it as its part, a compressed one
/// needs it.
fn parts_and_dictionaries<S: Subject>(subject: &S) {
    let first = |payload: &[u8]| payload.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    let block = |header: &Header, payload: &[u8], parts: &mut Vec<u32>| {
        parts.extend(first(payload).filter(|_| header.framed));
        Some(1)
    };
    let needs =
        |header: &Header, payload: &[u8]| first(payload).filter(|_| header.codec == Stored::Zstd);
    for named in [true, false] {
        let tier = subject.make(LIMIT);
        let put = |codec, framed, payload: &[u8], refs| {
            let object = Object { checksum: 7, codec, framed, payload: payload.to_vec(), refs };
            (object.put(&tier).expect("there is room"), object)
        };
        let pinned = crate::pool::handle::REFS_PINNED;
        let (part, of_part) = put(Stored::Part, false, &[1; 3000], pinned);
        let (whole, of_whole) = put(Stored::Raw, true, &part.to_le_bytes(), 1);
        let (dictionary, of_dictionary) = put(Stored::Raw, false, &[2; 900], 1);
        let (page, of_page) = put(Stored::Zstd, false, &dictionary.to_le_bytes(), 1);
        let (other, of_other) = put(Stored::Raw, false, &[3; 90], 1);
        let left = subject.left(&tier);
        drop(tier);
        let names = if named { vec![whole, page, other] } else { vec![other] };
        let adopted = S::Tier::adopt(LIMIT, left, names, needs, block);
        let (tier, found) = adopted.expect("a successor");
        assert!(of_other.is_at(&tier, other));
        for (handle, object) in
            [(part, of_part), (whole, of_whole), (dictionary, of_dictionary), (page, of_page)]
        {
            assert_eq!(object.is_at(&tier, handle), named, "{handle} is {object:?}");
        }
        assert_eq!(found.freed, if named { 0 } else { 4 });
        assert_eq!(tier.usage().objects, if named { 5 } else { 1 });
        tier.check();
    }
}

fn deaths_between<S: Subject>(subject: &S) {
    for seed in 0..6 {
        let mut draw = Seeded::of(seed, &[5]);
        let mut played = Played::begin(subject.make(LIMIT));
        for _ in 0..12 {
            for _ in 0..60 {
                let act = act(&mut draw);
                played.play(act, &mut draw);
            }
            // One that was put, and that nobody named yet.
            let unnamed = Object::drawn(&mut draw, 900).put(&played.tier).is_some();
            let before = played.tier.used_bytes();
            let (successor, found) = adopted(subject, played, LIMIT);
            assert_eq!(found.freed, u64::from(unnamed));
            assert!(successor.tier.used_bytes() <= before);
            played = successor;
        }
        // With a limit below what is in use, what comes in takes what is free already and no more.
        let (mut small, _) = adopted(subject, played, 4096);
        let used = small.tier.used_bytes();
        while small.put(Object::drawn(&mut draw, MAX_PAYLOAD_BYTES)).is_some() {}
        assert!(small.tier.used_bytes() <= used, "{} of {used}", small.tier.used_bytes());
        small.end();
    }
}

/// In a process of its own, the next operation is begun, and ends behind so many instructions.
fn deaths_inside<S: Subject>(name: &str, subject: &S) {
    let acts = [Act::Put, Act::Retain, Act::Release, Act::Remove, Act::Compact, Act::Replace];
    for seed in 0..72 {
        let mut draw = Seeded::of(seed, &[6]);
        let mut played = Played::begin(subject.make(LIMIT));
        for _ in 0..draw.below(150) {
            let act = act(&mut draw);
            played.play(act, &mut draw);
        }
        let act = acts[seed as usize % acts.len()];
        let mut of_child = draw.clone();
        // Who removes has given up the names before.
        let mut removed = draw.clone();
        let goes = played.any(&mut removed).filter(|handle| match act {
            Act::Remove => true,
            Act::Release => played.objects[handle].refs == 1,
            _ => false,
        });
        let mut replaced = draw.clone();
        let or = played.any(&mut replaced).filter(|_| act == Act::Replace).map(|handle| {
            let refs = played.objects[&handle].refs;
            (handle, Object { refs, ..Object::drawn(&mut replaced, MAX_PAYLOAD_BYTES) })
        });
        let before = played.objects.clone();
        let child = step::traced(name, || played.play(act, &mut of_child));
        let Some(mut child) = child else { return };
        for _ in 0..draw.size(1, 6000) {
            if !child.step() {
                break;
            }
        }
        child.kill();
        played.objects = before;
        if let Some(handle) = goes {
            played.objects.remove(&handle);
        }
        let (mut successor, found) = adopted_or(subject, played, LIMIT, or);
        assert!(found.freed <= 1, "{act:?}: {found:?}");
        for _ in 0..40 {
            let act = self::act(&mut draw);
            successor.play(act, &mut draw);
        }
        successor.end();
    }
}

/// A process that goes on with objects of its own is killed at any time.
fn deaths_by_surprise<S: Subject>(subject: &S) {
    for seed in 0..20 {
        let mut draw = Seeded::of(seed, &[7]);
        let mut played = Played::begin(subject.make(LIMIT));
        for _ in 0..60 {
            played.put(Object::drawn(&mut draw, 1500));
        }
        let child = step::fork(|| {
            let mut draw = Seeded::of(seed, &[8]);
            let mut own: Vec<u32> = Vec::new();
            loop {
                own.extend(Object::drawn(&mut draw, MAX_PAYLOAD_BYTES).put(&played.tier));
                if own.len() > 60 {
                    played.tier.remove(own.swap_remove(draw.below(60) as usize));
                }
                played.tier.compact(4);
            }
        });
        std::thread::sleep(Duration::from_micros(500 + draw.below(4000)));
        child.kill();
        let (successor, _) = adopted(subject, played, LIMIT);
        successor.end();
    }
}
