//! The same on two devices (ours; the paper ends the apps of a donor that is lost): a second donor, or a file. One of them
//! may be lost, and nothing is.
//!
//! A write is over when both have it, or one has it and the other is lost; a read is answered by the first that has it,
//! and who is late with it is not waited for (`hedge`).
//! What a device has missed while it was lost, and all that it had if it has begun anew, is read from the other one only, and
//! copied there once it is back: a few chunks at a time, behind whatever a program waits for. Until then there is one copy
//! of it, and the two take nothing new. Who has what, [`pieces`] knows, and a successor ([`record`]).
//!
//! Order: what was missed is put under the lock of the pieces, and what is forgotten is taken off these first: so
//! what is put late comes before whatever is written there anew.

mod hedge;
pub mod pieces;
pub mod record;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clew_core::DonorState;
use clew_store::flash::device::{Blocks, Device, Read, Write, Wrote};
use parking_lot::{Condvar, Mutex};

use crate::Standing;
use crate::borrowed::{Lender, Single};
use hedge::Hedges;
use pieces::{Missed, Pieces};

/// How often it is looked whether something can be copied that was missed: at first, and at most where nothing could be.
pub const LOOKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(4));
/// Pieces that are copied at a time: with chunks of 64 KiB, 10 MiB a second at most.
pub const AT_A_TIME: usize = 16;

/// At which of so many donors the second copy is of what the one of this number has.
pub fn second_of(first: usize, donors: usize) -> usize {
    (first + 1) % donors.max(1)
}

/// Where the second copy lies.
#[derive(Debug)]
pub enum Second {
    /// At another lender.
    Lender(Arc<dyn Single>),
    /// In a file or on a block device.
    File(Arc<dyn Device>),
}

impl Second {
    fn device(&self) -> &dyn Device {
        match self {
            Second::Lender(lender) => &**lender as &dyn Device,
            Second::File(file) => &**file,
        }
    }

    /// `None` for a file, which is never lost.
    fn standing(&self) -> Option<Standing> {
        match self {
            Second::Lender(lender) => Some(lender.standing()),
            Second::File(_) => None,
        }
    }
}

#[derive(Debug)]
struct Inside {
    first: Arc<dyn Single>,
    second: Second,
    /// Where in the second one what is here begins, bytes.
    offset: u64,
    pieces: Mutex<Pieces>,
    hedges: Hedges,
    /// Nothing is copied any more.
    ends: Mutex<bool>,
    ended: Condvar,
}

/// Two devices as one.
#[derive(Debug)]
pub struct Copies(Arc<Inside>);

impl Copies {
    /// The first is read where it can be; the second has the same from byte `offset` on. `pieces` are what a predecessor
    /// had there, if there was one.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub fn new(
        first: Arc<dyn Single>,
        second: Second,
        offset: u64,
        pieces: Pieces,
    ) -> io::Result<Copies> {
        let (pieces, ends, ended) = (Mutex::new(pieces), Mutex::new(false), Condvar::new());
        let hedges = Hedges::default();
        let inside = Arc::new(Inside { first, second, offset, pieces, hedges, ends, ended });
        // Dropped where a thread is not given, it ends those that there are.
        let copies = Copies(Arc::clone(&inside));
        let (mends, hedges) = (Arc::clone(&inside), inside);
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        named("clew-copies").spawn(move || mends.mend_all())?;
        named("clew-hedge").spawn(move || hedges.hedge_all())?;
        Ok(copies)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        *self.0.ends.lock() = true;
        self.0.ended.notify_all();
        self.0.hedges.end();
    }
}

/// A write that two devices are asked for.
struct Both {
    told: Option<Wrote>,
    results: Vec<io::Result<usize>>,
}

