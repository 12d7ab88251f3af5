//! Runs the demo without the command, for work on this crate.
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use clew_bench::arms::ArmKind;
use clew_bench::progress::Console;
use clew_bench::{DemoConfig, demo};
use clew_core::ByteSize;

#[derive(Parser)]
struct Arguments {
    /// The `clew` command.
    #[arg(long)]
    clew: Option<PathBuf>,
    /// Arms to run.
    #[arg(long, value_delimiter = ',')]
    arms: Vec<ArmKind>,
    /// Total as a part of the need.
    #[arg(long, default_value_t = 0.6)]
    fraction: f64,
    /// Total in bytes instead.
    #[arg(long)]
    total: Option<ByteSize>,
    /// Measured switches.
    #[arg(long, default_value_t = 32)]
    switches: usize,
    /// Where the report goes.
    #[arg(long, default_value = "demo-report")]
    out: PathBuf,
    /// Seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Data of each program.
    #[arg(long, default_value = "112MiB")]
    data: ByteSize,
    /// Part of the working set that is the same each time.
    #[arg(long, default_value_t = 0.7)]
    similarity: f64,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut config = DemoConfig {
        clew_exe: arguments.clew,
        totals: vec![arguments.fraction],
        total_bytes: arguments.total.map(|total| total.0),
        relaunches: arguments.switches,
        seed: arguments.seed,
        data_bytes: arguments.data.0,
        similarities: vec![arguments.similarity],
        ..DemoConfig::default()
    };
    if !arguments.arms.is_empty() {
        config.arms = arguments.arms;
    }
    let result = demo(&config, &Console::new())?;
    print!("{}", clew_report::text(&result));
    for path in clew_report::write_all(&result, &arguments.out, "demo")? {
        println!("{}", path.display());
    }
    Ok(())
}
