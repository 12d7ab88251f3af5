//! Programs of others at the other end of the link: `iperf3`, and a log at a Redis server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::Command;

use clew_remote::cloud::Cloud;
use clew_remote::patience::Patience;
use clew_remote::secure::Session;
use clew_store::flash::Flash;
use serde_json::Value;

use super::machines::{log_bytes, log_on};
use crate::error::BenchError;
use crate::lenders::{Server, start};
use crate::network::{Machine, Network, is_installed, missing};

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
        let address = network.port(Machine::Far)?;
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

/// A log at a Redis server, of so many pages, by way of `at`. What one before it had is forgotten with it.
///
/// # Errors
/// If there is none.
pub fn log_at_redis(
    network: &Network,
    at: SocketAddr,
    pages: u64,
    chunk: u32,
) -> Result<Flash, BenchError> {
    let (at, bytes) = (format!("redis://{at}"), log_bytes(pages, chunk));
    let session = Session([1; 16]);
    let cloud = network
        .on(Machine::Near, || Cloud::new(&at, session, chunk.into(), bytes, Patience::default()))?;
    let cloud = cloud.map_err(|error| BenchError::Unavailable {
        what: "a Redis server",
        reason: error.to_string(),
    })?;
    log_on(Box::new(cloud), chunk)
}
