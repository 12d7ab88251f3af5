//! A fault brings the rest of its cluster: the aligned block of neighbours that it is in.
//!
//! Source: Linux `mm/swap_state.c`, `swap_cluster_readahead`: with `vm.page-cluster` = n the aligned
//! 2^n slots around the one that is read. There slots of the swap device, here addresses.

use clew_core::{Metric, Observe, PageId, Prefetch, Trigger, View, Whole};
use serde::{Deserialize, Serialize};

use crate::schemes::{About, Answer};

/// Parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Params {
    /// Pages of a cluster; rounded up to a power of two.
    pub pages: Whole<1, 512, 8>,
}

impl Answer<dyn Prefetch> for Params {
    fn about(&self) -> About {
        let shown = format!("the cluster of {} around a fault", self.pages.get());
        About { at_fault: true, ..About::of("cluster", shown) }
    }

    fn build(&self) -> Box<dyn Prefetch> {
        Box::new(Cluster::new(self.pages.get()))
    }
}

/// The policy. See the module.
pub struct Cluster {
    pages: u32,
    picked: u64,
}

impl Cluster {
    /// Clusters of `pages`, rounded up to a power of two.
    pub fn new(pages: u32) -> Cluster {
        Cluster { pages: pages.next_power_of_two(), picked: 0 }
    }
}

impl Observe for Cluster {
    fn metrics(&self) -> Vec<Metric> {
        let (name, value) = ("cluster_picked_pages", self.picked as f64);
        vec![Metric { name, value, help: "pages asked for beside one that was demanded" }]
    }
}

impl Prefetch for Cluster {
    fn pick_prefetch(&mut self, trigger: Trigger, view: &View<'_>, out: &mut Vec<PageId>) {
        let Trigger::Fault(page) = trigger else { return };
        let first = page.raw() & !u64::from(self.pages - 1);
        let cluster = (first..first + u64::from(self.pages)).map(PageId::from_raw);
        let before = out.len();
        out.extend(cluster.filter(|other| *other != page && view.pages.tier(*other).is_some()));
        self.picked += (out.len() - before) as u64;
    }
}
