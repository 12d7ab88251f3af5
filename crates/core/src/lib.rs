//! The words that every part of Clew shares: pages, apps, events, units, and the six questions a
//! swap scheme answers. No I/O but remarks ([`mod@remark`]), no clock, no threads.
#![forbid(unsafe_code)]

pub mod app;
pub mod event;
pub mod order;
pub mod page;
pub mod policy;
pub mod remark;
pub mod seeded;
pub mod shown;
pub mod tier;
pub mod units;
pub mod view;

pub use app::{AppId, AppState, AppStats, Profile, SpaceId};
pub use event::{AccessKind, Event};
pub use order::Order;
pub use page::{Hotness, PageId, PageRun, SPACES, Vpn};
pub use policy::{
    Admission, Admit, Arrival, Candidate, Cause, CodecKind, Demand, Ending, Eviction, FlashForm,
    Group, Job, Metric, Observe, Packing, Place, Placement, PoolKind, Prefetch, Reclaim, RunAhead,
    SampleDemand, Trigger, Unit, Verdict, Victim,
};
pub use seeded::Seeded;
pub use tier::{DonorId, DonorState, Tier};
pub use units::{ByteSize, Ns, Whole};
pub use view::{
    ClassCounts, Classes, DeviceFacts, Facts, FrameFacts, Out, PageCounts, PageFacts, Starting,
    TierFacts, View,
};
