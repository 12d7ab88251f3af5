//! The BPF program that reads accessed bits, put together at run time: where the kernel keeps what it
//! needs differs from kernel to kernel.
//!
//! It follows the page tables of x86-64 (Intel SDM, volume 3A, 4.5) from the process's root to the table of one
//! run of 512 pages, by reads that fail where there is nothing (`bpf_probe_read_kernel`), and answers one bit a
//! page: there, and accessed. Nothing else of what it reads leaves the kernel but where the root is, which is
//! needed to find where the kernel sees physical memory. It takes no lock, waits for nobody and writes nothing;
//! a table that is given back meanwhile may make it answer wrong. What such a table says must lie below the end of memory, or it
//! is not followed: devices have addresses, too, and some notice a read.

use super::btf::{Btf, BtfError};

/// Pages of one table.
pub const TABLE_PAGES: u64 = 512;

/// What the kernel is told of the program's licence: what it calls is for programs that the GPL permits, too.
/// This one, as the rest of Clew, is under the MIT licence by choice.
pub const LICENCE: &std::ffi::CStr = c"Dual MIT/GPL";

/// What it is asked, and answers.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct Question {
    /// Process, as the caller's namespace numbers it.
    pub pid: u32,
    pub reserved: u32,
    /// Of the first of the pages: a multiple of 2 MiB.
    pub address: u64,
    /// Where the kernel sees physical memory.
    pub direct_map: u64,
    /// The physical address behind all of it.
    pub memory_end: u64,
    /// Answer: where it sees the process's root.
    pub root: u64,
    /// Answer: one bit a page, the first page lowest.
    pub accessed: [u32; 16],
}

/// What it returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Found {
    /// None of the pages is there.
    Nothing = 0,
    /// They are in a table; the bits are set.
    Table = 1,
    /// They are one huge page that was not accessed.
    HugeUntouched = 2,
    /// And one that was.
    HugeTouched = 3,
    /// There is no such process, or it has no memory.
    NoProcess = 4,
    /// What should be a table could not be read, or lies behind all memory.
    Unreadable = 5,
}

impl Found {
    /// By what the program returned.
    pub fn of(number: u32) -> Option<Found> {
        use Found::*;
        [Nothing, Table, HugeUntouched, HugeTouched, NoProcess, Unreadable]
            .into_iter()
            .find(|found| *found as u32 == number)
    }
}

/// Where a kernel keeps what the program needs.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    task_from_number: u32,
    task_release: u32,
    memory_of_task: u32,
    root_of_memory: u32,
}

impl Kernel {
    /// By its description. `all_alike`: the caller numbers processes as the first namespace does, which is how
    /// kernels before 6.14 find them.
    pub fn of(btf: &Btf<'_>, all_alike: bool) -> Result<Kernel, BtfError> {
        let by_first = |lacks| match all_alike {
            true => btf.function("bpf_task_from_pid"),
            false => Err(lacks),
        };
        Ok(Kernel {
            task_from_number: btf.function("bpf_task_from_vpid").or_else(by_first)?,
            task_release: btf.function("bpf_task_release")?,
            memory_of_task: btf.offset("task_struct", "mm")?,
            root_of_memory: btf.offset("mm_struct", "pgd")?,
        })
    }
}

// Registers, and the instructions that are used (`Documentation/bpf/standardization/instruction-set.rst`).
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
/// The question.
const ASKED: u8 = 6;
/// A task, then the table that is looked at.
const TABLE: u8 = 7;
/// The bits that have been put together.
const BITS: u8 = 8;
const FRAME: u8 = 10;

const ADD: u8 = 0x07;
const OR: u8 = 0x47;
const AND: u8 = 0x57;
const SHIFT_LEFT: u8 = 0x67;
const SHIFT_RIGHT: u8 = 0x77;
const MOVE: u8 = 0xb7;
/// The second operand is a register.
const BY_REGISTER: u8 = 0x08;
const LOAD_32: u8 = 0x61;
const LOAD_64: u8 = 0x79;
const STORE_32: u8 = 0x63;
const STORE_64: u8 = 0x7b;
const IF_EQUAL: u8 = 0x15;
const IF_NOT_EQUAL: u8 = 0x55;
/// Unsigned.
const IF_AT_LEAST: u8 = 0x35;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
/// In place of a register, in a call: a function of the kernel by its number in the BTF.
const OF_KERNEL: u8 = 2;
const PROBE_READ_KERNEL: i32 = 113;

