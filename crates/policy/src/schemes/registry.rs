//! Reads schemes from TOML and refuses what makes no sense, naming the field, what stands there and
//! what it may be.

use std::num::NonZeroU64;
use std::sync::OnceLock;

use clew_core::{
    Admission, ByteSize, DonorId, Eviction, Packing, Placement, Prefetch, Reclaim, Tier,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use toml::Value;

use super::{About, Answer, Kinds, OnFull, PoolKind, Scheme};
use crate::packing::adaptive_comp;
use crate::prefetch::by_trigger;
use crate::written::{SchemeError, parameters, size};
use crate::{admission, eviction, packing, placement, prefetch, reclaim};

const NAME: &str = "1 to 64 letters, digits, '-', '_' or '.'";

fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match Value::deserialize(from)? {
        Value::String(name) if (1..=64).contains(&name.len()) && name.chars().all(fits) => {
            Ok(Some(name))
        }
        _ => Err(D::Error::custom(format_args!("expected {NAME}"))),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scheme: Option<Written>,
}

/// `[scheme]`, whose columns are read by their kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, deserialize_with = "name")]
    name: Option<String>,
    #[serde(default)]
    on_full: OnFull,
    disksize_pages: Option<NonZeroU64>,
    #[serde(default, deserialize_with = "size::<65536, _, _>")]
    mem_limit_bytes: Option<ByteSize>,
    #[serde(default)]
    pool: PoolKind,
    retain: Option<bool>,
    reclaim: Option<Value>,
    admission: Option<Value>,
    packing: Option<Value>,
    eviction: Option<Value>,
    placement: Option<Value>,
    prefetch: Option<Value>,
}

/// What schemes are read with: the kinds of answers to each question.
pub struct Registry {
    pub reclaim: Kinds<dyn Reclaim>,
    pub admission: Kinds<dyn Admission>,
    pub packing: Kinds<dyn Packing>,
    pub eviction: Kinds<dyn Eviction>,
    pub placement: Kinds<dyn Placement>,
    pub prefetch: Kinds<dyn Prefetch>,
    /// Tiers that a scheme may rely on.
    pub tiers: Vec<Tier>,
}

impl Default for Registry {
    /// What this crate has.
    fn default() -> Registry {
        Registry {
            reclaim: Kinds::none()
                .with::<reclaim::none::Plain>()
                .with::<reclaim::lru::Params>()
                .with::<reclaim::hotness_org::Params>()
                .with::<reclaim::ft_list::Params>()
                .with::<reclaim::least_used_app::Plain>()
                .with::<reclaim::least_recent_app::Params>()
                .with::<reclaim::files_first::Plain>(),
            admission: Kinds::none()
                .with::<admission::all::AdmitAll>()
                .with::<admission::selective::Params>(),
            packing: Kinds::none()
                .with::<packing::one_page::OnePage>()
                .with_reader(adaptive_comp::Params::default().about(), adaptive_comp::read)
                .with::<packing::adaptive_region::Params>()
                .with::<packing::fixed_blocks::Params>()
                .with::<packing::by_age::Params>(),
            eviction: Kinds::none()
                .with::<eviction::none::Plain>()
                .with::<eviction::cold_first::Plain>()
                .with::<eviction::oldest_first::Plain>()
                .with::<eviction::by_app::Params>()
                .with::<eviction::z3fold_lru::Plain>()
                .with::<eviction::compressibility::Params>(),
            placement: Kinds::none()
                .with::<placement::none::Plain>()
                .with::<placement::pool::Plain>()
                .with::<placement::flash_last::FlashLast>()
                .with::<placement::kernel_first::Params>()
                .with::<placement::flash::ToFlash>()
                .with::<placement::launch_pages::Params>()
                .with::<placement::adaptive_path::Params>()
                .with::<placement::donors::ToDonors>()
                .with::<placement::app_aware::Params>()
                .with::<placement::read_local::Params>(),
            prefetch: Kinds::none()
                .with::<prefetch::none::Plain>()
                .with::<prefetch::readahead::Readahead>()
                .with::<prefetch::cluster::Params>()
                .with::<prefetch::runs::Params>()
                .with::<prefetch::pre_decomp::Params>()
                .with::<prefetch::recorded_set::Params>()
                .with::<prefetch::hot_list::Params>()
                .with::<prefetch::group::Params>()
                .with::<prefetch::asap::Params>()
                .with::<prefetch::whole_app::Plain>()
                .with::<prefetch::successors::Params>()
                .with::<prefetch::associated::Params>()
                .with_reader(About::of(by_trigger::KIND, ""), by_trigger::read),
            tiers: vec![Tier::Pool, Tier::Flash, Tier::Donor(DonorId::FIRST)],
        }
    }
}

