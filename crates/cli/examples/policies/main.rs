//! The `clew` command with five policies more, a file each: `policies daemon`, `policies replay` and all
//! else are as `clew` has them. crates/cli/tests/policies.rs runs each of them live and in a replay.

mod by_app;
mod ends_at_tick;
mod even_pages;
mod mines;
mod oldest_out;

use clew_policy::schemes::Registry;

fn main() -> std::process::ExitCode {
    let mut registry = Registry::default();
    registry.admission = registry.admission.with::<even_pages::Plain>();
    registry.prefetch = registry.prefetch.with::<mines::Plain>().with::<ends_at_tick::Plain>();
    registry.eviction = registry.eviction.with::<oldest_out::Plain>();
    registry.placement =
        registry.placement.with::<by_app::Plain>().with::<oldest_out::place::Plain>();
    assert!(registry.install(), "before any scheme is read");
    clew_cli::main()
}
