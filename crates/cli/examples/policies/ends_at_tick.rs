//! Ends the first app that it finds in the background at a tick, and no other.

use clew_core::{AppId, AppState, Ending, Event, Observe, PageId, Prefetch, Trigger, View};
use clew_policy::plain;
use clew_policy::schemes::About;

#[derive(Default)]
struct EndsAtTick {
    app: Option<AppId>,
    ended: bool,
}

plain!(EndsAtTick as dyn Prefetch, About::of("ends-at-tick", "nothing; it ends an app"));

impl Observe for EndsAtTick {
    fn on_event(&mut self, event: &Event, view: &View<'_>) {
        if let Event::Tick = event {
            let mut apps = view.facts.apps.iter();
            let is_background = |state| state == AppState::Background;
            let found = apps.find(|(_, app)| is_background(app.state) && app.resident_pages > 99);
            self.app = found.map(|(app, _)| *app);
        }
    }
    fn take_ending(&mut self) -> Option<Ending> {
        let app = self.app.take().filter(|_| !std::mem::replace(&mut self.ended, true))?;
        Some(Ending { app, reason: "it was the first" })
    }
}

impl Prefetch for EndsAtTick {
    fn pick_prefetch(&mut self, _: Trigger, _: &View<'_>, _: &mut Vec<PageId>) {}
}
