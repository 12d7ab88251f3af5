//! Opening what the kernel has of a program, and sending it signals, as the program's user may.
//!
//! A daemon of root's that serves others may read everybody's memory, and so may one with CAP_SYS_PTRACE. What a user has
//! it manage must be memory that this user may read: a program with more rights than who started it (set-user-ID, set-group-ID, capabilities
//! of its file, or one that has given such rights up) may share its memory with a process that has none, for the moment of a vfork. Only the kernel
//! knows all of what makes the difference (`dumpable` above all), so it is the kernel that is asked.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Gid, Signal, Uid, pidfd_send_signal};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_gid,
    set_thread_res_uid,
};

use crate::agents::seqpacket;
use crate::control::trusted_path::own_uid;

/// A real user who is nobody at all: what is his nobody may send signals, and he to nobody.
const NOBODYS: u32 = u32::MAX - 1;

/// Does `open` with the rights of who is at the other end of `socket`, as he was when he connected.
///
/// # Errors
/// The system has no thread, or does not let this process be anybody else; those of `open`.
pub fn as_user_of<T: Send>(
    socket: &impl AsRawFd,
    open: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    let user = seqpacket::peer(socket)?;
    as_user(&user, None, open)
}

/// Sends a signal with the rights of who is at the other end of `socket`, as he was when he connected.
///
/// # Errors
/// As [`as_user_of`]; that he may not, or that the process has ended.
pub fn signal_as_user_of(
    socket: &impl AsRawFd,
    process: &OwnedFd,
    signal: Signal,
) -> io::Result<()> {
    signal_as(&seqpacket::peer(socket)?, process, signal)
}

fn signal_as(user: &libc::ucred, process: &OwnedFd, signal: Signal) -> io::Result<()> {
    // By its real user, too, a process may send signals.
    as_user(user, Some(NOBODYS), || Ok(pidfd_send_signal(process, signal)?))
}

fn as_user<T: Send>(
    user: &libc::ucred,
    real: Option<u32>,
    act: impl FnOnce() -> io::Result<T> + Send,
) -> io::Result<T> {
    // Root's programs are root's.
    if user.uid == 0 {
        return act();
    }
    std::thread::scope(|scope| {
        // The rights are those of a thread, and end with it.
        let acts = move || {
            become_user(user, real)
                .map_err(|e| io::Error::other(format!("acting as user {}: {e}", user.uid)))?;
            act()
        };
        let thread =
            std::thread::Builder::new().name("as-user".into()).spawn_scoped(scope, acts)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// This thread acts as `user` from now on, but is not his: the real user is who may send it signals, which would end the process.
fn become_user(user: &libc::ucred, real: Option<u32>) -> io::Result<()> {
    if user.uid != own_uid() {
        set_thread_res_gid(None, Gid::from_raw(user.gid), None)?;
        set_thread_res_uid(real.map(Uid::from_raw), Uid::from_raw(user.uid), None)?;
    }
    let sets = capabilities(None)?;
    Ok(set_capabilities(None, CapabilitySets { effective: CapabilitySet::empty(), ..sets })?)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::skip::skip;

    #[test]
    fn roots_own_is_opened_as_root() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
        let maps = as_user_of(&ours, || File::open("/proc/self/maps"));
        assert!(maps.is_ok(), "the peer is this process");
    }

    #[test]
    fn who_acts_as_a_user_is_not_his_and_has_no_rights() {
        if own_uid() != 0 {
            skip("as_its_user::who_acts_as_a_user_is_not_his_and_has_no_rights", "not root");
            return;
        }
        let user = libc::ucred { pid: 0, uid: 12345, gid: 23456 };
        let status = std::thread::spawn(move || {
            become_user(&user, None).expect("root may");
            let own = File::open("/proc/1/maps");
            (own.err().map(|error| error.kind()), fs::read_to_string("/proc/thread-self/status"))
        });
        let (refused, status) = status.join().expect("no panic");
        assert_eq!(refused, Some(io::ErrorKind::PermissionDenied), "of root's memory");
        let status = status.expect("everybody may read it");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.map(|line| line.split_ascii_whitespace().collect::<Vec<_>>()).expect(name)
        };
        assert_eq!(field("Uid:"), ["0", "12345", "0", "12345"]);
        assert_eq!(field("Gid:")[1], "23456");
        assert_eq!(field("CapEff:"), ["0000000000000000"]);
        assert_eq!(own_uid(), 0, "other threads are what they were");
    }

    #[test]
    fn who_may_not_send_a_signal_sends_none_through_us() {
        if own_uid() != 0 {
            skip("as_its_user::who_may_not_send_a_signal_sends_none_through_us", "not root");
            return;
        }
        let sleeps = || std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let user = libc::ucred { pid: 0, uid: 12345, gid: 23456 };
        let kills = |child: &mut std::process::Child| {
            let pid = rustix::process::Pid::from_child(child);
            let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
            let process = process.expect("it lives");
            let killed = signal_as(&user, &process, Signal::KILL);
            let _ = child.kill();
            child.wait().expect("it has ended");
            killed.map_err(|error| error.kind())
        };
        assert_eq!(kills(&mut sleeps()), Err(io::ErrorKind::PermissionDenied), "root's");
        let mut theirs = std::process::Command::new("setpriv");
        theirs.args(["--reuid=12345", "--regid=23456", "--clear-groups", "sleep", "60"]);
        let mut theirs = theirs.spawn().expect("setpriv");
        let status = format!("/proc/{}/status", theirs.id());
        while !fs::read_to_string(&status).expect("it lives").contains("Uid:\t12345\t12345\t12345")
        {
            std::thread::yield_now();
        }
        assert_eq!(kills(&mut theirs), Ok(()));
    }
}
