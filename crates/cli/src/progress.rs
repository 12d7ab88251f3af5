//! How far something is, for who waits longer than two seconds.

use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar on standard error. It takes itself off the screen.
pub struct Bar {
    bar: ProgressBar,
    began: Instant,
}

impl Bar {
    fn new(what: impl Into<Cow<'static, str>>, of: u64, numbers: &str) -> Bar {
        let bar = ProgressBar::with_draw_target(Some(of), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(&format!("{{msg}} [{{bar:16}}] {numbers}"))
            .expect("the template is well-formed")
            .progress_chars("=> ");
        bar.set_style(style);
        bar.set_message(what);
        Bar { bar, began: Instant::now() }
    }

    /// Of a file of so many bytes. Shows nothing yet.
    pub fn of_bytes(what: impl Into<Cow<'static, str>>, bytes: u64) -> Bar {
        Bar::new(what, bytes, "{bytes} of {total_bytes}")
    }

    /// Of so many steps. Shows nothing yet.
    pub fn of_steps(what: impl Into<Cow<'static, str>>, steps: u64) -> Bar {
        Bar::new(what, steps, "{pos} of {len}")
    }

    /// Of something that has a hundred parts. Shows nothing yet.
    pub fn of_parts(what: impl Into<Cow<'static, str>>) -> Bar {
        Bar::new(what, 100, "{percent} %")
    }

    /// What it is about now.
    pub fn about(&self, what: String) {
        self.bar.set_message(what);
    }

    /// All of it is so much.
    pub fn of(&self, all: u64) {
        self.bar.set_length(all);
    }

    /// So much is done.
    pub fn at(&self, done: u64) {
        if self.bar.is_hidden() && self.began.elapsed() > Duration::from_secs(2) {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.bar.set_position(done);
    }

    /// Takes it off the screen.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let _ = io::stderr().flush();
        self.end();
    }
}
