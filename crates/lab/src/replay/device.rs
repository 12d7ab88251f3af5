//! The device that flash is on, as the scheme is told of it: as full as the settings say, and written to by
//! nobody but this replay.

use clew_core::{DeviceFacts, Event, Ns};

use super::{Replay, SECOND, Settings};
use crate::mechanism::Mechanism;

pub(super) struct Device {
    total_bytes: u64,
    used_bytes: u64,
    every: Ns,
    /// When it was looked at last.
    sampled: Option<Ns>,
}

impl Device {
    /// That of a replay, if there is flash and the scheme asks for it.
    pub fn of(settings: &Settings) -> Option<Device> {
        let (total_bytes, every_s) = (settings.flash_bytes?, settings.scheme.device_sample_s()?);
        let used_bytes = u128::from(total_bytes) * u128::from(settings.flash_used_pct);
        Some(Device {
            total_bytes,
            // What is used to so many per cent is not used to less.
            used_bytes: used_bytes.div_ceil(100) as u64,
            every: Ns(u64::from(every_s) * SECOND.0),
            sampled: None,
        })
    }
}

impl<M: Mechanism> Replay<'_, M> {
    /// Looks at the device as often as the scheme wants it.
    pub(super) fn look_at_device(&mut self) {
        let Some(device) = &mut self.device else { return };
        if device.sampled.is_some_and(|last| self.now.since(last) < device.every) {
            return;
        }
        device.sampled = Some(self.now);
        let (total_bytes, used_bytes) = (device.total_bytes, device.used_bytes);
        let written_bytes = self.tally.flash_written_bytes();
        let device = DeviceFacts { used_bytes, total_bytes, written_bytes };
        self.tell(&Event::DeviceSample { device });
    }
}
