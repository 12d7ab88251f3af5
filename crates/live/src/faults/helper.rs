//! Where a fault thread asks its helper, who brings what comes along with faults (see [`super::alongside`]).

use std::sync::Arc;

use clew_engine::Along;
use crossbeam_channel::{Receiver, Sender, bounded};

use crate::programs::process::Process;

/// What is to come along with a fault, and whose it is.
pub type Job = (Arc<Process>, Arc<Along>);

/// The way to the helper of one fault thread.
#[derive(Debug)]
pub struct Helper {
    desk: Sender<Job>,
    queue: Receiver<Job>,
}

impl Helper {
    /// One for each of so many fault threads; where there is one only, there is no other CPU.
    pub fn of(handlers: usize) -> Vec<Helper> {
        let helper = |_| {
            let (desk, queue) = bounded(1);
            Helper { desk, queue }
        };
        if handlers > 1 { (0..handlers).map(helper).collect() } else { Vec::new() }
    }

    /// Asks for help; who was asked before, and has not come yet, is not asked again.
    pub fn ask(&self, job: Job) {
        let _ = self.desk.try_send(job);
    }

    /// Whether it was asked and has not come yet.
    pub fn is_wanted(&self) -> bool {
        !self.desk.is_empty()
    }

    /// What it is asked for, for ever.
    pub fn jobs(&self) -> impl Iterator<Item = Job> {
        self.queue.iter()
    }
}
