//! The constructor, and what runs in forked children: start the agent and get out of the way.
//!
//! It runs in every program that inherits the environment, shells and short-lived helpers
//! included, so it does the least possible: one mapping, one pipe, one clone. Connecting and all
//! else is the agent's. Whatever fails here leaves the program unmanaged and otherwise as it was.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::protocol::{AREA_BYTES, ENV_APP, ENV_SOCKET, MAX_NAME};
use crate::serve;
use crate::sys::{close, nr, spawn_sharing_memory, syscall4, syscall6};

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
    /// The program is a forked child.
    pub forked: bool,
}

/// What a forked child must know to start an agent of its own. Part of the program's memory, so
/// that each child has a copy.
struct Kept(UnsafeCell<Inherited>);

struct Inherited {
    state: State,
    /// The end of the pipe that the program holds, and what pipe that is.
    alive: i32,
    alive_is: (u64, u64),
    /// Whether system calls are filtered.
    seccomp: isize,
}

// SAFETY: written by the constructor and in forked children before anything else runs there: each
// time there is one thread, and the agent never looks at it.
unsafe impl Sync for Kept {}

static KEPT: Kept = Kept(UnsafeCell::new(Inherited {
    state: State {
        path: [0; 108],
        name: [0; MAX_NAME + 1],
        name_len: 0,
        alive_fd: -1,
        program: 0,
        forked: false,
    },
    alive: -1,
    alive_is: (0, 0),
    seccomp: 0,
}));

/// Address of the page that tells a forked child who it is; 0 as long as there is none. The agent
/// writes it, which shares the program's memory.
pub static BEACON: AtomicUsize = AtomicUsize::new(0);

const PROT_READ_WRITE: usize = 3;
const MAP_PRIVATE_ANONYMOUS: usize = 0x22;
const MADV_DONTFORK: usize = 10;
const O_CLOEXEC: usize = 0o2000000;
const F_DUPFD_CLOEXEC: usize = 1030;
const SIG_SETMASK: usize = 2;

/// Called by the dynamic loader with what `main` will get.
///
/// # Safety
/// `envp` is the program's environment: a NULL-terminated array of NUL-terminated strings.
pub unsafe extern "C" fn on_load(_argc: i32, _argv: *const *const u8, envp: *const *const u8) {
    // SAFETY: the loader hands over the program's environment, valid for the whole call.
    let (path, name) = unsafe { (find(envp, ENV_SOCKET), find(envp, ENV_APP)) };
    let Some(path) = path.filter(|p| !p.is_empty() && p.len() < 108) else { return };
    let name = name.filter(|n| n.len() <= MAX_NAME).unwrap_or(&[]);
    // SAFETY: the program has one thread yet, and nobody else refers to it.
    let kept = unsafe { &mut *KEPT.0.get() };
    kept.state.path[..path.len()].copy_from_slice(path);
    kept.state.name[..name.len()].copy_from_slice(name);
    kept.state.name_len = name.len();
    kept.seccomp = seccomp();
    start(kept);
    #[cfg(clew_preload)]
    crate::preload::at_fork(on_fork);
}

/// Called by the C library in a forked child, before fork() returns there.
#[cfg_attr(not(clew_preload), allow(dead_code))]
extern "C" fn on_fork() {
    // SAFETY: a forked child has one thread, and its agent does not run yet.
    let kept = unsafe { &mut *KEPT.0.get() };
    // The parent's end of its pipe would pile up here from fork to fork.
    if kept.alive >= 0 && which(kept.alive) == Some(kept.alive_is) {
        close(kept.alive);
    }
    kept.alive = -1;
    // A program that has shut itself in may be killed for a call that it never makes.
    if seccomp() == kept.seccomp {
        kept.state.forked = true;
        start(kept);
    }
}

/// Whether system calls are filtered: 0, 2, or an error.
fn seccomp() -> isize {
    const PR_GET_SECCOMP: usize = 21;
    // SAFETY: takes no pointers.
    unsafe { syscall4(nr::PRCTL, PR_GET_SECCOMP, 0, 0, 0) }
}

