//! The presets: the systems of the papers and the ones that they were compared with, as data.

use clew_core::{ByteSize, CodecKind, RunAhead};

use crate::packing::adaptive_comp::{self, ChunkSizes, Successive};
use crate::prefetch::{hot_list, pre_decomp};
use crate::reclaim::hotness_org::{self, HotAfter, Lists, Unseen};

use super::{
    AdmissionChoice, EvictionChoice, OnFull, PackingChoice, PlacementChoice, PrefetchChoice,
    ReclaimChoice, Scheme,
};

/// Every preset, in the order of the table of schemes.
pub(super) fn all() -> Vec<Scheme> {
    vec![dram(), zram(), ariadne(), ariadne_paper(), clew()]
}

/// What this version lacks of the system that preset `name` is named after.
pub(super) fn missing(name: &str) -> &'static [&'static str] {
    match name {
        "ariadne" | "ariadne-paper" => &[
            "flash: cold data stays in the pool, and nothing is evicted from it",
            "the codecs LZO and base-delta-immediate",
        ],
        "clew" => &["all that is planned of the other systems"],
        _ => &[],
    }
}

/// The best of what is there, chosen by measurement (`docs/results.md`): what each relaunch uses
/// stays, other pages are lent to the kernel's zram as far as that leaves room for them, every page of
/// the pool is stored alone and with a dictionary, and a fault there brings the run that it begins.
fn clew() -> Scheme {
    Scheme {
        name: "clew".to_string(),
        reclaim: ReclaimChoice::HotnessOrg(hotness_org::Params {
            lists: Lists::All,
            initial_hot: ByteSize(0),
            unseen: Unseen::Keep,
            hot_after: HotAfter::SecondUse,
        }),
        packing: PackingChoice::OnePage { codec: CodecKind::ZstdDictionary, chunk: ByteSize(4096) },
        placement: PlacementChoice::KernelFirst { share_pct: 100 },
        prefetch: PrefetchChoice::ByTrigger {
            relaunch: Box::new(PrefetchChoice::HotList(hot_list::Params {
                batch_pages: 512,
                warm_relaunches: 2,
                leave_out_one_in: 4,
            })),
            fault: Box::new(PrefetchChoice::Runs(RunAhead { max_pages: 32, probe_one_in: 8 })),
        },
        ..zram()
    }
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

/// Ariadne with what it takes under live programs: what the hot list had to give up comes back at a
/// relaunch, what was hot stays so where nobody could see whether it was used, cold blocks are of
/// neighbours and as dense as zstd makes them, and copies are kept as long as there is room.
fn ariadne() -> Scheme {
    let paper = ariadne_paper();
    Scheme {
        name: "ariadne".to_string(),
        retain: true,
        reclaim: ReclaimChoice::HotnessOrg(hotness_org::Params {
            lists: Lists::All,
            initial_hot: ByteSize(32 << 20),
            unseen: Unseen::Keep,
            hot_after: HotAfter::FirstUse,
        }),
        packing: PackingChoice::AdaptiveComp(adaptive_comp::Params {
            sizes: ChunkSizes { hot: 1 << 10, warm: 4 << 10, cold: 16 << 10 },
            hot_codec: CodecKind::Lz4,
            warm_codec: CodecKind::Lz4,
            cold_codec: CodecKind::Zstd,
            successive: Successive::Addresses,
            park_siblings: false,
        }),
        prefetch: PrefetchChoice::ByTrigger {
            relaunch: Box::new(PrefetchChoice::HotList(hot_list::Params {
                batch_pages: 512,
                warm_relaunches: 0,
                leave_out_one_in: 4,
            })),
            fault: Box::new(PrefetchChoice::PreDecomp(pre_decomp::Params {
                buffer_pages: 64,
                expire: pre_decomp::Expire::Keep,
            })),
        },
        ..paper
    }
}

/// Ariadne as in its paper (HPCA 2025, sections 4 and 5), AL-1K-2K-16K with LZ4. What the paper says
/// and what it leaves open is told in docs/design.md.
fn ariadne_paper() -> Scheme {
    Scheme {
        name: "ariadne-paper".to_string(),
        // Figure 1: what is brought back leaves the zpool.
        retain: false,
        reclaim: ReclaimChoice::HotnessOrg(hotness_org::Params {
            lists: Lists::All,
            initial_hot: ByteSize(32 << 20),
            // 4.2: after a relaunch all old data of the hot list moves to the warm list.
            unseen: Unseen::Warm,
            hot_after: HotAfter::FirstUse,
        }),
        packing: PackingChoice::AdaptiveComp(adaptive_comp::Params {
            sizes: ChunkSizes { hot: 1 << 10, warm: 2 << 10, cold: 16 << 10 },
            hot_codec: CodecKind::Lz4,
            warm_codec: CodecKind::Lz4,
            cold_codec: CodecKind::Lz4,
            successive: Successive::Victims,
            park_siblings: false,
        }),
        prefetch: PrefetchChoice::PreDecomp(pre_decomp::Params {
            buffer_pages: 64,
            expire: pre_decomp::Expire::Recompress,
        }),
        ..zram()
    }
}
