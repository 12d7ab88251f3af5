//! What clients ask over the control socket, and those of them that wait for several pieces of work.

use std::time::Instant;

use clew_agent::protocol::MAX_NAME;
use clew_core::{AppId, Event};
use crossbeam_channel::Sender;

use super::mounts::Said;
use super::{Governor, Waiting};
use crate::control::protocol::{ENDING, Reply, Request};
use crate::programs::proc_stat::resident_anonymous_bytes_of;
use crate::users::Asker;

/// Clients that wait for several pieces of work.
pub(super) struct Promise {
    pub(super) left: usize,
    answer: Option<Sender<String>>,
    then: Then,
    /// Pages that could not be taken.
    pub(super) stayed: usize,
    /// Pages stored.
    pub(super) stored: usize,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Then {
    Answer,
    /// Taking everything of the app out; the step that is done.
    SwapOut(AppId, u8),
    /// The same for a window of a recording.
    Window(AppId),
    Stop,
}

/// Steps of [`Request::SwapOut`]: prepare what is not managed, look for new memory, then take out,
/// again while pages stayed because their program was changing its mappings.
const PREPARE: u8 = 0;
const SCAN: u8 = 1;
const TAKE_OUT: u8 = 2;
const LAST: u8 = 4;
/// While more is stored each time (room is planned by the ratio so far), steps go on to this.
const LAST_WITH_PROGRESS: u8 = 10;

impl Governor {
    /// One piece of a promise is done.
    pub(super) fn keep_promise(&mut self, number: u64) {
        let Some(promise) = self.promises.get_mut(&number) else { return };
        promise.left -= 1;
        if promise.left > 0 {
            return;
        }
        let Some(mut promise) = self.promises.remove(&number) else { return };
        if let Then::Window(app) = promise.then {
            self.window_began(app);
        }
        if let Then::SwapOut(app, step) = promise.then {
            let again = promise.stayed > 0 && step < LAST
                || promise.stored > 0 && step < LAST_WITH_PROGRESS;
            if step < TAKE_OUT || again {
                let answer = promise.answer.take();
                self.swap_out_app(app, answer, step + 1);
                return;
            }
            self.look_at_room();
        }
        if let Some(answer) = promise.answer {
            reply(&answer, Ok(()));
        }
    }

    pub(super) fn promise(&mut self, answer: Option<Sender<String>>, then: Then) -> u64 {
        let number = self.number();
        // Held by one until everything is handed out.
        self.promises.insert(number, Promise { left: 1, answer, then, stayed: 0, stored: 0 });
        number
    }

    pub(super) fn control(&mut self, request: Request, asker: Asker, answer: Sender<String>) {
        // Mounts ask all the time.
        if !matches!(request, Request::Share { .. }) {
            self.last_busy = Instant::now();
        }
        // What programs did before it was asked is told before it.
        self.drain_ring();
        if self.stopping.is_some() && request.makes_work() {
            reply::<()>(&answer, Err(ENDING.to_string()));
            return;
        }
        match request {
            Request::Status => {
                let status = self.status_for(asker);
                reply(&answer, Ok(status));
            }
            Request::Environment => reply(&answer, Ok(self.environment.clone())),
            Request::Started { app, .. } if app.is_empty() || app.len() > MAX_NAME => {
                let message = format!("an app's name has 1 to {MAX_NAME} bytes");
                reply::<()>(&answer, Err(message));
            }
            Request::Started { app, pid, command, unmanaged } => {
                let command = shortened(command, MAX_NAME);
                let unmanaged = unmanaged.map(|why| shortened(why, MAX_REASON));
                // It becomes a program of this app, and no longer of another.
                for other in self.apps.values_mut() {
                    other.root.take_if(|root| *root == pid);
                    other.awaited.take_if(|(awaited, _)| *awaited == pid);
                }
                self.waiting.retain(|w| w.pid != pid);
                if self.has_enough_waiting(asker.own()) {
                    // It runs all the same, and is not listed.
                    return reply(&answer, Ok(()));
                }
                let app = self.app_named(asker.own(), &app);
                if let Some(app) = self.apps.get_mut(&app) {
                    app.root = Some(pid).filter(|pid| *pid > 0);
                }
                if unmanaged.is_some() {
                    let (candidate, forked, reason) = (None, false, unmanaged);
                    let resident = resident_anonymous_bytes_of(pid, self.shared.page_bytes);
                    self.waiting.push(Waiting {
                        candidate,
                        app,
                        pid,
                        command,
                        forked,
                        reason,
                        ticket: 0,
                        shares_with: None,
                        resident,
                    });
                } else {
                    let is_first = self.shared.of_app(app).is_empty();
                    if let Some(app) = self.apps.get_mut(&app) {
                        app.awaited = Some((pid, Instant::now()));
                    }
                    if is_first {
                        self.launch(app);
                    }
                }
                reply(&answer, Ok(()));
            }
            Request::Fg { app } => self.with_app(&answer, asker, &app, |g, id| {
                g.told_where(id);
                g.foreground(id);
                Ok(())
            }),
            Request::Bg { app } => self.with_app(&answer, asker, &app, |g, id| {
                g.told_where(id);
                g.background(id);
                Ok(())
            }),
            Request::Responded { app, response_ns } => {
                self.with_app(&answer, asker, &app, |g, id| {
                    g.end_relaunch(id);
                    g.tell(&Event::ResponseComplete { app: id, response_ns });
                    Ok(())
                })
            }
            Request::SwapOut { app } => match self.find_app(asker, &app) {
                Ok(id) => self.swap_out_app(id, Some(answer), PREPARE),
                Err(why) => reply::<()>(&answer, Err(why)),
            },
            Request::Restore { app } => match self.find_app(asker, &app) {
                Ok(id) if asker != Asker::All && self.holds_others_up(id) => {
                    let why = "your programs use more than you may, and memory is all but gone: what they need comes \
                               by itself, a little at a time";
                    reply::<()>(&answer, Err(why.to_string()));
                }
                Ok(id) => {
                    let promise = self.promise(Some(answer), Then::Answer);
                    for process in self.shared.of_app(id) {
                        self.restore_all(&process, promise);
                        self.put_untouched(process, promise);
                    }
                    self.keep_promise(promise);
                }
                Err(why) => reply::<()>(&answer, Err(why)),
            },
            Request::HotPages { app } => match self.find_app(asker, &app) {
                Ok(id) => {
                    self.drain_ring();
                    reply(&answer, Ok(self.hot_pages(id)));
                }
                Err(why) => reply::<()>(&answer, Err(why)),
            },
            Request::Share { pid, held_bytes, wanted_bytes, hits } => {
                let said = Said { held_bytes, wanted_bytes, hits };
                reply(&answer, self.share(asker, pid, said));
            }
            Request::Stop => self.stop(Some(answer)),
            Request::HandOver { .. } => {
                for app in self.apps.keys().copied().collect::<Vec<_>>() {
                    self.end_relaunch(app);
                }
                reply(&answer, Ok(()));
            }
        }
    }

