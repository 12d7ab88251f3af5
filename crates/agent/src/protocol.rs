//! Messages between daemon and agent: one SEQPACKET datagram each, native byte order, both ends on
//! one machine and of one version.
//!
//! The daemon trusts nothing it receives: lengths, kinds and numbers are checked, and what the
//! agent says concerns its own process only.

/// First word of every message.
pub const MAGIC: u32 = u32::from_le_bytes(*b"CLEW");
/// Changes with every change of this file.
pub const VERSION: u32 = 9;
/// Pages that the staging area and the shared buffer hold: one huge page.
pub const SLOTS: usize = 512;
/// Bytes of the shared buffer: the pages, and one page that begins with the call word.
pub const BUFFER_BYTES: usize = (SLOTS + 1) * 4096;
/// Where in the buffer the call word is: 64 bits, changed atomically, see [`Call`].
pub const CALL_AT: usize = SLOTS * 4096;
/// Bytes of the agent's own area: its state at the bottom, its stack above.
pub const AREA_BYTES: usize = 64 << 10;
/// Most runs in one order.
pub const MAX_RUNS: usize = 512;
/// Most bytes in an app's name.
pub const MAX_NAME: usize = 63;
/// Bytes of a range of addresses: the first, and the one after the last, 8 bytes each.
pub const RANGE_BYTES: usize = 16;
/// Environment variable that names the daemon's agent socket.
pub const ENV_SOCKET: &str = "CLEW_AGENT_SOCKET";
/// Environment variable that names the app.
pub const ENV_APP: &str = "CLEW_APP";

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Kind {
    /// Agent: here is a process ([`Hello`]). Carries the program as a descriptor (pidfd).
    Hello = 1,
    /// Daemon: prepare to give pages away. Carries the buffer; and with `value` 1 the userfaultfd
    /// that this memory has from its parent, else `/dev/userfaultfd` if the daemon has it.
    Manage = 2,
    /// Agent: prepared ([`Ready`]); `detail` is that of what it answers. Carries the userfaultfd, if it
    /// opened one.
    Ready = 3,
    /// Daemon: move these runs into staging and copy them into the buffer ([`Order`]).
    Take = 4,
    /// Agent: the outcome of each slot ([`Taken`]), as soon as they are in staging. If any was taken,
    /// `Copied` follows.
    Taken = 5,
    /// Daemon: forget what is in staging, slots 0 to `value`; where that is 0, what is in the buffer.
    Release = 6,
    /// Daemon: make these runs exclusively the program's own again, after a fork ([`Order`]).
    Unshare = 7,
    /// Agent: done; `value` is 0 or an errno.
    Done = 8,
    /// Daemon: end.
    Detach = 9,
    /// Agent: could not prepare; `value` is an errno, `detail` the step.
    Refused = 10,
    /// Daemon: answer when everything ordered before is over.
    Sync = 11,
    /// A program itself, on a connection of its own: bring all my pages back and leave me alone; or
    /// only those of one range ([`RANGE_BYTES`]), which is in the name's place. As [`Hello`], without a
    /// descriptor. Answered by `Done`.
    LetGo = 12,
    /// Agent: what was taken is in the buffer; `detail` is the order's number.
    Copied = 13,
}

impl Kind {
    /// The kind with this number.
    pub fn from_u32(n: u32) -> Option<Kind> {
        use Kind::*;
        let kinds = [
            Hello, Manage, Ready, Take, Taken, Release, Unshare, Done, Detach, Refused, Sync,
            LetGo, Copied,
        ];
        kinds.into_iter().find(|kind| *kind as u32 == n)
    }
}

/// How far an order to take or to unshare has come. Whoever changes the call word from
/// [`Call::Pending`] first has decided it: the agent, that it is carried out and answered, or the
/// daemon, that it never will be. So a program that is frozen before its agent has begun holds up
/// nobody, and an order that it finds when it goes on does no harm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Call {
    /// Daemon: sent.
    Pending = 1,
    /// Agent: from now on it is waited for.
    Begun = 2,
    /// Daemon: not to be carried out; it is answered all the same.
    CalledOff = 3,
    /// Agent: what is to be taken is in staging, and its program may change its mappings again.
    Moved = 4,
}

