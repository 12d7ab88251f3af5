//! What is preloaded into a managed program.
//!
//! Nobody but a program's own memory can drop its pages, so something of ours has to run there.
//! The preloaded object's constructor ([`attach`]) starts the *agent*: a process of its own that
//! shares the program's memory and nothing else (no descriptors, no signals, no credentials it does
//! not need). It waits for the daemon's orders ([`serve`]) and does what they say; all thinking is
//! in the daemon. A thread of the program would be simpler and breaks programs: it makes
//! unshare(CLONE_NEWUSER) fail, dies of TSYNC seccomp filters, and loses its descriptors to
//! close_range.
//!
//! Rules: no allocation, no call of the C library, whose variables may be among what leaves, not even memcpy
//! (`own_memory_calls`), no lock, no thread-local storage: the agent runs with the thread pointer of the program's
//! main thread. All system calls are raw ([`sys`]).
//!
//! The crate is built twice: as a library, for the message formats ([`protocol`]) and tests, and by
//! the daemon's build script with `--cfg clew_preload` as the shared object that is preloaded.
#![cfg_attr(not(test), no_std)]

mod apart;
pub mod attach;
pub mod except;
pub mod filters;
mod home;
pub mod kept;
pub mod let_go;
mod libc_errno;
pub mod madvise;
pub mod mremap;
#[cfg(any(test, clew_preload))]
mod own_memory_calls;
pub mod protocol;
pub mod serve;
pub mod shut_in;
pub mod sys;
mod taken;
pub mod users;

#[cfg(clew_preload)]
mod preload {
    /// The dynamic loader calls this before the program's own constructors.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static INIT: unsafe extern "C" fn(i32, *const *const u8, *const *const u8) =
        crate::attach::on_load;

    // Looked up by the dynamic loader and absent where the C library has no such function: nothing
    // then runs in forked children, and they are served without an agent. Written in assembly
    // because stable Rust has no weak symbols.
    core::arch::global_asm!(
        ".weak __register_atfork",
        ".hidden clew_find_register_atfork",
        ".globl clew_find_register_atfork",
        "clew_find_register_atfork:",
        "mov rax, qword ptr [rip + __register_atfork@GOTPCREL]",
        "ret"
    );

    // The same for what [`crate::let_go`] needs of the C library.
    core::arch::global_asm!(
        ".weak dlsym",
        ".hidden clew_find_dlsym",
        ".globl clew_find_dlsym",
        "clew_find_dlsym:",
        "mov rax, qword ptr [rip + dlsym@GOTPCREL]",
        "ret",
        ".weak __errno_location",
        ".hidden clew_find_errno",
        ".globl clew_find_errno",
        "clew_find_errno:",
        "mov rax, qword ptr [rip + __errno_location@GOTPCREL]",
        "ret"
    );

    // Only glibc tells constructors what `main` will get.
    core::arch::global_asm!(
        ".weak gnu_get_libc_version",
        ".hidden clew_find_glibc",
        ".globl clew_find_glibc",
        "clew_find_glibc:",
        "mov rax, qword ptr [rip + gnu_get_libc_version@GOTPCREL]",
        "ret"
    );

    unsafe extern "C" {
        fn clew_find_glibc() -> usize;
    }

    /// Whether the C library is glibc.
    pub fn is_glibc() -> bool {
        // SAFETY: gives an address, or 0.
        unsafe { clew_find_glibc() != 0 }
    }

    type Dlsym = unsafe extern "C" fn(usize, *const core::ffi::c_char) -> usize;
    type ErrnoLocation = extern "C" fn() -> *mut i32;

    unsafe extern "C" {
        fn clew_find_dlsym() -> Option<Dlsym>;
        fn clew_find_errno() -> Option<ErrnoLocation>;
    }

    /// The function that would be called if this object had none of this name; 0 if there is none.
    pub fn next(name: &core::ffi::CStr) -> usize {
        const RTLD_NEXT: usize = usize::MAX;
        // SAFETY: gives the address of a function of this type, or None; the name is a C string.
        unsafe { clew_find_dlsym().map_or(0, |dlsym| dlsym(RTLD_NEXT, name.as_ptr())) }
    }

    /// Where the calling thread of the program has its errno.
    pub fn errno() -> Option<*mut i32> {
        // SAFETY: gives the address of a function of this type, or None.
        unsafe { clew_find_errno().map(|location| location()) }
    }

