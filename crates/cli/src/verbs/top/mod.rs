//! `clew top`: apps and tiers, and what happens to them, once a second.

mod live;
mod looks;
mod rows;
mod screen;
mod view;

use std::io::{IsTerminal, stdout};
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use clew_live::control::client::Client;
use serde::Serialize;

use crate::Failure;
use crate::output::{self, Format};
use looks::Rates;
use rows::{Column, Order};

/// What is shown, and how.
#[derive(clap::Args)]
pub struct Args {
    /// Print one snapshot, with rates over one interval, and end.
    #[arg(long)]
    once: bool,
    /// Seconds between two looks, 0.1 to 60.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    interval: f64,
    /// Column by which apps are sorted.
    #[arg(long, value_name = "COLUMN", value_enum, default_value_t = Column::Cpu)]
    sort: Column,
    /// The other way round.
    #[arg(long)]
    reverse: bool,
}

/// `clew top --format json`.
#[derive(Serialize)]
struct Snapshot<'a> {
    /// Seconds over which rates were taken.
    interval_seconds: f64,
    /// As `clew ps --format json`.
    status: &'a clew_live::control::status::Status,
    /// What happened meanwhile.
    rates: &'a Rates,
}

/// `clew top`.
pub fn top(socket: &Path, format: Format, args: Args) -> Result<(), Failure> {
    if !(0.1..=60.0).contains(&args.interval) {
        return Err(Failure::Input(anyhow!("--interval {}: 0.1 to 60 seconds", args.interval)));
    }
    let interval = Duration::from_secs_f64(args.interval);
    let order = Order { column: args.sort, reverse: args.reverse };
    let is_terminal = stdout().is_terminal();
    if !args.once && format == Format::Text && is_terminal {
        return live::run(socket, interval, order);
    }
    if !args.once && !is_terminal {
        remark!("clew: standard output is no terminal: one snapshot, as with --once");
    }
    let mut client = Client::connect(socket)?;
    let (before, began) = (client.status()?, std::time::Instant::now());
    std::thread::sleep(interval);
    let status = client.status()?;
    let took = began.elapsed();
    let rates = Rates::between(&before, &status, took);
    if format == Format::Json {
        let interval_seconds = took.as_secs_f64();
        return output::json(&Snapshot { interval_seconds, status: &status, rates: &rates });
    }
    let [before, status] =
        [before, status].map(clew_live::control::status::Status::with_users_in_names);
    let rates = Rates::between(&before, &status, took);
    say!("{}\n", view::header(&status, Some(&rates), output::WIDTH).join("\n"));
    let columns = rows::columns(&status, output::WIDTH);
    let apps = rows::apps(&status, Some(&rates), order);
    let header: Vec<&str> = columns.iter().map(|column| column.title()).collect();
    let cells = apps.iter().map(|app| columns.iter().map(|c| app.cell(*c)).collect()).collect();
    say!("{}", output::table(&header, cells));
    Ok(())
}
