//! Which pages a program has touched: the accessed bits of its page tables.
//!
//! The processor sets a bit in the entry of each page that is touched. No file of the kernel shows these bits of
//! other processes where there is neither idle-page tracking nor DAMON for virtual addresses; a BPF program may read
//! them ([`program`]), 512 pages in some microseconds, without a lock and without the program's noticing. They are
//! cleared by writing 1 to `/proc/PID/clear_refs`, for all of a process at once, which takes its memory's lock for
//! some milliseconds.
//!
//! A page that is put (UFFDIO_COPY, UFFDIO_ZEROPAGE) counts as accessed from the beginning. After clearing, what
//! a processor remembers of an entry may hide a touch until it forgets. So the bits are for policies to choose
//! by, and nothing that must be right depends on them.
//!
//! Needs root's privileges (CAP_BPF, CAP_PERFMON), x86-64, Linux 6.14 (`bpf_task_from_vpid`; before that,
//! `bpf_task_from_pid` where the daemon is in the first namespace of processes) with BTF. Whether it
//! works is tried before it is believed: of an own run of pages some are touched, and exactly these must be found.

mod btf;
mod program;

use std::ffi::c_long;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::{ptr, slice};

use clew_core::Vpn;

use btf::{Btf, BtfError};
pub use program::TABLE_PAGES;
use program::{Found, Kernel, LICENCE, Question};

const BTF_OF_KERNEL: &str = "/sys/kernel/btf/vmlinux";
const PHYSICAL_MEMORY: &str = "/proc/iomem";
/// What `/proc/self/ns/pid` names in the first namespace of processes (`PROC_PID_INIT_INO`, linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
const PAGE: u64 = 4096;
const TABLE_BYTES: u64 = TABLE_PAGES * PAGE;
/// The kernel's view of physical memory begins at a multiple of this.
const DIRECT_MAP_STEP: u64 = 1 << 30;
/// Physical addresses that are tried: up to 64 TiB.
const DIRECT_MAP_TRIES: u64 = 1 << 16;
/// Own pages are touched and looked for so many times: of a thousand new processes one does not find its first ones.
const TRIES: usize = 3;

// `enum bpf_cmd`, `enum bpf_prog_type` and flags of `linux/bpf.h`.
const BPF_PROG_LOAD: c_long = 5;
const BPF_PROG_RUN: c_long = 10;
const BPF_PROG_TYPE_SYSCALL: u32 = 31;
const BPF_F_SLEEPABLE: u32 = 1 << 4;

/// Why the bits cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// The processor has other page tables.
    #[error("page tables of this processor are not known, only those of x86-64")]
    Processor,
    /// Its types are not described, or not as expected.
    #[error("{BTF_OF_KERNEL}: {0}")]
    NoTypes(io::Error),
    /// It lacks a type or a function.
    #[error("{0}")]
    Lacks(BtfError),
    /// Where memory ends is not told.
    #[error("{PHYSICAL_MEMORY} does not say where memory is (it takes root's CAP_SYS_ADMIN)")]
    NoMemoryMap,
    /// The program was refused.
    #[error("the kernel refuses the BPF program: {0} (root's CAP_BPF and CAP_PERFMON are needed)")]
    Refused(io::Error),
    /// The bits of own pages are not those that were touched.
    #[error("page tables of this kernel are not where they were looked for")]
    NotFound,
    /// They cannot be cleared.
    #[error("/proc/PID/clear_refs: {0}")]
    Clear(io::Error),
}

/// Reads the bits.
pub struct AccessedBits {
    program: OwnedFd,
    direct_map: u64,
    memory_end: u64,
}

/// The part of `union bpf_attr` that loads a program.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instructions: u32,
    code: u64,
    licence: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The part that runs one.
#[repr(C)]
#[derive(Default)]
struct Run {
    program: u32,
    returned: u32,
    data_bytes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_bytes: [u32; 2],
    context: [u64; 2],
    flags: u32,
    cpu: u32,
    batch: u32,
    reserved: u32,
}

