//! Who does the work: workers, one who prepares programs, and one for the long work of policies.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clew_engine::MoverContext;
use crossbeam_channel::{Sender, unbounded};

use super::desk::Queue;
use super::perform::perform;
use super::shares::{MostOfUser, Shares};
use super::work::Done;
use crate::agents::candidate::Candidate;
use crate::agents::refusal::AttachError;
use crate::agents::strangers::{self, Stranger};
use crate::control::trusted_path::own_uid;
use crate::faults::affinity;
use crate::message::Message;
use crate::programs::shared::Shared;

/// The workers. One that a program holds up ([`Shares`]) can do nothing else; then another takes its place, and one too
/// many leaves when it goes on. No worker waits for a program that is not managed yet: each user's are prepared by
/// somebody of their own.
pub struct Crew {
    shared: Arc<Shared>,
    work: Queue,
    answer: Sender<Message>,
    size: Arc<Size>,
    shares: Arc<Shares>,
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
    pub fn new(
        shared: Arc<Shared>,
        work: Queue,
        answer: Sender<Message>,
        most: MostOfUser,
    ) -> Crew {
        let (size, strangers) = (Arc::default(), HashMap::new());
        Crew {
            shared,
            work,
            answer,
            size,
            shares: Arc::new(Shares::new(most)),
            hired: 0,
            strangers,
        }
    }

    /// How many workers programs of each user hold up now.
    pub fn held_up(&self) -> HashMap<u32, usize> {
        self.shares.held_up()
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
            let shares = self.shares.clone();
            std::thread::Builder::new()
                .name(format!("worker-{}", self.hired))
                .spawn(move || run(&shared, &work, &answer, &size, &shares))?;
            self.size.present.fetch_add(1, Ordering::Relaxed);
            self.hired += 1;
        }
        Ok(())
    }
}

/// Works until the desk is closed, or one is not needed any more.
fn run(shared: &Arc<Shared>, work: &Queue, answer: &Sender<Message>, size: &Size, shares: &Shares) {
    let me = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let mut ctx = MoverContext::default();
    let mut comes_first = false;
    let mut waited = None;
    while let Some(item) = waited.take().or_else(|| work.next()) {
        // More than the budget is used: room is made before programs use up more of it.
        let is_over = shared.over_budget.load(Ordering::Relaxed);
        if std::mem::replace(&mut comes_first, is_over) != is_over {
            affinity::come_first(is_over);
        }
        let Some(item) = shares.begin(me, item) else { continue };
        let done = perform(shared, item, &mut ctx);
        waited = shares.end(me);
        if answer.send(Message::Done(Box::new(done))).is_err() {
            return;
        }
        let one_less = |present: usize| {
            (present > size.wanted.load(Ordering::Relaxed)).then(|| present.saturating_sub(1))
        };
        if waited.is_none()
            && size.present.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
        {
            return;
        }
    }
}
