//! The presets: the systems of the papers and the ones that they were compared with, as data.

use std::sync::Arc;

use clew_core::{ByteSize, CodecKind, Whole};

use crate::admission::selective;
use crate::packing::adaptive_comp::{self, ChunkSizes, Successive};
use crate::packing::one_page::OnePage;
use crate::packing::{adaptive_region, fixed_blocks};
use crate::prefetch::{by_trigger, group, hot_list, pre_decomp, runs};
use crate::reclaim::ft_list;
use crate::reclaim::hotness_org::{self, Front, Unseen};
use crate::{admission, eviction, placement, prefetch, reclaim};

use super::{OnFull, PoolKind, Scheme};

/// Every preset, in the order of the table of schemes.
pub(super) fn all() -> Vec<Scheme> {
    vec![
        dram(),
        nosw(),
        zram(),
        zswap(),
        ezswap(),
        ezswap_apa(),
        ezswap_apa_sa(),
        ezswap_apa_ca(),
        ezswap_sa_ca(),
        flash_swap(),
        zram_flash(),
        ariadne(),
        ariadne_paper(),
        elastic_zram(),
        seal(),
        archer(),
        shsc(),
        asap(),
        mobileswap(),
        remoteswap(),
        cloudswap(),
        clew(),
    ]
}

/// What this version lacks of the system that preset `name` is named after.
pub(super) fn missing(name: &str) -> &'static [&'static str] {
    match name {
        "clew" => &["all that is planned of the other systems"],
        "cloudswap" => &["live, which faults were writes: there everything counts as read"],
        _ => &[],
    }
}

/// The best of what is there, chosen by measurement on natural programs (`docs/results.md`): what a relaunch
/// used stays longest, then what the app in front has, every page is stored alone and with a dictionary, and a fault brings the
/// run that it begins and the 64 KiB around it, where that pays. Nothing is restored before it is asked
/// for: of what real programs used before, too little is used again.
fn clew() -> Scheme {
    Scheme {
        name: "clew".to_string(),
        reclaim: Arc::new(hotness_org::Params {
            initial_hot: ByteSize(0),
            unseen: Unseen::Keep,
            front: Front::AfterWarm,
            ..hotness_org::Params::default()
        }),
        packing: Arc::new(OnePage { codec: CodecKind::ZstdDictionary, ..OnePage::default() }),
        // Where there is flash: what nobody asked for twice goes there first, as dense as it is.
        eviction: Arc::new(eviction::cold_first::Plain {}),
        placement: Arc::new(placement::flash_last::FlashLast::default()),
        prefetch: Arc::new(runs::Params { around_pages: Whole::of(16), ..runs::Params::default() }),
        ..zram()
    }
}

/// Nothing is ever swapped (Ariadne 5).
fn dram() -> Scheme {
    Scheme {
        name: "dram".to_string(),
        reclaim: Arc::new(reclaim::none::Plain {}),
        placement: Arc::new(placement::none::Plain {}),
        ..zram()
    }
}

/// `dram` where memory is short: the low-memory killer ends an app (MobileSwap IV-A, "no swap").
fn nosw() -> Scheme {
    Scheme { name: "nosw".to_string(), on_full: OnFull::Kill, ..dram() }
}

/// Swapping to flash and nothing else (ElasticZRAM 4.1).
fn flash_swap() -> Scheme {
    Scheme {
        name: "flash-swap".to_string(),
        packing: Arc::new(OnePage { codec: CodecKind::Raw, ..OnePage::default() }),
        placement: Arc::new(placement::flash::ToFlash::default()),
        ..zram()
    }
}

/// The two-level swapping of today's devices (ElasticZRAM 2.1, 4.1): what entered a full pool longest ago is
/// decompressed and written to flash.
fn zram_flash() -> Scheme {
    Scheme {
        name: "zram-flash".to_string(),
        eviction: Arc::new(eviction::oldest_first::Plain {}),
        placement: Arc::new(placement::flash_last::FlashLast { compressed: false }),
        ..zram()
    }
}

