//! Processor time of encryption: a chunk is sealed as a link's worker does it, and opened as a donor does, beside a copy of
//! the same bytes.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use clew_remote::keys::Identity;
use clew_remote::secure::{Channel, Session};
use clew_remote::wire::{Frames, HEAD_BYTES, Head, Kind};

use super::CHUNK_BYTES;
use super::machines::unavailable;
use super::plain::us_a_page;
use crate::cpu_time::this_thread;
use crate::error::BenchError;

/// Two ends of a link.
fn ends() -> Result<(Channel, Channel), BenchError> {
    let (mut near, mut far) = UnixStream::pair().map_err(unavailable)?;
    let lends = Identity::random().map_err(unavailable)?;
    let borrows = Identity::random().map_err(unavailable)?;
    let donor = lends.public();
    let accepts = std::thread::spawn(move || Channel::accept(&mut far, &lends, |_| true));
    let near = Channel::connect(&mut near, &borrows, donor, Session([1; 16]));
    let far = accepts.join().map_err(|_| unavailable("a thread died"))?;
    Ok((near.map_err(unavailable)?, far.map_err(unavailable)?.0))
}

/// Microseconds for each 4 KiB of so many chunks: sealed, opened, copied.
pub fn costs(chunks: u64) -> Result<[f64; 3], BenchError> {
    let (mut near, mut far) = ends()?;
    let head = Head { body_bytes: CHUNK_BYTES, ..Head::of(Kind::Write, 1, 0) };
    let mut plain = head.to_bytes().to_vec();
    plain.resize(HEAD_BYTES + CHUNK_BYTES as usize, 7);
    let mut took = [Duration::ZERO; 3];
    let mut timed = |which: usize, what: &mut dyn FnMut() -> Result<(), BenchError>| {
        let begin = this_thread();
        let done = what();
        took[which] += this_thread() - begin;
        done
    };
    let (mut sealed, mut copy, mut frames) = (Vec::new(), Vec::new(), Frames::default());
    for _ in 0..chunks {
        sealed.clear();
        copy.clear();
        timed(0, &mut || near.seal(&plain, &mut sealed).map_err(unavailable))?;
        timed(1, &mut || far.open(&sealed, &mut frames).map_err(unavailable))?;
        timed(2, &mut || {
            copy.extend_from_slice(std::hint::black_box(&plain));
            Ok(())
        })?;
        match frames.take().map_err(unavailable)? {
            Some((came, body)) if came == head && body == &plain[HEAD_BYTES..] => {}
            _ => return Err(BenchError::WrongContents { side: "a link", pages: 1 }),
        }
    }
    Ok(took.map(|time| us_a_page(time, chunks)))
}
