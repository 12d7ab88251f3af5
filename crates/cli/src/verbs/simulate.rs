//! `clew simulate`.

use clew_core::ByteSize;
use clew_lab::machines::{self, LINK_MBIT, Outcome, Settings};

use super::replay::{failure, scheme};
use crate::Failure;
use crate::output::{Format, json, table};
use crate::progress::Bar;

/// What to simulate.
#[derive(clap::Args)]
pub struct Args {
    /// Machines that borrow.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    clients: usize,
    /// Machines that lend.
    #[arg(long, value_name = "N", default_value_t = 100)]
    donors: usize,
    /// Donors that each machine knows; 31 at most.
    #[arg(long, value_name = "N")]
    known: Option<usize>,
    /// What each machine uses of each donor at most [default: all of it].
    #[arg(long, value_name = "SIZE")]
    donor_size: Option<ByteSize>,
    /// Copies of each page: 1 or 2.
    #[arg(long, value_name = "N", default_value_t = 1)]
    copies: usize,
    /// Simulated hours.
    #[arg(long, value_name = "HOURS", default_value_t = 1.0)]
    hours: f64,
    /// Seconds until something happens to a donor, in the mean.
    #[arg(long, value_name = "SECONDS", default_value_t = 1800.0)]
    churn: f64,
    /// The largest donor lends so many times what the smallest does.
    #[arg(long, value_name = "TIMES", default_value_t = 1.0)]
    unequal: f64,
    /// The same seed gives the same.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// A preset or a TOML file: a scheme that has no place but donors.
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "mobileswap")]
    scheme: String,
}

/// `clew simulate`.
pub fn simulate(format: Format, args: Args) -> Result<(), Failure> {
    let usual = Settings::new(scheme(&args.scheme)?, args.clients, args.donors, args.seed);
    let settings = Settings {
        known: args.known.unwrap_or(usual.known),
        copies: args.copies,
        hours: args.hours,
        each_bytes: args.donor_size.map_or(usual.each_bytes, |size| size.0),
        churn_s: args.churn,
        unequal: args.unequal,
        ..usual
    };
    let bar = Bar::of_steps("simulating seconds", (args.hours * 3600.0) as u64);
    let outcome = machines::simulate(&settings, &mut |done, _| bar.at(done));
    bar.end();
    let outcome = outcome.map_err(failure)?;
    match format {
        Format::Json => json(&outcome)?,
        Format::Text => show(&outcome),
    }
    Ok(())
}

fn show(outcome: &Outcome) {
    let Outcome { clients, donors, known, copies, seed, hours, counts, balance, .. } = outcome;
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let [least, most] = outcome.donor_bytes;
    say!(
        "simulated: {clients} machines that borrow, {donors} that lend, {hours} hours, seed {seed}"
    );
    say!(
        "{}, {copies} {} of each page, {known} donors known to each; links of {LINK_MBIT} Mbit/s",
        outcome.scheme,
        if *copies == 1 { "copy" } else { "copies" },
    );
    say!("what decides is the daemon's; machines, links and programs are modelled");
    say!();
    let mut rows = vec![
        [
            "programs started, brought to the front".into(),
            [counts.launches, counts.relaunches].map(|n| n.to_string()).join(", "),
        ],
        [
            "pages of 1 MiB out, back, waited for".into(),
            [counts.pages_out, counts.pages_back, counts.faults].map(|n| n.to_string()).join(", "),
        ],
        ["of these at donors at the end".into(), outcome.stored_pages.to_string()],
        ["pages that no donor took".into(), counts.not_taken.to_string()],
        ["pages of which a copy was made again".into(), counts.mended_pages.to_string()],
        ["programs that asked for a page that was gone".into(), counts.crashed.to_string()],
    ];
    for (why, count) in &counts.ended {
        rows.push([format!("programs ended: {why}"), count.to_string()]);
    }
    let happened = [counts.left, counts.cut, counts.weak, counts.pressed];
    rows.extend([
        [
            "donors that left, were cut off, late, pressed".into(),
            happened.map(|n| n.to_string()).join(", "),
        ],
        ["areas that donors took back".into(), counts.taken_back.to_string()],
        ["a donor lends, GiB".into(), format!("{:.1} to {:.1}", gib(least), gib(most))],
        ["of that in use at the end, mean".into(), format!("{:.0} %", balance.share * 100.0)],
        [
            "largest share over the mean: mean, worst, last".into(),
            format!("{:.2}, {:.2}, {:.2}", balance.mean, balance.worst, balance.last),
        ],
    ]);
    say_part!("{}", table(&["what", "how much"], rows.into_iter().map(Vec::from).collect()));
    say!();
}