/// ElasticZRAM as in its paper (DAC 2024, 3 and 4.1). What the paper leaves open is told in docs/design.md.
fn elastic_zram() -> Scheme {
    Scheme {
        name: "elasticzram".to_string(),
        reclaim: Arc::new(reclaim::least_used_app::Plain {}),
        eviction: Arc::new(eviction::by_app::Params::default()),
        placement: Arc::new(placement::adaptive_path::Params::default()),
        ..zram()
    }
}

/// MobileSwap as in its paper (DAC 2021, III): all of the least recently used app goes to the donor with most free
/// memory, and comes back with its app. What the paper leaves open is told in docs/design.md.
fn mobileswap() -> Scheme {
    Scheme {
        name: "mobileswap".to_string(),
        on_full: OnFull::Kill,
        retain: false,
        reclaim: Arc::new(reclaim::least_recent_app::Params::default()),
        packing: Arc::new(OnePage { codec: CodecKind::Raw, ..OnePage::default() }),
        placement: Arc::new(placement::app_aware::Params::default()),
        prefetch: Arc::new(prefetch::whole_app::Plain {}),
        ..zram()
    }
}

/// RemoteSwap, with which MobileSwap is compared (IV-A): the kernel's way of swapping, to a swap area that lies at
/// a donor.
fn remoteswap() -> Scheme {
    Scheme {
        name: "remoteswap".to_string(),
        on_full: OnFull::Kill,
        retain: false,
        packing: Arc::new(OnePage { codec: CodecKind::Raw, ..OnePage::default() }),
        placement: Arc::new(placement::donors::ToDonors::default()),
        ..zram()
    }
}

/// CloudSwap, with which MobileSwap is compared (IV-A): what is read to flash, what is written to the cloud.
fn cloudswap() -> Scheme {
    Scheme {
        name: "cloudswap".to_string(),
        placement: Arc::new(placement::read_local::Params::default()),
        ..remoteswap()
    }
}

/// SEAL, with which ElasticZRAM is compared (4.1).
fn seal() -> Scheme {
    Scheme {
        name: "seal".to_string(),
        placement: Arc::new(placement::launch_pages::Params::default()),
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
        pool: PoolKind::SizeClasses,
        retain: true,
        reclaim: Arc::new(reclaim::lru::Params::default()),
        admission: Arc::new(admission::all::AdmitAll::default()),
        packing: Arc::new(OnePage::default()),
        eviction: Arc::new(eviction::none::Plain {}),
        placement: Arc::new(placement::pool::Plain {}),
        prefetch: Arc::new(prefetch::none::Plain {}),
    }
}

/// zswap with z3fold and LZO, as ezswap is compared with it (II-B, IV): a full pool evicts its oldest frames, and what
/// comes back leaves the pool. How large the pool may be is for whoever uses it to say (there: 100 MB).
fn zswap() -> Scheme {
    Scheme {
        name: "zswap".to_string(),
        pool: PoolKind::Z3fold,
        retain: false,
        // Clean pages of files are dropped first, as any kernel does (III-A).
        reclaim: Arc::new(reclaim::files_first::Plain {}),
        packing: Arc::new(OnePage { codec: CodecKind::Lzo, ..OnePage::default() }),
        eviction: Arc::new(eviction::z3fold_lru::Plain {}),
        placement: Arc::new(placement::flash_last::FlashLast { compressed: false }),
        ..zram()
    }
}

/// ezswap (IEEE Access 2019): all-page accommodation (III-A), selective admission (III-B) and compressibility-aware
/// replacement (III-C) on top of [`zswap`].
fn ezswap() -> Scheme {
    Scheme {
        name: "ezswap".to_string(),
        eviction: Arc::new(eviction::compressibility::Params::default()),
        ..ezswap_apa_sa()
    }
}

/// Of ezswap all-page accommodation only (IV-B).
fn ezswap_apa() -> Scheme {
    Scheme {
        name: "ezswap-apa".to_string(),
        admission: Arc::new(admission::all::AdmitAll { files: true }),
        ..zswap()
    }
}

