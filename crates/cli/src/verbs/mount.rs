//! `clew mount`.

mod with_daemon;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clew_core::{ByteSize, CodecKind};
use clew_live::control::trusted_path;
use clew_mount::{
    Ending, Leaves, MountConfig, MountError, Status, mount as mount_directory, status,
};
use rustix::io::Errno;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use with_daemon::Sharing;

use crate::Failure;
use crate::output::{self, Format};

/// How soon a signal is heeded, at the latest.
const ROUND: Duration = Duration::from_millis(50);

/// What is mounted, and where.
#[derive(clap::Args)]
pub struct Args {
    /// The directory whose files are read through the mount; with --status, where it is mounted.
    directory: PathBuf,
    /// Where they are seen: a directory.
    #[arg(required_unless_present = "status", conflicts_with = "status")]
    mount_point: Option<PathBuf>,
    /// What compressed pages may take; 0 for none, then files are only passed through.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    budget: ByteSize,
    /// Share the daemon's budget with its programs: it says how much of --budget the pool may have, and says it
    /// again all the time.
    #[arg(long, conflicts_with = "status")]
    with_daemon: bool,
    /// How much of these files the kernel may keep uncompressed: beyond it, what it was given longest ago
    /// is taken from its page cache.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    cache: ByteSize,
    /// What enters the pool: selective for pages that are worth their room, by the entropy of their beginning and what
    /// is in the pool; or all.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Admit::Selective)]
    admit: Admit,
    /// What leaves the pool for others: lru for what was used longest ago; or lottery for frames that hold little
    /// (ezswap's compressibility-aware replacement, in a pool of z3fold).
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Evict::Lru)]
    evict: Evict,
    /// Let other users use the mount, each with his own rights (root only).
    #[arg(long)]
    allow_other: bool,
    /// How long the kernel may believe names and attributes, in milliseconds. Above 0, reads are quicker, and
    /// a change made in DIRECTORY itself may be seen that much later.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    believe: u64,
    /// Say what a mount has done and holds, and end.
    #[arg(long)]
    status: bool,
}

/// What may enter the pool.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Admit {
    Selective,
    All,
}

/// What leaves the pool.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Evict {
    Lru,
    Lottery,
}

/// `clew mount`.
pub fn mount(daemon: impl FnOnce() -> PathBuf, format: Format, args: Args) -> Result<(), Failure> {
    if args.status {
        let status = status(&args.directory).map_err(|e| Failure::Input(e.into()))?;
        return show(format, &status);
    }
    let mount_point = args.mount_point.context("no place to mount at")?;
    // Before anything is mounted, and before signals are heeded: who ends this meanwhile ends it.
    let sharing = match args.with_daemon {
        true => Some(Sharing::begin(daemon(), args.budget)?),
        false => None,
    };
    let over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, over.clone()).context("heeding signals")?;
    }
    // Root's mount could be had anywhere by who changes a link on the way to it, and have anything shown to others who changes
    // one on the way to the directory.
    let is_root = trusted_path::own_uid() == 0;
    let is_trusted = |path| trusted_path::resolve(path).is_ok();
    let may_follow = !is_root || is_trusted(&mount_point);
    let may_follow_below = !is_root || !args.allow_other || is_trusted(&args.directory);
    let mounted = mount_directory(MountConfig {
        directory: args.directory.clone(),
        mount_point: mount_point.clone(),
        memory_bytes: args.budget.0,
        cache_bytes: args.cache.0,
        codec: CodecKind::Lz4,
        leaves: match args.evict {
            Evict::Lru => Leaves::Oldest,
            Evict::Lottery => Leaves::Lottery,
        },
        selective: args.admit == Admit::Selective,
        allow_other: args.allow_other,
        may_follow,
        may_follow_below,
        timeout: Duration::from_millis(args.believe),
    })
    .map_err(|error| match error {
        MountError::Path { ref path, source: Errno::LOOP }
            if !(may_follow && may_follow_below) =>
        {
            Failure::Input(anyhow!(
                "{}: a link leads there, and others may change what is on the way: say where it leads",
                path.display()
            ))
        }
        MountError::Path { .. } | MountError::Silent(_) | MountError::RootDirectory => Failure::Input(error.into()),
        MountError::NotRoot | MountError::Mounting { .. } => Failure::Unfit(error.into()),
        _ => Failure::Failed(error.into()),
    })?;
    if mounted.cleared {
        remark!("clew: a mount whose server had died was cleared away first");
    }
    if let (Some(sharing), Some(pool)) = (sharing, mounted.pool()) {
        sharing.share(pool)?;
    }
    remark!(
        "clew: {} is mounted at {} (budget {}{})",
        args.directory.display(),
        mount_point.display(),
        args.budget,
        if args.with_daemon { " at most, as the daemon says" } else { "" }
    );
    while !over.load(Relaxed) && !mounted.is_over() {
        std::thread::sleep(ROUND);
    }
    let status = mounted.status();
    match mounted.end() {
        Ending::Unmounted => show(format, &status),
        Ending::Failed(error) => Err(Failure::Failed(error.into())),
    }
}

fn show(format: Format, status: &Status) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(status);
    }
    let row = |name: &str, value: String| vec![name.to_string(), value];
    let bytes = |bytes: u64| ByteSize(bytes).to_string();
    let rows = vec![
        row("directory", status.directory.display().to_string()),
        row("pool", format!("{} of {}", bytes(status.pool_bytes), bytes(status.memory_bytes))),
        row("pages in it", status.pool_pages.to_string()),
        row("pages that left it for others", status.pool_left_pages.to_string()),
        row("requests come by", if status.by_io_uring { "io_uring" } else { "/dev/fuse" }.into()),
        row("reads", status.reads.to_string()),
        row("answered by the pool alone", status.reads_whole.to_string()),
        row("by pool and disk together", status.reads_partly.to_string()),
        row("pages from the pool", status.pages_from_pool.to_string()),
        row("pages from disk", status.pages_from_disk.to_string()),
        row("of these read ahead", status.pages_read_ahead.to_string()),
        row("pages not worth their room", status.pages_rejected.to_string()),
        row("pages taken from the page cache", status.pages_evicted.to_string()),
        row("pages the kernel dropped by itself", status.pages_dropped_by_kernel.to_string()),
        row("watched for changes", status.watches.to_string()),
        row("files changed behind its back", status.foreign_changes.to_string()),
        row("damaged pages, read again", status.damaged_pages.to_string()),
        row("writes", status.writes.to_string()),
    ];
    say!("{}", output::table(&["what", "how much"], rows));
    Ok(())
}
