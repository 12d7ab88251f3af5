//! Accepting agents, and programs that ask for something. Nobody waits for one that is silent.
//!
//! What a connection says is heard by threads of their own: the kernel is asked whether two processes share
//! a memory (kcmp), and that waits for an execve of one of them, which may take as long as its program
//! likes (it closes files meanwhile, which may be of a FUSE of its own).

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clew_store::points;
use crossbeam_channel::Sender;

use crate::agents::attach::{Said, hello};
use crate::agents::closer::{self, Foreign};
use crate::agents::patient::{self, Patience};
use crate::agents::seqpacket;
use crate::governor::Message;
use crate::programs::process::Shared;
use crate::survival::pressure;
use crate::survival::records::Descriptors;

/// Connections that have said nothing yet; beyond these the oldest is closed.
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

/// Connections that wait to be heard; further ones are closed.
const MAX_UNHEARD: usize = 1024;

/// A connection that has said something, as the how manieth.
type Unheard = (Foreign, u64);

/// Accepts agents for ever.
pub fn accept_agents(shared: &Arc<Shared>, listener: &OwnedFd, to_governor: &Sender<Message>) {
    let Some(hearers) = hearers(shared, to_governor) else { return };
    let mut silent: VecDeque<(Foreign, Instant)> = VecDeque::new();
    let mut order = 0;
    let readable =
        |fd: &OwnedFd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        let mut polls: Vec<libc::pollfd> = silent.iter().map(|(fd, _)| readable(fd)).collect();
        polls.push(readable(listener));
        let timeout = if silent.is_empty() { -1 } else { 100 };
        // SAFETY: the array lives across the call and is as long as stated.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
        let is_new = polls.pop().is_some_and(|listener| listener.revents != 0);
        let mut still = VecDeque::with_capacity(silent.len() + 1);
        for ((socket, since), poll) in silent.drain(..).zip(&polls) {
            if poll.revents == 0 {
                if since.elapsed() < SILENCE {
                    still.push_back((socket, since));
                }
                continue;
            }
            order += 1;
            if hearers.len() < MAX_UNHEARD && hearers.send((socket, order)).is_err() {
                return;
            }
        }
        silent = still;
        if is_new {
            match seqpacket::accept(listener) {
                Ok(socket) => {
                    if !pressure::has_descriptors_for_others(&socket) {
                        catch_up(&hearers);
                    }
                    silent.push_back((socket, Instant::now()));
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                // No descriptors, perhaps: others may be closed meanwhile.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
            if silent.len() > MAX_SILENT {
                silent.pop_front();
            }
        }
    }
}

/// Waits until who has said something is heard, and what is dropped then is closed, or as long as it takes
/// to find out that they cannot be: for who runs out of descriptors.
fn catch_up(hearers: &Sender<Unheard>) {
    let until = Instant::now() + STUCK;
    while !hearers.is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    closer::catch_up();
}

/// Those who hear; they are there before anybody can have said anything. Without a thread now there may be
/// one later.
fn hearers(shared: &Arc<Shared>, to_governor: &Sender<Message>) -> Option<Sender<Unheard>> {
    loop {
        let (shared, to_governor) = (shared.clone(), to_governor.clone());
        let hear = move |(socket, order)| hear(&shared, socket, order, &to_governor);
        let mut unheard = 0u64;
        let left = move |_, threads| {
            unheard += 1;
            if unheard == 1 {
                tracing::warn!(
                    "programs in the middle of an execve keep {threads} threads: what others say \
                     is not heard, and they are not managed"
                );
            }
            tracing::debug!(unheard, "connections that were not heard");
        };
        match patient::hire(HEARERS, hear, left) {
            Ok(hearers) => return Some(hearers),
            Err(error) => tracing::warn!(%error, "no thread hears what agents say: tried again"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Passes on what a connection says. Without a policy thread the daemon is ending.
fn hear(shared: &Shared, socket: Foreign, order: u64, to_governor: &Sender<Message>) {
    let _ = match hello(shared, socket, order) {
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
