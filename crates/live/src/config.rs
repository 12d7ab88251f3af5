//! `clew.toml`: what the daemon is told. Every field is described in docs/operations.md.

use clew_policy::schemes::toml_error;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clew_core::ByteSize;
use clew_engine::budget::{Budget, WATERMARKS};
use clew_engine::driver::Sensor;
use clew_policy::schemes::Scheme;
use clew_trace::{ContentsKind, regular};
use nix::unistd::Group;
use serde::Deserialize;

use crate::control::trusted_path::{self, own_uid};
use crate::survival::predecessor::ProcessName;

/// The file as written.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ConfigFile {
    /// What managed apps, pool and daemon may use together.
    pub budget: Option<ByteSize>,
    /// A preset's name.
    pub scheme: Option<String>,
    /// Processes with less resident anonymous memory are left alone.
    pub min_process: Option<ByteSize>,
    /// Reclaim begins when less than this share of the budget is free during a relaunch, per cent.
    pub watermark_low: Option<f64>,
    /// Otherwise it begins below this share, and ends there, per cent.
    pub watermark_high: Option<f64>,
    /// Worker threads.
    pub workers: Option<usize>,
    /// After so many daemons that died soon after they had begun, the next one brings every page back
    /// and ends.
    pub max_short_lives: Option<u32>,
    /// Where metrics are served: IP:PORT, or PORT on this machine.
    pub metrics: Option<String>,
    /// Others than this machine may read them.
    #[serde(default)]
    pub metrics_public: bool,
    /// Whether activity tells which app is in front, of apps for which nobody says it.
    pub activity: Option<bool>,
    /// How the use of resident pages is looked at.
    #[serde(default)]
    pub sensor: SensorFile,
    /// Where blocks go that leave the pool.
    pub flash: Option<FlashPlace>,
    /// Machines that lend memory.
    pub donors: Option<DonorsFile>,
    /// Where it is written down how apps are used.
    pub profiles: Option<PathBuf>,
    /// Whom else root's daemon serves.
    pub users: Option<UsersFile>,
    /// Rules for programs.
    #[serde(default)]
    pub rule: Vec<Rule>,
}

/// The table `[sensor]` as written.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SensorFile {
    /// Whether the accessed bits of page tables are read where that is possible, in place of samples.
    pub accessed_bits: Option<bool>,
    /// See [`Sensor::share`].
    pub share: Option<u32>,
    /// See [`Sensor::run_pages`].
    pub run_pages: Option<u32>,
}

/// The table `[users]` as written: with it root's daemon is a service for all users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct UsersFile {
    /// Name or number of the group whose members it serves.
    pub group: Option<String>,
    /// What the apps of each user but root may use.
    pub budget: Option<ByteSize>,
}

/// Whom a service for all users serves besides root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsersConfig {
    /// Who is in this group.
    pub group: u32,
    /// What the apps of each of them may use, if that is limited.
    pub budget: Option<ByteSize>,
}

/// The group of a service where nobody names one.
const USERS_GROUP: &str = "clew";

impl UsersConfig {
    fn of(said: UsersFile) -> Result<UsersConfig, ConfigError> {
        let senseless = |field, value: &str, why: String| ConfigError::Senseless {
            field,
            value: value.to_string(),
            why,
        };
        if own_uid() != 0 {
            let why = "only root's daemon can serve all users".to_string();
            return Err(senseless("all-users", "true", why));
        }
        if !trusted_path::names_every_user() {
            let why =
                "this user namespace does not map all users and groups, and shows several as one";
            return Err(senseless("all-users", "true", why.to_string()));
        }
        let name = said.group.as_deref().unwrap_or(USERS_GROUP);
        let group = match (name.parse(), Group::from_name(name)) {
            (Ok(number), _) => number,
            (_, Ok(Some(group))) => group.gid.as_raw(),
            (_, Ok(None)) => {
                let why = format!("there is no such group ('groupadd --system {name}' makes it)");
                return Err(senseless("users.group", name, why));
            }
            (_, Err(error)) => return Err(senseless("users.group", name, error.to_string())),
        };
        Ok(UsersConfig { group, budget: said.budget })
    }
}

/// The table `[flash]`: a file or a block device.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FlashPlace {
    /// Its name. A file that is not there is made.
    pub path: PathBuf,
    /// Bytes of it; needed for a file.
    pub size: Option<ByteSize>,
}

