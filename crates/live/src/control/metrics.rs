//! The state of everything as Prometheus reads it: OpenMetrics text
//! (<https://prometheus.io/docs/specs/om/open_metrics_spec/>).

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::control::status::{AppStatus, ClassPages, DonorStatus, FlashStatus, Status, TierStatus};
use crate::faults::account::{CauseStatus, FaultAccount};
use crate::faults::latency::Latency;

/// The media type of what [`text`] gives.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of `status`. Each is described in docs/operations.md.
pub fn text(status: Status) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scraped(status)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes what is written");
    text
}

/// What one scrape found.
#[derive(Debug)]
struct Scraped(Status);

impl Collector for Scraped {
    fn encode(&self, mut out: DescriptorEncoder<'_>) -> fmt::Result {
        let status = &self.0;
        daemon(&mut out, status)?;
        totals(&mut out, status)?;
        let help = "Time from a fault thread's being woken to its answer.";
        let kinds = [
            ("stored", &status.stored_fault_latency),
            ("fresh", &status.fresh_fault_latency),
            ("flash", &status.flash_fault_latency),
        ];
        histogram(&mut out, "clew_fault_duration_seconds", help, "kind", &kinds)?;
        fault_account(&mut out, &status.fault_account)?;
        tiers(&mut out, &status.tiers)?;
        flash(&mut out, status.flash.as_ref())?;
        donors(&mut out, &status.donors)?;
        apps(&mut out, &status.apps)?;
        for metric in &status.policies {
            let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = metric.name.chars().map(|c| if is_valid(c) { c } else { '_' });
            let name: String = "clew_policy_".chars().chain(name).collect();
            alone(&mut out, MetricType::Unknown, &name, &metric.help, metric.value)?;
        }
        Ok(())
    }
}

/// The labels of a sample.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// A metric with one sample a set of labels. To the name of a counter `_total` is added.
fn family<'a>(
    out: &mut DescriptorEncoder<'_>,
    kind: MetricType,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = (Labels<'a>, f64)>,
) -> fmt::Result {
    let is_counter = matches!(kind, MetricType::Counter);
    let put = |sample: &mut MetricEncoder<'_>, value: f64| match is_counter {
        true => sample.encode_counter::<NoLabelSet, f64, f64>(&value, None),
        false => sample.encode_gauge(&value),
    };
    let mut metric = out.encode_descriptor(name, help, None, kind)?;
    for (labels, value) in samples {
        match labels.is_empty() {
            true => put(&mut metric, value)?,
            false => put(&mut metric.encode_family(&labels)?, value)?,
        }
    }
    Ok(())
}

/// A metric with one sample.
fn alone(
    out: &mut DescriptorEncoder<'_>,
    kind: MetricType,
    name: &str,
    help: &str,
    value: f64,
) -> fmt::Result {
    family(out, kind, name, help, [(&[][..], value)])
}

fn histogram(
    out: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    kinds: &[(&str, &Latency)],
) -> fmt::Result {
    let mut metric = out.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for (kind, latency) in kinds {
        let mut before = 0;
        let bounds = latency.buckets.iter().map(|b| (b.at_most_us as f64 / 1e6, b.count));
        let all = bounds.chain([(f64::INFINITY, latency.count)]);
        let each = |(bound, count)| (bound, count - std::mem::replace(&mut before, count));
        let buckets: Vec<(f64, u64)> = all.map(each).collect();
        let labels = [(label, *kind)];
        let mut sample = metric.encode_family(&labels)?;
        sample.encode_histogram::<NoLabelSet>(latency.seconds, latency.count, &buckets, None)?;
    }
    Ok(())
}

