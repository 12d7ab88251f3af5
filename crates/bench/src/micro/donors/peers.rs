//! Programs of others at the other end of the link: `iperf3`, and a Redis server that has the pages.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clew_remote::cloud::Cloud;
use clew_remote::patience::Patience;
use clew_remote::secure::Session;
use clew_store::flash::Flash;
use serde_json::Value;

use super::machines::{log_bytes, log_on};
use crate::error::BenchError;
use crate::interrupt;
use crate::network::{Machine, Network, is_installed, missing};

/// How long a server may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(network: &Network, command: &mut Command) -> Result<Server, BenchError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = network.on(Machine::Far, || command.spawn())?;
    child.map(Server).map_err(|source| BenchError::Start { program, source })
}

/// A port of the far machine that is free now.
fn port(network: &Network) -> Result<SocketAddr, BenchError> {
    let bound = network.on(Machine::Far, || TcpListener::bind((Machine::Far.address(), 0)))?;
    let address = bound.and_then(|listener| listener.local_addr());
    address.map_err(|error| BenchError::Unavailable { what: "a port", reason: error.to_string() })
}

/// `iperf3`, which listens on the far machine.
pub struct Iperf<'a> {
    network: &'a Network,
    address: SocketAddr,
    _server: Server,
}

impl Iperf<'_> {
    /// Starts it.
    ///
    /// # Errors
    /// If it is not there.
    pub fn new(network: &Network) -> Result<Iperf<'_>, BenchError> {
        if !is_installed("iperf3") {
            return Err(missing("iperf3"));
        }
        let address = port(network)?;
        let mut command = Command::new("iperf3");
        command.args(["-s", "--forceflush", "-B", &address.ip().to_string()]);
        command.args(["-p", &address.port().to_string()]);
        let mut server = start(network, &mut command)?;
        // It has said everything that it says when it listens; afterwards it may say what it likes.
        let mut says = BufReader::new(server.0.stdout.take().ok_or_else(|| ended("iperf3"))?);
        let mut line = String::new();
        while !line.contains("listening") {
            line.clear();
            if says.read_line(&mut line).unwrap_or(0) == 0 {
                return Err(ended("iperf3"));
            }
        }
        std::thread::spawn(move || std::io::copy(&mut says, &mut std::io::sink()));
        Ok(Iperf { network, address, _server: server })
    }

    /// Mbit/s of so many bytes, as the far machine got them.
    ///
    /// # Errors
    /// If it does not say.
    pub fn mbit(&self, bytes: u64) -> Result<f64, BenchError> {
        let mut command = Command::new("iperf3");
        command.args(["-J", "-c", &self.address.ip().to_string()]);
        command.args(["-p", &self.address.port().to_string(), "-n", &bytes.to_string()]);
        let output = self.network.on(Machine::Near, || command.output())?;
        let output =
            output.map_err(|source| BenchError::Start { program: "iperf3".to_string(), source })?;
        let said: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let bits = said["end"]["sum_received"]["bits_per_second"].as_f64();
        bits.map(|bits| bits / 1e6).ok_or_else(|| BenchError::Command {
            command: "iperf3".to_string(),
            reason: said["error"].as_str().unwrap_or("it said no rate").to_string(),
        })
    }
}

fn ended(program: &'static str) -> BenchError {
    BenchError::Unavailable { what: program, reason: "it ended as it began".to_string() }
}

/// A Redis server on the far machine.
pub struct RedisServer {
    address: SocketAddr,
    _server: Server,
}

impl RedisServer {
    /// Starts one whose files are in `scratch`.
    ///
    /// # Errors
    /// If it does not listen.
    pub fn start(network: &Network, scratch: &Path) -> Result<RedisServer, BenchError> {
        let address = port(network)?;
        let mut command = Command::new("redis-server");
        command.args(["--bind", &address.ip().to_string()]);
        command.args(["--port", &address.port().to_string()]);
        command.args(["--save", "", "--protected-mode", "no", "--maxmemory-policy", "noeviction"]);
        command.arg("--dir").arg(scratch);
        let mut server = start(network, &mut command)?;
        let said = server.0.stdout.take();
        std::thread::spawn(move || {
            said.map(|mut said| std::io::copy(&mut said, &mut std::io::sink()))
        });
        let since = Instant::now();
        while network.on(Machine::Near, || TcpStream::connect(address).is_err())? {
            interrupt::sleep(Duration::from_millis(20))?;
            if since.elapsed() > PATIENCE {
                let (program, seconds) = ("redis-server".to_string(), PATIENCE.as_secs());
                return Err(BenchError::Silent { program, seconds });
            }
        }
        Ok(RedisServer { address, _server: server })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A log there, of so many pages, by way of `at`. What one before it had is forgotten with it.
    ///
    /// # Errors
    /// If there is none.
    pub fn log(
        &self,
        network: &Network,
        at: SocketAddr,
        pages: u64,
        chunk: u32,
    ) -> Result<Flash, BenchError> {
        let (at, bytes) = (format!("redis://{at}"), log_bytes(pages, chunk));
        let session = Session([1; 16]);
        let cloud = network.on(Machine::Near, || {
            Cloud::new(&at, session, chunk.into(), bytes, Patience::default())
        })?;
        let cloud = cloud.map_err(|error| BenchError::Unavailable {
            what: "a Redis server",
            reason: error.to_string(),
        })?;
        log_on(Box::new(cloud), chunk)
    }
}
