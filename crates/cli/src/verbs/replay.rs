//! `clew replay`, and the options that all verbs of the lab share.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Instant;

use anyhow::anyhow;
use clap::ValueEnum;
use clew_core::{ByteSize, Ns};
use clew_lab::decisions::{Agreement, Decisions};
use clew_lab::{
    Clock, Costs, Device, Donor, Donors, Input, LabError, LinkCost, Memory, Pages, Settings,
};
use clew_policy::Scheme;
use clew_trace::Trace;

use super::report::tell;
use super::trace::reading;
use crate::Failure;
use crate::output::{Format, json, table};
use crate::progress::Bar;

/// What to replay, and how.
#[derive(clap::Args)]
pub struct Args {
    /// The trace.
    trace: PathBuf,
    /// A preset's name, or a TOML file.
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "zram")]
    scheme: String,
    #[command(flatten)]
    options: Options,
    /// Say how many records were replayed a second, too.
    #[arg(long)]
    bench: bool,
    /// Ask the policies what the recording daemon asked them, and compare the answers. Scheme and
    /// everything else come from the trace.
    #[arg(long, conflicts_with_all = ["bench", "policy_only", "device", "cpu_scale", "costs"])]
    decisions: bool,
}

/// How time is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Time {
    /// What the work took on this machine; another time it takes another time.
    Measured,
    /// By a table of costs: the same input gives the same bytes of output.
    Modelled,
}

/// What holds for a replay under any scheme.
#[derive(clap::Args)]
pub struct Options {
    /// Memory for pages, pool and page tables: a size, or a share of what all pages take.
    #[arg(long, value_name = "SIZE|PERCENT%", default_value = "60%")]
    budget: Memory,
    /// How time is told.
    #[arg(long, value_enum, default_value_t = Time::Modelled)]
    time: Time,
    /// Replay without contents: sizes by the trace's statistics, or by the table of costs.
    #[arg(long)]
    policy_only: bool,
    /// There is flash of this size, whose time is modelled: a scheme that evicts to it does.
    #[arg(long, value_name = "SIZE")]
    flash: Option<ByteSize>,
    /// So much of the device that flash is on is used: the fuller, the slower.
    #[arg(long, value_name = "PERCENT", default_value_t = 0, requires = "flash",
          value_parser = clap::value_parser!(u32).range(0..=100))]
    flash_used: u32,
    /// Machines that lend so much memory, whose time is modelled: a scheme that swaps to donors does. One with a time is
    /// lost then, so many seconds after the trace begins.
    #[arg(long, value_name = "SIZE[@SECONDS]", value_delimiter = ',')]
    donors: Vec<Lent>,
    /// What the link to a donor carries; what a chunk costs beside that is MobileSwap's.
    #[arg(long, value_name = "MBIT", default_value_t = 920.0, requires = "donors")]
    link: f64,
    /// How long a donor's answer takes, beside its bytes.
    #[arg(long, value_name = "MS", default_value_t = 1.0, requires = "donors")]
    round_trip: f64,
    /// The machine swaps to zram, too, which is modelled: a scheme that lends pages to it does.
    #[arg(long)]
    kernel_zram: bool,
    /// Policies do not hear of touches of resident pages, as live: of what a program uses its faults are
    /// all that is told.
    #[arg(long)]
    hide_touches: bool,
    /// Every page is stored at this ratio (original over stored); allows for Belady's bound.
    #[arg(long, value_name = "RATIO", requires = "policy_only")]
    ratio: Option<f64>,
    /// Table of costs [default: the one that comes with Clew].
    #[arg(long, value_name = "FILE.toml")]
    costs: Option<PathBuf>,
    /// The device whose time is modelled: a name, or a TOML file.
    #[arg(long, value_name = "NAME|FILE.toml")]
    device: Option<String>,
    /// Everything takes this many times as long as the table of costs says.
    #[arg(long, value_name = "FACTOR", conflicts_with = "device")]
    cpu_scale: Option<f64>,
}

/// What one donor lends.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lent(Donor);

impl FromStr for Lent {
    type Err = String;

    fn from_str(text: &str) -> Result<Lent, String> {
        let (size, lost) = match text.split_once('@') {
            Some((size, seconds)) => (size, Some(seconds)),
            None => (text, None),
        };
        let bytes = size.parse::<ByteSize>().map_err(|error| error.to_string())?.0;
        let lost_at = match lost.map(|seconds| seconds.trim_end_matches('s').parse::<f64>()) {
            None => None,
            Some(Ok(seconds)) if (0.0..=1e9).contains(&seconds) => Some(Ns((seconds * 1e9) as u64)),
            Some(_) => return Err("what follows '@' is no number of seconds".to_string()),
        };
        Ok(Lent(Donor { bytes, lost_at }))
    }
}

impl Options {
    /// The donors there are.
    fn donors(&self) -> Result<Option<Donors>, Failure> {
        if self.donors.is_empty() {
            return Ok(None);
        }
        let bad = |option: &str, value: f64, most: f64| {
            Failure::Input(anyhow!("{option} {value}: not above 0, and {most} at the most"))
        };
        if !(self.link > 0.0 && self.link <= 1e6) {
            return Err(bad("--link", self.link, 1e6));
        }
        if !(self.round_trip > 0.0 && self.round_trip <= 1e5) {
            return Err(bad("--round-trip", self.round_trip, 1e5));
        }
        let published = Device::named("kirin-970").and_then(|client| LinkCost::published(&client));
        let link = published.map_err(failure)?.at_speed(self.link * 1e6, self.round_trip * 1e6);
        Ok(Some(Donors { each: self.donors.iter().map(|lent| lent.0).collect(), link }))
    }

