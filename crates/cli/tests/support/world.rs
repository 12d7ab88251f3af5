//! One program, and as many daemons as it takes: what happens to it in a second or two, each step
//! checked, whoever dies.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use clew_live::agents::preload;
use clew_live::control::client::{Client, ControlError};
use clew_live::control::protocol::{Environment, Request};
use clew_live::control::status::Status;

use super::hook::Tools;
use super::{Program, TempDir, clew, flash_arguments, kill, poll, tail, wait_for_end};

/// Nothing that a program or a client waits for takes longer, whatever fails.
pub const BOUND: Duration = Duration::from_secs(30);

const APP: &str = "touch";
const PAGES: u64 = 1024;

/// A scheme for [`World::new`].
pub const FLASH: &str = "with flash";

/// Environment of a daemon.
pub type Setting = Vec<(&'static str, String)>;

/// How a daemon ended before it was told to.
#[derive(Clone, Debug)]
pub struct End {
    pub status: ExitStatus,
    /// What it said.
    pub said: String,
}

impl End {
    /// Killed, as by SIGKILL from outside.
    pub fn was_killed(&self) -> bool {
        self.status.signal() == Some(9)
    }

    /// By itself, and it said why.
    pub fn has_reason(&self) -> bool {
        let by_itself =
            self.status.signal() == Some(6) || self.status.code().is_some_and(|code| code > 0);
        by_itself && !self.last_words().is_empty()
    }

    /// What it said last.
    pub fn last_words(&self) -> &str {
        let says = |line: &&str| !line.trim().is_empty() && !line.starts_with("note: ");
        self.said.lines().rfind(says).unwrap_or_default()
    }
}

/// What the program says of a command to a child that is not there.
const CHILD_GONE: &str = "child gone";

/// A program and its daemons.
pub struct World<'a> {
    tools: &'a Tools,
    /// Of all daemons, after `daemon`.
    arguments: Vec<String>,
    pub dir: TempDir,
    socket: PathBuf,
    daemon: Option<Child>,
    /// Of the daemons to come; those after them have none.
    settings: VecDeque<Setting>,
    generation: usize,
    program: Option<Program>,
    /// What comes before the program's command.
    before: Vec<String>,
    /// What the program has of its daemon.
    environment: Environment,
    /// What is preloaded into it.
    pub agent_object: PathBuf,
    /// Daemons that ended before they were told to.
    pub ends: Vec<End>,
    /// Why something of the program was not managed, when that was looked at.
    pub unmanaged: Vec<String>,
    /// What was refused.
    pub refused: Vec<String>,
    /// The forked child that stays.
    child: Option<u32>,
    /// It was ended, as there was no room for what it shares, and the log says so.
    child_is_lost: bool,
}

/// Runs what may hang on a thread of its own.
fn bounded<T: Send + 'static>(what: &str, run: impl FnOnce() -> T + Send + 'static) -> T {
    let (to, from) = channel();
    std::thread::spawn(move || drop(to.send(run())));
    from.recv_timeout(BOUND).unwrap_or_else(|_| panic!("{what}: nothing within {BOUND:?}"))
}

