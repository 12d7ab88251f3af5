//! Apps: what a user switches to. One app is one or more address spaces.

use serde::{Deserialize, Serialize};

use crate::units::Ns;

/// One app.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct AppId(pub u32);

/// One address space. A process has one; after execve it is a new one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SpaceId(pub u32);

/// Whether the user looks at an app.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AppState {
    /// In front of its user: its relaunch has been asked for and it has not been sent back.
    Foreground,
    /// Not in front.
    #[default]
    Background,
}

/// What the engine knows about one app; part of the read-only view.
#[derive(Clone, Debug, Default)]
pub struct AppStats {
    /// Foreground or background.
    pub state: AppState,
    /// Resident pages that can be taken out.
    pub resident_pages: u64,
    /// Stored pages, all tiers.
    pub stored_pages: u64,
    /// Times brought to the foreground (usage rate of ElasticZRAM 3.2, undivided).
    pub launches: u64,
    /// Pages held when last sent to the background (footprint of ElasticZRAM 3.2).
    pub footprint_pages: u64,
    /// When a page of the app was last accessed. Where not every touch is seen, an app in front
    /// counts as accessing its pages until it is sent back.
    pub last_access: Ns,
    /// When the app last came to the foreground.
    pub last_foreground: Ns,
    /// The last responses to relaunches, newest last, nanoseconds each (ElasticZRAM 3.4).
    pub responses_ns: Vec<u64>,
}

/// How an app is used (ElasticZRAM 3.2): what is known of it beyond its end.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Profile {
    /// See [`AppStats::launches`].
    pub launches: u64,
    /// See [`AppStats::footprint_pages`].
    pub footprint_pages: u64,
    /// See [`AppStats::responses_ns`].
    pub responses_ns: Vec<u64>,
}

impl From<&AppStats> for Profile {
    fn from(stats: &AppStats) -> Profile {
        Profile {
            launches: stats.launches,
            footprint_pages: stats.footprint_pages,
            responses_ns: stats.responses_ns.clone(),
        }
    }
}
