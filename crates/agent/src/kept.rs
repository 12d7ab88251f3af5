//! What is kept in a program: for its agent, for forked children that start one of their own, and for calls that
//! ask the daemon.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use crate::filters;
use crate::home::Home;
use crate::protocol::MAX_NAME;
use crate::sys::{nr, syscall4};

/// What the agent knows; lives at the bottom of its area, private to it once it runs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct State {
    /// Path of the daemon's agent socket, NUL-terminated.
    pub path: [u8; 108],
    /// The app's name.
    pub name: [u8; MAX_NAME + 1],
    /// Length of the name.
    pub name_len: usize,
    /// Read end of a pipe whose other end only the program holds, close-on-exec: end of file says
    /// that the program is gone, has called execve, or has closed all its descriptors.
    pub alive_fd: i32,
    /// The program's process id, as it sees it itself.
    pub program: i32,
    /// The program as a descriptor.
    pub program_fd: i32,
    /// The agent's process id, from before it runs; 0 while there is none.
    pub(crate) agent: i32,
    /// The program is a forked child.
    pub forked: bool,
    /// How far the agent is: [`STARTING`], [`STARTED`], or zero, which the kernel writes when it ends.
    pub(crate) started: u32,
}

pub(crate) const STARTING: u32 = 1;
pub(crate) const STARTED: u32 = 2;

/// What a forked child must know to start an agent of its own. Part of the program's memory, so
/// that each child has a copy.
pub(crate) struct Kept(pub(crate) UnsafeCell<Inherited>);

pub(crate) struct Inherited {
    pub(crate) state: State,
    /// The end of the pipe that the program holds, and what pipe that is.
    pub(crate) alive: i32,
    pub(crate) alive_is: (u64, u64),
    /// Whether system calls are filtered.
    pub(crate) seccomp: isize,
    /// Where the agent's memory lies; in children the same place.
    pub(crate) home: Option<Home>,
}

// SAFETY: written by the constructor and in forked children before anything else runs there: each
// time there is one thread, and the agent never looks at it.
unsafe impl Sync for Kept {}

pub(crate) static KEPT: Kept = Kept(UnsafeCell::new(Inherited {
    state: State {
        path: [0; 108],
        name: [0; MAX_NAME + 1],
        name_len: 0,
        alive_fd: -1,
        program: 0,
        program_fd: -1,
        agent: 0,
        forked: false,
        started: STARTING,
    },
    alive: -1,
    alive_is: (0, 0),
    seccomp: 0,
    home: None,
}));

/// Address of the page that tells a forked child who it is; 0 as long as there is none. The agent
/// writes it, which shares the program's memory.
pub static BEACON: AtomicUsize = AtomicUsize::new(0);

/// Whether memory of this program may be registered: it is prepared, or its parent was, and its daemon has not said that it
/// is over.
pub static MAY_BE_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Path of the daemon's agent socket, NUL-terminated; `None` where there is none, or the program has
/// shut itself in since it was loaded: it may be killed for a call that it never makes.
pub(crate) fn daemons_path() -> Option<&'static [u8; 108]> {
    // SAFETY: written before any thread of the program runs, and in forked children before they go on.
    let kept = unsafe { &*KEPT.0.get() };
    (kept.state.path[0] != 0 && kept.may_call()).then_some(&kept.state.path)
}

impl Inherited {
    /// Whether the program filters no system calls that it did not when it was loaded.
    pub(crate) fn may_call(&self) -> bool {
        !filters::are_installed() && seccomp() == self.seccomp
    }
}

/// Whether system calls are filtered: 0, 2, or an error.
pub(crate) fn seccomp() -> isize {
    const PR_GET_SECCOMP: usize = 21;
    // SAFETY: takes no pointers.
    unsafe { syscall4(nr::PRCTL, PR_GET_SECCOMP, 0, 0, 0) }
}

/// [`State::started`] of the agent at `area`.
///
/// # Safety
/// `area` is that of a [`State`], for as long as the reference is used.
pub(crate) unsafe fn started<'a>(area: usize) -> &'a AtomicU32 {
    // SAFETY: aligned, and nobody looks at it in another way while the agent may run.
    unsafe { AtomicU32::from_ptr((area + core::mem::offset_of!(State, started)) as *mut u32) }
}

/// The agent at `area` has connected and shut itself in: its program may go on.
pub(crate) fn tell_started(area: usize) {
    const FUTEX_WAKE: usize = 1;
    // SAFETY: the agent's own area.
    let word = unsafe { started(area) };
    word.store(STARTED, Release);
    // SAFETY: the word's address, of which nothing is read.
    unsafe { syscall4(nr::FUTEX, word.as_ptr() as usize, FUTEX_WAKE, 1, 0) };
}

/// What the beacon says: which child this is, or zeros.
pub fn read_beacon() -> [u64; 2] {
    match BEACON.load(Relaxed) {
        0 => [0; 2],
        // SAFETY: the agent that wrote the address there mapped the page, for good.
        address => unsafe { (address as *const [u64; 2]).read_volatile() },
    }
}
