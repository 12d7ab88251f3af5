//! The same on two devices (ours; the paper ends the apps of a donor that is lost): a second donor, or a file. One of them
//! may be lost, and nothing is.
//!
//! A write is over when both have it, or one has it and the other is lost; a read is answered by the first that has it.
//! What a device has missed while it was lost is written down, read from the other one only, and copied there once it is
//! back. Until then there is one copy of it, and the two take nothing new.
//!
//! Order: what was missed is put under the lock of what was missed, and what is forgotten is taken off that first: so
//! what is put late comes before whatever is written there anew.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use clew_core::DonorState;
use clew_store::flash::device::{Blocks, Device, Read, Write, Wrote};
use parking_lot::Mutex;

use crate::Standing;
use crate::borrowed::{Lender, Single};

/// How often it is looked whether something can be copied that was missed.
const LOOK: Duration = Duration::from_millis(100);
/// Pieces that are copied at a time.
const AT_A_TIME: usize = 16;

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

    fn is_lost(&self) -> bool {
        match self {
            Second::Lender(lender) => lender.standing().state == DonorState::Lost,
            Second::File(_) => false,
        }
    }
}

/// What a device has missed: where, how many bytes, and a number that nothing else has.
#[derive(Debug, Default)]
struct Missed {
    pieces: BTreeMap<u64, (u64, u64)>,
    next: u64,
}

impl Missed {
    fn add(&mut self, at: u64, len: u64) {
        self.next += 1;
        self.pieces.insert(at, (len, self.next));
    }

    fn has(&self, at: u64) -> bool {
        let before = self.pieces.range(..=at).next_back();
        before.is_some_and(|(from, (len, _))| at - from < *len)
    }

    fn forget(&mut self, at: u64, len: u64) {
        self.pieces.retain(|from, _| !(at..at + len).contains(from));
    }
}

#[derive(Debug)]
struct Inside {
    first: Arc<dyn Single>,
    second: Second,
    /// Where in the second one what is here begins, bytes.
    offset: u64,
    /// Of the first and of the second.
    missed: [Mutex<Missed>; 2],
    ends: AtomicBool,
}

/// Two devices as one.
#[derive(Debug)]
pub struct Copies(Arc<Inside>);

impl Copies {
    /// The first is read where it can be; the second has the same from byte `offset` on.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(first: Arc<dyn Single>, second: Second, offset: u64) -> io::Result<Copies> {
        let (missed, ends) = Default::default();
        let inside = Arc::new(Inside { first, second, offset, missed, ends });
        let mends = Arc::clone(&inside);
        let named = std::thread::Builder::new().name("clew-copies".into());
        named.spawn(move || mends.mend_all())?;
        Ok(Copies(inside))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.0.ends.store(true, SeqCst);
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
    fn has_missed(&self) -> bool {
        self.missed.iter().any(|missed| !missed.lock().pieces.is_empty())
    }

    /// Copies what was missed, as soon as it can be, until the end.
    fn mend_all(self: &Arc<Self>) {
        while !self.ends.load(SeqCst) {
            std::thread::sleep(LOOK);
            let lost = [self.first.standing().state == DonorState::Lost, self.second.is_lost()];
            if lost == [false, false] {
                (0..2).for_each(|which| self.mend(which));
            }
        }
    }

    /// Copies some of what the first (0) or second (1) has missed.
    fn mend(self: &Arc<Self>, which: usize) {
        let some: Vec<(u64, (u64, u64))> = self.missed[which]
            .lock()
            .pieces
            .iter()
            .take(AT_A_TIME)
            .map(|(a, b)| (*a, *b))
            .collect();
        let (tell, told) = std::sync::mpsc::channel();
        let mut asked = 0;
        for (at, (len, number)) in some {
            let (inside, tell) = (Arc::clone(self), tell.clone());
            let came = move |came: io::Result<usize>, blocks: Blocks| {
                let bytes = match came {
                    Ok(got) if got as u64 >= len => blocks.bytes()[..len as usize].to_vec(),
                    _ => {
                        let _ = tell.send(());
                        return;
                    }
                };
                let missed = inside.missed[which].lock();
                if missed.pieces.get(&at) != Some(&(len, number)) {
                    let _ = tell.send(());
                    return;
                }
                let mended = Arc::clone(&inside);
                let wrote = move |wrote: io::Result<()>| {
                    let mut missed = mended.missed[which].lock();
                    if wrote.is_ok() && missed.pieces.get(&at) == Some(&(len, number)) {
                        missed.pieces.remove(&at);
                    }
                    let _ = tell.send(());
                };
                let to: Option<(&dyn Single, u64)> = match (which, &inside.second) {
                    (0, _) => Some((&*inside.first, at)),
                    (_, Second::Lender(second)) => Some((&**second, inside.offset + at)),
                    // A file is never lost.
                    (_, Second::File(_)) => None,
                };
                if let Some((lender, at)) = to {
                    lender.put(at, bytes, Box::new(wrote));
                }
            };
            let into = Blocks::zeroed(len as usize);
            let (device, at): (&dyn Device, u64) = match which {
                0 => (self.second.device(), self.offset + at),
                _ => (&*self.first as &dyn Device, at),
            };
            let told = Box::new(came);
            device.read(Read { at, into, told, pressing: false, again: false });
            asked += 1;
        }
        drop(tell);
        for _ in 0..asked {
            // Who is told nothing has been given up.
            if told.recv().is_err() {
                return;
            }
        }
    }
}

