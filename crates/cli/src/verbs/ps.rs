//! `clew ps`.

use std::path::Path;

use clew_core::ByteSize;
use clew_core::shown::beginning_shown;
use clew_live::control::client::Client;
use clew_live::control::status::{AppStatus, DonorStatus, Status, UserStatus};

use crate::Failure;
use crate::output::{Format, json, table};

/// Characters that are shown of what a daemon says outside of tables.
const MOST_OF_WORD: usize = 500;

/// `clew ps`.
pub fn ps(socket: &Path, format: Format) -> Result<(), Failure> {
    let status = Client::connect(socket)?.status()?;
    if format == Format::Json {
        return json(&status);
    }
    say_part!("{}", text(&status));
    Ok(())
}

fn text(status: &Status) -> String {
    let status = &status.clone().with_users_in_names();
    let size = |bytes| ByteSize(bytes).to_string();
    let stored = |pages: u64| ByteSize(pages.saturating_mul(4096)).to_string();
    let ratio = |r: f64| match r {
        0.0 => "-".to_string(),
        // No pool has that: short, whatever it is.
        r if r.abs() >= 1e6 => format!("{r:.1e}"),
        r => format!("{r:.2}"),
    };
    let mut out = format!(
        "scheme {}, {} of {} in use",
        beginning_shown(&status.scheme, MOST_OF_WORD),
        size(status.used_bytes),
        size(status.budget_bytes),
    );
    match status.of_user {
        Some(uid) => out.push_str(&format!(" by you (user {uid}), in a service for all users\n")),
        None => out.push_str(&format!(
            "; pool {} of {}, ratio {}{}; daemon {}\n",
            size(status.pool.used_bytes),
            size(status.pool.limit_bytes),
            ratio(status.pool.ratio),
            if status.pool.full { ", FULL" } else { "" },
            size(status.daemon_bytes),
        )),
    }
    for mount in &status.mounts {
        out.push_str(&format!(
            "mount of process {}: {} of {} for pages of files, {} of which were read\n",
            mount.pid,
            size(mount.held_bytes),
            size(mount.limit_bytes),
            mount.hits,
        ));
    }
    let on_flash = status.tiers.iter().find(|tier| tier.tier == "flash");
    if let (Some(flash), Some(tier)) = (&status.flash, on_flash) {
        out.push_str(&format!(
            "flash {} of {}, {} pages; {} written, {} read{}\n",
            size(tier.used_bytes),
            tier.limit_bytes.map_or("-".to_string(), size),
            tier.stored_pages,
            size(flash.written_bytes),
            size(flash.read_bytes),
            flash.latched.as_ref().map_or(String::new(), |why| {
                format!("; TAKES NOTHING MORE: {}", beginning_shown(why, MOST_OF_WORD))
            }),
        ));
    }
    if !status.donors.is_empty() {
        let rows = status.donors.iter().map(donor_row).collect();
        let header = ["DONOR", "STATE", "PAGES", "FREE", "SENT", "QUEUE", "CUTS", "WHY"];
        out.push_str(&table(&header, rows));
        out.push('\n');
    }
    if !status.users.is_empty() {
        let rows = status.users.iter().map(user_row).collect();
        out.push_str(&table(&["USER", "APPS", "IN USE", "OF", "IN POOL"], rows));
        out.push('\n');
    }
    if status.apps.is_empty() {
        out.push_str("no apps ('clew run -- CMD' starts one)\n");
        return out;
    }
    let rows = status
        .apps
        .iter()
        .map(|app| {
            vec![
                app.name.clone(),
                app.state.clone(),
                app.processes.len().to_string(),
                size(app.resident_bytes),
                stored(app.stored_pages),
                ratio(app.ratio),
                app.faults.to_string(),
                stored(app.restored_pages),
            ]
        })
        .collect();
    let header = ["APP", "STATE", "PROCS", "RESIDENT", "STORED", "RATIO", "FAULTS", "RESTORED"];
    out.push_str(&table(&header, rows));
    out.push('\n');
    let unmanaged: Vec<Vec<String>> = status
        .apps
        .iter()
        .flat_map(|app| app.processes.iter().map(move |p| (app, p)))
        .filter(|(_, p)| !p.managed)
        .map(|(app, p)| {
            let pid = if p.pid == 0 { "-".to_string() } else { p.pid.to_string() };
            vec![pid, p.command.clone(), app.name.clone(), p.reason.clone()]
        })
        .collect();
    if !unmanaged.is_empty() {
        out.push_str("\nnot managed:\n");
        out.push_str(&table(&["PID", "COMMAND", "APP", "WHY"], unmanaged));
        out.push('\n');
    }
    let outside: Vec<Vec<String>> = status.apps.iter().flat_map(outside_of).collect();
    if !outside.is_empty() {
        out.push_str("\noutside (memory that cannot be taken):\n");
        out.push_str(&table(&["APP", "BYTES", "WHAT"], outside));
        out.push('\n');
    }
    let thrashing: Vec<Vec<String>> = status
        .apps
        .iter()
        .filter_map(|app| {
            let t = app.thrashing.as_ref()?;
            let lost = format!("{:.0} %", t.lost_percent);
            Some(vec![app.name.clone(), lost, size(t.enough_budget_bytes)])
        })
        .collect();
    if !thrashing.is_empty() {
        out.push_str("\nthrashing (pages leave, come back at once and leave again):\n");
        out.push_str(&table(&["APP", "TIME LOST", "BUDGET THAT WOULD END IT"], thrashing));
        out.push('\n');
    }
    out
}

