//! Schemes as data: for each of the six questions the mechanism that answers it, with its
//! parameters, and the limits around them.
//!
//! A scheme is a preset ([`Scheme::preset`]) or a TOML table ([`Scheme::from_toml`]):
//!
//! ```toml
//! [scheme]
//! name = "zram"
//! on_full = "stop"          # or "kill"
//! retain = true             # keep the stored copy of a page that came back, while there is room
//! disksize_pages = 786432   # optional: how many pages may be stored
//! mem_limit_bytes = "1GiB"  # optional: how much memory the compressed data may take
//! reclaim = { kind = "lru" }
//! admission = { kind = "all" }
//! packing = { kind = "one-page", codec = "lz4", chunk = "4KiB" }
//! eviction = { kind = "none" }
//! placement = { kind = "pool" }
//! prefetch = { kind = "readahead", pages = 8 }
//! ```
//!
//! A column without parameters may be written as its kind alone: `reclaim = "lru"`.
//! To add a mechanism: a variant here, a line in [`Scheme::build`] and in its `Display`, a branch in
//! [`read`].

mod presets;
mod read;

use std::fmt;

use clew_core::{
    Admission, ByteSize, CodecKind, Eviction, Packing, Placement, Prefetch, Reclaim, RunAhead, Tier,
};
use serde::Serialize;

use crate::admission::all::AdmitAll;
use crate::eviction::cold_first::ColdFirst;
use crate::eviction::none::NoEviction;
use crate::packing::adaptive_comp::{self, AdaptiveComp};
use crate::packing::one_page::OnePage;
use crate::placement::kernel_first::KernelFirst;
use crate::placement::none::NoPlace;
use crate::placement::pool::ToPool;
use crate::prefetch::by_trigger::ByTrigger;
use crate::prefetch::cluster::Cluster;
use crate::prefetch::hot_list::{self, HotList};
use crate::prefetch::none::NoPrefetch;
use crate::prefetch::pre_decomp::{self, PreDecomp};
use crate::prefetch::readahead::Readahead;
use crate::prefetch::recorded_set::{self, RecordedSet};
use crate::prefetch::runs::RunsPrefetch;
use crate::reclaim::hotness_org::{self, HotnessOrg, Lists};
use crate::reclaim::lru::Lru;
use crate::reclaim::none::NoReclaim;

pub use read::SchemeError;

/// The six answers of one scheme, ready to be asked.
pub struct Policies {
    /// Who leaves DRAM next?
    pub reclaim: Box<dyn Reclaim>,
    /// May it enter the pool?
    pub admission: Box<dyn Admission>,
    /// What is compressed together, in what chunks?
    pub packing: Box<dyn Packing>,
    /// What leaves the pool?
    pub eviction: Box<dyn Eviction>,
    /// Which tier?
    pub placement: Box<dyn Placement>,
    /// What comes back early?
    pub prefetch: Box<dyn Prefetch>,
}

/// Who leaves DRAM next?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ReclaimChoice {
    /// Nobody.
    None,
    /// Active/inactive LRU over all apps.
    Lru,
    /// Hot, warm and cold list of each app (Ariadne 4.2).
    HotnessOrg(hotness_org::Params),
}

/// May it enter the pool?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AdmissionChoice {
    /// Every page.
    All,
}

/// What is compressed together, in what chunks?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PackingChoice {
    /// A page is a block.
    OnePage {
        /// What compresses it.
        codec: CodecKind,
        /// Bytes one call of the codec compresses, a power of two, at most a page.
        chunk: ByteSize,
    },
    /// Chunks by hotness, cold pages in groups (Ariadne 4.3).
    AdaptiveComp(adaptive_comp::Params),
}

/// What leaves the pool?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum EvictionChoice {
    /// Nothing.
    None,
    /// Cold pages, then warm, then hot ones (Ariadne 4.2).
    ColdFirst,
}

/// Which tier?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PlacementChoice {
    /// No place but DRAM.
    None,
    /// The compressed pool in memory.
    Pool,
    /// The kernel's zram for what nobody foresees, where there is one; else the pool.
    KernelFirst {
        /// What it may take of the budget at most, in per cent.
        share_pct: u32,
    },
}

/// What comes back early?
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PrefetchChoice {
    /// Nothing.
    None,
    /// The pages that follow a fault.
    Readahead {
        /// How many.
        pages: u32,
    },
    /// The aligned block of neighbours around a fault.
    Cluster {
        /// How many pages it has; rounded up to a power of two.
        pages: u32,
    },
    /// The pages behind a fault, as far as faults have run on before.
    Runs(RunAhead),
    /// The page at the next sector after a fault or a hit (Ariadne 4.4).
    PreDecomp(pre_decomp::Params),
    /// At a relaunch, what the last ones used.
    RecordedSet(recorded_set::Params),
    /// At a relaunch, what HotnessOrg calls hot.
    HotList(hot_list::Params),
    /// One prefetcher for relaunches, another for faults and hits.
    ByTrigger {
        /// [`PrefetchChoice::RecordedSet`] or [`PrefetchChoice::HotList`].
        relaunch: Box<PrefetchChoice>,
        /// [`PrefetchChoice::Readahead`], [`PrefetchChoice::Cluster`], [`PrefetchChoice::Runs`] or
        /// [`PrefetchChoice::PreDecomp`].
        fault: Box<PrefetchChoice>,
    },
}

