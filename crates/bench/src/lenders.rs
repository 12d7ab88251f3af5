//! Programs on the far machine of a network that lend memory: `clew donate`, and a Redis server.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clew_remote::keys::{KeyError, Keys};

use crate::error::BenchError;
use crate::interrupt;
use crate::network::{Machine, Network, is_installed, missing};

/// How long one may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that ends with this.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program on the far machine, which says what it says to us.
pub(crate) fn start(network: &Network, command: &mut Command) -> Result<Server, BenchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = network.on(Machine::Far, || command.spawn())?;
    child.map(Server).map_err(|source| BenchError::Start { program, source })
}

/// One that lends. Its end takes everything with it.
pub struct Lender {
    address: SocketAddr,
    _server: Server,
}

impl Lender {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until it listens; whatever it says then goes nowhere.
    fn begun(
        network: &Network,
        program: &str,
        address: SocketAddr,
        mut server: Server,
    ) -> Result<Lender, BenchError> {
        if let Some(mut says) = server.0.stdout.take() {
            std::thread::spawn(move || std::io::copy(&mut says, &mut std::io::sink()));
        }
        let since = Instant::now();
        while network.on(Machine::Near, || TcpStream::connect(address).is_err())? {
            if let Ok(Some(status)) = server.0.try_wait() {
                return Err(BenchError::Ended {
                    program: program.to_string(),
                    status: status.to_string(),
                    last_words: String::new(),
                });
            }
            if since.elapsed() > PATIENCE {
                let (program, seconds) = (program.to_string(), PATIENCE.as_secs());
                return Err(BenchError::Silent { program, seconds });
            }
            interrupt::sleep(Duration::from_millis(20))?;
        }
        Ok(Lender { address, _server: server })
    }

    /// `clew donate`, of so many bytes. It and the borrower, whose keys are in `borrower`, know each other.
    ///
    /// # Errors
    /// If it does not listen, or there are no keys.
    pub fn donor(
        network: &Network,
        exe: &Path,
        bytes: u64,
        own: &Path,
        borrower: &Path,
    ) -> Result<Lender, BenchError> {
        let address = network.port(Machine::Far)?;
        let introduced = || -> Result<(), KeyError> {
            let (own, borrower) = (Keys::open(own)?, Keys::open(borrower)?);
            own.know(borrower.identity.public(), "borrower")?;
            borrower.know(own.identity.public(), &address.to_string())
        };
        introduced().map_err(|error| BenchError::Unavailable {
            what: "a donor",
            reason: error.to_string(),
        })?;
        let mut command = Command::new(exe);
        command.args(["donate", "--listen", &address.to_string(), "--reserve", "0"]);
        command.args(["--memory", &bytes.to_string(), "--keys"]).arg(own);
        let server = start(network, &mut command)?;
        Lender::begun(network, "clew donate", address, server)
    }

    /// A Redis server whose files are in `scratch`.
    ///
    /// # Errors
    /// If it is not there, or does not listen.
    pub fn redis(network: &Network, scratch: &Path) -> Result<Lender, BenchError> {
        if !is_installed("redis-server") {
            return Err(missing("redis-server"));
        }
        let address = network.port(Machine::Far)?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", &address.ip().to_string()]);
        command.args(["--port", &address.port().to_string()]);
        command.args(["--save", "", "--protected-mode", "no", "--maxmemory-policy", "noeviction"]);
        command.arg("--dir").arg(scratch);
        let server = start(network, &mut command)?;
        Lender::begun(network, "redis-server", address, server)
    }
}
