//! What work costs: measured as it is done, or modelled by a table that was measured once.
//!
//! Modelled time makes results that repeat to the byte. What a replay cannot do (cross to the kernel
//! and back: a fault, a page put into a program) costs what the table says in either case.
//!
//! Durations are sums. None is truncated to a unit that is longer than what is timed: a probe that
//! counts whole microseconds makes a chunk that takes less cost nothing.

mod far;
mod measure;
mod on_device;

use clew_policy::schemes::toml_error;
use std::path::Path;
use std::time::Duration;

use clew_core::{ByteSize, CodecKind};
use serde::{Deserialize, Serialize};

use crate::error::LabError;

pub use far::{FarCost, LinkCost};
pub use measure::measure;

/// CPU time of one piece of work, nanoseconds by kind; and how long the program waited for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Copying out, hashing, compressing, finding room.
    pub out_ns: f64,
    /// Finding, decompressing, checking, copying in.
    pub back_ns: f64,
    /// Crossing to the kernel and back (always by the table).
    pub kernel_ns: f64,
    /// Looking at the beginning of pages, for admission (always by the table).
    pub sample_ns: f64,
    /// Reading and writing flash, and carrying pages to donors and back, by the table: a device's time, and not
    /// a CPU's.
    pub device_ns: f64,
    /// What the first byte of an answer of a donor takes, by the table. Of questions that are asked together it is the
    /// longest one's.
    pub round_trip_ns: f64,
    /// Of all that, what the program that faulted waited for.
    pub wait_ns: f64,
    /// Pages decompressed.
    pub decompressed_pages: u64,
    /// Pages compressed.
    pub compressed_pages: u64,
    /// Pages whose beginning admission has looked at.
    pub sampled_pages: u64,
    /// Read from flash, bytes.
    pub flash_read_bytes: u64,
    /// Stored on flash, bytes.
    pub flash_written_bytes: u64,
    /// Read from donors, bytes.
    pub link_read_bytes: u64,
    /// Sent to donors, bytes.
    pub link_written_bytes: u64,
}

impl std::ops::AddAssign for Spent {
    fn add_assign(&mut self, more: Spent) {
        self.out_ns += more.out_ns;
        self.back_ns += more.back_ns;
        self.kernel_ns += more.kernel_ns;
        self.sample_ns += more.sample_ns;
        self.sampled_pages += more.sampled_pages;
        self.device_ns += more.device_ns;
        self.round_trip_ns = self.round_trip_ns.max(more.round_trip_ns);
        self.wait_ns += more.wait_ns;
        self.decompressed_pages += more.decompressed_pages;
        self.compressed_pages += more.compressed_pages;
        self.flash_read_bytes += more.flash_read_bytes;
        self.flash_written_bytes += more.flash_written_bytes;
        self.link_read_bytes += more.link_read_bytes;
        self.link_written_bytes += more.link_written_bytes;
    }
}

impl Spent {
    /// CPU time of all kinds.
    pub fn cpu_ns(&self) -> f64 {
        self.out_ns + self.back_ns + self.kernel_ns + self.sample_ns
    }

    /// What looking at the beginning of so many pages takes.
    pub fn sampling(pages: u64, costs: &Costs) -> Spent {
        let sample_ns = costs.sample_ns * pages as f64;
        Spent { sample_ns, sampled_pages: pages, ..Spent::default() }
    }
}

/// How time is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Clock {
    /// Real durations of real work; the kernel's part by the table.
    Measured(Costs),
    /// All by the table.
    Modelled(Costs),
}

impl Clock {
    /// The table.
    pub fn costs(&self) -> &Costs {
        match self {
            Clock::Measured(costs) | Clock::Modelled(costs) => costs,
        }
    }

    /// The same, where so much of flash is used, per cent.
    pub(crate) fn at_utilisation(self, used_pct: u32) -> Clock {
        match self {
            Clock::Measured(costs) => Clock::Measured(costs.at_utilisation(used_pct)),
            Clock::Modelled(costs) => Clock::Modelled(costs.at_utilisation(used_pct)),
        }
    }

