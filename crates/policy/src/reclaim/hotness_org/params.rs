//! What a scheme chooses of it.

use clew_core::{ByteSize, Reclaim, Whole};
use serde::{Deserialize, Serialize};

use super::HotnessOrg;
use crate::schemes::{About, Answer, size};

/// Which lists are compressed (Ariadne 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lists {
    /// AL: all lists.
    All,
    /// EHL: the hot list stays in DRAM, unless nothing else can make room that must be made.
    ExcludeHot,
}

/// What becomes of an old hot page that stayed resident through a relaunch in which nobody could
/// have seen its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unseen {
    /// It stays hot.
    Keep,
    /// It becomes warm, as if it had not been used.
    Warm,
}

/// When a page that a relaunch uses becomes hot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HotAfter {
    /// At once, as in the paper.
    FirstUse,
    /// When it was used before: a cold page becomes warm first. What is used once leaves before what
    /// is used each time, and is not brought back early.
    SecondUse,
}

/// When the pages of the app in front leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Front {
    /// Behind those of all other apps of the same class, as in the paper.
    InClass,
    /// Its cold and warm pages behind the warm ones of all other apps. What is new is cold, so an app that
    /// makes much of it would lose what it has just written before others lose what they used long ago.
    /// Of what it has resident a quarter stays cold, and a quarter warm, as long as there is anything hot to leave: what
    /// comes along with its faults is of the class that it had, and would leave again before it is used.
    /// Where the demand is urgent all of its pages are behind all of theirs: what it uses now would come back at
    /// once, and memory be no less short.
    AfterWarm,
    /// Only where it is urgent: for whoever has a kernel below that takes pages by itself, and sees which are used.
    /// So do pages of others, up to [`Params::others_kept_pct`].
    ToKernel,
}

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// EHL or AL.
    pub lists: Lists,
    /// Size of the hot list that a launch fills before any relaunch of the app was profiled.
    #[serde(deserialize_with = "size::<0, _, _>")]
    pub initial_hot: ByteSize,
    /// What becomes of hot pages of which nothing was seen.
    pub unseen: Unseen,
    /// When a page becomes hot.
    pub hot_after: HotAfter,
    /// When the pages of the app in front leave.
    pub front: Front,
    /// With [`Front::ToKernel`]: so much of what all apps have resident, per cent, may be pages of those behind that
    /// leave after all of the app in front.
    pub others_kept_pct: Whole<0, 100, 0>,
}

impl Default for Params {
    fn default() -> Params {
        Params {
            lists: Lists::All,
            initial_hot: ByteSize(32 << 20),
            unseen: Unseen::Warm,
            hot_after: HotAfter::FirstUse,
            front: Front::InClass,
            others_kept_pct: Whole::default(),
        }
    }
}

impl Answer<dyn Reclaim> for Params {
    fn about(&self) -> About {
        let shown = match self.lists {
            Lists::All => "HotnessOrg, all lists",
            Lists::ExcludeHot => "HotnessOrg, hot list stays",
        };
        About { keeps_hot_list: true, ..About::of("hotness-org", shown) }
    }

    fn build(&self) -> Box<dyn Reclaim> {
        Box::new(HotnessOrg::new(*self))
    }
}
