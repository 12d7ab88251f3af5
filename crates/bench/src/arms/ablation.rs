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
    /// LZ4 by the page everywhere: the kernel's codec, no groups.
    SameCodec,
    /// No hot, warm and cold lists.
    Hotness,
    /// Nothing decompressed ahead of an access.
    PreDecomp,
    /// Nothing restored at a relaunch.
    RelaunchPrefetch,
}

impl Ablation {
    /// All of them.
    pub const ALL: [Ablation; 4] =
        [Ablation::SameCodec, Ablation::Hotness, Ablation::PreDecomp, Ablation::RelaunchPrefetch];

    /// The name of the arm.
    pub fn arm_name(self) -> &'static str {
        match self {
            Ablation::SameCodec => "clew-ariadne-lz4",
            Ablation::Hotness => "clew-ariadne-no-hotness",
            Ablation::PreDecomp => "clew-ariadne-no-predecomp",
            Ablation::RelaunchPrefetch => "clew-ariadne-no-prefetch",
        }
    }

    /// What is different, in words.
    pub fn description(self) -> &'static str {
        match self {
            Ablation::SameCodec => "LZ4 by the page everywhere",
            Ablation::Hotness => "one LRU for all pages",
            Ablation::PreDecomp => "no PreDecomp",
            Ablation::RelaunchPrefetch => "nothing restored at a relaunch",
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
        let kind = |kind: &str| Table::from_iter([("kind".to_string(), kind.into())]);
        match self {
            Ablation::SameCodec => {
                let mut packing = kind("one-page");
                packing.insert("codec".to_string(), "lz4".into());
                packing.insert("chunk".to_string(), "4KiB".into());
                scheme.insert("packing".to_string(), packing.into());
            }
            Ablation::Hotness => {
                scheme.insert("reclaim".to_string(), kind("lru").into());
                // Without HotnessOrg nobody keeps a hot list to be restored.
                let by_trigger = prefetch(scheme).map_err(unfit)?;
                by_trigger.insert("relaunch".to_string(), kind("recorded-set").into());
            }
            Ablation::PreDecomp => keep_half(scheme, "relaunch").map_err(unfit)?,
            Ablation::RelaunchPrefetch => keep_half(scheme, "fault").map_err(unfit)?,
        }
        Ok(file.to_string())
    }
}

/// The `prefetch` column, which has a prefetcher for relaunches and one for faults.
fn prefetch(scheme: &mut Table) -> Result<&mut Table, String> {
    match scheme.get_mut("prefetch") {
        Some(Value::Table(prefetch)) if prefetch.contains_key("relaunch") => Ok(prefetch),
        _ => Err("the scheme does not prefetch by trigger".to_string()),
    }
}

/// Leaves of the two prefetchers only `half`.
fn keep_half(scheme: &mut Table, half: &str) -> Result<(), String> {
    let kept = prefetch(scheme)?.remove(half);
    let kept = kept.ok_or_else(|| format!("the scheme's prefetch has no '{half}'"))?;
    scheme.insert("prefetch".to_string(), kept);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clew_live::config::load_scheme;

    #[test]
    fn each_takes_one_mechanism_away_leaves_the_others_and_is_a_scheme() {
        let text = load_scheme("ariadne").expect("the preset").to_toml();
        let before: Table = text.parse().expect("a table");
        let before = &before["scheme"];
        let file = std::env::temp_dir().join(format!("clew-ablation-{}.toml", std::process::id()));
        for ablation in Ablation::ALL {
            let changed = ablation.changed(&text).expect("changed");
            fs::write(&file, &changed).expect("a file");
            let scheme = load_scheme(&file.display().to_string()).expect("a scheme");
            assert_eq!(scheme.name, ablation.arm_name());
            let changed: Table = changed.parse().expect("a table");
            let after = &changed["scheme"];
            let column = match ablation {
                Ablation::SameCodec => "packing",
                Ablation::Hotness => "reclaim",
                Ablation::PreDecomp | Ablation::RelaunchPrefetch => "prefetch",
            };
            match ablation {
                Ablation::SameCodec => assert_eq!(after[column]["codec"].as_str(), Some("lz4")),
                Ablation::Hotness => {
                    assert_eq!(after[column]["kind"].as_str(), Some("lru"));
                    assert_eq!(after["prefetch"]["fault"], before["prefetch"]["fault"]);
                }
                Ablation::PreDecomp => assert_eq!(after[column], before[column]["relaunch"]),
                Ablation::RelaunchPrefetch => assert_eq!(after[column], before[column]["fault"]),
            }
            for other in ["packing", "reclaim", "prefetch", "eviction", "placement"] {
                let also_changed = (ablation, other) == (Ablation::Hotness, "prefetch");
                if other != column && !also_changed {
                    assert_eq!(after[other], before[other], "{ablation:?} changes {other}");
                }
            }
        }
        fs::remove_file(&file).expect("the file");
        assert!(Ablation::PreDecomp.changed("[scheme]\nprefetch = \"none\"").is_err());
    }
}
