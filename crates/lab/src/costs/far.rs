//! What a place beyond memory costs: flash, or a link to a donor.

use serde::{Deserialize, Serialize};

use super::{FlashCost, Spent};
use crate::device::Device;
use crate::error::LabError;

/// What a link to donors costs (MobileSwap III-B): all that goes over it goes in chunks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkCost {
    /// Nanoseconds until the answer to a question of one byte is there.
    pub round_trip_ns: f64,
    /// Nanoseconds for each byte that the link carries.
    pub byte_ns: f64,
    /// Nanoseconds for each chunk, sent or fetched, beside its bytes: the stacks between page and wire.
    pub chunk_ns: f64,
    /// Bytes of a chunk: C_s.
    pub chunk_bytes: u64,
}

/// Wi-Fi between two machines in one room, from question to answer. Ours: the paper gives none.
const WIFI_ROUND_TRIP_NS: f64 = 1e6;
/// C_s (MobileSwap III-B).
const CHUNK_BYTES: u64 = 64 << 10;
const PAGE_BYTES: f64 = 4096.0;

/// Nanoseconds for a byte at so many bits a second.
fn byte_ns(bits_per_second: f64) -> f64 {
    8e9 / bits_per_second
}

impl LinkCost {
    /// The link of MobileSwap's evaluation. What its network stack sustains is the wire's; what a chunk costs beside
    /// that follows from what is left of it when each page is a chunk of its own (III-B, figure 4).
    ///
    /// # Errors
    /// [`LabError::NoNumber`] if `client` has none of these numbers.
    pub fn published(client: &Device) -> Result<LinkCost, LabError> {
        let hint = "a link's cost follows from it";
        let network = byte_ns(client.need("network_bits_per_second", hint)?);
        let page_by_page = byte_ns(client.need("remote_swap_bits_per_second", hint)?);
        Ok(LinkCost {
            round_trip_ns: WIFI_ROUND_TRIP_NS,
            byte_ns: network,
            chunk_ns: (page_by_page - network) * PAGE_BYTES,
            chunk_bytes: CHUNK_BYTES,
        })
    }

    /// One of another speed.
    pub fn at_speed(self, bits_per_second: f64, round_trip_ns: f64) -> LinkCost {
        LinkCost { byte_ns: byte_ns(bits_per_second), round_trip_ns, ..self }
    }

    /// One on which everything takes so many times as long.
    pub fn slowed(self, factor: f64) -> LinkCost {
        LinkCost {
            round_trip_ns: self.round_trip_ns * factor,
            byte_ns: self.byte_ns * factor,
            chunk_ns: self.chunk_ns * factor,
            ..self
        }
    }

    /// Bits of pages that are carried in a second, one chunk after the other.
    pub fn bits_per_second(&self) -> f64 {
        let bytes = self.chunk_bytes as f64;
        8e9 * bytes / self.carrying_ns(bytes)
    }

    fn carrying_ns(&self, bytes: f64) -> f64 {
        let chunks = bytes / self.chunk_bytes.max(1) as f64;
        self.byte_ns * bytes + self.chunk_ns * chunks
    }

    /// What reading one block of so many bytes takes.
    pub fn read(&self, bytes: u64) -> Spent {
        Spent {
            device_ns: self.carrying_ns(bytes as f64),
            round_trip_ns: self.round_trip_ns,
            link_read_bytes: bytes,
            ..Spent::default()
        }
    }

    /// What sending so many bytes takes.
    pub fn put(&self, bytes: u64) -> Spent {
        let device_ns = self.carrying_ns(bytes as f64);
        Spent { device_ns, link_written_bytes: bytes, ..Spent::default() }
    }
}

/// What a place beyond memory costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FarCost {
    /// Flash.
    Flash(FlashCost),
    /// A donor.
    Link(LinkCost),
}

impl FarCost {
    /// What reading one block of so many bytes takes.
    pub fn read(&self, bytes: u64) -> Spent {
        match self {
            FarCost::Flash(cost) => cost.read(bytes),
            FarCost::Link(cost) => cost.read(bytes),
        }
    }

    /// What putting so many bytes there takes.
    pub fn put(&self, bytes: u64) -> Spent {
        match self {
            FarCost::Flash(cost) => cost.put(bytes),
            FarCost::Link(cost) => cost.put(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cost of a chunk comes from RemoteSwap's 355 Mbit/s alone; MobileSwap's chunks of 64 KiB then give what the
    /// paper measured (IV-C: 828 Mbit/s) to two per cent.
    #[test]
    fn large_chunks_are_as_fast_as_published() {
        let client = Device::named("kirin-970").expect("it is known");
        let link = LinkCost::published(&client).expect("its numbers are published");
        let page = LinkCost { chunk_bytes: 4096, ..link };
        assert!((page.bits_per_second() / 355e6 - 1.0).abs() < 1e-9);
        assert!((link.bits_per_second() / 828e6 - 1.0).abs() < 0.02, "{link:?}");
    }

    #[test]
    fn questions_that_are_asked_together_wait_once() {
        let client = Device::named("kirin-970").expect("it is known");
        let link = LinkCost::published(&client).expect("its numbers are published");
        let mut spent = link.read(4096);
        spent += link.read(4096);
        assert_eq!(spent.round_trip_ns, link.round_trip_ns);
        assert_eq!(spent.device_ns, 2.0 * link.read(4096).device_ns);
        assert_eq!(spent.link_read_bytes, 8192);
    }
}
