//! What the policy thread is told, by all others.

use std::collections::HashMap;
use std::sync::Arc;

use clew_core::AppId;
use crossbeam_channel::Sender;

use crate::agents::candidate::{Candidate, Who};
use crate::control::protocol::Request;
use crate::control::status::{OutsideStatus, Status};
use crate::programs::plea::Plea;
use crate::programs::process::Process;
use crate::users::Asker;
use crate::workers::work::Done;

/// What the policy thread is told.
pub enum Message {
    /// A program with an agent appeared.
    Hello(Box<Candidate>),
    /// A managed program uses a userfaultfd of its own.
    LetGo(Plea),
    /// A managed program forked.
    Forked(Arc<Process>),
    /// A program of a predecessor is served again.
    Adopted(Arc<Process>),
    /// Work is done.
    Done(Box<Done>),
    /// A client asks; the answer is one line of JSON.
    Control(Request, Asker, Sender<String>),
    /// Somebody shows the state of everything.
    Look(Sender<Box<Status>>),
    /// What apps have that cannot be taken.
    Outside(HashMap<AppId, OutsideStatus>),
    /// The memory of some programs has.
    Ended,
    /// A candidate's program has left the memory of its agent.
    Left(Who),
    /// The machine stalls for want of memory.
    Stalled,
    /// Bring everything back and end.
    Stop,
}
