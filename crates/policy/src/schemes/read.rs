//! Reads schemes from TOML and refuses what makes no sense, naming the field and what it may be.
//!
//! Read by hand rather than derived, because a derived error names neither the column nor the
//! values that its parameter may take.

use std::ops::RangeInclusive;

use clew_core::{ByteSize, CodecKind, RunAhead};
use toml::{Table, Value};

use crate::packing::adaptive_comp::{self, ChunkSizes, Successive};
use crate::prefetch::{hot_list, pre_decomp, recorded_set};
use crate::reclaim::hotness_org::{self, HotAfter, Lists, Unseen};

use super::{
    AdmissionChoice, EvictionChoice, OnFull, PackingChoice, PlacementChoice, PrefetchChoice,
    ReclaimChoice, Scheme,
};

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
    Syntax(#[from] toml::de::Error),
    /// A field that must be there is not.
    #[error("{field} is missing; write {allowed}")]
    Missing {
        /// The field's path.
        field: String,
        /// What it may be.
        allowed: String,
    },
    /// A field that nobody knows.
    #[error("{field} is not known; allowed here: {allowed}")]
    UnknownField {
        /// The field's path.
        field: String,
        /// The fields of that table.
        allowed: String,
    },
    /// A field's value is none of those it may have.
    #[error("{field} = {found} makes no sense; allowed: {allowed}")]
    BadValue {
        /// The field's path.
        field: String,
        /// The value, as it was written.
        found: String,
        /// What it may be.
        allowed: String,
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

/// The chunk sizes that the pool takes, of those that Ariadne (3, figure 6) looks at.
const CHUNK_BYTES: RangeInclusive<u64> = 256..=128 << 10;
/// Fields of `[scheme]`.
const FIELDS: [&str; 11] = [
    "name",
    "on_full",
    "disksize_pages",
    "mem_limit_bytes",
    "retain",
    "reclaim",
    "admission",
    "packing",
    "eviction",
    "placement",
    "prefetch",
];
/// The largest page of the systems in question (Android's).
const LARGEST_PAGE_BYTES: u64 = 16 << 10;
const READAHEAD_PAGES: RangeInclusive<i64> = 1..=512;
const BUFFER_PAGES: RangeInclusive<i64> = 1..=65_536;
const BATCH_PAGES: RangeInclusive<i64> = 1..=1 << 20;
const RELAUNCHES: RangeInclusive<i64> = 1..=16;
const LEAVE_OUT: RangeInclusive<i64> = 0..=64;
const WARM_RELAUNCHES: RangeInclusive<i64> = 0..=1_000_000;
const SHARE_PCT: RangeInclusive<i64> = 1..=100;
const PROBE: RangeInclusive<i64> = 2..=1024;
const PREFETCHERS: [&str; 8] = [
    "none",
    "readahead",
    "cluster",
    "runs",
    "pre-decomp",
    "recorded-set",
    "hot-list",
    "by-trigger",
];

pub(super) fn scheme(text: &str) -> Result<Scheme, SchemeError> {
    let file: Table = text.parse()?;
    let mut top = Reader { path: String::new(), table: file, known: Vec::new() };
    let value = top.take("scheme").ok_or_else(|| SchemeError::Missing {
        field: "[scheme]".to_string(),
        allowed: "a table [scheme] with name and the six columns".to_string(),
    })?;
    let Value::Table(table) = value else {
        return Err(top.bad("scheme", &value, "a table"));
    };
    top.finish()?;
    // Said before anything is missed: a misspelt field is both unknown and missing.
    if let Some(field) = table.keys().find(|field| !FIELDS.contains(&field.as_str())) {
        let field = format!("scheme.{field}");
        return Err(SchemeError::UnknownField { field, allowed: FIELDS.join(", ") });
    }
    let mut reader = Reader { path: "scheme.".to_string(), table, known: Vec::new() };
    let scheme = Scheme {
        name: reader.name()?,
        on_full: match reader.word("on_full", Some("stop"), &["stop", "kill"])? {
            "kill" => OnFull::Kill,
            _ => OnFull::Stop,
        },
        disksize_pages: match reader.table.contains_key("disksize_pages") {
            true => Some(reader.integer("disksize_pages", 1, 1..=i64::MAX)? as u64),
            false => None,
        },
        mem_limit_bytes: reader.mem_limit()?,
        retain: reader.boolean("retain", true)?,
        reclaim: reader.column("reclaim", &["none", "lru", "hotness-org"], |table, kind| {
            Ok(match kind {
                "none" => ReclaimChoice::None,
                "lru" => ReclaimChoice::Lru,
                _ => ReclaimChoice::HotnessOrg(table.hotness_org()?),
            })
        })?,
        admission: reader.column("admission", &["all"], |_, _| Ok(AdmissionChoice::All))?,
        packing: reader.column("packing", &["one-page", "adaptive-comp"], |table, kind| {
            Ok(match kind {
                "one-page" => PackingChoice::OnePage {
                    codec: table.codec("codec", CodecKind::Lz4)?,
                    chunk: table.chunk_of_a_page()?,
                },
                _ => PackingChoice::AdaptiveComp(table.adaptive_comp()?),
            })
        })?,
        eviction: reader.column("eviction", &["none", "cold-first"], |_, kind| {
            Ok(match kind {
                "none" => EvictionChoice::None,
                _ => EvictionChoice::ColdFirst,
            })
        })?,
        placement: reader.column(
            "placement",
            &["none", "pool", "kernel-first"],
            |table, kind| {
                Ok(match kind {
                    "none" => PlacementChoice::None,
                    "pool" => PlacementChoice::Pool,
                    _ => PlacementChoice::KernelFirst {
                        share_pct: table.integer("share_pct", 100, SHARE_PCT)? as u32,
                    },
                })
            },
        )?,
        prefetch: reader.column("prefetch", &PREFETCHERS, Reader::prefetch)?,
    };
    reader.finish()?;
    check(&scheme)?;
    Ok(scheme)
}

/// Refuses columns that contradict each other.
fn check(scheme: &Scheme) -> Result<(), SchemeError> {
    let contradiction = |first, second, why| Err(SchemeError::Contradiction { first, second, why });
    if scheme.placement == PlacementChoice::None && scheme.reclaim != ReclaimChoice::None {
        let why = "what is taken out needs a place; choose placement \"pool\" or reclaim \"none\"";
        return contradiction("scheme.reclaim", "scheme.placement", why);
    }
    if scheme.eviction == EvictionChoice::ColdFirst {
        let why = "what leaves the pool needs another place, and this version has none; choose \
                   eviction \"none\"";
        return contradiction("scheme.eviction", "scheme.placement", why);
    }
    if let PackingChoice::OnePage { codec, chunk } = scheme.packing
        && codec.learns()
        && chunk.0 < 4096
    {
        let why = "a dictionary is for whole pages; leave out the chunk, or choose another codec";
        return contradiction("scheme.packing.codec", "scheme.packing.chunk", why);
    }
    let relaunch = match &scheme.prefetch {
        PrefetchChoice::ByTrigger { relaunch, .. } => relaunch,
        other => other,
    };
    if matches!(relaunch, PrefetchChoice::HotList(_))
        && !matches!(scheme.reclaim, ReclaimChoice::HotnessOrg(_))
    {
        let why = "nobody keeps a hot list; choose reclaim \"hotness-org\" or prefetch \
                   \"recorded-set\"";
        return contradiction("scheme.prefetch", "scheme.reclaim", why);
    }
    Ok(())
}

/// One table, of which fields are taken one by one; what is left at the end is an error.
struct Reader {
    path: String,
    table: Table,
    known: Vec<&'static str>,
}

impl Reader {
    fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.table.remove(field)
    }

    fn finish(self) -> Result<(), SchemeError> {
        match self.table.keys().next() {
            None => Ok(()),
            Some(field) => Err(SchemeError::UnknownField {
                field: format!("{}{field}", self.path),
                allowed: self.known.join(", "),
            }),
        }
    }

    fn bad(&self, field: &str, found: &Value, allowed: impl ToString) -> SchemeError {
        SchemeError::BadValue {
            field: format!("{}{field}", self.path),
            found: found.to_string(),
            allowed: allowed.to_string(),
        }
    }

    fn missing(&self, field: &str, allowed: impl ToString) -> SchemeError {
        let field = format!("{}{field}", self.path);
        SchemeError::Missing { field, allowed: allowed.to_string() }
    }

    fn word(
        &mut self,
        field: &'static str,
        default: Option<&'static str>,
        allowed: &[&'static str],
    ) -> Result<&'static str, SchemeError> {
        let choices =
            || allowed.iter().map(|a| format!("\"{a}\"")).collect::<Vec<_>>().join(" or ");
        let Some(value) = self.take(field) else {
            return default.ok_or_else(|| self.missing(field, choices()));
        };
        let found = value.as_str().and_then(|text| allowed.iter().find(|word| **word == text));
        found.copied().ok_or_else(|| self.bad(field, &value, choices()))
    }

    /// One of the six columns: its kind, and its parameters read by `read`.
    fn column<T>(
        &mut self,
        field: &'static str,
        kinds: &[&'static str],
        read: impl FnOnce(&mut Reader, &'static str) -> Result<T, SchemeError>,
    ) -> Result<T, SchemeError> {
        let allowed =
            kinds.iter().map(|kind| format!("{{ kind = \"{kind}\" }}")).collect::<Vec<_>>();
        let value = self.take(field).ok_or_else(|| self.missing(field, allowed.join(" or ")))?;
        let table = match value {
            Value::Table(table) => table,
            Value::String(_) => Table::from_iter([("kind".to_string(), value)]),
            other => return Err(self.bad(field, &other, allowed.join(" or "))),
        };
        let path = format!("{}{field}.", self.path);
        let mut reader = Reader { path, table, known: Vec::new() };
        let kind = reader.word("kind", None, kinds)?;
        let choice = read(&mut reader, kind)?;
        reader.finish()?;
        Ok(choice)
    }

    fn name(&mut self) -> Result<String, SchemeError> {
        const ALLOWED: &str = "1 to 64 letters, digits, '-', '_' or '.'";
        let value = self.take("name").ok_or_else(|| self.missing("name", ALLOWED))?;
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        match value.as_str() {
            Some(name) if (1..=64).contains(&name.len()) && name.chars().all(fits) => {
                Ok(name.to_string())
            }
            _ => Err(self.bad("name", &value, ALLOWED)),
        }
    }

    fn boolean(&mut self, field: &'static str, default: bool) -> Result<bool, SchemeError> {
        let Some(value) = self.take(field) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.bad(field, &value, "true or false"))
    }

    fn integer(
        &mut self,
        field: &'static str,
        default: i64,
        range: RangeInclusive<i64>,
    ) -> Result<i64, SchemeError> {
        let Some(value) = self.take(field) else { return Ok(default) };
        let found = value.as_integer().filter(|number| range.contains(number));
        let allowed = || format!("a whole number from {} to {}", range.start(), range.end());
        found.ok_or_else(|| self.bad(field, &value, allowed()))
    }

    fn codec(&mut self, field: &'static str, default: CodecKind) -> Result<CodecKind, SchemeError> {
        const CODECS: [(&str, CodecKind); 4] = [
            ("lz4", CodecKind::Lz4),
            ("zstd", CodecKind::Zstd),
            ("zstd-dictionary", CodecKind::ZstdDictionary),
            ("raw", CodecKind::Raw),
        ];
        let named =
            |(name, codec): &(&'static str, CodecKind)| (*codec == default).then_some(*name);
        let word =
            self.word(field, CODECS.iter().find_map(named), &CODECS.map(|(name, _)| name))?;
        let codec = CODECS.iter().find(|(name, _)| *name == word);
        Ok(codec.map_or(default, |(_, codec)| *codec))
    }

    fn hotness_org(&mut self) -> Result<hotness_org::Params, SchemeError> {
        Ok(hotness_org::Params {
            lists: match self.word("lists", Some("all"), &["all", "exclude-hot"])? {
                "all" => Lists::All,
                _ => Lists::ExcludeHot,
            },
            initial_hot: self.initial_hot()?,
            unseen: match self.word("unseen", Some("warm"), &["keep", "warm"])? {
                "keep" => Unseen::Keep,
                _ => Unseen::Warm,
            },
            hot_after: match self.word(
                "hot_after",
                Some("first-use"),
                &["first-use", "second-use"],
            )? {
                "second-use" => HotAfter::SecondUse,
                _ => HotAfter::FirstUse,
            },
        })
    }

    fn initial_hot(&mut self) -> Result<ByteSize, SchemeError> {
        let Some(value) = self.take("initial_hot") else { return Ok(ByteSize(32 << 20)) };
        let size = Self::size(&value).filter(|size| size.0 <= 1 << 60);
        size.ok_or_else(|| self.bad("initial_hot", &value, "a size, such as \"32MiB\" or 0"))
    }

    fn adaptive_comp(&mut self) -> Result<adaptive_comp::Params, SchemeError> {
        let codec = self.codec("codec", CodecKind::Lz4)?;
        Ok(adaptive_comp::Params {
            sizes: self.chunk_sizes()?,
            hot_codec: self.codec("hot_codec", codec)?,
            warm_codec: self.codec("warm_codec", codec)?,
            cold_codec: self.codec("cold_codec", codec)?,
            successive: match self.word("successive", Some("victims"), &["victims", "addresses"])? {
                "victims" => Successive::Victims,
                _ => Successive::Addresses,
            },
            park_siblings: self.boolean("park_siblings", false)?,
        })
    }

    fn chunk_sizes(&mut self) -> Result<ChunkSizes, SchemeError> {
        let Some(value) = self.take("sizes") else {
            return Ok(ChunkSizes { hot: 1 << 10, warm: 2 << 10, cold: 16 << 10 });
        };
        let sizes = value.as_str().and_then(|text| text.parse().ok());
        let allowed = "hot-warm-cold such as \"1K-2K-16K\": powers of two, hot and warm from 256 to \
                       4K, cold from 4K to 128K";
        sizes.ok_or_else(|| self.bad("sizes", &value, allowed))
    }

    fn prefetch(&mut self, kind: &'static str) -> Result<PrefetchChoice, SchemeError> {
        Ok(match kind {
            "none" => PrefetchChoice::None,
            "readahead" => PrefetchChoice::Readahead {
                pages: self.integer("pages", 8, READAHEAD_PAGES)? as u32,
            },
            "cluster" => {
                PrefetchChoice::Cluster { pages: self.integer("pages", 8, READAHEAD_PAGES)? as u32 }
            }
            "runs" => PrefetchChoice::Runs(RunAhead {
                max_pages: self.integer("max_pages", 32, READAHEAD_PAGES)? as u32,
                probe_one_in: self.integer("probe_one_in", 8, PROBE)? as u32,
            }),
            "pre-decomp" => PrefetchChoice::PreDecomp(pre_decomp::Params {
                buffer_pages: self.integer("buffer_pages", 64, BUFFER_PAGES)? as u32,
                expire: match self.word("expire", Some("recompress"), &["keep", "recompress"])? {
                    "keep" => pre_decomp::Expire::Keep,
                    _ => pre_decomp::Expire::Recompress,
                },
            }),
            "recorded-set" => PrefetchChoice::RecordedSet(recorded_set::Params {
                relaunches: self.integer("relaunches", 1, RELAUNCHES)? as u32,
                batch_pages: self.integer("batch_pages", 512, BATCH_PAGES)? as u32,
                leave_out_one_in: self.leave_out()?,
            }),
            "hot-list" => PrefetchChoice::HotList(hot_list::Params {
                batch_pages: self.integer("batch_pages", 512, BATCH_PAGES)? as u32,
                warm_relaunches: self.integer("warm_relaunches", 0, WARM_RELAUNCHES)? as u32,
                leave_out_one_in: self.leave_out()?,
            }),
            _ => {
                let at_relaunch = &PREFETCHERS[5..7];
                let at_fault = &PREFETCHERS[1..5];
                PrefetchChoice::ByTrigger {
                    relaunch: Box::new(self.column("relaunch", at_relaunch, Reader::prefetch)?),
                    fault: Box::new(self.column("fault", at_fault, Reader::prefetch)?),
                }
            }
        })
    }

    /// One in one would be all of them.
    fn leave_out(&mut self) -> Result<u32, SchemeError> {
        const FIELD: &str = "leave_out_one_in";
        match self.integer(FIELD, 4, LEAVE_OUT)? {
            1 => {
                Err(self.bad(FIELD, &Value::Integer(1), "0 (none), or a whole number from 2 to 64"))
            }
            one_in => Ok(one_in as u32),
        }
    }

    /// A size as `512MiB` or a number of bytes, `None` where it is neither.
    fn size(value: &Value) -> Option<ByteSize> {
        match value {
            Value::String(text) => text.parse().ok(),
            Value::Integer(bytes) => u64::try_from(*bytes).ok().map(ByteSize),
            _ => None,
        }
    }

    fn chunk_of_a_page(&mut self) -> Result<ByteSize, SchemeError> {
        let Some(value) = self.take("chunk") else { return Ok(ByteSize(4096)) };
        let allowed = "a power of two from 256 to 128KiB, such as \"4KiB\"";
        let fits = |size: &ByteSize| size.0.is_power_of_two() && CHUNK_BYTES.contains(&size.0);
        let size = Self::size(&value).filter(fits);
        let size = size.ok_or_else(|| self.bad("chunk", &value, allowed))?;
        if size.0 > LARGEST_PAGE_BYTES {
            let allowed = "with one page a block, a chunk is at most a page (16KiB)";
            return Err(self.bad("chunk", &value, allowed));
        }
        Ok(size)
    }

    fn mem_limit(&mut self) -> Result<Option<ByteSize>, SchemeError> {
        let Some(value) = self.take("mem_limit_bytes") else { return Ok(None) };
        let fits = |size: &ByteSize| (1 << 16..=1 << 60).contains(&size.0);
        let size = Self::size(&value).filter(fits);
        let allowed = "a size from 64KiB, such as \"512MiB\"";
        size.map(Some).ok_or_else(|| self.bad("mem_limit_bytes", &value, allowed))
    }
}
