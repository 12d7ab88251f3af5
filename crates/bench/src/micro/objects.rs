//! Objects of a log, one a page: all written, then some of them read, one at a time, each seen to be what was written.

use std::time::{Duration, Instant};

use clew_core::seeded::Seeded;
use clew_report::percentile;
use clew_store::flash::{AppendError, Flash, Place, ReadFlashError};

use crate::error::BenchError;
use crate::interrupt;

/// Objects that were written, in the order of their handles.
pub struct Objects<'a> {
    flash: &'a Flash,
    /// Bytes of each.
    bytes: usize,
    places: Vec<Place>,
    what: &'static str,
}

/// Median and 99th percentile of a repetition, microseconds.
pub struct Times {
    pub p50: f64,
    pub p99: f64,
}

impl Times {
    /// Of what each of them took.
    pub fn of(mut us: Vec<f64>) -> Times {
        us.sort_by(f64::total_cmp);
        Times { p50: percentile(&us, 50.0), p99: percentile(&us, 99.0) }
    }
}

impl Objects<'_> {
    /// Writes `count` objects of `bytes` each and waits until all are on the device; and how long that took,
    /// microseconds an object.
    ///
    /// # Errors
    /// If the log refuses; `what` is what cannot be used then.
    pub fn write<'a>(
        flash: &'a Flash,
        count: u64,
        bytes: usize,
        what: &'static str,
    ) -> Result<(Objects<'a>, f64), BenchError> {
        let mut objects = Objects { flash, bytes, places: Vec::new(), what };
        objects.places.reserve(count as usize);
        let mut object = vec![0; bytes];
        let begin = Instant::now();
        for handle in 0..count as u32 {
            let place = loop {
                fill(handle, &mut object);
                match flash.put(handle, &mut object) {
                    Ok(place) => break place,
                    // The device is behind.
                    Err(AppendError::NoBuffer) => {
                        interrupt::check()?;
                        std::thread::sleep(Duration::from_micros(50));
                    }
                    Err(error) => return Err(objects.unavailable(error)),
                }
            };
            objects.places.push(place);
        }
        if !flash.flush() {
            return Err(objects.unavailable(flash.facts().latched.unwrap_or_default()));
        }
        let us = begin.elapsed().as_secs_f64() * 1e6 / count as f64;
        Ok((objects, us))
    }

    fn unavailable(&self, reason: impl ToString) -> BenchError {
        BenchError::Unavailable { what: self.what, reason: reason.to_string() }
    }

    /// Reads so many of them at random, as for a program that waits.
    ///
    /// # Errors
    /// If one cannot be read, or is not what was written.
    pub fn read(&self, count: u64, seed: u64) -> Result<Times, BenchError> {
        let mut draw = Seeded::of(seed, &[1]);
        let mut expected = vec![0; self.bytes];
        let mut times = Vec::with_capacity(count as usize);
        for _ in 0..count {
            interrupt::check()?;
            let handle = draw.below(self.places.len() as u64) as u32;
            let (tell, told) = std::sync::mpsc::sync_channel(1);
            let begin = Instant::now();
            let place = self.places[handle as usize];
            self.flash.read(handle, place, true, move |read| drop(tell.send(read)));
            let gone = ReadFlashError::Device { why: "its thread is gone".into() };
            let read = told.recv().unwrap_or(Err(gone)).map_err(|error| self.unavailable(error))?;
            times.push(begin.elapsed().as_secs_f64() * 1e6);
            fill(handle, &mut expected);
            if read != expected {
                return Err(BenchError::WrongContents { side: self.what, pages: 1 });
            }
        }
        Ok(Times::of(times))
    }
}

/// The bytes of an object.
fn fill(handle: u32, bytes: &mut [u8]) {
    bytes.fill(handle as u8);
    bytes[..4].copy_from_slice(&handle.to_le_bytes());
}