impl Both {
    /// One is over. What the other made of it decides, if it failed here.
    fn over(both: &Mutex<Both>, result: io::Result<usize>) {
        let told = {
            let mut both = both.lock();
            both.results.push(result);
            if both.results.len() < 2 {
                return;
            }
            let mut results = std::mem::take(&mut both.results);
            let best = results.iter().position(Result::is_ok).unwrap_or(0);
            both.told.take().map(|told| (told, results.swap_remove(best)))
        };
        if let Some((told, result)) = told {
            told(result);
        }
    }
}

impl Inside {
    /// The device of this number, and where in it what is here begins.
    fn device(&self, which: usize) -> (&dyn Device, u64) {
        match which {
            0 => (&*self.first as &dyn Device, 0),
            _ => (self.second.device(), self.offset),
        }
    }

    /// How the device of this number stands; `None` for a file.
    fn standing(&self, which: usize) -> Option<Standing> {
        match which {
            0 => Some(self.first.standing()),
            _ => self.second.standing(),
        }
    }

    /// A file never is.
    fn is_lost(&self, which: usize) -> bool {
        self.standing(which).is_some_and(|standing| standing.state == DonorState::Lost)
    }

    /// Copies what was missed, as soon as it can be, until the end.
    fn mend_all(self: &Arc<Self>) {
        let mut pause = LOOKS.0;
        loop {
            let mut ends = self.ends.lock();
            if !*ends {
                self.ended.wait_for(&mut ends, pause);
            }
            if *ends {
                return;
            }
            drop(ends);
            self.look_for_losses();
            let mended = (0..2).map(|which| self.mend(which)).collect::<Vec<_>>();
            // Who has no room is not offered the same again and again.
            pause = match mended.contains(&Mended::Nothing) {
                true => (pause * 2).min(LOOKS.1),
                false => LOOKS.0,
            };
        }
    }

    /// Who has begun anew has nothing any more, and is as good as ever.
    fn look_for_losses(&self) {
        // First it is asked, then written down: whatever it takes in between is copied there again, which is no harm.
        let second = match &self.second {
            Second::Lender(second) => second.take_loss(),
            Second::File(_) => false,
        };
        for (which, lost) in [self.first.take_loss(), second].into_iter().enumerate() {
            if lost {
                let pieces = self.pieces.lock().lost_all(which);
                tracing::info!(which, pieces, "one of two copies is made again");
            }
        }
    }

    /// The lender of this number, and where in it what is here begins; `None` for a file.
    fn lender(&self, which: usize) -> Option<(&dyn Single, u64)> {
        match (which, &self.second) {
            (0, _) => Some((&*self.first, 0)),
            (_, Second::Lender(second)) => Some((&**second, self.offset)),
            (_, Second::File(_)) => None,
        }
    }

    /// Copies some of what the first (0) or second (1) has missed, if it takes something now, and waits for it.
    fn mend(self: &Arc<Self>, which: usize) -> Mended {
        let some = self.pieces.lock().missed(which, AT_A_TIME);
        if some.is_empty() {
            return Mended::All;
        }
        let takes = |(lender, _): (&dyn Single, u64)| lender.standing().state == DonorState::Up;
        if self.is_lost(1 - which) || !self.lender(which).is_some_and(takes) {
            return Mended::Nothing;
        }
        let (tell, told) = std::sync::mpsc::channel();
        for missed in some {
            let (inside, tell) = (Arc::clone(self), tell.clone());
            let came = move |came: io::Result<usize>, blocks: Blocks| {
                if let Ok(got) = came
                    && got as u64 >= missed.len
                {
                    let bytes = blocks.bytes()[..missed.len as usize].to_vec();
                    inside.put_missed(which, missed, bytes, tell);
                }
            };
            let into = Blocks::zeroed(missed.len as usize);
            let (told, (device, offset)) = (Box::new(came), self.device(1 - which));
            let at = offset + missed.at;
            device.read(Read { at, into, told, pressing: false, tries: 0 });
        }
        drop(tell);
        // Who is not told of has been given up.
        match told.iter().count() {
            0 => Mended::Nothing,
            _ => Mended::Some,
        }
    }

