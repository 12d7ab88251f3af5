//! One budget with a daemon: what that and its programs use counts here, too. It is asked from time to time, by a
//! thread of its own, as it may be slow to answer; one that is not there uses nothing.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clew_live::control::client::Client;

/// How often it is asked.
const PERIOD: Duration = Duration::from_secs(1);

/// What a daemon uses. It is asked as long as this lives.
pub struct Beside(Arc<AtomicU64>);

impl Beside {
    /// Of the daemon that serves `socket`, now or later.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn of(socket: PathBuf) -> io::Result<Beside> {
        // Not asked here: it may hang.
        let used = Arc::new(AtomicU64::new(0));
        let known = Arc::downgrade(&used);
        let watch = move || {
            while let Some(used) = known.upgrade() {
                used.store(used_at(&socket), Ordering::Relaxed);
                drop(used);
                std::thread::sleep(PERIOD);
            }
        };
        std::thread::Builder::new().name("beside".to_string()).spawn(watch)?;
        Ok(Beside(used))
    }

    /// As it last said, bytes.
    pub fn used_bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn used_at(socket: &std::path::Path) -> u64 {
    let status = Client::connect(socket).and_then(|mut daemon| daemon.status());
    status.map_or(0, |status| status.used_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_is_not_there_uses_nothing() {
        let beside = Beside::of("/nonexistent/clew.sock".into()).expect("a thread");
        assert_eq!(beside.used_bytes(), 0);
    }
}
