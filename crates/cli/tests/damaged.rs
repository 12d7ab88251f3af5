//! Stored copies that memory has damaged: a program gets SIGBUS where such a page is, and no other byte
//! for it, zeros least of all; everything else goes on.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use clew_fixture::*;
use clew_live::control::protocol::Request;
use rustix::fs::{SeekFrom, seek};

const PAGES: u64 = 2048;

/// What the program has on its page `page`, seen from outside.
fn bytes(program: &Program, first: u64, page: u64) -> Vec<u8> {
    let memory = File::open(format!("/proc/{}/mem", program.pid)).expect("its memory");
    let mut bytes = vec![0; page_size() as usize];
    memory.read_exact_at(&mut bytes, first + page * page_size()).expect("it is there");
    bytes
}

/// The memory in which the daemon has what it stores.
fn arena(fixture: &Fixture) -> File {
    let descriptors = format!("/proc/{}/fd", fixture.daemon_pid());
    let mut found = fs::read_dir(descriptors).expect("it lives").flatten().filter(|entry| {
        fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().contains("clew-arena"))
    });
    let path = found.next().expect("an arena").path();
    File::options().read(true).write(true).open(path).expect("root may open it")
}

/// Where `wanted` is in a sparse file.
fn find(file: &File, wanted: &[u8]) -> u64 {
    const PART: usize = 1 << 20;
    let mut at = 0;
    loop {
        let mut from = seek(file, SeekFrom::Data(at)).expect("it is in the pool");
        let end = seek(file, SeekFrom::Hole(from)).expect("data ends");
        while from < end {
            let mut part = vec![0; PART.min((end - from) as usize)];
            file.read_exact_at(&mut part, from).expect("it is that long");
            if let Some(place) = part.windows(wanted.len()).position(|bytes| bytes == wanted) {
                return from + place as u64;
            }
            let step = part.len().saturating_sub(wanted.len()).max(1);
            from += step as u64;
        }
        at = end;
    }
}

/// Turns one bit over of what is stored of a page that begins like `page`.
fn damage(arena: &File, page: &[u8]) {
    // Random bytes are stored as they are.
    let at = find(arena, &page[64..128]) + 17;
    let mut byte = [0];
    arena.read_exact_at(&mut byte, at).expect("it is that long");
    arena.write_all_at(&[byte[0] ^ 8], at).expect("it is written");
}

#[test]
fn a_damaged_page_is_a_sigbus_at_its_address_and_nothing_else() {
    if !can_run("damaged::sigbus", &["cc"]) {
        return;
    }
    let fixture = Fixture::start("1GiB");
    let mut program = fixture.run_touch("touch", PAGES, 0, 5);
    let answer = program.ask("where");
    let first = u64::from_str_radix(answer.trim_start_matches("at "), 16).expect("an address");
    // By a fault, by a fault of a child, by an order to bring all back, which tells of the first only.
    let [touched, childs, restored] = [300, 100, 7];
    let before = [touched, childs, restored].map(|page| bytes(&program, first, page));
    fixture.swap_out_at_least("touch", PAGES * page_size());
    let arena = arena(&fixture);
    before.iter().for_each(|page| damage(&arena, page));

    let bus = |page: u64| format!("bus at {:x}", first + page * page_size());
    for _ in 0..2 {
        program.expect(&format!("probe {touched}"), &bus(touched));
    }
    program.expect(&format!("probe {}", touched + 1), "right");
    assert!(program.ask("fork-keep").starts_with("child "));
    for page in [touched, childs, restored] {
        program.expect(&format!("child probe {page}"), &bus(page));
    }
    program.expect("child probe 200", "right");
    program.expect("child quit", "child ended");
    fixture.order(&Request::Restore { app: "touch".to_string() });
    for page in 0..PAGES {
        let is_damaged = [touched, childs, restored].contains(&page);
        let wanted = if is_damaged { bus(page) } else { "right".to_string() };
        program.expect(&format!("probe {page}"), &wanted);
    }

    let log = fs::read_to_string(fixture.dir.join("daemon.log")).expect("a log");
    for page in [touched, childs, restored] {
        let address = format!("the page at {:#x} is damaged", first + page * page_size());
        assert!(log.contains(&address), "no word of page {page}\n{log}");
    }
    assert!(log.contains("the program gets SIGBUS"), "{log}");
    assert!(fixture.status().pool.corrupt_pages >= 3, "{:?}", fixture.status());
    program.expect(&format!("unmap {touched} 1"), "unmapped 1");
    program.quit();
    fixture.wait_all_freed("touch");
}

#[test]
fn stop_ends_with_damaged_pages_and_they_stay_a_sigbus() {
    if !can_run("damaged::stop", &["cc"]) {
        return;
    }
    let mut fixture = Fixture::start("1GiB");
    let mut program = fixture.run_touch("touch", PAGES, 0, 5);
    let answer = program.ask("where");
    let first = u64::from_str_radix(answer.trim_start_matches("at "), 16).expect("an address");
    let damaged = [7, 8, 300];
    let before = damaged.map(|page| bytes(&program, first, page));
    fixture.swap_out_at_least("touch", PAGES * page_size());
    let arena = arena(&fixture);
    before.iter().for_each(|page| damage(&arena, page));
    drop(arena);
    let output = fixture.verb(&["stop"]);
    assert!(output.status.success(), "clew stop: {}{}", texts(&output), fixture.log());
    assert!(fixture.wait_daemon(LONG).success(), "{}", fixture.log());
    for page in [0, 7, 8, 9, 300, 301] {
        let wanted = match damaged.contains(&page) {
            true => format!("bus at {:x}", first + page * page_size()),
            false => "right".to_string(),
        };
        program.expect(&format!("probe {page}"), &wanted);
    }
    program.quit();
}
