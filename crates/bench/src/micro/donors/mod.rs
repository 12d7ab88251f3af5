//! Swapping to another machine beside what its link carries: a donor at the other end of a link of 920 Mbit/s (MobileSwap's),
//! between two network namespaces ([`crate::network`]).
//!
//! - `link`: pages that leave, through a log and its link as the daemon has them, beside `iperf3`; and a page that comes back
//!   for a program that waits, beside a bare request of a few bytes and its answer of 4 KiB.
//! - `seal`, `open`, `chunks`: what encryption costs. Nothing of ours sends anything unencrypted, so the same chunks are also
//!   sent by a sender of this benchmark's own ([`plain`]).
//! - `app-read`: what an app waits for the disk meanwhile ([`app_reads`]).
//! - `late`: chunks beside one page at a time (RemoteSwap) and a Redis server (CloudSwap), all three by a link with a delay
//!   at which a page at a time reaches what the paper measured. This kernel or that has no `netem`: the delay is
//!   [`clew_remote::proxy`]'s.

mod app_reads;
mod machines;
mod peers;
mod plain;
mod sealing;

use std::path::Path;
use std::time::Duration;

use clew_live::config::CHUNK_BYTES;
use clew_live::donor_tier::PAGE_CHUNK;
use clew_remote::proxy::{Proxy, Quality};

use super::MicroConfig;
use super::measured::{Costs, Measured};
use super::objects::{Objects, Times};
use crate::error::BenchError;
use crate::lenders::Lender;
use crate::network::{LINK_MBIT, Machine, Network, is_installed};
use crate::progress::Progress;
use machines::Lends;
use peers::{Iperf, log_at_redis};

/// What the paper's devices reached page by page, Mbit/s (figure 4).
const PAGE_BY_PAGE_MBIT: f64 = 355.0;
/// Bytes of a page.
const PAGE: usize = 4096;
/// Reads of one repetition.
const READS: u64 = 2_000;
/// Tries to find the delay.
const TRIES: u64 = 4;

/// Measures it.
pub fn measure(
    config: &MicroConfig,
    scratch: &Path,
    progress: &dyn Progress,
) -> Result<Vec<Measured>, BenchError> {
    let network = Network::new()?;
    network.limit(Some(LINK_MBIT))?;
    let bench = Bench { config, network: &network, lends: Lends::new(scratch)?, progress };
    let mut measured = bench.link()?;
    measured.extend(bench.encryption()?);
    measured.extend(bench.late(scratch)?);
    measured.extend(bench.app_reads(scratch)?);
    Ok(measured)
}

struct Bench<'a> {
    config: &'a MicroConfig,
    network: &'a Network,
    lends: Lends,
    progress: &'a dyn Progress,
}

/// Costs of a page, and what that is in Mbit/s of pages.
fn rates(us: &[f64]) -> Costs {
    let costs = Costs::of(us);
    let mbit = mbit(costs.p50_us);
    costs.with("mbit_per_second", mbit)
}

/// Mbit/s of pages that take so many microseconds each.
fn mbit(us: f64) -> f64 {
    PAGE as f64 * 8.0 / us.max(1e-9)
}

/// Microseconds that a page takes at so many Mbit/s.
fn us(mbit: f64) -> f64 {
    PAGE as f64 * 8.0 / mbit.max(1e-9)
}

fn costs(times: &[Times]) -> Costs {
    let of = |time: fn(&Times) -> f64| times.iter().map(time).collect::<Vec<f64>>();
    Costs::of_distributions(&of(|times| times.p50), &of(|times| times.p99))
}

