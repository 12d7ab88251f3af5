//! Tables and JSON.

use clap::ValueEnum;
use serde::Serialize;

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

/// Prints `value` as JSON.
pub fn json(value: &impl Serialize) -> Result<(), crate::Failure> {
    println!("{}", serde_json::to_string_pretty(value)?);
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
