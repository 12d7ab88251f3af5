//! A compressed swap device of the kernel, from its creation to its removal.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::{BenchError, file_error};
use crate::kernel_pool::KernelPool;
use crate::knob::Knob;

const CONTROL: &str = "/sys/class/zram-control";

/// A zram device of our own in use as swap, as it serves programs best: without read-ahead, which only
/// a disk needs, and without zswap before it. Its end takes it out of use and removes it; so does the
/// end of this process, however it ends. Other devices are left alone.
#[derive(Debug)]
pub struct ZramSwap {
    number: u32,
    /// Puts the device back once its input ends.
    caretaker: Child,
    _knobs: Vec<Knob>,
}

/// What the caretaker does with the device of the first argument. The second is the algorithm that an
/// idle device had before, and empty for a new one.
const PUT_BACK: &str = "read -r _
swapoff /dev/zram$1 2>/dev/null
echo 1 > /sys/block/zram$1/reset || exit
case $2 in
    '') echo $1 > /sys/class/zram-control/hot_remove ;;
    *) echo $2 > /sys/block/zram$1/comp_algorithm ;;
esac";

impl ZramSwap {
    /// Makes a device of `size_bytes` that compresses with `algorithm`, and swaps to it before any
    /// other device.
    pub fn start(algorithm: &str, size_bytes: u64) -> Result<ZramSwap, BenchError> {
        let mut knobs = vec![Knob::set(Path::new("/proc/sys/vm/page-cluster"), "0")?];
        knobs.extend(Knob::without_zswap()?);
        let (number, added) = claim()?;
        let choices = read(number, "comp_algorithm");
        let former = if added { None } else { choices.as_deref().ok().and_then(chosen) };
        let device = ZramSwap { number, caretaker: caretaker(number, former)?, _knobs: knobs };
        let choices = choices?;
        if !choices.split_whitespace().any(|name| name.trim_matches(['[', ']']) == algorithm) {
            return Err(BenchError::Unavailable {
                what: "kernel zram",
                reason: format!("it offers {} but not {algorithm}", choices.trim()),
            });
        }
        device.write("comp_algorithm", algorithm)?;
        device.write("disksize", &size_bytes.to_string())?;
        let node = device.node();
        run(Command::new("mkswap").arg(&node))?;
        run(Command::new("swapon").args(["-p", "32767"]).arg(&node))?;
        Ok(device)
    }

    fn node(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn write(&self, name: &str, value: &str) -> Result<(), BenchError> {
        let path = attribute(self.number, name);
        fs::write(&path, value).map_err(file_error("write to", &path))
    }

    /// Its pool.
    pub fn pool(&self) -> KernelPool {
        KernelPool::Zram(attribute(self.number, "mm_stat"))
    }
}

impl Drop for ZramSwap {
    fn drop(&mut self) {
        drop(self.caretaker.stdin.take());
        if !self.caretaker.wait().is_ok_and(|status| status.success()) {
            clew_core::remark!("/dev/zram{} could not be put back", self.number);
        }
    }
}

fn attribute(number: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/zram{number}/{name}"))
}

fn read(number: u32, name: &str) -> Result<String, BenchError> {
    let path = attribute(number, name);
    fs::read_to_string(&path).map_err(file_error("read", &path))
}

/// A process that outlives this one: in a group of its own, which Ctrl-C does not reach.
fn caretaker(number: u32, former: Option<String>) -> Result<Child, BenchError> {
    let mut command = Command::new("sh");
    command.args(["-c", PUT_BACK, "sh", &number.to_string(), &former.unwrap_or_default()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
    let fail = |error: io::Error| BenchError::Command {
        command: "sh".to_string(),
        reason: error.to_string(),
    };
    command.spawn().map_err(fail)
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
    use std::io::BufRead;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::skip::skip;

    #[test]
    fn what_the_kernel_prints_is_understood() {
        assert_eq!(chosen("lzo-rle [lz4] lzo"), Some("lz4".to_string()));
    }

    /// Runs itself again as the owner, which is killed.
    #[test]
    fn a_device_goes_with_its_owner_however_that_ends() {
        const OWNER: &str = "CLEW_TEST_OWNS_ZRAM";
        let device = ZramSwap::start("lzo-rle", 1 << 20);
        let device = match device {
            Ok(device) => device,
            Err(error) => return skip("zram::a_device_goes_with_its_owner", &error.to_string()),
        };
        let swaps = || fs::read_to_string("/proc/swaps").expect("/proc/swaps");
        let is_on = |number: u32| swaps().contains(&format!("/dev/zram{number} "));
        if std::env::var_os(OWNER).is_some() {
            assert!(is_on(device.number), "{}", swaps());
            eprintln!("owns {}", device.number);
            let _ = io::stdin().read_line(&mut String::new());
            return;
        }
        let mut own = Command::new(std::env::current_exe().expect("this program"));
        own.args(["a_device_goes_with_its_owner", "--nocapture"]).env(OWNER, "1");
        let mut owner = own.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let mut said = io::BufReader::new(owner.stderr.take().expect("piped")).lines();
        let other: u32 = said
            .find_map(|line| line.ok()?.strip_prefix("owns ")?.parse().ok())
            .expect("a number of a device");
        assert!(other != device.number && is_on(other) && is_on(device.number), "{}", swaps());
        owner.kill().expect("it lives");
        owner.wait().expect("it ends");
        let hang = Instant::now() + Duration::from_secs(120);
        while is_on(other) || attribute(other, "mm_stat").exists() {
            assert!(Instant::now() < hang, "zram{other} stays");
            std::thread::sleep(Duration::from_millis(20));
        }
        let number = device.number;
        assert!(is_on(number), "{}", swaps());
        drop(device);
        assert!(!is_on(number) && !attribute(number, "mm_stat").exists(), "{}", swaps());
    }

    #[test]
    fn a_failing_command_says_why() {
        let error = run(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"]))
            .expect_err("it exits with 3");
        assert!(error.to_string().contains("no such thing"), "{error}");
    }
}