/// Asks the kernel.
fn bpf<T>(command: c_long, attributes: &mut T) -> io::Result<c_long> {
    // SAFETY: the attributes are a part of `union bpf_attr` from its beginning, whose pointers are to what
    // outlives the call; the kernel takes what is not there for zeros.
    let answer =
        unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn load(code: &[u64]) -> io::Result<OwnedFd> {
    let mut attributes = Load {
        kind: BPF_PROG_TYPE_SYSCALL,
        instructions: code.len() as u32,
        code: code.as_ptr() as u64,
        licence: LICENCE.as_ptr() as u64,
        flags: BPF_F_SLEEPABLE,
        name: *b"clew_accessed\0\0\0",
        ..Load::default()
    };
    let fd = bpf(BPF_PROG_LOAD, &mut attributes)?;
    // SAFETY: a new descriptor, of which nobody else knows.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

fn run(program: &OwnedFd, question: &mut Question) -> io::Result<Option<Found>> {
    let mut attributes = Run {
        program: program.as_raw_fd() as u32,
        context_bytes: [size_of::<Question>() as u32, 0],
        context: [ptr::from_mut(question) as u64, 0],
        ..Run::default()
    };
    bpf(BPF_PROG_RUN, &mut attributes)?;
    Ok(Found::of(attributes.returned))
}

/// One bit a page, the first page lowest.
pub type Bits = [u32; TABLE_PAGES as usize / 32];

impl AccessedBits {
    /// Loads the program and tries it (some ten milliseconds).
    ///
    /// # Errors
    /// If the bits cannot be read here.
    pub fn open() -> Result<AccessedBits, Unavailable> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err(Unavailable::Processor);
        }
        let kernel = {
            let types = OwnMemory::of_file(BTF_OF_KERNEL).map_err(Unavailable::NoTypes)?;
            let btf = Btf::new(types.bytes()).map_err(Unavailable::Lacks)?;
            let namespace = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
            let all_alike = namespace.as_os_str() == FIRST_NAMESPACE;
            Kernel::of(&btf, all_alike).map_err(Unavailable::Lacks)?
        };
        let map = fs::read_to_string(PHYSICAL_MEMORY).unwrap_or_default();
        let memory_end = memory_end(&map).ok_or(Unavailable::NoMemoryMap)?;
        for _ in 0..TRIES {
            let own = OwnPages::new().map_err(Unavailable::Refused)?;
            if let Some(opened) = AccessedBits::tried_with(&own, &kernel, memory_end)? {
                return Ok(opened);
            }
        }
        Err(Unavailable::NotFound)
    }

    /// If exactly what was touched of these pages is found, and nothing after they were cleared.
    fn tried_with(
        own: &OwnPages,
        kernel: &Kernel,
        memory_end: u64,
    ) -> Result<Option<AccessedBits>, Unavailable> {
        let pid = std::process::id();
        for levels in [4, 5] {
            let code = program::program(kernel, levels);
            let program = load(&code).map_err(Unavailable::Refused)?;
            if let Some(direct_map) =
                own.find_direct_map(&program, memory_end).map_err(Unavailable::Refused)?
            {
                Self::clear(pid).map_err(Unavailable::Clear)?;
                let opened = AccessedBits { program, direct_map, memory_end };
                let is_clear = opened.of_table(pid, own.first()) == Some(Bits::default());
                return Ok(is_clear.then_some(opened));
            }
        }
        Ok(None)
    }

    /// Which of the 512 pages from `first`, a multiple of 512, process `pid` (as this process's namespace numbers it)
    /// has touched since they were cleared. `None` if it has none of them, or nothing can be found out.
    pub fn of_table(&self, pid: u32, first: Vpn) -> Option<Bits> {
        debug_assert!(first.0.is_multiple_of(TABLE_PAGES), "{first:?}");
        let mut question = Question {
            pid,
            address: first.0 * PAGE,
            direct_map: self.direct_map,
            memory_end: self.memory_end,
            ..Question::default()
        };
        match run(&self.program, &mut question) {
            Ok(Some(Found::Table)) => Some(question.accessed),
            Ok(Some(Found::HugeTouched)) => Some([u32::MAX; 16]),
            Ok(Some(Found::HugeUntouched)) => Some(Bits::default()),
            Ok(Some(Found::Nothing | Found::NoProcess | Found::Unreadable) | None) | Err(_) => None,
        }
    }

    /// From now on all pages of process `pid` count as not touched. Waits for whoever changes its memory, and they
    /// for this.
    ///
    /// # Errors
    /// Those of the file.
    pub fn clear(pid: u32) -> io::Result<()> {
        fs::write(format!("/proc/{pid}/clear_refs"), "1")
    }
}

