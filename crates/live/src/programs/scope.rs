//! Which app a program is of where its environment does not say: that of its systemd unit, as desktops and
//! the user's service manager start what a user opens ("Desktop Environments",
//! systemd.io/DESKTOP_ENVIRONMENTS: `app[-<launcher>]-<id>-<random>.scope`, `app[-<launcher>]-<id>[@<random>].service`,
//! `app[-<launcher>]-<id>.slice`).

use std::fs::File;
use std::io::Read;

use crate::programs::name;

/// Bytes of what is read of a process's control groups.
const MOST_BYTES: u64 = 64 << 10;

/// Where a user's apps are.
const APPS: &str = "app.slice";

/// The app of this process, by its unit; `None` where it is in none of an app.
pub fn app_of(pid: u32) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(format!("/proc/{pid}/cgroup")).ok()?;
    file.take(MOST_BYTES).read_to_end(&mut text).ok()?;
    by_groups(&String::from_utf8_lossy(&text))
}

/// The app of a process in these control groups (a line a hierarchy: number, controllers, path).
fn by_groups(text: &str) -> Option<String> {
    let systemds = |line: &'_ str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        ["", "name=systemd"].contains(&controllers).then(|| path.to_string())
    };
    text.lines().filter_map(systemds).find_map(|path| by_path(&path))
}

/// What is deepest in the group that is an app's; else what is right below all apps.
fn by_path(path: &str) -> Option<String> {
    let (_, below) = path.split_once(&format!("/{APPS}/"))?;
    let units = || below.split('/').filter(|unit| !unit.is_empty());
    let name = units().rev().find_map(id).or_else(|| {
        let (name, kind) = units().next()?.rsplit_once('.')?;
        ["scope", "service"].contains(&kind).then(|| unescaped(name))
    })?;
    Some(name::bounded(&name)).filter(|name| !name.is_empty())
}

/// The id of the app whose unit this is.
fn id(unit: &str) -> Option<Vec<u8>> {
    let (name, kind) = unit.rsplit_once('.')?;
    let parts: Vec<&str> = name.strip_prefix("app-")?.split('-').collect();
    let id = match (kind, parts.as_slice()) {
        // What tells the scopes of one app apart is last.
        ("scope", [id, _] | [_, id, _]) => *id,
        ("service" | "slice", [id] | [_, id]) => *id,
        _ => return None,
    };
    let id = if kind == "service" { id.split('@').next().unwrap_or(id) } else { id };
    Some(unescaped(id)).filter(|id| !id.is_empty())
}

/// What systemd has written so: `\xHH` is a byte.
fn unescaped(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = rest.strip_prefix(b"\\x").and_then(|hex| hex.get(..2));
        let digits = hex.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = digits.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_desktop_has_started_is_the_app_of_its_unit() {
        let of = |unit: &str| {
            let user = "/user.slice/user-1000.slice/user@1000.service";
            by_groups(&format!("12:memory:/elsewhere\n0::{user}/app.slice/{unit}\n"))
        };
        for (unit, app) in [
            ("app-gnome-org.mozilla.firefox-4711.scope", Some("org.mozilla.firefox")),
            ("app-sway-foot-815.scope", Some("foot")),
            ("app-foot-815.scope", Some("foot")),
            ("app-gnome-a\\x2db-1.scope", Some("a-b")),
            ("app-org.kde.okular@a1b2.service", Some("org.kde.okular")),
            ("app-firefox@autostart.service", Some("firefox")),
            ("app-org.gnome.Terminal.slice/vte-spawn-1f.scope", Some("org.gnome.Terminal")),
            ("app-gnome-x.slice/app-gnome-editor-7.scope/sub", Some("editor")),
            ("emacs.service", Some("emacs")),
            ("tmux-spawn-0a.scope/x", Some("tmux-spawn-0a")),
            // Too many parts to be an app's, but all the same it is one unit.
            ("app-a-b-c-1.scope", Some("app-a-b-c-1")),
            ("app-.scope", Some("app-")),
            ("other.slice", None),
            ("", None),
        ] {
            assert_eq!(of(unit).as_deref(), app, "{unit}");
        }
        let long = of(&format!("app-{}-1.scope", "ö".repeat(99))).expect("an app");
        assert!(long.len() <= clew_agent::protocol::MAX_NAME, "{long}");
    }

    #[test]
    fn whoever_is_in_no_unit_of_an_app_is_of_none() {
        for groups in [
            "",
            "nonsense",
            "0::/",
            "0::/user.slice/user-1000.slice/session-2.scope",
            "4:memory:/app.slice/app-x-1.scope",
            "0::/app.slice",
        ] {
            assert_eq!(by_groups(groups), None, "{groups}");
        }
        let old = "9:name=systemd:/user.slice/app.slice/app-x-1.scope\n0::/\n";
        assert_eq!(by_groups(old).as_deref(), Some("x"));
        assert_eq!(unescaped("a\\x2"), b"a\\x2");
        assert_eq!(unescaped("\\x+1\\xzz\\x41"), b"\\x+1\\xzzA");
    }
}
