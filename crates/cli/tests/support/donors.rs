//! Machines that lend memory to a daemon of a test: `clew donate`, and how two come to know each other.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};

use super::{LONG, TempDir, clew, poll, run_to_end, texts, wait_for_end};

/// A process that ends with the test.
pub struct Server(pub Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free now.
pub fn port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// Whether somebody listens there.
pub fn is_there(port: u16) -> Option<()> {
    std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
}

/// A machine that lends, so to say: its keys are in a directory of its own.
pub struct Lends {
    keys: std::path::PathBuf,
    port: u16,
    server: Option<Server>,
}

impl Lends {
    /// One that does not lend yet; its keys are in `keys`, under `name`.
    pub fn new(keys: &TempDir, name: &str) -> Lends {
        Lends { keys: keys.join(name), port: port(), server: None }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.port).into()
    }

    fn donate(&self, words: &[&str]) -> Command {
        let mut command = clew();
        command.args(["donate", "--listen", &self.address().to_string(), "--keys"]);
        command.arg(&self.keys).args(words).stderr(Stdio::null());
        command
    }

    /// Waits for who says a code, and shows that.
    pub fn await_code(&self, keys: &TempDir) -> (Server, String) {
        let code = keys.join("code");
        let shown = std::fs::File::create(&code).expect("a file");
        let pairs = self.donate(&["--pair"]).stdout(shown).spawn();
        let pairs = Server(pairs.expect("clew donate --pair starts"));
        let said = poll(LONG, || {
            let said = std::fs::read_to_string(&code).expect("what it shows");
            said.lines().next().filter(|_| said.ends_with('\n')).map(str::to_string)
        });
        (pairs, said.expect("it shows a code"))
    }

    /// What `clew pair` says that tries this code at `at`, as the borrower whose keys are in `borrower`.
    pub fn say_code(&self, keys: &TempDir, borrower: &str, at: &str, code: &str) -> Output {
        let mut command = clew();
        command.args(["pair", at, code, "--keys"]);
        run_to_end(command.arg(keys.join(borrower)), LONG)
    }

    /// Comes to know the borrower whose keys are in `borrower`, by a code, and is called `at` there.
    pub fn pair(&self, keys: &TempDir, borrower: &str, at: &str) {
        let (mut pairs, said) = self.await_code(keys);
        let wrong = self.say_code(keys, borrower, at, "2222-2222");
        assert_eq!(wrong.status.code(), Some(2), "{}", texts(&wrong));
        let right = self.say_code(keys, borrower, at, &said);
        assert!(right.status.success(), "{}", texts(&right));
        wait_for_end(&mut pairs.0, LONG).expect("it ends when it has paired");
    }

    /// Lends from now on, with nothing yet.
    pub fn start(&mut self) {
        self.server = None;
        // The port of one that was killed is free again in a moment.
        let began = poll(LONG, || {
            let lends = self.donate(&["--memory", "256MiB", "--reserve", "0"]).spawn();
            let mut lends = Server(lends.expect("clew donate starts"));
            poll(LONG, || match is_there(self.port) {
                Some(()) => Some(true),
                None => lends.0.try_wait().expect("try_wait").map(|_| false),
            })?
            .then_some(lends)
        });
        self.server = Some(began.expect("it lends"));
    }

    /// It is gone, with all that it had.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// It stands still, or goes on.
    pub fn signal(&self, name: &str) {
        let server = self.server.as_ref().expect("it lends");
        super::signal(server.0.id(), name);
    }
}