fn user_row(user: &UserStatus) -> Vec<String> {
    let size = |bytes| ByteSize(bytes).to_string();
    vec![
        user.uid.to_string(),
        user.apps.to_string(),
        size(user.used.total()),
        user.budget_bytes.map_or("-".to_string(), size),
        size(user.used.pool_bytes),
    ]
}

fn donor_row(donor: &DonorStatus) -> Vec<String> {
    let size = |bytes| ByteSize(bytes).to_string();
    vec![
        donor.at.clone(),
        donor.state.name().to_string(),
        donor.stored_pages.to_string(),
        size(donor.free_bytes),
        size(donor.sent_bytes),
        size(donor.waiting_bytes),
        donor.cuts.to_string(),
        donor.why.clone().unwrap_or_default(),
    ]
}

/// Rows for an app's shared memory and for what may be executed, and one for each process that is not managed.
fn outside_of(app: &AppStatus) -> Vec<Vec<String>> {
    let row = |bytes, what| vec![app.name.clone(), ByteSize(bytes).to_string(), what];
    let shared = app.outside.shared_bytes;
    let mut rows = Vec::new();
    if shared > 0 {
        rows.push(row(shared, "shared memory".to_string()));
    }
    let executable = app.outside.executable_bytes;
    if executable > 0 {
        rows.push(row(executable, "memory that may be written and executed".to_string()));
    }
    for p in &app.outside.processes {
        let who = format!("{} (pid {}, user {})", p.command, p.pid, p.uid);
        rows.push(row(p.bytes, format!("{who}: {}", p.reason)));
    }
    let of_processes = app.outside.processes.iter().map(|p| p.bytes);
    let named = [shared, executable].into_iter().chain(of_processes).fold(0, u64::saturating_add);
    if app.outside.bytes > named {
        rows.push(row(app.outside.bytes - named, "other processes".to_string()));
    }
    rows
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clew_live::control::status::{
        OutsideProcess, OutsideStatus, PoolStatus, ProcessStatus, ThrashingStatus,
    };

    /// One with a weak link.
    pub fn a_donor() -> DonorStatus {
        DonorStatus {
            at: "tv:7471".into(),
            state: clew_core::DonorState::Weak,
            why: Some("its link is weak or busy".into()),
            stored_pages: 512,
            live_bytes: 2 << 20,
            free_bytes: 1 << 30,
            sent_bytes: 6 << 20,
            received_bytes: 0,
            waiting_bytes: 65_536,
            round_trip_us: None,
            connections: 3,
            cuts: 2,
            read_errors: 0,
        }
    }

    #[test]
    fn donors_are_said() {
        let text = text(&Status { donors: vec![a_donor()], ..Default::default() });
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        let row = "tv:7471 weak 512 1.00 GiB 6.0 MiB 64.0 KiB 2 its link is weak or busy";
        assert!(text.lines().any(|line| words(line) == row), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    }

    #[test]
    fn what_is_not_managed_is_said() {
        let process = ProcessStatus {
            pid: 7,
            command: "busybox".into(),
            reason: "it is statically linked".into(),
            ..Default::default()
        };
        let app = AppStatus { name: "box".into(), processes: vec![process], ..Default::default() };
        let text = text(&Status { apps: vec![app], ..Default::default() });
        assert!(text.contains("statically linked") && text.contains("not managed"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    }

    #[test]
    fn no_number_is_too_large_to_be_shown() {
        let process = || OutsideProcess { bytes: u64::MAX, ..Default::default() };
        let processes = vec![process(), process()];
        let app = AppStatus {
            name: "x".into(),
            stored_pages: u64::MAX,
            restored_pages: u64::MAX,
            ratio: 1e308,
            outside: OutsideStatus {
                bytes: u64::MAX,
                shared_bytes: u64::MAX,
                executable_bytes: u64::MAX,
                processes,
            },
            ..Default::default()
        };
        let pool = PoolStatus { ratio: 1e308, used_bytes: u64::MAX, ..Default::default() };
        let text = text(&Status { pool, apps: vec![app], ..Default::default() });
        assert!(text.contains("1.0e308"), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 120), "{text}");
    }

    #[test]
    fn a_name_without_an_end_is_cut() {
        let name = |c: &str| c.repeat(1 << 20);
        let process = ProcessStatus { command: name("x"), ..Default::default() };
        let outside = OutsideProcess { reason: name("\u{4e2d}"), ..Default::default() };
        let outside = OutsideStatus { processes: vec![outside], ..Default::default() };
        let processes = vec![process];
        let app = AppStatus { name: name("\u{202e}"), processes, outside, ..Default::default() };
        let text = text(&Status { apps: vec![app], ..Default::default() });
        assert!(text.len() < 100_000, "{} bytes", text.len());
    }

    #[test]
    fn names_move_no_cursor_and_columns_stay_aligned() {
        let name = |i: usize| format!("{i}\u{1b}[2J\n\u{9b}2K\u{202e}\u{200b}\r");
        let app = |i: usize| {
            let reason = "\u{1b}]0;title\u{7}".to_string();
            let process = ProcessStatus { command: name(7), reason, ..Default::default() };
            let other = OutsideProcess { command: name(8), reason: name(9), ..Default::default() };
            AppStatus {
                name: name(i),
                state: "background".into(),
                processes: vec![process],
                outside: OutsideStatus {
                    bytes: 1,
                    shared_bytes: 1,
                    executable_bytes: 0,
                    processes: vec![other],
                },
                thrashing: Some(ThrashingStatus::default()),
                ..Default::default()
            }
        };
        let scheme = "\u{1b}[0m\n".to_string();
        let status = Status { scheme, apps: (9..12).map(app).collect(), ..Default::default() };
        let text = text(&status);
        let is_plain = |c: char| c == '\n' || c.is_ascii_graphic() || c == ' ';
        assert!(text.chars().all(is_plain), "{text:?}");
        let at: Vec<usize> = text.lines().filter_map(|line| line.find("background")).collect();
        assert!(at.len() == 3 && at.iter().all(|column| *column == at[0]), "{text}");
        assert!(text.lines().any(|line| line.find("STATE") == Some(at[0])), "{text}");
        assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    }

    #[test]
    fn memory_outside_and_thrashing_are_said() {
        let process = OutsideProcess {
            pid: 12,
            command: "postgres".into(),
            uid: 101,
            bytes: 38 << 20,
            reason: "it runs as another user".into(),
        };
        let outside = OutsideStatus {
            bytes: 453 << 20,
            shared_bytes: 412 << 20,
            executable_bytes: 2 << 20,
            processes: vec![process],
        };
        let thrashing = Some(ThrashingStatus {
            lost_percent: 43.2,
            enough_budget_bytes: 112 << 20,
            ..Default::default()
        });
        let app = AppStatus { name: "db".into(), outside, thrashing, ..Default::default() };
        let text = text(&Status { apps: vec![app], ..Default::default() });
        for row in [
            "db 412.0 MiB shared memory",
            "db 38.0 MiB postgres (pid 12, user 101): it runs as another user",
            "db 1.0 MiB other processes",
            "db 43 % 112.0 MiB",
        ] {
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.lines().any(|line| words(line) == row), "no '{row}' in\n{text}");
        }
    }
}
