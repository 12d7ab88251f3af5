//! The presets: the systems of the papers and the ones that they were compared with, as data.

use clew_core::{ByteSize, CodecKind};

use super::{
    AdmissionChoice, EvictionChoice, OnFull, PackingChoice, PlacementChoice, PrefetchChoice,
    ReclaimChoice, Scheme,
};

/// Every preset, in the order of the table of schemes.
pub(super) fn all() -> Vec<Scheme> {
    vec![dram(), zram()]
}

/// Nothing is ever swapped (Ariadne 5).
fn dram() -> Scheme {
    Scheme {
        name: "dram".to_string(),
        reclaim: ReclaimChoice::None,
        placement: PlacementChoice::None,
        ..zram()
    }
}

/// What Linux and Android do with zram as their swap device (Ariadne 5, ElasticZRAM 4.1).
fn zram() -> Scheme {
    Scheme {
        name: "zram".to_string(),
        on_full: OnFull::Stop,
        disksize_pages: None,
        mem_limit_bytes: None,
        retain: true,
        reclaim: ReclaimChoice::Lru,
        admission: AdmissionChoice::All,
        packing: PackingChoice::OnePage { codec: CodecKind::Lz4, chunk: ByteSize(4096) },
        eviction: EvictionChoice::None,
        placement: PlacementChoice::Pool,
        prefetch: PrefetchChoice::None,
    }
}