/// The table `[donors]` as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DonorsFile {
    /// `HOST:PORT` of a machine where `clew donate` runs, or `redis://HOST:PORT`.
    #[serde(default)]
    pub at: Vec<String>,
    /// Where this machine's keys are, and those that it knows.
    pub keys: Option<PathBuf>,
    /// What of each may be used at most.
    pub each: Option<ByteSize>,
    /// 1, or 2: every page at two of them.
    pub copies: Option<u32>,
    /// A file that has every page, too.
    pub copies_file: Option<PathBuf>,
    /// What is sent at once.
    pub chunk: Option<ByteSize>,
}

/// How often a page is at a donor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Copied {
    /// Once, as in the paper.
    #[default]
    Once,
    /// At two donors.
    Twice,
    /// Once, and in this file.
    File(PathBuf),
}

/// What is sent to a donor at once, usually (MobileSwap III-B, C_s).
pub const CHUNK_BYTES: u32 = 64 << 10;

/// Machines that lend memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DonorsConfig {
    /// See [`DonorsFile::at`].
    pub at: Vec<String>,
    /// See [`DonorsFile::keys`].
    pub keys: PathBuf,
    /// See [`DonorsFile::each`].
    pub each: ByteSize,
    /// How often a page is there.
    pub copies: Copied,
    /// See [`DonorsFile::chunk`]: C_s (MobileSwap III-B).
    pub chunk: ByteSize,
}

impl Default for DonorsConfig {
    fn default() -> DonorsConfig {
        DonorsConfig {
            at: Vec::new(),
            keys: keys_directory(),
            each: ByteSize(4 << 30),
            copies: Copied::Once,
            chunk: ByteSize(CHUNK_BYTES.into()),
        }
    }
}

/// Where a machine's keys are, unless it is said: those of root belong to the machine.
pub fn keys_directory() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return PathBuf::from("/var/lib/clew/keys");
    }
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state"));
    state.or_else(home).unwrap_or_else(|| PathBuf::from("/var/lib")).join("clew/keys")
}

impl DonorsConfig {
    fn of(file: DonorsFile) -> Result<Option<DonorsConfig>, ConfigError> {
        let DonorsFile { at, keys, each, copies, copies_file, chunk } = file;
        if at.is_empty() {
            return Ok(None);
        }
        let senseless = |field, value: String, why: &str| ConfigError::Senseless {
            field,
            value,
            why: why.to_string(),
        };
        if let Some(twice) = at.iter().enumerate().find(|(i, one)| at[..*i].contains(one)) {
            return Err(senseless("donors.at", twice.1.clone(), "it is there twice"));
        }
        if let Some(bad) = at.iter().find(|one| !one.contains(':')) {
            return Err(senseless(
                "donors.at",
                bad.clone(),
                "expected HOST:PORT or redis://HOST:PORT",
            ));
        }
        let usual = DonorsConfig::default();
        let chunk = chunk.unwrap_or(usual.chunk);
        if !chunk.0.is_multiple_of(4096) || !(8 << 10..=1 << 20).contains(&chunk.0) {
            let why = "expected a multiple of 4 KiB from 8 KiB to 1 MiB";
            return Err(senseless("donors.chunk", chunk.to_string(), why));
        }
        let each = each.unwrap_or(usual.each);
        if each.0 < 1 << 20 || each.0 > 1 << 40 {
            let why = "expected 1 MiB to 1 TiB";
            return Err(senseless("donors.each", each.to_string(), why));
        }
        let copies = match (copies.unwrap_or(1), copies_file) {
            (1, None) => Copied::Once,
            (1 | 2, Some(path)) => Copied::File(path),
            (2, None) if at.len() > 1 => Copied::Twice,
            (2, None) => {
                let why = "with one donor the second copy needs a file: donors.copies-file";
                return Err(senseless("donors.copies", "2".to_string(), why));
            }
            (other, _) => {
                return Err(senseless("donors.copies", other.to_string(), "expected 1 or 2"));
            }
        };
        Ok(Some(DonorsConfig { at, keys: keys.unwrap_or(usual.keys), each, copies, chunk }))
    }
}

/// What is recorded, and where to.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The trace.
    pub file: PathBuf,
    /// What is written down of pages that leave.
    pub contents: ContentsKind,
    /// Take everything of every app out so often, so that each first access in between is seen.
    pub windows: Option<Duration>,
    /// Also which pages of files are used.
    pub files: bool,
    /// For the trace's provenance.
    pub notes: BTreeMap<String, String>,
}

