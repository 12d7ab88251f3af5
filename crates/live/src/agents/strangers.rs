//! Preparing programs that are to be managed: a thread asks their agents and waits for all of them at
//! once. One that says nothing holds up neither who is managed already nor who is to be.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use clew_engine::MoverContext;
use crossbeam_channel::{Receiver, Sender};

use crate::agents::attach::{Asked, manage};
use crate::agents::candidate::Candidate;
use crate::agents::refusal::AttachError;
use crate::message::Message;
use crate::programs::process::Process;
use crate::programs::scan::scan;
use crate::programs::shared::Shared;
use crate::workers::work::Done;

/// How long nobody looks whether there is somebody new, milliseconds.
const LOOK: libc::c_int = 10;

/// A program to be prepared, and the ticket of the order.
pub type Stranger = (Box<Candidate>, u64);

/// Prepares whoever comes, until nobody can come any more.
pub fn prepare(shared: &Arc<Shared>, strangers: &Receiver<Stranger>, answer: &Sender<Message>) {
    let mut asked: Vec<(Asked, u64)> = Vec::new();
    let mut ctx = MoverContext::default();
    let mut tell = |ticket, pid, outcome: Result<Arc<Process>, AttachError>| {
        let outcome = outcome.map_err(|error| (pid, error));
        let mut done = Done { ticket, ..Done::default() };
        if let Ok(process) = &outcome {
            let (found, _) = scan(shared, process, &mut ctx);
            (done.events, done.alone) = (found.events, found.alone);
            done.process = Some(process.clone());
        }
        done.managed = Some(outcome);
        answer.send(Message::Done(Box::new(done))).is_ok()
    };
    loop {
        let next = if asked.is_empty() { strangers.recv().ok() } else { strangers.try_recv().ok() };
        if let Some((candidate, ticket)) = next {
            let pid = candidate.pid;
            match Asked::ask(shared, *candidate) {
                Ok(one) => asked.push((one, ticket)),
                Err(error) => {
                    if !tell(ticket, pid, Err(error)) {
                        return;
                    }
                }
            }
            continue;
        }
        if asked.is_empty() {
            return;
        }
        let has_answered = wait(&asked);
        let now = Instant::now();
        let mut still = Vec::with_capacity(asked.len());
        for ((mut one, ticket), has_answered) in asked.drain(..).zip(has_answered) {
            let pid = one.pid();
            let is_told = match has_answered.then(|| one.answer()).transpose().map(Option::flatten)
            {
                Ok(Some(ready)) => tell(ticket, pid, manage(shared, one, ready)),
                Ok(None) if now < one.until() => {
                    still.push((one, ticket));
                    true
                }
                Ok(None) => tell(ticket, pid, Err(late())),
                Err(error) => tell(ticket, pid, Err(AttachError::NoAnswer(error))),
            };
            if !is_told {
                return;
            }
        }
        asked = still;
    }
}

fn late() -> AttachError {
    AttachError::NoAnswer(io::ErrorKind::TimedOut.into())
}

/// Waits a moment for answers; who has one.
fn wait(asked: &[(Asked, u64)]) -> Vec<bool> {
    let readable = |(one, _): &(Asked, u64)| libc::pollfd {
        fd: one.socket().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut polls: Vec<libc::pollfd> = asked.iter().map(readable).collect();
    // SAFETY: the array lives across the call and is as long as stated.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, LOOK) };
    polls.iter().map(|poll| poll.revents != 0).collect()
}
