//! The first app that leaves goes to the pool, all others to the kernel's zram.

use clew_core::{AppId, Cause, Group, Observe, Place, Placement, Tier, View};
use clew_policy::plain;
use clew_policy::schemes::About;

#[derive(Default)]
struct ByApp(Option<AppId>);

plain!(
    ByApp as dyn Placement,
    About { tiers: &[Tier::Pool], kernel_share_pct: 50, ..About::of("by-app", "by app") }
);

impl Observe for ByApp {}

impl Placement for ByApp {
    fn place(&mut self, _: &Group, app: AppId, _: Cause, view: &View<'_>) -> Place {
        let has_kernel = view.facts.tiers.contains_key(&Tier::Kernel);
        match *self.0.get_or_insert(app) == app || !has_kernel {
            true => Place::Tier(Tier::Pool),
            false => Place::Tier(Tier::Kernel),
        }
    }
}
