//! What a daemon says of itself, its tiers and apps: the answer to [`Request::Status`] and what belongs to it.
//!
//! [`Request::Status`]: crate::control::protocol::Request::Status

use serde::{Deserialize, Serialize};

use clew_core::{DonorState, Metric};

use crate::faults::account::FaultAccount;
use crate::faults::latency::Latency;

/// `clew ps --format json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Status {
    /// The scheme's name.
    pub scheme: String,
    /// The budget: what all managed apps, the pool and the daemon may use together.
    pub budget_bytes: u64,
    /// What they use.
    pub used_bytes: u64,
    /// What that is made of.
    #[serde(default)]
    pub used: UsedBytes,
    /// Resident memory of the daemon beyond the pool.
    pub daemon_bytes: u64,
    /// Pages that page tables know, wherever they are: what the daemon takes grows with them.
    #[serde(default)]
    pub managed_pages: u64,
    /// The least budget in which no app would thrash; `None` while none does.
    #[serde(default)]
    pub enough_budget_bytes: Option<u64>,
    /// Processor time of the daemon since it began, seconds.
    #[serde(default)]
    pub daemon_cpu_seconds: f64,
    /// How long it has governed, seconds.
    #[serde(default)]
    pub uptime_seconds: f64,
    /// Process id of the daemon.
    pub daemon_pid: u32,
    /// Process id of its keeper, which holds all descriptors should the daemon die.
    pub keeper_pid: u32,
    /// Where faulting threads are kept during a relaunch: `narrow` or `free`.
    pub placement: String,
    /// The pool.
    pub pool: PoolStatus,
    /// The places for stored pages.
    #[serde(default)]
    pub tiers: Vec<TierStatus>,
    /// What flash did, if there is some.
    #[serde(default)]
    pub flash: Option<FlashStatus>,
    /// Machines that lend memory.
    #[serde(default)]
    pub donors: Vec<DonorStatus>,
    /// Counts over all apps, ended ones included, since the daemon began.
    #[serde(default)]
    pub totals: Totals,
    /// How long faults that brought a stored page back took, from the fault thread's being woken to
    /// its answer.
    #[serde(default)]
    pub stored_fault_latency: Latency,
    /// The same of first touches of fresh memory.
    #[serde(default)]
    pub fresh_fault_latency: Latency,
    /// The same of faults that waited for flash, until the page was there.
    #[serde(default)]
    pub flash_fault_latency: Latency,
    /// Where the time of faults went that brought a stored page back.
    #[serde(default)]
    pub fault_account: FaultAccount,
    /// What the engine and the scheme's policies count.
    #[serde(default)]
    pub policies: Vec<PolicyMetric>,
    /// What came back before it was asked for.
    #[serde(default)]
    pub early: EarlyStatus,
    /// What is known of the use of resident pages.
    #[serde(default)]
    pub sensor: SensorStatus,
    /// Programs whose records were found damaged at a takeover: they wait, and what is stored of them
    /// is kept.
    #[serde(default)]
    pub lost_programs: u64,
    /// Apps that were ended because memory was short (`on_full = "kill"`), oldest first.
    #[serde(default)]
    pub ended_apps: Vec<String>,
    /// The user of a service whom this is said to: what is not that user's is left out, and shows as zero.
    /// `None` where all is said.
    #[serde(default)]
    pub of_user: Option<u32>,
    /// Mounts that share the budget, in the order in which they came.
    #[serde(default)]
    pub mounts: Vec<MountStatus>,
    /// Users whose programs a service for all users has, by their numbers; nobody in another daemon.
    #[serde(default)]
    pub users: Vec<UserStatus>,
    /// Apps in the order of their names.
    pub apps: Vec<AppStatus>,
}

/// A user of a service, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct UserStatus {
    /// The user.
    pub uid: u32,
    /// What the user's apps use, their stored pages included.
    pub used: UsedBytes,
    /// What they may use; `None` without a budget a user.
    pub budget_bytes: Option<u64>,
    /// How many apps there are.
    pub apps: u64,
}

/// A mount that shares the budget, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct MountStatus {
    /// Its server.
    pub pid: u32,
    /// What it keeps of files, as it says, as far as that is its share.
    pub held_bytes: u64,
    /// What it may keep.
    pub limit_bytes: u64,
    /// Pages that were read from what it keeps, since it began.
    pub hits: u64,
}

