//! Each program, as the system ships it, answers everything rightly over several visits.

#[path = "../../../tests/skip.rs"]
mod skip;

use std::path::PathBuf;

use clew_bench::BenchError;
use clew_bench::programs::{Kind, Load};
use clew_bench::session::{Launch, Session};
use skip::skip;

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("clew-programs-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a temporary directory");
    path
}

fn answers_rightly(kind: Kind) {
    if let Err(error @ BenchError::ProgramMissing { .. }) = kind.executable() {
        return skip(&format!("programs::{}", kind.name()), &error.to_string());
    }
    let scratch = scratch(kind.name());
    let launch = Launch { scratch: scratch.clone(), ..Launch::default() };
    let load = Load { seed: 42, data_bytes: 6 << 20, similarity: 0.7, updates: 0.2 };
    let mut session = Session::start(kind.with(load), &launch).expect("it starts");
    session.fill(&|| Ok(())).expect("it takes its data");
    for visit in 0..4 {
        let batches = session.program().interaction(visit);
        let queries: usize = batches.iter().map(|batch| batch.expected.len()).sum();
        assert!(queries >= 14, "{kind}: only {queries} queries");
        let wrong = session.interact(&batches).expect("it answers");
        assert_eq!(wrong, 0, "{kind}: visit {visit}");
    }
    // The model is a real oracle: another model's expectations are not met.
    let mut stranger = kind.with(Load { seed: 43, ..load });
    let mut batches = session.program().interaction(4);
    for (ours, theirs) in batches.iter_mut().zip(stranger.interaction(4)) {
        ours.expected.truncate(theirs.expected.len());
        for (answer, other) in ours.expected.iter_mut().zip(theirs.expected) {
            *answer = other;
        }
    }
    assert!(session.interact(&batches[..1]).expect("it answers") > 0, "{kind}: nothing noticed");
    let pid = session.pid();
    session.end();
    assert!(!PathBuf::from(format!("/proc/{pid}")).exists(), "{kind} is still there");
    std::fs::remove_dir_all(&scratch).expect("still there");
}

#[test]
fn redis() {
    answers_rightly(Kind::Redis);
}

#[test]
fn python() {
    answers_rightly(Kind::Python);
}

#[test]
fn node() {
    answers_rightly(Kind::Node);
}

#[test]
fn sqlite() {
    answers_rightly(Kind::Sqlite);
}

#[test]
fn perl() {
    answers_rightly(Kind::Perl);
}

#[test]
fn java() {
    answers_rightly(Kind::Java);
}

#[test]
fn memcached() {
    answers_rightly(Kind::Memcached);
}