/// The call word for the order with this number.
pub const fn call_word(number: u32, call: Call) -> u64 {
    (number as u64) << 32 | call as u64
}

/// How every message begins.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u32,
    /// A [`Kind`].
    pub kind: u32,
    /// Depends on the kind.
    pub value: u32,
    /// Depends on the kind. Of an order: its number, which the answer repeats, so that a successor
    /// can tell answers to its own orders from those to its predecessor's.
    pub detail: u32,
}

impl Header {
    /// A header of `kind`.
    pub const fn new(kind: Kind, value: u32, detail: u32) -> Header {
        Header { magic: MAGIC, kind: kind as u32, value, detail }
    }
}

/// The agent's first message.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Hello {
    /// `value` is [`VERSION`], `detail` the length of the name.
    pub header: Header,
    /// The app's name, empty if the environment does not say.
    pub name: [u8; MAX_NAME + 1],
    /// What the beacon said (see [`Ready::beacon`]); zeros if there is none, or it is dark.
    pub beacon: [u64; 2],
}

/// The agent is prepared.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Ready {
    /// No values.
    pub header: Header,
    /// Address of the staging area: [`SLOTS`] pages, aligned to their size.
    pub staging: u64,
    /// Address of the agent's own state and stack: [`AREA_BYTES`].
    pub area: u64,
    /// Address of the beacon: one page that every forked child finds missing, on a userfaultfd that
    /// it has from its parent. Who reads it there is told by the daemon which of the children it
    /// is: the number of its space, and a secret.
    pub beacon: u64,
}

/// Neighbouring pages of the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Run {
    /// Address of the first page.
    pub src: u64,
    /// First slot.
    pub slot: u32,
    /// Pages.
    pub pages: u32,
}

/// An order about runs, of which `header.value` follow. Only those bytes are sent.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Order {
    /// `value`: how many runs.
    pub header: Header,
    /// The runs.
    pub runs: [Run; MAX_RUNS],
}

/// What became of each page of an order.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Taken {
    /// `detail`: the order's number.
    pub header: Header,
    /// One [`SlotState`] a slot.
    pub slots: [u8; SLOTS],
}

/// What became of one page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SlotState {
    /// Not part of the order.
    Unused = 0,
    /// Out of the program, and in the buffer once `Copied` says so.
    Taken = 1,
    /// There was nothing.
    Hole = 2,
    /// Shared after a fork, or pinned: still in the program.
    Busy = 3,
    /// The kernel will not move this mapping's pages (locked, for example): still in the program.
    Refused = 4,
    /// The program is changing its mappings: not tried, still in the program.
    Skipped = 5,
}

impl SlotState {
    /// The state with this number; anything unknown counts as not tried.
    pub fn from_u8(n: u8) -> SlotState {
        use SlotState::*;
        [Unused, Taken, Hole, Busy, Refused].into_iter().find(|s| *s as u8 == n).unwrap_or(Skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_round_trip() {
        for n in 0..64 {
            if let Some(kind) = Kind::from_u32(n) {
                assert_eq!(kind as u32, n);
            }
        }
        assert_eq!((1..=13).filter(|n| Kind::from_u32(*n).is_some()).count(), 13);
        for n in 0..=4u8 {
            assert_eq!(SlotState::from_u8(n) as u8, n);
        }
        assert_eq!(SlotState::from_u8(200), SlotState::Skipped);
    }

    #[test]
    fn messages_have_no_padding() {
        assert_eq!(size_of::<Header>(), 16);
        assert_eq!(size_of::<Hello>(), 16 + 64 + 16);
        assert_eq!(size_of::<Ready>(), 40);
        assert_eq!(size_of::<Run>(), 16);
        assert_eq!(size_of::<Order>(), 16 + MAX_RUNS * 16);
        assert_eq!(size_of::<Taken>(), 16 + SLOTS);
    }
}
