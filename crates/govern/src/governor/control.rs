//! Clients of the governor: the daemon's own protocol, so that `clew ps`, `top`, `fg`, `bg`, `swap-out` and `stop`
//! ask a governor as they ask a daemon. Who may connect, and how, is [`clew_live::control`]'s business.

use std::path::Path;
use std::sync::Arc;

use clew_core::{AppId, AppState, Event, Metric};
use clew_live::control::clients;
use clew_live::control::protocol::{Reply, Request};
use clew_live::control::status::{
    self as live, AppStatus, PolicyMetric, ProcessStatus, TierStatus, Totals,
};
use clew_live::control::trusted_path::own_uid;
use clew_live::daemon::{Bound, listen_for_clients};
use clew_live::message::Message;
use clew_live::programs::proc_stat::cpu_seconds;
use clew_live::users::Users;
use crossbeam_channel::{Receiver, never, unbounded};
use serde::Serialize;

use crate::error::GovernError;
use crate::governor::Governor;

/// Who asks. The socket's file goes with it.
pub(crate) struct Control {
    /// What is asked.
    pub inbox: Receiver<Message>,
    _bound: Option<Bound>,
}

impl Control {
    /// Nobody asks.
    pub fn none() -> Control {
        Control { inbox: never(), _bound: None }
    }
}

impl Governor {
    /// Answers clients at `socket` from now on: this user's, and root's.
    ///
    /// # Errors
    /// Others can change what is there, or somebody serves there.
    pub fn serve_at(&mut self, socket: &Path) -> Result<(), GovernError> {
        let refused = |error: &dyn std::fmt::Display| GovernError::Socket {
            socket: socket.to_path_buf(),
            why: error.to_string(),
        };
        let (listener, bound) = listen_for_clients(socket).map_err(|error| refused(&error))?;
        let (to, inbox) = unbounded();
        let users = Arc::new(Users::new(own_uid(), None));
        std::thread::Builder::new()
            .name("control".to_string())
            .spawn(move || clients::serve(&listener, &users, &to))
            .map_err(|error| refused(&error))?;
        self.control = Control { inbox, _bound: Some(bound) };
        Ok(())
    }

    /// Answers; true if that was the order to end.
    pub(super) fn asked(&mut self, message: Message) -> bool {
        let Message::Control(request, _, to) = message else { return false };
        self.look_up();
        let ends = request == Request::Stop;
        let line = match request {
            Request::Status => line(Ok(self.as_a_daemon_has_it())),
            Request::Fg { app } => line(self.of_app(&app, |g, id| g.told_app(id, true))),
            Request::Bg { app } => line(self.of_app(&app, |g, id| g.told_app(id, false))),
            Request::Responded { app, response_ns } => line(self.of_app(&app, |g, app| {
                g.end_relaunch(app);
                let event = Event::ResponseComplete { app, response_ns };
                g.driver.tell(g.now, &event, &g.pages);
            })),
            Request::SwapOut { app } => line(self.of_app(&app, |g, id| {
                g.driver.take_out_app(id, &g.pages);
                g.carry_out();
            })),
            Request::Stop => line(Ok(())),
            Request::Environment | Request::Started { .. } => refusal(
                "a governor has no agents: 'clew run' wants a daemon's socket, and what is started here is \
                 governed as it is",
            ),
            Request::Restore { .. } => refusal(
                "what a governor has taken out the kernel brings back by itself when it is touched, also by gdb",
            ),
            Request::HotPages { .. } => refusal("a governor does not say this; 'clew daemon' does"),
            Request::Share { .. } => refusal(
                "a governor keeps no pages and has no share of them to give; 'clew daemon' has",
            ),
            Request::HandOver { .. } => {
                refusal("this is a governor and no daemon: there is nothing to take over")
            }
        };
        // Who asked may be gone.
        let _ = to.send(line);
        ends
    }

    fn of_app(&mut self, name: &str, act: impl FnOnce(&mut Governor, AppId)) -> Result<(), String> {
        // A program may call itself by the number of another.
        let number: Option<u32> = name.parse().ok();
        let is_meant = |app: &super::App| match number {
            Some(pid) => app.root.pid == pid,
            None => app.name == name,
        };
        match self.apps.iter().find(|(_, app)| is_meant(app)).map(|(id, _)| *id) {
            Some(id) => {
                act(self, id);
                Ok(())
            }
            None => Err(format!("there is no app '{name}' here ('clew ps' lists them)")),
        }
    }