/// What counts towards the budget, in [`Status`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct UsedBytes {
    /// Resident anonymous memory of the apps' processes, managed or waiting to be.
    pub programs_bytes: u64,
    /// Buffers by which pages leave programs.
    pub buffers_bytes: u64,
    /// The pool.
    pub pool_bytes: u64,
    /// What lent pages take in the kernel's zram.
    pub kernel_bytes: u64,
    /// What mounts keep of files, as far as that is their share.
    #[serde(default)]
    pub mounts_bytes: u64,
    /// The daemon's own memory and its page tables.
    pub daemon_bytes: u64,
}

impl Status {
    /// The same with apps called as orders name them where several users have some: `UID:NAME`.
    pub fn with_users_in_names(mut self) -> Status {
        if !self.users.is_empty() {
            for app in &mut self.apps {
                app.name = format!("{}:{}", app.uid, app.name);
            }
        }
        self
    }
}

impl UsedBytes {
    /// All of it.
    pub fn total(&self) -> u64 {
        let UsedBytes {
            programs_bytes,
            buffers_bytes,
            pool_bytes,
            kernel_bytes,
            mounts_bytes,
            daemon_bytes,
        } = self;
        [buffers_bytes, pool_bytes, kernel_bytes, mounts_bytes, daemon_bytes]
            .into_iter()
            .fold(*programs_bytes, |sum, bytes| sum.saturating_add(*bytes))
    }
}

/// The pool, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct PoolStatus {
    /// Memory taken, allocator overhead included.
    pub used_bytes: u64,
    /// Memory it may take.
    pub limit_bytes: u64,
    /// Pages stored, kept copies of resident pages included.
    pub stored_pages: u64,
    /// Original bytes / bytes used.
    pub ratio: f64,
    /// It had no room when last asked; nothing leaves the programs until it has.
    pub full: bool,
    /// Copies kept of pages that are resident again, found valid when the page left again.
    pub reused_pages: u64,
    /// Damaged copies found. Never expected.
    pub corrupt_pages: u64,
}

/// A place for stored pages, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct TierStatus {
    /// `pool`, `kernel`, `flash` or `remote`.
    pub tier: String,
    /// Memory or space taken, overhead included.
    pub used_bytes: u64,
    /// What it may take; `None` without a limit.
    pub limit_bytes: Option<u64>,
    /// Pages stored.
    pub stored_pages: u64,
    /// Pages it may store; `None` without a limit.
    pub limit_pages: Option<u64>,
}

/// A machine that lends memory, in [`Status`].
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq)]
pub struct DonorStatus {
    /// Where it is.
    pub at: String,
    /// How it stands.
    pub state: DonorState,
    /// Why it cannot be used, if it cannot.
    pub why: Option<String>,
    /// Pages that are there.
    pub stored_pages: u64,
    /// What they take there, with tags, bytes.
    pub live_bytes: u64,
    /// What it would still take, by its last heartbeat, bytes.
    pub free_bytes: u64,
    /// Sent and acknowledged, bytes.
    pub sent_bytes: u64,
    /// Received, bytes.
    pub received_bytes: u64,
    /// What waits to be sent, or to be acknowledged, bytes.
    pub waiting_bytes: u64,
    /// The last round trip, microseconds.
    pub round_trip_us: Option<u64>,
    /// Times that the link was made.
    pub connections: u64,
    /// Times that it ended.
    #[serde(default)]
    pub cuts: u64,
    /// Reads that failed for good.
    pub read_errors: u64,
}

/// What flash did since it was made, or taken over, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct FlashStatus {
    /// Pages that left the pool for it.
    pub evicted_pages: u64,
    /// Pages that faults asked for.
    pub demand_pages: u64,
    /// What was stored there, bytes.
    pub stored_bytes: u64,
    /// What was written to the device, bytes: whole segments, and what cleaning wrote anew.
    pub written_bytes: u64,
    /// Of these, what cleaning wrote anew.
    pub cleaned_bytes: u64,
    /// What was read from the device, bytes.
    pub read_bytes: u64,
    /// Blocks that were in memory when they were asked for: an earlier read had brought them along.
    #[serde(default)]
    pub near_blocks: u64,
    /// Bytes written to the device for each byte that was stored.
    pub write_amplification: f64,
    /// Which part of the device lives, 0 to 1.
    pub utilisation: f64,
    /// Reads that failed for good.
    pub read_errors: u64,
    /// Why it takes nothing more, if so: what is there stays readable.
    pub latched: Option<String>,
}

