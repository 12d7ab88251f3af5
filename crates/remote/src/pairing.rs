//! How two machines come to know each other's keys: a short code that a person carries from the one to the other, and
//! SPAKE2 (RFC 9382), by which who does not know the code learns nothing from a try but that it was wrong.
//!
//! | from | what |
//! |---|---|
//! | both | `clewpair` and the version (2 bytes: 3) |
//! | both | their part of SPAKE2 (33) |
//! | donor, then borrower | its name's length (1), its name, its public key (32), and a proof over them (32) |
//! | both | the handshake of a [`crate::secure`] link, by which each proves to have the private key of what it said; its session is a proof (16), so that it is of no other link |
//! | donor | a proof (32) of the word `known`, once it has written that down |
//!
//! The proof is HMAC-SHA-256 with the key that both have from SPAKE2, over who says it, both parts of SPAKE2, name and key.
//! The donor proves itself first, so a borrower that guesses learns whether it guessed right: to whom a donor has said that has tried,
//! whatever it answers. A donor takes three tries, and then a new code is needed.

pub mod waiting;

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use spake2::{Ed25519Group, Identity as Side, Password, Spake2};

use crate::keys::{Identity, KEY_BYTES, KeyError, PublicKey};
use crate::secure::{Channel, SecureError, Session};

const MAGIC: &[u8; 8] = b"clewpair";
const VERSION: u16 = 3;
/// What a donor says last.
const KNOWN: &[u8] = b"known";
const PART_BYTES: usize = 33;
const PROOF_BYTES: usize = 32;
/// Bytes of a machine's name, at most.
const MAX_NAME_BYTES: usize = 64;
/// Letters and digits that are not taken for others.
const LETTERS: &[u8; 32] = b"23456789abcdefghjkmnpqrstuvwxyzw";
/// Letters of a code, 5 bits each.
const CODE_LETTERS: usize = 8;

/// Why two machines do not know each other.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The system refused, or the other end went away.
    #[error("the other end is gone: {0}")]
    System(#[from] io::Error),
    /// It is no machine that pairs.
    #[error("the other end does not pair (is 'clew donate --pair' running there?)")]
    Stranger,
    /// The codes differ.
    #[error("the code is another one: look it up again where 'clew donate --pair' runs")]
    Code,
    /// There were as many tries as a code may have.
    #[error("the code has been tried too often: begin anew with 'clew donate --pair'")]
    Tries,
    /// Somebody else was quicker.
    #[error("another machine has said the code")]
    Late,
    /// It said somebody else's key.
    #[error("the other end has not the key that it says: {0}")]
    Key(SecureError),
    /// It is not written down whom this machine knows.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The donor has not written it down.
    #[error("the other end does not say that it knows this machine: see what it says itself")]
    Unknown,
    /// There is no randomness.
    #[error("no code could be made: {0}")]
    Random(io::Error),
}

/// A new code, such as `k7mw-3hpq`.
///
/// # Errors
/// If the system gives no randomness.
pub fn code() -> Result<String, PairError> {
    let mut bytes = [0; CODE_LETTERS];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(CODE_LETTERS) => {}
        Ok(_) => return Err(PairError::Random(io::ErrorKind::UnexpectedEof.into())),
        Err(error) => return Err(PairError::Random(error.into())),
    }
    let letter = |byte: &u8| char::from(LETTERS[usize::from(byte % 31)]);
    let letters: String = bytes.iter().map(letter).collect();
    Ok(format!("{}-{}", &letters[..4], &letters[4..]))
}

/// A code as people type it.
fn tidy(code: &str) -> String {
    code.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// How often a code may still be tried. A try is gone before the other end can learn anything by it.
#[derive(Debug)]
pub struct Tries(AtomicUsize);

impl Tries {
    /// So many.
    pub fn new(many: usize) -> Tries {
        Tries(AtomicUsize::new(many))
    }

    /// How many are left.
    pub fn left(&self) -> usize {
        self.0.load(SeqCst)
    }

    fn take(&self) -> Result<(), PairError> {
        let taken = self.0.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        taken.map(drop).map_err(|_| PairError::Tries)
    }
}

/// Which end of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Donor,
    Borrower,
}

