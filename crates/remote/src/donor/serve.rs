//! One borrower's link: its questions are answered in their order, and every quarter second it is told how the donor
//! stands, so that it knows that somebody is there.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use super::areas::Held;
use super::{MOST_LINKS, MOST_OF_ONE, Shared};
use crate::keys::PublicKey;
use crate::secure::{Channel, SecureError, Session, Until};
use crate::wire::{DonorFacts, FACTS_BYTES, Frames, Head, Kind, MAX_BODY_BYTES, Status};

/// How often a donor says how it stands.
pub const HEARTBEAT: Duration = Duration::from_millis(250);
/// How long a borrower may take to prove who it is, or to take an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A borrower that has said nothing for so long is gone: it asks how the donor stands every second.
const SILENCE: Duration = Duration::from_secs(10);
/// Answers are sent when there are so many bytes of them, or nothing more was asked.
const ANSWERS_BYTES: usize = 256 << 10;

/// Serves until the link ends; until it is known to whom, it is a `stranger`'s.
pub(super) fn serve(
    shared: &Shared,
    mut stream: TcpStream,
    stranger: u64,
) -> Result<(), SecureError> {
    let accepted = accept(shared, &stream);
    shared.strangers.is_none(stranger);
    let (channel, frames, key, session) = accepted?;
    let Some(_place) = Place::take(shared, key) else {
        return Err(io::Error::other("it has too many links, or all have").into());
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_read_timeout(Some(HEARTBEAT))?;
    let (held, is_known) = shared.areas.hold((key, session));
    let mut link = Link { shared, channel, held, plain: Vec::new(), sealed: Vec::new() };
    let ended = link.run(&mut stream, frames, is_known);
    shared.areas.leave(held);
    match ended {
        Err(SecureError::System(error)) if error.kind() == ErrorKind::UnexpectedEof => Ok(()),
        ended => ended,
    }
}

/// Who is there, and what it has said already.
fn accept(
    shared: &Shared,
    stream: &TcpStream,
) -> Result<(Channel, Frames, PublicKey, Session), SecureError> {
    stream.set_nodelay(true)?;
    // Who was paired a moment ago is known.
    let known = shared.keys.known().map_err(|error| {
        tracing::warn!(%error, "nobody is let in");
        io::Error::other(error.to_string())
    })?;
    let knows = |key| known.iter().any(|(known, _)| *known == key);
    let mut until = Until::from_now(stream, PATIENCE);
    let (mut channel, key, session) = Channel::accept(&mut until, &shared.keys.identity, knows)?;
    // Somebody else may have heard what began a link, and say it again: only the borrower can go on, and asks at once
    // how the donor stands. Until then nothing of it is touched.
    let (mut frames, mut came) = (Frames::default(), [0; 4096]);
    while frames.is_empty() {
        match until.read(&mut came) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(len) => channel.open(&came[..len], &mut frames)?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok((channel, frames, key, session))
}

/// One of the links of a borrower, as long as it lives.
struct Place<'a> {
    shared: &'a Shared,
    key: PublicKey,
}

impl Place<'_> {
    fn take(shared: &Shared, key: PublicKey) -> Option<Place<'_>> {
        let mut borrowers = shared.borrowers.lock();
        let all: usize = borrowers.values().sum();
        let own = borrowers.entry(key).or_insert(0);
        (all < MOST_LINKS && *own < MOST_OF_ONE).then(|| {
            *own += 1;
            Place { shared, key }
        })
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut borrowers = self.shared.borrowers.lock();
        borrowers.entry(self.key).and_modify(|own| *own -= 1);
        borrowers.retain(|_, own| *own > 0);
    }
}

struct Link<'a> {
    shared: &'a Shared,
    channel: Channel,
    held: Held,
    /// Answers that are to be sent.
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Link<'_> {
    fn run(
        &mut self,
        stream: &mut TcpStream,
        mut frames: Frames,
        is_known: bool,
    ) -> Result<(), SecureError> {
        let mut came = vec![0; 256 << 10];
        let status = if is_known { Status::Done } else { Status::Gone };
        self.say_state(0, status);
        self.send(stream)?;
        let (mut said, mut heard) = (Instant::now(), Instant::now());
        loop {
            while let Some((head, body)) = frames.take()? {
                if !self.answer(head, body)? {
                    return Ok(());
                }
                if self.plain.len() >= ANSWERS_BYTES {
                    self.send(stream)?;
                }
            }
            if said.elapsed() >= HEARTBEAT {
                if !self.shared.areas.is_held(self.held) || self.shared.ends.load(SeqCst) {
                    return Ok(());
                }
                self.say_state(0, Status::Done);
                said = Instant::now();
            }
            self.send(stream)?;
            if heard.elapsed() > SILENCE {
                return Err(io::Error::from(ErrorKind::TimedOut).into());
            }
            match stream.read(&mut came) {
                Ok(0) => return Ok(()),
                Ok(len) => {
                    heard = Instant::now();
                    self.channel.open(&came[..len], &mut frames)?;
                }
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Answers one question; false if the link is over.
    fn answer(&mut self, head: Head, body: &[u8]) -> Result<bool, SecureError> {
        let areas = &self.shared.areas;
        let refused = Head { status: Status::Refused, ..head };
        match head.kind {
            Kind::Write if !body.is_empty() => {
                // A link that another one has followed answers nothing that its borrower could believe.
                let status = match self.shared.pressure.is_on() {
                    true => Some(Status::NoRoom),
                    false => areas.write(self.held, head.at, body),
                };
                let Some(status) = status else { return Ok(false) };
                self.say(Head { kind: Kind::Wrote, status, body_bytes: 0, ..head }, &[]);
            }
            Kind::Read => {
                let len = <[u8; 4]>::try_from(body).map(u32::from_le_bytes).unwrap_or(0) as usize;
                if len == 0 || len > MAX_BODY_BYTES {
                    self.say(Head { kind: Kind::Data, body_bytes: 0, ..refused }, &[]);
                    return Ok(true);
                }
                let mut bytes = Vec::new();
                let Some(status) = areas.read(self.held, head.at, len, &mut bytes) else {
                    return Ok(false);
                };
                let body_bytes = bytes.len() as u32;
                self.say(Head { kind: Kind::Data, status, body_bytes, ..head }, &bytes);
            }
            Kind::Forget => {
                let Ok(len) = <[u8; 8]>::try_from(body).map(u64::from_le_bytes) else {
                    return Ok(false);
                };
                return Ok(areas.forget(self.held, head.at, len).is_some());
            }
            Kind::Ping => self.say_state(head.number, Status::Done),
            Kind::Write | Kind::Wrote | Kind::Data | Kind::State => return Ok(false),
        }
        Ok(true)
    }

    fn say_state(&mut self, number: u64, status: Status) {
        let (used_bytes, free_bytes) = self.shared.areas.room();
        let pressed = self.shared.pressure.is_on();
        let facts = DonorFacts { free_bytes, used_bytes, pressed };
        let head =
            Head { status, body_bytes: FACTS_BYTES as u32, ..Head::of(Kind::State, number, 0) };
        self.say(head, &facts.to_bytes());
    }

    fn say(&mut self, head: Head, body: &[u8]) {
        self.plain.extend_from_slice(&head.to_bytes());
        self.plain.extend_from_slice(body);
    }

    fn send(&mut self, stream: &mut TcpStream) -> Result<(), SecureError> {
        if self.plain.is_empty() {
            return Ok(());
        }
        self.sealed.clear();
        self.channel.seal(&self.plain, &mut self.sealed)?;
        self.plain.clear();
        Ok(stream.write_all(&self.sealed)?)
    }
}
