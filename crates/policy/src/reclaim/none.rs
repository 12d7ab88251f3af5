//! Nobody leaves DRAM: the baseline `dram` of Ariadne 5 and the "no swap" of MobileSwap IV-A.

use clew_core::{AppId, Classes, Demand, Hotness, Observe, PageId, Reclaim, Verdict, View};

/// The policy. See the module.
#[derive(Default)]
pub struct NoReclaim;

impl Observe for NoReclaim {}

impl Classes for NoReclaim {
    fn class(&self, _page: PageId) -> Option<Hotness> {
        None
    }
}

impl Reclaim for NoReclaim {
    fn pick_victims(&mut self, _demand: Demand, _view: &View<'_>, _out: &mut Vec<Verdict>) {}

    fn pick_app(&mut self, _app: AppId, _view: &View<'_>, _out: &mut Vec<Verdict>) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_core::{SpaceId, Vpn};

    #[test]
    fn it_knows_of_no_page_how_hot_it_is() {
        assert_eq!(NoReclaim.class(PageId::new(SpaceId(1), Vpn(1))), None);
    }
}
