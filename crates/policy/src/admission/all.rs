//! Every page may enter the pool: zram and, for anonymous pages, zswap (ezswap II-C). With `files` clean pages of
//! files too: all-page accommodation alone (ezswap III-A).

use clew_core::{Admission, Admit, Candidate, Observe, View};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// The policy, which is its parameters. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdmitAll {
    /// Clean pages of files may enter too. Else they are dropped.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files: bool,
}

impl Answer<dyn Admission> for AdmitAll {
    fn about(&self) -> About {
        let shown = match self.files {
            true => "every page, of files too",
            false => "every anonymous page",
        };
        About { takes_files: self.files, ..About::of("all", shown) }
    }

    fn build(&self) -> Box<dyn Admission> {
        Box::new(*self)
    }
}

impl Observe for AdmitAll {}

impl Admission for AdmitAll {
    fn admit(&mut self, _candidate: Candidate<'_>, _view: &View<'_>) -> Admit {
        Admit::Yes
    }

    fn admits_all(&self) -> bool {
        true
    }

    fn takes_files(&self) -> bool {
        self.files
    }
}
