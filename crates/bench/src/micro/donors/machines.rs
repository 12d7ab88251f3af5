//! The machine that lends and the one that borrows, as `clew donate` and the daemon have them.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clew_live::donor_tier::log_config;
use clew_remote::borrowed::{Borrowed, Lender};
use clew_remote::cores::Cores;
use clew_remote::donor::{Donor, Lending};
use clew_remote::keys::{Identity, Keys};
use clew_remote::link::{Link, Peer};
use clew_remote::patience::Patience;
use clew_remote::secure::Session;
use clew_store::flash::Flash;
use clew_store::flash::device::{Device, HEAD_BYTES};

use super::plain::{AT_A_TIME, us_a_page};
use super::{CHUNK_BYTES, PAGE};
use crate::error::BenchError;
use crate::network::{Machine, Network};

/// How long a donor is waited for that is to forget what it has.
const GOODBYE: Duration = Duration::from_secs(10);
/// What a log adds to an object, bytes.
const TAG_BYTES: u64 = 16;

pub fn unavailable(reason: impl ToString) -> BenchError {
    BenchError::Unavailable { what: "a donor", reason: reason.to_string() }
}

/// Keys of two machines that know each other.
pub struct Lends {
    keys: Keys,
    borrower: Identity,
}

impl Lends {
    pub fn new(scratch: &Path) -> Result<Lends, BenchError> {
        let keys = Keys::open(&scratch.join("keys")).map_err(unavailable)?;
        let borrower = Identity::random().map_err(unavailable)?;
        keys.know(borrower.public(), "borrower").map_err(unavailable)?;
        Ok(Lends { keys, borrower })
    }

    /// A donor of so many bytes on the far machine.
    pub fn donor<'a>(&'a self, network: &'a Network, bytes: u64) -> Result<Lent<'a>, BenchError> {
        let donor = network.on(Machine::Far, || {
            let listener = TcpListener::bind((network.address(Machine::Far), 0))?;
            // What each piece takes beside its bytes is the donor's own account.
            Donor::new(listener, self.keys.clone(), Lending::of(2 * bytes))
        })?;
        Ok(Lent { lends: self, network, donor: Some(donor.map_err(unavailable)?) })
    }
}

/// A donor, while it lends.
pub struct Lent<'a> {
    lends: &'a Lends,
    network: &'a Network,
    donor: Option<Donor>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let donor = self.donor.take();
        // It calls itself to wake up, which nobody can elsewhere. The process goes on without, if that fails.
        let _ = self.network.on(Machine::Far, move || drop(donor));
    }
}

impl Lent<'_> {
    pub fn address(&self) -> SocketAddr {
        let far = SocketAddr::new(self.network.address(Machine::Far), 0);
        self.donor.as_ref().map_or(far, Donor::address)
    }

    /// A link of the near machine to it, by way of `through`.
    fn channel(&self, through: Option<SocketAddr>) -> Result<Link, BenchError> {
        // Each has an area of its own.
        let mut session = [0; 16];
        session.copy_from_slice(&Identity::random().map_err(unavailable)?.public().0[..16]);
        let peer = Peer {
            address: through.unwrap_or(self.address()).to_string(),
            identity: self.lends.borrower.clone(),
            donor: self.lends.keys.identity.public(),
            session: Session(session),
            has: false,
        };
        let core = Cores::default().of(0);
        let link =
            self.network.on(Machine::Near, || Link::new(peer, Patience::default(), Some(core)))?;
        link.map_err(unavailable)
    }

    /// A log there, with room for so many pages.
    pub fn log(
        &self,
        through: Option<SocketAddr>,
        pages: u64,
        chunk: u32,
    ) -> Result<DonorLog, BenchError> {
        let link = self.channel(through)?;
        let lender = Arc::new(Borrowed::new(link, log_bytes(pages, chunk)));
        let log = log_on(Box::new(Arc::clone(&lender)), chunk)?;
        Ok(DonorLog { log, lender })
    }

    /// Microseconds for each 4 KiB of so many chunks, which are written without a log.
    pub fn chunks(&self, chunks: u64) -> Result<f64, BenchError> {
        let link = self.channel(None)?;
        let (tell, told) = channel();
        let write = |number: u64| {
            let tell = tell.clone();
            let at = number * u64::from(CHUNK_BYTES);
            let bytes = vec![number as u8; CHUNK_BYTES as usize];
            link.write(at, bytes, Box::new(move |wrote| drop(tell.send(wrote))));
        };
        // Not before the link is there.
        write(0);
        let over = || told.recv().map_err(unavailable)?.map_err(unavailable);
        over()?;
        let begin = Instant::now();
        for number in 0..chunks {
            if number >= AT_A_TIME as u64 {
                over()?;
            }
            write(number);
        }
        for _ in 0..chunks.min(AT_A_TIME as u64) {
            over()?;
        }
        Ok(us_a_page(begin.elapsed(), chunks))
    }
}

/// A log at a donor. It leaves nothing there: a donor keeps for minutes what a borrower has whose link is gone, and the logs
/// of all repetitions together are more than it lends.
pub struct DonorLog {
    pub log: Flash,
    lender: Arc<Borrowed>,
}

impl Drop for DonorLog {
    fn drop(&mut self) {
        self.lender.say_goodbye(GOODBYE);
    }
}

/// Bytes of a device whose log has room for so many pages.
pub fn log_bytes(pages: u64, chunk: u32) -> u64 {
    let of_a_chunk = (u64::from(chunk) / (PAGE as u64 + TAG_BYTES)).max(1);
    HEAD_BYTES + (pages / of_a_chunk + 16) * u64::from(chunk)
}

/// A log as the daemon has one at a donor.
pub fn log_on(device: Box<dyn Device>, chunk: u32) -> Result<Flash, BenchError> {
    let config = log_config(0, chunk).map_err(unavailable)?;
    Flash::new(config, device).map_err(unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::objects::Objects;

    /// Where they left something, the last of several repetitions waited for the donor to forget the first: 93 seconds.
    #[test]
    fn a_log_that_is_gone_has_left_nothing_at_its_donor() {
        let network = match Network::new() {
            Ok(network) => network,
            Err(error) => return crate::skip::skip("donors::left_nothing", &error.to_string()),
        };
        let scratch = tempfile::tempdir().expect("a directory");
        let lends = Lends::new(scratch.path()).expect("keys");
        let donor = lends.donor(&network, 1 << 20).expect("a donor");
        let lent = || donor.donor.as_ref().expect("it lends").lent();
        for repetition in 1..=4 {
            let at = donor.log(None, 256, CHUNK_BYTES).expect("a log");
            Objects::write(&at.log, 256, PAGE, "a donor").expect("it takes them");
            assert!(lent().used_bytes >= 1 << 20);
            drop(at);
            assert_eq!(lent().used_bytes, 0, "after repetition {repetition}");
        }
        assert!(lent().written_bytes >= 4 << 20);
    }
}
