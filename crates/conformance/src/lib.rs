//! What every policy must keep, whoever wrote it: one function for each of the six questions, to which
//! a test gives what builds the policy.
//!
//! Each plays some hundred drawn histories to the policy: programs begin and end, pages are found, used,
//! freed, moved, leave and come back, with the rules of [`clew_core::Event`] kept, and the policy's
//! question is asked in between. What is checked:
//!
//! - the same history gives the same answers, whichever policy of the kind is asked;
//! - a page that was handed out is not handed out again until it was told back;
//! - only pages that are where the question looks for them are handed out, so none of a space or an app
//!   that has ended, and none of an earlier space of that number;
//! - events about pages that nobody ever heard of are survived;
//! - [`clew_core::Reclaim::pick_app`] hands out all that is resident of the app, if the policy hands out
//!   anything at all, and what [`clew_core::Classes`] says fits together;
//! - [`clew_core::Packing`] loses no page and invents none, and leaves nothing when it must not;
//! - [`clew_core::Placement`] names places that there are;
//! - asking for endings and jobs comes to an end, and every metric is a number with a name of its own.
//!
//! A policy that can be asked alone is tested the same way by hand: [`World`] is a page table and the
//! facts that go with it, from which [`clew_core::View`]s are made.
#![forbid(unsafe_code)]

mod life;
mod questions;
mod world;

pub use life::Broken;
pub use questions::{admission, eviction, packing, placement, prefetch, reclaim};
pub use world::{Table, World, page, run};
