//! An encrypted link between two machines that know each other: the Noise protocol, pattern IK (Perrin, The Noise
//! Protocol Framework, revision 34, 7.5), with X25519, AES-256-GCM and SHA-256.
//!
//! The borrower knows the donor's key beforehand and nobody else can answer; its own key travels encrypted, and a donor
//! that does not know it ends the link. What is said before is the version and, sealed, the session: 16 bytes at random
//! by which a donor knows what is whose when a link was cut, or the borrower's daemon died and was succeeded.
//!
//! A record is its length (2 bytes, little-endian) and that many sealed bytes. Each is sealed with a counter that both
//! ends keep, so a record that was repeated, left out, moved or changed ends the link.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::keys::{Identity, KEY_BYTES, PATTERN, PublicKey};
use crate::wire::{Frames, VERSION, WireError};

/// Bytes that sealing adds.
const TAG_BYTES: usize = 16;
/// Bytes of a sealed record.
const MAX_RECORD: usize = 65535;
/// Plain bytes of a record.
const MAX_PLAIN: usize = MAX_RECORD - TAG_BYTES;

/// By which a donor knows what is whose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Session(pub [u8; 16]);

/// Why there is no link, or none any more.
#[derive(Debug, thiserror::Error)]
pub enum SecureError {
    /// The system refused, or the other end went away.
    #[error(transparent)]
    System(#[from] io::Error),
    /// The other end is not who it should be, or somebody changed what it said.
    #[error("the other end does not prove who it is: {0}")]
    Noise(snow::Error),
    /// It speaks another version.
    #[error("the other end speaks version {0} of the protocol, and this is {VERSION}")]
    Version(u16),
    /// It is somebody whom this machine does not know.
    #[error("a machine with the unknown key {0} asked; to know it, pair (clew donate --pair)")]
    Unknown(PublicKey),
    /// It does not keep to the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A record is too long or too short.
    #[error("a record of {0} bytes")]
    Record(usize),
}

impl From<snow::Error> for SecureError {
    fn from(error: snow::Error) -> SecureError {
        SecureError::Noise(error)
    }
}

/// A stream until a moment: who says a little at a time does not hold up its other end for longer.
#[derive(Debug)]
pub struct Until<'a> {
    stream: &'a TcpStream,
    end: Instant,
}

impl Until<'_> {
    /// So much longer.
    pub fn from_now(stream: &TcpStream, patience: Duration) -> Until<'_> {
        Until { stream, end: Instant::now() + patience }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

/// Of a stream that waits, "try again" means that nothing came in time.
fn in_words(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")
        }
        _ => error,
    }
}

impl Read for Until<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes).map_err(in_words)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// One end of a link.
pub struct Channel {
    noise: snow::TransportState,
    /// Records that came, from the first that was not opened on.
    came: Vec<u8>,
    plain: Vec<u8>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Channel")
    }
}

fn builder<'a>(identity: &'a Identity) -> Result<snow::Builder<'a>, snow::Error> {
    snow::Builder::new(PATTERN.parse()?)
        .local_private_key(identity.private())?
        .prologue(b"clew donor")
}

fn put_record(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut record = (bytes.len() as u16).to_le_bytes().to_vec();
    record.extend_from_slice(bytes);
    stream.write_all(&record)
}

