//! The same without encryption, log or donor: chunks that are acknowledged, and requests that are answered, over TCP.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clew_remote::wire::HEAD_BYTES;

use super::{CHUNK_BYTES, PAGE};
use crate::error::BenchError;
use crate::interrupt;
use crate::micro::objects::Times;
use crate::network::{Machine, Network};

/// Chunks that are on their way at a time: as many as the daemon has buffers for.
pub const AT_A_TIME: usize = (2 << 20) / CHUNK_BYTES as usize;
/// Bytes of a request.
const REQUEST: usize = HEAD_BYTES;

fn unavailable(error: io::Error) -> BenchError {
    BenchError::Unavailable { what: "a link", reason: error.to_string() }
}

/// Microseconds for each 4 KiB of so many chunks.
pub fn us_a_page(time: Duration, chunks: u64) -> f64 {
    let pages = chunks * u64::from(CHUNK_BYTES) / PAGE as u64;
    time.as_secs_f64() * 1e6 / pages.max(1) as f64
}

/// A link between the two machines; what the far one does with its end, it does in a thread of its own until the other
/// end is closed.
fn link(
    network: &Network,
    answers: impl FnOnce(TcpStream) -> io::Result<()> + Send + 'static,
) -> Result<TcpStream, BenchError> {
    let listener =
        network.on(Machine::Far, || TcpListener::bind((network.address(Machine::Far), 0)))?;
    let listener = listener.map_err(unavailable)?;
    let address = listener.local_addr().map_err(unavailable)?;
    std::thread::spawn(move || -> io::Result<()> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        answers(stream)
    });
    let near = network.on(Machine::Near, || TcpStream::connect(address))?.map_err(unavailable)?;
    near.set_nodelay(true).map_err(unavailable)?;
    Ok(near)
}

/// Microseconds for each 4 KiB of so many chunks, each kept by who gets it, and acknowledged.
pub fn chunks(network: &Network, chunks: u64) -> Result<f64, BenchError> {
    let mut near = link(network, move |mut far| {
        let mut kept = Vec::new();
        let mut head = [0; HEAD_BYTES];
        for _ in 0..chunks {
            far.read_exact(&mut head)?;
            let mut chunk = vec![0; CHUNK_BYTES as usize];
            far.read_exact(&mut chunk)?;
            kept.push(chunk);
            far.write_all(&head)?;
        }
        Ok(())
    })?;
    let mut hears = near.try_clone().map_err(unavailable)?;
    let (tell, told) = channel();
    let heard = std::thread::spawn(move || {
        let mut head = [0; HEAD_BYTES];
        while hears.read_exact(&mut head).is_ok() && tell.send(()).is_ok() {}
    });
    let ended = || unavailable(io::ErrorKind::UnexpectedEof.into());
    let begin = Instant::now();
    for number in 0..chunks {
        if number >= AT_A_TIME as u64 {
            told.recv().map_err(|_| ended())?;
        }
        // As whoever swaps has them: each is new.
        let mut chunk = vec![number as u8; HEAD_BYTES + CHUNK_BYTES as usize];
        chunk[..HEAD_BYTES].fill(0);
        near.write_all(&chunk).map_err(unavailable)?;
    }
    for _ in 0..chunks.min(AT_A_TIME as u64) {
        told.recv().map_err(|_| ended())?;
    }
    let time = begin.elapsed();
    drop(near);
    let _ = heard.join();
    Ok(us_a_page(time, chunks))
}

/// What so many requests take until a page has come, one at a time.
pub fn round_trips(network: &Network, count: u64) -> Result<Times, BenchError> {
    let mut near = link(network, |mut far| {
        let mut request = [0; REQUEST];
        let page = [7; PAGE];
        while far.read_exact(&mut request).is_ok() {
            far.write_all(&page)?;
        }
        Ok(())
    })?;
    let (request, mut page) = ([0; REQUEST], [0; PAGE]);
    let mut times = Vec::with_capacity(count as usize);
    for _ in 0..count {
        interrupt::check()?;
        let begin = Instant::now();
        near.write_all(&request).map_err(unavailable)?;
        near.read_exact(&mut page).map_err(unavailable)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Times::of(times))
}