    /// `modelled`, or, if time is measured, how long it really took.
    pub(crate) fn or_real(&self, modelled: f64, real: Duration) -> f64 {
        match self {
            Clock::Measured(_) => real.as_nanos() as f64,
            Clock::Modelled(_) => modelled,
        }
    }
}

/// What one codec costs at one chunk size. Per page of 4 KiB, in a block of one chunk or of several.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodecCost {
    /// The codec.
    pub codec: CodecKind,
    /// Bytes one call of it compresses.
    pub chunk: ByteSize,
    /// Nanoseconds to store a page: copying, hashing, compressing, finding room.
    pub out_ns: f64,
    /// Nanoseconds to bring a page back: finding, decompressing, checking.
    pub back_ns: f64,
    /// Original over stored size.
    pub ratio: f64,
}

/// What flash costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashCost {
    /// Nanoseconds until a block of one byte has been read, at random.
    pub read_ns: f64,
    /// Nanoseconds for each byte of it.
    pub read_byte_ns: f64,
    /// Nanoseconds of a CPU for each byte that is encrypted and handed to the device.
    pub put_byte_ns: f64,
    /// Nanoseconds that the device takes to write a byte. Nobody waits for it but who needs the memory.
    #[serde(default)]
    pub write_byte_ns: f64,
    /// What is left of the reading speed when 90 % of the device are used.
    #[serde(default = "as_new")]
    pub read_share_at_90: f64,
    /// What is left of the writing speed then.
    #[serde(default = "as_new")]
    pub write_share_at_90: f64,
}

fn as_new() -> f64 {
    1.0
}

/// A device is as good as new up to this utilisation, per cent (ElasticZRAM 2.2.2 and figure 3b compare
/// with it), and no worse from [`WORST_PCT`] on.
const BEST_PCT: f64 = 20.0;
const WORST_PCT: f64 = 90.0;

impl FlashCost {
    /// What reading one block of so many bytes takes.
    pub fn read(&self, bytes: u64) -> Spent {
        let device_ns = self.read_ns + self.read_byte_ns * bytes as f64;
        Spent { device_ns, flash_read_bytes: bytes, ..Spent::default() }
    }

    /// What handing so many bytes to the device takes.
    pub fn put(&self, bytes: u64) -> Spent {
        let [out_ns, device_ns] =
            [self.put_byte_ns, self.write_byte_ns].map(|each_ns| each_ns * bytes as f64);
        Spent { out_ns, device_ns, flash_written_bytes: bytes, ..Spent::default() }
    }

    /// The same device when so much of it is used, per cent: between 20 and 90 on the line between what is
    /// known, of the speed. One factor for a read, however small: nothing finer is published.
    pub fn at_utilisation(self, used_pct: f64) -> FlashCost {
        let part = ((used_pct - BEST_PCT) / (WORST_PCT - BEST_PCT)).clamp(0.0, 1.0);
        let speed = |at_worst: f64| 1.0 - (1.0 - at_worst) * part;
        let (read, write) = (speed(self.read_share_at_90), speed(self.write_share_at_90));
        FlashCost {
            read_ns: self.read_ns / read,
            read_byte_ns: self.read_byte_ns / read,
            write_byte_ns: self.write_byte_ns / write,
            ..self
        }
    }
}

/// A table of costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Its name, for results.
    pub name: String,
    /// Where its numbers come from.
    pub source: String,
    /// A demand fault without what the store does: from the touch to the handler and back, and the
    /// page put in its place.
    pub fault_ns: f64,
    /// A page put into a program, one of a run.
    pub put_ns: f64,
    /// A page taken out of a program, one of a batch, its copying apart.
    pub take_ns: f64,
    /// A page that is all zeros or whose kept copy is still valid: copied, looked at, not
    /// compressed.
    pub look_ns: f64,
    /// A page copied.
    pub copy_ns: f64,
    /// Selective admission: the entropy of the first 512 bytes of a page.
    #[serde(default)]
    pub sample_ns: f64,
    /// Flash, where the table has it.
    pub flash: Option<FlashCost>,
    /// By codec and chunk size, ascending.
    pub codec: Vec<CodecCost>,
}

