//! What the agent takes from itself, in two steps: before the program it was started by goes on, and once
//! it has been prepared.
//!
//! It shares the program's memory, so the program decides what it does: whatever the agent may do, the
//! program can do through it, also after it has given up the privileges or the system calls itself.

use crate::sys::{nr, syscall4};

/// What it takes to obey orders and to end.
const ORDERS: [usize; 10] = [
    nr::RECVMSG,
    nr::SENDMSG,
    nr::PPOLL,
    nr::IOCTL,
    nr::MADVISE,
    nr::CLOSE,
    nr::KCMP,
    nr::GETPID,
    nr::EXIT,
    nr::EXIT_GROUP,
];

/// What it takes besides until the agent is prepared: nothing that opens, connects, or reaches another
/// process.
const PREPARING: [usize; 6] =
    [nr::MMAP, nr::MPROTECT, nr::MUNLOCK, nr::USERFAULTFD, nr::SECCOMP, nr::FUTEX];

/// No capabilities, none to come back, and no system calls but those of this file. Zero, or a negative
/// errno: an agent that has more than it needs is none.
pub fn give_up_privileges() -> isize {
    #[repr(C)]
    struct CapHeader {
        version: u32,
        pid: i32,
    }
    const PR_SET_NO_NEW_PRIVS: usize = 38;
    let header = CapHeader { version: 0x2008_0522, pid: 0 };
    let none = [0u32; 6];
    // SAFETY: both pointers live across the calls. Capabilities are this process's own: it shares memory
    // with the program, not credentials.
    unsafe {
        let (header, none) = (&raw const header as usize, none.as_ptr() as usize);
        let given_up = syscall4(nr::CAPSET, header, none, 0, 0);
        if given_up < 0 {
            return given_up;
        }
        let closed = syscall4(nr::PRCTL, PR_SET_NO_NEW_PRIVS, 1, 0, 0);
        if closed < 0 {
            return closed;
        }
    }
    let mut allowed = [0; ORDERS.len() + PREPARING.len()];
    allowed[..ORDERS.len()].copy_from_slice(&ORDERS);
    allowed[ORDERS.len()..].copy_from_slice(&PREPARING);
    filter(&allowed)
}

/// Only what it takes to obey orders. Zero, or a negative errno.
pub fn allow_orders_only() -> isize {
    filter(&ORDERS)
}

/// Ends this process at any system call but these.
fn filter<const N: usize>(allowed: &[usize; N]) -> isize {
    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Filter {
        code: u16,
        jt: u8,
        jf: u8,
        k: u32,
    }
    #[repr(C)]
    struct Program {
        len: u16,
        filter: *const Filter,
    }
    const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
    const KILL: u32 = 0x8000_0000;
    const ALLOW: u32 = 0x7fff_0000;
    const MOST: usize = 32;
    const { assert!(N + 6 <= MOST) };
    let (load, equal, ret) = (0x20, 0x15, 0x06);
    let mut filter = [Filter { code: ret, jt: 0, jf: 0, k: KILL }; MOST];
    filter[0] = Filter { code: load, jt: 0, jf: 0, k: 4 };
    filter[1] = Filter { code: equal, jt: 1, jf: 0, k: AUDIT_ARCH_X86_64 };
    filter[3] = Filter { code: load, jt: 0, jf: 0, k: 0 };
    for (i, number) in allowed.iter().enumerate() {
        let to_allow = (N - i) as u8;
        filter[4 + i] = Filter { code: equal, jt: to_allow, jf: 0, k: *number as u32 };
    }
    filter[5 + N].k = ALLOW;
    let program = Program { len: (N + 6) as u16, filter: filter.as_ptr() };
    const SET_MODE_FILTER: usize = 1;
    // SAFETY: what is pointed to lives across the call. Filters are this process's own.
    unsafe { syscall4(nr::SECCOMP, SET_MODE_FILTER, 0, &raw const program as usize, 0) }
}
