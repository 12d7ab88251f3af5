//! CPython's own tests under a storm: each must say what it says without Clew.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clew_fixture::storm::{CONFIG, LIMIT, Storm, rounds};
use clew_fixture::*;

const PYTHON: &str = "/usr/bin/python3";

/// Names, modules of the suite, and which of their tests. Those that measure how long they waited are
/// left out.
const GROUPS: [(&str, &[&str], &[&str]); 3] = [
    (
        "data",
        &["test_dict", "test_list", "test_gc", "test_mmap", "test_ctypes", "test_array", "test_re"],
        &["*"],
    ),
    (
        "threads",
        &["test_threading", "test_fork1"],
        &[
            "*ThreadTests*",
            "*ThreadJoinOnShutdown*",
            "*SubinterpThreadingTests*",
            "*ThreadingExceptionTests*",
            "*LockTests*",
            "*ForkTest*",
        ],
    ),
    (
        "processes",
        &["test_multiprocessing_fork", "test_asyncio"],
        &[
            "*.WithProcessesTestArray.*",
            "*.WithProcessesTestConnection.*",
            "*.WithProcessesTestHeap.*",
            "*.WithProcessesTestSharedCTypes.*",
            "*.WithProcessesTestSharedMemory.*",
            "*.WithProcessesTestValue.*",
            "test.test_asyncio.test_queues.*",
            "test.test_asyncio.test_streams.*",
            "test.test_asyncio.test_transports.*",
        ],
    ),
];

/// One that measures how long a search takes, whatever its group.
const BY_TIME: &str = "*.test_search_anchor_at_beginning";

/// What each test said, by its name, from the report that `-m test` writes.
fn verdicts(report: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(report).unwrap_or_else(|e| panic!("{}: {e}", report.display()));
    let cases = text.split("<testcase name=\"").skip(1).map(|case| {
        let (name, rest) = case.split_once('"').expect("a name");
        let said = rest.split_once('>').filter(|(tag, _)| !tag.ends_with('/'));
        let kind = said.and_then(|(_, body)| body.strip_prefix('<')).unwrap_or("passed");
        let word: String = kind.chars().take_while(char::is_ascii_alphabetic).collect();
        (name.to_string(), word)
    });
    cases.collect()
}

fn words(dir: &Path, (name, modules, only): &(&str, &[&str], &[&str])) -> (Vec<String>, PathBuf) {
    // A directory of its own: tests leave files where they run.
    let dir = dir.join(name);
    fs::create_dir_all(&dir).expect("a directory");
    let report = dir.join("report.xml");
    let text = |path: &Path| path.to_str().expect("UTF-8").to_string();
    let fixed = [PYTHON, "-m", "test", "--tempdir", &text(&dir), "--junit-xml", &text(&report)];
    let mut words: Vec<String> = fixed.map(String::from).into();
    words.extend(["-i", BY_TIME].map(String::from));
    for pattern in *only {
        words.extend(["-m".to_string(), pattern.to_string()]);
    }
    words.extend(modules.iter().map(|module| module.to_string()));
    (words, report)
}

#[test]
fn the_suite_says_the_same() {
    let test = "cpython::the_suite_says_the_same";
    if !can_run(test, &[]) {
        return;
    }
    let mut has_suite = Command::new(PYTHON);
    has_suite.args(["-c", "import test.test_dict, test.test_asyncio"]);
    if !Path::new(PYTHON).exists() || !run_to_end(&mut has_suite, LONG).status.success() {
        return skip(test, "libpython3-testsuite is not installed");
    }
    let dir = TempDir::new();
    let twin = |group| {
        let (words, report) = words(&dir.join("twin"), group);
        let mut command = Command::new(&words[0]);
        let output = run_to_end(command.args(&words[1..]), LIMIT);
        assert!(report.exists(), "{}", texts(&output));
        verdicts(&report)
    };
    let wanted: Vec<_> = std::thread::scope(|scope| {
        let twins: Vec<_> = GROUPS.iter().map(|group| scope.spawn(move || twin(group))).collect();
        twins.into_iter().map(|twin| twin.join().expect("the twin ends")).collect()
    });
    for round in 0..rounds() {
        let mut fixture = Fixture::start_configured("1GiB", "zram", CONFIG);
        let started = GROUPS.iter().map(|group| {
            let (words, report) = words(&dir.join(format!("managed-{round}")), group);
            (fixture.run(group.0, &words), report)
        });
        let (mut programs, reports): (Vec<_>, Vec<_>) = started.unzip();
        let storm = Storm::over(&mut fixture, &mut programs, 6);
        for ((program, report), wanted) in programs.iter_mut().zip(reports).zip(&wanted) {
            program.wait(LONG);
            let said = program.rest(LONG).join("\n");
            assert!(report.exists(), "{}: {said}\n{}", program.name, program.report());
            let mut found = verdicts(&report);
            found.retain(|name, verdict| wanted.get(name) != Some(verdict));
            let why = || format!("{said}\n{}{}", program.report(), fixture.log());
            assert!(found.is_empty(), "{}: {found:#?} differ\n{}", program.name, why());
            let count = verdicts(&report).len();
            assert_eq!(count, wanted.len(), "{}\n{}", program.name, why());
            let passed = wanted.values().filter(|verdict| *verdict == "passed").count();
            println!("{}: {count} tests say the same, {passed} of them passed", program.name);
            assert!(passed > 80 && passed * 10 > count * 8, "{}: {wanted:#?}", program.name);
        }
        storm.was_one("cpython", 10_000);
    }
}
