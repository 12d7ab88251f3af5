//! Copying, filling and comparing memory, which compiled code calls by name.
//!
//! The C library's would do it, but read variables of its own: how much is copied past the caches, say. These
//! lie in the program's memory, beside what the program allocates, and leave with it. An agent that copies them away would
//! wait for itself. So the object has its own, hidden from the program, and is linked against nobody.

use core::arch::global_asm;

// Each takes and gives what the C standard says. The direction flag is clear at each call.
global_asm!(
    ".hidden clew_memcpy",
    ".globl clew_memcpy",
    "clew_memcpy:",
    "mov rax, rdi",
    "mov rcx, rdx",
    "shr rcx, 3",
    "rep movsq",
    "mov rcx, rdx",
    "and rcx, 7",
    "rep movsb",
    "ret",
    ".hidden clew_memmove",
    ".globl clew_memmove",
    "clew_memmove:",
    "mov rcx, rdi",
    "sub rcx, rsi",
    // Below its source, or beyond its end: nothing is written that is still to be read.
    "cmp rcx, rdx",
    "jae clew_memcpy",
    "mov rax, rdi",
    "mov rcx, rdx",
    "lea rdi, [rdi + rdx - 1]",
    "lea rsi, [rsi + rdx - 1]",
    "std",
    "rep movsb",
    "cld",
    "ret",
    ".hidden clew_memset",
    ".globl clew_memset",
    "clew_memset:",
    "mov r8, rdi",
    "mov rcx, rdx",
    "mov eax, esi",
    "rep stosb",
    "mov rax, r8",
    "ret",
    ".hidden clew_memcmp",
    ".globl clew_memcmp",
    "clew_memcmp:",
    "xor eax, eax",
    "mov rcx, rdx",
    // Equal where there is nothing to compare.
    "cmp eax, eax",
    "repe cmpsb",
    "je 2f",
    "movzx eax, byte ptr [rdi - 1]",
    "movzx ecx, byte ptr [rsi - 1]",
    "sub eax, ecx",
    "2:",
    "ret",
    ".hidden clew_strlen",
    ".globl clew_strlen",
    "clew_strlen:",
    "mov rax, -1",
    "3:",
    "inc rax",
    "cmp byte ptr [rdi + rax], 0",
    "jne 3b",
    "ret",
);

#[cfg(clew_preload)]
global_asm!(
    ".macro called name, own",
    ".globl \\name",
    ".hidden \\name",
    ".set \\name, \\own",
    ".endm",
    "called memcpy, clew_memcpy",
    "called memmove, clew_memmove",
    "called memset, clew_memset",
    "called memcmp, clew_memcmp",
    "called bcmp, clew_memcmp",
    "called strlen, clew_strlen",
    ".purgem called",
);

#[cfg(test)]
mod tests {
    use core::cmp::Ordering;
    use core::ffi::{c_char, c_int};

    unsafe extern "C" {
        fn clew_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
        fn clew_memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
        fn clew_memset(to: *mut u8, byte: c_int, bytes: usize) -> *mut u8;
        fn clew_memcmp(one: *const u8, other: *const u8, bytes: usize) -> c_int;
        fn clew_strlen(text: *const c_char) -> usize;
    }

    const LONG: usize = 70;

    /// No two bytes alike.
    fn bytes() -> [u8; LONG] {
        core::array::from_fn(|i| i as u8 + 100)
    }

    #[test]
    fn they_copy_fill_and_move_so_many_bytes_and_no_others() {
        for count in 0..LONG {
            let (mut copied, mut filled) = ([7; LONG + 2], [7; LONG + 2]);
            let from = bytes();
            // SAFETY: both are longer than that, and do not overlap.
            let told = unsafe {
                let to = copied.as_mut_ptr().add(1);
                (clew_memcpy(to, from.as_ptr(), count), to)
            };
            assert_eq!(told.0, told.1);
            // SAFETY: it is longer than that.
            let told = unsafe {
                let to = filled.as_mut_ptr().add(1);
                (clew_memset(to, 0x1_0035, count), to)
            };
            assert_eq!(told.0, told.1);
            for i in 0..LONG + 2 {
                let is_inside = (1..=count).contains(&i);
                assert_eq!(copied[i], if is_inside { from[i - 1] } else { 7 }, "{i} of {count}");
                assert_eq!(filled[i], if is_inside { 0x35 } else { 7 }, "{i} of {count}");
            }
        }
    }

    #[test]
    fn what_overlaps_is_moved_as_it_was() {
        for (from, to, count) in
            (0..24).flat_map(|from| (0..24).flat_map(move |to| (0..40).map(move |n| (from, to, n))))
        {
            let (mut moved, mut wanted) = (bytes(), bytes());
            wanted.copy_within(from..from + count, to);
            // SAFETY: both places are inside.
            let told = unsafe {
                let (to, from) = (moved.as_mut_ptr().add(to), moved.as_ptr().add(from));
                (clew_memmove(to, from, count), to)
            };
            assert_eq!((told.0, moved), (told.1, wanted), "{count} from {from} to {to}");
        }
    }

    #[test]
    fn the_first_byte_that_differs_decides_and_a_zero_ends() {
        for (at, ours, theirs) in [(0, 1, 255), (3, 255, 1), (68, 0, 9), (69, 9, 0), (5, 4, 4)] {
            let (mut one, mut other) = (bytes(), bytes());
            (one[at], other[at]) = (ours, theirs);
            for count in 0..=LONG {
                // SAFETY: both are as long.
                let told = unsafe { clew_memcmp(one.as_ptr(), other.as_ptr(), count) };
                let wanted = one[..count].cmp(&other[..count]);
                assert_eq!(told.cmp(&0), wanted, "{count} with {at}");
                assert!(count > at || wanted == Ordering::Equal);
            }
        }
        for (text, length) in [(c"", 0), (c"a", 1), (c"clew", 4)] {
            // SAFETY: it ends with a zero.
            assert_eq!(unsafe { clew_strlen(text.as_ptr()) }, length);
        }
    }
}
