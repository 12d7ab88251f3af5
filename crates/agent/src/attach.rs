//! The constructor, and what runs in forked children: start the agent and get out of the way.
//!
//! It runs in every program that inherits the environment, shells and short-lived helpers
//! included, so it does the least possible: a place for its memory ([`crate::home`]), one pipe, one clone. All else is the agent's.
//! But it is waited for until the agent has connected and shut itself in ([`crate::shut_in`]): before that
//! the program must not begin. Whatever fails here leaves the program unmanaged and otherwise as it was.
//!
//! The agent is nobody's child: a program that waits for all it has (`__WALL` finds children without
//! an exit signal, too) would wait for itself. So a *go-between* starts it and ends at once, and is
//! waited for here before the program can. Whoever looks after orphans then has the agent.

use core::sync::atomic::Ordering::{Acquire, Release};

use crate::except::{self, ENV_EXCEPT};
use crate::filters;
use crate::home::Home;
use crate::kept::{Inherited, KEPT, STARTED, STARTING, State, seccomp, started};
use crate::protocol::{AREA_BYTES, ENV_APP, ENV_SOCKET, MAX_NAME};
use crate::serve;
use crate::sys::{
    FUTEX_WAIT, SIG_SETMASK, Timespec, close, errno, exit, nr, spawn_sharing_memory, syscall4,
};

const O_CLOEXEC: usize = 0o2000000;
const F_DUPFD_CLOEXEC: usize = 1030;
const WNOHANG: usize = 1;
const WALL: usize = 0x4000_0000;
/// Where in the area the stack of the go-between ends; the agent's is above.
const GO_BETWEEN_STACK: usize = 8 << 10;
/// How often the go-between is waited for where waiting fails.
const WAIT_TRIES: u32 = 16;
/// How long an agent may take to start: it needs a processor, and nobody's answer.
const START_SECONDS: i64 = 10;

/// Called by the dynamic loader with what `main` will get.
///
/// # Safety
/// `envp` is the program's environment: a NULL-terminated array of NUL-terminated strings.
pub unsafe extern "C" fn on_load(_argc: i32, _argv: *const *const u8, envp: *const *const u8) {
    #[cfg(clew_preload)]
    {
        crate::let_go::find_next();
        crate::madvise::find_next();
        crate::mremap::find_next();
        crate::filters::find_next();
        // Others hand over nothing at all, so nobody knows what is in `envp`.
        if !crate::preload::is_glibc() {
            return;
        }
    }
    // SAFETY: the loader hands over the program's environment, valid for the whole call.
    let (path, name) = unsafe { (find(envp, ENV_SOCKET), find(envp, ENV_APP)) };
    let Some(path) = path.filter(|p| !p.is_empty() && p.len() < 108) else { return };
    // SAFETY: as above; a value ends with its entry's zero.
    let excepts = unsafe { find(envp, ENV_EXCEPT) }.filter(|list| !list.is_empty());
    // SAFETY: the same.
    if excepts.is_some_and(|list| unsafe { except::is_excepted(list) }) {
        return;
    }
    // SAFETY: the same.
    if unsafe { find(envp, ENV_PRELOAD) }.is_some_and(is_in_valgrind) {
        return;
    }
    let name = name.filter(|n| n.len() <= MAX_NAME).unwrap_or(&[]);
    // SAFETY: the program has one thread yet, and nobody else refers to it.
    let kept = unsafe { &mut *KEPT.0.get() };
    kept.state.path[..path.len()].copy_from_slice(path);
    kept.state.name[..name.len()].copy_from_slice(name);
    kept.state.name_len = name.len();
    kept.seccomp = seccomp();
    filters::are_those_of_this_process();
    // A daemon may come later, and a child be its.
    kept.home = Home::take();
    start(kept);
    #[cfg(clew_preload)]
    crate::preload::at_fork(on_fork);
}

/// Environment variable of what the loader was to load first.
const ENV_PRELOAD: &str = "LD_PRELOAD";

/// Whether valgrind is what runs the program. It would have no agent either way, as valgrind knows not all of the calls that
/// starting one takes; but it says so where the program says its errors.
fn is_in_valgrind(preloaded: &[u8]) -> bool {
    let its = b"/vgpreload_core-";
    preloaded.windows(its.len()).any(|part| part == its)
}

/// Called by the C library in a forked child, before fork() returns there.
#[cfg_attr(not(clew_preload), allow(dead_code))]
extern "C" fn on_fork() {
    // SAFETY: a forked child has one thread, and its agent does not run yet.
    let kept = unsafe { &mut *KEPT.0.get() };
    // A program that has shut itself in may be killed for a call that it never makes.
    if !kept.may_call() {
        return filters::may_be_installed();
    }
    filters::are_those_of_this_process();
    // The parent's end of its pipe would pile up here from fork to fork.
    if kept.alive >= 0 && which(kept.alive) == Some(kept.alive_is) {
        close(kept.alive);
    }
    kept.alive = -1;
    if kept.home.is_some_and(Home::take_again) {
        kept.state.forked = true;
        start(kept);
    }
}