/// What holds for one program, by its command name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rule {
    /// Command name, as `ps -o comm` shows it.
    pub program: String,
    /// Never manage it.
    #[serde(default)]
    pub never: bool,
    /// Manage it, but take nothing out because memory is short.
    #[serde(default)]
    pub protect: bool,
    /// Take pages out while it is in the background and has more than this resident.
    pub budget: Option<ByteSize>,
}

/// What the daemon goes by.
#[derive(Clone, Debug)]
pub struct Config {
    /// The scheme.
    pub scheme: Scheme,
    /// Its name.
    pub scheme_name: String,
    /// What managed apps, pool and daemon may use together.
    pub budget: ByteSize,
    /// Processes with less resident anonymous memory are left alone.
    pub min_process: ByteSize,
    /// Per cent of the budget.
    pub watermark_low: f64,
    /// Per cent of the budget.
    pub watermark_high: f64,
    /// Worker threads.
    pub workers: usize,
    /// After so many daemons that died soon after they had begun, this one gives up.
    pub max_short_lives: u32,
    /// Where metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// Whether activity tells which app is in front, of apps for which nobody says it.
    pub activity: bool,
    /// Whether the accessed bits of page tables are read where that is possible.
    pub accessed_bits: bool,
    /// How the use of resident pages is looked at otherwise.
    pub sensor: Sensor,
    /// Where blocks go that leave the pool, if the scheme has them leave.
    pub flash: Option<FlashPlace>,
    /// Machines that lend memory, if there are any.
    pub donors: Option<DonorsConfig>,
    /// Where it is written down how apps are used, if it is: see [`crate::profiles`].
    pub profiles: Option<PathBuf>,
    /// Whom it serves besides its own user, if it is a service for all users.
    pub users: Option<UsersConfig>,
    /// Rules for programs.
    pub rules: Vec<Rule>,
    /// End when the last app has ended (the private daemon of `clew run`).
    pub exit_when_idle: bool,
    /// Whose private daemon this is: it also ends if no app came and this process is gone, or nobody
    /// came for [`crate::governor::NOBODY_CAME`].
    pub starter: Option<ProcessName>,
    /// Who ends it otherwise (`clew record`): where that process is gone, it ends with its last app.
    pub recorder: Option<ProcessName>,
    /// What is recorded, if anything.
    pub record: Option<Recording>,
    /// Where the policy thread writes a transcript ([`clew_engine::transcript`]), if it does.
    pub transcript: Option<PathBuf>,
}

/// What is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path}: {why}")]
    Parse { path: PathBuf, why: String },
    #[error("scheme: {0}")]
    Scheme(String),
    #[error("{field} = {value}: {why}")]
    Senseless { field: &'static str, value: String, why: String },
}

/// What the command line says, each stronger than the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `--budget`.
    pub budget: Option<ByteSize>,
    /// `--scheme`: a preset's name or a TOML file.
    pub scheme: Option<String>,
    /// `--metrics`.
    pub metrics: Option<String>,
    /// `--metrics-public`.
    pub metrics_public: bool,
    /// `--flash` and `--flash-size`.
    pub flash: Option<FlashPlace>,
    /// `--donor` and what goes with it; each is stronger than the file's.
    pub donors: DonorsFile,
    /// `--profiles`.
    pub profiles: Option<PathBuf>,
    /// `--all-users` and what goes with it; each is stronger than the file's.
    pub users: Option<UsersFile>,
    /// See [`Config::exit_when_idle`].
    pub exit_when_idle: bool,
    /// See [`Config::starter`].
    pub starter: Option<ProcessName>,
    /// See [`Config::recorder`].
    pub recorder: Option<ProcessName>,
    /// See [`Config::record`].
    pub record: Option<Recording>,
    /// See [`Config::transcript`].
    pub transcript: Option<PathBuf>,
}

/// Smallest budget that makes sense: the daemon alone takes some of it.
pub const MIN_BUDGET: ByteSize = ByteSize(16 << 20);

/// Bytes of a configuration or a scheme, at most.
const MAX_FILE: u64 = 1 << 20;

/// Bytes of a command name, as the kernel keeps it.
const MAX_COMMAND_BYTES: usize = 15;