static INSTALLED: OnceLock<Registry> = OnceLock::new();

impl Registry {
    /// From now on these are the kinds that schemes of this process are read with
    /// ([`Scheme::from_toml`]): in daemon, replay, sweep and transcript. False, and nothing else, if a
    /// scheme was read already.
    #[must_use]
    pub fn install(self) -> bool {
        INSTALLED.set(self).is_ok()
    }

    /// What schemes of this process are read with: what this crate has, if nothing was installed.
    pub fn installed() -> &'static Registry {
        INSTALLED.get_or_init(Registry::default)
    }

    /// Reads the `[scheme]` table of a TOML text.
    pub fn read(&self, text: &str) -> Result<Scheme, SchemeError> {
        let File { scheme } = parameters(text.parse()?)?;
        let lacks = |field, what| SchemeError::expected(field, None, what);
        let columns = "a table with name and the six columns";
        let written = scheme.ok_or_else(|| lacks("[scheme]", columns))?;
        let any = |_: &About| true;
        let scheme = Scheme {
            name: written.name.ok_or_else(|| lacks("scheme.name", NAME))?,
            on_full: written.on_full,
            disksize_pages: written.disksize_pages.map(NonZeroU64::get),
            mem_limit_bytes: written.mem_limit_bytes,
            pool: written.pool,
            retain: written.retain.unwrap_or(true),
            reclaim: self.reclaim.read("scheme.reclaim", written.reclaim, any)?,
            admission: self.admission.read("scheme.admission", written.admission, any)?,
            packing: self.packing.read("scheme.packing", written.packing, any)?,
            eviction: self.eviction.read("scheme.eviction", written.eviction, any)?,
            placement: self.placement.read("scheme.placement", written.placement, any)?,
            prefetch: self.prefetch.read("scheme.prefetch", written.prefetch, any)?,
        };
        self.check(&scheme)?;
        Ok(scheme)
    }

    /// Refuses columns that contradict each other, and tiers that are not there.
    pub fn check(&self, scheme: &Scheme) -> Result<(), SchemeError> {
        let (tiers, eviction) = (scheme.tiers(), scheme.eviction.about());
        let (reclaim, prefetch) = (scheme.reclaim.about(), scheme.prefetch.about());
        let admission = scheme.admission.about();
        if let Some(lacking) = tiers.iter().find(|tier| !self.tiers.contains(tier)) {
            let why = format!("there is no tier {lacking:?} here, only {:?}", self.tiers);
            return Err(SchemeError::field("scheme.placement", None, why));
        }
        let only_pool =
            tiers.iter().chain(scheme.placement.about().may_use).all(|tier| *tier == Tier::Pool)
                && scheme.kernel_share_pct() == 0;
        let contradictions = [
            (
                tiers.is_empty() && !reclaim.idle,
                ["scheme.reclaim", "scheme.placement"],
                "what is taken out needs a place; choose placement \"pool\" or reclaim \"none\"",
            ),
            (
                only_pool && !eviction.idle,
                ["scheme.eviction", "scheme.placement"],
                "what leaves the pool needs another place, and this placement has none; choose \
                 eviction \"none\"",
            ),
            (
                eviction.needs_frames && scheme.pool != PoolKind::Z3fold,
                ["scheme.eviction", "scheme.pool"],
                "frames can leave a pool in which few zpages share one; choose pool \"z3fold\"",
            ),
            (
                admission.rejects && only_pool,
                ["scheme.admission", "scheme.placement"],
                "what is not admitted needs another place, and this placement has none; choose placement \
                 \"flash-last\"",
            ),
            (
                admission.takes_files && !reclaim.takes_files,
                ["scheme.admission", "scheme.reclaim"],
                "nobody hands out pages of files; choose reclaim \"files-first\"",
            ),
            (
                prefetch.needs_hot_list && !reclaim.keeps_hot_list,
                ["scheme.prefetch", "scheme.reclaim"],
                "nobody keeps a hot list; choose reclaim \"hotness-org\" or prefetch \
                 \"recorded-set\"",
            ),
        ];
        match contradictions.into_iter().find(|(there, ..)| *there) {
            Some((_, [first, second], why)) => {
                Err(SchemeError::Contradiction { first, second, why })
            }
            None => Ok(()),
        }
    }
}
