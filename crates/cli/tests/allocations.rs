//! Whoever frees memory needs none: what the daemon's threads allocate while programs are over the
//! budget, pages go out and are faulted back. The hook counts (tests/programs/hook.c), in the daemon as
//! it is.

mod support;

use support::hook::{ALLOCATION, Table, Tools};
use support::*;

#[test]
fn threads_that_free_memory_allocate_none() {
    if !can_run("allocations", &["cc", "nm", "objcopy"]) {
        return;
    }
    let tools = Tools::new();
    let dir = TempDir::new();
    let table = Table::new(dir.join("table"));
    let mut fixture =
        Fixture::start_hooked("64MiB", &["--scheme", "zram"], tools.environment(&table, &[]));
    let mut program = fixture.run_touch("touch", 24_000, 50, 3);
    // Everything was out, and in, once.
    for _ in 0..3 {
        assert_eq!(program.ask("touch seq"), "touched 24000 bad 0");
    }
    let before = fixture.app("touch");
    table.arm(true);
    for _ in 0..2 {
        assert_eq!(program.ask("touch seq"), "touched 24000 bad 0");
    }
    table.arm(false);
    let after = fixture.app("touch");
    let (out, faults) = (
        after.swapped_out_pages - before.swapped_out_pages,
        after.demand_faults - before.demand_faults,
    );
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
    assert_eq!(of("worker-"), 0, "workers");
    program.quit();
    fixture.assert_daemon_lives();
}
