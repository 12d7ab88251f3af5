//! One budget of a mount and a daemon: the daemon is asked how much the mount's pool may have, by a thread of its own, as it
//! may be slow to answer. While there is none, what the last one said holds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clew_core::ByteSize;
use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::{Request, Share};
use clew_mount::FilePages;

/// How often it is asked.
const PERIOD: Duration = Duration::from_millis(500);

/// From now on `pool` has what the daemon at `socket` says, `most` at most, as long as it is there.
///
/// # Errors
/// If there is no such daemon now, or it gives this mount no share.
pub fn share(pool: &Arc<FilePages>, socket: PathBuf, most: ByteSize) -> anyhow::Result<()> {
    let mut daemon = None;
    ask(&mut daemon, &socket, pool, most).context("sharing the daemon's budget")?;
    let pool = Arc::downgrade(pool);
    let go_on = move || {
        while let Some(pool) = pool.upgrade() {
            if let Err(error) = ask(&mut daemon, &socket, &pool, most) {
                tracing::debug!("the daemon does not say what the pool may have: {error}");
                daemon = None;
            }
            drop(pool);
            std::thread::sleep(PERIOD);
        }
    };
    std::thread::Builder::new().name("share".to_string()).spawn(go_on).context("a thread")?;
    Ok(())
}

fn ask(
    daemon: &mut Option<Client>,
    socket: &Path,
    pool: &FilePages,
    most: ByteSize,
) -> Result<(), ControlError> {
    let index_bytes = pool.index_bytes();
    let request = Request::Share {
        pid: std::process::id(),
        held_bytes: pool.facts().used_bytes + index_bytes,
        wanted_bytes: most.0,
        hits: pool.hits(),
    };
    let client = match daemon {
        Some(client) => client,
        None => daemon.insert(Client::connect(socket)?),
    };
    let share: Share = client.call(&request)?;
    pool.set_limit(share.limit_bytes.saturating_sub(index_bytes));
    Ok(())
}