fn daemon(out: &mut DescriptorEncoder<'_>, s: &Status) -> fmt::Result {
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("scheme", s.scheme.as_str())];
    let help = "Version and scheme; always 1.";
    family(out, MetricType::Gauge, "clew_info", help, [(&labels[..], 1.0)])?;
    let gauges: [(&str, &str, f64); 11] = [
        ("clew_uptime_seconds", "Since this daemon began to govern.", s.uptime_seconds),
        (
            "clew_budget_bytes",
            "What programs, pool and daemon may use together.",
            s.budget_bytes as f64,
        ),
        ("clew_used_bytes", "What they use.", s.used_bytes as f64),
        ("clew_daemon_bytes", "Memory of the daemon beyond the pool.", s.daemon_bytes as f64),
        (
            "clew_mounts_bytes",
            "What mounts that share the budget keep of files.",
            s.used.mounts_bytes as f64,
        ),
        ("clew_managed_pages", "Pages that page tables know.", s.managed_pages as f64),
        (
            "clew_enough_budget_bytes",
            "The least budget without thrashing; 0 without it now.",
            s.enough_budget_bytes.unwrap_or(0) as f64,
        ),
        ("clew_pool_full", "1 while the pool has no room.", f64::from(u8::from(s.pool.full))),
        (
            "clew_pool_compression_ratio",
            "Original bytes / bytes used; 0 while it is empty.",
            s.pool.ratio,
        ),
        ("clew_apps", "Apps known.", s.apps.len() as f64),
        (
            "clew_lost_programs",
            "Programs whose records were damaged; never expected.",
            s.lost_programs as f64,
        ),
    ];
    for (name, help, value) in gauges {
        alone(out, MetricType::Gauge, name, help, value)?;
    }
    Ok(())
}

fn totals(out: &mut DescriptorEncoder<'_>, s: &Status) -> fmt::Result {
    let t = &s.totals;
    let help =
        "Faults, by what was found; of kind kernel are those that the kernel answered itself.";
    let kinds = [
        ("stored", t.demand_faults),
        ("kernel", t.lent_back_pages),
        ("fresh", t.fresh_faults),
        ("spurious", t.spurious_faults),
    ];
    let labels = kinds.map(|(kind, _)| [("kind", kind)]);
    let samples = labels.iter().zip(kinds).map(|(of, (_, count))| (&of[..], count as f64));
    family(out, MetricType::Counter, "clew_faults", help, samples)?;
    let counters: [(&str, &str, f64); 12] = [
        ("clew_daemon_cpu_seconds", "Processor time of the daemon.", s.daemon_cpu_seconds),
        ("clew_apps_ended", "Apps ended because memory was short.", s.ended_apps.len() as f64),
        ("clew_restored_pages", "Pages brought back without a fault.", t.restored_pages as f64),
        ("clew_swapped_out_pages", "Pages taken out and stored.", t.swapped_out_pages as f64),
        ("clew_zero_pages", "Pages of zeros among those taken out.", t.zero_pages as f64),
        (
            "clew_reused_pages",
            "Pages taken out whose kept copy was still valid.",
            s.pool.reused_pages as f64,
        ),
        ("clew_returned_pages", "Pages taken out and given back at once.", t.returned_pages as f64),
        (
            "clew_prefetch_used_pages",
            "Pages brought back early that were then used.",
            t.prefetch_used_pages as f64,
        ),
        ("clew_corrupt_pages", "Damaged copies; never expected.", s.pool.corrupt_pages as f64),
        (
            "clew_conflicts",
            "Pages present where they were known as stored; never expected.",
            t.conflicts as f64,
        ),
        ("clew_lost_events", "Events that policies were not told.", t.lost_events as f64),
        (
            "clew_room_waits",
            "First touches that waited because more than the budget was used.",
            t.room_waits as f64,
        ),
    ];
    for (name, help, value) in counters {
        alone(out, MetricType::Counter, name, help, value)?;
    }
    Ok(())
}

fn fault_account(out: &mut DescriptorEncoder<'_>, account: &FaultAccount) -> fmt::Result {
    type Value = fn(&CauseStatus) -> f64;
    let families: [(&str, &str, Value); 2] = [
        ("clew_fault_seconds", "Where the time of faults on stored pages went.", |c| c.seconds),
        ("clew_slow_faults", "Faults of more than 100 us, by what took the most.", |c| {
            c.slow_faults as f64
        }),
    ];
    let labels: Vec<_> = account.causes.iter().map(|c| [("cause", c.cause.as_str())]).collect();
    for (name, help, value) in families {
        let samples = labels.iter().zip(&account.causes).map(|(of, c)| (&of[..], value(c)));
        family(out, MetricType::Counter, name, help, samples)?;
    }
    Ok(())
}

fn tiers(out: &mut DescriptorEncoder<'_>, tiers: &[TierStatus]) -> fmt::Result {
    let limit = |limit: Option<u64>| limit.map_or(f64::INFINITY, |limit| limit as f64);
    type Value = fn(&TierStatus) -> Option<u64>;
    let families: [(&str, &str, Value); 4] = [
        ("clew_tier_bytes", "Memory or space that stored pages take.", |t| Some(t.used_bytes)),
        ("clew_tier_limit_bytes", "What they may take.", |t| t.limit_bytes),
        ("clew_tier_pages", "Pages stored.", |t| Some(t.stored_pages)),
        ("clew_tier_limit_pages", "Pages that may be stored.", |t| t.limit_pages),
    ];
    let labels: Vec<_> = tiers.iter().map(|tier| [("tier", tier.tier.as_str())]).collect();
    for (name, help, value) in families {
        let samples = labels.iter().zip(tiers).map(|(of, tier)| (&of[..], limit(value(tier))));
        family(out, MetricType::Gauge, name, help, samples)?;
    }
    Ok(())
}

