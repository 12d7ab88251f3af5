//! Who has connected and not proven yet who it is: so many at most, and for one more the machine that has most of them
//! loses its oldest. So who only connects keeps no borrower out.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};

use parking_lot::Mutex;

/// At a time.
pub const MOST: usize = 32;

struct Stranger {
    number: u64,
    from: IpAddr,
    stream: TcpStream,
}

/// Which machine it is, as far as an address tells: one has all addresses of an IPv6 network of 64 bits if it likes.
fn machine(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// All of them, the oldest first.
#[derive(Default)]
pub struct Strangers(Mutex<(u64, Vec<Stranger>)>);

impl Strangers {
    /// One more; what it is called.
    ///
    /// # Errors
    /// If it is gone, or the system gives no descriptor.
    pub fn came(&self, stream: &TcpStream) -> io::Result<u64> {
        let (from, stream) = (machine(stream.peer_addr()?.ip()), stream.try_clone()?);
        let mut guard = self.0.lock();
        let (last, all) = &mut *guard;
        if all.len() >= MOST {
            let mut of = HashMap::new();
            all.iter().for_each(|one| *of.entry(one.from).or_insert(0) += 1);
            let most = of.values().copied().max().unwrap_or(0);
            if let Some(at) = all.iter().position(|one| of[&one.from] == most) {
                // Who serves it sees that.
                let _ = all.remove(at).stream.shutdown(Shutdown::Both);
            }
        }
        *last += 1;
        all.push(Stranger { number: *last, from, stream });
        Ok(*last)
    }

    /// It has proven who it is, or is gone.
    pub fn is_none(&self, number: u64) {
        self.0.lock().1.retain(|one| one.number != number);
    }

    /// Nobody is waited for any more.
    pub fn end(&self) {
        for one in self.0.lock().1.drain(..) {
            let _ = one.stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{SocketAddr, TcpListener};

    use socket2::{Domain, Socket, Type};

    use super::*;

    #[test]
    fn one_machine_has_a_whole_network() {
        let machine = |address: &str| machine(address.parse().unwrap());
        assert_eq!(machine("2001:db8:1:2::1"), machine("2001:db8:1:2:ffff::9"));
        assert_ne!(machine("2001:db8:1:2::1"), machine("2001:db8:1:3::1"));
        assert_ne!(machine("192.0.2.1"), machine("192.0.2.2"));
        assert_eq!(machine("::ffff:192.0.2.1"), machine("192.0.2.1"));
    }

    #[test]
    fn who_has_most_loses_the_oldest() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let strangers = Strangers::default();
        let come = |from: [u8; 4]| {
            let theirs = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            theirs.bind(&SocketAddr::from((from, 0)).into()).unwrap();
            theirs.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into()).unwrap();
            strangers.came(&listener.accept().unwrap().0).unwrap();
            TcpStream::from(theirs)
        };
        let mut one = come([127, 0, 0, 2]);
        let mut many: Vec<TcpStream> = (0..2 * MOST).map(|_| come([127, 0, 0, 1])).collect();
        for stream in many.iter_mut().chain([&mut one]) {
            stream.set_nonblocking(true).unwrap();
        }
        let ended = |stream: &mut TcpStream| stream.read(&mut [0]).is_ok();
        assert!(!ended(&mut one), "it is the only one from there");
        let ended: Vec<bool> = many.iter_mut().map(ended).collect();
        assert!(ended[..=MOST].iter().all(|ended| *ended), "{ended:?}");
        assert!(!ended[MOST + 1..].iter().any(|ended| *ended), "{ended:?}");
    }
}
