//! A page whose stored copy is damaged.

use clew_core::Vpn;
use clew_store::ReadError;

use crate::programs::process::Process;
use crate::programs::shared::Shared;

/// A program must not read what is not its own.
pub(crate) fn poison_if_damaged(
    shared: &Shared,
    process: &Process,
    damaged: Option<(Vpn, ReadError)>,
) {
    let Some((vpn, error)) = damaged else { return };
    let addr = vpn.addr(shared.page_bytes);
    tracing::error!(
        pid = process.pid(),
        "the stored copy of the page at {addr:#x} is damaged ({error}): the program gets SIGBUS when \
         it touches it"
    );
    process.memory.uffd.poison(addr, shared.page_bytes);
}
