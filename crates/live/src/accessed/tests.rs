//! On this kernel, with own pages and a child's.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;
use crate::skip::skip;

/// Opening clears the bits of the whole process: one test at a time.
static TURN: Mutex<()> = Mutex::new(());

/// Loud if it cannot run here.
fn open() -> Option<(AccessedBits, MutexGuard<'static, ()>)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    match AccessedBits::open() {
        Ok(bits) => Some((bits, turn)),
        // SAFETY: takes nothing, cannot fail.
        Err(why) if unsafe { libc::geteuid() } != 0 => {
            skip("accessed", &why.to_string());
            None
        }
        Err(why) => panic!("root, and yet: {why}"),
    }
}

#[test]
fn what_is_touched_is_found_and_nothing_else() {
    let Some((bits, _turn)) = open() else { return };
    let pid = std::process::id();
    let all: Vec<OwnPages> = (0..TRIES).map(|_| OwnPages::new().expect("memory")).collect();
    let found = |own: &OwnPages| bits.of_table(pid, own.first()).unwrap_or_default();
    let exact: Vec<&OwnPages> = all.iter().filter(|own| found(own) == touched()).collect();
    assert!(exact.len() + 1 >= TRIES, "{:x?}", all.iter().map(found).collect::<Vec<_>>());
    let has_more = |own: &OwnPages| {
        (0..TABLE_PAGES).any(|page| is_set(&found(own), page) && !is_set(&touched(), page))
    };
    assert!(!all.iter().any(has_more), "{:x?}", all.iter().map(found).collect::<Vec<_>>());
    let own = exact[0];
    assert_eq!(bits.of_table(pid, Vpn(own.first().0 + (1 << 26))), None, "nothing is there");
    assert_eq!(bits.of_table(u32::MAX >> 1, own.first()), None, "nobody is");
}

/// A table that was given back may name any address.
#[test]
fn what_a_table_names_behind_all_memory_is_not_followed() {
    let Some((mut bits, _turn)) = open() else { return };
    let own = OwnPages::new().expect("memory");
    let pid = std::process::id();
    let is_found = |bits: &AccessedBits| bits.of_table(pid, own.first()).is_some();
    assert!(is_found(&bits));
    let all = bits.memory_end;
    // As if the tables were there. The root is not asked for by a table.
    bits.memory_end = 0x1000;
    assert!(!is_found(&bits));
    let mut question = Question {
        pid,
        address: own.first().0 * PAGE,
        direct_map: bits.direct_map,
        memory_end: bits.memory_end,
        ..Question::default()
    };
    assert_eq!(run(&bits.program, &mut question).expect("it runs"), Some(Found::Unreadable));
    bits.memory_end = all;
    assert!(is_found(&bits));
}

#[test]
fn memory_ends_behind_its_last_part() {
    let map = "00000000-00000fff : Reserved\n\
               00001000-0009fbff : System RAM\n\
               00100000-bfffffff : System RAM\n  \
               01000000-01ffffff : Kernel code\n\
               fec00000-fec003ff : IOAPIC 0\n\
               100000000-63fffffff : System RAM\n\
               640000000-73fffffff : PCI Bus 0000:00\n";
    assert_eq!(memory_end(map), Some(0x6_4000_0000));
    // What who may not know is shown.
    assert_eq!(memory_end("00000000-00000000 : System RAM\n"), None);
    assert_eq!(memory_end(""), None);
}

#[test]
fn pages_of_another_process_are_seen_from_when_they_were_cleared() {
    let Some((bits, _turn)) = open() else { return };
    let script = "import ctypes, mmap, sys\n\
        m = mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
        m.madvise(mmap.MADV_NOHUGEPAGE)\n\
        base = ctypes.addressof(ctypes.c_char.from_buffer(m))\n\
        skip = -base % (2 << 20)\n\
        for page in range(512): m[skip + page * 4096] = 1\n\
        others = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n\
        others.madvise(mmap.MADV_NOHUGEPAGE)\n\
        print(base + skip, flush=True)\n\
        sys.stdin.readline()\n\
        for page in range(16384): others[page * 4096] = 1\n\
        for page in range(0, 512, 7): m[skip + page * 4096]\n\
        print('read', flush=True)\n\
        sys.stdin.readline()\n";
    let child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        skip("accessed", "no python3");
        return;
    };
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut to_child = child.stdin.take().expect("a pipe");
    let address: u64 = lines.next().expect("a line").expect("text").parse().expect("an address");
    let first = Vpn(address / PAGE);
    let count = |bits: Bits| bits.iter().map(|word| word.count_ones()).sum::<u32>();
    assert_eq!(bits.of_table(child.id(), first).map(count), Some(512), "all were written");
    AccessedBits::clear(child.id()).expect("root may");
    assert_eq!(bits.of_table(child.id(), first).map(count), Some(0));
    // Many more others than a processor remembers make it forget what it knows of the entries.
    to_child.write_all(b"go\n").expect("it reads");
    assert_eq!(lines.next().expect("a line").expect("text"), "read");
    let seen = bits.of_table(child.id(), first).expect("they are there");
    let (touched, others): (Vec<u64>, Vec<u64>) =
        (0..512).filter(|page| is_set(&seen, *page)).partition(|page| page % 7 == 0);
    assert!(others.is_empty(), "these were not touched: {others:?}");
    assert!(touched.len() >= 37, "half of 74 at least: {touched:?}");
    drop(to_child);
    child.wait().expect("it ends");
}
