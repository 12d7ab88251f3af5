//! Nobody leaves DRAM: the baseline `dram` of Ariadne 5 and the "no swap" of MobileSwap IV-A.

use clew_core::{AppId, Classes, Demand, Hotness, Observe, PageId, Reclaim, Verdict, View};

use crate::plain;
use crate::schemes::About;

/// The policy. See the module.
#[derive(Default)]
pub struct NoReclaim;

plain!(NoReclaim as dyn Reclaim, About { idle: true, ..About::of("none", "nobody") });

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