/// Bytes of the page that the table is about.
const TABLE_PAGE_BYTES: f64 = 4096.0;

impl Costs {
    /// The table that comes with this crate.
    pub fn reference() -> Costs {
        Costs::parse(include_str!("reference.toml"), "the reference table")
            .expect("the reference table is checked by a test")
    }

    /// Reads a table.
    pub fn read(path: &Path) -> Result<Costs, LabError> {
        let text = LabError::or_text(path)?;
        Costs::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, what: &str) -> Result<Costs, LabError> {
        let bad = |why: String| LabError::Setting { what: what.to_string(), why };
        let mut costs: Costs = toml::from_str(text).map_err(|error| bad(toml_error(&error)))?;
        let single = [
            costs.fault_ns,
            costs.put_ns,
            costs.take_ns,
            costs.look_ns,
            costs.copy_ns,
            costs.sample_ns,
        ];
        let flash = costs
            .flash
            .iter()
            .flat_map(|f| [f.read_ns, f.read_byte_ns, f.put_byte_ns, f.write_byte_ns]);
        let shares = costs.flash.iter().flat_map(|f| [f.read_share_at_90, f.write_share_at_90]);
        if shares.into_iter().any(|share| !(share > 0.0 && share <= 1.0)) {
            return Err(bad("flash: a share is not above 0 and at most 1".to_string()));
        }
        let rows = costs.codec.iter().flat_map(|row| [row.out_ns, row.back_ns, row.ratio]);
        if single
            .into_iter()
            .chain(flash)
            .chain(rows)
            .any(|number| !number.is_finite() || number < 0.0)
        {
            return Err(bad("a cost is no number, or negative".to_string()));
        }
        if costs.codec.iter().any(|row| row.ratio <= 0.0 || row.chunk.0 == 0) {
            return Err(bad("codec: a ratio or a chunk is not positive".to_string()));
        }
        costs.codec.sort_by_key(|row| (row.codec, row.chunk.0));
        Ok(costs)
    }