fn take_record(stream: &mut impl Read) -> Result<Vec<u8>, SecureError> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    // A handshake's messages are short; who says more is not believed.
    let len = usize::from(u16::from_le_bytes(len));
    if len > 512 {
        return Err(SecureError::Record(len));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn said_version(stream: &mut (impl Read + Write)) -> Result<(), SecureError> {
    stream.write_all(&VERSION.to_le_bytes())?;
    let mut theirs = [0; 2];
    stream.read_exact(&mut theirs)?;
    match u16::from_le_bytes(theirs) {
        VERSION => Ok(()),
        other => Err(SecureError::Version(other)),
    }
}

impl Channel {
    fn of(noise: snow::TransportState) -> Channel {
        Channel { noise, came: Vec::new(), plain: Vec::new() }
    }

    /// The borrower's end. The stream waits, and for how long is its owner's.
    ///
    /// # Errors
    /// See [`SecureError`].
    pub fn connect(
        stream: &mut (impl Read + Write),
        identity: &Identity,
        donor: PublicKey,
        session: Session,
    ) -> Result<Channel, SecureError> {
        said_version(stream)?;
        let mut noise = builder(identity)?.remote_public_key(&donor.0)?.build_initiator()?;
        let mut message = vec![0; 512];
        let len = noise.write_message(&session.0, &mut message)?;
        put_record(stream, &message[..len])?;
        let answer = take_record(stream)?;
        noise.read_message(&answer, &mut message)?;
        Ok(Channel::of(noise.into_transport_mode()?))
    }

    /// The donor's end: who the borrower is, if `knows` does, and the session.
    ///
    /// # Errors
    /// See [`SecureError`].
    pub fn accept(
        stream: &mut (impl Read + Write),
        identity: &Identity,
        knows: impl FnOnce(PublicKey) -> bool,
    ) -> Result<(Channel, PublicKey, Session), SecureError> {
        said_version(stream)?;
        let mut noise = builder(identity)?.build_responder()?;
        let asked = take_record(stream)?;
        let mut payload = vec![0; 512];
        let len = noise.read_message(&asked, &mut payload)?;
        let session = payload[..len].try_into().map_err(|_| SecureError::Record(len))?;
        let theirs =
            noise.get_remote_static().and_then(|key| <[u8; KEY_BYTES]>::try_from(key).ok());
        let theirs = PublicKey(theirs.ok_or(SecureError::Noise(snow::Error::Input))?);
        if !knows(theirs) {
            return Err(SecureError::Unknown(theirs));
        }
        let len = noise.write_message(&[], &mut payload)?;
        put_record(stream, &payload[..len])?;
        Ok((Channel::of(noise.into_transport_mode()?), theirs, Session(session)))
    }

    /// Appends records that hold `plain` to `out`.
    ///
    /// # Errors
    /// If the link has carried 2^64 records.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), SecureError> {
        for plain in plain.chunks(MAX_PLAIN) {
            let start = out.len();
            out.resize(start + 2 + plain.len() + TAG_BYTES, 0);
            let len = self.noise.write_message(plain, &mut out[start + 2..])?;
            out.truncate(start + 2 + len);
            out[start..start + 2].copy_from_slice(&(len as u16).to_le_bytes());
        }
        Ok(())
    }

    /// Opens what came, as far as records are whole, into `frames`.
    ///
    /// # Errors
    /// See [`SecureError`].
    pub fn open(&mut self, came: &[u8], frames: &mut Frames) -> Result<(), SecureError> {
        self.came.extend_from_slice(came);
        let mut taken = 0;
        while let Some(len) = self.came[taken..].first_chunk() {
            let len = usize::from(u16::from_le_bytes(*len));
            let Some(record) = self.came.get(taken + 2..taken + 2 + len) else { break };
            self.plain.resize(len.max(self.plain.len()), 0);
            let plain_len = self.noise.read_message(record, &mut self.plain)?;
            frames.extend(&self.plain[..plain_len]);
            taken += 2 + len;
        }
        self.came.drain(..taken);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::wire::{Head, Kind};

    type Accepted = Result<(Channel, PublicKey, Session), SecureError>;

    fn pair(knows: bool, donor_is: bool) -> (Result<Channel, SecureError>, Accepted) {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let (borrower, donor) = (Identity::random().unwrap(), Identity::random().unwrap());
        let expected = if donor_is { donor.public() } else { Identity::random().unwrap().public() };
        let public = borrower.public();
        let lends = std::thread::spawn(move || {
            Channel::accept(&mut other, &donor, |key| knows && key == public)
        });
        let connected = Channel::connect(&mut one, &borrower, expected, Session([7; 16]));
        drop(one);
        (connected, lends.join().unwrap())
    }

    #[test]
    fn who_know_each_other_have_a_link() {
        let (borrower, donor) = pair(true, true);
        let (mut borrower, (mut donor, _, session)) = (borrower.unwrap(), donor.unwrap());
        assert_eq!(session, Session([7; 16]));
        let mut body: Vec<u8> = (0..200_000u32).map(|i| (i / 7) as u8).collect();
        let head = Head { body_bytes: body.len() as u32, ..Head::of(Kind::Write, 3, 4096) };
        let mut plain = head.to_bytes().to_vec();
        plain.append(&mut body);
        let (mut sealed, mut frames) = (Vec::new(), Frames::default());
        borrower.seal(&plain, &mut sealed).unwrap();
        assert!(!sealed.windows(32).any(|bytes| plain[1000..].windows(32).next() == Some(bytes)));
        for piece in sealed.chunks(1777) {
            donor.open(piece, &mut frames).unwrap();
        }
        let (came, bytes) = frames.take().unwrap().unwrap();
        assert_eq!((came, bytes), (head, &plain[24..]));
    }

    #[test]
    fn who_do_not_know_each_other_have_none() {
        let (borrower, donor) = pair(false, true);
        assert!(matches!(donor, Err(SecureError::Unknown(_))));
        assert!(borrower.is_err());
        let (borrower, donor) = pair(true, false);
        assert!(borrower.is_err());
        assert!(matches!(donor, Err(SecureError::Noise(_))));
    }

    #[test]
    fn who_says_a_byte_at_a_time_is_not_waited_for_longer() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut drips = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let drip = std::thread::spawn(move || {
            while drips.write_all(&[1]).is_ok() {
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut until = Until::from_now(&stream, Duration::from_millis(300));
        let waited = until.read_exact(&mut [0; 1 << 20]);
        let kind = waited.unwrap_err().kind();
        assert!(matches!(kind, io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock), "{kind}");
        drop(stream);
        drip.join().unwrap();
    }

    #[test]
    fn what_was_changed_repeated_or_left_out_ends_the_link() {
        for act in 0..4 {
            let (borrower, donor) = pair(true, true);
            let (mut borrower, (mut donor, ..)) = (borrower.unwrap(), donor.unwrap());
            let mut records = Vec::new();
            for i in 0..3 {
                let mut record = Vec::new();
                borrower.seal(&Head::of(Kind::Ping, i, 0).to_bytes(), &mut record).unwrap();
                records.push(record);
            }
            match act {
                0 => records[1][10] ^= 1,
                1 => records.swap(0, 1),
                2 => drop(records.remove(0)),
                _ => records.insert(1, records[0].clone()),
            }
            let mut frames = Frames::default();
            let opened = records.iter().try_for_each(|record| donor.open(record, &mut frames));
            assert!(matches!(opened, Err(SecureError::Noise(_))), "{act}");
        }
    }
}
