//! The low-memory killer: the chooser of last resort, asked when memory and every tier are full.
//!
//! Source: ElasticZRAM 2.1 and 4.1 (zram "inevitably kills processes when the compressed memory is
//! almost used up"), MobileSwap II-A. It ends the background app that has been away from the front
//! for longest, among equals the one that holds most pages, then the one with the smaller number.
//! The app in front is never ended.

use std::cmp::Reverse;

use clew_core::{AppId, AppState, Ending, Facts};

/// The app to end, if there is one in the background that `skip` does not name.
pub fn pick(facts: &Facts, skip: impl Fn(AppId) -> bool) -> Option<Ending> {
    facts
        .apps
        .iter()
        .filter(|(app, stats)| stats.state == AppState::Background && !skip(**app))
        .min_by_key(|(app, stats)| {
            (stats.last_foreground, Reverse(stats.resident_pages + stats.stored_pages), **app)
        })
        .map(|(app, _)| Ending { app: *app, reason: "memory and swap space are full" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_core::{AppStats, Ns};

    #[test]
    fn longest_in_the_background_then_largest_never_the_foreground() {
        let mut facts = Facts::default();
        let mut app = |id, state, last_foreground, resident_pages| {
            let last_foreground = Ns(last_foreground);
            let stats = AppStats { state, last_foreground, resident_pages, ..Default::default() };
            facts.apps.insert(AppId(id), stats);
        };
        app(1, AppState::Foreground, 0, 900);
        app(2, AppState::Background, 50, 10);
        app(3, AppState::Background, 20, 10);
        app(4, AppState::Background, 20, 30);
        let mut ended = Vec::new();
        while let Some(ending) = pick(&facts, |app| ended.contains(&app)) {
            ended.push(ending.app);
        }
        assert_eq!(ended, [AppId(4), AppId(3), AppId(2)]);
    }
}
