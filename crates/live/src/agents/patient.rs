//! Threads for what takes as long as a program likes: each does one piece, and another one comes while all
//! of them are stuck, up to a number. Who hands a piece in waits for nobody.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

/// How many there are, and how long others wait for them.
#[derive(Clone, Copy)]
pub struct Patience {
    /// Their name.
    pub name: &'static str,
    /// Threads, at most.
    pub most: usize,
    /// How long all of them may be busy before there is one more.
    pub stuck: Duration,
    /// How long it is waited for one where there can be no more.
    pub hopeless: Duration,
    /// What each needs.
    pub stack_bytes: usize,
}

/// Has `work` done with what is handed in. What comes while all are stuck is given to `left`, which waits for
/// nobody, with their number.
///
/// # Errors
/// If the system has no thread.
pub fn hire<T: Send + 'static>(
    patience: Patience,
    work: impl Fn(T) + Send + Sync + 'static,
    left: impl FnMut(T, usize) + Send + 'static,
) -> io::Result<Sender<T>> {
    let (to_all, from_all) = unbounded();
    let work = Arc::new(work);
    thread(patience, move || give_out(&from_all, patience, &work, left))?;
    Ok(to_all)
}

fn thread(patience: Patience, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = std::thread::Builder::new().name(patience.name.into());
    builder.stack_size(patience.stack_bytes).spawn(body).map(drop)
}

/// Gives each piece to a thread that has nothing to do.
fn give_out<T: Send + 'static>(
    from_all: &Receiver<T>,
    all: Patience,
    work: &Arc<impl Fn(T) + Send + Sync + 'static>,
    mut left: impl FnMut(T, usize),
) {
    let (to_any, idle) = bounded::<T>(0);
    let mut threads = 0;
    let mut patience = Duration::ZERO;
    for mut piece in from_all {
        while let Err(unsent) = to_any.send_timeout(piece, patience) {
            piece = unsent.into_inner();
            let (idle, work) = (idle.clone(), work.clone());
            let is_one_more = threads < all.most
                && thread(all, move || idle.into_iter().for_each(&*work)).is_ok();
            if is_one_more {
                threads += 1;
                patience = all.stuck;
                continue;
            }
            patience = all.hopeless;
            left(piece, threads);
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A bound for what takes no time.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_waits_for_ever_holds_up_nobody_until_all_wait() {
        let (stuck, hopeless) = (Duration::from_millis(20), Duration::from_millis(20));
        let patience = Patience { name: "test", most: 2, stuck, hopeless, stack_bytes: 64 << 10 };
        let (go_on, waits) = bounded::<()>(0);
        let (did, done) = unbounded();
        let was_left = Arc::new(Mutex::new(Vec::new()));
        let work = move |number: u32| {
            if number < 2 {
                let _ = waits.recv();
            }
            let _ = did.send(number);
        };
        let lefts = was_left.clone();
        let left = move |number: u32, threads| lefts.lock().expect("alive").push((number, threads));
        let hand_in = hire(patience, work, left).expect("a thread");
        hand_in.send(0).expect("it works");
        hand_in.send(7).expect("it works");
        assert_eq!(done.recv_timeout(LONG), Ok(7), "it waits for the first one");
        hand_in.send(1).expect("it works");
        hand_in.send(8).expect("it works");
        let until = std::time::Instant::now() + LONG;
        while was_left.lock().expect("alive").is_empty() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(*was_left.lock().expect("alive"), [(8, 2)]);
        drop(go_on);
        let mut went_on = [0, 1].map(|_| done.recv_timeout(LONG).expect("it goes on"));
        went_on.sort_unstable();
        assert_eq!(went_on, [0, 1]);
    }
}
