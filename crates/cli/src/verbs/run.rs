//! `clew run`: puts the agent into a program's environment and becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clew_core::ByteSize;
use clew_live::config::Overrides;
use clew_live::control::{Client, Environment, Request};

use crate::Failure;

/// What to run, and how.
#[derive(clap::Args)]
pub struct Args {
    /// Name of the app [default: the program's file name].
    #[arg(long, value_name = "NAME")]
    app: Option<String>,
    /// Scheme of the private daemon, if none serves yet.
    #[arg(long, value_name = "NAME|FILE.toml")]
    scheme: Option<String>,
    /// Budget of the private daemon, if none serves yet.
    #[arg(long, value_name = "SIZE")]
    budget: Option<ByteSize>,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// `clew run -- CMD…`. Returns only if the program could not be started.
pub fn run(socket: &Path, args: Args) -> Result<(), Failure> {
    let program = find_program(&args.command[0]).map_err(Failure::NotFound)?;
    let app = match args.app {
        Some(name) if name.is_empty() || name.len() > 63 => {
            return Err(Failure::Input(anyhow!("an app's name has 1 to 63 bytes")));
        }
        Some(name) => name,
        None => {
            program.file_name().unwrap_or_default().to_string_lossy().chars().take(30).collect()
        }
    };
    let mut client = match Client::connect(socket) {
        Ok(client) => {
            if args.scheme.is_some() || args.budget.is_some() {
                return Err(Failure::Input(anyhow!(
                    "a daemon serves {} already: --scheme and --budget are for a private one \
                     (name another --socket)",
                    socket.display()
                )));
            }
            client
        }
        Err(_) => start_private(socket, &args.scheme, args.budget)?,
    };
    let environment: Environment = client.call(&Request::Environment)?;
    let unmanaged = why_unmanaged(&program);
    if let Some(reason) = &unmanaged {
        eprintln!("clew: {} runs unmanaged: {reason}", program.display());
    }
    client.order(&Request::Started {
        app: app.clone(),
        pid: std::process::id(),
        command: program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        unmanaged,
    })?;
    let mut preload = environment.agent_object.clone().into_os_string();
    if let Some(other) = std::env::var_os("LD_PRELOAD").filter(|v| !v.is_empty()) {
        preload.push(":");
        preload.push(other);
    }
    let error = Command::new(&program)
        .arg0(&args.command[0])
        .args(&args.command[1..])
        .env("LD_PRELOAD", preload)
        .env("CLEW_AGENT_SOCKET", &environment.agent_socket)
        .env("CLEW_APP", &app)
        .exec();
    Err(Failure::Failed(anyhow!("cannot run {}: {error}", program.display())))
}

/// The file that `name` means, as a shell would find it.
pub fn find_program(name: &OsString) -> anyhow::Result<PathBuf> {
    let path = Path::new(name);
    if path.components().count() > 1 {
        path.metadata().with_context(|| format!("cannot run {}", path.display()))?;
        return Ok(path.to_path_buf());
    }
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs)
        .map(|dir| dir.join(name))
        .find(|file| {
            use std::os::unix::fs::PermissionsExt;
            file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
        })
        .ok_or_else(|| anyhow!("no program '{}' in PATH", path.display()))
}

/// Why nothing can be preloaded into `program`, as far as its file shows.
fn why_unmanaged(program: &Path) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let mode = program.metadata().ok()?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Some("it is setuid or setgid, and the loader drops the agent".into());
    }
    // The headers are at the beginning; reading all of a large program would cost its size.
    let mut bytes = Vec::new();
    let file = std::fs::File::open(program).ok()?;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, 64 << 10), &mut bytes).ok()?;
    if !bytes.starts_with(b"\x7fELF") {
        return None; // a script: its interpreter decides
    }
    // Program headers of a 64-bit ELF: entry size and count at 54 and 56, their offset at 32.
    let word = |at: usize, n: usize| -> Option<u64> {
        let part = bytes.get(at..at + n)?;
        Some(part.iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b)))
    };
    let (offset, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    const PT_INTERP: u64 = 3;
    let dynamic = (0..count).any(|i| word((offset + i * size) as usize, 4) == Some(PT_INTERP));
    (!dynamic).then(|| "it is statically linked, so nothing can be preloaded into it".into())
}

/// Starts a daemon that ends with its last program, as nobody's child of ours.
fn start_private(
    socket: &Path,
    scheme: &Option<String>,
    budget: Option<ByteSize>,
) -> Result<Client, Failure> {
    if let Some(missing) = clew_live::doctor::first_missing() {
        return Err(Failure::Unfit(anyhow!("{missing} ('clew doctor' says more)")));
    }
    let over =
        Overrides { budget, scheme: scheme.clone(), exit_when_idle: true, ..Overrides::default() };
    clew_live::config::Config::load(None, &over).map_err(|e| Failure::Input(e.into()))?;
    let own = std::env::current_exe().context("finding this program")?;
    let mut words: Vec<OsString> =
        vec![own.into(), "--socket".into(), socket.into(), "daemon".into()];
    words.push("--exit-when-idle".into());
    if let Some(scheme) = scheme {
        words.extend(["--scheme".into(), scheme.into()]);
    }
    if let Some(budget) = budget {
        words.extend(["--budget".into(), budget.0.to_string().into()]);
    }
    // A shell in between ends at once, so the daemon is not the program's child: the program would
    // see it when it waits for its own.
    let status = Command::new("/bin/sh")
        .args(["-c", "\"$@\" </dev/null >/dev/null 2>&1 &", "sh"])
        .args(&words)
        .stdin(Stdio::null())
        .process_group(0)
        .status()
        .context("starting a private daemon")?;
    if !status.success() {
        return Err(Failure::Failed(anyhow!("starting a private daemon: {status}")));
    }
    let began = Instant::now();
    loop {
        if let Ok(mut client) = Client::connect(socket)
            && client.status().is_ok()
        {
            return Ok(client);
        }
        if began.elapsed() > Duration::from_secs(5) {
            return Err(Failure::Failed(anyhow!(
                "the private daemon at {} did not come up (try 'clew daemon' to see why)",
                socket.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
