//! Raw system calls, x86-64.
//!
//! Results are the kernel's: negative errno, or the value. Nothing here touches errno, memory the
//! caller did not name, or thread-local storage.

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the agent's system calls are written for x86-64");

use core::arch::asm;
use core::ptr::null_mut;

/// System call numbers that the agent uses.
pub mod nr {
    pub const READ: usize = 0;
    pub const CLOSE: usize = 3;
    pub const FSTAT: usize = 5;
    pub const MMAP: usize = 9;
    pub const MPROTECT: usize = 10;
    pub const MUNMAP: usize = 11;
    pub const RT_SIGPROCMASK: usize = 14;
    pub const IOCTL: usize = 16;
    pub const MREMAP: usize = 25;
    pub const MADVISE: usize = 28;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const RECVFROM: usize = 45;
    pub const SENDMSG: usize = 46;
    pub const RECVMSG: usize = 47;
    pub const SETSOCKOPT: usize = 54;
    pub const GETSOCKOPT: usize = 55;
    pub const EXIT: usize = 60;
    pub const WAIT4: usize = 61;
    pub const MUNLOCK: usize = 150;
    pub const FCNTL: usize = 72;
    pub const CHDIR: usize = 80;
    pub const GETPID: usize = 39;
    pub const GETEUID: usize = 107;
    pub const SETSID: usize = 112;
    pub const CAPSET: usize = 126;
    pub const KILL: usize = 62;
    pub const FUTEX: usize = 202;
    pub const TGKILL: usize = 234;
    pub const PRCTL: usize = 157;
    pub const EXIT_GROUP: usize = 231;
    pub const CLOCK_GETTIME: usize = 228;
    pub const OPENAT: usize = 257;
    pub const NEWFSTATAT: usize = 262;
    pub const READLINKAT: usize = 267;
    pub const PPOLL: usize = 271;
    pub const PIPE2: usize = 293;
    pub const KCMP: usize = 312;
    pub const SECCOMP: usize = 317;
    pub const USERFAULTFD: usize = 323;
    pub const PIDFD_OPEN: usize = 434;
    pub const CLOSE_RANGE: usize = 436;
}

/// Errors that the agent tells apart.
pub mod errno {
    pub const ENOENT: isize = 2;
    pub const ESRCH: isize = 3;
    pub const EINTR: isize = 4;
    pub const ECHILD: isize = 10;
    pub const EAGAIN: isize = 11;
    pub const ENOMEM: isize = 12;
    pub const EFAULT: isize = 14;
    pub const EBUSY: isize = 16;
    pub const EEXIST: isize = 17;
    pub const ENOTDIR: isize = 20;
    pub const ENFILE: isize = 23;
    pub const EMFILE: isize = 24;
    pub const EPROTO: isize = 71;
    pub const ENOBUFS: isize = 105;
    pub const ETIMEDOUT: isize = 110;
}

