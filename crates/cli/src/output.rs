//! Tables and JSON.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

use clap::ValueEnum;
use serde::Serialize;

/// Prints a line; see [`write`].
macro_rules! say {
    () => { $crate::output::write(format_args!("\n")) };
    ($($word:tt)*) => { $crate::output::write(format_args!("{}\n", format_args!($($word)*))) };
}

/// Prints without ending the line.
macro_rules! say_part {
    ($($word:tt)*) => { $crate::output::write(format_args!($($word)*)) };
}

/// Columns of output, at most.
pub const WIDTH: usize = 100;

/// How tables are printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For programs; names are stable.
    Json,
}

/// Writes to standard output. A reader that has seen enough (`clew ps | head`) is no error; a disk
/// that is full ends the command with code 1.
pub fn write(text: Arguments<'_>) {
    match std::io::stdout().write_fmt(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("clew: cannot write to standard output: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Prints `value` as JSON.
pub fn json(value: &impl Serialize) -> Result<(), crate::Failure> {
    say!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A table without borders, at most 100 columns wide.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table
        .load_style(comfy_table::presets::NOTHING)
        .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
        .set_width(WIDTH as u16)
        .set_header(header.to_vec());
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}