/// What happens when more must leave DRAM than the tiers have room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFull {
    /// Nothing more leaves.
    Stop,
    /// When the demand is urgent, the low-memory killer ends a background app.
    Kill,
}

/// One scheme.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Scheme {
    /// Its name.
    pub name: String,
    /// What happens when there is no room.
    pub on_full: OnFull,
    /// Pages that may be stored (zram's disksize); no limit if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disksize_pages: Option<u64>,
    /// Memory that the compressed data may take; no limit of the scheme's own if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mem_limit_bytes: Option<ByteSize>,
    /// Whether the stored copy of a page that came back is kept while there is room.
    pub retain: bool,
    /// Who leaves DRAM next?
    pub reclaim: ReclaimChoice,
    /// May it enter the pool?
    pub admission: AdmissionChoice,
    /// What is compressed together, in what chunks?
    pub packing: PackingChoice,
    /// What leaves the pool?
    pub eviction: EvictionChoice,
    /// Which tier?
    pub placement: PlacementChoice,
    /// What comes back early?
    pub prefetch: PrefetchChoice,
}

impl Scheme {
    /// The preset called `name`.
    pub fn preset(name: &str) -> Result<Scheme, SchemeError> {
        let schemes = all();
        let known = || schemes.iter().map(|scheme| scheme.name.as_str()).collect::<Vec<_>>();
        let unknown =
            || SchemeError::UnknownPreset { name: name.to_string(), known: known().join(", ") };
        schemes.iter().find(|scheme| scheme.name == name).cloned().ok_or_else(unknown)
    }

    /// Reads the `[scheme]` table of a TOML text.
    pub fn from_toml(text: &str) -> Result<Scheme, SchemeError> {
        read::scheme(text)
    }

    /// The scheme as a TOML text that [`Scheme::from_toml`] reads.
    pub fn to_toml(&self) -> String {
        #[derive(Serialize)]
        struct File<'a> {
            scheme: &'a Scheme,
        }
        toml::to_string(&File { scheme: self }).expect("a scheme has only strings and numbers")
    }

    /// Policies that have seen nothing yet.
    pub fn build(&self) -> Policies {
        Policies {
            reclaim: match self.reclaim {
                ReclaimChoice::None => Box::new(NoReclaim),
                ReclaimChoice::Lru => Box::new(Lru::new()),
                ReclaimChoice::HotnessOrg(params) => Box::new(HotnessOrg::new(params)),
            },
            admission: match self.admission {
                AdmissionChoice::All => Box::new(AdmitAll),
            },
            packing: match self.packing {
                PackingChoice::OnePage { codec, chunk } => {
                    Box::new(OnePage::new(codec, chunk.0 as u32))
                }
                PackingChoice::AdaptiveComp(params) => Box::new(AdaptiveComp::new(params)),
            },
            eviction: match self.eviction {
                EvictionChoice::None => Box::new(NoEviction),
                EvictionChoice::ColdFirst => Box::new(ColdFirst::new()),
            },
            placement: match self.placement {
                PlacementChoice::None => Box::new(NoPlace),
                PlacementChoice::Pool => Box::new(ToPool),
                PlacementChoice::KernelFirst { .. } => Box::new(KernelFirst::default()),
            },
            prefetch: self.prefetch.build(),
        }
    }

    /// What the kernel's zram may take of the budget, in per cent; 0 if the scheme does not use it.
    /// That tier is not among [`Scheme::tiers`]: it exists where a machine has it.
    pub fn kernel_share_pct(&self) -> u32 {
        match self.placement {
            PlacementChoice::KernelFirst { share_pct } => share_pct,
            PlacementChoice::None | PlacementChoice::Pool => 0,
        }
    }

    /// The tiers that the scheme can place pages in.
    pub fn tiers(&self) -> &'static [Tier] {
        match self.placement {
            PlacementChoice::None => &[],
            PlacementChoice::Pool | PlacementChoice::KernelFirst { .. } => &[Tier::Pool],
        }
    }

    /// What this version lacks of the system that a preset is named after.
    pub fn missing(&self) -> &'static [&'static str] {
        presets::missing(&self.name)
    }

    /// The scheme as one row of the table of schemes.
    pub fn row(&self) -> SchemeRow {
        let moves = self.reclaim != ReclaimChoice::None;
        let missing = self.missing();
        let column = |text: String| if moves { text } else { "-".to_string() };
        SchemeRow {
            name: self.name.clone(),
            status: if missing.is_empty() { "complete" } else { "partial" },
            missing,
            reclaim: self.reclaim.to_string(),
            admission: column(self.admission.to_string()),
            packing: column(self.packing.to_string()),
            eviction: column(format!("{}{}", self.eviction, self.on_full)),
            placement: column(self.placement.to_string()),
            prefetch: column(self.prefetch.to_string()),
        }
    }
}