/// Bits of an entry: present, huge, accessed.
const PRESENT: i32 = 1;
const ACCESSED_SHIFT: i32 = 5;
const HUGE: i32 = 0x80;
/// Entries that are read at once: the stack has 512 bytes.
const AT_ONCE: usize = 32;
/// Where they are on the stack, and where one word is.
const ENTRIES: i16 = -8 - 8 * AT_ONCE as i16;
const WORD: i16 = -8;

/// Instructions, and jumps whose goal is not known yet.
#[derive(Default)]
struct Code {
    words: Vec<u64>,
    jumps: Vec<(usize, Found)>,
}

impl Code {
    fn put(&mut self, code: u8, (to, from): (u8, u8), offset: i16, number: i32) {
        let low = u64::from(code) | u64::from(to | from << 4) << 8;
        self.words.push(low | u64::from(offset as u16) << 16 | u64::from(number as u32) << 32);
    }

    fn number(&mut self, what: u8, to: u8, number: i32) {
        self.put(what, (to, 0), 0, number);
    }

    fn register(&mut self, what: u8, to: u8, from: u8) {
        self.put(what | BY_REGISTER, (to, from), 0, 0);
    }

    /// Ends with this answer, if so.
    fn end_if(&mut self, condition: u8, of: u8, number: i32, found: Found) {
        self.jumps.push((self.words.len(), found));
        self.put(condition, (of, 0), 0, number);
    }

    /// The same, compared with a register.
    fn end_if_register(&mut self, condition: u8, of: u8, with: u8, found: Found) {
        self.jumps.push((self.words.len(), found));
        self.put(condition | BY_REGISTER, (of, with), 0, 0);
    }

    /// Calls a function of the kernel with what is in the first register.
    fn call(&mut self, function: u32) {
        self.put(CALL, (0, OF_KERNEL), 0, function as i32);
    }

    /// Reads so many bytes from where the third register says to this place of the stack.
    fn read(&mut self, bytes: usize, to: i16) {
        self.register(MOVE, R1, FRAME);
        self.number(ADD, R1, to.into());
        self.number(MOVE, R2, bytes as i32);
        self.number(CALL, 0, PROBE_READ_KERNEL);
        self.end_if(IF_NOT_EQUAL, R0, 0, Found::Unreadable);
    }

    /// What every answer ends in.
    fn end(mut self, found: Found) -> Vec<u64> {
        let mut ends = vec![(found, self.words.len())];
        self.number(MOVE, R0, found as i32);
        self.number(EXIT, 0, 0);
        for (at, found) in std::mem::take(&mut self.jumps) {
            let known = ends.iter().find(|(of, _)| *of == found).map(|(_, end)| *end);
            let end = known.unwrap_or_else(|| {
                ends.push((found, self.words.len()));
                self.number(MOVE, R0, found as i32);
                self.number(EXIT, 0, 0);
                self.words.len() - 2
            });
            // Counted from the instruction behind the jump.
            self.words[at] |= ((end - at - 1) as u64) << 16;
        }
        self.words
    }
}

/// The field of the question.
macro_rules! at {
    ($field:ident) => {
        std::mem::offset_of!(Question, $field) as i16
    };
}