    /// Has what one of the two has missed put there, unless it is not wanted any more.
    fn put_missed(
        self: &Arc<Self>,
        which: usize,
        missed: Missed,
        bytes: Vec<u8>,
        tell: std::sync::mpsc::Sender<()>,
    ) {
        let pieces = self.pieces.lock();
        if !pieces.is_missed(which, missed) {
            let _ = tell.send(());
            return;
        }
        let mended = Arc::clone(self);
        let wrote = move |wrote: io::Result<()>| {
            if wrote.is_ok() {
                mended.pieces.lock().mended(which, missed);
                let _ = tell.send(());
            }
        };
        if let Some((lender, offset)) = self.lender(which) {
            lender.put(offset + missed.at, bytes, Box::new(wrote));
        }
    }
}

/// What came of copying what was missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mended {
    /// Nothing is missed.
    All,
    Some,
    /// Nothing could be copied now.
    Nothing,
}

impl Lender for Copies {
    fn standing(&self) -> Standing {
        let (first, second) = (self.0.first.standing(), self.0.second.standing());
        self.0.pieces.lock().standing(first, second)
    }

    fn forgive(&self) {
        self.0.look_for_losses();
        self.0.pieces.lock().forgive();
    }

    fn say_goodbye(&self, patience: Duration) {
        std::thread::scope(|scope| {
            if let Second::Lender(second) = &self.0.second {
                scope.spawn(move || second.say_goodbye(patience));
            }
            self.0.first.say_goodbye(patience);
        });
    }
}

impl Device for Copies {
    fn bytes(&self) -> u64 {
        self.0.first.bytes()
    }

    fn align(&self) -> usize {
        self.0.first.align().max(self.0.second.device().align())
    }

    fn write(&self, write: Write<'_>) -> Option<io::Result<usize>> {
        let Write { at, from, offset, len, told } = write;
        let both = Arc::new(Mutex::new(Both { told: Some(told), results: Vec::new() }));
        // One that was not reached yet (by a successor) may be in a moment, and has what comes now, too.
        let in_vain = |which| self.0.standing(which).is_some_and(|standing| standing.in_vain);
        let lost = [0, 1].map(in_vain);
        let number = self.0.pieces.lock().write(at, len as u64);
        for (which, lost) in lost.into_iter().enumerate() {
            let (device, there) = self.0.device(which);
            let (over, inside) = (Arc::clone(&both), Arc::clone(&self.0));
            let told = move |wrote: io::Result<usize>| {
                let took = wrote.as_ref().ok() == Some(&len);
                inside.pieces.lock().wrote(which, at, number, took);
                Both::over(&over, wrote);
            };
            // It would wait for who is lost.
            if lost {
                told(Err(io::ErrorKind::NotConnected.into()));
                continue;
            }
            let write = Write { at: there + at, from, offset, len, told: Box::new(told.clone()) };
            if let Some(wrote) = device.write(write) {
                told(wrote);
            }
        }
        None
    }

    fn read(&self, read: Read) {
        // Who is told may read again, from here: nothing is locked then.
        let may_read = self.0.pieces.lock().may_read(read.at);
        let which = match may_read {
            [true, true] if read.tries == 0 => return self.0.read_either(read),
            // What was given is not believed by who reads, and whoever gave it: one of the two tells the truth, perhaps.
            [true, true] => (read.tries % 2) as usize,
            [false, true] => 1,
            [_, false] => 0,
        };
        let (device, offset) = self.0.device(which);
        device.read(Read { at: offset + read.at, ..read });
    }

    fn forget(&self, at: u64, len: usize) {
        self.0.pieces.lock().forget(at, len as u64);
        self.0.first.forget(at, len);
        self.0.second.device().forget(self.0.offset + at, len);
    }

    fn way(&self) -> &'static str {
        "two copies"
    }
}

#[cfg(test)]
mod tests;