impl Config {
    /// What the pool may take at most: what the scheme says, or all of the budget, or half of it where
    /// blocks can go on to flash: what is used takes the rest.
    pub fn pool_limit_bytes(&self) -> u64 {
        let goes_on = self.flash.is_some() && !self.scheme.eviction.about().idle;
        let most = if goes_on { self.budget.0 / 2 } else { self.budget.0 };
        self.scheme.mem_limit_bytes.map_or(most, |limit| limit.0)
    }

    /// Puts file and command line together. `file` names a TOML file, `None` means defaults.
    pub fn load(file: Option<&Path>, over: &Overrides) -> Result<Config, ConfigError> {
        let from_file = match file {
            None => ConfigFile::default(),
            Some(path) => {
                let text = regular::read_text(path, MAX_FILE, 0)
                    .map_err(|source| ConfigError::Read { path: path.to_path_buf(), source })?;
                toml::from_str(&text).map_err(|error| ConfigError::Parse {
                    path: path.to_path_buf(),
                    why: toml_error(&error),
                })?
            }
        };
        let named = over.scheme.clone().or(from_file.scheme).unwrap_or_else(|| "zram".into());
        let scheme = load_scheme(&named)?;
        // Private daemons would be in each other's way.
        let from_file_at = from_file.metrics.filter(|_| !over.exit_when_idle);
        let metrics = over.metrics.clone().or(from_file_at);
        let metrics = metrics
            .map(|at| metrics_address(&at, over.metrics_public || from_file.metrics_public))
            .transpose()?;
        let machine = total_memory();
        let written = from_file.donors.unwrap_or_default();
        let said = over.donors.clone();
        let donors = DonorsFile {
            at: if said.at.is_empty() { written.at } else { said.at },
            keys: said.keys.or(written.keys),
            each: said.each.or(written.each),
            copies: said.copies.or(written.copies),
            copies_file: said.copies_file.or(written.copies_file),
            chunk: said.chunk.or(written.chunk),
        };
        // A user's daemon, and a private one, is nobody else's.
        let written = from_file.users.filter(|_| own_uid() == 0 && !over.exit_when_idle);
        let users = match (over.users.clone(), written) {
            (None, None) => None,
            (said, written) => {
                let (said, written) = (said.unwrap_or_default(), written.unwrap_or_default());
                let (group, budget) =
                    (said.group.or(written.group), said.budget.or(written.budget));
                Some(UsersConfig::of(UsersFile { group, budget })?)
            }
        };
        let config = Config {
            scheme_name: scheme.name.clone(),
            scheme,
            budget: over.budget.or(from_file.budget).unwrap_or(ByteSize(machine.0 / 2)),
            min_process: from_file.min_process.unwrap_or(ByteSize(4 << 20)),
            watermark_low: from_file.watermark_low.unwrap_or(WATERMARKS.0),
            watermark_high: from_file.watermark_high.unwrap_or(WATERMARKS.1),
            workers: from_file
                .workers
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(2, |n| n.get())),
            max_short_lives: from_file.max_short_lives.unwrap_or(5),
            metrics,
            activity: from_file.activity.unwrap_or(false),
            accessed_bits: from_file.sensor.accessed_bits.unwrap_or(true),
            sensor: Sensor {
                share: from_file.sensor.share.unwrap_or(Sensor::default().share),
                run_pages: from_file.sensor.run_pages.unwrap_or(Sensor::default().run_pages),
            },
            // Two daemons cannot have one file.
            flash: over.flash.clone().or(from_file.flash.filter(|_| !over.exit_when_idle)),
            donors: DonorsConfig::of(donors)?,
            profiles: over.profiles.clone().or(from_file.profiles),
            users,
            rules: from_file.rule,
            exit_when_idle: over.exit_when_idle,
            starter: over.starter,
            recorder: over.recorder,
            record: over.record.clone(),
            transcript: over.transcript.clone(),
        };
        config.check(machine)?;
        Ok(config)
    }

    fn check(&self, machine: ByteSize) -> Result<(), ConfigError> {
        let senseless =
            |field, value: String, why: String| Err(ConfigError::Senseless { field, value, why });
        if self.budget < MIN_BUDGET {
            let why = format!("the least is {MIN_BUDGET}");
            return senseless("budget", self.budget.to_string(), why);
        }
        if self.budget > machine {
            let why = format!("this machine has {machine}");
            return senseless("budget", self.budget.to_string(), why);
        }
        if let Some(each) = self.users.and_then(|users| users.budget)
            && !(MIN_BUDGET..=self.budget).contains(&each)
        {
            let why = format!("{MIN_BUDGET} to {}, the budget of all", self.budget);
            return senseless("users.budget", each.to_string(), why);
        }
        let (low, high) = (self.watermark_low, self.watermark_high);
        if !(low > 0.0 && low < high && high < 50.0) {
            let why = "0 < watermark-low < watermark-high < 50 must hold".to_string();
            return senseless("watermark-low, watermark-high", format!("{low}, {high}"), why);
        }
        if self.workers == 0 || self.workers > 256 {
            return senseless("workers", self.workers.to_string(), "1 to 256".to_string());
        }
        if self.max_short_lives == 0 {
            let why = "at least 1".to_string();
            return senseless("max-short-lives", "0".to_string(), why);
        }
        let Sensor { share, run_pages } = self.sensor;
        if share == 1 || !(1..=64).contains(&run_pages) {
            let why = "share is 0 or at least 2, run-pages 1 to 64".to_string();
            return senseless(
                "sensor.share, sensor.run-pages",
                format!("{share}, {run_pages}"),
                why,
            );
        }
        for rule in &self.rules {
            if rule.program.is_empty() || rule.program.len() > MAX_COMMAND_BYTES {
                let why = format!(
                    "a command name has 1 to {MAX_COMMAND_BYTES} bytes: the kernel keeps no more \
                     ('ps -o comm' shows it)"
                );
                return senseless("rule.program", rule.program.clone(), why);
            }
            if rule.never && (rule.protect || rule.budget.is_some()) {
                let why = "never excludes protect and budget".to_string();
                return senseless("rule", rule.program.clone(), why);
            }
        }
        Ok(())
    }

    /// The rule for a command name.
    pub fn rule(&self, command: &str) -> Rule {
        self.rules.iter().find(|r| r.program == command).cloned().unwrap_or_default()
    }

    /// The budget with its watermarks.
    pub fn budget(&self, page_bytes: u64) -> Budget {
        Budget::new(self.budget.0, self.watermark_low, self.watermark_high, page_bytes)
    }
}

