//! Accepting agents, and programs that ask for something. Nobody waits for one that is silent.
//!
//! What a connection says is heard by threads of their own: the kernel is asked whether two processes share
//! a memory (kcmp), and that waits for an execve of one of them, which may take as long as its program
//! likes (it closes files meanwhile, which may be of a FUSE of its own). Each user of a service has such threads
//! of the own, and who has most connections that say nothing loses the oldest.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clew_store::points;
use crossbeam_channel::Sender;

use crate::agents::attach::{Said, hello};
use crate::agents::closer;
use crate::agents::connection::Connection;
use crate::agents::patient::{self, Patience};
use crate::control::trusted_path::own_uid;
use crate::message::Message;
use crate::programs::shared::Shared;
use crate::survival::pressure;
use crate::survival::records::Descriptors;

/// Connections that have said nothing yet; beyond these the oldest is closed, of the user who has most.
const MAX_SILENT: usize = 1024;

/// How long a connection may say nothing. Agents say hello before anything else: those of forked
/// children a moment after they have connected, when their program has stayed.
const SILENCE: Duration = Duration::from_secs(10);

/// Who hears what they say. On a busy machine all of them may be at work for a while; a connection that is
/// not heard is one of a program that is not managed.
const HEARERS: Patience = Patience {
    name: "hellos",
    most: 8,
    stuck: Duration::from_millis(50),
    hopeless: Duration::from_secs(5),
    stack_bytes: 512 << 10,
};

/// How long who has said something may stay unheard where descriptors are few.
const STUCK: Duration = Duration::from_secs(1);

/// How long it is waited until such a one has been heard.
const SHORTLY: Duration = Duration::from_millis(100);

/// Connections that wait to be heard, or are.
static UNHEARD: AtomicUsize = AtomicUsize::new(0);

/// Connections of one user that wait to be heard; further ones are closed.
const MAX_UNHEARD: usize = 1024;

/// Connections that are accepted before those that there are are looked at: as many as can wait for it. Who connects
/// without end would keep others from connecting if each was accepted on its own.
const AT_A_TIME: usize = 4096;

/// A connection that has said something, as the how manieth.
type Unheard = (Connection, u64);

/// Accepts agents for ever.
pub fn accept_agents(shared: &Arc<Shared>, listener: &OwnedFd, to_governor: &Sender<Message>) {
    let own = own_uid();
    // Those of the daemon's own user are there before anybody can have said anything.
    let mut hearers = HashMap::from([(own, own_hearers(shared, to_governor))]);
    let mut silent: VecDeque<Silent> = VecDeque::new();
    let mut order = 0;
    let readable =
        |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        let mut polls: Vec<libc::pollfd> = silent.iter().map(|one| readable(&one.0)).collect();
        polls.push(readable(listener));
        let timeout = if silent.is_empty() { -1 } else { 100 };
        // SAFETY: the array lives across the call and is as long as stated.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
        let is_new = polls.pop().is_some_and(|listener| listener.revents != 0);
        let mut still = VecDeque::with_capacity(silent.len() + 1);
        for ((connection, since), poll) in silent.drain(..).zip(&polls) {
            if poll.revents == 0 {
                if since.elapsed() < SILENCE {
                    still.push_back((connection, since));
                }
                continue;
            }
            order += 1;
            // Whom this daemon does not serve its own hear, who say so.
            let user = if shared.users.is_service() { connection.user } else { own };
            let hears = match hearers.entry(user) {
                Entry::Occupied(hears) => hears.into_mut(),
                Entry::Vacant(none) => match hire(shared, to_governor) {
                    Ok(hired) => none.insert(hired),
                    Err(error) => {
                        tracing::warn!(%error, user, "no thread hears what a user's agents say");
                        continue;
                    }
                },
            };
            if hears.len() < MAX_UNHEARD {
                UNHEARD.fetch_add(1, Ordering::Relaxed);
                if hears.send((connection, order)).is_err() {
                    return;
                }
            }
        }
        silent = still;
        for _ in 0..if is_new { AT_A_TIME } else { 0 } {
            match Connection::accept(listener, &shared.users) {
                Ok(Some(connection)) => {
                    let is_short = !pressure::has_descriptors_for_others(&connection);
                    silent.push_back((connection, Instant::now()));
                    if is_short {
                        // Which may take a moment: those that have said something are not left for as many of these.
                        catch_up(hearers.values());
                        break;
                    }
                }
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // No descriptors, perhaps: others may be closed meanwhile.
                Err(_) => {
                    std::thread::sleep(Duration::from_millis(10));
                    break;
                }
            }
            if silent.len() > MAX_SILENT {
                close_oldest_of_most(&mut silent);
            }
        }
    }
}

