//! Another user than root, and a daemon of theirs. It opens a userfaultfd of its own in a mount
//! namespace, so that nobody else gets access to one.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use clew_live::control::status::Status;

use super::{
    LONG, Program, TempDir, is_alive, kill, kill_tree, poll, run_to_end, texts, wait_for_end,
};

/// Nobody, who is in no group.
pub const ID: u32 = 65534;

/// What turns a command of root's into one of theirs.
const SETPRIV: [&str; 5] =
    ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"];

/// The words of a command that runs `words` as the other user.
pub fn as_other_user(words: &[String]) -> Vec<String> {
    SETPRIV.iter().map(|word| word.to_string()).chain(words.iter().cloned()).collect()
}

/// A directory of theirs.
pub fn directory_of_theirs() -> TempDir {
    let dir = TempDir::new();
    chown(dir.path(), Some(ID), Some(ID)).expect("root gives it away");
    dir
}

/// A daemon of the other user's.
pub struct OtherUser {
    pub dir: TempDir,
    budget: String,
    /// The command under test, where they can read it.
    clew: PathBuf,
    daemon: Child,
    keeper: u32,
}

/// Has `/dev/userfaultfd` for whoever is in the namespace. Following forks takes CAP_SYS_PTRACE.
const DAEMON: &str =
    "set -e; mknod uffd c 10 $(awk '$2 == \"userfaultfd\" { print $1 }' /proc/misc)
    chmod 666 uffd; mount --bind uffd /dev/userfaultfd; rm uffd
    exec setpriv --reuid=65534 --regid=65534 --clear-groups \
        --inh-caps=-all,+sys_ptrace --ambient-caps=-all,+sys_ptrace \"$@\"";

impl OtherUser {
    /// Starts one and waits until it answers.
    pub fn start(budget: &str, toml: &str) -> OtherUser {
        let dir = directory_of_theirs();
        let clew = dir.join("clew");
        fs::copy(env!("CARGO_BIN_EXE_clew"), &clew).expect("a copy");
        fs::write(dir.join("clew.toml"), toml).expect("a config");
        let daemon = OtherUser::spawn(&dir, budget);
        let mut user = OtherUser { dir, budget: budget.to_string(), clew, daemon, keeper: 0 };
        user.wait_answers();
        user
    }

    fn spawn(dir: &TempDir, budget: &str) -> Child {
        let log = fs::OpenOptions::new().create(true).append(true).open(dir.join("daemon.log"));
        let log = log.expect("a log");
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", DAEMON, "sh", "./clew", "daemon", "--socket"]);
        command.arg(dir.join("s")).args(["--budget", budget, "--scheme", "zram", "--config"]);
        command.arg(dir.join("clew.toml")).current_dir(dir.path()).env_remove("LD_PRELOAD");
        command.env("HOME", dir.path()).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a second handle")).stderr(log).process_group(0);
        command.spawn().expect("unshare starts")
    }

    fn wait_answers(&mut self) {
        let pid = self.daemon.id();
        let answer = poll(LONG, || {
            if let Some(status) = self.daemon.try_wait().expect("try_wait") {
                panic!("their daemon ended at once with {status}\n{}", self.log());
            }
            self.try_status().filter(|status| status.daemon_pid == pid)
        });
        self.keeper = answer.unwrap_or_else(|| panic!("no answer\n{}", self.log())).keeper_pid;
    }

    /// What their daemon said.
    pub fn log(&self) -> String {
        format!(
            "--- daemon:\n{}",
            fs::read_to_string(self.dir.join("daemon.log")).unwrap_or_default()
        )
    }

    fn command(&self, words: &[String]) -> Command {
        let all = as_other_user(words);
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(self.dir.path()).env("HOME", self.dir.path());
        command.env_remove("LD_PRELOAD").env_remove("CLEW_SOCKET").stdin(Stdio::null());
        command
    }

    fn words(&self, verb: &[&str]) -> Vec<String> {
        let path = |path: PathBuf| path.to_str().expect("UTF-8").to_string();
        let mut words = vec![path(self.clew.clone())];
        words.extend(verb.iter().map(|word| word.to_string()));
        words.extend(["--socket".to_string(), path(self.dir.join("s"))]);
        words
    }

    fn try_status(&self) -> Option<Status> {
        let output = self.command(&self.words(&["ps", "--format", "json"])).output().ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// The state of everything, as `clew ps` tells them.
    pub fn status(&self) -> Status {
        self.try_status().unwrap_or_else(|| panic!("no status\n{}", self.log()))
    }

    /// `clew swap-out` of theirs; false where that is refused.
    pub fn swap_out(&self, app: &str) -> bool {
        run_to_end(&mut self.command(&self.words(&["swap-out", app])), LONG).status.success()
    }

    /// Starts a program of theirs under their daemon.
    pub fn run(&self, app: &str, words: &[String]) -> Program {
        let mut all = self.words(&["run", "--app", app]);
        all.push("--".to_string());
        all.extend(words.iter().cloned());
        Program::start(&self.dir, app, self.command(&all))
    }

    /// SIGKILL to their daemon, and the next one in its place.
    pub fn replace_daemon(&mut self) {
        self.daemon.kill().expect("root may");
        wait_for_end(&mut self.daemon, LONG).expect("a killed daemon ends");
        self.daemon = OtherUser::spawn(&self.dir, &self.budget);
        self.wait_answers();
    }
}

impl Drop for OtherUser {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        if matches!(self.daemon.try_wait(), Ok(None)) {
            let stopped = run_to_end(&mut self.command(&self.words(&["stop"])), LONG);
            if wait_for_end(&mut self.daemon, LONG).is_none() {
                eprintln!("their daemon did not stop: {}", texts(&stopped));
            }
        }
        kill_tree(&mut self.daemon);
        let exe = fs::read_link(format!("/proc/{}/exe", self.keeper));
        if is_alive(self.keeper) && exe.is_ok_and(|exe| exe == self.clew) {
            kill(self.keeper);
        }
    }
}
