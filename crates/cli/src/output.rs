//! Tables and JSON.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

use clap::ValueEnum;
use clew_core::shown::{beginning_shown, shown_json, shown_lines};
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

/// Says something on standard error, as [`say!`] does on standard output.
macro_rules! remark {
    ($($word:tt)*) => { clew_core::remark!($($word)*) };
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

/// Writes to standard output what a terminal may show: names of programs are in it. A reader that has seen enough (`clew ps | head`) is no error; a disk
/// that is full ends the command with code 1.
pub fn write(text: Arguments<'_>) {
    raw(shown_lines(&text.to_string()).as_bytes());
}

/// The same of bytes as they are: what other programs read.
pub fn raw(bytes: &[u8]) {
    match io::stdout().write_all(bytes) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            remark!("clew: cannot write to standard output: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}

/// Prints `value` as JSON.
pub fn json(value: &impl Serialize) -> Result<(), crate::Failure> {
    json_text(&serde_json::to_string_pretty(value)?);
    Ok(())
}

/// Prints what is JSON already.
pub fn json_text(text: &str) {
    raw(shown_json(text).as_bytes());
    if !text.ends_with('\n') {
        raw(b"\n");
    }
}

/// Characters of a cell, at most. What lays a table out looks at a word again for each line that it takes, so one
/// without an end would take hours.
const MOST_OF_CELL: usize = 1000;

/// A table without borders, at most 100 columns wide. What cells say is [`beginning_shown`], as far as anybody reads it.
pub fn table(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = comfy_table::Table::new();
    table
        .load_style(comfy_table::presets::NOTHING)
        .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
        .set_width(WIDTH as u16)
        .set_header(header.to_vec());
    for row in rows {
        table.add_row(row.iter().map(|cell| beginning_shown(cell, MOST_OF_CELL)));
    }
    table.trim_fmt()
}