/// Nothing where there is none.
fn donors(out: &mut DescriptorEncoder<'_>, donors: &[DonorStatus]) -> fmt::Result {
    type Value = fn(&DonorStatus) -> f64;
    let gauges: [(&str, &str, Value); 4] = [
        ("clew_donor_pages", "Pages that are at a donor.", |d| d.stored_pages as f64),
        ("clew_donor_live_bytes", "What they take there.", |d| d.live_bytes as f64),
        ("clew_donor_free_bytes", "What it would still take, as it says.", |d| d.free_bytes as f64),
        ("clew_donor_waiting_bytes", "What is sent or to be sent.", |d| d.waiting_bytes as f64),
    ];
    let counters: [(&str, &str, Value); 4] = [
        ("clew_donor_sent_bytes", "Sent and acknowledged.", |d| d.sent_bytes as f64),
        ("clew_donor_received_bytes", "Received.", |d| d.received_bytes as f64),
        ("clew_donor_cuts", "Times that the link was cut.", |d| d.cuts as f64),
        ("clew_donor_read_errors", "Reads that failed for good.", |d| d.read_errors as f64),
    ];
    let labels: Vec<_> = donors.iter().map(|donor| [("donor", donor.at.as_str())]).collect();
    let gauges = gauges.map(|family| (MetricType::Gauge, family));
    let counters = counters.map(|family| (MetricType::Counter, family));
    for (kind, (name, help, value)) in gauges.into_iter().chain(counters) {
        let samples = labels.iter().zip(donors).map(|(of, donor)| (&of[..], value(donor)));
        family(out, kind, name, help, samples)?;
    }
    let seconds = |donor: &DonorStatus| donor.round_trip_us.map(|us| us as f64 / 1e6);
    let known = labels.iter().zip(donors).filter_map(|(of, d)| Some((&of[..], seconds(d)?)));
    let help = "Its last round trip.";
    family(out, MetricType::Gauge, "clew_donor_round_trip_seconds", help, known)?;
    let states: Vec<_> = donors
        .iter()
        .map(|donor| [("donor", donor.at.as_str()), ("state", donor.state.name())])
        .collect();
    let help = "1 for how it stands: up, weak, pressed, lost or single.";
    let samples = states.iter().map(|of| (&of[..], 1.0));
    family(out, MetricType::Gauge, "clew_donor_state", help, samples)
}

/// Nothing where there is no flash.
fn flash(out: &mut DescriptorEncoder<'_>, flash: Option<&FlashStatus>) -> fmt::Result {
    let Some(flash) = flash else { return Ok(()) };
    let counters: [(&str, &str, u64); 8] = [
        ("clew_flash_evicted_pages", "Pages that left the pool for flash.", flash.evicted_pages),
        ("clew_flash_demand_pages", "Pages on flash that faults asked for.", flash.demand_pages),
        ("clew_flash_stored_bytes", "What was stored on flash.", flash.stored_bytes),
        ("clew_flash_written_bytes", "What was written to the device.", flash.written_bytes),
        ("clew_flash_cleaned_bytes", "Of these, what cleaning wrote anew.", flash.cleaned_bytes),
        ("clew_flash_read_bytes", "What was read from the device.", flash.read_bytes),
        (
            "clew_flash_near_blocks",
            "Blocks that an earlier read had brought along.",
            flash.near_blocks,
        ),
        ("clew_flash_read_errors", "Reads that failed for good.", flash.read_errors),
    ];
    for (name, help, value) in counters {
        alone(out, MetricType::Counter, name, help, value as f64)?;
    }
    let help = "1 if flash takes nothing more after an error.";
    let latched = f64::from(u8::from(flash.latched.is_some()));
    alone(out, MetricType::Gauge, "clew_flash_latched", help, latched)?;
    let help = "Which part of the device lives, 0 to 1.";
    alone(out, MetricType::Gauge, "clew_flash_utilisation", help, flash.utilisation)
}

