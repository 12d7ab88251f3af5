//! A terminal that a test owns: what a program draws there, and the keys it gets.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

fn cells(count: u16) -> NonZero<u16> {
    NonZero::new(count).expect("at least one")
}

/// A pseudo-terminal.
pub struct Terminal {
    keyboard: File,
    /// The programs' end; held, so that what is set there stays.
    line: OwnedFd,
    seen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// One of this size.
    pub fn open(columns: u16, rows: u16) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&ours).and_then(|()| unlockpt(&ours)).expect("it can be used");
        let name = ptsname(&ours, Vec::new()).expect("its name");
        let line = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
            .expect("its other end");
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("a size");
        let keyboard = File::from(ours);
        let seen = Arc::new(Mutex::new(vt100::Parser::new(cells(rows), cells(columns), 0)));
        let (mut output, parser) = (keyboard.try_clone().expect("a copy"), seen.clone());
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut buffer) {
                parser.lock().expect("nobody panics there").process(&buffer[..n]);
            }
        });
        Terminal { keyboard, line, seen }
    }

    /// Starts `command` there.
    pub fn spawn(&self, command: &mut Command) -> Child {
        let end = || Stdio::from(self.line.try_clone().expect("a copy"));
        command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"))
    }

    /// Types this.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a terminal takes keys");
    }

    /// What is on the screen.
    pub fn screen(&self) -> String {
        self.seen.lock().expect("nobody panics there").screen().contents()
    }

    /// The screen once it is as wanted.
    pub fn wait(&self, limit: Duration, wanted: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + limit;
        loop {
            let screen = self.screen();
            if wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < end, "the screen stays\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Makes it another size, as when somebody drags its corner.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.seen
            .lock()
            .expect("nobody panics there")
            .screen_mut()
            .set_size(cells(rows), cells(columns));
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.line, size).expect("a size");
    }

    /// Whether it is as a shell left it: its own screen, the cursor, lines and echo.
    pub fn is_as_before(&self) -> bool {
        let seen = self.seen.lock().expect("nobody panics there");
        let (screen, modes) = (seen.screen(), tcgetattr(&self.line).expect("modes").local_modes);
        !screen.alternate_screen()
            && !screen.hide_cursor()
            && modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }
}
