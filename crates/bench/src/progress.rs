//! What a person sees while something takes longer than two seconds. Always on standard error, so
//! that standard output stays the result: a moving bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clew_core::remark;
use clew_core::shown::shown;
use indicatif::{ProgressBar, ProgressStyle};

/// Receives how far a benchmark is.
pub trait Progress: Sync {
    /// A part of `steps` steps begins.
    fn begin(&self, part: &str, steps: u64);
    /// One step of the part is done; `now` is what comes next.
    fn step(&self, now: &str);
    /// The part is done; `outcome` is one line about it.
    fn done(&self, outcome: &str);
}

/// Shows nothing.
pub struct Silent;

impl Progress for Silent {
    fn begin(&self, _part: &str, _steps: u64) {}
    fn step(&self, _now: &str) {}
    fn done(&self, _outcome: &str) {}
}

/// Shows it on standard error.
#[derive(Default)]
pub struct Console {
    bar: Mutex<Option<ProgressBar>>,
}

impl Console {
    /// Nothing is shown until the first part begins.
    pub fn new() -> Console {
        Console::default()
    }

    fn with_bar(&self, act: impl FnOnce(&mut Option<ProgressBar>)) {
        act(&mut self.bar.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Progress for Console {
    fn begin(&self, part: &str, steps: u64) {
        if !std::io::stderr().is_terminal() {
            remark!("{}", shown(part));
            return;
        }
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{prefix} [{bar:16}] {pos:>2}/{len} {wide_msg}")
            .expect("the template is well-formed")
            .progress_chars("=> ");
        bar.set_style(style);
        bar.set_prefix(shown(part).into_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        self.with_bar(|held| *held = Some(bar));
    }

    fn step(&self, now: &str) {
        self.with_bar(|held| {
            if let Some(bar) = held {
                bar.inc(1);
                bar.set_message(shown(now).into_owned());
            }
        });
    }

    fn done(&self, outcome: &str) {
        self.with_bar(|held| {
            if let Some(bar) = held.take() {
                bar.finish_and_clear();
            }
        });
        remark!("  {outcome}");
    }
}