/// Device and inode of a descriptor; of two pipes they differ.
fn which(fd: i32) -> Option<(u64, u64)> {
    // struct stat: 144 bytes, device and inode first.
    let mut stat = [0u64; 18];
    // SAFETY: the buffer is as long as the structure.
    let done = unsafe { syscall4(nr::FSTAT, fd as usize, stat.as_mut_ptr() as usize, 0, 0) };
    (done == 0).then_some((stat[0], stat[1]))
}

fn start(kept: &mut Inherited) {
    // SAFETY: a fresh anonymous mapping, used by nobody else.
    let area = unsafe {
        syscall6(nr::MMAP, 0, AREA_BYTES, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS, usize::MAX, 0)
    };
    if area < 0 {
        return;
    }
    let area = area as usize;
    // SAFETY: `area` is page-aligned, and at least as large as State.
    let state = unsafe { &mut *(area as *mut State) };
    *state = kept.state;
    match spawn(area, state) {
        Some(alive) => {
            kept.alive = alive;
            kept.alive_is = which(alive).unwrap_or((0, 0));
        }
        // SAFETY: nobody uses the area: no agent was started.
        None => unsafe {
            syscall4(nr::MUNMAP, area, AREA_BYTES, 0, 0);
        },
    }
}

/// The program's end of the pipe.
fn spawn(area: usize, state: &mut State) -> Option<i32> {
    let mut pipe = [0i32; 2];
    let all: u64 = !0;
    let mut before: u64 = 0;
    // SAFETY: the arrays outlive the calls; DONTFORK concerns our own area only.
    unsafe {
        syscall4(nr::MADVISE, area, AREA_BYTES, MADV_DONTFORK, 0);
        if syscall4(nr::PIPE2, pipe.as_mut_ptr() as usize, O_CLOEXEC, 0, 0) < 0 {
            return None;
        }
        // Low numbers belong to the program: some assume that the next open gives 3.
        let high = syscall4(nr::FCNTL, pipe[1] as usize, F_DUPFD_CLOEXEC, 500, 0);
        if high >= 0 {
            close(pipe[1]);
            pipe[1] = high as i32;
        }
        state.alive_fd = pipe[0];
        state.program = syscall4(nr::GETPID, 0, 0, 0, 0) as i32;
        // The agent must never run a handler of the program: it starts with all signals blocked.
        syscall4(
            nr::RT_SIGPROCMASK,
            SIG_SETMASK,
            &raw const all as usize,
            &raw mut before as usize,
            8,
        );
    }
    // SAFETY: the top of the area is 16-byte aligned and unused; `serve::run` never returns.
    let pid = unsafe { spawn_sharing_memory(area + AREA_BYTES, serve::run, area) };
    // SAFETY: `before` outlives the call.
    unsafe { syscall4(nr::RT_SIGPROCMASK, SIG_SETMASK, &raw const before as usize, 0, 8) };
    close(pipe[0]);
    if pid < 0 {
        close(pipe[1]);
        return None;
    }
    Some(pipe[1])
}

/// What the beacon says: which child this is, or zeros.
pub fn read_beacon() -> [u64; 2] {
    match BEACON.load(Relaxed) {
        0 => [0; 2],
        // SAFETY: the agent that wrote the address there mapped the page, for good.
        address => unsafe { (address as *const [u64; 2]).read_volatile() },
    }
}

/// The value of environment variable `name`.
///
/// # Safety
/// `envp` is a NULL-terminated array of NUL-terminated strings that live as long as `'a`.
unsafe fn find<'a>(envp: *const *const u8, name: &str) -> Option<&'a [u8]> {
    let mut at = envp;
    // SAFETY: as the caller says; we stop at the NULL, and within each string at its NUL.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let mut len = 0;
            while *(*at).add(len) != 0 {
                len += 1;
            }
            let entry = core::slice::from_raw_parts(*at, len);
            if let Some(rest) = entry.strip_prefix(name.as_bytes())
                && let Some(value) = rest.strip_prefix(b"=")
            {
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_is_searched_by_whole_name() {
        let env = [c"CLEW_APPX=no".as_ptr(), c"CLEW_APP=editor".as_ptr(), std::ptr::null()];
        // SAFETY: a NULL-terminated array of NUL-terminated strings, alive for the test.
        let find = |name| unsafe { find(env.as_ptr().cast(), name) };
        assert_eq!(find("CLEW_APP"), Some(&b"editor"[..]));
        assert_eq!(find("CLEW"), None);
    }
}
