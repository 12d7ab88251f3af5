//! Two machines and the link between them, on one machine: two network namespaces and a pair of virtual Ethernet devices,
//! whose rate the kernel's token bucket (`tc tbf`) limits.
//!
//! The namespaces have no name. They, and all in them, are gone with the last thread, socket and descriptor that is there,
//! however this process ends.
//!
//! Where that cannot be made, both machines can be this one ([`Network::loopback`]), and nothing limits what is between them.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::BenchError;

/// What the devices are called, each in its namespace.
const DEVICE: &str = "clew-link";
/// The link of MobileSwap's devices, Mbit/s.
pub const LINK_MBIT: u32 = 920;
/// What the token bucket lets through at once, bytes: more than it fills up with between two looks at it.
const BURST_BYTES: u32 = 128 << 10;
/// How long what waits may wait before it is dropped, milliseconds.
const QUEUE_MS: u32 = 20;

/// One of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Machine {
    /// Whose programs swap.
    Near,
    /// Who lends.
    Far,
}

/// Two machines with a link.
pub struct Network {
    /// The near and the far one's namespace; without, both are in this one.
    apart: Option<[File; 2]>,
}

fn unavailable(reason: impl ToString) -> BenchError {
    BenchError::Unavailable { what: "a network of two machines", reason: reason.to_string() }
}

/// A network namespace of nobody yet.
fn namespace() -> Result<File, BenchError> {
    let made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: it takes flags, and what it changes is this thread's, which ends with this closure.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => File::open("/proc/thread-self/ns/net"),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
        thread.join()
    });
    match made {
        Ok(Ok(namespace)) => Ok(namespace),
        Ok(Err(error)) => Err(unavailable(format!("{error} (it takes root)"))),
        Err(_) => Err(unavailable("the thread that was to make it died")),
    }
}

impl Network {
    /// Two of them, and a link without limit.
    ///
    /// # Errors
    /// If this is not root, or `ip` is not there.
    pub fn new() -> Result<Network, BenchError> {
        let apart = [namespace()?, namespace()?];
        let far = format!("/proc/{}/fd/{}", std::process::id(), apart[1].as_raw_fd());
        let network = Network { apart: Some(apart) };
        let pair = ["link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", &far];
        network.on(Machine::Near, || run("ip", &pair))??;
        for machine in [Machine::Near, Machine::Far] {
            let address = format!("{}/24", network.address(machine));
            network.on(machine, || {
                run("ip", &["addr", "add", &address, "dev", DEVICE])?;
                run("ip", &["link", "set", DEVICE, "up"])?;
                run("ip", &["link", "set", "lo", "up"])
            })??;
        }
        Ok(network)
    }

    /// Both are this one.
    pub fn loopback() -> Network {
        Network { apart: None }
    }

    /// Where a machine is on the link.
    pub fn address(&self, machine: Machine) -> IpAddr {
        let last = match machine {
            Machine::Near => 1,
            Machine::Far => 2,
        };
        match self.apart {
            Some(_) => Ipv4Addr::new(10, 77, 0, last).into(),
            None => Ipv4Addr::LOCALHOST.into(),
        }
    }

    /// A port of a machine that is free now.
    ///
    /// # Errors
    /// If there is none.
    pub fn port(&self, machine: Machine) -> Result<SocketAddr, BenchError> {
        let bound = self.on(machine, || TcpListener::bind((self.address(machine), 0)))?;
        let address = bound.and_then(|listener| listener.local_addr());
        address.map_err(unavailable)
    }

    /// Limits the link, each way, to so many Mbit/s; `None` for no limit.
    ///
    /// # Errors
    /// If there is none, if `tc` is not there, or the kernel has no token bucket.
    pub fn limit(&self, mbit_per_second: Option<u32>) -> Result<(), BenchError> {
        if self.apart.is_none() {
            return Err(unavailable("loopback has no limit"));
        }
        for machine in [Machine::Near, Machine::Far] {
            self.on(machine, || match mbit_per_second {
                None => {
                    // Where there is none, none is deleted.
                    let _ = run("tc", &["qdisc", "del", "dev", DEVICE, "root"]);
                    Ok(())
                }
                Some(rate) => {
                    let (rate, burst) = (format!("{rate}mbit"), BURST_BYTES.to_string());
                    let queue = format!("{QUEUE_MS}ms");
                    let bucket = ["tbf", "rate", &rate, "burst", &burst, "latency", &queue];
                    run("tc", &[&["qdisc", "replace", "dev", DEVICE, "root"], &bucket[..]].concat())
                }
            })??;
        }
        Ok(())
    }

    /// Does something on one of the machines: sockets, threads and processes that it makes are there, and stay there.
    ///
    /// # Errors
    /// If the system refuses, or it panics.
    pub fn on<T: Send>(
        &self,
        machine: Machine,
        what: impl FnOnce() -> T + Send,
    ) -> Result<T, BenchError> {
        let namespace = self.apart.as_ref().map(|[near, far]| match machine {
            Machine::Near => near,
            Machine::Far => far,
        });
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let kind = Some(LinkNameSpaceType::Network);
                if let Some(namespace) = namespace {
                    move_into_link_name_space(namespace.as_fd(), kind).map_err(unavailable)?;
                }
                Ok(what())
            });
            thread.join().map_err(|_| unavailable("a thread died there"))?
        })
    }
}

/// Runs a command to its end.
fn run(program: &'static str, arguments: &[&str]) -> Result<(), BenchError> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| match is_installed(program) {
        true => unavailable(format!("{program}: {error}")),
        false => missing(program),
    })?;
    match output.status.success() {
        true => Ok(()),
        false => Err(BenchError::Command {
            command: format!("{program} {}", arguments.join(" ")),
            reason: String::from_utf8_lossy(&output.stderr).trim().to_string(),
        }),
    }
}

/// Whether a command is there.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory: std::path::PathBuf| {
        let file: &Path = &directory.join(program);
        file.is_file()
    })
}

/// That a command is not there, and where to get it.
pub fn missing(program: &'static str) -> BenchError {
    let package = match program {
        "ip" | "tc" => "iproute2",
        other => other,
    };
    BenchError::Unavailable {
        what: program,
        reason: format!("it is not installed (apt-get install {package})"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn two_machines_hear_each_other_and_nobody_else_does() {
        let network = match Network::new() {
            Ok(network) => network,
            Err(error) => return crate::skip::skip("network::two_machines", &error.to_string()),
        };
        let there = network.address(Machine::Far);
        let listener = network.on(Machine::Far, || TcpListener::bind((there, 0)));
        let listener = listener.expect("it runs there").expect("a port");
        let address = listener.local_addr().expect("its address");
        network.limit(Some(920)).expect("a token bucket");
        let connect = || TcpStream::connect(address);
        let mut near = network.on(Machine::Near, connect).expect("it runs there").expect("a link");
        let (mut far, from) = listener.accept().expect("it comes");
        assert_eq!(from.ip(), network.address(Machine::Near));
        near.write_all(b"clew").expect("sent");
        let mut came = [0; 4];
        far.read_exact(&mut came).expect("it comes");
        assert_eq!(&came, b"clew");
        network.limit(None).expect("no limit");
    }
}
