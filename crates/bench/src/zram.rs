//! A compressed swap device of the kernel, from its creation to its removal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{BenchError, file_error};
use crate::knob::Knob;

const CONTROL: &str = "/sys/class/zram-control";

/// A zram device in use as swap, as it serves programs best: without read-ahead, which only a disk
/// needs, and without zswap before it. Its end takes it out of use and removes it.
#[derive(Debug)]
pub struct ZramSwap {
    number: u32,
    added: bool,
    former_algorithm: Option<String>,
    swapping: bool,
    _knobs: Vec<Knob>,
}

impl ZramSwap {
    /// Makes a device of `size_bytes` that compresses with `algorithm`, and swaps to it before any
    /// other device.
    pub fn start(algorithm: &str, size_bytes: u64) -> Result<ZramSwap, BenchError> {
        let mut knobs = vec![Knob::set(Path::new("/proc/sys/vm/page-cluster"), "0")?];
        knobs.extend(Knob::without_zswap()?);
        let (number, added) = claim()?;
        let mut device =
            ZramSwap { number, added, former_algorithm: None, swapping: false, _knobs: knobs };
        let choices = device.read("comp_algorithm")?;
        if !choices.split_whitespace().any(|name| name.trim_matches(['[', ']']) == algorithm) {
            return Err(BenchError::Unavailable {
                what: "kernel zram",
                reason: format!("it offers {} but not {algorithm}", choices.trim()),
            });
        }
        device.former_algorithm = chosen(&choices);
        device.write("comp_algorithm", algorithm)?;
        device.write("disksize", &size_bytes.to_string())?;
        let node = device.node();
        run(Command::new("mkswap").arg(&node))?;
        run(Command::new("swapon").args(["-p", "32767"]).arg(&node))?;
        device.swapping = true;
        Ok(device)
    }

    fn node(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn attribute(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}/{name}", self.number))
    }

    fn read(&self, name: &str) -> Result<String, BenchError> {
        let path = self.attribute(name);
        fs::read_to_string(&path).map_err(file_error("read", &path))
    }

    fn write(&self, name: &str, value: &str) -> Result<(), BenchError> {
        let path = self.attribute(name);
        fs::write(&path, value).map_err(file_error("write to", &path))
    }

    /// Where it says what it holds.
    pub fn mm_stat(&self) -> PathBuf {
        self.attribute("mm_stat")
    }
}

impl Drop for ZramSwap {
    fn drop(&mut self) {
        let complain = |result: Result<(), BenchError>| {
            if let Err(error) = result {
                eprintln!("/dev/zram{} could not be put back: {error}", self.number);
            }
        };
        if self.swapping {
            complain(run(Command::new("swapoff").arg(self.node())));
        }
        complain(self.write("reset", "1"));
        if self.added {
            let path = Path::new(CONTROL).join("hot_remove");
            let removed = fs::write(&path, self.number.to_string());
            complain(removed.map_err(file_error("write to", &path)));
        } else if let Some(algorithm) = &self.former_algorithm {
            complain(self.write("comp_algorithm", algorithm));
        }
    }
}

/// A device that nobody else uses: a new one where the kernel makes one, else an idle one.
fn claim() -> Result<(u32, bool), BenchError> {
    let hot_add = Path::new(CONTROL).join("hot_add");
    let why = match fs::read_to_string(&hot_add) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => return Ok((number, true)),
            Err(_) => format!("{} said '{}'", hot_add.display(), text.trim()),
        },
        Err(error) => format!("{}: {error}", hot_add.display()),
    };
    (0..16)
        .find(|number| {
            fs::read_to_string(format!("/sys/block/zram{number}/disksize"))
                .is_ok_and(|size| size.trim() == "0")
        })
        .map(|number| (number, false))
        .ok_or(BenchError::Unavailable {
            what: "kernel zram",
            reason: format!("no new device can be made ({why}) and none is idle"),
        })
}

/// The algorithm in brackets.
fn chosen(choices: &str) -> Option<String> {
    let (_, rest) = choices.split_once('[')?;
    Some(rest.split_once(']')?.0.to_string())
}

/// Runs `command`; its error is what it said.
pub(crate) fn run(command: &mut Command) -> Result<(), BenchError> {
    let text = format!("{command:?}").replace('"', "");
    let fail = |reason| BenchError::Command { command: text.clone(), reason };
    let output = command.output().map_err(|error| fail(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    Err(fail(if said.is_empty() { output.status.to_string() } else { said }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_prints_is_understood() {
        assert_eq!(chosen("lzo-rle [lz4] lzo"), Some("lz4".to_string()));
    }

    #[test]
    fn a_failing_command_says_why() {
        let error = run(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]))
            .expect_err("it exits with 3");
        assert!(error.to_string().contains("no such thing"), "{error}");
    }
}
