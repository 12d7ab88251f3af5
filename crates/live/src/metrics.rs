//! The state of everything as Prometheus reads it: text exposition format 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::fmt::{Display, Write};

use crate::control::{AppStatus, ClassPages, Status};
use crate::latency::Latency;

/// The media type of what [`text`] gives.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Before the names of what policies count.
const POLICY: &str = "clew_policy_";

/// How the format writes what has no bound.
const INFINITE: &str = "+Inf";

/// All metrics of `status`. Each is described in docs/operations.md.
pub fn text(status: &Status) -> String {
    let mut out = Text::default();
    daemon(&mut out, status);
    totals(&mut out, status);
    let help = "Time from a fault thread's being woken to its answer.";
    out.family("clew_fault_duration_seconds", "histogram", help);
    out.histogram(("kind", "stored"), &status.stored_fault_latency);
    out.histogram(("kind", "fresh"), &status.fresh_fault_latency);
    tiers(&mut out, status);
    apps(&mut out, &status.apps);
    for metric in &status.policies {
        let name = format!("{POLICY}{}", metric.name);
        out.family(&name, "untyped", &metric.help).sample(&[], metric.value);
    }
    out.out
}

fn daemon(out: &mut Text, s: &Status) {
    let version = env!("CARGO_PKG_VERSION");
    out.gauge("clew_info", "Version and scheme; always 1.")
        .sample(&[("version", version), ("scheme", &s.scheme)], 1);
    out.gauge("clew_uptime_seconds", "Since this daemon began to govern.")
        .sample(&[], s.uptime_seconds);
    out.gauge("clew_budget_bytes", "What programs, pool and daemon may use together.")
        .sample(&[], s.budget_bytes);
    out.gauge("clew_used_bytes", "What they use.").sample(&[], s.used_bytes);
    out.gauge("clew_daemon_bytes", "Memory of the daemon beyond the pool.")
        .sample(&[], s.daemon_bytes);
    out.gauge("clew_managed_pages", "Pages that page tables know.").sample(&[], s.managed_pages);
    out.gauge("clew_enough_budget_bytes", "The least budget without thrashing; 0 without it now.")
        .sample(&[], s.enough_budget_bytes.unwrap_or(0));
    out.counter("clew_daemon_cpu_seconds_total", "Processor time of the daemon.")
        .sample(&[], s.daemon_cpu_seconds);
    out.gauge("clew_pool_full", "1 while the pool has no room.").sample(&[], u8::from(s.pool.full));
    out.gauge("clew_pool_compression_ratio", "Original bytes / bytes used; 0 while it is empty.")
        .sample(&[], s.pool.ratio);
    out.gauge("clew_apps", "Apps known.").sample(&[], s.apps.len());
    out.gauge("clew_lost_programs", "Programs whose records were damaged; never expected.")
        .sample(&[], s.lost_programs);
    out.counter("clew_apps_ended_total", "Apps ended because memory was short.")
        .sample(&[], s.ended_apps.len());
}

fn totals(out: &mut Text, s: &Status) {
    let t = &s.totals;
    let faults = out.counter(
        "clew_faults_total",
        "Faults, by what was found; of kind kernel are those that the kernel answered itself.",
    );
    for (kind, count) in [
        ("stored", t.demand_faults),
        ("kernel", t.lent_back_pages),
        ("fresh", t.fresh_faults),
        ("spurious", t.spurious_faults),
    ] {
        faults.sample(&[("kind", kind)], count);
    }
    for (name, help, count) in [
        ("clew_restored_pages_total", "Pages brought back without a fault.", t.restored_pages),
        ("clew_swapped_out_pages_total", "Pages taken out and stored.", t.swapped_out_pages),
        ("clew_zero_pages_total", "Pages of zeros among those taken out.", t.zero_pages),
        (
            "clew_reused_pages_total",
            "Pages taken out whose kept copy was still valid.",
            s.pool.reused_pages,
        ),
        ("clew_returned_pages_total", "Pages taken out and given back at once.", t.returned_pages),
        (
            "clew_prefetch_used_pages_total",
            "Pages brought back early that were then used.",
            t.prefetch_used_pages,
        ),
        ("clew_corrupt_pages_total", "Damaged copies; never expected.", s.pool.corrupt_pages),
        (
            "clew_conflicts_total",
            "Pages present where they were known as stored; never expected.",
            t.conflicts,
        ),
        ("clew_lost_events_total", "Events that policies were not told.", t.lost_events),
        (
            "clew_room_waits_total",
            "Rounds of faults that waited because more than the budget was used.",
            t.room_waits,
        ),
    ] {
        out.counter(name, help).sample(&[], count);
    }
}

