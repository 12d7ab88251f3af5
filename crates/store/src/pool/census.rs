//! Which objects of a process that died are whose: a count of all handles, wherever their objects lie.
//!
//! Nothing in the segments is trusted. Whatever a word says, its place is compared with what memory there
//! is before it is looked at, and the object there must name the handle. An object belongs to the
//! one handle that names it, a part to the one block that lists it: what
//! two claim is lost to both. A lost handle stays taken, for pages name it, and its word says so.
//!
//! Handles are looked at unit by unit (a slab, a frame), which keeps near what is near. A handle takes 16 bytes
//! meanwhile, a unit 10, and a block with parts 24 and 4 a part. Nothing is written.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::handle::{Fate, HandleTable};
use super::object::Header;
use crate::codec::Stored;

/// Where objects lie, as a successor finds it. Nobody else has it yet.
pub(super) trait Ground {
    /// Who has which object.
    fn handles(&self) -> &HandleTable;

    /// Units, all told.
    fn units(&self) -> usize;

    /// Where the object of a handle is, if its word can be true: in a unit that there is, which has memory as
    /// far as that object reaches.
    fn unit(&self, handle: u32) -> Option<usize>;

    /// The object of a handle that has a unit; `None` if it is not that handle's.
    fn sound(&self, handle: u32) -> Option<(Header, &[u8])>;

    /// Adds those of a unit's handles that cannot all have what their words say. Of each it is said whether its
    /// object is sound.
    fn disputed(&self, claims: &[(u32, bool)], out: &mut Vec<u32>);
}

/// What was found in a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Blocks that somebody names.
    pub blocks: u64,
    /// Their pages.
    pub pages: u64,
    /// Objects that nobody named, blocks and parts.
    pub freed: u64,
    /// Handles that somebody names and that have no block, ascending.
    pub lost: Vec<u32>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Kind {
    /// No object, or none that its handle has a right to.
    #[default]
    Nothing,
    /// A block, and somebody names it.
    Block,
    /// A part, and nobody names it, nor any block so far.
    Part,
    /// A part of a block that is there.
    PartOfBlock,
    /// Somebody names it, and it is no block.
    Lost,
}

/// What is known of a handle.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// How often it is named.
    refs: u32,
    kind: Kind,
    /// How many blocks list it as a part; more than two is two.
    listed: u8,
    /// Only blocks name it: a dictionary.
    shared: bool,
    /// Payload bytes of its object.
    len: u16,
    /// Pages of its block.
    pages: u16,
}

impl Mark {
    fn lives(&self) -> bool {
        matches!(self.kind, Kind::Block | Kind::PartOfBlock)
    }
}

/// All handles, by the unit that their words name.
struct ByUnit {
    /// Where the handles of each unit begin in `handles`.
    starts: Vec<u32>,
    handles: Vec<u32>,
}

impl ByUnit {
    fn of(&self, unit: usize) -> &[u32] {
        &self.handles[self.starts[unit] as usize..self.starts[unit + 1] as usize]
    }
}

/// Handles of the parts of one block, in a list of all.
struct Listed {
    block: u32,
    parts: Range<usize>,
}

/// The count.
pub(super) struct Census {
    marks: Vec<Mark>,
    by_unit: ByUnit,
    /// Handles that are named and that the table has no memory for.
    beyond: HashSet<u32>,
    /// What it comes to.
    pub found: Found,
}

impl Census {
    /// Counts; see [`super::Pool::adopt`].
    pub fn take(
        ground: &impl Ground,
        named: impl IntoIterator<Item = u32>,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) -> Census {
        let mut marks = vec![Mark::default(); ground.handles().known() as usize];
        let mut beyond = HashSet::new();
        for handle in named {
            match marks.get_mut(handle as usize) {
                Some(mark) => mark.refs = mark.refs.saturating_add(1),
                None => drop(beyond.insert(handle)),
            }
        }
        let by_unit = by_unit(ground, &mut marks);
        let found = Found::default();
        let mut census = Census { marks, by_unit, beyond, found };
        census.name_dictionaries(ground, dictionary);
        census.look(ground, block);
        census.sum(ground.handles());
        census
    }

    /// The handles whose objects are in a unit and stay, with the payload bytes of each.
    pub fn living(&self, unit: usize) -> impl Iterator<Item = (u32, u64)> {
        let marks = &self.marks;
        let of = |handle: &u32| (*handle, &marks[*handle as usize]);
        let alive = self.by_unit.of(unit).iter().map(of).filter(|(_, mark)| mark.lives());
        alive.map(|(handle, mark)| (handle, u64::from(mark.len)))
    }

    /// What becomes of a handle.
    pub fn fate(&self, handle: u32) -> Fate {
        match &self.marks[handle as usize] {
            mark if mark.kind == Kind::Block => Fate::Live(mark.refs),
            mark if mark.kind == Kind::PartOfBlock => Fate::Live(u32::MAX),
            mark if mark.refs > 0 => Fate::Lost,
            _ => Fate::Free,
        }
    }

    /// Handles that are named and that the table has no memory for.
    pub fn beyond(&self) -> Vec<u32> {
        self.beyond.iter().copied().collect()
    }

