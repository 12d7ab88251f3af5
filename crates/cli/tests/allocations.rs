//! Whoever frees memory needs none, or has it already: what the daemon's threads allocate while a
//! program is over the budget, pages go out and are faulted back. The hook counts
//! (tests/programs/hook.c), in the daemon as it is. Fault threads allocate nothing; workers and the
//! policy thread need little for each batch, and nobody asks the kernel for it.

use std::collections::BTreeMap;

use clew_fixture::hook::{ALLOCATION, Table, Tools};
use clew_fixture::*;

/// brk, mmap, mremap: how the allocator gets memory.
const MEMORY_CALLS: [u32; 3] = [12, 9, 25];

#[test]
fn threads_that_free_memory_allocate_none() {
    if !can_run("allocations", &["cc", "nm", "objcopy"]) {
        return;
    }
    let tools = Tools::new();
    let dir = TempDir::new();
    let table = Table::new(dir.join("table"));
    let mut fixture = Fixture::start_hooked(
        "64MiB",
        &["--scheme", "zram"],
        tools.environment(&table, &MEMORY_CALLS),
    );
    let words = [tools.touch.to_str().expect("UTF-8"), "24000", "50", "3"];
    let mut program = fixture.run("touch", &words);
    program.wait_ready();
    // Over the budget already.
    fixture.wait_resident("touch", 1);
    // Everything was out, and in, once.
    for _ in 0..3 {
        assert_eq!(program.ask("touch seq"), "touched 24000 bad 0");
    }
    let before = fixture.app("touch");
    let asked = || {
        let sites = table.sites().into_iter().filter(|s| MEMORY_CALLS.contains(&s.number));
        sites.map(|site| (site.key, (site.count, tools.describe(&site))))
    };
    let asked_before: BTreeMap<_, _> = asked().collect();
    table.arm(true);
    let since = |fixture: &Fixture| {
        let now = fixture.app("touch");
        let out = now.swapped_out_pages - before.swapped_out_pages;
        (out, now.demand_faults - before.demand_faults)
    };
    for _ in 0..20 {
        assert_eq!(program.ask("touch seq"), "touched 24000 bad 0");
        let (out, faults) = since(&fixture);
        if out > 10_000 && faults > 10_000 {
            break;
        }
    }
    table.arm(false);
    // But for threads that are started for clients, or to ask what a program can have wait.
    let asked: Vec<_> = asked()
        .filter(|(key, now)| asked_before.get(key).is_none_or(|before| before.0 != now.0))
        .filter(|(_, (_, name))| {
            !["serve_client", "patient::thread"].iter().any(|of| name.contains(of))
        })
        .filter(|(_, (_, name))| name.contains("clew"))
        .collect();
    let (out, faults) = since(&fixture);
    let allocations = table.allocations();
    println!("{out} pages out, {faults} demand faults; allocations:");
    for (thread, (name, count, bytes)) in allocations.iter().enumerate() {
        println!("  {name}: {count} of {bytes} bytes in sum");
        let mut sites = table.sites();
        sites.retain(|site| site.number == ALLOCATION && site.what == thread as u32);
        sites.sort_by_key(|site| std::cmp::Reverse(site.count));
        for site in sites.iter().take(12) {
            println!("    {} x {}", site.count, tools.describe(site));
        }
    }
    assert!(out > 10_000 && faults > 10_000, "{out} pages out, {faults} demand faults");
    let of = |prefix: &str| {
        let threads = allocations.iter().filter(|(name, ..)| name.starts_with(prefix));
        threads.map(|(_, count, _)| count).sum::<u64>()
    };
    assert_eq!(of("fault-"), 0, "fault threads");
    let workers = of("worker-");
    assert!(asked.is_empty(), "the kernel was asked for memory: {asked:?}");
    // Some for each batch and each look at the program's mappings, none for each page.
    assert!(workers < out, "{workers} allocations of workers for {out} pages");
    program.quit();
    fixture.assert_daemon_lives();
}
