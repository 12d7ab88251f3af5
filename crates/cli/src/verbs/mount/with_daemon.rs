//! One budget of a mount and a daemon: the daemon is asked how much the mount's pool may have, by a thread of its own, as it
//! may be slow to answer. While there is none, what the last one said holds.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clew_core::ByteSize;
use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::{Request, Share};
use clew_mount::FilePages;

/// How often it is asked.
const PERIOD: Duration = Duration::from_millis(500);

/// A share of a daemon's budget.
pub struct Sharing {
    socket: PathBuf,
    /// More is not wanted, bytes.
    most: ByteSize,
    daemon: Option<Client>,
    /// What the daemon has said last, bytes.
    limit_bytes: u64,
}

impl Sharing {
    /// Of the daemon at `socket`, for a mount of which nothing is there yet.
    ///
    /// # Errors
    /// If there is no such daemon now, or it gives this mount no share.
    pub fn begin(socket: PathBuf, most: ByteSize) -> anyhow::Result<Sharing> {
        let mut sharing = Sharing { socket, most, daemon: None, limit_bytes: 0 };
        sharing.ask(0, 0).context("sharing the daemon's budget")?;
        Ok(sharing)
    }

    /// From now on `pool` has what the daemon says, as long as it is there.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn share(mut self, pool: &Arc<FilePages>) -> anyhow::Result<()> {
        pool.set_limit(self.limit_bytes.saturating_sub(pool.index_bytes()));
        let pool = Arc::downgrade(pool);
        let go_on = move || {
            while let Some(pool) = pool.upgrade() {
                let index_bytes = pool.index_bytes();
                match self.ask(pool.facts().used_bytes + index_bytes, pool.hits()) {
                    Ok(()) => pool.set_limit(self.limit_bytes.saturating_sub(index_bytes)),
                    Err(error) => {
                        tracing::debug!("the daemon does not say what the pool may have: {error}");
                        self.daemon = None;
                    }
                }
                drop(pool);
                std::thread::sleep(PERIOD);
            }
        };
        std::thread::Builder::new().name("share".to_string()).spawn(go_on).context("a thread")?;
        Ok(())
    }

    fn ask(&mut self, held_bytes: u64, hits: u64) -> Result<(), ControlError> {
        let pid = std::process::id();
        let request = Request::Share { pid, held_bytes, wanted_bytes: self.most.0, hits };
        let client = match &mut self.daemon {
            Some(client) => client,
            None => self.daemon.insert(Client::connect(&self.socket)?),
        };
        let share: Share = client.call(&request)?;
        self.limit_bytes = share.limit_bytes;
        Ok(())
    }
}
