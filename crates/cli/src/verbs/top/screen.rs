//! The terminal while it is ours, and as it was before once it is not: whether the command ends in
//! order, by an error, by a panic or by a signal.

use std::io;

use ratatui::crossterm::terminal;
use ratatui::{DefaultTerminal, Frame};

/// What a terminal has at most, columns times lines; each takes a hundred bytes.
const MOST_CELLS: u32 = 1 << 20;

/// The whole screen. Dropping it gives the terminal back; so does a panic, before its message.
pub struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// If there is none, or it says that it is larger than any.
    pub fn enter() -> io::Result<Screen> {
        check_size()?;
        ratatui::try_init().map(Screen).inspect_err(|_| ratatui::restore())
    }
}

impl Screen {
    /// Draws, whatever its size is by now.
    ///
    /// # Errors
    /// If it cannot be written to, or says that it is larger than any.
    pub fn show(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        check_size()?;
        self.0.draw(draw).map(|_| ())
    }
}

fn check_size() -> io::Result<()> {
    let (columns, lines) = terminal::size()?;
    if u32::from(columns) * u32::from(lines) <= MOST_CELLS {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it says that it has {columns} columns and {lines} lines, which is too much to draw"
    )))
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
            screen.show(|frame| frame.render_widget("drawn", frame.area())).expect("drawn");
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
