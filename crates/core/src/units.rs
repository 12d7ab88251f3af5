//! Sizes and times with their units in the type.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Nanoseconds since the engine started. Policies are handed the time; they never read a clock.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct Ns(pub u64);

impl Ns {
    /// `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Ns {
        Ns(ms * 1_000_000)
    }

    /// Time since `earlier`, zero if `earlier` is later.
    pub fn since(self, earlier: Ns) -> Ns {
        Ns(self.0.saturating_sub(earlier.0))
    }
}

/// A size in bytes, written as `512MiB`, `1.5G`, `4096`. Suffixes are binary: K, M, G, T, with or
/// without `iB` or `B`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ByteSize(pub u64);

/// Why a text is no size.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{text}' is not a size: {why} (write 512MiB, 1.5G or 4096)")]
pub struct SizeError {
    text: String,
    why: &'static str,
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<ByteSize, SizeError> {
        let fail = |why| SizeError { text: text.to_string(), why };
        let trimmed = text.trim();
        let split =
            trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, suffix) = trimmed.split_at(split);
        let number: f64 = number.parse().map_err(|_| fail("no number"))?;
        let shift = match suffix.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kb" | "kib" => 10,
            "m" | "mb" | "mib" => 20,
            "g" | "gb" | "gib" => 30,
            "t" | "tb" | "tib" => 40,
            _ => return Err(fail("unknown unit")),
        };
        let bytes = number * (1u64 << shift) as f64;
        if bytes > (1u64 << 60) as f64 {
            return Err(fail("too large"));
        }
        Ok(ByteSize(bytes.round() as u64))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        let text = match self.0 {
            b if b >= 10 << 30 => format!("{:.1} GiB", bytes / (1u64 << 30) as f64),
            b if b >= 1 << 30 => format!("{:.2} GiB", bytes / (1u64 << 30) as f64),
            b if b >= 1 << 20 => format!("{:.1} MiB", bytes / (1u64 << 20) as f64),
            b if b >= 1 << 10 => format!("{:.1} KiB", bytes / (1u64 << 10) as f64),
            b => format!("{b} B"),
        };
        f.pad(&text)
    }
}

impl fmt::Debug for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<ByteSize, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = ByteSize;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"512MiB\" or a number of bytes")
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<ByteSize, E> {
                u64::try_from(v).map(ByteSize).map_err(|_| E::custom("a size is not negative"))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<ByteSize, E> {
                Ok(ByteSize(v))
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<ByteSize, E> {
                v.parse().map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}

/// A whole number from `MIN` to `MAX`, `USUAL` where nothing is said: a parameter that is checked when
/// it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(transparent)]
pub struct Whole<const MIN: u32, const MAX: u32, const USUAL: u32>(u32);

impl<const MIN: u32, const MAX: u32, const USUAL: u32> Whole<MIN, MAX, USUAL> {
    /// `number`.
    ///
    /// # Panics
    /// Outside its range.
    pub const fn of(number: u32) -> Self {
        assert!(MIN <= number && number <= MAX);
        Whole(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl<const MIN: u32, const MAX: u32, const USUAL: u32> Default for Whole<MIN, MAX, USUAL> {
    fn default() -> Self {
        Whole::of(USUAL)
    }
}

impl<'de, const MIN: u32, const MAX: u32, const USUAL: u32> Deserialize<'de>
    for Whole<MIN, MAX, USUAL>
{
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Visitor<const MIN: u32, const MAX: u32>;
        impl<const MIN: u32, const MAX: u32> de::Visitor<'_> for Visitor<MIN, MAX> {
            type Value = u32;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {MIN} to {MAX}")
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<u32, E> {
                let fits = u32::try_from(v).ok().filter(|number| (MIN..=MAX).contains(number));
                fits.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(v), &self))
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<u32, E> {
                self.visit_i64(i64::try_from(v).unwrap_or(i64::MAX))
            }
        }
        d.deserialize_any(Visitor::<MIN, MAX>).map(Whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_parse_and_print() {
        assert_eq!("512MiB".parse(), Ok(ByteSize(512 << 20)));
        assert_eq!("1.5G".parse(), Ok(ByteSize(3 << 29)));
        assert_eq!(" 64 k ".parse(), Ok(ByteSize(64 << 10)));
        assert_eq!("4096".parse(), Ok(ByteSize(4096)));
        assert_eq!(ByteSize(3 << 29).to_string(), "1.50 GiB");
        assert_eq!(ByteSize(100).to_string(), "100 B");
        for bad in ["", "M", "12 parsecs", "-4k", "99999999T"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad} was taken as a size");
        }
    }
}
