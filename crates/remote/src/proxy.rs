//! A bad link, for tests and measurements: between a borrower and a lender, and it limits, delays, loses, lies, stops, and
//! cuts.
//!
//! It passes on bytes, not packets. So a packet that is lost is not seen as such, but as what TCP makes of it: all that is
//! behind waits until it was sent again.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use clew_core::seeded::Seeded;
use parking_lot::{Condvar, Mutex};

/// Bytes that are passed on at once.
const PIECE_BYTES: usize = 16 << 10;
/// Pieces on their way, each way.
const PIECES: usize = 128;
/// Bytes of a packet on Ethernet.
const PACKET_BYTES: usize = 1448;
/// How long TCP waits at least before it sends again what nothing was heard of (Linux, `TCP_RTO_MIN`).
const SENT_AGAIN: Duration = Duration::from_millis(200);

/// One of so many pieces has a byte more ([`Act::Insert`]).
pub const INSERTS: usize = 16;

/// What happens to what passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// It passes.
    Pass,
    /// Links end, and so do new ones.
    Cut,
    /// Nothing passes, and nobody is told: a partition, or a lender that was stopped. What waited passes when it heals.
    Stop,
    /// Nothing passes on the links that there are now, as by [`Act::Stop`], and everything on those that are made later.
    StopOlder,
    /// The lender's end is closed, and the borrower is not told: its link is half open.
    HalfOpen,
    /// A byte of each piece is changed.
    Lie,
    /// A byte comes in between, in one piece of so many ([`INSERTS`]): what is behind it is somewhere else.
    Insert,
}

/// How good the link is, each way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Quality {
    /// At most so many bytes a second.
    pub bytes_per_second: Option<u64>,
    /// How long a byte is on its way.
    pub delay: Duration,
    /// Packets that are lost, of a million.
    pub lost_of_million: u32,
}

struct State {
    act: Act,
    quality: Quality,
    /// Borrower's and lender's ends, by a number.
    links: BTreeMap<u64, (TcpStream, TcpStream)>,
    made: u64,
    /// Links up to this number are older than what happens now.
    older: u64,
    ends: bool,
}