fn apps(out: &mut DescriptorEncoder<'_>, apps: &[AppStatus]) -> fmt::Result {
    type Value = fn(&AppStatus) -> f64;
    let gauges: [(&str, &str, Value); 9] = [
        ("clew_app_foreground", "1 for the app in front.", |a| {
            f64::from(u8::from(a.state == "foreground"))
        }),
        ("clew_app_processes", "Processes.", |a| a.processes.len() as f64),
        ("clew_app_managed_processes", "Processes that pages can be taken from.", |a| {
            a.processes.iter().filter(|p| p.managed).count() as f64
        }),
        ("clew_app_resident_bytes", "Resident anonymous memory.", |a| a.resident_bytes as f64),
        ("clew_app_stored_pages", "Pages whose only copy is stored.", |a| a.stored_pages as f64),
        (
            "clew_app_compression_ratio",
            "Original bytes / compressed bytes of those; 0 without any.",
            |a| a.ratio,
        ),
        ("clew_app_cpu_seconds", "Processor time of its living processes.", |a| a.cpu_seconds),
        ("clew_app_outside_bytes", "Memory that cannot be taken.", |a| a.outside.bytes as f64),
        ("clew_app_thrashing", "1 while it thrashes.", |a| {
            f64::from(u8::from(a.thrashing.is_some()))
        }),
    ];
    let counters: [(&str, &str, Value); 5] = [
        ("clew_app_faults", "Faults served.", |a| a.faults as f64),
        ("clew_app_demand_faults", "Faults that brought a stored page back.", |a| {
            a.demand_faults as f64
        }),
        ("clew_app_restored_pages", "Pages brought back.", |a| a.restored_pages as f64),
        ("clew_app_swapped_out_pages", "Pages taken out.", |a| a.swapped_out_pages as f64),
        ("clew_app_prefetch_used_pages", "Pages brought back early that were then used.", |a| {
            a.prefetch_used_pages as f64
        }),
    ];
    let labels: Vec<_> = apps.iter().map(|app| [("app", app.name.as_str())]).collect();
    let gauges = gauges.map(|family| (MetricType::Gauge, family));
    let counters = counters.map(|family| (MetricType::Counter, family));
    for (kind, (name, help, value)) in gauges.into_iter().chain(counters) {
        let samples = labels.iter().zip(apps).map(|(of, app)| (&of[..], value(app)));
        family(out, kind, name, help, samples)?;
    }
    let mut classes = Vec::new();
    for app in apps {
        let Some(of_app) = &app.classes else { continue };
        for (class, pages) in [("hot", of_app.hot), ("warm", of_app.warm), ("cold", of_app.cold)] {
            let ClassPages { resident_pages, out_pages } = pages;
            for (place, pages) in [("resident", resident_pages), ("out", out_pages)] {
                let labels = [("app", app.name.as_str()), ("class", class), ("place", place)];
                classes.push((labels, pages as f64));
            }
        }
    }
    let help =
        "Pages by class (hot, warm, cold) and place (resident, out), where the scheme has classes.";
    let samples = classes.iter().map(|(of, pages)| (&of[..], *pages));
    family(out, MetricType::Gauge, "clew_app_class_pages", help, samples)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use clew_core::DonorState;

    use super::*;
    use crate::control::status::{ClassStatus, PolicyMetric, TierStatus};
    use crate::faults::account::Account;
    use crate::faults::latency::Histogram;

    /// One of everything.
    fn status() -> Status {
        let histogram = Histogram::default();
        for micros in [1, 9, 9, 70, 3_000_000] {
            histogram.record(std::time::Duration::from_micros(micros));
        }
        let app = AppStatus {
            name: "a \"b\" \\ c\nd".into(),
            state: "foreground".into(),
            classes: Some(ClassStatus {
                cold: ClassPages { resident_pages: 3, out_pages: 4 },
                ..ClassStatus::default()
            }),
            cpu_seconds: 1.5,
            ..AppStatus::default()
        };
        Status {
            scheme: "zram".into(),
            apps: vec![app],
            tiers: vec![TierStatus { tier: "pool".into(), ..TierStatus::default() }],
            flash: Some(FlashStatus::default()),
            donors: vec![DonorStatus {
                at: "tv:7471".into(),
                state: DonorState::Pressed,
                why: None,
                stored_pages: 7,
                live_bytes: 30_000,
                free_bytes: 1 << 20,
                sent_bytes: 90_000,
                received_bytes: 8192,
                waiting_bytes: 65_536,
                round_trip_us: Some(450),
                connections: 4,
                cuts: 3,
                read_errors: 0,
            }],
            stored_fault_latency: Latency::sum([&histogram].into_iter()),
            fault_account: FaultAccount::sum([&Account::default()].into_iter()),
            policies: vec![PolicyMetric {
                name: "lru_active_pages".into(),
                value: 7.0,
                help: "pages on the active list".into(),
            }],
            ..Status::default()
        }
    }

    /// Type and labels of every metric.
    fn described(text: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
        let mut families: BTreeMap<String, (String, BTreeSet<String>)> = BTreeMap::new();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                current = match kind {
                    "counter" => format!("{name}_total"),
                    _ => name.to_string(),
                };
                let new = families.insert(current.clone(), (kind.to_string(), BTreeSet::new()));
                assert!(new.is_none(), "{current} is described twice");
            } else if !line.starts_with('#') {
                let family = families.get_mut(&current).expect("samples follow their type");
                let name = line.split(['{', ' ']).next().expect("a name");
                let suffix = name.strip_prefix(current.as_str()).expect("samples of this metric");
                let is_histogram = family.0 == "histogram";
                assert!(
                    if is_histogram {
                        ["_bucket", "_sum", "_count"].contains(&suffix)
                    } else {
                        suffix.is_empty()
                    },
                    "{line}"
                );
                let labels = line.split_once('{').map_or("", |(_, rest)| rest);
                family.1.extend(labels.split(',').filter_map(|one| {
                    let (label, _) = one.split_once("=\"")?;
                    (label != "le").then(|| label.to_string())
                }));
            }
        }
        families
    }

    /// The table of docs/operations.md names exactly what is exported.
    #[test]
    fn the_documents_name_every_metric() {
        let page = include_str!("../../../../docs/operations.md");
        let section = page.split("\n## Metrics\n").nth(1).expect("a section on metrics");
        let section = section.split("\n## ").next().expect("its text");
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
        let words = |cell: &str| -> BTreeSet<String> {
            cell.split(',').map(|w| w.trim().trim_matches('`').to_string()).collect()
        };
        let written: BTreeMap<String, (String, BTreeSet<String>)> = rows
            .map(|row| {
                let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
                let mut labels = words(cells[2]);
                labels.remove("");
                (cells[0].trim_matches('`').to_string(), (cells[1].to_string(), labels))
            })
            .collect();
        let mut exported = described(&text(status()));
        let policy = exported.remove("clew_policy_lru_active_pages").expect("a policy's metric");
        exported.insert("clew_policy_NAME".into(), policy);
        assert_eq!(written, exported);
    }

    #[test]
    fn the_format_is_what_prometheus_reads() {
        let text = text(status());
        assert!(text.ends_with("\n# EOF\n"));
        for line in [
            "clew_info{version=\"0.1.0\",scheme=\"zram\"} 1.0",
            "clew_app_foreground{app=\"a \\\"b\\\" \\\\ c\\nd\"} 1.0",
            "clew_app_cpu_seconds{app=\"a \\\"b\\\" \\\\ c\\nd\"} 1.5",
            "clew_tier_limit_bytes{tier=\"pool\"} inf",
            "clew_donor_cuts_total{donor=\"tv:7471\"} 3.0",
            "clew_donor_state{donor=\"tv:7471\",state=\"pressed\"} 1.0",
            "clew_donor_round_trip_seconds{donor=\"tv:7471\"} 0.00045",
            "# HELP clew_policy_lru_active_pages pages on the active list",
            "# TYPE clew_policy_lru_active_pages unknown",
            "clew_policy_lru_active_pages 7.0",
            "clew_fault_duration_seconds_bucket{le=\"0.000002\",kind=\"stored\"} 1",
            "clew_fault_duration_seconds_bucket{le=\"0.000016\",kind=\"stored\"} 3",
            "clew_fault_duration_seconds_bucket{le=\"1.048576\",kind=\"stored\"} 4",
            "clew_fault_duration_seconds_bucket{le=\"+Inf\",kind=\"stored\"} 5",
            "clew_fault_duration_seconds_count{kind=\"stored\"} 5",
            "clew_fault_duration_seconds_bucket{le=\"+Inf\",kind=\"fresh\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "'{line}' is not in\n{text}");
        }
        let class = ",class=\"cold\",place=\"out\"} 4.0";
        assert!(text.lines().any(|l| l.ends_with(class)), "{text}");
    }
}
