//! The live view: one thread looks at the daemon, this one draws and heeds keys and signals.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clew_live::control::client::{Client, ControlError};
use clew_live::control::status::Status;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::looks::Rates;
use super::rows::{Column, Order};
use super::screen::Screen;
use super::view::{Shown, draw};
use crate::Failure;

/// How soon a signal is heeded, at the latest.
const HEEDS: Duration = Duration::from_millis(100);

/// A look at the daemon, or why there was none.
type Look = Result<(Box<Status>, Instant), String>;

/// Shows everything until told to end.
pub fn run(socket: &Path, interval: Duration, order: Order) -> Result<(), Failure> {
    // Without a daemon there is nothing to show, and no screen to show that on.
    let mut client = Client::connect(socket)?;
    let status = client.status()?.with_users_in_names();
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
        signal_hook::flag::register(signal, ends.clone()).context("heeding signals")?;
    }
    let (to, looks) = sync_channel(1);
    let path = socket.to_path_buf();
    std::thread::Builder::new()
        .name("looks".into())
        .spawn(move || look(path, client, interval, &to))
        .context("starting a thread")?;
    let mut screen = Screen::enter().context("the terminal")?;
    let mut top = Top {
        status: Box::new(status),
        seen: Instant::now(),
        rates: None,
        trouble: None,
        order,
        scroll: 0,
    };
    let mut is_new = true;
    while !ends.load(Ordering::SeqCst) {
        if is_new {
            screen.show(|frame| draw(frame, &top.shown())).context("the terminal")?;
        }
        is_new = top.take(&looks)?;
        match event::poll(if is_new { Duration::ZERO } else { HEEDS }) {
            Ok(false) => {}
            Ok(true) => {
                // Whatever it is (a key, another size): drawn anew.
                is_new = true;
                if let Event::Key(key) = event::read().context("the terminal")?
                    && key.kind != KeyEventKind::Release
                    && !top.obey(key)
                {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(anyhow!("the terminal: {error}").into()),
        }
    }
    Ok(())
}

/// Looks once an interval until nobody wants to know. A daemon that is gone may have a successor.
fn look(socket: PathBuf, client: Client, interval: Duration, to: &SyncSender<Look>) {
    let mut client = Some(client);
    loop {
        std::thread::sleep(interval);
        let status = match &mut client {
            Some(client) => client.status(),
            None => Client::connect(&socket).and_then(|mut new| {
                let status = new.status()?;
                client = Some(new);
                Ok(status)
            }),
        };
        if matches!(status, Err(ControlError::NoAnswer { .. } | ControlError::Dead { .. })) {
            client = None;
        }
        let look = status.map(|status| (Box::new(status.with_users_in_names()), Instant::now()));
        if to.send(look.map_err(|error| error.to_string())).is_err() {
            return;
        }
    }
}

/// What is shown, and what was seen.
struct Top {
    status: Box<Status>,
    seen: Instant,
    rates: Option<Rates>,
    trouble: Option<String>,
    order: Order,
    scroll: usize,
}

impl Top {
    fn shown(&self) -> Shown<'_> {
        Shown {
            status: &self.status,
            rates: self.rates.as_ref(),
            trouble: self.trouble.as_deref(),
            order: self.order,
            scroll: self.scroll,
        }
    }

    /// Takes what was seen meanwhile; whether there was anything.
    fn take(&mut self, looks: &Receiver<Look>) -> Result<bool, Failure> {
        match looks.try_recv() {
            Ok(Ok((status, seen))) => {
                let took = seen.duration_since(self.seen);
                self.rates = Some(Rates::between(&self.status, &status, took));
                (self.status, self.seen, self.trouble) = (status, seen, None);
                self.scroll = self.scroll.min(self.status.apps.len().saturating_sub(1));
                Ok(true)
            }
            Ok(Err(trouble)) => {
                (self.trouble, self.rates) = (Some(trouble), None);
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => Err(anyhow!("nobody looks any more").into()),
        }
    }

    /// Does what a key means; false to end.
    fn obey(&mut self, key: KeyEvent) -> bool {
        let last = self.status.apps.len().saturating_sub(1);
        let page = 10;
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('r') => self.order.reverse = !self.order.reverse,
            KeyCode::Left => self.sort_by(Column::ALL.len() - 1),
            KeyCode::Right => self.sort_by(1),
            KeyCode::Up => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down => self.scroll = (self.scroll + 1).min(last),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(page),
            KeyCode::PageDown => self.scroll = (self.scroll + page).min(last),
            KeyCode::Home => self.scroll = 0,
            KeyCode::End => self.scroll = last,
            _ => {}
        }
        true
    }

    /// By the column that many further right, in a circle.
    fn sort_by(&mut self, further: usize) {
        let at = Column::ALL.iter().position(|c| *c == self.order.column).unwrap_or(0);
        self.order.column = Column::ALL[(at + further) % Column::ALL.len()];
    }
}
