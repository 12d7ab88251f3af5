//! What people write of a scheme: read as serde does, and refused with the field's path.

use clew_core::ByteSize;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_path_to_error::Segment;
use toml::{Table, Value};

/// Why there is no such scheme.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum SchemeError {
    /// No preset has this name.
    #[error("there is no scheme '{name}'; known: {known} (or name a TOML file)")]
    UnknownPreset {
        /// What was asked for.
        name: String,
        /// The names of all presets.
        known: String,
    },
    /// The text is not TOML.
    #[error("the scheme is not valid TOML: {0}")]
    Syntax(String),
    /// A field is not known, or missing, or its value is none of those it may have.
    #[error("{field}{}: {why}", found.as_ref().map_or(String::new(), |found| format!(" = {found} makes no sense")))]
    Field {
        /// The field's path.
        field: String,
        /// The value, as it was written, where it is one and not a table.
        found: Option<String>,
        /// What is wrong with it, and what it may be.
        why: String,
    },
    /// Two columns contradict each other.
    #[error("{first} and {second} contradict each other: {why}")]
    Contradiction {
        /// One column.
        first: &'static str,
        /// The other.
        second: &'static str,
        /// What to do.
        why: &'static str,
    },
}

impl SchemeError {
    /// `field` is wrong, where `found` stands.
    pub fn field(field: &str, found: Option<&Value>, why: String) -> SchemeError {
        let found = found.filter(|found| !found.is_table() && !found.is_array());
        SchemeError::Field { field: field.to_string(), found: found.map(Value::to_string), why }
    }

    /// `field` is not what was `expected`, or missing.
    pub(crate) fn expected(field: &str, found: Option<&Value>, expected: &str) -> SchemeError {
        let missing = if found.is_none() { "missing, " } else { "" };
        SchemeError::field(field, found, format!("{missing}expected {expected}"))
    }

    /// What was said of a field of the table `above`.
    pub(crate) fn below(mut self, above: &str) -> SchemeError {
        if let SchemeError::Field { field, .. } = &mut self {
            *field = format!("{above}.{field}").trim_end_matches('.').to_string();
        }
        self
    }
}

impl From<toml::de::Error> for SchemeError {
    fn from(error: toml::de::Error) -> SchemeError {
        SchemeError::Syntax(toml_error(&error))
    }
}

/// What is wrong with a text in TOML, and where: on one line.
pub fn toml_error(error: &toml::de::Error) -> String {
    let drawn = error.to_string();
    let first = drawn.lines().next().unwrap_or_default();
    let message = error.message().replace('\n', ", ");
    let Some(place) = first.strip_prefix("TOML parse error at ") else { return message };
    // Behind its number, as drawn.
    let line = drawn.lines().nth(2).and_then(|line| line.split_once(" | "));
    match line.map(|(_, line)| line.trim()).filter(|line| line.len() <= LONGEST_LINE) {
        Some(line) => format!("{place} ({line}): {message}"),
        None => format!("{place}: {message}"),
    }
}

/// A line is shown with what is wrong in it if it has no more bytes.
const LONGEST_LINE: usize = 80;

/// Reads a table as serde does. What is refused is named by its path.
pub fn parameters<A: DeserializeOwned>(written: Table) -> Result<A, SchemeError> {
    let written = Value::Table(written);
    serde_path_to_error::deserialize(written.clone()).map_err(|error| {
        let path = error.path();
        let found = path.iter().try_fold(&written, |value, segment| match segment {
            Segment::Map { key } => value.get(key),
            _ => None,
        });
        let field = path.to_string();
        let field = if field == "." { "" } else { &field };
        SchemeError::field(field, found, error.inner().message().to_string())
    })
}

/// For `deserialize_with`: a size of at least so many bytes, as `512MiB` or a number.
pub fn size<'de, const MIN: u64, T: From<ByteSize>, D: Deserializer<'de>>(
    from: D,
) -> Result<T, D::Error> {
    let size = ByteSize::deserialize(Value::deserialize(from)?).ok();
    let fits = size.filter(|size| (MIN..=1 << 60).contains(&size.0)).map(T::from);
    let expected = format_args!("expected a size from {}, such as \"512MiB\"", ByteSize(MIN));
    fits.ok_or_else(|| D::Error::custom(expected))
}