/// Of ezswap all but compressibility-aware replacement.
fn ezswap_apa_sa() -> Scheme {
    Scheme {
        name: "ezswap-apa-sa".to_string(),
        admission: Arc::new(selective::Params { files: true, ..selective::Params::default() }),
        ..zswap()
    }
}

/// Of ezswap all but selective admission.
fn ezswap_apa_ca() -> Scheme {
    Scheme {
        name: "ezswap-apa-ca".to_string(),
        eviction: Arc::new(eviction::compressibility::Params::default()),
        ..ezswap_apa()
    }
}

/// Of ezswap all but all-page accommodation: pages of files are dropped, as zswap does.
fn ezswap_sa_ca() -> Scheme {
    Scheme {
        name: "ezswap-sa-ca".to_string(),
        admission: Arc::new(selective::Params::default()),
        eviction: Arc::new(eviction::compressibility::Params::default()),
        ..zswap()
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
        reclaim: Arc::new(hotness_org::Params {
            unseen: Unseen::Keep,
            ..hotness_org::Params::default()
        }),
        packing: Arc::new(adaptive_comp::Params {
            sizes: ChunkSizes { hot: 1 << 10, warm: 4 << 10, cold: 16 << 10 },
            cold_codec: CodecKind::Zstd,
            successive: Successive::Addresses,
            ..adaptive_comp::Params::default()
        }),
        prefetch: Arc::new(by_trigger::Params {
            relaunch: Arc::new(hot_list::Params::default()),
            fault: Arc::new(pre_decomp::Params {
                expire: pre_decomp::Expire::Keep,
                ..pre_decomp::Params::default()
            }),
        }),
        ..paper
    }
}

/// Ariadne as in its paper (HPCA 2025, sections 4 and 5), AL-1K-2K-16K with LZO; cold data goes to flash where
/// there is some. What the paper says and what it leaves open is told in docs/design.md. Parameters are the paper's where nothing else is said.
fn ariadne_paper() -> Scheme {
    Scheme {
        name: "ariadne-paper".to_string(),
        // Figure 1: what is brought back leaves the zpool.
        retain: false,
        // 4.2, where after a relaunch all old data of the hot list moves to the warm list.
        reclaim: Arc::new(hotness_org::Params::default()),
        packing: Arc::new(adaptive_comp::Params {
            hot_codec: CodecKind::Lzo,
            warm_codec: CodecKind::Lzo,
            cold_codec: CodecKind::Lzo,
            ..adaptive_comp::Params::default()
        }),
        // 4.2: when the pool is full, cold data is the first to go to flash, compressed.
        eviction: Arc::new(eviction::cold_first::Plain {}),
        placement: Arc::new(placement::flash_last::FlashLast::default()),
        prefetch: Arc::new(pre_decomp::Params::default()),
        ..zram()
    }
}

/// Archer (sections 4 and 5.1), with LZ4. As the kernel's swap cache does, it keeps the copy of what came
/// back while there is room. What the paper leaves open is told in docs/design.md.
fn archer() -> Scheme {
    Scheme {
        name: "archer".to_string(),
        reclaim: Arc::new(ft_list::Params::default()),
        packing: Arc::new(adaptive_region::Params::default()),
        prefetch: Arc::new(group::Params::default()),
        ..zram()
    }
}

/// Static Huge-Size Compression, with which Archer is compared (5.2).
fn shsc() -> Scheme {
    Scheme {
        name: "shsc".to_string(),
        packing: Arc::new(fixed_blocks::Params::default()),
        ..zram()
    }
}

/// ASAP, with which Archer is compared (5.2): `zram`, with the launch sets of the last switches restored
/// ahead.
fn asap() -> Scheme {
    Scheme {
        name: "asap".to_string(),
        prefetch: Arc::new(prefetch::asap::Params::default()),
        ..zram()
    }
}