fn tiers(out: &mut Text, s: &Status) {
    let value_or_none =
        |value: Option<u64>| value.map_or(INFINITE.to_string(), |value| value.to_string());
    type Value = fn(&crate::control::TierStatus) -> Option<u64>;
    let families: [(&str, &str, Value); 4] = [
        ("clew_tier_bytes", "Memory or space that stored pages take.", |t| Some(t.used_bytes)),
        ("clew_tier_limit_bytes", "What they may take.", |t| t.limit_bytes),
        ("clew_tier_pages", "Pages stored.", |t| Some(t.stored_pages)),
        ("clew_tier_limit_pages", "Pages that may be stored.", |t| t.limit_pages),
    ];
    for (name, help, value) in families {
        let family = out.gauge(name, help);
        for tier in &s.tiers {
            family.sample(&[("tier", &tier.tier)], value_or_none(value(tier)));
        }
    }
}

fn apps(out: &mut Text, apps: &[AppStatus]) {
    type Value = fn(&AppStatus) -> f64;
    let families: [(&str, &str, &str, Value); 14] = [
        ("clew_app_foreground", "gauge", "1 for the app in front.", |a| {
            f64::from(u8::from(a.state == "foreground"))
        }),
        ("clew_app_processes", "gauge", "Processes.", |a| a.processes.len() as f64),
        ("clew_app_managed_processes", "gauge", "Processes that pages can be taken from.", |a| {
            a.processes.iter().filter(|p| p.managed).count() as f64
        }),
        ("clew_app_resident_bytes", "gauge", "Resident anonymous memory.", |a| {
            a.resident_bytes as f64
        }),
        ("clew_app_stored_pages", "gauge", "Pages whose only copy is stored.", |a| {
            a.stored_pages as f64
        }),
        (
            "clew_app_compression_ratio",
            "gauge",
            "Original bytes / compressed bytes of those; 0 without any.",
            |a| a.ratio,
        ),
        ("clew_app_faults_total", "counter", "Faults served.", |a| a.faults as f64),
        (
            "clew_app_demand_faults_total",
            "counter",
            "Faults that brought a stored page back.",
            |a| a.demand_faults as f64,
        ),
        ("clew_app_restored_pages_total", "counter", "Pages brought back.", |a| {
            a.restored_pages as f64
        }),
        ("clew_app_swapped_out_pages_total", "counter", "Pages taken out.", |a| {
            a.swapped_out_pages as f64
        }),
        (
            "clew_app_prefetch_used_pages_total",
            "counter",
            "Pages brought back early that were then used.",
            |a| a.prefetch_used_pages as f64,
        ),
        ("clew_app_cpu_seconds", "gauge", "Processor time of its living processes.", |a| {
            a.cpu_seconds
        }),
        ("clew_app_outside_bytes", "gauge", "Memory that cannot be taken.", |a| {
            a.outside.bytes as f64
        }),
        ("clew_app_thrashing", "gauge", "1 while it thrashes.", |a| {
            f64::from(u8::from(a.thrashing.is_some()))
        }),
    ];
    for (name, kind, help, value) in families {
        let family = out.family(name, kind, help);
        for app in apps {
            family.sample(&[("app", &app.name)], value(app));
        }
    }
    let family = out.gauge(
        "clew_app_class_pages",
        "Pages by class (hot, warm, cold) and place (resident, out), where the scheme has classes.",
    );
    for app in apps {
        let Some(classes) = &app.classes else { continue };
        for (class, pages) in [("hot", classes.hot), ("warm", classes.warm), ("cold", classes.cold)]
        {
            let ClassPages { resident_pages, out_pages } = pages;
            for (place, pages) in [("resident", resident_pages), ("out", out_pages)] {
                family.sample(&[("app", &app.name), ("class", class), ("place", place)], pages);
            }
        }
    }
}