/// Counts over all apps, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Totals {
    /// Faults that brought a stored page back.
    pub demand_faults: u64,
    /// Faults on memory that held nothing.
    pub fresh_faults: u64,
    /// Faults on pages that were back already.
    pub spurious_faults: u64,
    /// Pages brought back without a fault.
    pub restored_pages: u64,
    /// Pages taken out and stored, in the pool or in the kernel's zram.
    pub swapped_out_pages: u64,
    /// Of these, pages given to the kernel's zram.
    #[serde(default)]
    pub lent_pages: u64,
    /// Pages found back from there: the kernel's own faults.
    #[serde(default)]
    pub lent_back_pages: u64,
    /// Of those that were taken out, pages of zeros.
    pub zero_pages: u64,
    /// Pages taken out and given back at once: asked for meanwhile, or no room.
    pub returned_pages: u64,
    /// Pages brought back early that were then used.
    pub prefetch_used_pages: u64,
    /// Pages found present where they were known as stored. Never expected.
    pub conflicts: u64,
    /// Events that the policies were not told because too many came at once.
    pub lost_events: u64,
    /// First touches of fresh memory that waited 0.2 ms because more than the budget was used, and faults that
    /// waited 10 ms because their control group had no room.
    pub room_waits: u64,
}

/// A number of the engine or a policy, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct PolicyMetric {
    /// Its name, the unit last.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// What it counts.
    pub help: String,
}

impl From<Metric> for PolicyMetric {
    fn from(metric: Metric) -> PolicyMetric {
        PolicyMetric {
            name: metric.name.to_string(),
            value: metric.value,
            help: metric.help.to_string(),
        }
    }
}

/// Pages of the classes that a scheme may keep, in [`AppStatus`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct ClassStatus {
    /// Used in relaunches.
    pub hot: ClassPages,
    /// Used later.
    pub warm: ClassPages,
    /// Not used since the launch.
    pub cold: ClassPages,
}

/// Pages of one class.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct ClassPages {
    /// Resident.
    pub resident_pages: u64,
    /// Stored, or on their way out.
    pub out_pages: u64,
}

impl ClassPages {
    /// Wherever they are.
    pub fn pages(&self) -> u64 {
        self.resident_pages.saturating_add(self.out_pages)
    }
}

/// What came back before it was asked for, in [`Status`]. Whether a page was then used is known only
/// of those that were parked.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct EarlyStatus {
    /// Pages that prefetch has asked for.
    pub asked_pages: u64,
    /// Of these, pages that are on their way now.
    pub coming_pages: u64,
    /// Pages that came back so, resident or parked, with the rest of their blocks.
    pub early_pages: u64,
    /// Pages made resident by a fault on another page of their block.
    pub along_pages: u64,
    /// Pages parked now; the daemon's memory counts them.
    pub parked_pages: u64,
    /// Pages parked since it began.
    pub parked_total_pages: u64,
    /// Of these, pages used while they were parked.
    pub used_pages: u64,
    /// Of these, pages stored again unused.
    pub expired_pages: u64,
}

/// The pages of one process that the scheme holds for hot: it expects the next relaunch to use them.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct HotPages {
    /// Process id.
    pub pid: u32,
    /// Runs of neighbours: address of the first page, number of pages; ascending.
    pub runs: Vec<(u64, u64)>,
}

/// What is known of the use of resident pages, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct SensorStatus {
    /// Pages taken out to see whether they are used, since it began.
    pub sampled_pages: u64,
    /// First touches of a run of them.
    pub touches: u64,
    /// Pages of them that a relaunch did not touch.
    pub unused_pages: u64,
    /// Resident pages whose accessed bit said that they were used, when an app had been used.
    #[serde(default)]
    pub accessed_pages: u64,
    /// And of which it said that they were not.
    #[serde(default)]
    pub not_accessed_pages: u64,
    /// Programs whose accessed bits are to be cleared, and are not yet.
    #[serde(default)]
    pub clearing: u64,
}

