//! The terminal while it is ours, and as it was before once it is not: whether the command ends in
//! order, by an error, by a panic or by a signal.

use std::io;
use std::ops::{Deref, DerefMut};

use ratatui::DefaultTerminal;

/// The whole screen. Dropping it gives the terminal back; so does a panic, before its message.
pub struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the terminal.
    pub fn enter() -> io::Result<Screen> {
        ratatui::try_init().map(Screen).inspect_err(|_| ratatui::restore())
    }
}

impl Deref for Screen {
    type Target = DefaultTerminal;

    fn deref(&self) -> &DefaultTerminal {
        &self.0
    }
}

impl DerefMut for Screen {
    fn deref_mut(&mut self) -> &mut DefaultTerminal {
        &mut self.0
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        ratatui::restore();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use clew_fixture::terminal::Terminal;

    use super::*;

    /// Set in the process that panics.
    const PANICS: &str = "CLEW_TEST_PANICS";

    #[test]
    fn a_panic_gives_the_terminal_back() {
        if std::env::var_os(PANICS).is_some() {
            let mut screen = Screen::enter().expect("a terminal");
            screen.draw(|frame| frame.render_widget("drawn", frame.area())).expect("drawn");
            // Until it was seen that the terminal is taken.
            std::io::stdin().read_line(&mut String::new()).expect("a key");
            panic!("on purpose");
        }
        let mut terminal = Terminal::open(80, 24);
        assert!(terminal.is_as_before());
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        let thread = std::thread::current();
        let test = thread.name().expect("tests have names");
        let mut child =
            terminal.spawn(command.args(["--exact", test, "--nocapture"]).env(PANICS, "1"));
        terminal.wait(Duration::from_secs(60), |screen| screen.starts_with("drawn"));
        assert!(!terminal.is_as_before());
        terminal.press("\n");
        assert!(!child.wait().expect("it was started here").success());
        // Its message is on the screen that a shell shows.
        terminal.wait(Duration::from_secs(60), |screen| screen.contains("on purpose"));
        // What follows it may come a moment later.
        let began = std::time::Instant::now();
        while !terminal.is_as_before() {
            assert!(began.elapsed() < Duration::from_secs(60), "the terminal is not given back");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
