//! `clew daemon --metrics`: what is exported is what `clew ps` says, and whoever scrapes holds nobody
//! up.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use clew_fixture::touch::{PAGES, swapped_out};
use clew_fixture::*;

const WITH_METRICS: [&str; 4] = ["--scheme", "zram", "--metrics", "0"];

/// Where the daemon that was started last says its metrics are.
fn address(fixture: &Fixture) -> SocketAddr {
    let said = || {
        let log = fixture.log();
        let line = log.lines().rev().find_map(|l| l.strip_prefix("clew: metrics at http://"))?;
        line.strip_suffix("/metrics")?.parse().ok()
    };
    poll(LONG, said).unwrap_or_else(|| panic!("no address\n{}", fixture.log()))
}

fn scrape(at: SocketAddr) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(at).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: clew\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{answer}");
    let samples = body.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_string(), value.parse().expect("a number"))
    });
    samples.collect()
}

#[test]
fn metrics_say_what_ps_says() {
    let Some((mut fixture, mut program, sum)) = swapped_out("metrics::ps", &WITH_METRICS) else {
        return;
    };
    let at = address(&fixture);
    assert!(at.ip().is_loopback(), "{at}");
    program.expect("touch random 3000 1", "touched 3000 bad 0");
    let faults = fixture.app("touch").demand_faults;
    assert!(faults > 0);
    // Scrapes a moment apart get the same numbers, so the first may be an old one.
    let scraped = poll(LONG, || {
        let metrics = scrape(at);
        (metrics["clew_app_demand_faults_total{app=\"touch\"}"] == faults as f64).then_some(metrics)
    });
    let metrics = scraped.unwrap_or_else(|| panic!("{:?}\n{:?}", fixture.status(), scrape(at)));
    let status = fixture.status();
    let app = &status.apps[0];
    for (name, value) in [
        ("clew_info{version=\"0.1.0\",scheme=\"zram\"}", 1.0),
        ("clew_budget_bytes", status.budget_bytes as f64),
        ("clew_apps", 1.0),
        ("clew_app_stored_pages{app=\"touch\"}", app.stored_pages as f64),
        ("clew_app_compression_ratio{app=\"touch\"}", app.ratio),
        ("clew_app_swapped_out_pages_total{app=\"touch\"}", app.swapped_out_pages as f64),
        ("clew_swapped_out_pages_total", status.totals.swapped_out_pages as f64),
        ("clew_faults_total{kind=\"stored\"}", faults as f64),
        ("clew_tier_pages{tier=\"pool\"}", status.pool.stored_pages as f64),
        ("clew_fault_duration_seconds_count{kind=\"stored\"}", faults as f64),
        ("clew_fault_duration_seconds_bucket{le=\"+Inf\",kind=\"stored\"}", faults as f64),
        ("clew_policy_engine_apps_ended", 0.0),
    ] {
        let shown = metrics.get(name).copied().unwrap_or(f64::NAN);
        // JSON's reader rounds the last digit of a ratio.
        assert!((shown - value).abs() <= value * 1e-12, "{name} is {shown}, not {value}");
    }
    assert!(metrics["clew_fault_duration_seconds_sum{kind=\"stored\"}"] > 0.0);
    assert!(
        metrics["clew_policy_lru_inactive_pages"] + metrics["clew_policy_lru_active_pages"] > 0.0
    );
    assert!(metrics["clew_app_cpu_seconds{app=\"touch\"}"] > 0.0);

    // Silent ones take all places: the program does not notice.
    let silent: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(at).expect("it listens")).collect();
    fixture.swap_out("touch");
    program.expect("sum", &sum);
    drop(silent);

    // A successor goes on at the same address, though it may choose.
    fixture.kill_daemon();
    fixture.start_successor(&[]);
    assert_eq!(address(&fixture), at);
    program.expect("touch seq", &format!("touched {PAGES} bad 0"));
    assert_eq!(scrape(at)["clew_apps"], 1.0);
    program.quit();
    fixture.assert_daemon_lives();
}

#[test]
fn only_this_machine_unless_said_otherwise() {
    let dir = TempDir::new();
    let socket = dir.join("s");
    for (at, says) in [("0.0.0.0:0", "--metrics-public"), ("nonsense", "IP:PORT")] {
        let mut command = clew();
        command.args(["daemon", "--metrics", at, "--socket"]).arg(&socket);
        let output = run_to_end(&mut command, LONG);
        assert_eq!(output.status.code(), Some(2), "{}", texts(&output));
        assert!(String::from_utf8_lossy(&output.stderr).contains(says), "{}", texts(&output));
    }
    if !can_run("metrics::taken", &[]) {
        return;
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("it listens").to_string();
    let mut command = clew();
    command.args(["daemon", "--metrics", &port, "--socket"]).arg(&socket);
    let output = run_to_end(&mut command, LONG);
    assert_eq!(output.status.code(), Some(1), "{}", texts(&output));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&port), "{}", texts(&output));
}