/// Device and inode of a descriptor; of two pipes they differ.
fn which(fd: i32) -> Option<(u64, u64)> {
    // struct stat: 144 bytes, device and inode first.
    let mut stat = [0u64; 18];
    // SAFETY: the buffer is as long as the structure.
    let done = unsafe { syscall4(nr::FSTAT, fd as usize, stat.as_mut_ptr() as usize, 0, 0) };
    (done == 0).then_some((stat[0], stat[1]))
}

/// Whether there is anything at this path, NUL-terminated.
fn is_there(path: &[u8; 108]) -> bool {
    const AT_FDCWD: usize = -100isize as usize;
    // struct stat: 144 bytes.
    let mut stat = [0u64; 18];
    // SAFETY: the path ends with a zero, and the buffer is as long as the structure.
    let done = unsafe {
        let (path, to) = (path.as_ptr() as usize, stat.as_mut_ptr() as usize);
        syscall4(nr::NEWFSTATAT, AT_FDCWD, path, to, 0)
    };
    done == 0
}

fn start(kept: &mut Inherited) {
    // In a whole session there may be no daemon for long: then each program begins as without Clew.
    if !is_there(&kept.state.path) {
        return;
    }
    let Some(home) = kept.home else { return };
    if !home.open_area() {
        return;
    }
    let area = home.area();
    // SAFETY: `area` is page-aligned, and at least as large as State.
    let state = unsafe { &mut *(area as *mut State) };
    *state = kept.state;
    match spawn(area, state) {
        Some(alive) => {
            kept.alive = alive;
            kept.alive_is = which(alive).unwrap_or((0, 0));
        }
        // SAFETY: nobody uses the area: no agent was started.
        None => unsafe { home.close_area() },
    }
}

/// The program's end of the pipe.
fn spawn(area: usize, state: &mut State) -> Option<i32> {
    let mut pipe = [0i32; 2];
    // SAFETY: the array outlives the calls.
    unsafe {
        state.program = syscall4(nr::GETPID, 0, 0, 0, 0) as i32;
        if !can_wait(state.program) || !children_join_this_namespace() {
            return None;
        }
        if syscall4(nr::PIPE2, pipe.as_mut_ptr() as usize, O_CLOEXEC, 0, 0) < 0 {
            return None;
        }
        // Low numbers belong to the program: some assume that the next open gives 3.
        // As high as it may have one.
        let higher = |least| syscall4(nr::FCNTL, pipe[1] as usize, F_DUPFD_CLOEXEC, least, 0);
        if let Some(high) = [500, 250, 120, 60, 30].map(higher).into_iter().find(|fd| *fd >= 0) {
            close(pipe[1]);
            pipe[1] = high as i32;
        }
        state.alive_fd = pipe[0];
        state.program_fd = syscall4(nr::PIDFD_OPEN, state.program as usize, 0, 0, 0) as i32;
    }
    let started = state.program_fd >= 0 && start_orphan(area, state);
    close(state.program_fd);
    close(pipe[0]);
    if !started {
        close(pipe[1]);
        return None;
    }
    Some(pipe[1])
}

/// Whether the program may wait for children: there is none that is itself.
fn can_wait(program: i32) -> bool {
    // SAFETY: takes no pointers.
    unsafe { syscall4(nr::WAIT4, program as usize, 0, WNOHANG, 0) == -errno::ECHILD }
}

/// Whether the next child is in the program's pid namespace. Otherwise it is the first of a new one,
/// where nobody can start any more once it has ended: the program's to choose.
fn children_join_this_namespace() -> bool {
    const AT_FDCWD: usize = -100isize as usize;
    let inode = |path: &core::ffi::CStr| {
        // struct stat: 144 bytes, device and inode first.
        let mut stat = [0u64; 18];
        let buffer = stat.as_mut_ptr() as usize;
        // SAFETY: a constant string, and a buffer that is as long as the structure.
        unsafe { syscall4(nr::NEWFSTATAT, AT_FDCWD, path.as_ptr() as usize, buffer, 0) };
        stat[1]
    };
    let own = inode(c"/proc/self/ns/pid");
    // Where nobody can tell (there is no /proc here), it may be another one.
    own != 0 && own == inode(c"/proc/self/ns/pid_for_children")
}

