//! `ariadne` without one of its mechanisms, to see what that mechanism is worth: the scheme as the
//! measured command prints it, with a few of its fields changed.

use std::fs;
use std::path::Path;
use std::process::Command;

use toml::{Table, Value};

use crate::error::{BenchError, file_error};

/// What is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ablation {
    /// LZ4 for every class of page: the kernel's codec.
    OneCodec,
    /// One page a block and a chunk, with LZ4: what the kernel does.
    AdaptiveComp,
    /// One LRU for all pages; a relaunch restores what the last one used.
    HotnessOrg,
    /// Nothing decompressed ahead of a fault.
    PreDecomp,
    /// Nothing restored at a relaunch.
    RelaunchPrefetch,
}

impl Ablation {
    /// All of them.
    pub const ALL: [Ablation; 5] = [
        Ablation::OneCodec,
        Ablation::AdaptiveComp,
        Ablation::HotnessOrg,
        Ablation::PreDecomp,
        Ablation::RelaunchPrefetch,
    ];

    /// The name of the arm.
    pub fn arm_name(self) -> &'static str {
        match self {
            Ablation::OneCodec => "clew-ariadne-lz4",
            Ablation::AdaptiveComp => "clew-ariadne-one-page",
            Ablation::HotnessOrg => "clew-ariadne-lru",
            Ablation::PreDecomp => "clew-ariadne-no-predecomp",
            Ablation::RelaunchPrefetch => "clew-ariadne-no-relaunch",
        }
    }

    /// What is different, in words.
    pub fn description(self) -> &'static str {
        match self {
            Ablation::OneCodec => "LZ4 for all classes",
            Ablation::AdaptiveComp => "one page a block, LZ4",
            Ablation::HotnessOrg => "LRU for HotnessOrg",
            Ablation::PreDecomp => "no PreDecomp",
            Ablation::RelaunchPrefetch => "no restore at a relaunch",
        }
    }
}

impl Ablation {
    /// The scheme `ariadne` of `exe` without it, as a file in `directory`; its path.
    pub fn write_scheme(self, exe: &Path, directory: &Path) -> Result<String, BenchError> {
        let output = Command::new(exe).args(["schemes", "ariadne"]).output();
        let output = output.map_err(file_error("run", exe))?;
        if !output.status.success() {
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_string();
            return Err(BenchError::Unavailable { what: "ariadne", reason });
        }
        let text = self.changed(&String::from_utf8_lossy(&output.stdout))?;
        let path = directory.join("scheme.toml");
        fs::write(&path, text).map_err(file_error("write", &path))?;
        Ok(path.display().to_string())
    }

    /// The scheme in `text` without it.
    fn changed(self, text: &str) -> Result<String, BenchError> {
        let unfit = |reason: String| BenchError::Unavailable { what: "the ablation", reason };
        let mut file: Table = text.parse().map_err(|e| unfit(format!("the scheme: {e}")))?;
        let Some(Value::Table(scheme)) = file.get_mut("scheme") else {
            return Err(unfit("there is no table [scheme]".to_string()));
        };
        scheme.insert("name".to_string(), self.arm_name().into());
        match self {
            Ablation::OneCodec => {
                let Some(Value::Table(packing)) = scheme.get_mut("packing") else {
                    return Err(unfit("the scheme packs without parameters".to_string()));
                };
                for (field, codec) in packing.iter_mut() {
                    if field.ends_with("codec") {
                        *codec = "lz4".into();
                    }
                }
            }
            Ablation::AdaptiveComp => {
                let packing = [("kind", "one-page"), ("codec", "lz4"), ("chunk", "4KiB")];
                scheme.insert("packing".to_string(), table(packing).into());
            }
            Ablation::HotnessOrg => {
                scheme.insert("reclaim".to_string(), "lru".into());
                // A hot list is nobody's any more; what the last relaunch used is its nearest kin.
                if let Some(Value::Table(prefetch)) = scheme.get_mut("prefetch")
                    && prefetch.contains_key("relaunch")
                {
                    prefetch.insert("relaunch".to_string(), "recorded-set".into());
                }
            }
            Ablation::PreDecomp => keep_prefetch(scheme, "relaunch"),
            Ablation::RelaunchPrefetch => keep_prefetch(scheme, "fault"),
        }
        Ok(file.to_string())
    }
}

fn table<const N: usize>(fields: [(&str, &str); N]) -> Table {
    fields.map(|(field, value)| (field.to_string(), value.into())).into_iter().collect()
}

/// Of what is brought back early at a relaunch and at a fault, only what `trigger` causes.
fn keep_prefetch(scheme: &mut Table, trigger: &str) {
    let kept = match scheme.get("prefetch") {
        Some(Value::Table(prefetch)) => prefetch.get(trigger).cloned(),
        _ => None,
    };
    scheme.insert("prefetch".to_string(), kept.unwrap_or_else(|| "none".into()));
}

#[cfg(test)]
mod tests {
    use clew_policy::Scheme;

    use super::*;

    /// Each ablation is a scheme that the daemon takes, and differs from the whole in its columns
    /// alone.
    #[test]
    fn every_ablation_is_a_scheme() {
        let whole = Scheme::preset("ariadne").expect("a preset");
        for ablation in Ablation::ALL {
            let text = ablation.changed(&whole.to_toml()).expect("it has these columns");
            let part = Scheme::from_toml(&text).unwrap_or_else(|e| panic!("{ablation:?}: {e}"));
            assert_eq!(part.name, ablation.arm_name());
            let differs = [
                part.packing.about() != whole.packing.about(),
                part.reclaim.about() != whole.reclaim.about(),
                part.prefetch.about() != whole.prefetch.about(),
            ];
            let expected = match ablation {
                Ablation::OneCodec | Ablation::AdaptiveComp => [true, false, false],
                Ablation::HotnessOrg => [false, true, true],
                Ablation::PreDecomp | Ablation::RelaunchPrefetch => [false, false, true],
            };
            assert_eq!(differs, expected, "{text}");
            assert_eq!(part.admission.about(), whole.admission.about());
            assert_eq!(part.retain, whole.retain);
        }
        let without = |ablation: Ablation| ablation.changed(&whole.to_toml()).expect("it can");
        assert!(!without(Ablation::OneCodec).contains("zstd"));
        assert!(!without(Ablation::PreDecomp).contains("pre-decomp"));
        assert!(!without(Ablation::RelaunchPrefetch).contains("hot-list"));
    }

    #[test]
    fn what_is_no_scheme_is_refused() {
        for text in ["", "[scheme", "[other]\nname = \"x\""] {
            assert!(Ablation::PreDecomp.changed(text).is_err(), "{text}");
        }
    }
}
