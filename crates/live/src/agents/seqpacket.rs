//! What the standard library does not have of sockets: SEQPACKET with descriptors in tow, listening
//! where nobody else may connect, who the peer is.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use crate::control::trusted_path::own_uid;

/// Most descriptors in one message that is sent.
const MAX_FDS: usize = 4;

/// And in one that is received, as the kernel has it: what there is no room for it would close in the
/// receiver.
const MAX_FDS_RECEIVED: usize = 253;

/// Connections that wait to be accepted; the system may have a lower limit. Programs that start wait for
/// none of them.
const BACKLOG: libc::c_int = 4096;

/// A socket's option of Linux 6.16 that the C library does not have yet.
const SO_PASSRIGHTS: libc::c_int = 83;

fn check(result: isize) -> io::Result<usize> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// A listening socket of this kind at `path`, where nothing may be. It is of mode 0600 from the first
/// moment on, whatever the process's umask.
pub fn listen(path: &Path, kind: libc::c_int) -> io::Result<OwnedFd> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= 108 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path exceeds 107 bytes"));
    }
    // SAFETY: sockaddr_un is plain bytes, and long enough as just checked; results are checked and
    // the descriptor is owned by nobody else.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0);
        let fd = OwnedFd::from_raw_fd(check(fd as isize)? as RawFd);
        // The file gets the mode that the socket has when it is bound.
        check(libc::fchmod(fd.as_raw_fd(), 0o600) as isize)?;
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(bytes) {
            *to = *from as libc::c_char;
        }
        let len = 2 + bytes.len() + 1;
        let to = (&raw const address).cast();
        check(libc::bind(fd.as_raw_fd(), to, len as u32) as isize)?;
        let found = std::fs::symlink_metadata(path)?;
        if !found.file_type().is_socket() || found.mode() & 0o177 != 0 || found.uid() != own_uid() {
            let what = format!("mode {:o} of user {}", found.mode(), found.uid());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        listen_again(&fd)?;
        Ok(fd)
    }
}

/// Whoever connects is told from now on that it is this process who listens.
///
/// # Errors
/// Then they are told of another one, which may be dead.
pub fn listen_again(listener: &OwnedFd) -> io::Result<()> {
    // SAFETY: takes numbers only.
    check(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } as isize).map(drop)
}

/// Accepts one connection.
pub fn accept<F: From<OwnedFd>>(listener: &OwnedFd) -> io::Result<F> {
    // SAFETY: no address is asked for; the result is checked and owned by nobody else.
    unsafe {
        let fd = libc::accept4(
            listener.as_raw_fd(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            libc::SOCK_CLOEXEC,
        );
        Ok(OwnedFd::from_raw_fd(check(fd as isize)? as RawFd).into())
    }
}

/// Process, user and group of the peer; of a listener, those who listened.
pub fn peer(socket: &impl AsRawFd) -> io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as u32;
    // SAFETY: the buffer is as large as stated.
    unsafe {
        check(libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut len,
        ) as isize)?;
    }
    Ok(credentials)
}

/// The supplementary groups of the peer, as they were when it connected.
pub fn peer_groups(socket: &impl AsRawFd) -> io::Result<Vec<libc::gid_t>> {
    let mut groups = vec![0; 64];
    loop {
        let had = size_of_val(&groups[..]);
        let mut bytes = had as u32;
        // SAFETY: the buffer is as large as stated.
        let asked = check(unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &mut bytes,
            ) as isize
        });
        match asked {
            Ok(_) => {
                groups.truncate(bytes as usize / size_of::<libc::gid_t>());
                return Ok(groups);
            }
            // It says how many there are.
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && bytes as usize > had => {
                groups.resize(bytes as usize / size_of::<libc::gid_t>(), 0);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The process that connected, as a descriptor: its number may be another's by now.
///
/// # Errors
/// If it has been reaped, or the system has no descriptor.
pub fn peer_process(socket: &impl AsRawFd) -> io::Result<OwnedFd> {
    let mut fd: RawFd = -1;
    let mut len = size_of::<RawFd>() as u32;
    // SAFETY: the buffer is as large as stated; the descriptor is owned by nobody else.
    unsafe {
        check(libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut fd).cast(),
            &mut len,
        ) as isize)?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Limits how long [`receive`] waits; `None` waits for ever.
pub fn set_timeout(socket: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    let t = timeout.unwrap_or_default();
    let value = libc::timeval { tv_sec: t.as_secs() as i64, tv_usec: t.subsec_micros().into() };
    // SAFETY: the buffer is as large as stated.
    unsafe {
        check(libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const value).cast(),
            size_of::<libc::timeval>() as u32,
        ) as isize)?;
    }
    Ok(())
}