struct Shared {
    lender: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

/// It listens until it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Passes on what comes to a port of `address` that is free, to `lender`. Its threads are where the caller's is, in
    /// the same network.
    ///
    /// # Errors
    /// If the system gives no port, or no thread.
    pub fn new(address: std::net::IpAddr, lender: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind((address, 0))?;
        let address = listener.local_addr()?;
        let state = State {
            act: Act::Pass,
            quality: Quality::default(),
            links: BTreeMap::new(),
            made: 0,
            older: 0,
            ends: false,
        };
        let changed = Condvar::new();
        let shared = Arc::new(Shared { lender, state: Mutex::new(state), changed });
        let accepts = Arc::clone(&shared);
        let named = std::thread::Builder::new().name("clew-proxy".into());
        named.spawn(move || accepts.accept(&listener))?;
        Ok(Proxy { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on this happens.
    pub fn act(&self, act: Act) {
        let mut state = self.shared.state.lock();
        state.act = act;
        state.older = state.made;
        for (borrower, lender) in state.links.values() {
            match act {
                Act::Cut => {
                    let _ = borrower.shutdown(Shutdown::Both);
                    let _ = lender.shutdown(Shutdown::Both);
                }
                Act::HalfOpen => drop(lender.shutdown(Shutdown::Both)),
                Act::Pass | Act::Stop | Act::StopOlder | Act::Lie | Act::Insert => {}
            }
        }
        if act == Act::Cut {
            state.links.clear();
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    /// From now on the link is as good as this.
    pub fn is_as_good_as(&self, quality: Quality) {
        self.shared.state.lock().quality = quality;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.act(Act::Cut);
        self.shared.state.lock().ends = true;
        // Who waits for the next borrower has one.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for borrower in listener.incoming() {
            if self.state.lock().ends {
                return;
            }
            // Who is not served finds his link ended.
            if let Ok(borrower) = borrower {
                let _ = self.serve(borrower);
            }
        }
    }

    fn serve(self: &Arc<Self>, borrower: TcpStream) -> io::Result<()> {
        if self.state.lock().act == Act::Cut {
            return Ok(());
        }
        let lender = TcpStream::connect(self.lender)?;
        borrower.set_nodelay(true)?;
        lender.set_nodelay(true)?;
        let number = {
            let mut state = self.state.lock();
            if state.act == Act::Cut {
                return Ok(());
            }
            state.made += 1;
            let number = state.made;
            state.links.insert(number, (borrower.try_clone()?, lender.try_clone()?));
            number
        };
        let ends = [(&borrower, &lender, true), (&lender, &borrower, false)];
        for (from, to, is_borrowers) in ends {
            let (from, to) = (from.try_clone()?, to.try_clone()?);
            let (put, take) = sync_channel(PIECES);
            let (reads, writes) = (Arc::clone(self), Arc::clone(self));
            let named = || std::thread::Builder::new().name("clew-proxy".into());
            named().spawn(move || reads.read(from, &put))?;
            named().spawn(move || writes.write(to, &take, number, is_borrowers))?;
        }
        Ok(())
    }

    /// Takes what comes, and says when it is there.
    fn read(&self, mut from: TcpStream, put: &SyncSender<(Instant, Vec<u8>)>) {
        let mut draw = Seeded::of(u64::from(from.peer_addr().map_or(0, |peer| peer.port())), &[]);
        let (mut is_free, mut arrives) = (Instant::now(), Instant::now());
        let mut bytes = vec![0; PIECE_BYTES];
        loop {
            let len = match from.read(&mut bytes) {
                Ok(0) => return,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            let Quality { bytes_per_second, delay, lost_of_million } = self.state.lock().quality;
            is_free = is_free.max(Instant::now());
            if let Some(rate) = bytes_per_second {
                is_free += Duration::from_secs_f64(len as f64 / rate.max(1) as f64);
            }
            let packets = len.div_ceil(PACKET_BYTES);
            let is_lost = (0..packets).any(|_| draw.below(1_000_000) < lost_of_million.into());
            let again = if is_lost { SENT_AGAIN } else { Duration::ZERO };
            // Nothing overtakes what is before it.
            arrives = arrives.max(is_free + delay + again);
            if put.send((arrives, bytes[..len].to_vec())).is_err() {
                return;
            }
        }
    }

    /// Passes on what has arrived.
    fn write(
        &self,
        mut to: TcpStream,
        take: &Receiver<(Instant, Vec<u8>)>,
        number: u64,
        is_borrowers: bool,
    ) {
        // Sleeping for microseconds means microseconds.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let (mut is_open, mut pieces) = (true, 0);
        while let Ok((arrives, mut bytes)) = take.recv() {
            std::thread::sleep(arrives.saturating_duration_since(Instant::now()));
            let act = {
                let mut state = self.state.lock();
                while state.act == Act::Stop || state.act == Act::StopOlder && number <= state.older
                {
                    self.changed.wait(&mut state);
                }
                state.act
            };
            if act == Act::Lie {
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
            }
            pieces += 1;
            if act == Act::Insert && pieces % INSERTS == 0 {
                bytes.insert(bytes.len() / 2, 1);
            }
            // A half-open link takes what its borrower says, and nobody gets it.
            is_open &= to.write_all(&bytes).is_ok();
            if !(is_open || is_borrowers && act == Act::HalfOpen) {
                break;
            }
        }
        let mut state = self.state.lock();
        if is_borrowers || state.act != Act::HalfOpen {
            let _ = to.shutdown(Shutdown::Both);
            state.links.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It answers each byte with the next one.
    fn counts_on() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut bytes = vec![0; 4096];
                    while let Ok(len @ 1..) = stream.read(&mut bytes) {
                        bytes[..len].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                        if stream.write_all(&bytes[..len]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    fn asked(link: &mut TcpStream, byte: u8) -> io::Result<u8> {
        link.write_all(&[byte])?;
        let mut came = [0];
        link.read_exact(&mut came)?;
        Ok(came[0])
    }

    #[test]
    fn it_does_what_it_is_told() {
        let proxy = Proxy::new([127, 0, 0, 1].into(), counts_on()).unwrap();
        let connect = || TcpStream::connect(proxy.address()).unwrap();
        let mut link = connect();
        assert_eq!(asked(&mut link, 7).unwrap(), 8);
        proxy.act(Act::Lie);
        assert_eq!(asked(&mut link, 7).unwrap(), 6, "a bit each way");
        proxy.act(Act::Insert);
        let mut more = 0;
        for _ in 0..2 * INSERTS {
            link.write_all(&[7]).unwrap();
            let mut came = [0];
            link.read_exact(&mut came).unwrap();
            more += usize::from(came != [8]);
        }
        assert!(more > 0, "a byte more now and then");
        proxy.act(Act::Pass);
        link = connect();
        proxy.act(Act::Stop);
        link.write_all(&[9]).unwrap();
        link.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(link.read(&mut [0]).is_err(), "nothing passes");
        link.set_read_timeout(None).unwrap();
        proxy.act(Act::Pass);
        let mut came = [0];
        link.read_exact(&mut came).unwrap();
        assert_eq!(came, [10], "what waited passes");
        proxy.act(Act::StopOlder);
        link.write_all(&[20]).unwrap();
        assert_eq!(asked(&mut connect(), 5).unwrap(), 6);
        link.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        assert!(link.read(&mut [0]).is_err(), "nothing passes on the older one");
        link.set_read_timeout(None).unwrap();
        proxy.act(Act::Pass);
        link.read_exact(&mut came).unwrap();
        assert_eq!(came, [21]);
        proxy.act(Act::Cut);
        assert!(asked(&mut link, 1).is_err());
        assert!(asked(&mut connect(), 1).is_err());
        proxy.act(Act::Pass);
        let mut link = connect();
        assert_eq!(asked(&mut link, 3).unwrap(), 4);
        proxy.act(Act::HalfOpen);
        link.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        for _ in 0..3 {
            link.write_all(&[1; 4096]).unwrap();
            let kind = link.read(&mut [0; 10]).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::WouldBlock, "nobody is told");
        }
    }

    #[test]
    fn it_is_as_good_as_it_is_told() {
        let proxy = Proxy::new([127, 0, 0, 1].into(), counts_on()).unwrap();
        let mut link = TcpStream::connect(proxy.address()).unwrap();
        assert_eq!(asked(&mut link, 1).unwrap(), 2);
        let takes = |link: &mut TcpStream, quality: Quality, len: usize| {
            proxy.is_as_good_as(quality);
            let began = Instant::now();
            link.write_all(&vec![5; len]).unwrap();
            link.read_exact(&mut vec![0; len]).unwrap();
            began.elapsed()
        };
        let delay = Duration::from_millis(20);
        assert!(takes(&mut link, Quality { delay, ..Quality::default() }, 1) >= 2 * delay);
        let slow = Quality { bytes_per_second: Some(1 << 20), ..Quality::default() };
        assert!(takes(&mut link, slow, 1 << 18) >= Duration::from_millis(250));
        let lossy = Quality { lost_of_million: 1_000_000, ..Quality::default() };
        assert!(takes(&mut link, lossy, 1) >= 2 * SENT_AGAIN);
    }
}