impl Bench<'_> {
    fn repetitions(&self) -> impl Iterator<Item = u64> {
        (0..self.config.repetitions as u64).map(|repetition| self.config.seed + repetition)
    }

    /// Pages out and back, beside what the link carries.
    fn link(&self) -> Result<Vec<Measured>, BenchError> {
        let bytes = self.config.pages * PAGE as u64;
        let steps = 3 * self.config.repetitions as u64;
        self.progress.begin(&format!("donors: a link of {LINK_MBIT} Mbit/s"), steps);
        let iperf = Iperf::new(self.network)?;
        let (mut out, mut iperfs, mut back, mut bare) = (vec![], vec![], vec![], vec![]);
        for seed in self.repetitions() {
            let donor = self.lends.donor(self.network, 2 * bytes)?;
            let at = donor.log(None, self.config.pages, CHUNK_BYTES)?;
            let (objects, us) = Objects::write(&at.log, self.config.pages, PAGE, "a donor")?;
            out.push(us);
            back.push(objects.read(READS, seed)?);
            self.progress.step("pages went to the donor, and some came back");
            iperfs.push(us_of_iperf(&iperf, bytes)?);
            self.progress.step("iperf3 has sent as much");
            bare.push(plain::round_trips(self.network, READS)?);
            self.progress.step("bare requests were answered");
        }
        self.progress.done("donors: every page held what was sent away");
        let page = "4 KiB of many";
        let (back, bare) = (costs(&back), costs(&bare));
        Ok(vec![
            Measured::of("donors", "link-out", page, rates(&out), ("iperf3", rates(&iperfs))),
            Measured::of("donors", "link-back", "one read", back, ("bare 4KiB", bare)),
        ])
    }

    /// What it costs that everything is encrypted.
    fn encryption(&self) -> Result<Vec<Measured>, BenchError> {
        let steps = 5 * self.config.repetitions as u64;
        self.progress.begin("donors: what encryption costs", steps);
        let chunks = (self.config.pages * PAGE as u64 / u64::from(CHUNK_BYTES)).max(1);
        let (mut seal, mut open, mut copy) = (vec![], vec![], vec![]);
        let mut sealed = [vec![], vec![]];
        let mut bare = [vec![], vec![]];
        let limits = [Some(LINK_MBIT), None];
        for _ in self.repetitions() {
            let [sealing, opening, copying] = sealing::costs(chunks)?;
            seal.push(sealing);
            open.push(opening);
            copy.push(copying);
            self.progress.step("chunks were sealed and opened");
            for (number, limit) in limits.into_iter().enumerate() {
                self.network.limit(limit)?;
                let donor = self.lends.donor(self.network, 2 * chunks * u64::from(CHUNK_BYTES))?;
                sealed[number].push(donor.chunks(chunks)?);
                self.progress.step("chunks were sent encrypted");
                bare[number].push(plain::chunks(self.network, chunks)?);
                self.progress.step("chunks were sent as they are");
            }
        }
        self.network.limit(Some(LINK_MBIT))?;
        self.progress.done("donors: encryption has been measured");
        let unit = "4 KiB of many";
        let [limited, free] = sealed.map(|us| rates(&us));
        let [bare_limited, bare_free] = bare.map(|us| rates(&us));
        let copy = rates(&copy);
        Ok(vec![
            Measured::of("donors", "seal", "CPU, 4 KiB", rates(&seal), ("copy", copy.clone())),
            Measured::of("donors", "open", "CPU, 4 KiB", rates(&open), ("copy", copy)),
            Measured::of("donors", "chunks-limited", unit, limited, ("plain TCP", bare_limited)),
            Measured::of("donors", "chunks-unlimited", unit, free, ("plain TCP", bare_free)),
        ])
    }

    /// Beside RemoteSwap and CloudSwap, by a link that is late.
    fn late(&self, scratch: &Path) -> Result<Vec<Measured>, BenchError> {
        let repetitions = self.config.repetitions as u64;
        self.progress.begin("donors: one page at a time, and Redis", TRIES + 3 * repetitions);
        let bytes = self.config.pages * PAGE as u64;
        let donor = self.lends.donor(self.network, 4 * bytes)?;
        let proxy = self.near(donor.address())?;
        // A page at a time takes its delay twice for every two pages that are on their way.
        let few = (self.config.pages / 8).max(1);
        let wanted = us(PAGE_BY_PAGE_MBIT);
        let direct = self.out(&donor, None, few, PAGE_CHUNK)?;
        self.progress.step("pages went without any delay");
        let (mut delay, mut delayed) = (Duration::ZERO, direct);
        for _ in 1..TRIES {
            let quality = Quality { delay, ..Quality::default() };
            proxy.is_as_good_as(quality);
            delayed = self.out(&donor, Some(&proxy), few, PAGE_CHUNK)?;
            self.progress.step("a delay was tried");
            let better = delay.as_secs_f64() * 1e6 + wanted - delayed;
            delay = Duration::from_secs_f64(better.max(0.0) / 1e6);
        }
        // Passing on takes time, too: where that is more than is wanted, the link is what is nearer to it.
        let is_direct = (direct - wanted).abs() <= (delayed - wanted).abs();
        let delay = if is_direct { Duration::ZERO } else { delay };
        let quality = Quality { delay, ..Quality::default() };
        proxy.is_as_good_as(quality);
        let through = (!is_direct).then_some(&proxy);
        let server = match is_installed("redis-server") {
            true => Some(Lender::redis(self.network, scratch)?),
            false => None,
        };
        let cloud = server.as_ref().map(|server| self.near(server.address())).transpose()?;
        let (mut ours, mut pages, mut clouds) = (vec![], vec![], vec![]);
        for _ in self.repetitions() {
            ours.push(self.out(&donor, through, self.config.pages, CHUNK_BYTES)?);
            self.progress.step("chunks went to the donor");
            pages.push(self.out(&donor, through, few, PAGE_CHUNK)?);
            self.progress.step("pages went there one at a time");
            if let (Some(server), Some(proxy)) = (&server, &cloud) {
                proxy.is_as_good_as(quality);
                let at = if is_direct { server.address() } else { proxy.address() };
                let log = log_at_redis(self.network, at, self.config.pages, CHUNK_BYTES)?;
                clouds.push(Objects::write(&log, self.config.pages, PAGE, "a Redis server")?.1);
            }
            self.progress.step("pages went to a Redis server");
        }
        let known = match is_direct {
            true => "donors: without any delay, which is the nearest".to_string(),
            false => format!("donors: with a delay of {} us each way", delay.as_micros()),
        };
        self.progress.done(match server {
            Some(_) => &known,
            None => "donors: without Redis, which is not installed (apt-get install redis-server)",
        });
        let delay_us = delay.as_secs_f64() * 1e6;
        let ours = rates(&ours).with("delay_us", delay_us);
        let unit = "4 KiB of many";
        let of = |us: &[f64]| rates(us).with("delay_us", delay_us);
        let mut measured = vec![Measured::of(
            "donors",
            "late-out",
            unit,
            ours.clone(),
            ("remoteswap", of(&pages)),
        )];
        if !clouds.is_empty() {
            let cloud = ("cloudswap", of(&clouds));
            measured.push(Measured::of("donors", "late-out", unit, ours, cloud));
        }
        Ok(measured)
    }

    /// A proxy beside who swaps.
    fn near(&self, lender: std::net::SocketAddr) -> Result<Proxy, BenchError> {
        let local = std::net::Ipv4Addr::LOCALHOST.into();
        let proxy = self.network.on(Machine::Near, || Proxy::new(local, lender))?;
        proxy.map_err(machines::unavailable)
    }

    /// Microseconds for each of so many pages that go to a donor, by way of `through` if that is there.
    fn out(
        &self,
        donor: &machines::Lent<'_>,
        through: Option<&Proxy>,
        pages: u64,
        chunk: u32,
    ) -> Result<f64, BenchError> {
        let at = donor.log(through.map(Proxy::address), pages, chunk)?;
        Ok(Objects::write(&at.log, pages, PAGE, "a donor")?.1)
    }
}

fn us_of_iperf(iperf: &Iperf<'_>, bytes: u64) -> Result<f64, BenchError> {
    Ok(us(iperf.mbit(bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_a_page_takes() {
        assert_eq!(mbit(us(355.0)).round(), 355.0);
        // A page of 32,768 bits.
        assert_eq!(us(32.768).round(), 1000.0);
    }
}