/// The physical address behind all memory, by the lines of `/proc/iomem`, which has zeros for all who may not know.
fn memory_end(map: &str) -> Option<u64> {
    let last = |line: &str| {
        let range = line.strip_suffix(" : System RAM")?;
        u64::from_str_radix(range.trim().split_once('-')?.1, 16).ok()
    };
    map.lines().filter_map(last).max().filter(|last| *last > 0).map(|last| last + 1)
}

/// Memory that goes back to the kernel when it is dropped: the daemon's allocator keeps what it has got.
struct OwnMemory {
    start: *mut u8,
    len: usize,
}

impl OwnMemory {
    fn new(len: usize) -> io::Result<OwnMemory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        OwnMemory::map(len, libc::PROT_READ | libc::PROT_WRITE, flags, -1)
    }

    fn map(len: usize, protection: i32, flags: i32, file: i32) -> io::Result<OwnMemory> {
        // SAFETY: a new mapping wherever there is room.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file, 0) };
        match start == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(OwnMemory { start: start.cast(), len }),
        }
    }

    /// With what is in a file that does not change; the file itself where it can be mapped (Linux 6.16), which takes no
    /// memory.
    fn of_file(path: &str) -> io::Result<OwnMemory> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len() as usize;
        let mapped = OwnMemory::map(len, libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd());
        if mapped.is_ok() {
            return mapped;
        }
        let own = OwnMemory::new(len)?;
        // SAFETY: the mapping is that long, and nobody else knows it.
        file.read_exact(unsafe { slice::from_raw_parts_mut(own.start, own.len) })?;
        Ok(own)
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is that long and lives as long as this; what it holds does not change.
        unsafe { slice::from_raw_parts(self.start, self.len) }
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        // SAFETY: what was mapped in `map`, to which nothing refers.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

/// Own memory of one table, of which some pages are touched.
struct OwnPages {
    first: Vpn,
    touched: Bits,
    _memory: OwnMemory,
}

impl OwnPages {
    fn new() -> io::Result<OwnPages> {
        let memory = OwnMemory::new(2 * TABLE_BYTES as usize)?;
        let first = (memory.start as u64).next_multiple_of(TABLE_BYTES);
        // SAFETY: the range is own memory. Where everything is locked, its pages are there, and accessed.
        let unlocked = unsafe {
            let (start, bytes) = (memory.start.cast(), memory.len);
            libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
            libc::munlock(start, bytes) | libc::madvise(start, bytes, libc::MADV_DONTNEED)
        };
        if unlocked != 0 {
            return Err(io::Error::last_os_error());
        }
        let own = OwnPages { first: Vpn(first / PAGE), touched: touched(), _memory: memory };
        for page in (0..TABLE_PAGES).filter(|page| is_set(&own.touched, *page)) {
            // SAFETY: a page of the own range, which ends behind the table.
            unsafe { ptr::write_volatile((first + page * PAGE) as *mut u8, 1) };
        }
        Ok(own)
    }

    /// Number of the first page of the table.
    fn first(&self) -> Vpn {
        self.first
    }

    /// Where the kernel sees physical memory: where the bits are found that must be there. From the table's root
    /// downwards, as that lies there, too.
    fn find_direct_map(&self, program: &OwnedFd, memory_end: u64) -> io::Result<Option<u64>> {
        let (pid, address) = (std::process::id(), self.first.0 * PAGE);
        let ask = Question { pid, address, memory_end, ..Question::default() };
        let mut question = ask;
        run(program, &mut question)?;
        let root = question.root;
        for steps in 0..DIRECT_MAP_TRIES {
            let below = steps * DIRECT_MAP_STEP;
            let Some(direct_map) = (root & !(DIRECT_MAP_STEP - 1)).checked_sub(below) else {
                break;
            };
            // The lower half is the processes'.
            if direct_map >> 63 == 0 {
                break;
            }
            let mut question = Question { direct_map, ..ask };
            let found = run(program, &mut question)?;
            if found == Some(Found::Table) && question.accessed == self.touched {
                return Ok(Some(direct_map));
            }
        }
        Ok(None)
    }
}

/// Whether the bit of this page is set.
pub fn is_set(bits: &Bits, page: u64) -> bool {
    bits[page as usize / 32] >> (page % 32) & 1 == 1
}

/// A pattern that is found nowhere by chance: the first bits of pi's fraction, in a row, and turned.
fn touched() -> Bits {
    std::array::from_fn(|n| 0x243f_6a88_u32.rotate_left(2 * n as u32) ^ n as u32)
}

#[cfg(test)]
mod tests;
