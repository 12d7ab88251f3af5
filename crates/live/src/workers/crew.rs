//! Who does the work: workers, one who prepares programs, and one for the long work of policies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clew_engine::MoverContext;
use crossbeam_channel::{Sender, unbounded};

use super::desk::Queue;
use super::perform::perform;
use super::work::Done;
use crate::agents::candidate::Candidate;
use crate::agents::refusal::AttachError;
use crate::agents::strangers::{self, Stranger};
use crate::control::trusted_path::own_uid;
use crate::faults::affinity;
use crate::message::Message;
use crate::programs::shared::Shared;

/// The workers. One that waits for an agent which has begun an order and is frozen can do nothing
/// else; then another takes its place, and one too many leaves when the agent is heard again. No worker waits
/// for a program that is not managed yet: each user's are prepared by somebody of their own.
pub struct Crew {
    shared: Arc<Shared>,
    work: Queue,
    answer: Sender<Message>,
    size: Arc<Size>,
    hired: usize,
    /// Who prepares programs, by their user.
    strangers: HashMap<u32, Sender<Stranger>>,
}

#[derive(Default)]
struct Size {
    present: AtomicUsize,
    wanted: AtomicUsize,
}

impl Crew {
    /// Nobody yet.
    pub fn new(shared: Arc<Shared>, work: Queue, answer: Sender<Message>) -> Crew {
        Crew { shared, work, answer, size: Arc::default(), hired: 0, strangers: HashMap::new() }
    }

    /// Somebody who does one piece of long work after the other, and nothing else.
    fn hire_for_jobs(&self) -> std::io::Result<()> {
        let (shared, work) = (self.shared.clone(), self.work.jobs.clone());
        let answer = self.answer.clone();
        std::thread::Builder::new().name("jobs".into()).spawn(move || {
            let mut ctx = MoverContext::default();
            for item in work {
                let done = perform(&shared, item, &mut ctx);
                if answer.send(Message::Done(Box::new(done))).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Somebody who prepares programs of a user. Each may take some seconds to answer.
    fn hire_for_strangers(&mut self, uid: u32) -> std::io::Result<&Sender<Stranger>> {
        let (shared, answer) = (self.shared.clone(), self.answer.clone());
        let none = match self.strangers.entry(uid) {
            Entry::Occupied(hired) => return Ok(hired.into_mut()),
            Entry::Vacant(none) => none,
        };
        let (to, strangers) = unbounded();
        std::thread::Builder::new()
            .name("strangers".into())
            .spawn(move || strangers::prepare(&shared, &strangers, &answer))?;
        Ok(none.insert(to))
    }

    /// Has a candidate prepared for management. Answered by one [`Message::Done`], too.
    pub fn prepare(&mut self, candidate: Box<Candidate>, ticket: u64) {
        match self.hire_for_strangers(candidate.uid) {
            // Without one the daemon is ending.
            Ok(strangers) => drop(strangers.send((candidate, ticket))),
            Err(source) => {
                let error = AttachError::Proc { what: "starting a thread", source };
                let managed = Some(Err((candidate.pid, error)));
                let done = Done { ticket, managed, ..Done::default() };
                let _ = self.answer.send(Message::Done(Box::new(done)));
            }
        }
    }

    /// Makes it so many workers, one who prepares programs, each of which may take some seconds to
    /// answer, and one for the long work of policies.
    pub fn keep(&mut self, wanted: usize) -> std::io::Result<()> {
        if self.hired == 0 {
            self.hire_for_strangers(own_uid())?;
            self.hire_for_jobs()?;
        }
        self.size.wanted.store(wanted, Ordering::Relaxed);
        while self.size.present.load(Ordering::Relaxed) < wanted {
            let (shared, work) = (self.shared.clone(), self.work.clone());
            let (answer, size) = (self.answer.clone(), self.size.clone());
            std::thread::Builder::new()
                .name(format!("worker-{}", self.hired))
                .spawn(move || run(&shared, &work, &answer, &size))?;
            self.size.present.fetch_add(1, Ordering::Relaxed);
            self.hired += 1;
        }
        Ok(())
    }
}

/// Works until the desk is closed, or one is not needed any more.
fn run(shared: &Arc<Shared>, work: &Queue, answer: &Sender<Message>, size: &Size) {
    let mut ctx = MoverContext::default();
    let mut comes_first = false;
    while let Some(item) = work.next() {
        // More than the budget is used: room is made before programs use up more of it.
        let is_over = shared.over_budget.load(Ordering::Relaxed);
        if std::mem::replace(&mut comes_first, is_over) != is_over {
            affinity::come_first(is_over);
        }
        let done = perform(shared, item, &mut ctx);
        if answer.send(Message::Done(Box::new(done))).is_err() {
            return;
        }
        let one_less = |present: usize| {
            (present > size.wanted.load(Ordering::Relaxed)).then(|| present.saturating_sub(1))
        };
        if size.present.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
            return;
        }
    }
}