/// Whether the peer may send descriptors from now on; if not, it is told so (EPERM). Kernels before
/// 6.16 take them all the same.
pub fn takes_descriptors(socket: &impl AsRawFd, takes: bool) {
    let value = libc::c_int::from(takes);
    // SAFETY: the buffer is as large as stated.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
}

#[repr(C, align(8))]
struct Control<const BYTES: usize>([u8; BYTES]);

/// Bytes of a control message with so many descriptors.
const fn control_bytes(descriptors: usize) -> usize {
    // A whole number of words.
    16 + (4 * descriptors).next_multiple_of(8)
}

/// Whether there was no memory to send something.
pub fn is_out_of_memory(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::ENOBUFS))
}

/// Sends the parts as one message, with descriptors. Waits for nobody.
///
/// # Errors
/// WouldBlock if the peer has not read what it was sent before. Else those of the system.
pub fn send<const N: usize>(socket: &OwnedFd, parts: [&[u8]; N], fds: &[RawFd]) -> io::Result<()> {
    assert!(fds.len() <= MAX_FDS);
    let mut iov =
        parts.map(|p| libc::iovec { iov_base: p.as_ptr().cast_mut().cast(), iov_len: p.len() });
    let mut control = Control([0; control_bytes(MAX_FDS)]);
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: every pointer in `message` lives across the call; the control buffer is aligned and
    // large enough for MAX_FDS descriptors.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = iov.as_mut_ptr();
        message.msg_iovlen = iov.len();
        if !fds.is_empty() {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(4 * fds.len() as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(4 * fds.len() as u32) as usize;
            std::ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                4 * fds.len(),
            );
        }
        loop {
            match check(libc::sendmsg(socket.as_raw_fd(), &message, flags)) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => return other.map(drop),
            }
        }
    }
}

/// Whether there is something to be received, or the peer is gone, within `patience`.
pub fn is_readable(socket: &impl AsRawFd, patience: Duration) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives across the call.
    unsafe { libc::poll(&mut poll, 1, patience.as_millis().min(i32::MAX as u128) as i32) > 0 }
}

/// No more messages either way: whoever waits for one here is told that the peer is gone.
pub fn hang_up(socket: &OwnedFd) {
    // SAFETY: takes numbers only.
    unsafe { libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Messages that are dropped of one connection: more than fit into it.
const MOST_DROPPED: usize = 1 << 16;

/// Ends it for both sides, drops what the peer has said and nobody has heard, and says whether nothing is left that the peer has sent
/// along: then closing it takes no time.
pub fn hang_up_empty(socket: &OwnedFd) -> bool {
    hang_up(socket);
    let yes: libc::c_int = 1;
    let mut control = Control([0; control_bytes(4)]);
    // SAFETY: everything that is pointed to lives across the calls and is as long as stated. There is no room for
    // descriptors behind the sender's credentials, so none comes.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const yes).cast(),
            size_of_val(&yes) as u32,
        );
        for _ in 0..MOST_DROPPED {
            let mut next = |flags| {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_control = control.0.as_mut_ptr().cast();
                message.msg_controllen = control.0.len();
                let flags = flags | libc::MSG_DONTWAIT;
                let len = libc::recvmsg(socket.as_raw_fd(), &mut message, flags);
                (len, message)
            };
            let (len, message) = next(libc::MSG_PEEK);
            if len < 0 || message.msg_flags & libc::MSG_CTRUNC != 0 {
                return false;
            }
            // Of a message without a byte it is zero, too, but that comes with credentials.
            if len == 0 && message.msg_controllen == 0 {
                return true;
            }
            next(0);
        }
        false
    }
}

/// Receives one message into `buffer`; its length (0 at the end) and the descriptors it brought: a stranger's as what
/// is closed by somebody else.
pub fn receive<F: From<OwnedFd>>(
    socket: &OwnedFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Vec<F>)> {
    let mut control = Control([0; control_bytes(MAX_FDS_RECEIVED)]);
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: every pointer in `message` lives across the call; received descriptors are ours.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len();
        let n = loop {
            let n = libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC);
            match check(n) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => break other?,
            }
        };
        let mut fds = Vec::new();
        let header = libc::CMSG_FIRSTHDR(&message);
        if !header.is_null()
            && (*header).cmsg_level == libc::SOL_SOCKET
            && (*header).cmsg_type == libc::SCM_RIGHTS
        {
            let bytes = (*header).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for i in 0..bytes / 4 {
                fds.push(OwnedFd::from_raw_fd(data.add(i).read_unaligned()).into());
            }
        }
        Ok((n, fds))
    }
}