/// What one machine says of itself, and proves to know the code by.
fn introduction(end: End, parts: &[u8], key: &[u8], name: &str, identity: &Identity) -> Vec<u8> {
    let name = &name.as_bytes()[..name.len().min(MAX_NAME_BYTES)];
    let mut said = vec![name.len() as u8];
    said.extend_from_slice(name);
    said.extend_from_slice(&identity.public().0);
    let proof = proof(end, parts, key, &said);
    said.extend_from_slice(&proof);
    said
}

fn signed(end: End, parts: &[u8], said: &[u8]) -> Vec<u8> {
    let mut all = vec![match end {
        End::Donor => b'd',
        End::Borrower => b'b',
    }];
    all.extend_from_slice(parts);
    all.extend_from_slice(said);
    all
}

fn proof(end: End, parts: &[u8], key: &[u8], said: &[u8]) -> Vec<u8> {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    ring::hmac::sign(&key, &signed(end, parts, said)).as_ref().to_vec()
}

/// What tells the handshake of this pairing from that of a link, which somebody could have recorded, or pass on.
fn session(parts: &[u8], key: &[u8]) -> Session {
    let mut session = Session([0; 16]);
    session.0.copy_from_slice(&proof(End::Borrower, parts, key, b"session")[..16]);
    session
}

fn take_introduction(
    stream: &mut impl Read,
    end: End,
    parts: &[u8],
    key: &[u8],
) -> Result<(PublicKey, String), PairError> {
    let mut len = [0; 1];
    stream.read_exact(&mut len)?;
    if usize::from(len[0]) > MAX_NAME_BYTES {
        return Err(PairError::Stranger);
    }
    let mut said = vec![0; 1 + usize::from(len[0]) + KEY_BYTES];
    said[0] = len[0];
    stream.read_exact(&mut said[1..])?;
    let mut proof = [0; PROOF_BYTES];
    stream.read_exact(&mut proof)?;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
    let is_so = ring::hmac::verify(&key, &signed(end, parts, &said), &proof);
    is_so.map_err(|_| PairError::Code)?;
    let (name, theirs) = said[1..].split_at(usize::from(len[0]));
    let theirs = theirs.try_into().map_err(|_| PairError::Stranger)?;
    // It is shown to people.
    let name: String = String::from_utf8_lossy(name).chars().filter(|c| !c.is_control()).collect();
    Ok((PublicKey(theirs), name))
}

/// Agrees on a key by the code: both parts, the borrower's first, and the key.
fn agree(
    stream: &mut (impl Read + Write),
    end: End,
    code: &str,
) -> Result<(Vec<u8>, Vec<u8>), PairError> {
    let mut hello = MAGIC.to_vec();
    hello.extend_from_slice(&VERSION.to_le_bytes());
    let mut theirs = [0; MAGIC.len() + 2];
    let heard = stream.write_all(&hello).and_then(|()| stream.read_exact(&mut theirs));
    if heard.is_err() || theirs[..] != hello[..] {
        return Err(PairError::Stranger);
    }
    let password = Password::new(tidy(code).as_bytes());
    let (borrower, donor) = (Side::new(b"clew borrower"), Side::new(b"clew donor"));
    let (half, ours) = match end {
        End::Borrower => Spake2::<Ed25519Group>::start_a(&password, &borrower, &donor),
        End::Donor => Spake2::<Ed25519Group>::start_b(&password, &borrower, &donor),
    };
    stream.write_all(&ours)?;
    let mut part = [0; PART_BYTES];
    stream.read_exact(&mut part)?;
    let key = half.finish(&part).map_err(|_| PairError::Stranger)?;
    let parts = match end {
        End::Borrower => [&ours[..], &part[..]].concat(),
        End::Donor => [&part[..], &ours[..]].concat(),
    };
    Ok((parts, key))
}

