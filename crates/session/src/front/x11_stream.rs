//! A connection to an X server that announces no answer without an end, and does not say more and more while nobody takes
//! it: `x11rb` has memory for whatever is announced, and for all that comes.

use std::io;

use parking_lot::Mutex;
use x11rb::rust_connection::{DefaultStream, PollMode, Stream};
use x11rb::utils::RawFdContainer;

/// Bytes of an answer behind its header, more than any has that is asked for here. A server's first one cannot have more
/// than a quarter of it.
const MOST: u64 = 1 << 20;

/// Bytes that are heard until all events are taken: some 130,000 events, which take 10 MiB until then.
const MOST_UNTAKEN: u64 = 4 << 20;

/// What begins a server's first answer, and each one behind it, bytes (X Window System Protocol, appendix B).
const FIRST: usize = 8;
const HEADER: usize = 32;

/// Kinds of packets that have something behind their header: an answer, and an event of an extension.
const REPLY: u8 = 1;
const GENERIC_EVENT: u8 = 35;

/// The connection.
pub struct X11Stream {
    stream: DefaultStream,
    heard: Mutex<Heard>,
}

impl X11Stream {
    /// Who is behind `stream` has said nothing yet.
    pub fn new(stream: DefaultStream) -> X11Stream {
        X11Stream { stream, heard: Mutex::default() }
    }

    /// Of all that was heard nothing is kept any more.
    pub fn all_are_taken(&self) {
        self.heard.lock().untaken = 0;
    }
}

impl Stream for X11Stream {
    fn poll(&self, mode: PollMode) -> io::Result<()> {
        self.stream.poll(mode)
    }

    fn read(&self, buf: &mut [u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        let mut heard = self.heard.lock();
        let read = self.stream.read(buf, fds)?;
        // Nothing is asked for that has any.
        fds.clear();
        heard.hear(&buf[..read])?;
        Ok(read)
    }

    fn write(&self, buf: &[u8], fds: &mut Vec<RawFdContainer>) -> io::Result<usize> {
        self.stream.write(buf, fds)
    }
}

/// How far into what a server says.
#[derive(Default)]
struct Heard {
    is_first_over: bool,
    /// What is there of a header.
    header: Vec<u8>,
    /// What is left behind the last one.
    left: u64,
    /// What has been said since all was taken.
    untaken: u64,
}

impl Heard {
    fn hear(&mut self, mut said: &[u8]) -> io::Result<()> {
        self.untaken += said.len() as u64;
        if self.untaken > MOST_UNTAKEN {
            return Err(io::Error::other("it says more than anybody takes"));
        }
        while !said.is_empty() {
            let skipped = said.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= skipped as u64;
            said = &said[skipped..];
            let wanted = if self.is_first_over { HEADER } else { FIRST };
            let taken = said.len().min(wanted - self.header.len());
            self.header.extend_from_slice(&said[..taken]);
            said = &said[taken..];
            if self.header.len() == wanted {
                self.left = self.announced();
                self.header.clear();
                self.is_first_over = true;
                if self.left > MOST {
                    return Err(io::Error::other(format!("it announces {} bytes", self.left)));
                }
            }
        }
        Ok(())
    }

    /// Bytes behind a whole header.
    fn announced(&self) -> u64 {
        let words = match (self.is_first_over, self.header[0]) {
            (false, _) => u64::from(u16::from_ne_bytes([self.header[6], self.header[7]])),
            (true, REPLY | GENERIC_EVENT) => {
                let length = self.header[4..8].try_into().expect("four bytes");
                u64::from(u32::from_ne_bytes(length))
            }
            (true, _) => 0,
        };
        words * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(kind: u8, words: u32) -> Vec<u8> {
        let mut header = vec![0; HEADER];
        header[0] = kind;
        header[4..8].copy_from_slice(&words.to_ne_bytes());
        header
    }

    /// As a server says it, in pieces of `size` bytes.
    fn hear(said: &[u8], size: usize) -> io::Result<()> {
        let mut heard = Heard::default();
        said.chunks(size).try_for_each(|piece| heard.hear(piece))
    }

    #[test]
    fn what_is_announced_has_an_end_however_it_comes() {
        let mut said = vec![1, 0, 11, 0, 0, 0];
        said.extend(3u16.to_ne_bytes());
        // Nothing in here is a header.
        said.extend([REPLY, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        said.extend(packet(REPLY, 2));
        said.extend([0xff; 8]);
        // An event's bytes are no length.
        said.extend(packet(28, u32::MAX));
        said.extend(packet(GENERIC_EVENT, 1));
        said.extend([0xff; 4]);
        let sizes = [1, 7, 32, 4096];
        assert!(sizes.iter().all(|size| hear(&said, *size).is_ok()));
        for kind in [REPLY, GENERIC_EVENT] {
            let endless = [said.as_slice(), &packet(kind, (MOST / 4 + 1) as u32)].concat();
            assert!(sizes.iter().all(|size| hear(&endless, *size).is_err()));
            let long = [said.as_slice(), &packet(kind, (MOST / 4) as u32)].concat();
            assert!(sizes.iter().all(|size| hear(&long, *size).is_ok()));
        }
    }

    #[test]
    fn no_more_is_heard_than_is_taken() {
        let mut heard = Heard { is_first_over: true, ..Heard::default() };
        let events = packet(28, 0).repeat(1 << 10);
        for _ in 0..2 {
            for _ in 0..MOST_UNTAKEN / events.len() as u64 {
                heard.hear(&events).expect("it is not too much yet");
            }
            assert!(heard.hear(&[28]).is_err());
            heard.untaken = 0;
        }
    }
}