    /// The app that is called so, among those that are his who asks. Whoever sees the apps of all users may say
    /// `UID:NAME`, which is that, whatever others call theirs; and where several users have one of a name, he means his own.
    fn find_app(&self, asker: Asker, name: &str) -> Result<AppId, String> {
        let called = |name: &str| -> Vec<(AppId, u32)> {
            let is_it = |a: &super::App| a.name == name && asker.may(a.uid);
            self.apps.iter().filter(|(_, a)| is_it(a)).map(|(id, a)| (*id, a.uid)).collect()
        };
        let of_user = name.split_once(':').and_then(|(uid, name)| {
            let uid = uid.parse::<u32>().ok()?;
            called(name).into_iter().find(|(_, of)| *of == uid)
        });
        if let Some((id, _)) = of_user {
            return Ok(id);
        }
        let found = called(name);
        let own = found.iter().find(|(_, uid)| *uid == asker.own());
        match (&found[..], own) {
            (_, Some((id, _))) | ([(id, _)], None) => Ok(*id),
            ([], None) => Err(unknown_app(name)),
            (several, None) => {
                let users: Vec<String> = several.iter().map(|(_, uid)| uid.to_string()).collect();
                let (first, users) = (&users[0], users.join(", "));
                Err(format!("users {users} have an app '{name}': say {first}:{name}"))
            }
        }
    }

    /// Whether as many programs of user `uid` wait to be managed, or run unmanaged, as one user of a service may have.
    fn has_enough_waiting(&self, uid: u32) -> bool {
        let is_own = |app: &AppId| self.apps.get(app).is_some_and(|app| app.uid == uid);
        let listed = self.waiting.iter().filter(|waiting| is_own(&waiting.app)).count();
        let awaited =
            self.apps.values().filter(|app| app.uid == uid && app.awaited.is_some()).count();
        listed + awaited >= self.shared.users.most_programs(uid)
    }

    fn with_app(
        &mut self,
        answer: &Sender<String>,
        asker: Asker,
        name: &str,
        act: impl FnOnce(&mut Governor, AppId) -> Result<(), String>,
    ) {
        let result = self.find_app(asker, name).and_then(|id| act(self, id));
        reply(answer, result);
    }

    fn swap_out_app(&mut self, app: AppId, answer: Option<Sender<String>>, step: u8) {
        if self.stopping.is_some() {
            // Or it would be brought back and taken out by turns.
            if let Some(answer) = answer {
                reply::<()>(&answer, Err(ENDING.to_string()));
            }
            return;
        }
        let promise = self.promise(answer, Then::SwapOut(app, step));
        match step {
            PREPARE => self.manage_all(app, promise),
            SCAN => {
                for process in self.shared.of_app(app).into_iter().filter(|p| p.is_managed()) {
                    self.scan(process, Some(promise));
                }
            }
            _ => {
                self.drain_ring();
                for process in self.shared.of_app(app) {
                    if self.driver.is_protected(process.id) {
                        self.offer(&process);
                    }
                }
                self.carry_out(None);
                // What came back by itself since the last look would be passed over.
                self.look_at_lent(app);
                self.take_out_all(app);
                self.carry_out(Some(promise));
            }
        }
        self.keep_promise(promise);
    }
}

/// Bytes kept of why a program cannot be managed, as a client says it.
const MAX_REASON: usize = 255;

/// What somebody says of a program, as long as it may be.
pub(super) fn shortened(mut text: String, bytes: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes));
    // What was cut off would be kept for as long as the rest is.
    text.shrink_to_fit();
    text
}

fn unknown_app(name: &str) -> String {
    let name = &name[..name.floor_char_boundary(MAX_NAME)];
    format!("no app is called '{name}' ('clew ps' lists them)")
}

pub(super) fn reply<T: serde::Serialize>(to: &Sender<String>, result: Result<T, String>) {
    let reply = match result {
        Ok(value) => Reply::Ok { value },
        Err(message) => Reply::Error { message },
    };
    let line = serde_json::to_string(&reply)
        .unwrap_or_else(|e| format!("{{\"result\":\"error\",\"message\":\"{e}\"}}"));
    let _ = to.send(line);
}
