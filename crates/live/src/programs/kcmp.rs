//! Whether two processes have one memory, as the kernel says.

use crate::programs::proc_stat::Thread;

/// Whether process `pid` runs in the memory of `agent`; `None` if nobody can tell.
pub fn runs_in_memory_of(agent: u32, pid: u32) -> Option<bool> {
    let said = share_memory(agent, pid);
    // Asked of a thread that lives on: what was compared is its memory, and not that of who has its number now.
    let has_it =
        |thread: Thread| share_memory(agent, thread.number) == Some(true) && thread.lives();
    if said == Some(false) && Thread::living(pid).any(has_it) { Some(true) } else { said }
}

/// Whether two processes share one memory; `None` if nobody can tell.
pub fn share_memory(a: u32, b: u32) -> Option<bool> {
    const KCMP_VM: libc::c_int = 1;
    // SAFETY: takes no pointers.
    match unsafe { libc::syscall(libc::SYS_kcmp, a, b, KCMP_VM, 0, 0) } {
        0 => Some(true),
        n if n > 0 => Some(false),
        _ => None,
    }
}