/// Pairs as the machine that borrows: who is at the other end, by key and name. `name` is what this machine calls itself.
///
/// # Errors
/// See [`PairError`].
pub fn borrow(
    stream: &mut (impl Read + Write),
    code: &str,
    identity: &Identity,
    name: &str,
) -> Result<(PublicKey, String), PairError> {
    let (parts, key) = agree(stream, End::Borrower, code)?;
    let donor = take_introduction(stream, End::Donor, &parts, &key)?;
    stream.write_all(&introduction(End::Borrower, &parts, &key, name, identity))?;
    // The link is for nothing but its handshake.
    let session = session(&parts, &key);
    Channel::connect(stream, identity, donor.0, session).map_err(PairError::Key)?;
    let mut word = [0; PROOF_BYTES];
    stream.read_exact(&mut word).map_err(|_| PairError::Unknown)?;
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &key);
    let is_known = ring::hmac::verify(&key, &signed(End::Donor, &parts, KNOWN), &word);
    is_known.map(|()| donor).map_err(|_| PairError::Unknown)
}

/// The same as the machine that lends, which takes one of `tries` before it says anything by which a code can be tried, and has
/// `know` write down who has proved both code and key, and say by which name.
///
/// # Errors
/// See [`PairError`].
pub fn lend(
    stream: &mut (impl Read + Write),
    code: &str,
    identity: &Identity,
    name: &str,
    tries: &Tries,
    know: impl FnOnce(PublicKey, String) -> Result<String, PairError>,
) -> Result<(PublicKey, String), PairError> {
    let (parts, key) = agree(stream, End::Donor, code)?;
    tries.take()?;
    stream.write_all(&introduction(End::Donor, &parts, &key, name, identity))?;
    let (theirs, name) = take_introduction(stream, End::Borrower, &parts, &key)?;
    let (.., of) =
        Channel::accept(stream, identity, |proved| proved == theirs).map_err(PairError::Key)?;
    if of != session(&parts, &key) {
        return Err(PairError::Stranger);
    }
    let name = know(theirs, name)?;
    // Who does not hear it pairs again.
    let _ = stream.write_all(&proof(End::Donor, &parts, &key, KNOWN));
    Ok((theirs, name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    type Paired = Result<(PublicKey, String), PairError>;

    fn both(donors_code: &str, borrowers_code: &str) -> (Paired, Paired, [PublicKey; 2]) {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let ids = [Identity::random().unwrap(), Identity::random().unwrap()];
        let keys = [ids[0].public(), ids[1].public()];
        let [donor, borrower] = ids;
        let code = donors_code.to_string();
        let lends = std::thread::spawn(move || {
            lend(&mut one, &code, &donor, "tv\u{7}", &Tries::new(1), |_, name| Ok(name))
        });
        let borrows = borrow(&mut other, borrowers_code, &borrower, "phone");
        drop(other);
        (lends.join().unwrap(), borrows, keys)
    }

    #[test]
    fn who_has_the_code_knows_the_other() {
        let code = code().unwrap();
        assert_eq!(code.len(), 9);
        let (lends, borrows, [donor, borrower]) =
            both(&code, &code.to_uppercase().replace('-', " "));
        assert_eq!(lends.unwrap(), (borrower, "phone".to_string()));
        assert_eq!(borrows.unwrap(), (donor, "tv".to_string()));
    }

    #[test]
    fn who_has_not_learns_that_and_nothing_else() {
        let (lends, borrows, _) = both("k7mw-3hpq", "k7mw-3hpr");
        assert!(matches!(borrows, Err(PairError::Code)), "{borrows:?}");
        assert!(lends.is_err());
    }

    #[test]
    fn a_stranger_is_told_from_a_wrong_code() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        other.write_all(b"HTTP/1.1 400 Bad Request").unwrap();
        let identity = Identity::random().unwrap();
        let refused = borrow(&mut one, "x", &identity, "phone");
        assert!(matches!(refused, Err(PairError::Stranger)));
        let (mut one, other) = UnixStream::pair().unwrap();
        drop(other);
        let tries = Tries::new(1);
        let refused = lend(&mut one, "x", &identity, "tv", &tries, |_, name| Ok(name));
        assert!(matches!(refused, Err(PairError::Stranger)));
        assert_eq!(tries.left(), 1, "it has not guessed");
    }

    /// One end that has the code, and says a key that is another machine's.
    #[test]
    fn a_key_is_believed_of_who_has_it() {
        let code = code().unwrap();
        let another = Identity::random().unwrap();
        let anothers = another.public();
        // Of a borrower also one that passes on what the other machine says to make a link.
        for (lies, passes_on) in
            [(End::Donor, false), (End::Borrower, false), (End::Borrower, true)]
        {
            let (one, mut other) = UnixStream::pair().unwrap();
            let (honest, liar) = (Identity::random().unwrap(), Identity::random().unwrap());
            let wrote = std::sync::atomic::AtomicBool::new(false);
            let refused = std::thread::scope(|threads| {
                let mut one = one;
                threads.spawn(|| {
                    let (parts, key) = agree(&mut other, lies, &code).unwrap();
                    let mut said = introduction(lies, &parts, &key, "x", &liar);
                    let end = said.len() - PROOF_BYTES;
                    said.truncate(end);
                    said[end - KEY_BYTES..].copy_from_slice(&anothers.0);
                    let proof = proof(lies, &parts, &key, &said);
                    other.write_all(&[said, proof].concat()).unwrap();
                    let is_donor = lies == End::Donor;
                    let of = if is_donor { End::Borrower } else { End::Donor };
                    let (key, _) = take_introduction(&mut other, of, &parts, &key).unwrap();
                    match is_donor {
                        true => drop(Channel::accept(&mut other, &liar, |_| true)),
                        false => {
                            let by = if passes_on { &another } else { &liar };
                            drop(Channel::connect(&mut other, by, key, Session([0; 16])));
                        }
                    }
                    drop(other);
                });
                let refused = match lies {
                    End::Donor => borrow(&mut one, &code, &honest, "phone"),
                    End::Borrower => {
                        lend(&mut one, &code, &honest, "tv", &Tries::new(1), |_, name| {
                            wrote.store(true, SeqCst);
                            Ok(name)
                        })
                    }
                };
                drop(one);
                refused
            });
            let is_refused = matches!(refused, Err(PairError::Key(_) | PairError::Stranger));
            assert!(is_refused, "{refused:?}");
            assert!(!wrote.load(SeqCst));
        }
    }

    #[test]
    fn who_is_not_written_down_is_told_so() {
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let (donor, borrower) = (Identity::random().unwrap(), Identity::random().unwrap());
        let lends = std::thread::spawn(move || {
            lend(&mut one, "x", &donor, "tv", &Tries::new(1), |_, _| Err(PairError::Late))
        });
        let borrows = borrow(&mut other, "x", &borrower, "phone");
        assert!(matches!(borrows, Err(PairError::Unknown)), "{borrows:?}");
        assert!(matches!(lends.join().unwrap(), Err(PairError::Late)));
    }

    #[test]
    fn who_may_know_whether_a_code_is_right_has_tried_it_whatever_he_answers() {
        let (identity, tries) = (Identity::random().unwrap(), Tries::new(3));
        for (answer, left) in [(&[0xff][..], 2), (b"", 1), (&[0; 97], 0), (b"", 0)] {
            let tried = tries.left() > 0;
            let (mut one, mut other) = UnixStream::pair().unwrap();
            let (lent, heard) = std::thread::scope(|threads| {
                let (identity, tries) = (&identity, &tries);
                let lends = threads.spawn(move || {
                    lend(&mut one, "k7mw-3hpq", identity, "tv", tries, |_, name| Ok(name))
                });
                let (parts, key) = agree(&mut other, End::Borrower, "2222-2222").unwrap();
                let heard = take_introduction(&mut other, End::Donor, &parts, &key);
                let _ = other.write_all(answer);
                drop(other);
                (lends.join().unwrap(), heard)
            });
            assert_eq!(tries.left(), left, "{answer:?}");
            assert_eq!(matches!(heard, Err(PairError::Code)), tried, "{heard:?}");
            assert_eq!(matches!(lent, Err(PairError::Tries)), !tried, "{lent:?}");
        }
    }
}