/// The program, for page tables of so many levels.
pub fn program(kernel: &Kernel, levels: u32) -> Vec<u64> {
    let mut code = Code::default();
    code.register(MOVE, ASKED, R1);
    code.put(LOAD_32, (R1, ASKED), at!(pid), 0);
    code.call(kernel.task_from_number);
    code.end_if(IF_EQUAL, R0, 0, Found::NoProcess);
    code.register(MOVE, TABLE, R0);
    code.register(MOVE, R3, TABLE);
    code.number(ADD, R3, kernel.memory_of_task as i32);
    code.register(MOVE, R1, FRAME);
    code.number(ADD, R1, WORD.into());
    code.number(MOVE, R2, 8);
    code.number(CALL, 0, PROBE_READ_KERNEL);
    // A task that was got must be given back, whatever the read said.
    code.register(MOVE, BITS, R0);
    code.register(MOVE, R1, TABLE);
    code.call(kernel.task_release);
    code.end_if(IF_NOT_EQUAL, BITS, 0, Found::Unreadable);
    code.put(LOAD_64, (R3, FRAME), WORD, 0);
    code.end_if(IF_EQUAL, R3, 0, Found::NoProcess);
    code.number(ADD, R3, kernel.root_of_memory as i32);
    code.read(8, WORD);
    code.put(LOAD_64, (TABLE, FRAME), WORD, 0);
    code.put(STORE_64, (ASKED, TABLE), at!(root), 0);
    for level in (2..=levels).rev() {
        // Nine bits of the address choose the entry of each level.
        code.put(LOAD_64, (R1, ASKED), at!(address), 0);
        code.number(SHIFT_RIGHT, R1, 12 + 9 * (level as i32 - 1));
        code.number(AND, R1, 511);
        code.number(SHIFT_LEFT, R1, 3);
        code.register(MOVE, R3, TABLE);
        code.register(ADD, R3, R1);
        code.read(8, WORD);
        code.put(LOAD_64, (TABLE, FRAME), WORD, 0);
        code.register(MOVE, R1, TABLE);
        code.number(AND, R1, PRESENT);
        code.end_if(IF_EQUAL, R1, 0, Found::Nothing);
        code.register(MOVE, R1, TABLE);
        code.number(AND, R1, HUGE);
        if level == 2 {
            let its_bits = code.words.len();
            code.put(IF_EQUAL, (R1, 0), 4, 0);
            code.number(SHIFT_RIGHT, TABLE, ACCESSED_SHIFT);
            code.number(AND, TABLE, 1);
            code.end_if(IF_EQUAL, TABLE, 0, Found::HugeUntouched);
            code.end_if(IF_NOT_EQUAL, TABLE, 0, Found::HugeTouched);
            debug_assert_eq!(code.words.len(), its_bits + 5, "the jump passes these");
        } else {
            // 1 GiB at once is nobody's anonymous memory.
            code.end_if(IF_NOT_EQUAL, R1, 0, Found::Nothing);
        }
        // Bits 12 to 51 are the table's physical address.
        code.number(SHIFT_LEFT, TABLE, 12);
        code.number(SHIFT_RIGHT, TABLE, 24);
        code.number(SHIFT_LEFT, TABLE, 12);
        code.put(LOAD_64, (R1, ASKED), at!(memory_end), 0);
        code.end_if_register(IF_AT_LEAST, TABLE, R1, Found::Unreadable);
        code.put(LOAD_64, (R1, ASKED), at!(direct_map), 0);
        code.register(ADD, TABLE, R1);
    }
    for part in 0..TABLE_PAGES as usize / AT_ONCE {
        code.register(MOVE, R3, TABLE);
        code.number(ADD, R3, (part * AT_ONCE * 8) as i32);
        code.read(AT_ONCE * 8, ENTRIES);
        code.number(MOVE, BITS, 0);
        for page in 0..AT_ONCE {
            code.put(LOAD_64, (R1, FRAME), ENTRIES + 8 * page as i16, 0);
            code.register(MOVE, R2, R1);
            code.number(SHIFT_RIGHT, R2, ACCESSED_SHIFT);
            code.register(AND, R1, R2);
            code.number(AND, R1, PRESENT);
            code.number(SHIFT_LEFT, R1, page as i32);
            code.register(OR, BITS, R1);
        }
        code.put(STORE_32, (ASKED, BITS), at!(accessed) + 4 * part as i16, 0);
    }
    code.end(Found::Table)
}
