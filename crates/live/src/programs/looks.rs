//! Looking whether the memory of programs has ended, and whether programs have left it (execve).
//!
//! Both are questions that a program can have wait: for its memory's lock, which its threads have when they
//! change protections, and for an execve that is under way, which closes files meanwhile. So threads of
//! their own ask them, and the policy thread hears of what was found.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::agents::candidate::Who;
use crate::agents::patient::{self, Patience};
use crate::message::Message;
use crate::programs::process::Process;

/// Who asks whether programs have left their memory.
const ASKERS: Patience = Patience {
    name: "leavers",
    most: 8,
    stuck: Duration::from_millis(200),
    hopeless: Duration::from_millis(10),
    stack_bytes: 128 << 10,
};

/// Where looks are asked for.
pub struct Looks {
    ends: Sender<Vec<Arc<Process>>>,
    asked: Receiver<Vec<Arc<Process>>>,
    leavers: Option<Sender<Leaver>>,
}

/// A program that may have left its memory.
pub enum Leaver {
    /// One that is managed, of this process id.
    Managed(Arc<Process>, u32),
    /// One that only waits to be, and whether it is being asked about.
    Waiting(Who, Arc<AtomicBool>),
}

impl Leaver {
    fn is_asked_about(&self) -> &AtomicBool {
        match self {
            Leaver::Managed(process, _) => &process.is_asked_about,
            Leaver::Waiting(_, is_asked_about) => is_asked_about,
        }
    }
}

impl Default for Looks {
    fn default() -> Looks {
        let (ends, asked) = bounded(1);
        Looks { ends, asked, leavers: None }
    }
}

impl Looks {
    /// Starts who looks.
    ///
    /// # Errors
    /// If the system has no threads.
    pub fn start(&mut self, to_governor: &Sender<Message>) -> io::Result<()> {
        let (asked, answer) = (self.asked.clone(), to_governor.clone());
        let ends = std::thread::Builder::new().name("ends".into());
        ends.spawn(move || watch_ends(&asked, &answer))?;
        let answer = to_governor.clone();
        // Whoever is not asked about now is the next time.
        self.leavers = Some(patient::hire(
            ASKERS,
            move |one| ask(&one, &answer),
            |one: Leaver, _| {
                one.is_asked_about().store(false, Ordering::Release);
            },
        )?);
        Ok(())
    }

    /// Has these looked at. If the last look is not over, they are the next time.
    pub fn look_for_ends(&self, of: Vec<Arc<Process>>) {
        let _ = self.ends.try_send(of);
    }

    /// Has one asked about. Of one that is being asked about nobody needs to ask again.
    pub fn look_whether_left(&self, one: Leaver) {
        let Some(leavers) = &self.leavers else { return };
        if !one.is_asked_about().swap(true, Ordering::AcqRel) {
            let _ = leavers.send(one);
        }
    }
}

/// Looks at programs whenever it is asked, until nobody asks any more.
fn watch_ends(asked: &Receiver<Vec<Arc<Process>>>, to_governor: &Sender<Message>) {
    for programs in asked {
        let ended = programs.iter().filter(|process| process.memory.look_whether_ended()).count();
        drop(programs);
        if ended > 0 && to_governor.send(Message::Ended).is_err() {
            return;
        }
    }
}

fn ask(one: &Leaver, to_governor: &Sender<Message>) {
    match one {
        Leaver::Managed(process, pid) => process.memory.end_outliving_agent(*pid),
        Leaver::Waiting(who, _) if who.is_left() => _ = to_governor.send(Message::Left(*who)),
        Leaver::Waiting(..) => {}
    }
    one.is_asked_about().store(false, Ordering::Release);
}
