//! `clew ps`.

use std::path::Path;

use clew_core::ByteSize;
use clew_live::control::{Client, Status};

use crate::Failure;
use crate::output::{Format, json, table};

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
    let size = |bytes| ByteSize(bytes).to_string();
    let stored = |pages: u64| ByteSize(pages * 4096).to_string();
    let ratio = |r: f64| if r == 0.0 { "-".to_string() } else { format!("{r:.2}") };
    let mut out = format!(
        "scheme {}, {} of {} in use; pool {} of {}, ratio {}{}; daemon {}\n",
        status.scheme,
        size(status.used_bytes),
        size(status.budget_bytes),
        size(status.pool.used_bytes),
        size(status.pool.limit_bytes),
        ratio(status.pool.ratio),
        if status.pool.full { ", FULL" } else { "" },
        size(status.daemon_bytes),
    );
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
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_live::control::{AppStatus, ProcessStatus};

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
}
