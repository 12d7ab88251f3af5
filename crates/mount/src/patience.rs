//! How long a mount is waited for whose server may be stopped.

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

/// Longer than one that is well takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks it by a thread of its own, which stays behind if there is no answer.
///
/// # Errors
/// `TIMEDOUT` without one, `AGAIN` without a thread; as `ask` says.
pub fn within<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, Errno> + Send + 'static,
) -> Result<T, Errno> {
    let (tell, told) = sync_channel(1);
    let asks = move || drop(tell.send(ask()));
    thread::Builder::new().name("clew-ask".into()).spawn(asks).map_err(|_| Errno::AGAIN)?;
    told.recv_timeout(PATIENCE).unwrap_or(Err(Errno::TIMEDOUT))
}