    /// Counts what objects that somebody names need beside themselves.
    fn name_dictionaries(
        &mut self,
        ground: &impl Ground,
        dictionary: impl Fn(&Header, &[u8]) -> Option<u32>,
    ) {
        let Census { marks, by_unit, beyond, .. } = self;
        let mut names: HashMap<u32, u32> = HashMap::new();
        for &handle in by_unit.handles.iter().filter(|handle| marks[**handle as usize].refs > 0) {
            if let Some((header, payload)) = ground.sound(handle)
                && let Some(name) = dictionary(&header, payload)
            {
                *names.entry(name).or_default() += 1;
            }
        }
        for (name, refs) in names {
            let Some(mark) = marks.get_mut(name as usize) else {
                beyond.insert(name);
                continue;
            };
            mark.shared = mark.refs == 0;
            mark.refs = mark.refs.saturating_add(refs);
            if ground.unit(name).is_none() {
                mark.kind = Kind::Lost;
            }
        }
    }

    /// Finds out of every handle what it has.
    fn look(
        &mut self,
        ground: &impl Ground,
        block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    ) {
        let Census { marks, by_unit, .. } = self;
        let (mut parts, mut lists) = (Vec::new(), Vec::new());
        let (mut claims, mut disputed) = (Vec::new(), Vec::new());
        for unit in 0..by_unit.starts.len() - 1 {
            claims.clear();
            for &handle in by_unit.of(unit) {
                let mark = &mut marks[handle as usize];
                let first_part = parts.len();
                let shared = mark.shared;
                *mark = look_at(ground.sound(handle), mark.refs, &block, &mut parts);
                mark.shared = shared;
                if parts.len() > first_part {
                    lists.push(Listed { block: handle, parts: first_part..parts.len() });
                }
                // It may claim the object, if only by being named.
                if mark.kind != Kind::Nothing {
                    claims.push((handle, mark.kind != Kind::Lost));
                }
            }
            if claims.len() > 1 {
                ground.disputed(&claims, &mut disputed);
                disputed.drain(..).for_each(|handle| lose(&mut marks[handle as usize]));
            }
        }
        for list in &lists {
            for part in &parts[list.parts.clone()] {
                if let Some(mark) = marks.get_mut(*part as usize) {
                    mark.listed = (mark.listed + 1).min(2);
                }
            }
        }
        for Listed { block, parts: range } in lists {
            if marks[block as usize].kind != Kind::Block {
                continue;
            }
            let parts = &parts[range];
            let sound = |part: &u32| {
                marks.get(*part as usize).is_some_and(|m| m.kind == Kind::Part && m.listed == 1)
            };
            match parts.iter().all(sound) {
                true => parts.iter().for_each(|p| marks[*p as usize].kind = Kind::PartOfBlock),
                false => lose(&mut marks[block as usize]),
            }
        }
    }

    fn sum(&mut self, handles: &HandleTable) {
        let Census { marks, beyond, found, .. } = self;
        for (mark, handle) in marks.iter().zip(0..).skip(1) {
            match mark.kind {
                Kind::Block if mark.shared => {}
                Kind::Block => {
                    found.blocks += 1;
                    found.pages += u64::from(mark.pages);
                }
                Kind::PartOfBlock => {}
                _ if mark.refs > 0 => found.lost.push(handle),
                Kind::Nothing | Kind::Part | Kind::Lost => {
                    let entry = handles.load(handle);
                    let had_one =
                        |e: &super::handle::HandleEntry| !e.is_blank() && e.class().is_some();
                    found.freed += u64::from(entry.is_some_and(|entry| had_one(&entry)));
                }
            }
        }
        found.lost.extend(beyond.iter());
        let in_table = found.lost.len() - beyond.len();
        found.lost[in_table..].sort_unstable();
    }
}

/// Sorts handles by the unit that their words name; those that have none are lost, if somebody names them.
fn by_unit(ground: &impl Ground, marks: &mut [Mark]) -> ByUnit {
    let units = ground.units();
    let mut starts = vec![0u32; units + 1];
    for (mark, handle) in marks.iter_mut().zip(0..).skip(1) {
        match ground.unit(handle) {
            Some(unit) => starts[unit + 1] += 1,
            None if mark.refs > 0 => mark.kind = Kind::Lost,
            None => {}
        }
    }
    for unit in 0..units {
        starts[unit + 1] += starts[unit];
    }
    let mut handles = vec![0; starts[units] as usize];
    let mut next = starts.clone();
    for handle in 1..marks.len() as u32 {
        if let Some(unit) = ground.unit(handle) {
            let next = &mut next[unit];
            handles[*next as usize] = handle;
            *next += 1;
        }
    }
    ByUnit { starts, handles }
}

/// What a handle has that is named so often.
fn look_at(
    object: Option<(Header, &[u8])>,
    refs: u32,
    block: impl Fn(&Header, &[u8], &mut Vec<u32>) -> Option<u16>,
    parts: &mut Vec<u32>,
) -> Mark {
    let named = Mark { refs, kind: Kind::Lost, ..Mark::default() };
    let unsound = if refs > 0 { named } else { Mark::default() };
    let Some((header, payload)) = object else { return unsound };
    let sound = Mark { refs, len: header.len, ..Mark::default() };
    match (header.codec, refs) {
        (Stored::Part, 0) => Mark { kind: Kind::Part, ..sound },
        (Stored::Part, _) => named,
        // Its parts are nobody's then, nor can they be anybody else's.
        (_, 0) => unsound,
        _ => {
            let before = parts.len();
            match block(&header, payload, parts) {
                Some(pages) => Mark { kind: Kind::Block, pages, ..sound },
                None => {
                    parts.truncate(before);
                    named
                }
            }
        }
    }
}

/// Whatever it seemed to be: it is not.
fn lose(mark: &mut Mark) {
    mark.kind = if mark.refs > 0 { Kind::Lost } else { Kind::Nothing };
}