    /// Stands in for the C library's: one comparison, and on to it. A call that registers memory on a
    /// userfaultfd takes a way of its own.
    ///
    /// # Safety
    /// As ioctl(2).
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn ioctl() {
        // All argument registers are as they came, the number of vector registers in al too.
        core::arch::naked_asm!(
            "cmp esi, {register}",
            "je {slow}",
            "mov r11, qword ptr [rip + {next}]",
            "test r11, r11",
            "jz {raw}",
            "jmp r11",
            register = const crate::taken::UFFDIO_REGISTER as u32,
            slow = sym crate::let_go::register,
            raw = sym crate::let_go::call,
            next = sym crate::let_go::NEXT,
        )
    }

    /// Stands in for the C library's as [`ioctl`] does. Advice of which the daemon must know takes a way
    /// of its own.
    ///
    /// # Safety
    /// As madvise(2).
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn madvise() {
        core::arch::naked_asm!(
            "cmp edx, {wipe}",
            "je {slow}",
            "cmp edx, {guard}",
            "je {slow}",
            "mov r11, qword ptr [rip + {next}]",
            "test r11, r11",
            "jz {raw}",
            "jmp r11",
            wipe = const crate::madvise::MADV_WIPEONFORK as u32,
            guard = const crate::madvise::MADV_GUARD_INSTALL as u32,
            slow = sym crate::madvise::stand_in,
            raw = sym crate::madvise::call,
            next = sym crate::madvise::NEXT,
        )
    }

    /// Stands in for the C library's.
    ///
    /// # Safety
    /// As mremap(2).
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn mremap(
        from: usize,
        before: usize,
        after: usize,
        flags: i32,
        to: usize,
    ) -> isize {
        // SAFETY: the program's own call.
        unsafe { crate::mremap::stand_in(from, before, after, flags, to) }
    }

    /// Stands in for the C library's as [`ioctl`] does. Installing a filter of system calls takes a way of its own.
    ///
    /// # Safety
    /// As prctl(2).
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn prctl() {
        core::arch::naked_asm!(
            "cmp edi, {filter}",
            "je {slow}",
            "mov r11, qword ptr [rip + {next}]",
            "test r11, r11",
            "jz {raw}",
            "jmp r11",
            filter = const crate::filters::PR_SET_SECCOMP as u32,
            slow = sym crate::filters::prctl,
            raw = sym crate::filters::call_prctl,
            next = sym crate::filters::NEXT_PRCTL,
        )
    }

    /// Stands in for the C library's as [`prctl`] does.
    ///
    /// # Safety
    /// As syscall(2).
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn syscall() {
        core::arch::naked_asm!(
            "cmp rdi, {seccomp}",
            "je {slow}",
            "cmp rdi, {prctl}",
            "je {slow}",
            "mov r11, qword ptr [rip + {next}]",
            "test r11, r11",
            "jz {raw}",
            "jmp r11",
            seccomp = const crate::sys::nr::SECCOMP as u32,
            prctl = const crate::sys::nr::PRCTL as u32,
            slow = sym crate::filters::syscall,
            raw = sym crate::filters::call_syscall,
            next = sym crate::filters::NEXT_SYSCALL,
        )
    }

    type Handler = Option<extern "C" fn()>;
    type RegisterAtfork = extern "C" fn(Handler, Handler, Handler, *const u8) -> i32;

    unsafe extern "C" {
        fn clew_find_register_atfork() -> Option<RegisterAtfork>;
    }

    /// Has `child` called in every forked child.
    pub fn at_fork(child: extern "C" fn()) {
        /// Names this object; it is never unloaded.
        static OBJECT: u8 = 0;
        // SAFETY: gives the address of a function of this type, or 0, which is None.
        if let Some(register) = unsafe { clew_find_register_atfork() } {
            register(None, None, Some(child), &raw const OBJECT);
        }
    }

    /// The precompiled core library names it; with panic=abort nothing calls it. Hidden, so that it stands in for nobody else's.
    mod personality {
        core::arch::global_asm!(
            ".globl rust_eh_personality",
            ".hidden rust_eh_personality",
            "rust_eh_personality: ud2"
        );
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
        // Only the agent ends; the program's memory stays with the daemon's userfaultfd.
        crate::sys::exit(101)
    }
}