/// A connection that has said nothing yet, and since when.
type Silent = (Connection, Instant);

/// Who has most of them loses the one that has been silent longest.
fn close_oldest_of_most(silent: &mut VecDeque<Silent>) {
    let mut of: HashMap<u32, usize> = HashMap::new();
    silent.iter().for_each(|one| *of.entry(one.0.user).or_default() += 1);
    let most = of.into_iter().max_by_key(|(_, count)| *count).map(|(user, _)| user);
    let oldest = silent.iter().position(|one| Some(one.0.user) == most);
    oldest.map(|at| silent.remove(at));
}

/// Waits until who has said something has been heard, and what is dropped then is closed, or as long as it takes
/// to find out that they cannot be: for who runs out of descriptors.
fn catch_up<'a>(hearers: impl Iterator<Item = &'a Sender<Unheard>>) {
    let began = Instant::now();
    for hearers in hearers {
        while !hearers.is_empty() && began.elapsed() < STUCK {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    while UNHEARD.load(Ordering::Relaxed) > 0 && began.elapsed() < SHORTLY {
        std::thread::sleep(Duration::from_millis(1));
    }
    closer::catch_up();
}

/// Those who hear the daemon's own user's agents. Without a thread now there may be one later.
fn own_hearers(shared: &Arc<Shared>, to_governor: &Sender<Message>) -> Sender<Unheard> {
    loop {
        match hire(shared, to_governor) {
            Ok(hearers) => return hearers,
            Err(error) => tracing::warn!(%error, "no thread hears what agents say: tried again"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Those who hear one user's agents.
fn hire(shared: &Arc<Shared>, to_governor: &Sender<Message>) -> io::Result<Sender<Unheard>> {
    let (shared, to_governor) = (shared.clone(), to_governor.clone());
    let hear = move |(connection, order)| {
        hear(&shared, connection, order, &to_governor);
        UNHEARD.fetch_sub(1, Ordering::Relaxed);
    };
    let mut unheard = 0u64;
    let left = move |_, threads| {
        UNHEARD.fetch_sub(1, Ordering::Relaxed);
        unheard += 1;
        if unheard == 1 {
            tracing::warn!(
                "programs in the middle of an execve keep {threads} threads: what others of their user \
                 say is not heard, and they are not managed"
            );
        }
        tracing::debug!(unheard, "connections that were not heard");
    };
    patient::hire(HEARERS, hear, left)
}

/// Passes on what a connection says. Without a policy thread the daemon is ending.
fn hear(shared: &Shared, connection: Connection, order: u64, to_governor: &Sender<Message>) {
    let _ = match hello(shared, connection, order) {
        Ok(Said::Hello(candidate)) => {
            candidate.save(shared, Descriptors::default());
            points::hello_recorded();
            to_governor.send(Message::Hello(candidate))
        }
        Ok(Said::LetGo(Some(plea))) => to_governor.send(Message::LetGo(plea)),
        Ok(Said::LetGo(None)) => Ok(()),
        Err(error) => {
            tracing::debug!(%error, "a connection that is no agent's");
            Ok(())
        }
    };
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn who_has_most_silent_connections_loses_the_oldest() {
        let one = |user| {
            let socket = OwnedFd::from(UnixStream::pair().expect("a pair").0);
            (Connection::new(socket, user, &Arc::default()), Instant::now())
        };
        let mut silent: VecDeque<Silent> = [1, 2, 1, 2, 2, 1, 1].map(one).into();
        let users = |silent: &VecDeque<Silent>| -> Vec<u32> {
            silent.iter().map(|one| one.0.user).collect()
        };
        close_oldest_of_most(&mut silent);
        assert_eq!(users(&silent), [2, 1, 2, 2, 1, 1], "the first of four");
        silent.extend([3, 1].map(one));
        close_oldest_of_most(&mut silent);
        assert_eq!(users(&silent), [2, 2, 2, 1, 1, 3, 1], "not of who has come last");
    }
}
