use clew_trace::generate::{Workload, generate, profile::Profile};
use clew_trace::statistics::{Look, Statistics};
use clew_trace::*;
use std::ops::ControlFlow;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mut w = Workload::new(Profile::named(&a[1]).unwrap(), a[3].parse().unwrap());
    w.scale = a[2].parse().unwrap();
    w.contents = a[4] == "c";
    let path = std::path::PathBuf::from(&a[5]);
    let t = std::time::Instant::now();
    let (d, totals) =
        generate(&w, Draft::new(&path, false).unwrap(), &mut |_| ControlFlow::Continue(()))
            .unwrap();
    d.commit().unwrap();
    eprintln!(
        "{} records {:?} {} MB",
        totals.records(),
        t.elapsed(),
        path.metadata().unwrap().len() >> 20
    );
    let t = std::time::Instant::now();
    let s = Statistics::of(&Trace::open(&path).unwrap(), &Look::default(), &mut |_| ()).unwrap();
    eprintln!("{:?}", t.elapsed());
    for a in &s.apps {
        println!(
            "{:12} {:6.1} {:6.1}@{:3.0} hot {:6.0} warm {:6.0} sim {:.3} reuse {:.3} next {:.3} {:.3} nb {:.3}",
            a.app,
            a.early_mib.unwrap_or(0.),
            a.late_mib,
            a.late_seconds,
            a.hot_pages,
            a.warm_pages,
            a.similarity.unwrap_or(0.),
            a.reuse.unwrap_or(0.),
            a.next_1.unwrap_or(0.),
            a.next_3.unwrap_or(0.),
            a.neighbour.unwrap_or(0.)
        );
    }
    println!(
        "{:?} {:?}\n{:?}\n{:?} {:?}",
        s.similarity,
        s.reuse,
        s.association,
        s.evictions,
        s.evictions.and_then(|e| e.file_per_anonymous())
    );
    for (n, r) in [("anon", &s.ratios), ("file", &s.file_ratios)] {
        for c in ["lz4", "zstd"] {
            println!(
                "{n} {c} {}",
                r.iter()
                    .filter(|r| r.codec == c)
                    .map(|r| format!("{}:{:.2}", r.chunk_bytes, r.ratio))
                    .collect::<Vec<_>>()
                    .join(" ")
            );
        }
    }
    println!("zero {:?}", s.zero_share);
}
