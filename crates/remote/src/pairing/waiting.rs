//! A machine that lends waits for the one that says its code. Each who comes has a thread of his own, so that nobody waits for
//! those who connect and say nothing; how many these are at a time is limited as for those who come to borrow.

use std::net::{IpAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread::{self, Builder};
use std::time::Duration;

use super::{PairError, Tries, lend};
use crate::donor::strangers::Strangers;
use crate::keys::{Identity, KeyError, PublicKey};
use crate::secure::Until;

/// How long a pairing may take.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// How often a code may be tried, until a new one is needed.
const TRIES: usize = 3;
/// How soon it is seen that somebody has come, and that it does not go on.
const ROUND: Duration = Duration::from_millis(100);

/// The first who comes to `listener` and knows the code, by key and the name by which `know` has written it down; none where it does
/// not go on before that. Whoever else came, and why he is not known, is `failed` told.
///
/// # Errors
/// [`PairError::Tries`] when the code was tried as often as it may be; [`PairError::Keys`] if it could not be written down; or
/// what the system says.
pub fn first(
    listener: &TcpListener,
    code: &str,
    identity: &Identity,
    name: &str,
    goes_on: impl Fn() -> bool,
    failed: impl Fn(IpAddr, &PairError),
    know: impl Fn(PublicKey, &str) -> Result<String, KeyError> + Sync,
) -> Result<Option<(PublicKey, String)>, PairError> {
    listener.set_nonblocking(true)?;
    let is_taken = AtomicBool::new(false);
    let know_one = |key, name: String| match is_taken.swap(true, SeqCst) {
        true => Err(PairError::Late),
        false => know(key, &name).map_err(PairError::from),
    };
    let know_one = &know_one;
    let (strangers, tries) = (Strangers::default(), Tries::new(TRIES));
    let (tell, ended) = channel();
    thread::scope(|threads| {
        let mut there = 0;
        let first = loop {
            if !goes_on() {
                break Ok(None);
            }
            let came = listener.accept().ok();
            let rest = if came.is_some() { Duration::ZERO } else { ROUND };
            // Who may not try is not let in.
            if let Some((stream, peer)) = came.filter(|_| tries.left() > 0)
                && let Ok(number) = strangers.came(&stream)
            {
                let (tell, strangers, tries) = (tell.clone(), &strangers, &tries);
                let spawned =
                    Builder::new().name("clew-pair".into()).spawn_scoped(threads, move || {
                        let mut until = Until::from_now(&stream, PATIENCE);
                        let blocks = stream.set_nonblocking(false).map_err(PairError::from);
                        let lent = blocks
                            .and_then(|()| lend(&mut until, code, identity, name, tries, know_one));
                        strangers.is_none(number);
                        let _ = tell.send((peer.ip(), lent));
                    });
                match spawned {
                    Ok(_) => there += 1,
                    Err(_) => strangers.is_none(number),
                }
            }
            match ended.recv_timeout(rest) {
                Ok((_, Ok(paired))) => break Ok(Some(paired)),
                Ok((_, Err(error @ PairError::Keys(_)))) => break Err(error),
                Ok((from, Err(error))) => {
                    there -= 1;
                    failed(from, &error);
                }
                Err(_) => {}
            }
            // The last one may have the right code.
            if there == 0 && tries.left() == 0 {
                break Err(PairError::Tries);
            }
        };
        strangers.end();
        first
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Instant;

    use super::super::borrow;
    use super::*;
    use crate::donor::strangers::MOST;

    const CODE: &str = "k7mw-3hpq";

    /// Waits at a listener while this is done there; what came of it.
    fn while_waiting<R>(
        act: impl FnOnce(&dyn Fn() -> TcpStream) -> R,
    ) -> (Result<Option<(PublicKey, String)>, PairError>, R) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let identity = Identity::random().unwrap();
        let since = Instant::now();
        let goes_on = || since.elapsed() < Duration::from_secs(60);
        thread::scope(|threads| {
            fn know(_: PublicKey, name: &str) -> Result<String, KeyError> {
                Ok(name.to_string())
            }
            let waits =
                threads.spawn(|| first(&listener, CODE, &identity, "tv", goes_on, |_, _| {}, know));
            let done = act(&|| TcpStream::connect(at).unwrap());
            (waits.join().unwrap(), done)
        })
    }

    fn say(stream: &TcpStream, code: &str) -> Result<(PublicKey, String), PairError> {
        let identity = Identity::random().unwrap();
        borrow(&mut Until::from_now(stream, PATIENCE), code, &identity, "phone")
    }

    #[test]
    fn who_says_nothing_keeps_nobody_from_pairing() {
        let (waited, (paired, _silent)) = while_waiting(|connect| {
            let silent: Vec<TcpStream> = (0..MOST + 8).map(|_| connect()).collect();
            (say(&connect(), CODE), silent)
        });
        assert_eq!(paired.unwrap().1, "tv");
        assert_eq!(waited.unwrap().unwrap().1, "phone");
    }

    #[test]
    fn three_wrong_codes_are_the_end() {
        let (waited, tried) = while_waiting(|connect| {
            [(); TRIES].map(|()| say(&connect(), "2222-2222").unwrap_err())
        });
        assert!(matches!(waited, Err(PairError::Tries)), "{waited:?}");
        assert!(tried.iter().all(|error| matches!(error, PairError::Code)), "{tried:?}");
    }
}
