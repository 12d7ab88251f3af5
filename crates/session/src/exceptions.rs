//! The list of programs that are left alone. Agents read it ([`clew_agent::except`]), so what is on it has none
//! from its next start on, whatever daemon serves.

/// Most bytes of a list: agents look at no more.
pub use clew_agent::except::MAX_LIST;

use crate::error::SessionError;

/// Most bytes of a file's name.
const MAX_FILE: usize = 255;

/// The list as its file has it: lines that say nothing stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceptions {
    lines: Vec<String>,
}

/// What is left alone unless its user says otherwise: what draws for all others, sounds, guards keys and
/// screens, and Clew itself.
const USUAL: &[&str] = &[
    "clew",
    "systemd",
    "dbus-daemon",
    "dbus-broker",
    "dbus-broker-launch",
    "gnome-shell",
    "gnome-session-binary",
    "kwin_wayland",
    "kwin_x11",
    "plasmashell",
    "sway",
    "i3",
    "Hyprland",
    "labwc",
    "wayfire",
    "weston",
    "openbox",
    "xfwm4",
    "Xorg",
    "Xwayland",
    "pipewire",
    "pipewire-pulse",
    "wireplumber",
    "pulseaudio",
    "gpg-agent",
    "ssh-agent",
    "gnome-keyring-daemon",
    "kwalletd5",
    "kwalletd6",
    "pinentry",
    "swaylock",
    "i3lock",
];

impl Exceptions {
    /// What a list begins with.
    pub fn usual() -> Exceptions {
        let said = [
            "# Programs that Clew leaves alone in this session: the name of an executable a line.",
            "# 'clew session except NAME' and 'clew session include NAME' change it; what is on it has no agent from its",
            "# next start on.",
        ];
        Exceptions { lines: said.iter().chain(USUAL).map(ToString::to_string).collect() }
    }

    /// The list that this text is.
    pub fn of(text: &str) -> Exceptions {
        Exceptions { lines: text.lines().map(str::to_string).collect() }
    }

    /// As its file has it.
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The names on it, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.lines
            .iter()
            .map(|line| line.trim())
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
    }

    /// Whether the list has no end that an agent would find: then everybody is an exception.
    pub fn is_too_long(&self) -> bool {
        self.text().len() >= MAX_LIST
    }

    /// Puts a name on the list; whether it was not there.
    ///
    /// # Errors
    /// If no executable can have it.
    pub fn add(&mut self, name: &str) -> Result<bool, SessionError> {
        let is_name = (1..=MAX_FILE).contains(&name.len())
            && name == name.trim()
            && !name.starts_with('#')
            && !name.contains(|c: char| c == '/' || c.is_control());
        if !is_name {
            return Err(SessionError::NoExecutable { name: name.to_string() });
        }
        let is_new = !self.names().any(|other| other == name);
        if is_new {
            self.lines.push(name.to_string());
        }
        Ok(is_new)
    }

    /// Takes a name off the list; whether it was there.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| line.trim() != name || name.starts_with('#'));
        before != self.lines.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go_and_what_a_user_wrote_stays() {
        let mut list = Exceptions::of("# mine\n\n  steam\nsway");
        assert_eq!(list.names().collect::<Vec<_>>(), ["steam", "sway"]);
        assert!(!list.add("steam").expect("a name"), "it is there");
        assert!(list.add("rr").expect("a name"));
        assert!(list.remove("steam") && !list.remove("steam"));
        assert!(!list.remove("# mine"), "that is no name");
        assert_eq!(list.text(), "# mine\n\nsway\nrr\n");
        for no in ["", "#x", "a/b", "a\nb", " a", &"x".repeat(256)] {
            assert!(matches!(list.add(no), Err(SessionError::NoExecutable { .. })), "{no:?}");
        }
        let text = Exceptions::usual().text();
        assert_eq!(Exceptions::of(&text), Exceptions::usual());
        assert!(text.lines().all(|line| line.len() < 120) && !Exceptions::usual().is_too_long());
        let long = "x".repeat(200);
        for i in 0..=MAX_LIST / 200 {
            list.add(&format!("{long}{i}")).expect("a name");
        }
        assert!(list.is_too_long());
    }
}
