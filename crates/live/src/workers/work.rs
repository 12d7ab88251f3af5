//! What work there is, and what comes of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_core::{Event, FlashForm, Group, Job, Vpn};
use clew_store::flash::LogId;

use crate::agents::refusal::AttachError;
use crate::kernel_swap::KernelSwap;
use crate::programs::alone::Alone;
use crate::programs::plea::Plea;
use crate::programs::process::Process;

/// One piece of work. Each is answered by one [`crate::message::Message::Done`].
pub enum Work {
    /// Take groups out of one process.
    SwapOut { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Take groups out of one process, onto flash, in this form.
    PutFar { process: Arc<Process>, groups: Vec<Group>, to: (LogId, FlashForm), ticket: u64 },
    /// Move the blocks of stored groups of one process to flash, in this form.
    Evict { process: Arc<Process>, groups: Vec<Group>, to: (LogId, FlashForm), ticket: u64 },
    /// Read the beginning of each page.
    Peek { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Give groups of one process to the kernel's swap, where a page takes about `bytes`.
    Lend { process: Arc<Process>, groups: Vec<Group>, bytes: u32, ticket: u64 },
    /// Bring stored groups of one process back and give them to the kernel's swap, as [`Work::Lend`].
    PassOn { process: Arc<Process>, groups: Vec<Group>, bytes: u32, ticket: u64 },
    /// Store groups of one process, which are in the pool, anew.
    Repack { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Have the kernel's zram give back memory that it does not use.
    Compact { swap: KernelSwap, ticket: u64 },
    /// Make slots of flash free.
    CleanLog { log: LogId, ticket: u64 },
    /// Bring pages back (ascending), or only decompress and park them.
    Restore { process: Arc<Process>, vpns: Vec<Vpn>, park: bool, ticket: u64 },
    /// Put zeros wherever nobody has been: who reads the process from outside finds what it would find.
    PutUntouched { process: Arc<Process>, ticket: u64 },
    /// Bring pages back (ascending), and forget those that can never come.
    RestoreForGood { process: Arc<Process>, vpns: Vec<Vpn>, ticket: u64 },
    /// Take pages out of one process to see whether they are used.
    Sample { process: Arc<Process>, groups: Vec<Group>, ticket: u64 },
    /// Bring back what is left of a sample (ascending).
    EndSample { process: Arc<Process>, vpns: Vec<Vpn>, ticket: u64 },
    /// Long work of a policy.
    Job { job: Job, ticket: u64 },
    /// Find and register new mappings.
    Scan { process: Arc<Process>, ticket: u64 },
    /// Have all pages of a process count as not used.
    ClearAccessed { process: Arc<Process>, ticket: u64 },
    /// See whether a process is to be left alone for what it has open.
    LookAtOpenFiles { process: Arc<Process>, ticket: u64 },
    /// Bring everything back and give its mappings up.
    LetGo { process: Arc<Process>, since: Instant, ticket: u64 },
    /// Bring a range back and give its mappings up.
    LeaveOut { plea: Plea, ticket: u64 },
}

impl Work {
    /// Of whose memory it is.
    pub fn process(&self) -> Option<&Arc<Process>> {
        match self {
            Work::SwapOut { process, .. }
            | Work::PutFar { process, .. }
            | Work::Evict { process, .. }
            | Work::Peek { process, .. }
            | Work::Lend { process, .. }
            | Work::PassOn { process, .. }
            | Work::Repack { process, .. }
            | Work::Restore { process, .. }
            | Work::PutUntouched { process, .. }
            | Work::RestoreForGood { process, .. }
            | Work::Sample { process, .. }
            | Work::EndSample { process, .. }
            | Work::Scan { process, .. }
            | Work::ClearAccessed { process, .. }
            | Work::LookAtOpenFiles { process, .. }
            | Work::LetGo { process, .. } => Some(process),
            Work::LeaveOut { plea, .. } => Some(&plea.process),
            Work::Compact { .. } | Work::CleanLog { .. } | Work::Job { .. } => None,
        }
    }
}

/// Pages that are to leave, and how each begins.
pub struct Peeked {
    /// In these groups.
    pub groups: Vec<Group>,
    /// One a page, in their order; nothing of one that could not be read.
    pub samples: Vec<Vec<u8>>,
}

/// How a program was looked through.
#[derive(Debug)]
pub struct Look {
    /// How long that took.
    pub took: Duration,
    /// Pages of it that were not known; `None` if something went wrong.
    pub found_pages: Option<u64>,
}

/// What came of it.
#[derive(Default)]
pub struct Done {
    /// The ticket it carried.
    pub ticket: u64,
    /// Its process.
    pub process: Option<Arc<Process>>,
    /// For the policies.
    pub events: Vec<Event>,
    /// How pages begin that are to leave.
    pub peeked: Option<Peeked>,
    /// Pages stored or brought back.
    pub pages: usize,
    /// Pages it was asked about.
    pub asked: usize,
    /// Its process can be taken out of again.
    pub taken_out: bool,
    /// Zeros have been put into what nobody has touched of its process.
    pub untouched: bool,
    /// It has looked for mappings, for so long.
    pub scanned: Option<Look>,
    /// The pool was full.
    pub full: bool,
    /// The accessed bits of its process have been cleared, or cannot be.
    pub accessed_cleared: bool,
    /// The long work of a policy that this was.
    pub job: Option<u64>,
    /// A slot of this log was cleaned, or none is worth it.
    pub cleaned: Option<LogId>,
    /// Its process is to be left alone.
    pub alone: Option<Alone>,
    /// Its process has been let go, or cannot be.
    pub let_go: Option<bool>,
    /// A candidate that became managed, or why not.
    pub managed: Option<Result<Arc<Process>, (u32, AttachError)>>,
}