/// The address that `text` means. Everybody who can connect to it can read the metrics, so it is
/// one of this machine unless others are wanted (`public`).
fn metrics_address(text: &str, public: bool) -> Result<SocketAddr, ConfigError> {
    let senseless = |why: &str| {
        let (field, value) = ("metrics", text.to_string());
        Err(ConfigError::Senseless { field, value, why: why.to_string() })
    };
    let port = text.parse::<u16>().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    let Ok(address) = port.or_else(|_| text.parse::<SocketAddr>()) else {
        return senseless("IP:PORT is wanted, or PORT on this machine");
    };
    if !address.ip().is_loopback() && !public {
        return senseless(
            "that is not an address of this machine alone, and whoever connects can read names and \
             memory of programs: metrics-public (--metrics-public) allows it",
        );
    }
    Ok(address)
}

/// A preset by name, or a scheme from a TOML file.
pub fn load_scheme(named: &str) -> Result<Scheme, ConfigError> {
    let scheme = match named.ends_with(".toml") {
        true => {
            let path = PathBuf::from(named);
            let text = regular::read_text(&path, MAX_FILE, 0)
                .map_err(|source| ConfigError::Read { path, source })?;
            Scheme::from_toml(&text).map_err(|e| format!("{named}: {e}"))
        }
        false => Scheme::preset(named).map_err(|e| e.to_string()),
    };
    scheme.map_err(ConfigError::Scheme)
}