    /// As TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a table has only strings and numbers")
    }

    /// All of it `factor` times as slow.
    pub fn slowed(mut self, factor: f64, name: &str) -> Costs {
        self.name = format!("{} on {name}", self.name);
        for cost in [
            &mut self.fault_ns,
            &mut self.put_ns,
            &mut self.take_ns,
            &mut self.look_ns,
            &mut self.copy_ns,
            &mut self.sample_ns,
        ] {
            *cost *= factor;
        }
        // The device is no slower for it.
        if let Some(flash) = &mut self.flash {
            flash.put_byte_ns *= factor;
        }
        for row in &mut self.codec {
            row.out_ns *= factor;
            row.back_ns *= factor;
        }
        self
    }

    /// The same, where so much of the device is used, per cent.
    pub fn at_utilisation(mut self, used_pct: u32) -> Costs {
        self.flash = self.flash.map(|flash| flash.at_utilisation(f64::from(used_pct)));
        self
    }

    /// What flash costs.
    ///
    /// # Errors
    /// [`LabError::NoCost`] if the table does not say.
    pub fn flash(&self) -> Result<FlashCost, LabError> {
        let missing = || LabError::NoCost { table: self.name.clone(), what: "[flash]".into() };
        self.flash.ok_or_else(missing)
    }

    /// What `codec` costs in chunks of `chunk_bytes`, for a page of `page_bytes`. Between two sizes
    /// of the table it lies on the line between them, over the logarithm of the size; beyond them it
    /// is as at the end.
    pub fn codec(
        &self,
        codec: CodecKind,
        chunk_bytes: u32,
        page_bytes: u32,
    ) -> Result<CodecCost, LabError> {
        let chunk = u64::from(chunk_bytes);
        let rows = || self.codec.iter().filter(|row| row.codec == codec);
        let below = rows().rfind(|row| row.chunk.0 <= chunk);
        let above = rows().find(|row| row.chunk.0 >= chunk);
        let pages = f64::from(page_bytes) / TABLE_PAGE_BYTES;
        let mut cost = match (below, above) {
            (Some(a), Some(b)) if a.chunk != b.chunk => {
                let log = |size: u64| (size as f64).log2();
                let part = (log(chunk) - log(a.chunk.0)) / (log(b.chunk.0) - log(a.chunk.0));
                let between = |a: f64, b: f64| a + (b - a) * part;
                CodecCost {
                    codec,
                    chunk: ByteSize(chunk),
                    out_ns: between(a.out_ns, b.out_ns),
                    back_ns: between(a.back_ns, b.back_ns),
                    ratio: between(a.ratio, b.ratio),
                }
            }
            (Some(row), _) | (None, Some(row)) => *row,
            (None, None) => {
                let what = format!("row for codec {codec:?}").to_lowercase();
                return Err(LabError::NoCost { table: self.name.clone(), what });
            }
        };
        cost.out_ns *= pages;
        cost.back_ns *= pages;
        Ok(cost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_is_sound_and_covers_what_schemes_ask_for() {
        let costs = Costs::reference();
        for codec in [CodecKind::Raw, CodecKind::Lz4, CodecKind::Zstd] {
            for chunk in [256, 1024, 4096, 16384, 131_072] {
                let cost = costs.codec(codec, chunk, 4096).expect("a row");
                assert!(cost.out_ns > 0.0 && cost.back_ns > 0.0 && cost.ratio >= 1.0, "{cost:?}");
            }
        }
        assert_eq!(Costs::parse(&costs.to_toml(), "itself").expect("its own text"), costs);
    }

    /// ElasticZRAM 2.2.2: "when the storage utilization exceeds 90%, compared with 20%, the sequential read
    /// performance drops by 43%, and the sequential write performance drops by 52%".
    #[test]
    fn a_fuller_device_is_slower_as_figure_3b_says() {
        let new = Costs::reference().flash().expect("what flash costs");
        let device = |used: u32| Costs::reference().at_utilisation(used).flash().expect("the same");
        let slower = |used: u32| {
            let aged = device(used);
            let speed = |new: f64, aged: f64| (new / aged * 1000.0).round() / 1000.0;
            assert_eq!(
                speed(new.read_ns, aged.read_ns),
                speed(new.read_byte_ns, aged.read_byte_ns)
            );
            assert_eq!(new.put_byte_ns, aged.put_byte_ns);
            (speed(new.read_ns, aged.read_ns), speed(new.write_byte_ns, aged.write_byte_ns))
        };
        for (used, expected) in [
            (0, (1.0, 1.0)),
            (20, (1.0, 1.0)),
            (55, (0.785, 0.74)),
            (90, (0.57, 0.48)),
            (100, (0.57, 0.48)),
        ] {
            assert_eq!(slower(used), expected, "{used} %");
        }
        let (read, put) = (device(90).read(4096), device(90).put(4096));
        assert!(read.device_ns > new.read(4096).device_ns * 1.7, "{read:?}");
        assert!(put.device_ns > new.put(4096).device_ns * 2.0 && put.wait_ns == 0.0, "{put:?}");
    }

    #[test]
    fn between_two_sizes_lies_the_line_between_them() {
        let mut costs = Costs::reference();
        let row = |chunk, out_ns| CodecCost {
            codec: CodecKind::Lz4,
            chunk: ByteSize(chunk),
            out_ns,
            back_ns: 1000.0,
            ratio: 2.0,
        };
        costs.codec = vec![row(1024, 4000.0), row(4096, 2000.0)];
        let cost = |chunk, page| costs.codec(CodecKind::Lz4, chunk, page).expect("a row").out_ns;
        assert_eq!(cost(2048, 4096), 3000.0);
        assert_eq!((cost(512, 4096), cost(16384, 4096)), (4000.0, 2000.0));
        assert_eq!(cost(4096, 16384), 8000.0);
        let missing = costs.codec(CodecKind::Zstd, 4096, 4096).expect_err("no row");
        assert!(missing.to_string().contains("zstd"), "{missing}");
    }
}
