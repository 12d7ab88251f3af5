//! Connecting to who has a name.
//!
//! Who answers for a name may be silent, or name addresses without end at which nobody answers. So a name is looked up by
//! a thread of its own, and that, and trying a few of the addresses, takes no longer than the link's patience in all.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Addresses of a name that are tried.
const MOST: usize = 4;

/// Where somebody is, `HOST:PORT`.
#[derive(Debug)]
pub struct Lookup {
    name: String,
    /// A thread looks it up.
    asked: Option<Receiver<io::Result<Vec<SocketAddr>>>>,
    /// Where somebody answered.
    last: Option<SocketAddr>,
}

impl Lookup {
    /// Nothing is looked up before somebody connects.
    pub fn new(name: &str) -> Lookup {
        Lookup { name: name.to_string(), asked: None, last: None }
    }

    /// A connection, within `patience` in all. What is not known by then may be when it is tried again.
    ///
    /// # Errors
    /// Nobody is there, or it takes longer.
    pub fn connect(&mut self, patience: Duration) -> io::Result<TcpStream> {
        let end = Instant::now() + patience;
        // Where somebody was is tried first; but not for all the time, as he may be elsewhere by now.
        let mut why = match self.last.take().map(|last| try_one(last, patience / 2)) {
            Some(Ok(found)) => return self.is_there(found),
            Some(Err(why)) => why,
            None => io::Error::new(ErrorKind::NotFound, "its name has no address"),
        };
        let addresses = self.addresses(end)?;
        for (i, address) in addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now());
            match try_one(*address, left / (addresses.len() - i) as u32) {
                Ok(found) => return self.is_there(found),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    fn is_there(&mut self, found: TcpStream) -> io::Result<TcpStream> {
        self.last = Some(found.peer_addr()?);
        Ok(found)
    }

    fn addresses(&mut self, end: Instant) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.name.parse() {
            return Ok(vec![address]);
        }
        let answer = match self.asked.take() {
            Some(asked) => asked,
            None => ask(self.name.clone())?,
        };
        let left = end.saturating_duration_since(Instant::now());
        match answer.recv_timeout(left) {
            Ok(found) => return found,
            Err(RecvTimeoutError::Timeout) => self.asked = Some(answer),
            // It is asked again the next time.
            Err(RecvTimeoutError::Disconnected) => {}
        }
        Err(io::Error::new(ErrorKind::TimedOut, "nobody says where its name leads"))
    }
}

fn ask(name: String) -> io::Result<Receiver<io::Result<Vec<SocketAddr>>>> {
    let (tell, told) = sync_channel(1);
    let looks = move || {
        let _ = tell.send(name.to_socket_addrs().map(|all| all.take(MOST).collect()));
    };
    std::thread::Builder::new().name("clew-lookup".into()).spawn(looks)?;
    Ok(told)
}

fn try_one(address: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    // None at all is refused by the standard library.
    TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::mpsc::SyncSender;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A name that is being looked up, and who answers.
    fn asked() -> (Lookup, SyncSender<io::Result<Vec<SocketAddr>>>) {
        let (tell, told) = sync_channel(1);
        (Lookup { asked: Some(told), ..Lookup::new("donor.invalid:1") }, tell)
    }

    #[test]
    fn who_is_there_is_found_and_tried_first_the_next_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for name in [address.to_string(), format!("localhost:{}", address.port())] {
            let mut lookup = Lookup::new(&name);
            assert_eq!(lookup.connect(LONG).unwrap().peer_addr().unwrap(), address);
            // Nobody is asked any more.
            lookup.name = "nobody's".into();
            assert_eq!(lookup.connect(LONG).unwrap().peer_addr().unwrap(), address);
        }
        drop(listener);
        assert!(Lookup::new(&address.to_string()).connect(LONG).is_err());
    }

    #[test]
    fn a_name_that_nobody_answers_for_is_not_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut lookup, tell) = asked();
        let late = lookup.connect(Duration::from_millis(50));
        assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
        // It has been asked once, and what is answered later counts.
        tell.send(Ok(vec![address])).unwrap();
        assert_eq!(lookup.connect(LONG).unwrap().peer_addr().unwrap(), address);
    }

    /// Documentation addresses lead nowhere: connecting waits, or is refused, for a share of the time each.
    #[test]
    fn several_addresses_share_the_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (mut lookup, tell) = asked();
        let nowhere = |last| SocketAddr::from(([192, 0, 2, last], 9));
        tell.send(Ok(vec![nowhere(1), nowhere(2), address])).unwrap();
        let found = lookup.connect(Duration::from_secs(3)).unwrap();
        assert_eq!(found.peer_addr().unwrap(), address);
    }
}