/// Starts the agent as an orphan. False if there is none, and nobody uses the area.
fn start_orphan(area: usize, state: &mut State) -> bool {
    const PR_SET_CHILD_SUBREAPER: usize = 36;
    const PR_GET_CHILD_SUBREAPER: usize = 37;
    let all: u64 = !0;
    let mut before: u64 = 0;
    let mut subreaper = 0i32;
    let set_subreaper =
        // SAFETY: takes no pointers.
        |on: usize| unsafe { syscall4(nr::PRCTL, PR_SET_CHILD_SUBREAPER, on, 0, 0) };
    // SAFETY: the numbers outlive the calls.
    unsafe {
        // Else it would be given every orphan of its own, and of its agent. What its children leave
        // behind in this moment goes further up, too.
        syscall4(nr::PRCTL, PR_GET_CHILD_SUBREAPER, &raw mut subreaper as usize, 0, 0);
        // The agent must never run a handler of the program: it starts with all signals blocked.
        let (all, before) = (&raw const all as usize, &raw mut before as usize);
        syscall4(nr::RT_SIGPROCMASK, SIG_SETMASK, all, before, 8);
    }
    if subreaper != 0 {
        set_subreaper(0);
    }
    let state: *mut State = state;
    // SAFETY: both stacks are 16-byte aligned and unused, what runs there never returns, and the
    // state is the agent's alone while it runs: the program looks at it again when it has started.
    let is_there = unsafe {
        let agents_pid = &raw mut (*state).agent;
        if (*state).program == 1 {
            // Who looks after orphans in its namespace is it itself, and would be told of this one's
            // end as of a child's. As its child without an exit signal it shows with __WALL only.
            spawn_agent(area)
        } else {
            let mut pid = 0;
            let (top, nobody) = (area + GO_BETWEEN_STACK, core::ptr::null_mut());
            let is_there =
                spawn_sharing_memory(top, true, &raw mut pid, nobody, go_between, area) > 0;
            // One that cannot be waited for may still run.
            is_there && (!reap(pid) || agents_pid.read_volatile() != 0)
        }
    };
    // SAFETY: as long as the agent may run, its area is there.
    let started = is_there && unsafe { has_started(area) };
    if subreaper != 0 {
        set_subreaper(1);
    }
    // SAFETY: `before` outlives the call.
    unsafe { syscall4(nr::RT_SIGPROCMASK, SIG_SETMASK, &raw const before as usize, 0, 8) };
    started
}

/// Starts the agent and leaves it alone. It shares the program's descriptors, so that its end closes
/// none: that of a file on a network can take its time.
///
/// # Safety
/// Called once, on a stack of its own, with the address of a [`State`] nobody else uses.
unsafe extern "C" fn go_between(area: usize) -> ! {
    // SAFETY: as the caller says.
    if !unsafe { spawn_agent(area) } {
        // SAFETY: the area is there as long as somebody waits for an agent.
        unsafe { started(area) }.store(0, Release);
    }
    exit(0)
}

/// Starts the agent; false if the system does not.
///
/// # Safety
/// Called once, with the address of a [`State`] nobody else uses.
unsafe fn spawn_agent(area: usize) -> bool {
    let state = area as *mut State;
    // SAFETY: the agent's stack is unused, and `run` is called this once.
    unsafe {
        let (agents_pid, alive) = (&raw mut (*state).agent, &raw mut (*state).started);
        spawn_sharing_memory(area + AREA_BYTES, false, agents_pid, alive, serve::run, area) > 0
    }
}

/// Waits until the agent at `area` has started; false if it has ended. One that does not come to it is
/// ended.
///
/// # Safety
/// As [`started`].
unsafe fn has_started(area: usize) -> bool {
    const SIGKILL: usize = 9;
    // SAFETY: as the caller says.
    let word = unsafe { started(area) };
    let patience = Timespec { seconds: START_SECONDS, nanoseconds: 0 };
    let mut is_killed = false;
    loop {
        match word.load(Acquire) {
            0 => return false,
            STARTED => return true,
            _ => {}
        }
        // SAFETY: both live across the calls; the process is the agent, which has not ended.
        unsafe {
            let (at, wait) = (word.as_ptr() as usize, &raw const patience as usize);
            let waited = syscall4(nr::FUTEX, at, FUTEX_WAIT, STARTING as usize, wait);
            if waited == -errno::ETIMEDOUT {
                if is_killed {
                    // It cannot even die. The area stays its own.
                    return true;
                }
                is_killed = true;
                let agent = (&raw const (*(area as *const State)).agent).read_volatile();
                syscall4(nr::KILL, agent as usize, SIGKILL, 0, 0);
            }
        }
    }
}

/// Waits for the end of the go-between; false if that fails again and again.
fn reap(pid: i32) -> bool {
    let mut tries = 0;
    while tries < WAIT_TRIES {
        // SAFETY: no status is asked for.
        match unsafe { syscall4(nr::WAIT4, pid as usize, 0, WALL, 0) } {
            ended if ended == pid as isize => return true,
            failed if failed == -errno::EINTR => {}
            _ => tries += 1,
        }
    }
    false
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

    #[test]
    fn valgrind_is_known_by_what_it_preloads() {
        let its = b"/usr/libexec/valgrind/vgpreload_core-amd64-linux.so:/x/libclew_agent.so";
        assert!(is_in_valgrind(its));
        assert!(!is_in_valgrind(b"/x/libclew_agent.so") && !is_in_valgrind(b""));
    }
}
