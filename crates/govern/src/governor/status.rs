//! The state of everything, for people and programs. Names in JSON are stable.

use clew_core::AppState;
use serde::Serialize;

use super::looks::Found;

/// What was counted since the governor began. All are pages where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken out because a policy said so.
    pub paged_out: u64,
    /// Taken by the kernel, by itself.
    pub kernel_out: u64,
    /// Read ahead of their program.
    pub brought: u64,
    /// Of these, touched by it.
    pub used: u64,
    /// Of these, not touched for too long.
    pub expired: u64,
    /// Back, and nobody heard a fault.
    pub unheard: u64,
}

impl Counts {
    /// What a look found.
    pub fn add(&mut self, found: Found) {
        self.kernel_out += found.kernel_out;
        self.unheard += found.unheard;
        self.used += found.used;
    }
}

/// What is used, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsedBytes {
    /// Anonymous memory that governed programs have resident.
    pub programs_bytes: u64,
    /// What was read ahead of them and not touched yet.
    pub brought_bytes: u64,
    /// What their swapped pages take in zram; nothing where swap is on a disk.
    pub swap_bytes: u64,
    /// The governor's own.
    pub governor_bytes: u64,
    /// What a daemon and its programs use, where the budget is for both.
    pub daemon_bytes: u64,
}

impl UsedBytes {
    /// All of it.
    pub fn total(&self) -> u64 {
        let UsedBytes { programs_bytes, brought_bytes, swap_bytes, governor_bytes, daemon_bytes } =
            self;
        // The last is what a daemon says.
        (programs_bytes + brought_bytes + swap_bytes + governor_bytes).saturating_add(*daemon_bytes)
    }
}

/// A governed program.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramStatus {
    /// Its process.
    pub pid: u32,
    /// What it calls itself.
    pub command: String,
    /// Pages known to be in its memory.
    pub resident_pages: u64,
    /// Pages known to be in swap.
    pub swapped_pages: u64,
    /// Major faults that were heard of.
    pub faults: u64,
}

/// An app.
#[derive(Clone, Debug, Serialize)]
pub struct AppStatus {
    /// The process at its root.
    pub root: u32,
    /// What that calls itself.
    pub name: String,
    /// Where it is.
    pub state: AppState,
    /// Whether somebody said so.
    pub told: bool,
    /// Major faults of all of its programs, those that ended too.
    pub faults: u64,
    /// Its programs that are governed.
    pub programs: Vec<ProgramStatus>,
    /// Processes of it that are not, because they are small, share another's memory, or may not be looked at.
    pub others: usize,
}

/// Everything.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// The scheme.
    pub scheme: String,
    /// What programs, their swapped pages and the governor may use together.
    pub budget_bytes: u64,
    /// What they use.
    pub used_bytes: u64,
    /// By what.
    pub used: UsedBytes,
    /// Free swap of the machine.
    pub swap_free_bytes: u64,
    /// Pages taken out because a policy said so.
    pub paged_out_pages: u64,
    /// Pages that the kernel took by itself, as far as was seen.
    pub kernel_out_pages: u64,
    /// Pages read ahead of their program; of these touched by it, and not touched for too long.
    pub brought_pages: u64,
    /// See [`Status::brought_pages`].
    pub brought_used_pages: u64,
    /// See [`Status::brought_pages`].
    pub brought_unused_pages: u64,
    /// Pages kept young (touched) while the kernel took pages by itself.
    pub kept_young_pages: u64,
    /// Time that took.
    pub kept_young_ns: u64,
    /// Blind spots: records of faults that were lost.
    pub lost_faults: u64,
    /// Blind spots: pages that came back, and nobody heard a fault (read ahead, or still in memory).
    pub unheard_pages: u64,
    /// Apps.
    pub apps: Vec<AppStatus>,
}
