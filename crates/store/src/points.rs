//! Failpoints: the steps of the order of updates (docs/design.md, "Takeover"), by name.
//!
//! Each is one `nop` where the step before it is over and the next has not begun, and a note of its
//! address in the section `clew_points` of the program, which is not loaded: what a tracer needs to
//! stop a daemon just there. The tests kill it at every one of them. The compiler moves no access
//! to memory across a point.

/// Defines a function for each point, and [`NAMES`].
macro_rules! points {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub fn $name() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: one instruction that does nothing; the note is no part of the code.
                unsafe {
                    core::arch::asm!(
                        "771: nop",
                        ".pushsection clew_points, \"\", @progbits",
                        ".balign 64",
                        ".quad 771b",
                        concat!(".asciz \"", stringify!($name), "\""),
                        ".balign 64",
                        ".popsection",
                        options(nostack, preserves_flags)
                    );
                }
            }
        )*

        /// All of them, in this order.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

points! {
    // A daemon begins, or takes over.
    /// The socket is claimed.
    start_claimed
    /// What the last daemon left is adopted; nothing was changed that the next could not do again.
    start_adopted
    /// This daemon's keeper runs.
    start_keeper
    /// Processes are made of what was left, their descriptors are in this generation's column.
    start_programs
    /// The daemon's own record is written.
    start_recorded
    /// The keeper's badge says whose it is, the file beside the socket does not.
    start_badged
    /// It is written down whose keeper counts.
    start_committed
    /// The old keepers are ended.
    start_old_ended
    /// What was under way in a program is ended by looking.
    start_recovered
    /// Its threads are woken.
    start_woken
    /// Its staging area is empty.
    start_emptied
    /// Programs are served, those in whose batches nobody died.
    start_serving

    // It serves.
    /// What was written down beside its socket is gone; it has the lock under which it is made again.
    beside_locked

    // A program comes.
    /// An agent has said hello; its slot is published.
    hello_recorded
    /// Its agent is asked to prepare; what it answers is not read.
    manage_asked
    /// Its agent has a userfaultfd and a staging area.
    manage_ready
    /// Its record says that it is managed.
    manage_recorded
    /// It reports forks; beacon and staging area are registered.
    manage_registered
    /// Its faults are read.
    manage_watched
    /// A forked child has its agent; its record does not say so.
    manage_child_set
    /// Its record does.
    manage_child_recorded
    /// New mappings are registered, their pages are not adopted.
    register_done
    /// They are.
    register_adopted

    // Out.
    /// The batch is in the journal.
    out_journaled
    /// Its entries are `Moving`.
    out_marked
    /// The agent has moved the pages to staging.
    out_taken
    /// It has copied them to the buffer; the program's events are read again.
    out_copied
    /// A block is stored that no entry names.
    out_stored
    /// An entry names it.
    out_published
    /// A page was put back because it was wanted or had no room; its entry is still `Moving`.
    out_put_back
    /// Every page has its place.
    out_all_published
    /// The batch is ended.
    out_ended
    /// Staging is emptied.
    out_released

    // Back.
    /// The entry is `Restoring`.
    back_borrowed
    /// The page is in the program.
    back_put
    /// The entry is `Resident`.
    back_resident
    /// Or it is `Parked`: stored as before, with a copy at hand.
    back_parked

    // Flash.
    /// A block's bytes are in the log; no stub names them.
    evict_appended
    /// Its stub is in the pool; its parts are still there.
    evict_replaced
    /// The entries of its pages say where it is.
    evict_flagged
    /// A fault found its block on flash: the entry is `Restoring`, and nobody has the page yet.
    far_asked
    /// The bytes are there; the page is not yet in its program.
    far_arrived

    // Changes.
    /// Messages were read into the journal.
    change_read
    /// A message is marked as begun.
    change_begun
    /// It is applied to the page table.
    change_applied
    /// The facts have its number.
    change_facts
    /// It is marked as done.
    change_done
    /// All messages are forgotten.
    change_cleared
    /// The target of a move is cleared.
    remap_cleared
    /// The batch under way knows of the move.
    remap_followed
    /// A page has its entry at the new place, and still at the old one.
    remap_twice
    /// A forked child's table is filled.
    fork_table
    /// Its facts and record are written.
    fork_recorded
    /// Its slot is published.
    fork_published
    /// Its faults are read.
    fork_served

    // The end.
    /// A program is gone, and its references are given back.
    gone_forgotten
    /// Its slot is ended.
    gone_ended
    /// An orderly end: every page is back.
    stop_restored
    /// Agents are told to end.
    stop_detached
    /// The keeper is ended.
    stop_unkept
    /// Nobody can connect any more.
    stop_unlinked
    /// What names daemon and keeper is removed.
    stop_forgotten
}
