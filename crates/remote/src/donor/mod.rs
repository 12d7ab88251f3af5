//! The machine that lends: what of its memory is lent to whom, and who asks.
//!
//! - [`areas`]: what borrowers have here, `memory`: where that lies, [`account`]: how much it is; `serve`: one thread a borrower, which answers its questions in their order;
//!   `strangers`: who has not proven yet who it is; `pressure`: whether this machine wants its memory back.
//!
//! Memory is taken as it is used and given back as it is forgotten, all borrowers together are kept to one limit. A
//! borrower whose link is cut finds what it had when it comes back with the same session, for a while ([`Lending::keep`]).
//!
//! A borrower is hostile: it may send anything, in any order and amount. What it has are its own areas, and what it can
//! take are the limits.

pub mod account;
pub mod areas;
mod memory;
mod pressure;
mod serve;
pub(crate) mod strangers;

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;

use crate::keys::{Keys, PublicKey};
use areas::Areas;
use pressure::Pressure;
pub use serve::HEARTBEAT;
use strangers::Strangers;

/// Links at a time, of borrowers that have proven who they are; and of one of them.
pub const MOST_LINKS: usize = 96;
const MOST_OF_ONE: usize = 24;

/// How a machine lends.
#[derive(Clone, Debug)]
pub struct Lending {
    /// What it lends, all borrowers together, bytes.
    pub memory_bytes: u64,
    /// What it wants to have available itself: with less than that it wants its memory back. Zero for never.
    pub reserve_bytes: u64,
    /// How long it waits then, before it takes back what it was not given.
    pub grace: Duration,
    /// How long it keeps what a borrower has whose link is cut.
    pub keep: Duration,
}

impl Lending {
    /// So many bytes, with what is usual else.
    pub fn of(memory_bytes: u64) -> Lending {
        Lending {
            memory_bytes,
            reserve_bytes: 0,
            grace: Duration::from_secs(10),
            keep: Duration::from_secs(300),
        }
    }
}

/// What a donor has lent, and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// Borrowers whose link is up.
    pub links: usize,
    /// What they all have here, bytes.
    pub used_bytes: u64,
    /// What would still be lent, bytes.
    pub free_bytes: u64,
    /// It wants its memory back.
    pub pressed: bool,
    /// Written here since the beginning, bytes.
    pub written_bytes: u64,
    /// Read from here since the beginning, bytes.
    pub read_bytes: u64,
}

pub(crate) struct Shared {
    pub areas: Areas,
    pub lending: Lending,
    pub keys: Keys,
    pub pressure: Pressure,
    pub links: AtomicUsize,
    pub strangers: Strangers,
    pub borrowers: Mutex<HashMap<PublicKey, usize>>,
    pub ends: AtomicBool,
}

/// A machine that lends. Dropped, it takes everything back.
pub struct Donor {
    shared: Arc<Shared>,
    address: SocketAddr,
}

impl std::fmt::Debug for Donor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Donor({}, {:?})", self.address, self.lent())
    }
}

impl Donor {
    /// Lends to whom `keys` know and who comes to `listener`, from threads of its own.
    ///
    /// # Errors
    /// If the system gives no thread, or no memory that could be lent.
    pub fn new(listener: TcpListener, keys: Keys, lending: Lending) -> io::Result<Donor> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            areas: Areas::new(lending.memory_bytes)?,
            pressure: Pressure::default(),
            lending,
            keys,
            links: AtomicUsize::new(0),
            strangers: Strangers::default(),
            borrowers: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let accepts = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("clew-donor".into());
        named.spawn(move || accept(&accepts, &listener))?;
        let watches = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("clew-donor-mem".into());
        named.spawn(move || pressure::watch(&watches))?;
        Ok(Donor { shared, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// It wants its memory back, or does not any more, whatever this machine has available.
    pub fn press(&self, pressed: bool) {
        self.shared.pressure.asked.store(pressed, SeqCst);
    }

    /// What it has lent.
    pub fn lent(&self) -> Lent {
        let (used_bytes, free_bytes) = self.shared.areas.room();
        let (written_bytes, read_bytes) = self.shared.areas.moved();
        Lent {
            links: self.shared.links.load(SeqCst),
            used_bytes,
            free_bytes,
            pressed: self.shared.pressure.is_on(),
            written_bytes,
            read_bytes,
        }
    }
}

impl Drop for Donor {
    fn drop(&mut self) {
        self.shared.ends.store(true, SeqCst);
        // Who waits for the next borrower has one.
        let _ = std::net::TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    loop {
        let came = listener.accept();
        if shared.ends.load(SeqCst) {
            return;
        }
        let stream = match came {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a borrower could not be let in");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let Ok(stranger) = shared.strangers.came(&stream) else { continue };
        shared.links.fetch_add(1, SeqCst);
        let lends = Arc::clone(shared);
        let named = std::thread::Builder::new().name("clew-donor-link".into());
        let spawned = named.spawn(move || {
            let peer = stream.peer_addr();
            if let Err(error) = serve::serve(&lends, stream, stranger) {
                let peer = peer.map_or_else(|_| "?".to_string(), |peer| peer.to_string());
                tracing::info!(%peer, %error, "the link to a borrower has ended");
            }
            lends.links.fetch_sub(1, SeqCst);
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread for a borrower");
            shared.strangers.is_none(stranger);
            shared.links.fetch_sub(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests;
