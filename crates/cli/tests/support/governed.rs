//! Programs under `clew govern`, on a zram device of the test's own.

use std::path::PathBuf;
use std::process::Command;
use std::sync::MutexGuard;

use clew_bench::zram::ZramSwap;
use serde_json::Value;

use super::{
    LONG, Program, TempDir, alone, clew, compile, is_root, missing_program, poll, signal, skip,
};

/// What every test needs. Fields end in this order.
pub struct Ground {
    pub dir: TempDir,
    _swap: ZramSwap,
    /// Nothing, where a daemon of the test's has it.
    _alone: Option<MutexGuard<'static, ()>>,
}

impl Ground {
    /// `None` where `test` cannot run, which is said.
    pub fn new(test: &str, programs: &[&str]) -> Option<Ground> {
        Ground::with(test, programs, || Some(alone()))
    }

    /// The same beside a daemon of the test's.
    pub fn beside_a_daemon(test: &str) -> Option<Ground> {
        Ground::with(test, &[], || None)
    }

    fn with(
        test: &str,
        programs: &[&str],
        alone: impl FnOnce() -> Option<MutexGuard<'static, ()>>,
    ) -> Option<Ground> {
        let programs: Vec<&str> =
            ["cc", "mkswap", "swapon"].into_iter().chain(programs.iter().copied()).collect();
        if let Some(reason) = missing_program(&programs) {
            skip(test, &reason);
            return None;
        }
        if !is_root() {
            skip(test, "not root");
            return None;
        }
        let alone = alone();
        match ZramSwap::start("lz4", 1 << 30) {
            Ok(swap) => Some(Ground { dir: TempDir::new(), _swap: swap, _alone: alone }),
            Err(error) => {
                skip(test, &error.to_string());
                None
            }
        }
    }

    /// tests/programs/touch.c without a dynamic loader, which no agent could enter.
    pub fn static_touch(&self) -> PathBuf {
        compile(&self.dir, "touch.c", &["-static"])
    }

    /// The program, and its process as it was started.
    pub fn start(&self, name: &str, command: Command) -> (Program, u32) {
        let mut program = Program::start(&self.dir, name, command);
        let root = program.pid;
        program.wait_ready();
        (program, root)
    }

    pub fn govern(&self, budget: &str, words: &[&str]) -> Governor {
        let mut command = clew();
        command.args(["--format", "json", "govern", "--orders", "--budget", budget]).args(words);
        Governor(Program::start(&self.dir, "govern", command))
    }
}

pub fn touch(binary: &PathBuf, pages: u64) -> Command {
    let mut command = Command::new(binary);
    command.args([&pages.to_string(), "50", "7"]);
    command
}

/// `clew govern`, as its user has it.
pub struct Governor(pub Program);

impl Governor {
    pub fn status(&mut self) -> Value {
        self.0.send("status");
        self.object()
    }

    pub fn object(&mut self) -> Value {
        let mut text = String::new();
        loop {
            let line = self.0.read(LONG);
            text.push_str(&line);
            if line == "}" {
                return serde_json::from_str(&text).expect("JSON");
            }
        }
    }

    /// Waits until its status says so.
    pub fn wait(&mut self, wanted: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let found = poll(LONG, || Some(self.status()).filter(|status| is_so(status)));
        found.unwrap_or_else(|| panic!("no {wanted}: {:#}\n{}", self.status(), self.0.errors()))
    }

    /// Waits until so many pages are swapped out of all programs.
    pub fn wait_swapped(&mut self, least: u64) -> Value {
        self.wait(&format!("{least} pages in swap"), |status| swapped(status) >= least)
    }

    /// Ends it as Ctrl-C does; its last words.
    pub fn end(mut self) -> Value {
        signal(self.0.pid, "INT");
        let last = self.object();
        let status = self.0.wait(LONG);
        assert!(status.success(), "{status}: {}", self.0.errors());
        last
    }
}

pub fn programs(status: &Value) -> Vec<&Value> {
    let apps = status["apps"].as_array().expect("apps");
    apps.iter().flat_map(|app| app["programs"].as_array().expect("programs")).collect()
}

pub fn swapped(status: &Value) -> u64 {
    programs(status).iter().filter_map(|program| program["swapped_pages"].as_u64()).sum()
}

pub fn number(status: &Value, name: &str) -> u64 {
    status[name].as_u64().unwrap_or_else(|| panic!("{name}: {status:#}"))
}
