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
    let load =
        Load { seed: 42, data_bytes: 6 << 20, similarity: 0.7, updates: 0.2, is_front: false };
    let mut session = Session::start(kind.with(load), &launch).expect("it starts");
    session.fill(&|| Ok(())).expect("it takes its data");
    for visit in 0..4 {
        session.prepare(visit).expect("there is something to ask");
        let answers = session.visit().expect("it answers");
        assert!(answers.count >= 14, "{kind}: only {} queries", answers.count);
        assert_eq!(answers.wrong, 0, "{kind}: visit {visit}");
    }
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

/// Answers of a natural program are right if they are the same each time.
fn answers_the_same(kind: Kind) {
    if let Err(error) = kind.executable() {
        return skip(&format!("programs::{}", kind.name()), &error.to_string());
    }
    let load =
        Load { seed: 42, data_bytes: 4 << 20, similarity: 0.7, updates: 0.0, is_front: false };
    let answers = |name: &str, load: Load| -> Vec<Vec<u32>> {
        let scratch = scratch(&format!("{}-{name}", kind.name()));
        let launch = Launch { scratch: scratch.clone(), ..Launch::default() };
        let mut session = Session::start(kind.with(load), &launch).expect("it starts");
        session.fill(&|| Ok(())).expect("it gets ready");
        let one = |visit| {
            session.prepare(visit).expect("there is something to ask");
            let answers = session.visit().expect("it answers");
            assert_eq!((answers.wrong, answers.count), (0, answers.digests.len() as u64));
            answers.digests
        };
        let all = (0..4).map(one).collect();
        session.end();
        std::fs::remove_dir_all(&scratch).expect("still there");
        all
    };
    let once = answers("once", load);
    assert_eq!(once, answers("again", load), "{kind}");
    assert_ne!(once[0], once[1], "{kind} is asked the same each time");
    assert_ne!(once, answers("other", Load { seed: 43, ..load }), "{kind}");
}

#[test]
fn tsserver() {
    answers_the_same(Kind::Tsserver);
}

#[test]
fn jupyter() {
    answers_the_same(Kind::Jupyter);
}

#[test]
fn clangd() {
    answers_the_same(Kind::Clangd);
}

#[test]
fn pyright() {
    answers_the_same(Kind::Pyright);
}

#[test]
fn chromium() {
    answers_the_same(Kind::Chromium);
}

#[test]
fn libreoffice() {
    answers_the_same(Kind::Libreoffice);
}

#[test]
fn compile() {
    let kind = Kind::Compile;
    if let Err(error) = kind.executable() {
        return skip("programs::compile", &error.to_string());
    }
    let scratch = scratch("compile");
    let launch = Launch { scratch: scratch.clone(), ..Launch::default() };
    let load = Load { seed: 1, data_bytes: 0, similarity: 0.0, updates: 0.0, is_front: true };
    let mut session = Session::start(kind.with(load), &launch).expect("it starts");
    session.fill(&|| Ok(())).expect("it gets ready");
    // The first visit does not optimise, which is enough here.
    session.prepare(0).expect("there is a file");
    let first = session.visit().expect("it compiles");
    session.prepare(0).expect("there is a file");
    assert_eq!(session.visit().expect("it compiles"), first);
    assert_eq!((first.count, first.wrong, first.digests.len()), (1, 0, 1));
    session.end();
    std::fs::remove_dir_all(&scratch).expect("still there");
}