/// Every preset, in the order of the table of schemes.
pub fn all() -> Vec<Scheme> {
    presets::all()
}

/// One row of the table of schemes: the six answers as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SchemeRow {
    /// The scheme.
    pub name: String,
    /// `complete`, or `partial` if something is missing of the system it is named after.
    pub status: &'static str,
    /// What is missing.
    pub missing: &'static [&'static str],
    /// Who leaves DRAM next?
    pub reclaim: String,
    /// May it enter the pool?
    pub admission: String,
    /// What is compressed together, in what chunks?
    pub packing: String,
    /// What leaves the pool?
    pub eviction: String,
    /// Which tier?
    pub placement: String,
    /// What comes back early?
    pub prefetch: String,
}

/// The table of schemes.
pub fn table() -> Vec<SchemeRow> {
    all().iter().map(Scheme::row).collect()
}

impl PrefetchChoice {
    fn build(&self) -> Box<dyn Prefetch> {
        match self {
            PrefetchChoice::None => Box::new(NoPrefetch),
            PrefetchChoice::Readahead { pages } => Box::new(Readahead::new(*pages)),
            PrefetchChoice::Cluster { pages } => Box::new(Cluster::new(*pages)),
            PrefetchChoice::Runs(params) => Box::new(RunsPrefetch::new(*params)),
            PrefetchChoice::PreDecomp(params) => Box::new(PreDecomp::new(*params)),
            PrefetchChoice::RecordedSet(params) => Box::new(RecordedSet::new(*params)),
            PrefetchChoice::HotList(params) => Box::new(HotList::new(*params)),
            PrefetchChoice::ByTrigger { relaunch, fault } => {
                Box::new(ByTrigger::new(relaunch.build(), fault.build()))
            }
        }
    }
}

impl fmt::Display for ReclaimChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReclaimChoice::None => "nobody",
            ReclaimChoice::Lru => "active/inactive LRU",
            ReclaimChoice::HotnessOrg(params) => match params.lists {
                Lists::All => "HotnessOrg, all lists",
                Lists::ExcludeHot => "HotnessOrg, hot list stays",
            },
        })
    }
}

impl fmt::Display for AdmissionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AdmissionChoice::All => "every anonymous page",
        })
    }
}

impl fmt::Display for PackingChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PackingChoice::OnePage { codec, chunk } => {
                write!(f, "one page, {}", codec_name(*codec))?;
                if chunk.0 == 4096 { Ok(()) } else { write!(f, " in chunks of {chunk}") }
            }
            PackingChoice::AdaptiveComp(params) => {
                let codecs = [params.hot_codec, params.warm_codec, params.cold_codec];
                write!(f, "AdaptiveComp {}, {}", params.sizes, codec_name(codecs[0]))?;
                match codecs {
                    [hot, warm, cold] if hot == warm && warm == cold => Ok(()),
                    [_, warm, cold] => write!(f, ", {}, {}", codec_name(warm), codec_name(cold)),
                }
            }
        }
    }
}

fn codec_name(codec: CodecKind) -> &'static str {
    match codec {
        CodecKind::Raw => "uncompressed",
        CodecKind::Lz4 => "LZ4",
        CodecKind::Zstd => "zstd",
        CodecKind::ZstdDictionary => "zstd with a learned dictionary",
    }
}

impl fmt::Display for EvictionChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EvictionChoice::None => "nothing",
            EvictionChoice::ColdFirst => "cold first",
        })
    }
}

impl fmt::Display for OnFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnFull::Stop => "; when full, nothing more leaves DRAM",
            OnFull::Kill => "; when full, the low-memory killer",
        })
    }
}

impl fmt::Display for PlacementChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PlacementChoice::None => "nowhere",
            PlacementChoice::Pool => "pool",
            PlacementChoice::KernelFirst { .. } => "the kernel's zram where there is one, pool",
        })
    }
}

impl fmt::Display for PrefetchChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefetchChoice::None => f.write_str("nothing"),
            PrefetchChoice::Readahead { pages: 1 } => f.write_str("the page after a fault"),
            PrefetchChoice::Readahead { pages } => write!(f, "the {pages} pages after a fault"),
            PrefetchChoice::Cluster { pages } => write!(f, "the cluster of {pages} around a fault"),
            PrefetchChoice::Runs(_) => f.write_str("the run that a fault begins"),
            PrefetchChoice::PreDecomp(_) => f.write_str("PreDecomp"),
            PrefetchChoice::RecordedSet(_) => f.write_str("recorded set at relaunch"),
            PrefetchChoice::HotList(_) => f.write_str("hot list at relaunch"),
            PrefetchChoice::ByTrigger { relaunch, fault } => write!(f, "{relaunch}; {fault}"),
        }
    }
}
