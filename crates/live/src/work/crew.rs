//! Who does the work: workers, one who prepares programs, and one for the long work of policies.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clew_engine::MoverContext;
use crossbeam_channel::Sender;

use super::desk::Queue;
use super::perform::perform;
use crate::agents::strangers;
use crate::governor::Message;
use crate::programs::process::Shared;

/// The workers. One that waits for an agent which has begun an order and is frozen can do nothing
/// else; then another takes its place, and one too many leaves when the agent is heard again.
pub struct Crew {
    shared: Arc<Shared>,
    work: Queue,
    answer: Sender<Message>,
    size: Arc<Size>,
    hired: usize,
}

#[derive(Default)]
struct Size {
    present: AtomicUsize,
    wanted: AtomicUsize,
}

impl Crew {
    /// Nobody yet.
    pub fn new(shared: Arc<Shared>, work: Queue, answer: Sender<Message>) -> Crew {
        Crew { shared, work, answer, size: Arc::default(), hired: 0 }
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

    /// Somebody who prepares programs. Each may take some seconds to answer.
    fn hire_for_strangers(&self) -> std::io::Result<()> {
        let (shared, strangers) = (self.shared.clone(), self.work.strangers.clone());
        let answer = self.answer.clone();
        std::thread::Builder::new()
            .name("strangers".into())
            .spawn(move || strangers::prepare(&shared, &strangers, &answer))?;
        Ok(())
    }

    /// Makes it so many workers, one who prepares programs, each of which may take some seconds to
    /// answer, and one for the long work of policies.
    pub fn keep(&mut self, wanted: usize) -> std::io::Result<()> {
        if self.hired == 0 {
            self.hire_for_strangers()?;
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
    while let Some(item) = work.next() {
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
