//! What a daemon has: made anew, or inherited from one that died.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use clew_core::{DonorId, Tier};
use clew_store::flash::{Flash, LogId};
use clew_store::{Journal, Store, StoreConfig, Tables};

use super::DaemonError;
use super::places::{AGENTS, Bound, agents_socket, free, given_socket};
use crate::agents::seqpacket;
use crate::config::{Config, DonorsConfig, FlashPlace};
use crate::control::exporter;
use crate::donor_tier::{self, DonorTier};
use crate::faults::affinity::{self, Placement};
use crate::flash_tier;
use crate::limits::{MAX_PAGES, MAX_SPACES};
use crate::survival::predecessor::Predecessor;
use crate::survival::records::DaemonRecord;
use crate::survival::takeover::{self, Estate, FlashEstate, Programs};

/// What a daemon has, made or inherited.
pub(super) struct Belongings {
    pub(super) generation: u64,
    pub(super) journal: Arc<Journal>,
    pub(super) tables: Arc<Tables>,
    pub(super) store: Arc<Store>,
    pub(super) donors: Vec<DonorTier>,
    pub(super) control: OwnedFd,
    pub(super) agents: OwnedFd,
    pub(super) metrics: Option<TcpListener>,
    pub(super) record: DaemonRecord,
    pub(super) left: Option<(Predecessor, Programs)>,
    pub(super) lost: usize,
    pub(super) bound: Bound,
}

impl Belongings {
    /// Fails where it cannot listen: clients would be told that the last daemon does, which is dead.
    pub(super) fn inherited(estate: Estate, config: &Config) -> Result<Belongings, DaemonError> {
        let metrics_at = config.metrics;
        let Estate {
            from,
            journal,
            tables,
            store,
            flash,
            donors,
            record,
            control,
            agents,
            metrics,
            programs,
        } = estate;
        for listener in [&control, &agents] {
            seqpacket::listen_again(listener).map_err(|source| DaemonError::System {
                what: "listening where the last daemon did",
                source,
            })?;
        }
        let left = flash.map(FlashEstate::adopt).transpose().map_err(DaemonError::Takeover)?;
        if let Some(flash) = left.flatten() {
            store.attach_log(Arc::new(flash));
        } else if store.facts().log_pages[LogId::FLASH.index()] == 0
            && let Some(place) = &config.flash
        {
            // Of a log that is lost nothing is to be read from, or freed in, another one.
            match open_flash(place, config) {
                Ok(flash) => {
                    store.attach_log(flash);
                }
                // Programs wait to be served: they must not wait for this.
                Err(error) => tracing::error!("no flash: {error}"),
            }
        }
        let usual = DonorsConfig::default();
        let donors = donor_tier::adopt(config.donors.as_ref().unwrap_or(&usual), donors);
        let mut donors = donors?;
        if let Some(config_of) = config.donors.as_ref().filter(|_| donors.is_empty()) {
            // Programs wait to be served: they must not wait for this.
            match donor_tier::open(config_of, config.scheme.page_by_page()) {
                Ok(opened) => donors = opened,
                Err(error) => tracing::error!("no donors: {error}"),
            }
        }
        for tier in &donors {
            store.attach_log(tier.log.clone());
        }
        let metrics = match (metrics_at, metrics) {
            (Some(at), inherited) => exporter::listen(at, inherited)
                .inspect_err(|error| {
                    // Programs wait to be served: they must not wait for this.
                    tracing::error!(%at, %error, "no metrics: cannot listen");
                })
                .ok(),
            (None, Some(inherited)) => {
                exporter::silence(inherited);
                None
            }
            (None, None) => None,
        };
        let lost = programs.lost.len();
        Ok(Belongings {
            generation: from.generation + 1,
            journal,
            tables,
            store,
            donors,
            control,
            agents,
            metrics,
            record,
            left: Some((from, programs)),
            lost,
            bound: Bound::default(),
        })
    }

    pub(super) fn new(
        socket: &Path,
        store_config: StoreConfig,
        config: &Config,
    ) -> Result<Belongings, DaemonError> {
        let metrics_at = config.metrics;
        let metrics = metrics_at
            .map(|at| {
                exporter::listen(at, None).map_err(|source| DaemonError::Metrics { at, source })
            })
            .transpose()?;
        let file = |what, path: &Path| {
            let path = path.to_path_buf();
            move |source| DaemonError::File { what, path, source }
        };
        let agent_socket = agents_socket(socket);
        let given = given_socket(socket);
        let places = [(socket, libc::SOCK_STREAM), (&agent_socket, libc::SOCK_SEQPACKET)];
        for (path, kind) in places.into_iter().skip(usize::from(given.is_some())) {
            free(path, kind)?;
        }
        let mut bound = Bound::default();
        let control: OwnedFd = match given {
            Some(given) => {
                seqpacket::listen_again(&given).map_err(file("listening at", socket))?;
                given
            }
            None => bound.listen(socket, libc::SOCK_STREAM)?,
        };
        let agents = bound.listen(&agent_socket, AGENTS)?;
        let measured = affinity::measure();
        let placement = measured.map_or(Placement::Free, |m| m.choose());
        tracing::info!(?measured, ?placement, "fault placement");
        let segment = clew_store::StoreError::from;
        let store = Arc::new(Store::of(config.scheme.pool, store_config)?);
        if let Some(place) = &config.flash {
            store.attach_log(open_flash(place, config)?);
        }
        let donors = match &config.donors {
            Some(donors) if config.scheme.uses(Tier::Donor(DonorId::FIRST)) => {
                donor_tier::open(donors, config.scheme.page_by_page())?
            }
            Some(_) => {
                tracing::warn!("scheme {} puts nothing at donors", config.scheme_name);
                Vec::new()
            }
            None => Vec::new(),
        };
        for tier in &donors {
            store.attach_log(tier.log.clone());
        }
        Ok(Belongings {
            generation: 1,
            journal: Arc::new(
                Journal::new(MAX_SPACES, store_config.page_bytes as u64).map_err(segment)?,
            ),
            tables: Arc::new(Tables::new(MAX_PAGES).map_err(segment)?),
            store,
            donors,
            control,
            agents,
            metrics,
            record: DaemonRecord {
                descriptors: [None; 2],
                placement,
                serving_since: takeover::seconds_now(),
                short_lives: 0,
                old_keepers: Vec::new(),
            },
            left: None,
            lost: 0,
            bound,
        })
    }
}

fn open_flash(place: &FlashPlace, config: &Config) -> Result<Arc<Flash>, DaemonError> {
    if !config.scheme.uses(Tier::Flash) {
        tracing::warn!("scheme {} puts nothing on flash", config.scheme_name);
    }
    let refused = |source| DaemonError::Flash { path: place.path.clone(), source };
    flash_tier::open(place).map(Arc::new).map_err(refused)
}
