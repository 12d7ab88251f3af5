//! Programs that a fault thread lays aside, as somebody has their space's lock for long: he waits for the memory of the program
//! itself, which another has locked (who reads a page of a slow file out of it, for one). A program's own faults wait for that,
//! and nobody else's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::programs::process::Process;

/// The programs that one fault thread has laid aside.
#[derive(Default)]
pub struct Aside {
    programs: Vec<(Arc<Process>, Instant)>,
}

impl Aside {
    /// Lays one aside. Its messages are not heard of until it is looked at again.
    pub fn lay(&mut self, process: &Arc<Process>) {
        let now = Instant::now();
        let pause = process.held.lock().not_got(now);
        process.memory.lay_aside();
        self.programs.push((process.clone(), now + pause));
    }

    /// How long until one is looked at again; `None` if there is none.
    pub fn remaining(&self) -> Option<Duration> {
        let next = self.programs.iter().map(|(_, next)| *next).min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    /// Has the messages of those heard again that have waited long enough.
    pub fn look_again(&mut self) {
        if self.programs.is_empty() {
            return;
        }
        let now = Instant::now();
        self.programs.retain(|(process, next)| {
            let waits = *next > now;
            if !waits {
                process.memory.look_again();
            }
            waits
        });
    }
}