    /// The state of everything, as a daemon says it. The kernel's swap is the tier `kernel`.
    fn as_a_daemon_has_it(&mut self) -> live::Status {
        let own = self.status();
        let page_bytes = self.page_bytes;
        let own_pid = std::process::id();
        let used = live::UsedBytes {
            programs_bytes: own.used.programs_bytes + own.used.brought_bytes,
            kernel_bytes: own.used.swap_bytes,
            daemon_bytes: own.used.governor_bytes + own.used.daemon_bytes,
            ..live::UsedBytes::default()
        };
        let out_pages = self.pages.out_pages();
        let ratio = page_bytes as f64 / f64::from(self.stored_page_bytes().max(1));
        let process = |program: &super::status::ProgramStatus| ProcessStatus {
            pid: program.pid,
            command: program.command.clone(),
            managed: true,
            resident_bytes: program.resident_pages * page_bytes,
            stored_pages: program.swapped_pages,
            faults: program.faults,
            ..ProcessStatus::default()
        };
        let app = |(app, known): (&super::status::AppStatus, &super::App)| {
            let sum = |of: fn(&super::status::ProgramStatus) -> u64| {
                app.programs.iter().map(of).sum::<u64>()
            };
            let members = known.members.iter().filter_map(|member| cpu_seconds(member.pid));
            AppStatus {
                name: app.name.clone(),
                uid: own_uid(),
                state: match app.state {
                    AppState::Foreground => "foreground".to_string(),
                    AppState::Background => "background".to_string(),
                },
                resident_bytes: sum(|p| p.resident_pages) * page_bytes,
                stored_pages: sum(|p| p.swapped_pages),
                ratio: if sum(|p| p.swapped_pages) > 0 { ratio } else { 0.0 },
                faults: app.faults,
                demand_faults: app.faults,
                processes: app.programs.iter().map(process).collect(),
                cpu_seconds: members.sum(),
                ..AppStatus::default()
            }
        };
        let counts = [
            ("govern_kernel_out_pages", own.kernel_out_pages, "taken by the kernel, by itself"),
            ("govern_kept_young_pages", own.kept_young_pages, "kept young while it does"),
            ("govern_unheard_pages", own.unheard_pages, "back, and nobody heard a fault"),
            ("govern_lost_faults", own.lost_faults, "records of faults that were lost"),
        ];
        let of_governor =
            counts.map(|(name, value, help)| Metric { name, value: value as f64, help });
        let of_policies = self.driver.metrics().into_iter();
        live::Status {
            scheme: own.scheme,
            budget_bytes: own.budget_bytes,
            used_bytes: own.used_bytes,
            used,
            daemon_bytes: own.used.governor_bytes,
            daemon_cpu_seconds: cpu_seconds(own_pid).unwrap_or_default(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            daemon_pid: own_pid,
            tiers: vec![TierStatus {
                tier: "kernel".to_string(),
                used_bytes: own.used.swap_bytes,
                limit_bytes: Some(own.used.swap_bytes + own.swap_free_bytes),
                stored_pages: out_pages,
                limit_pages: None,
            }],
            totals: Totals {
                demand_faults: own.apps.iter().map(|app| app.faults).sum(),
                swapped_out_pages: own.paged_out_pages + own.kernel_out_pages,
                restored_pages: own.brought_pages,
                prefetch_used_pages: own.brought_used_pages,
                ..Totals::default()
            },
            policies: of_policies.chain(of_governor).map(PolicyMetric::from).collect(),
            apps: own.apps.iter().zip(self.apps.values()).map(app).collect(),
            ..live::Status::default()
        }
    }
}

fn line<T: Serialize>(done: Result<T, String>) -> String {
    let reply = match done {
        Ok(value) => Reply::Ok { value },
        Err(message) => Reply::Error { message },
    };
    serde_json::to_string(&reply).unwrap_or_default()
}

fn refusal(why: &str) -> String {
    line::<()>(Err(why.to_string()))
}

/// Waits until the last answers are written, but not for long.
pub fn finish() {
    clients::finish();
}