/// One system call.
///
/// # Safety
/// As the system call's own: pointers must be valid for what the kernel does with them.
#[inline(always)]
pub unsafe fn syscall6(
    number: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> isize {
    let result: isize;
    // SAFETY: the caller vouches for the arguments; the kernel clobbers rcx and r11 only.
    unsafe {
        asm!("syscall", inlateout("rax") number as isize => result,
             in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
             lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A system call of up to four arguments.
///
/// # Safety
/// As [`syscall6`].
#[inline(always)]
pub unsafe fn syscall4(number: usize, a: usize, b: usize, c: usize, d: usize) -> isize {
    // SAFETY: passed on to the caller.
    unsafe { syscall6(number, a, b, c, d, 0, 0) }
}

/// Starts a process that shares this one's memory (and with `files` its descriptors and working
/// directory), runs `entry(argument)` on `stack_top`, and sends no signal when it ends. No tracer of
/// this process traces it. Returns its pid, which `pid` holds before it runs and however this process
/// ends meanwhile; or a negative errno. When it ends, the kernel sets `alive` to zero and wakes who
/// waits there (FUTEX_WAIT), unless that is null.
///
/// # Safety
/// `stack_top` is the 16-byte aligned end of a writable area that nothing else uses; `entry` never
/// returns and follows the crate's rules; `pid` may be written, and `alive` as long as it runs.
pub unsafe fn spawn_sharing_memory(
    stack_top: usize,
    files: bool,
    pid: *mut i32,
    alive: *mut u32,
    entry: unsafe extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    let shared = if files { CLONE_FS | CLONE_FILES } else { 0 };
    let told = if alive.is_null() { 0 } else { CLONE_CHILD_CLEARTID };
    let flags = CLONE_VM | CLONE_PARENT_SETTID | CLONE_UNTRACED | shared | told;
    // SAFETY: as the caller says.
    unsafe { clone(flags, stack_top, pid, alive, entry, argument) }
}

/// Starts one more thread of this process, which has its descriptors, runs `entry(argument)` on `stack_top`, with the
/// signals blocked that are blocked here, and ends by [`exit_thread`]. Its number, or a negative errno. The C library
/// does not know of it.
///
/// # Safety
/// As of [`spawn_sharing_memory`]; `entry` uses nothing of a thread's own, and must have ended before `stack_top` is of
/// any other use.
pub unsafe fn spawn_thread(
    stack_top: usize,
    entry: unsafe extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    const CLONE_SIGHAND: usize = 0x800;
    const CLONE_THREAD: usize = 0x1_0000;
    let of_this_process = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_FS | CLONE_FILES;
    let flags = of_this_process | CLONE_UNTRACED;
    // SAFETY: as the caller says; without flags that say so nothing is written to the null pointers.
    unsafe { clone(flags, stack_top, null_mut(), null_mut(), entry, argument) }
}

const CLONE_VM: usize = 0x100;
const CLONE_FS: usize = 0x200;
const CLONE_FILES: usize = 0x400;
const CLONE_PARENT_SETTID: usize = 0x10_0000;
const CLONE_CHILD_CLEARTID: usize = 0x20_0000;
const CLONE_UNTRACED: usize = 0x80_0000;

/// # Safety
/// As of those above, with flags that share the memory.
unsafe fn clone(
    flags: usize,
    stack_top: usize,
    pid: *mut i32,
    alive: *mut u32,
    entry: unsafe extern "C" fn(usize) -> !,
    argument: usize,
) -> isize {
    const CLONE: usize = 56;
    let result: isize;
    // SAFETY: the child starts with a copy of the registers on its own stack and calls `entry`,
    // which does not return; the parent falls through with its own stack untouched.
    unsafe {
        asm!("syscall",
             "test rax, rax",
             "jnz 2f",
             "xor ebp, ebp",
             "mov rdi, r13",
             "call r12",
             "ud2",
             "2:",
             inlateout("rax") CLONE as isize => result,
             in("rdi") flags, in("rsi") stack_top, in("rdx") pid, in("r10") alive,
             in("r8") 0usize, in("r12") entry as usize, in("r13") argument,
             lateout("rcx") _, lateout("r11") _);
    }
    result
}

/// How of rt_sigprocmask(2): the mask is this one.
pub const SIG_SETMASK: usize = 2;
/// Operation of futex(2).
pub const FUTEX_WAIT: usize = 0;
/// Of mmap(2) and mprotect(2).
pub const PROT_READ_WRITE: usize = 3;
pub const MAP_PRIVATE: usize = 2;
pub const MAP_ANONYMOUS: usize = 0x20;

/// A span, or a time, as the kernel has it.
#[repr(C)]
pub struct Timespec {
    pub seconds: i64,
    pub nanoseconds: i64,
}

/// This thread does nothing for so long: less than a second.
pub fn pause(nanoseconds: i64) {
    let wait = Timespec { seconds: 0, nanoseconds };
    // SAFETY: `wait` lives across the call.
    unsafe { syscall6(nr::PPOLL, 0, 0, &raw const wait as usize, 0, 8, 0) };
}

/// Ends this thread.
pub fn exit_thread() -> ! {
    loop {
        // SAFETY: takes no pointers.
        unsafe { syscall4(nr::EXIT, 0, 0, 0, 0) };
    }
}

/// Ends this process.
pub fn exit(code: usize) -> ! {
    loop {
        // SAFETY: takes no pointers.
        unsafe { syscall4(nr::EXIT_GROUP, code, 0, 0, 0) };
    }
}

/// Closes a descriptor.
pub fn close(fd: i32) {
    // SAFETY: takes no pointers.
    unsafe { syscall4(nr::CLOSE, fd as usize, 0, 0, 0) };
}