/// What has been written so far. Samples belong to the metric begun last.
#[derive(Default)]
struct Text {
    out: String,
    name: String,
}

impl Text {
    fn gauge(&mut self, name: &str, help: &str) -> &mut Text {
        self.family(name, "gauge", help)
    }

    fn counter(&mut self, name: &str, help: &str) -> &mut Text {
        self.family(name, "counter", help)
    }

    /// Begins a metric.
    fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut Text {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
        self.name = name.chars().map(|c| if is_valid(c) { c } else { '_' }).collect();
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.out, "# HELP {} {help}\n# TYPE {} {kind}", self.name, self.name);
        self
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Text {
        self.suffixed("", labels, value)
    }

    fn suffixed(
        &mut self,
        suffix: &str,
        labels: &[(&str, &str)],
        value: impl Display,
    ) -> &mut Text {
        let _ = write!(self.out, "{}{suffix}", self.name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.out, "{before}{label}=\"{text}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.out, "{after} {value}");
        self
    }

    fn histogram(&mut self, (label, kind): (&str, &str), latency: &Latency) {
        let bounds = latency.buckets.iter().map(|b| {
            let seconds = b.at_most_us as f64 / 1e6;
            (seconds.to_string(), b.count)
        });
        for (bound, count) in bounds.chain([(INFINITE.to_string(), latency.count)]) {
            self.suffixed("_bucket", &[(label, kind), ("le", &bound)], count);
        }
        self.suffixed("_sum", &[(label, kind)], latency.seconds);
        self.suffixed("_count", &[(label, kind)], latency.count);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::control::{ClassStatus, PolicyMetric, TierStatus};
    use crate::latency::Histogram;

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
            stored_fault_latency: Latency::sum([&histogram].into_iter()),
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
                current = name.to_string();
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
        let page = include_str!("../../../docs/operations.md");
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
        let mut exported = described(&text(&status()));
        let policy = exported.remove("clew_policy_lru_active_pages").expect("a policy's metric");
        exported.insert("clew_policy_NAME".into(), policy);
        assert_eq!(written, exported);
    }

    #[test]
    fn the_format_is_what_prometheus_reads() {
        let text = text(&status());
        assert!(text.ends_with('\n'));
        for line in [
            "clew_info{version=\"0.1.0\",scheme=\"zram\"} 1",
            "clew_app_foreground{app=\"a \\\"b\\\" \\\\ c\\nd\"} 1",
            "clew_app_cpu_seconds{app=\"a \\\"b\\\" \\\\ c\\nd\"} 1.5",
            "clew_tier_limit_bytes{tier=\"pool\"} +Inf",
            "# HELP clew_policy_lru_active_pages pages on the active list",
            "# TYPE clew_policy_lru_active_pages untyped",
            "clew_policy_lru_active_pages 7",
            "clew_fault_duration_seconds_bucket{kind=\"stored\",le=\"0.000002\"} 1",
            "clew_fault_duration_seconds_bucket{kind=\"stored\",le=\"0.000016\"} 3",
            "clew_fault_duration_seconds_bucket{kind=\"stored\",le=\"1.048576\"} 4",
            "clew_fault_duration_seconds_bucket{kind=\"stored\",le=\"+Inf\"} 5",
            "clew_fault_duration_seconds_count{kind=\"stored\"} 5",
            "clew_fault_duration_seconds_bucket{kind=\"fresh\",le=\"+Inf\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "'{line}' is not in\n{text}");
        }
        let class = ",class=\"cold\",place=\"out\"} 4";
        assert!(text.lines().any(|l| l.ends_with(class)), "{text}");
    }
}
