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
            }
            Ablation::PreDecomp => switch_off(scheme, "predecomp").map_err(unfit)?,
            Ablation::RelaunchPrefetch => switch_off(scheme, "relaunch").map_err(unfit)?,
        }
        Ok(file.to_string())
    }
}

/// Sets a switch of the `prefetch` column to false. Where the scheme has no such switch, the daemon
/// says so, and the arm does not run.
fn switch_off(scheme: &mut Table, switch: &str) -> Result<(), String> {
    let Some(Value::Table(prefetch)) = scheme.get_mut("prefetch") else {
        return Err("the scheme's prefetch is not a table".to_string());
    };
    prefetch.insert(switch.to_string(), false.into());
    Ok(())
}