impl Lender for Copies {
    /// With one of two copies it gives back what it has, and takes nothing more.
    fn standing(&self) -> Standing {
        let first = self.0.first.standing();
        let (state, why, free_bytes) = match &self.0.second {
            Second::File(_) if first.state == DonorState::Lost => {
                (DonorState::Single, first.why.clone(), first.free_bytes)
            }
            Second::File(_) => (first.state, first.why.clone(), first.free_bytes),
            Second::Lender(second) => {
                let second = second.standing();
                let state = match (first.state, second.state) {
                    (DonorState::Up, DonorState::Up) => DonorState::Up,
                    (DonorState::Lost, DonorState::Lost) => DonorState::Lost,
                    (DonorState::Pressed, DonorState::Pressed) => DonorState::Pressed,
                    _ => DonorState::Single,
                };
                let free = first.free_bytes.min(second.free_bytes);
                (state, first.why.clone().or(second.why), free)
            }
        };
        if state == DonorState::Up && self.0.has_missed() {
            let why = Some("what one of two has missed is being copied".to_string());
            return Standing { state: DonorState::Single, why, free_bytes, ..first };
        }
        Standing { state, why, free_bytes, ..first }
    }

    fn forgive(&self) {
        self.0.first.forgive();
        if let Second::Lender(second) = &self.0.second {
            second.forgive();
        }
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
        let Inside { first, second, .. } = &*self.0;
        let lost = [first.standing().state == DonorState::Lost, second.is_lost()];
        let both = Arc::new(Mutex::new(Both { told: Some(told), results: Vec::new() }));
        let devices: [(&dyn Device, u64); 2] =
            [(&**first as &dyn Device, at), (second.device(), self.0.offset + at)];
        for (which, ((device, there), lost)) in devices.into_iter().zip(lost).enumerate() {
            let (over, inside) = (Arc::clone(&both), Arc::clone(&self.0));
            let told = move |wrote: io::Result<usize>| {
                let mut missed = inside.missed[which].lock();
                // It may have been tried before.
                missed.forget(at, len as u64);
                if wrote.as_ref().ok() != Some(&len) {
                    missed.add(at, len as u64);
                }
                drop(missed);
                Both::over(&over, wrote);
            };
            // It would wait for who is lost.
            if lost {
                told(Err(io::ErrorKind::NotConnected.into()));
                continue;
            }
            let write = Write { at: there, from, offset, len, told: Box::new(told.clone()) };
            if let Some(wrote) = device.write(write) {
                told(wrote);
            }
        }
        None
    }

    fn read(&self, read: Read) {
        let Read { at, into, told, pressing, again } = read;
        let is_in = |which: usize| !self.0.missed[which].lock().has(at);
        let (in_first, in_second) = (is_in(0), is_in(1));
        let is_lost = self.0.first.standing().state == DonorState::Lost;
        let inside = Arc::clone(&self.0);
        let from_second = move |into: Blocks, told| {
            let read = Read { at: inside.offset + at, into, told, pressing, again };
            inside.second.device().read(read);
        };
        // What one of them gives is not believed by who reads: the other one may tell the truth.
        if in_second && (is_lost || !in_first || again) {
            return from_second(into, told);
        }
        let first_told = move |result: io::Result<usize>, blocks: Blocks| match result {
            Ok(got) if got > 0 || !in_second => told(Ok(got), blocks),
            Err(error) if !in_second => told(Err(error), blocks),
            Ok(_) | Err(_) => from_second(blocks, told),
        };
        self.0.first.read(Read { at, into, told: Box::new(first_told), pressing, again });
    }

    fn forget(&self, at: u64, len: usize) {
        self.0.missed.iter().for_each(|missed| missed.lock().forget(at, len as u64));
        self.0.first.forget(at, len);
        self.0.second.device().forget(self.0.offset + at, len);
    }

    fn way(&self) -> &'static str {
        "two copies"
    }
}

#[cfg(test)]
mod tests;
