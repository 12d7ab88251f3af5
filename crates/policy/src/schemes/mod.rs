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
//! pool = "size-classes"     # optional: how the pool keeps it; or "z3fold"
//! reclaim = { kind = "lru" }
//! admission = { kind = "all" }
//! packing = { kind = "one-page", codec = "lz4", chunk = "4KiB" }
//! eviction = { kind = "none" }
//! placement = { kind = "pool" }
//! prefetch = { kind = "readahead", pages = 8 }
//! ```
//!
//! A column without parameters may be written as its kind alone: `reclaim = "lru"`.
//! What kinds there are, and what else may be registered: [`Registry`].

mod presets;
mod registry;

use clew_core::{Admission, ByteSize, Eviction, Packing, Placement, Prefetch, Reclaim, Tier};
use serde::{Deserialize, Serialize};

pub use clew_core::PoolKind;
pub use registry::Registry;

pub use crate::kinds::{About, Answer, Choice, Kinds};
pub use crate::written::{SchemeError, parameters, size, toml_error};

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

/// What happens when more must leave DRAM than the tiers have room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnFull {
    /// Nothing more leaves.
    #[default]
    Stop,
    /// When the demand is urgent, the low-memory killer ends a background app.
    Kill,
}

/// One scheme.
#[derive(Clone, Debug, Serialize)]
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
    /// How the pool keeps it.
    pub pool: PoolKind,
    /// Whether the stored copy of a page that came back is kept while there is room.
    pub retain: bool,
    /// Who leaves DRAM next?
    pub reclaim: Choice<dyn Reclaim>,
    /// May it enter the pool?
    pub admission: Choice<dyn Admission>,
    /// What is compressed together, in what chunks?
    pub packing: Choice<dyn Packing>,
    /// What leaves the pool?
    pub eviction: Choice<dyn Eviction>,
    /// Which tier?
    pub placement: Choice<dyn Placement>,
    /// What comes back early?
    pub prefetch: Choice<dyn Prefetch>,
}

/// Two are equal that are written alike.
impl PartialEq for Scheme {
    fn eq(&self, other: &Scheme) -> bool {
        self.to_toml() == other.to_toml()
    }
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

    /// Reads the `[scheme]` table of a TOML text, with the kinds that are installed
    /// ([`Registry::install`]).
    pub fn from_toml(text: &str) -> Result<Scheme, SchemeError> {
        Registry::installed().read(text)
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
            reclaim: self.reclaim.build(),
            admission: self.admission.build(),
            packing: self.packing.build(),
            eviction: self.eviction.build(),
            placement: self.placement.build(),
            prefetch: self.prefetch.build(),
        }
    }

    /// What the kernel's zram may take of the budget, in per cent; 0 if the scheme does not use it.
    /// That tier is not among [`Scheme::tiers`]: it exists where a machine has it.
    pub fn kernel_share_pct(&self) -> u32 {
        self.placement.about().kernel_share_pct
    }

    /// How often the device that flash is on is to be looked at, in seconds, if the scheme asks for it.
    pub fn device_sample_s(&self) -> Option<u32> {
        self.placement.about().device_sample_s
    }

    /// Whether it can do nothing without flash, or has no other place for what it does not admit.
    pub fn needs_flash(&self) -> bool {
        self.tiers().contains(&Tier::Flash)
            || self.admission.about().rejects && self.uses(Tier::Flash)
    }

    /// Whether it takes clean pages of files out of DRAM. Otherwise they are none of its business.
    pub fn takes_files(&self) -> bool {
        self.reclaim.about().takes_files
    }

    /// The tiers that the scheme can place pages in.
    pub fn tiers(&self) -> &'static [Tier] {
        self.placement.about().tiers
    }

    /// Whether pages can come to be in this tier, where it is there; of donors, in any.
    pub fn uses(&self, tier: Tier) -> bool {
        let about = self.placement.about();
        about.tiers.iter().chain(about.may_use).any(|of| of.index() == tier.index())
    }

    /// Whether what goes to donors goes there page by page (MobileSwap IV-A, RemoteSwap).
    pub fn page_by_page(&self) -> bool {
        self.placement.about().page_by_page
    }

    /// Whether it can do nothing without a donor.
    pub fn needs_donors(&self) -> bool {
        self.tiers().iter().any(|tier| matches!(tier, Tier::Donor(_)))
    }

    /// What this version lacks of the system that a preset is named after.
    pub fn missing(&self) -> &'static [&'static str] {
        presets::missing(&self.name)
    }

    /// The scheme as one row of the table of schemes.
    pub fn row(&self) -> SchemeRow {
        let moves = !self.reclaim.about().idle;
        let missing = self.missing();
        let when_full = match self.on_full {
            OnFull::Stop => "when full, nothing more leaves DRAM",
            OnFull::Kill => "when full, the low-memory killer",
        };
        let column = |text: String| if moves { text } else { "-".to_string() };
        SchemeRow {
            name: self.name.clone(),
            status: if missing.is_empty() { "complete" } else { "partial" },
            missing,
            reclaim: self.reclaim.about().shown,
            admission: column(self.admission.about().shown),
            packing: column(self.packing.about().shown),
            eviction: column(format!("{}; {when_full}", self.eviction.about().shown)),
            placement: column(self.placement.about().shown),
            pool: column(self.pool.shown().to_string()),
            prefetch: column(self.prefetch.about().shown),
        }
    }
}

/// Every preset, in the order of the table of schemes.
pub fn all() -> Vec<Scheme> {
    presets::all()
}

/// One row of the table of schemes, the six answers as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SchemeRow {
    /// The scheme.
    pub name: String,
    /// `complete`, or `partial` if something is missing of the system it is named after.
    pub status: &'static str,
    /// What is missing.
    pub missing: &'static [&'static str],
    pub reclaim: String,
    pub admission: String,
    pub packing: String,
    pub eviction: String,
    pub placement: String,
    /// How the pool keeps what is compressed.
    pub pool: String,
    pub prefetch: String,
}

/// The table of schemes.
pub fn table() -> Vec<SchemeRow> {
    all().iter().map(Scheme::row).collect()
}