impl<'a> World<'a> {
    /// The first daemons have these settings, the program's command is preceded by `before`. Scheme
    /// [`FLASH`] has a pool that is far too small, and flash.
    pub fn new(
        tools: &'a Tools,
        scheme: &str,
        settings: Vec<Setting>,
        before: Vec<String>,
    ) -> World<'a> {
        let dir = TempDir::new();
        // What is tried here is not a restart loop.
        fs::write(dir.join("clew.toml"), "max-short-lives = 1000000\n").expect("a config");
        let arguments = match scheme {
            FLASH => flash_arguments(&dir, "1MiB", "16MiB"),
            scheme => vec!["--scheme".to_string(), scheme.to_string()],
        };
        World {
            tools,
            arguments,
            socket: dir.join("s"),
            dir,
            daemon: None,
            settings: settings.into(),
            generation: 0,
            program: None,
            before,
            environment: Environment::default(),
            agent_object: PathBuf::new(),
            ends: Vec::new(),
            unmanaged: Vec::new(),
            refused: Vec::new(),
            child: None,
            child_is_lost: false,
        }
    }

    fn log_path(&self) -> PathBuf {
        self.dir.join(format!("daemon-{}.log", self.generation))
    }

    /// What all daemons said.
    pub fn log(&self) -> String {
        let text = |n| fs::read_to_string(self.dir.join(format!("daemon-{n}.log")));
        let part = |n| format!("--- daemon {n}:\n{}", tail(&text(n).unwrap_or_default(), 30));
        (1..=self.generation).map(part).collect()
    }

    fn spawn_daemon(&mut self) {
        self.generation += 1;
        let log = File::create(self.log_path()).expect("a log");
        let mut command = clew();
        command
            .args(["daemon", "--budget", "1GiB", "--socket"])
            .arg(&self.socket)
            .args(&self.arguments)
            .arg("--config")
            .arg(self.dir.join("clew.toml"))
            .env("RUST_BACKTRACE", "0")
            .envs(self.settings.pop_front().unwrap_or_default())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .process_group(0);
        self.daemon = Some(command.spawn().expect("clew daemon starts"));
    }

    /// Whether the daemon has ended before it was told to; writes down how.
    fn has_died(&mut self) -> bool {
        let Some(daemon) = &mut self.daemon else { return true };
        let Some(status) = daemon.try_wait().expect("try_wait") else { return false };
        let said = fs::read_to_string(self.log_path()).unwrap_or_default();
        self.ends.push(End { status, said });
        self.daemon = None;
        true
    }

    /// Starts daemons until one serves.
    pub fn start(&mut self) {
        for _ in 0..4 {
            self.spawn_daemon();
            let pid = self.daemon.as_ref().map(Child::id).expect("just started");
            let until = Instant::now() + BOUND;
            while !self.has_died() {
                let socket = self.socket.clone();
                let status = bounded("the status", move || {
                    Client::connect(&socket).and_then(|mut client| client.status())
                });
                if status.is_ok_and(|status| status.daemon_pid == pid) {
                    return;
                }
                assert!(
                    Instant::now() < until,
                    "a daemon neither serves nor ends within {BOUND:?}"
                );
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        panic!("no daemon serves: {:?}", self.ends);
    }

    fn look_after_daemon(&mut self) {
        if self.has_died() {
            self.start();
        }
    }

    fn call<T>(&mut self, what: &str, request: &Request) -> Result<T, String>
    where
        T: serde::de::DeserializeOwned + Send + 'static,
    {
        let until = Instant::now() + BOUND;
        loop {
            let (socket, copy) = (self.socket.clone(), request.clone());
            let result = bounded(what, move || {
                Client::connect(&socket).and_then(|mut client| client.call::<T>(&copy))
            });
            match result {
                Ok(value) => return Ok(value),
                Err(ControlError::Refused(why)) => return Err(why),
                Err(error) => {
                    assert!(Instant::now() < until, "{what}: {error}\n{}", self.log());
                    std::thread::sleep(Duration::from_millis(10));
                    self.look_after_daemon();
                }
            }
        }
    }

    /// An order. That it is refused is written down.
    pub fn order(&mut self, request: Request) {
        if let Err(why) = self.call::<()>(&format!("{request:?}"), &request) {
            self.refused.push(why);
        }
    }

    /// The state of everything.
    pub fn status(&mut self) -> Status {
        self.call("the status", &Request::Status).expect("never refused")
    }

    /// Takes everything out.
    pub fn swap_out(&mut self) {
        self.order(Request::SwapOut { app: APP.into() });
    }

    /// Brings everything back.
    pub fn restore(&mut self) {
        self.order(Request::Restore { app: APP.into() });
    }

    /// One relaunch, in which `line` is asked.
    pub fn relaunch(&mut self, line: &str) {
        self.order(Request::Fg { app: APP.into() });
        self.check(line);
        self.order(Request::Responded { app: APP.into(), response_ns: 1_000_000 });
        self.order(Request::Bg { app: APP.into() });
    }

    /// What a program's environment needs.
    fn ask_environment(&mut self) -> Environment {
        self.call("the environment", &Request::Environment).expect("never refused")
    }

    /// Starts the program and waits until it is filled.
    pub fn run(&mut self) {
        self.environment = self.ask_environment();
        self.agent_object = preload::object(&self.socket).expect("it has a place");
        let variables = [
            format!("LD_PRELOAD={}", self.agent_object.display()),
            format!("CLEW_AGENT_SOCKET={}", self.environment.agent_socket.display()),
            format!("CLEW_APP={APP}"),
        ];
        let mut words = self.before.clone();
        words.push("env".into());
        words.extend(variables);
        words.push(self.tools.touch.to_str().expect("UTF-8").into());
        words.extend([PAGES.to_string(), "50".into(), "7".into()]);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        self.program = Some(Program::start(&self.dir, APP, command));
        loop {
            let line = self.answer("its start");
            let program = self.program.as_mut().expect("just started");
            if let Some(pid) = line.strip_prefix("pid ") {
                program.pid = pid.parse().expect("a pid");
            }
            if line == "ready" {
                break;
            }
        }
        // As `clew run` would have told.
        let until = Instant::now() + Duration::from_millis(600);
        while self.status().apps.is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The next line of the program. Daemons that die meanwhile are replaced.
    fn answer(&mut self, to: &str) -> String {
        let until = Instant::now() + BOUND;
        loop {
            let program = self.program.as_mut().expect("it runs");
            if let Some(line) = program.read_within(Duration::from_millis(20)) {
                return line;
            }
            // The program says so itself of one that is gone before it is asked.
            let is_late = Instant::now() + BOUND > until + Duration::from_secs(2);
            if is_late && to.starts_with("child ") && self.loses_its_child() {
                return CHILD_GONE.to_string();
            }
            let program = self.program.as_mut().expect("it runs");
            let report = |program: &Program| program.report();
            assert!(
                program.is_running(),
                "the program ended at '{to}': {}\n{}",
                report(program),
                self.log()
            );
            assert!(
                Instant::now() < until,
                "no answer to '{to}' within {BOUND:?}: {}\n{}",
                report(program),
                self.log()
            );
            if self.daemon.is_some() {
                self.look_after_daemon();
            }
        }
    }

    /// Whether the child was ended with a reason, which is written down.
    fn loses_its_child(&mut self) -> bool {
        const REASON: &str =
            "no room in page tables for what a forked child shares: it gets SIGBUS";
        let is_dead = |pid: u32| {
            fs::read_to_string(format!("/proc/{pid}/stat"))
                .map_or(true, |stat| stat.rsplit(')').next().is_some_and(|s| s.starts_with(" Z")))
        };
        if !self.child_is_lost && self.child.is_some_and(is_dead) && self.log().contains(REASON) {
            self.child_is_lost = true;
            self.unmanaged.push(REASON.to_string());
        }
        self.child_is_lost
    }

    /// Has the program fork a child that stays; its number.
    fn fork(&mut self) -> u32 {
        let child = self.ask("fork-keep");
        let pid = child.strip_prefix("child ").and_then(|pid| pid.parse().ok()).expect("a child");
        self.child = Some(pid);
        pid
    }

    /// Asks the program.
    pub fn ask(&mut self, line: &str) -> String {
        self.program.as_mut().expect("it runs").send(line);
        self.answer(line)
    }

    /// Takes pages out while the program uses them.
    fn swap_out_under(&mut self, line: &str) {
        self.program.as_mut().expect("it runs").send(line);
        self.swap_out();
        self.swap_out();
        let answer = self.answer(line);
        assert!(answer.ends_with(" bad 0"), "'{line}': {answer}\n{}{}", self.report(), self.log());
    }

    /// The same, until it asked for a page that was on its way out.
    fn swap_out_what_is_asked_for(&mut self, line: &str) {
        for _ in 0..20 {
            let before = self.status().totals.returned_pages;
            self.swap_out_under(line);
            if self.status().totals.returned_pages != before {
                return;
            }
        }
    }

    /// Asks, and expects an answer.
    pub fn say(&mut self, line: &str, wanted: &str) {
        let answer = self.ask(line);
        if answer == CHILD_GONE && self.loses_its_child() {
            return;
        }
        assert_eq!(answer, wanted, "answer to '{line}'\n{}{}", self.report(), self.log());
    }

    /// Asks for what is checked: no byte may be wrong.
    pub fn check(&mut self, line: &str) {
        let answer = self.ask(line);
        if answer == CHILD_GONE && self.loses_its_child() {
            return;
        }
        assert!(answer.ends_with(" bad 0"), "'{line}': {answer}\n{}{}", self.report(), self.log());
    }

    fn report(&self) -> String {
        self.program.as_ref().map(Program::report).unwrap_or_default()
    }

    /// Waits, not for long, until process `pid` is listed as managed, or as a candidate, or is not
    /// listed any more; what is not managed then is written down.
    pub fn look_for(&mut self, pid: u32, listed: bool) {
        let until = Instant::now() + Duration::from_millis(600);
        while Instant::now() < until {
            let status = self.status();
            let process = |p: &&clew_live::control::status::ProcessStatus| p.pid == pid;
            let found = status.apps.iter().flat_map(|app| &app.processes).find(process).is_some();
            if found == listed {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Writes down what is not managed, and why. An agent that got no CPU for two seconds is silent
    /// until it gets one, and being prepared takes as long as the machine is busy; that is waited for.
    pub fn note_unmanaged(&mut self) {
        let until = Instant::now() + BOUND;
        loop {
            let status = self.status();
            assert_eq!(status.pool.corrupt_pages, 0, "damaged copies\n{}", self.log());
            let processes = status.apps.into_iter().flat_map(|app| app.processes);
            let why: Vec<String> = processes.filter(|p| !p.managed).map(|p| p.reason).collect();
            let passing = ["its agent is silent", "being prepared"];
            let passes = |reason: &String| passing.iter().any(|word| reason.starts_with(word));
            let passes = why.iter().any(passes);
            if !passes || Instant::now() > until {
                self.unmanaged.extend(why);
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Brings every page back and ends the daemon; all is in the program then.
    pub fn stop(&mut self) {
        let until = Instant::now() + BOUND;
        loop {
            let socket = self.socket.clone();
            let order = move || Client::connect(&socket).and_then(|mut c| c.order(&Request::Stop));
            let stopped = bounded("stop", order).is_ok();
            let daemon = self.daemon.as_mut().expect("one serves");
            // It may have heard the order, and its answer not have come.
            let patience = if stopped { BOUND } else { Duration::from_secs(1) };
            let ended = wait_for_end(daemon, patience);
            assert!(ended.is_some() || !stopped, "a daemon has stopped and does not end");
            if ended.is_some_and(|status| status.success()) {
                self.daemon = None;
                return;
            }
            assert!(Instant::now() < until, "no daemon stops within {BOUND:?}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
            self.look_after_daemon();
        }
    }

    /// Keepers of daemons of this world, dead ones included.
    fn keepers(&self) -> Vec<u32> {
        let is_ours = |pid: &u32| {
            let read = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            let command = read("cmdline");
            let socket = self.socket.as_os_str().as_encoded_bytes();
            read("comm") == b"clew-keeper\n" && command.split(|b| *b == 0).any(|w| w == socket)
        };
        let names = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).filter(is_ours).collect()
    }

    /// Nobody is left who holds anything.
    fn assert_no_keeper(&self) {
        let none = poll(BOUND, || self.keepers().is_empty().then_some(()));
        assert!(none.is_some(), "keepers {:?} are left\n{}", self.keepers(), self.log());
    }

    /// Ends the program.
    pub fn quit(&mut self) {
        let mut program = self.program.take().expect("it runs");
        program.send("quit");
        let status = program.wait(BOUND);
        assert!(status.success(), "the program ended with {status}\n{}", program.report());
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.program = None;
        if let Some(mut daemon) = self.daemon.take() {
            kill(daemon.id());
            let _ = wait_for_end(&mut daemon, BOUND);
        }
        // Those of daemons that have died, and nobody has taken over.
        self.keepers().into_iter().for_each(kill);
    }
}

/// A whole life: everything that a program does, and everything that is done to it.
pub fn life(world: &mut World<'_>) {
    world.start();
    world.run();
    world.swap_out();
    world.note_unmanaged();
    world.check("touch random 300 1");
    world.say("write 200 3", "wrote 200");
    world.swap_out();
    world.relaunch("touch random 300 2");
    world.swap_out_what_is_asked_for("touch random 8000 4");
    let child = world.fork();
    world.say("child write 50 5", "wrote 50");
    world.look_for(child, true);
    world.swap_out();
    world.note_unmanaged();
    world.check("child sum");
    world.check("touch random 100 7");
    world.swap_out();
    world.say("move", "moved");
    world.say("drop 10 50", "dropped 50");
    world.say("unmap 200 50", "unmapped 50");
    world.say("poke 100 9", "poked 100");
    world.swap_out();
    world.check("sum");
    world.swap_out();
    world.restore();
    world.swap_out();
    world.check("fork-sum");
    world.say("child quit", "child ended");
    world.look_for(child, false);
    world.swap_out();
    world.note_unmanaged();
    world.stop();
    world.assert_no_keeper();
    // Everything is there, though nobody could bring it.
    world.check("sum");
    world.quit();
}

/// The first daemon is to die on the way, of its settings; then what its successor does.
pub fn succession(world: &mut World<'_>) {
    world.start();
    world.run();
    world.swap_out();
    let child = world.fork();
    world.say("child write 50 5", "wrote 50");
    world.look_for(child, true);
    world.check("touch random 600 1");
    world.swap_out();
    world.note_unmanaged();
    world.check("child sum");
    world.check("sum");
    world.swap_out_under("fork-sum");
    world.say("move", "moved");
    world.swap_out();
    world.say("child quit", "child ended");
    world.stop();
    world.assert_no_keeper();
    world.check("sum");
    world.quit();
}
