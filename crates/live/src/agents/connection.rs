//! A connection that has said nothing yet, or of which nobody knows who it is.
//!
//! Most end like this, and there may be many of one user: so they are closed where they are dropped, if that takes no
//! time. It does where something is left in them that was sent along: that others close ([`Foreign`]).

use std::io;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::agents::closer::{Foreign, Unclosed};
use crate::agents::seqpacket;
use crate::users::Users;

/// See the head of this file.
pub struct Connection {
    socket: ManuallyDrop<Foreign>,
    /// Whose it is.
    pub user: u32,
}

impl Connection {
    /// Accepts one; `None` of who is not served, or has sent too much that cannot be closed.
    ///
    /// # Errors
    /// Would block, if nobody waits; else those of the system.
    pub fn accept(listener: &OwnedFd, users: &Users) -> io::Result<Option<Connection>> {
        let socket: OwnedFd = seqpacket::accept(listener)?;
        let user = seqpacket::peer(&socket)?.uid;
        // Whom a daemon for one user does not serve hears so when he has said who he is.
        let is_let_in = !users.is_service() || users.serves(&socket).unwrap_or(false);
        let unclosed = if is_let_in { users.of(user).unclosed.clone() } else { Arc::default() };
        let connection = Connection::new(socket, user, &unclosed);
        if !is_let_in {
            tracing::debug!(user, "an agent of a user whom this daemon does not serve");
            return Ok(None);
        }
        if connection.is_one_too_many() {
            tracing::debug!(user, "an agent of a user whose descriptors cannot be closed");
            return Ok(None);
        }
        Ok(Some(connection))
    }

    pub(super) fn new(socket: OwnedFd, user: u32, unclosed: &Arc<Unclosed>) -> Connection {
        Connection { socket: ManuallyDrop::new(Foreign::of(socket, unclosed)), user }
    }

    /// It is known by now who it is, and somebody else may have this socket, too.
    pub fn into_socket(self) -> Foreign {
        let mut connection = ManuallyDrop::new(self);
        // SAFETY: taken once: what is left of it is neither used nor dropped.
        unsafe { ManuallyDrop::take(&mut connection.socket) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: it is being dropped: nobody uses it after this.
        let socket = unsafe { ManuallyDrop::take(&mut self.socket) };
        if seqpacket::hang_up_empty(&socket) {
            drop(socket.into_known());
        }
    }
}

impl Deref for Connection {
    type Target = Foreign;

    fn deref(&self) -> &Foreign {
        &self.socket
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;

    use super::*;
    use crate::agents::closer::tests::lingering;

    fn pair() -> (OwnedFd, OwnedFd) {
        let mut ends = [-1; 2];
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the array is as long as stated, and the descriptors are owned by nobody else.
        let [ours, theirs] = unsafe {
            assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
            ends.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        (ours, theirs)
    }

    #[test]
    fn what_has_words_alone_is_closed_at_once_and_what_came_along_by_somebody_else() {
        for (says, along) in
            [(None, false), (Some(&b""[..]), false), (Some(b"word"), false), (Some(b""), true)]
        {
            let (ours, theirs) = pair();
            let slow = along.then(lingering);
            if let Some(says) = says {
                // What is behind the first message counts, too.
                let fds: Vec<RawFd> = slow.iter().map(|(slow, _)| slow.as_raw_fd()).collect();
                for fds in [&[], &fds[..]] {
                    seqpacket::send(&theirs, [says], fds).expect("there is room");
                }
            }
            let other_end = slow.map(|(_, other_end)| other_end);
            let connection = Connection::new(ours, 0, &Arc::default());
            assert_eq!(seqpacket::hang_up_empty(&connection), !along, "{says:?} {along}");
            drop(connection);
            assert!(seqpacket::send(&theirs, [b"more"], &[]).is_err(), "it is over");
            drop(other_end);
        }
    }

    #[test]
    fn who_is_known_goes_on() {
        let (ours, theirs) = pair();
        let socket = Connection::new(ours, 0, &Arc::default()).into_socket();
        seqpacket::send(&theirs, [b"hello"], &[]).expect("nobody has hung up");
        let (len, _) = seqpacket::receive::<Foreign>(&socket, &mut [0; 8]).expect("a message");
        assert_eq!(len, 5);
    }
}
