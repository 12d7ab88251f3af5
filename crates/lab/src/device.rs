//! Models of the papers' devices: what is published about them, as data (`devices.toml`). A number
//! that no source states is left out, and who needs it is told its name.

use clew_policy::schemes::toml_error;
use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::LabError;

/// A number, and who says so.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The number, in the unit that its field's name says.
    pub value: f64,
    /// Where it is stated.
    pub source: String,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// Its name on the command line.
    pub name: String,
    /// What it is.
    pub about: String,
    /// What is known of it.
    #[serde(flatten)]
    pub numbers: BTreeMap<String, Number>,
}

/// Fields that a device can have.
const FIELDS: [&str; 18] = [
    "cpu_cores",
    "cpu_fastest_hz",
    "cpu_scale",
    "dram_bytes",
    "flash_bytes",
    "flash_read_bytes_per_second",
    "flash_read_share_at_90_pct",
    "flash_swap_bytes",
    "flash_write_bytes_per_second",
    "flash_write_share_at_90_pct",
    "link_bits_per_second",
    "local_swap_bits_per_second",
    "lz4_512k_bytes_per_second",
    "lz4_page_bytes_per_second",
    "network_bits_per_second",
    "remote_swap_bits_per_second",
    "swap_bits_per_second",
    "swap_bytes",
];
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    device: Vec<Written>,
}

/// A device as it is written down, before its fields are looked at one by one.
#[derive(Deserialize)]
struct Written {
    name: String,
    about: String,
    #[serde(flatten)]
    numbers: BTreeMap<String, toml::Value>,
}

fn parse(text: &str, what: &str) -> Result<Vec<Device>, LabError> {
    let bad = |why: String| LabError::Setting { what: what.to_string(), why };
    let file: File = toml::from_str(text).map_err(|error| bad(toml_error(&error)))?;
    let mut devices = Vec::new();
    for Written { name, about, numbers: written } in file.device {
        let mut numbers = BTreeMap::new();
        for (field, value) in written {
            let path = format!("device {name}, {field}");
            if !FIELDS.contains(&field.as_str()) {
                return Err(bad(format!("{path} is not known; known: {}", FIELDS.join(", "))));
            }
            let number: Number = value.try_into().map_err(|_| {
                bad(format!("{path}: not {{ value = NUMBER, source = \"WHERE\" }}"))
            })?;
            if !(number.value.is_finite() && number.value > 0.0) {
                return Err(bad(format!("{path} = {}: not a positive number", number.value)));
            }
            if number.source.trim().is_empty() {
                return Err(bad(format!("{path} names no source")));
            }
            numbers.insert(field, number);
        }
        devices.push(Device { name, about, numbers });
    }
    Ok(devices)
}

/// The devices of the papers.
pub fn all() -> Vec<Device> {
    parse(include_str!("devices.toml"), "devices.toml").expect("it is checked by a test")
}

impl Device {
    /// The device called `name`, or the first one of a TOML file.
    pub fn named(name: &str) -> Result<Device, LabError> {
        let bad = |why: String| LabError::Setting { what: format!("device '{name}'"), why };
        if name.ends_with(".toml") {
            let path = Path::new(name);
            let text = LabError::or_text(path)?;
            let first = parse(&text, name)?.into_iter().next();
            return first.ok_or_else(|| bad("the file has no [[device]]".to_string()));
        }
        let devices = all();
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        let unknown = || bad(format!("known: {} (or name a TOML file)", names.join(", ")));
        devices.iter().find(|device| device.name == name).cloned().ok_or_else(unknown)
    }

    /// A number that is needed.
    pub fn need(&self, field: &'static str, hint: &'static str) -> Result<f64, LabError> {
        let missing = || LabError::NoNumber { device: self.name.clone(), field, hint };
        self.numbers.get(field).map(|number| number.value).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_of_the_papers_are_there_and_each_number_has_a_source() {
        let names: Vec<String> = all().into_iter().map(|device| device.name).collect();
        for name in
            ["pixel-7", "pixel-6-pro", "pixel-6", "pixel-3", "p20", "odroid-xu4", "kirin-970"]
        {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
        assert!(all().iter().all(|device| device.numbers.len() >= 2));
    }

    #[test]
    fn a_file_that_makes_no_sense_is_refused_by_field() {
        let device = |line: &str| format!("[[device]]\nname = \"x\"\nabout = \"y\"\n{line}\n");
        for (line, word) in [
            ("drum_bytes = { value = 1, source = \"z\" }", "drum_bytes"),
            ("dram_bytes = { value = -1, source = \"z\" }", "dram_bytes"),
            ("dram_bytes = { value = 1, source = \" \" }", "source"),
            ("dram_bytes = 1", "dram_bytes"),
        ] {
            let error = parse(&device(line), "mine.toml").expect_err(line).to_string();
            assert!(error.contains(word) && error.contains("mine.toml"), "'{line}': {error}");
        }
    }
}
