//! Where the kernel keeps what is looked for: its own description of its types (BTF).
//!
//! Source: `Documentation/bpf/btf.rst` of Linux. Types lie one behind the other and are numbered from 1, names
//! are elsewhere. Libraries build all of them (130 thousand); here a pass a question looks for
//! one name. What is read comes from the kernel; a description that is cut off, or says what cannot be, is an
//! error and nothing worse.

use std::fmt;

/// Kinds of types that are told apart here.
const KIND_STRUCT: u32 = 4;
const KIND_FUNCTION: u32 = 12;

/// What cannot be found out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BtfError {
    /// It is none, or of another version, or cut off.
    Malformed,
    /// There is nothing of this name.
    Lacks(&'static str),
}

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BtfError::Malformed => {
                f.write_str("the kernel's description of its types is malformed")
            }
            BtfError::Lacks(name) => write!(f, "this kernel has no '{name}'"),
        }
    }
}

/// A description of types.
pub struct Btf<'a> {
    types: &'a [u8],
    names: &'a [u8],
}

/// One type.
struct Type<'a> {
    name: u32,
    kind: u32,
    /// Of members, offsets are in bits, below a size in bits.
    has_bitfields: bool,
    /// What belongs to the kind.
    rest: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

impl<'a> Btf<'a> {
    /// Of `bytes`, as in `/sys/kernel/btf/vmlinux`.
    pub fn new(bytes: &'a [u8]) -> Result<Btf<'a>, BtfError> {
        let part = |at: usize| {
            let header = word(bytes, 4)?;
            let first = header.checked_add(word(bytes, at)?)? as usize;
            bytes.get(first..first.checked_add(word(bytes, at + 4)? as usize)?)
        };
        // Magic number and version, in the byte order of this machine.
        if word(bytes, 0).is_none_or(|word| word & 0xff_ffff != 0x1_eb9f) {
            return Err(BtfError::Malformed);
        }
        match (part(8), part(16)) {
            (Some(types), Some(names)) => Ok(Btf { types, names }),
            _ => Err(BtfError::Malformed),
        }
    }

    /// Number of the function `name`.
    pub fn function(&self, name: &'static str) -> Result<u32, BtfError> {
        Ok(self.find(KIND_FUNCTION, name)?.0)
    }

    /// Where member `member` begins in structure `name`, in bytes; also in a structure without a name within.
    pub fn offset(&self, name: &'static str, member: &'static str) -> Result<u32, BtfError> {
        let (number, _) = self.find(KIND_STRUCT, name)?;
        self.offset_within(number, member, 4)?.ok_or(BtfError::Lacks(member))
    }

    fn offset_within(
        &self,
        number: u32,
        member: &str,
        depth: u32,
    ) -> Result<Option<u32>, BtfError> {
        let of_it = self.all().nth(number as usize - 1).ok_or(BtfError::Malformed)??;
        if !(KIND_STRUCT..=KIND_STRUCT + 1).contains(&of_it.kind) {
            return Ok(None);
        }
        for at in (0..of_it.rest.len()).step_by(12) {
            let of_member = |n| word(of_it.rest, at + n).ok_or(BtfError::Malformed);
            let (name, inner, offset) = (of_member(0)?, of_member(4)?, of_member(8)?);
            let offset = if of_it.has_bitfields { offset & 0xff_ffff } else { offset } / 8;
            if name != 0 && self.is_called(name, member) {
                return Ok(Some(offset));
            }
            if name == 0
                && depth > 0
                && inner > 0
                && let Some(within) = self.offset_within(inner, member, depth - 1)?
            {
                return Ok(offset.checked_add(within));
            }
        }
        Ok(None)
    }

    fn find(&self, kind: u32, name: &'static str) -> Result<(u32, Type<'a>), BtfError> {
        for (number, found) in (1..).zip(self.all()) {
            let found = found?;
            if found.kind == kind && self.is_called(found.name, name) {
                return Ok((number, found));
            }
        }
        Err(BtfError::Lacks(name))
    }

    fn is_called(&self, at: u32, name: &str) -> bool {
        let rest = self.names.get(at as usize..).unwrap_or_default();
        rest.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// Every type, by number from 1.
    fn all(&self) -> impl Iterator<Item = Result<Type<'a>, BtfError>> {
        let mut left = self.types;
        std::iter::from_fn(move || {
            (!left.is_empty()).then(|| {
                let next = next_type(&mut left);
                if next.is_none() {
                    left = &[];
                }
                next.ok_or(BtfError::Malformed)
            })
        })
    }
}

fn next_type<'a>(left: &mut &'a [u8]) -> Option<Type<'a>> {
    let (name, info) = (word(left, 0)?, word(left, 4)?);
    let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
    let bytes = match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Structure, union; variables of a section, 64-bit enumeration.
        4 | 5 | 15 | 19 => 12 * count,
        // Enumeration, parameters.
        6 | 13 => 8 * count,
        _ => return None,
    };
    let rest = left.get(12..12 + bytes)?;
    *left = &left[12 + bytes..];
    Some(Type { name, kind, has_bitfields: info >> 31 == 1, rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A function `f`, and `struct s { u32 a; struct { u64 b; u64 c; }; }`.
    fn small() -> Vec<u8> {
        let names = b"\0f\0s\0a\0b\0c\0";
        let (f, s, a, b, c) = (1, 3, 5, 7, 9);
        let structure = |count: u32| KIND_STRUCT << 24 | count;
        let words: Vec<u32> = [
            &[0, 1 << 24, 4, 32][..],
            &[f, KIND_FUNCTION << 24, 1],
            &[0, structure(2), 16, b, 1, 0, c, 1, 64],
            &[s, structure(2), 24, a, 1, 0, 0, 3, 64],
        ]
        .concat();
        let types = words.len() as u32 * 4;
        let header = [0x1_eb9f, 24, 0, types, types, names.len() as u32];
        let bytes = header.iter().chain(&words).flat_map(|word| word.to_le_bytes());
        bytes.chain(*names).collect()
    }

    #[test]
    fn functions_and_members_are_found_by_name() {
        let bytes = small();
        let btf = Btf::new(&bytes).expect("well formed");
        assert_eq!(btf.function("f"), Ok(2));
        assert_eq!(btf.offset("s", "a"), Ok(0));
        assert_eq!(btf.offset("s", "b"), Ok(8));
        assert_eq!(btf.offset("s", "c"), Ok(16), "in a structure without a name");
        assert_eq!(btf.function("s"), Err(BtfError::Lacks("s")), "that is none");
        assert_eq!(btf.offset("s", "f"), Err(BtfError::Lacks("f")));
    }

    #[test]
    fn whatever_is_there_ends_in_an_answer() {
        let whole = small();
        for length in 0..whole.len() {
            let cut = &whole[..length];
            assert!(Btf::new(cut).is_err(), "cut off at {length}");
        }
        for at in 24..whole.len() {
            for with in [0, 1, 3, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = with;
                let btf = Btf::new(&bytes).expect("its header is whole");
                let _ = (btf.function("f"), btf.offset("s", "c"));
            }
        }
    }
}
