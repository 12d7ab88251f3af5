//! The fault path: who answers, what programs do with their memory meanwhile, and how long it takes.

pub mod account;
pub mod affinity;
pub mod allowance;
pub mod arrivals;
pub mod aside;
pub mod doubts;
pub mod events;
pub mod far;
pub mod interrupter;
pub mod latency;
pub mod moves;
pub mod order;
pub mod poison;
pub mod populating;
pub mod room;
pub mod serve;
pub mod stuck;
pub mod uffd;
pub mod unmapped;
pub mod unreadable;
pub mod unwatched;
