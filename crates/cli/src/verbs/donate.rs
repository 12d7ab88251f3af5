//! `clew donate` and `clew pair`.

use std::cell::Cell;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clew_core::ByteSize;
use clew_live::config::keys_directory;
use clew_live::donor_tier;
use clew_remote::donor::{Donor, Lending, Lent};
use clew_remote::keys::Keys;
use clew_remote::pairing::waiting::{self, PATIENCE};
use clew_remote::pairing::{self, PairError};
use clew_remote::secure::Until;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::Failure;
use crate::output::{self, Format};

/// How soon a signal is heeded, at the latest.
const ROUND: Duration = Duration::from_millis(100);
/// How long a code is good for.
const CODE_LIFE: Duration = Duration::from_secs(600);

/// Who comes to pair and does not know the code is named, the first of them.
const MOST_NAMED: u32 = 16;

/// What is lent, and to whom.
#[derive(clap::Args)]
pub struct Args {
    /// How much memory is lent, to all borrowers together.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: ByteSize,
    /// Where borrowers come to.
    #[arg(long, value_name = "ADDR", default_value = "0.0.0.0:7471")]
    listen: String,
    /// What this machine wants to have available for itself: with less than that it asks for its memory back,
    /// and takes it ten seconds later.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    reserve: ByteSize,
    /// How long memory is kept for a borrower whose link is cut, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    keep: u64,
    /// Where this machine's keys are, and those that it knows [default: /var/lib/clew/keys, or below
    /// ~/.local/state for others than root].
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Show a code, wait for one machine that says it ('clew pair'), know it from then on, and end.
    #[arg(long)]
    pair: bool,
}

/// What a donor has lent when it ends.
#[derive(Serialize)]
struct Said {
    links: usize,
    used_bytes: u64,
    free_bytes: u64,
    pressed: bool,
    written_bytes: u64,
    read_bytes: u64,
}

impl From<Lent> for Said {
    fn from(lent: Lent) -> Said {
        let Lent { links, used_bytes, free_bytes, pressed, written_bytes, read_bytes } = lent;
        Said { links, used_bytes, free_bytes, pressed, written_bytes, read_bytes }
    }
}

fn open_keys(keys: Option<PathBuf>) -> Result<Keys, Failure> {
    let directory = keys.unwrap_or_else(keys_directory);
    donor_tier::open_keys(&directory).map_err(|error| Failure::Input(error.into()))
}

/// What this machine calls itself.
fn own_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

/// `clew donate`.
pub fn donate(format: Format, args: Args) -> Result<(), Failure> {
    let keys = open_keys(args.keys)?;
    let listener = TcpListener::bind(&args.listen)
        .with_context(|| format!("listening at {}", args.listen))
        .map_err(Failure::Input)?;
    let address = listener.local_addr().context("where it listens")?;
    let (over, takes_back) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, over.clone()).context("heeding signals")?;
    }
    signal_hook::flag::register(SIGUSR1, takes_back.clone()).context("heeding signals")?;
    if args.pair {
        return pair_as_donor(&listener, &keys, &over);
    }
    if args.memory.0 == 0 {
        return Err(Failure::Input(anyhow!("--memory 0: nothing would be lent")));
    }
    // Later it could be told to nobody but who links.
    keys.known().map_err(|error| Failure::Input(error.into()))?;
    let lending = Lending {
        reserve_bytes: args.reserve.0,
        keep: Duration::from_secs(args.keep),
        ..Lending::of(args.memory.0)
    };
    let donor = Donor::new(listener, keys, lending).context("beginning to lend")?;
    remark!(
        "clew: up to {} are lent at {address}; SIGUSR1 takes it back, or lends again",
        args.memory
    );
    let mut is_taken_back = false;
    while !over.load(Relaxed) {
        std::thread::sleep(ROUND);
        if takes_back.swap(false, Relaxed) {
            is_taken_back = !is_taken_back;
            donor.press(is_taken_back);
            let what = if is_taken_back { "the memory is wanted back" } else { "it is lent again" };
            remark!("clew: {what}");
        }
    }
    let lent = donor.lent();
    if format == Format::Json {
        return output::json(&Said::from(lent));
    }
    let (written, read) = (ByteSize(lent.written_bytes), ByteSize(lent.read_bytes));
    remark!("clew: {written} were written here, and {read} read");
    Ok(())
}

fn pair_as_donor(listener: &TcpListener, keys: &Keys, over: &AtomicBool) -> Result<(), Failure> {
    let code = pairing::code().map_err(|error| Failure::Failed(error.into()))?;
    say!("{code}");
    let port = listener.local_addr().map(|at| at.port()).unwrap_or_default();
    remark!(
        "clew: say so on the other machine, within ten minutes: clew pair THIS-HOST:{port} {code}"
    );
    let since = Instant::now();
    let goes_on = || !over.load(Relaxed) && since.elapsed() < CODE_LIFE;
    let named = Cell::new(0u32);
    // The code would be out of sight.
    let failed = |from, error: &PairError| match named.replace(named.get().saturating_add(1)) {
        ..MOST_NAMED => remark!("clew: {from}: {error}"),
        MOST_NAMED => remark!("clew: {from}: {error}; no more are named"),
        _ => {}
    };
    let name = own_name();
    let know = |key, calls_itself: &str| keys.know_one_more(key, calls_itself);
    let why = match waiting::first(listener, &code, &keys.identity, &name, goes_on, failed, know) {
        Ok(Some((key, name))) => {
            say!("{name} ({key}) is known from now on");
            return Ok(());
        }
        Ok(None) => "nobody said the code",
        Err(PairError::Tries) => "three wrong codes",
        Err(error) => return Err(Failure::Failed(error.into())),
    };
    Err(Failure::Failed(anyhow!("{why}: begin anew with 'clew donate --pair'")))
}

/// Who is paired with.
#[derive(clap::Args)]
pub struct PairArgs {
    /// Where 'clew donate --pair' waits: HOST:PORT. The daemon names the donor alike (--donor).
    address: String,
    /// The code that it shows.
    code: String,
    /// Where this machine's keys are, and those that it knows [default: as of 'clew donate'].
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

/// `clew pair`.
pub fn pair(args: PairArgs) -> Result<(), Failure> {
    let keys = open_keys(args.keys)?;
    let resolved = args.address.to_socket_addrs();
    let mut resolved = resolved
        .with_context(|| format!("{} is no HOST:PORT", args.address))
        .map_err(Failure::Input)?;
    let at = resolved
        .next()
        .ok_or_else(|| Failure::Input(anyhow!("{} has no address", args.address)))?;
    let stream = TcpStream::connect_timeout(&at, PATIENCE);
    let stream = stream.with_context(|| format!("nobody is at {}", args.address))?;
    let mut until = Until::from_now(&stream, PATIENCE);
    let paired = pairing::borrow(&mut until, &args.code, &keys.identity, &own_name());
    let (key, name) = paired.map_err(|error| match error {
        PairError::Code => Failure::Input(error.into()),
        PairError::Stranger
        | PairError::System(_)
        | PairError::Tries
        | PairError::Late
        | PairError::Key(_)
        | PairError::Keys(_)
        | PairError::Unknown
        | PairError::Random(_) => Failure::Failed(error.into()),
    })?;
    keys.know(key, &args.address).map_err(|error| Failure::Failed(error.into()))?;
    say!("{name} ({key}) is known as {} from now on", args.address);
    Ok(())
}