/// One app, in [`Status`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct AppStatus {
    /// Its name.
    pub name: String,
    /// Its user.
    #[serde(default)]
    pub uid: u32,
    /// `foreground` or `background`.
    pub state: String,
    /// Its processes.
    pub processes: Vec<ProcessStatus>,
    /// Resident anonymous memory of its managed processes.
    pub resident_bytes: u64,
    /// Pages that are stored and not in their programs.
    pub stored_pages: u64,
    /// Of these, pages with a decompressed copy at hand.
    #[serde(default)]
    pub parked_pages: u64,
    /// Of the stored pages, those in the kernel's zram, as far as is known: it brings them back without
    /// a word.
    #[serde(default)]
    pub lent_pages: u64,
    /// Original bytes / pool bytes of stored pages, of large programs by a sample; 0 while nothing is
    /// stored.
    pub ratio: f64,
    /// Times that it was started or came to the front, as far as is known.
    #[serde(default)]
    pub launches: u64,
    /// Faults served since it began, first touches of fresh memory included.
    pub faults: u64,
    /// Faults among them that brought a stored page back.
    pub demand_faults: u64,
    /// Time that those took in the daemon, from being read to their answer, in nanoseconds. The
    /// program waits longer: until it is woken.
    #[serde(default)]
    pub fault_ns: u64,
    /// Of it, reading the store: decompression and checksum.
    #[serde(default)]
    pub fault_codec_ns: u64,
    /// Time that the fault threads spent on pages that came along with those, when the program ran
    /// again, in nanoseconds: not part of `fault_ns`.
    #[serde(default)]
    pub fault_along_ns: u64,
    /// Pages found back from the kernel's zram since it began: its own faults.
    #[serde(default)]
    pub lent_back_pages: u64,
    /// Pages restored (faults, siblings, prefetches) since it began.
    pub restored_pages: u64,
    /// Pages taken out since it began.
    pub swapped_out_pages: u64,
    /// Pages brought back early (prefetched, or with a block of theirs) that were then used.
    #[serde(default)]
    pub prefetch_used_pages: u64,
    /// Processor time of its living processes, seconds.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Its pages by class; `None` where the scheme keeps none.
    #[serde(default)]
    pub classes: Option<ClassStatus>,
    /// Its memory that Clew cannot take.
    #[serde(default)]
    pub outside: OutsideStatus,
    /// It thrashes; `None` if not.
    #[serde(default)]
    pub thrashing: Option<ThrashingStatus>,
}

/// Memory of an app that Clew cannot take, in [`AppStatus`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct OutsideStatus {
    /// All of it.
    pub bytes: u64,
    /// Of it, shared memory of all its processes, each page once.
    pub shared_bytes: u64,
    /// Of it, memory of managed processes that may be written and executed.
    #[serde(default)]
    pub executable_bytes: u64,
    /// Processes that are not managed, the largest first, sixteen at most.
    pub processes: Vec<OutsideProcess>,
}

/// A process that is not managed, in [`OutsideStatus`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct OutsideProcess {
    /// Process id.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// Its user.
    pub uid: u32,
    /// Its resident anonymous bytes.
    pub bytes: u64,
    /// Why it is not managed, as far as that can be told.
    pub reason: String,
}

/// An app whose pages leave, come back at once and leave again, in [`AppStatus`].
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ThrashingStatus {
    /// Share of the time that its faults on such pages took, per cent.
    pub lost_percent: f64,
    /// Pages that would have to be resident besides.
    pub missing_pages: u64,
    /// The budget that would end it.
    pub enough_budget_bytes: u64,
}

/// One process, in [`AppStatus`].
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: u32,
    /// Its command name.
    pub command: String,
    /// Whether its memory can be taken out.
    pub managed: bool,
    /// Why not, if not.
    pub reason: String,
    /// Resident anonymous bytes.
    pub resident_bytes: u64,
    /// Pages stored.
    pub stored_pages: u64,
    /// Faults served since it began.
    #[serde(default)]
    pub faults: u64,
    /// Pages taken out since it began.
    #[serde(default)]
    pub swapped_out_pages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_what_a_server_says_end_somewhere() {
        let (programs_bytes, pool_bytes) = (u64::MAX, 1);
        let used = UsedBytes { programs_bytes, pool_bytes, ..UsedBytes::default() };
        assert_eq!(used.total(), u64::MAX);
        let class = ClassPages { resident_pages: u64::MAX, out_pages: u64::MAX };
        assert_eq!(class.pages(), u64::MAX);
    }
}
