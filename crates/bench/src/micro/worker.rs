//! The process whose memory is swapped: maps pages, obeys orders, times its own touches. It ends
//! with its standard input.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use super::orders::{Answer, Order};
use super::region::Region;
use clew_live::faults::account::SLOW;
use clew_report::percentile;

/// A read that took longer met a fault: what is in memory is read in a tenth of that.
const LEAST_FAULT: Duration = Duration::from_micros(2);

/// Obeys until there are no more orders.
pub fn work() -> io::Result<()> {
    let mut region = None;
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    let mut line = String::new();
    loop {
        line.clear();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(order) => obey(&mut region, &order),
            Err(error) => Answer::Failed { reason: error.to_string() },
        };
        serde_json::to_writer(&mut output, &answer)?;
        output.write_all(b"\n")?;
        output.flush()?;
    }
}

fn obey(held: &mut Option<Region>, order: &Order) -> Answer {
    let failed = |reason: String| Answer::Failed { reason };
    if let Order::Map { seed, layout, pages } = *order {
        return match Region::new(seed, layout, pages) {
            Ok(region) => {
                let (address, region_pages) = (region.address(), region.region_pages());
                *held = Some(region);
                Answer::Mapped { address, region_pages }
            }
            Err(error) => failed(error.to_string()),
        };
    }
    let Some(region) = held else { return failed("nothing is mapped".to_string()) };
    let begin = Instant::now();
    let done = |result: io::Result<()>| match result {
        Ok(()) => Answer::Done { wall_ns: begin.elapsed().as_nanos() as u64 },
        Err(error) => failed(error.to_string()),
    };
    match *order {
        Order::Map { .. } => unreachable!("handled above"),
        Order::Visit { ref pages } => {
            region.visit(pages);
            done(Ok(()))
        }
        Order::Touch { seed, count, gap_ns, willneed } => {
            if willneed && let Err(error) = region.will_need() {
                return failed(error.to_string());
            }
            let mut each = region.touch(seed, count, Duration::from_nanos(gap_ns));
            each.sort_by(f64::total_cmp);
            Answer::Touched { p50_ns: percentile(&each, 50.0), p99_ns: percentile(&each, 99.0) }
        }
        Order::Wander { seed, count, gap_ns } => {
            let mut each = region.wander(seed, count, Duration::from_nanos(gap_ns));
            each.retain(|ns| *ns > LEAST_FAULT.as_nanos() as f64);
            each.sort_by(f64::total_cmp);
            let slow = each.iter().filter(|ns| **ns > SLOW.as_nanos() as f64);
            Answer::Faulted {
                faults: each.len() as u64,
                p50_ns: percentile(&each, 50.0),
                p99_ns: percentile(&each, 99.0),
                p999_ns: percentile(&each, 99.9),
                slow_share: slow.sum::<f64>() / each.iter().sum::<f64>().max(1.0),
            }
        }
        Order::Write => {
            region.write();
            done(Ok(()))
        }
        Order::PageOut => done(region.page_out()),
        Order::Verify => Answer::Verified { wrong: region.wrong_pages() },
        Order::Work { seed, operations } => {
            let wall_ns = region.work(seed, operations).as_nanos() as u64;
            Answer::Done { wall_ns }
        }
    }
}
