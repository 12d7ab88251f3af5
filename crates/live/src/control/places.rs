//! Places for those that are served by a thread each: no place is kept for those that say nothing, and
//! whoever waits for an answer keeps his.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use socket2::SockRef;

/// How long a newcomer waits for the place of an idle one, which is free as soon as its thread ran.
const FREED_WITHIN: Duration = Duration::from_secs(1);

/// Who is being served.
pub struct Places<S> {
    /// How many there are.
    most: usize,
    /// What one hears who gives way.
    farewell: String,
    taken: Mutex<BTreeMap<u64, Seat<S>>>,
    freed: Condvar,
}

struct Seat<S> {
    /// None once its stream is being closed.
    stream: Option<Arc<S>>,
    state: State,
    /// The user whose share it is part of.
    of: Option<u32>,
}

/// What one user may have of the places, where each has a share.
#[derive(Clone, Copy)]
pub struct Share {
    /// The user.
    pub of: u32,
    /// So many places.
    pub most: usize,
    /// And all who have shares together so many: the rest is for those who have none.
    pub most_of_all: usize,
}

/// What somebody who is served does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It has nothing to wait for since then.
    Idle(Instant),
    /// It waits for an answer.
    Waits,
    /// It waits for an order that takes a while.
    WaitsForOrder,
    /// It has lost its place, and its thread is about to notice.
    Out,
}

/// A place; free again when this goes.
pub struct Place<S> {
    places: Arc<Places<S>>,
    number: u64,
    stream: Option<Arc<S>>,
}

impl<S> Places<S> {
    /// So many, all free. Who gives way hears `farewell`, as far as that goes at once: it may have been about to ask.
    pub fn new(most: usize, farewell: String) -> Places<S> {
        Places { most, farewell, taken: Mutex::default(), freed: Condvar::default() }
    }
}

impl<S: AsFd> Places<S> {
    /// Has fewer than `most` of those that are `counted`, if the one of them gives way that has been idle
    /// longest; whether there are fewer.
    fn make_room(
        &self,
        taken: &mut MutexGuard<'_, BTreeMap<u64, Seat<S>>>,
        counted: impl Fn(&Seat<S>) -> bool,
        most: usize,
    ) -> bool {
        let is_full = |taken: &BTreeMap<u64, Seat<S>>| {
            taken.values().filter(|seat| counted(seat)).count() >= most
        };
        if !is_full(taken) {
            return true;
        }
        let is_idle = |seat: &&mut Seat<S>| counted(seat) && matches!(seat.state, State::Idle(_));
        if let Some(longest) = taken.values_mut().filter(is_idle).min_by_key(|seat| seat.state) {
            longest.state = State::Out;
            if let Some(stream) = &longest.stream {
                let stream = SockRef::from(&**stream);
                let at_once = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
                let _ = stream.send_with_flags(self.farewell.as_bytes(), at_once);
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        let until = Instant::now() + FREED_WITHIN;
        let is_left = |taken: &BTreeMap<u64, Seat<S>>| {
            taken.values().any(|seat| counted(seat) && seat.state == State::Out)
        };
        while is_full(taken) && is_left(taken) {
            if self.freed.wait_until(taken, until).timed_out() {
                break;
            }
        }
        !is_full(taken)
    }
}

impl<S: AsFd> Place<S> {
    /// A place for a newcomer: where none is free, that of the one who has been idle longest.
    ///
    /// # Errors
    /// The newcomer itself if all wait for answers.
    pub fn take(places: &Arc<Places<S>>, stream: S) -> Result<Place<S>, Arc<S>> {
        Place::take_of(places, stream, None)
    }

    /// The same for somebody who has a `share`: his own idle ones give way where that is used up, and nobody
    /// who has none gives way for him.
    ///
    /// # Errors
    /// As [`Place::take`].
    pub fn take_of(
        places: &Arc<Places<S>>,
        stream: S,
        share: Option<Share>,
    ) -> Result<Place<S>, Arc<S>> {
        let stream = Arc::new(stream);
        let mut taken = places.taken.lock();
        let of = share.map(|share| share.of);
        if let Some(share) = share {
            let is_own = |seat: &Seat<S>| seat.of == of;
            if !places.make_room(&mut taken, is_own, share.most)
                || !places.make_room(&mut taken, |seat| seat.of.is_some(), share.most_of_all)
            {
                return Err(stream);
            }
        } else if !places.make_room(&mut taken, |_| true, places.most) {
            return Err(stream);
        }
        let number = taken.last_key_value().map_or(0, |(last, _)| last + 1);
        let seat = Seat { stream: Some(stream.clone()), state: State::Idle(Instant::now()), of };
        taken.insert(number, seat);
        drop(taken);
        Ok(Place { places: places.clone(), number, stream: Some(stream) })
    }

    /// Whether it may wait for an order that takes a while, as `most` of those who share its places may; then
    /// it does.
    pub fn waits_for_order(&self, most: usize) -> bool {
        let mut taken = self.places.taken.lock();
        let of = taken.get(&self.number).and_then(|seat| seat.of);
        let waits = |seat: &&Seat<S>| seat.of == of && seat.state == State::WaitsForOrder;
        let orders = taken.values().filter(waits).count();
        match taken.get_mut(&self.number) {
            Some(seat) if orders < most && seat.state == State::Waits => {
                seat.state = State::WaitsForOrder;
                true
            }
            _ => false,
        }
    }

    /// Says what it does from now on; false if it has lost its place.
    pub fn set(&self, state: State) -> bool {
        let mut taken = self.places.taken.lock();
        let Some(seat) = taken.get_mut(&self.number).filter(|s| s.state != State::Out) else {
            return false;
        };
        seat.state = state;
        true
    }
}

impl<S> Place<S> {
    /// Who has it.
    pub fn stream(&self) -> &S {
        self.stream.as_deref().expect("it is there until the place is given up")
    }
}

impl<S> Drop for Place<S> {
    /// Closing may take as long as the other end likes: until then the place is taken.
    fn drop(&mut self) {
        let seated = self.places.taken.lock().get_mut(&self.number).and_then(|s| s.stream.take());
        drop((seated, self.stream.take()));
        self.places.taken.lock().remove(&self.number);
        self.places.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::BorrowedFd;
    use std::os::unix::net::UnixStream;
    use std::sync::Barrier;

    use super::*;

    /// Closing it takes until somebody lets it.
    struct Lingering(UnixStream, Arc<Barrier>);

    impl AsFd for Lingering {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Drop for Lingering {
        fn drop(&mut self) {
            self.1.wait();
            self.1.wait();
        }
    }

    #[test]
    fn a_place_is_taken_until_its_stream_is_closed() {
        let places = Arc::new(Places::new(1, String::new()));
        let closes = Arc::new(Barrier::new(2));
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        let place = Place::take(&places, Lingering(ours, closes.clone()));
        let place = place.map_err(drop).expect("it is free");
        assert!(place.set(State::Waits));
        std::thread::scope(|scope| {
            scope.spawn(move || drop(place));
            closes.wait();
            assert_eq!(places.taken.lock().len(), 1, "it is being closed");
            closes.wait();
        });
        assert!(places.taken.lock().is_empty());
    }
}