/// Memory of this machine.
pub fn total_memory() -> ByteSize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))
        .and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok());
    ByteSize(kib.unwrap_or(0) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Config, String> {
        let file = std::env::temp_dir()
            .join(format!("clew-config-{:?}.toml", std::thread::current().id()));
        std::fs::write(&file, text).expect("write");
        let result = Config::load(Some(&file), &Overrides::default()).map_err(|e| e.to_string());
        std::fs::remove_file(&file).expect("remove");
        result
    }

    #[test]
    fn what_has_no_end_is_no_configuration() {
        let zero = Path::new("/dev/zero");
        let error = Config::load(Some(zero), &Overrides::default()).expect_err("it has no end");
        assert!(error.to_string().contains("no regular file"), "{error}");
        let long = load(&"# \n".repeat(1 << 20)).expect_err("it is too long");
        assert!(long.contains("more than 1048576 bytes"), "{long}");
        let scheme = std::env::temp_dir().join(format!("clew-scheme-{}.toml", std::process::id()));
        std::os::unix::fs::symlink(zero, &scheme).expect("a link");
        let error = load_scheme(&scheme.to_string_lossy()).expect_err("it has no end");
        std::fs::remove_file(&scheme).expect("it is ours");
        assert!(error.to_string().contains("no regular file"), "{error}");
    }

    #[test]
    fn a_full_file_is_understood() {
        let config = load(
            "budget = \"64MiB\"\nscheme = \"zram\"\nmin-process = \"1MiB\"\nworkers = 3\n\
             [[rule]]\nprogram = \"node\"\nprotect = true\n",
        )
        .expect("valid");
        assert_eq!(config.budget, ByteSize(64 << 20));
        assert!(config.rule("node").protect && !config.rule("redis-server").protect);
        let budget = config.budget(4096);
        assert!(budget.low_bytes < budget.high_bytes && budget.high_bytes < budget.total_bytes);
    }

    #[test]
    fn watermarks_left_out_are_those_that_a_replay_has() {
        let config = load("").expect("valid");
        assert_eq!((config.watermark_low, config.watermark_high), WATERMARKS);
    }

    #[test]
    fn metrics_are_for_this_machine_unless_said_otherwise() {
        for (text, wanted) in [
            ("metrics = \"9464\"", "127.0.0.1:9464"),
            ("metrics = \"127.0.0.2:0\"", "127.0.0.2:0"),
            ("metrics = \"[::1]:9464\"", "[::1]:9464"),
            ("metrics = \"0.0.0.0:9464\"\nmetrics-public = true", "0.0.0.0:9464"),
        ] {
            let at = load(text).expect(text).metrics.expect("an address");
            assert_eq!(at.to_string(), wanted, "{text}");
        }
        assert_eq!(load("").expect("valid").metrics, None);
    }

    #[test]
    fn a_service_is_roots_and_its_users_are_a_groups() {
        assert_eq!(load("").expect("valid").users, None);
        let wanted = "[users]\ngroup = \"0\"\nbudget = \"64MiB\"\n";
        let users = load(wanted).expect("valid").users;
        if own_uid() != 0 {
            assert_eq!(users, None, "a user's own daemon is nobody else's");
            return;
        }
        assert_eq!(users, Some(UsersConfig { group: 0, budget: Some(ByteSize(64 << 20)) }));
        let over = Overrides { exit_when_idle: true, ..Overrides::default() };
        let file = std::env::temp_dir().join(format!("clew-users-{}.toml", std::process::id()));
        std::fs::write(&file, wanted).expect("write");
        let private = Config::load(Some(&file), &over).expect("valid");
        std::fs::remove_file(&file).expect("remove");
        assert_eq!(private.users, None, "nor is a private one");
        for (text, word) in [
            ("[users]\ngroup = \"no-such-group\"", "groupadd --system no-such-group"),
            ("[users]\ngroup = \"0\"\nbudget = \"1MiB\"", "users.budget"),
            ("budget = \"64MiB\"\n[users]\ngroup = \"0\"\nbudget = \"65MiB\"", "users.budget"),
            ("[users]\nname = \"x\"", "name"),
        ] {
            let error = load(text).expect_err(text);
            assert!(error.contains(word), "'{text}' gives '{error}'");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (text, word) in [
            ("budgett = 5", "budgett"),
            ("budget = \"1KiB\"", "budget"),
            ("budget = \"900T\"", "budget"),
            ("scheme = \"nosuch\"", "nosuch"),
            ("watermark-low = 9\nwatermark-high = 3", "watermark"),
            ("workers = 0", "workers"),
            ("metrics = \"localhost\"", "IP:PORT"),
            ("metrics = \"0.0.0.0:9464\"", "metrics-public"),
            ("metrics = \"[::]:9464\"", "metrics-public"),
            ("sensor.share = 1", "sensor"),
            ("sensor.run-pages = 0", "sensor"),
            ("sensor.runs = 4", "runs"),
            ("[[rule]]\nprogram = \"x\"\nnever = true\nprotect = true", "never"),
            ("[[rule]]\nprogram = \"\"", "rule.program"),
            ("[[rule]]\nprogram = \"a-name-of-16-byte\"", "1 to 15 bytes"),
            ("budget = [1]", "size"),
        ] {
            let error = load(text).expect_err(text);
            assert!(error.contains(word), "'{text}' gives '{error}'");
        }
    }
}