    /// Whether there are donors.
    pub fn has_donors(&self) -> bool {
        !self.donors.is_empty()
    }

    /// Whether there is flash.
    pub fn has_flash(&self) -> bool {
        self.flash.is_some()
    }

    /// Whether it is replayed without contents.
    pub fn policy_only(&self) -> bool {
        self.policy_only
    }

    /// The settings for `input` under `scheme`.
    pub fn settings(&self, input: &Input, scheme: Scheme) -> Result<Settings, Failure> {
        let mut costs = match &self.costs {
            Some(path) => Costs::read(path).map_err(failure)?,
            None => Costs::reference(),
        };
        if let Some(device) = &self.device {
            costs =
                Device::named(device).and_then(|device| device.costs(costs)).map_err(failure)?;
        }
        if let Some(factor) = self.cpu_scale {
            if !(factor.is_finite() && factor > 0.0) {
                return Err(Failure::Input(anyhow!("--cpu-scale {factor}: not positive")));
            }
            costs = costs.slowed(factor, &format!("a machine {factor} times as slow"));
        }
        if let Some(ratio) = self.ratio.filter(|ratio| !(ratio.is_finite() && *ratio >= 1.0)) {
            return Err(Failure::Input(anyhow!("--ratio {ratio}: 1 or more")));
        }
        Ok(Settings {
            clock: match self.time {
                Time::Measured => Clock::Measured(costs),
                Time::Modelled => Clock::Modelled(costs),
            },
            pages: match self.policy_only {
                true => Pages::Weightless { ratio: self.ratio },
                false => Pages::Real,
            },
            flash_bytes: self.flash.map(|size| size.0),
            flash_used_pct: self.flash_used,
            donors: self.donors()?,
            kernel_zram: self.kernel_zram,
            hides_touches: self.hide_touches,
            ..Settings::new(scheme, self.budget.bytes(input).map_err(failure)?)
        })
    }
}

/// What kind of failure an error of the lab is.
pub fn failure(error: LabError) -> Failure {
    // Its text names its causes itself.
    let text = anyhow!("{error}");
    if error.is_bad_input() { Failure::Input(text) } else { Failure::Failed(text) }
}

/// The scheme of a name, or of a file.
pub fn scheme(named: &str) -> Result<Scheme, Failure> {
    clew_live::config::load_scheme(named).map_err(|error| Failure::Input(error.into()))
}

/// Reads a trace once.
pub fn open(trace: &std::path::Path) -> Result<Input, Failure> {
    Input::open(trace).map_err(failure)
}

/// `clew replay TRACE`.
pub fn replay(format: Format, args: Args) -> Result<(), Failure> {
    if args.decisions {
        return decisions(format, &args.trace);
    }
    let scheme = scheme(&args.scheme)?;
    let input = open(&args.trace)?;
    let settings = args.options.settings(&input, scheme.clone())?;
    let bar = Bar::of_bytes("replaying", input.trace.file_bytes());
    let began = Instant::now();
    let progress = |_, done, _| bar.at(done);
    let compared = clew_lab::compare(&input, &[scheme], &settings, 1, &progress);
    let took = began.elapsed();
    bar.end();
    tell(format, &compared.map_err(failure)?, &[])?;
    if args.bench {
        let records = input.trace.totals().records();
        let each_second = records as f64 / took.as_secs_f64();
        remark!(
            "{records} records in {:.2} s: {:.2} million a second",
            took.as_secs_f64(),
            each_second / 1e6
        );
    }
    Ok(())
}

/// `clew replay TRACE --decisions`.
fn decisions(format: Format, trace: &Path) -> Result<(), Failure> {
    let trace = Trace::open(trace).map_err(|error| reading(trace, error))?;
    let bar = Bar::of_bytes("asking again", trace.file_bytes());
    let found = clew_lab::decisions(&trace, &mut |done, _| bar.at(done));
    bar.end();
    let found = found.map_err(failure)?;
    if let Format::Json = format {
        return json(&found);
    }
    let choices = [
        ("victims", found.victims),
        ("groups", found.groups),
        ("prefetches", found.prefetches),
        ("samples", found.samples),
        ("endings", found.endings),
    ];
    let row = |(name, agreement): (&str, Agreement)| {
        let Agreement { recorded, replayed, both } = agreement;
        let counts = [recorded, replayed, both].map(|count| count.to_string());
        let share = format!("{:.2}%", 100.0 * agreement.share());
        [name.to_string()].into_iter().chain(counts).chain([share]).collect()
    };
    let header = ["CHOICES", "RECORDED", "REPLAYED", "BOTH", "AGREE"];
    say!("{}", table(&header, choices.map(row).into()));
    let Decisions { scheme, questions, same, .. } = &found;
    say!("{questions} questions to scheme {scheme}, {same} answered the same in every page");
    if let Some(record) = found.first_difference {
        say!("the first difference is at record {record}");
    }
    Ok(())
}
