//! `clew trace`, `clew import` and `clew gen`: what they print, what they refuse, what they leave behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clew_fixture::*;
use serde_json::Value;

fn corpus(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/corpus/trace")).join(name)
}

fn run(words: &[&str]) -> Output {
    run_to_end(clew().args(words), LONG)
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn json(words: &[&str]) -> Value {
    let output = run(&[words, &["--format", "json"]].concat());
    assert!(output.status.success(), "{}", texts(&output));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", texts(&output)))
}

#[track_caller]
fn refused(output: &Output, code: i32, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{}", texts(output));
    for word in words {
        assert!(said.contains(word), "'{word}' is not said: {}", texts(output));
    }
}

#[test]
fn info_and_verify_say_what_a_trace_holds() {
    for name in ["bytes", "bytes-16k", "stats", "policy-only"] {
        let file = corpus(name);
        let info = json(&["trace", "info", path(&file)]);
        let verified = json(&["trace", "verify", path(&file)]);
        assert_eq!(info, verified, "{name}");
        assert_eq!(info["apps"], serde_json::json!(["editor"]));
        assert_eq!(info["provenance"]["seed"], 1);
        let kinds = info["kinds"].as_object().expect("kinds");
        let sum: u64 = kinds.values().map(|count| count.as_u64().expect("a count")).sum();
        assert_eq!(info["records"], sum);
        assert_eq!(info["file_bytes"], file.metadata().expect("a file").len());
        let text = run(&["trace", "verify", path(&file)]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("nothing is wrong") && text.contains("editor"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
    assert_eq!(json(&["trace", "info", path(&corpus("bytes-16k"))])["page_bytes"], 16384);
}

#[test]
fn a_trace_is_exported() {
    let dir = TempDir::new();
    let out = dir.join("out.csv");
    let file = corpus("bytes");
    let shown = run(&["trace", "export", "--csv", path(&file)]);
    let said = json(&["trace", "export", "--csv", path(&file), "-o", path(&out)]);
    let text = fs::read_to_string(&out).expect("a file");
    assert_eq!(text, String::from_utf8_lossy(&shown.stdout));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows[0], "ns,record,app,space,page,pages,flag,contents,detail");
    assert_eq!(said["rows"], rows.len() - 1);
    for row in [
        "0,launch,editor,,,,,,",
        "0,space-start,editor,5,,,file,,",
        "1000,access-fresh,,0,34110391655,1,write,,",
        "2000,contents,,0,34110391655,1,,0,",
        "4000,response,editor,,,,,,response_ns=63000000",
    ] {
        assert!(rows.contains(&row), "{row} is not in\n{text}");
    }
    // From a pipe, too.
    let piped = Command::new("sh")
        .arg("-c")
        .arg("cat \"$1\" | \"$0\" trace export --csv -")
        .arg(env!("CARGO_BIN_EXE_clew"))
        .arg(&file)
        .output()
        .expect("a shell");
    assert_eq!(piped.stdout, shown.stdout);
}

#[test]
fn a_part_is_a_trace() {
    let dir = TempDir::new();
    let (file, out) = (corpus("bytes"), dir.join("part"));
    let part = json(&["trace", "cut", path(&file), "-o", path(&out), "--from", "0.000004"]);
    assert_eq!(part, json(&["trace", "verify", path(&out)]));
    let kinds = &part["kinds"];
    assert_eq!(kinds["space-start"], 2, "what was there at that time: {part}");
    assert_eq!(kinds["contents"], 2, "{part}");
    assert_eq!(kinds["victim"], 1, "{part}");
    assert!(kinds.get("access").is_none(), "accesses were before: {part}");
    let bare = dir.join("bare");
    let words = ["--without-notes", "--without-contents", "--until", "0.000004"];
    let part = json(&[&["trace", "cut", path(&file), "-o", path(&bare)], &words[..]].concat());
    assert_eq!(part["contents"], "none");
    assert_eq!(part["kinds"]["access"], 1, "{part}");
    assert!(part["kinds"].get("contents").is_none(), "{part}");
    refused(
        &run(&["trace", "cut", path(&file), "-o", path(&out), "--app", "nobody"]),
        2,
        &["nobody", "editor"],
    );
    refused(
        &run(&["trace", "cut", path(&file), "-o", path(&out), "--from", "3", "--until", "2"]),
        2,
        &["--until"],
    );
    refused(&run(&["trace", "cut", path(&file), "-o", path(&out), "--from=-1"]), 2, &["--from"]);
}

#[test]
fn bad_traces_are_refused_with_their_place() {
    let dir = TempDir::new();
    let whole = fs::read(corpus("bytes")).expect("a file");
    let bad = |name: &str, bytes: &[u8]| {
        let file = dir.join(name);
        fs::write(&file, bytes).expect("room");
        file
    };
    let mut damaged = whole.clone();
    damaged[300] ^= 1;
    let cases = [
        (bad("empty", b""), "not a trace"),
        (bad("other", b"something else, and long enough for a header"), "not a trace"),
        (bad("truncated", &whole[..whole.len() - 20]), "ends at byte"),
        (bad("damaged", &damaged), "checksum"),
        (bad("version", &[&whole[..8], &[9], &whole[9..]].concat()), "version 9"),
        (dir.join("missing"), "missing"),
    ];
    let out = dir.join("out");
    for (file, word) in &cases {
        let output = run(&["trace", "verify", path(file)]);
        refused(&output, 2, &[word, path(file)]);
        let cut = run(&["trace", "cut", path(file), "-o", path(&out)]);
        refused(&cut, 2, &[path(file)]);
        let export = run(&["trace", "export", "--csv", path(file), "-o", path(&out)]);
        refused(&export, 2, &[path(file)]);
        for words in [&["replay"][..], &["replay", "--decisions"], &["compare"]] {
            let name = file.file_name().and_then(|name| name.to_str()).expect("a name");
            refused(&run(&[words, &[path(file)]].concat()), 2, &[name]);
        }
        assert!(!out.exists(), "{word}");
    }
    let missing = path(&cases[cases.len() - 1].0);
    refused(&run(&["sweep", missing]), 2, &[missing]);
    let left: Vec<_> = fs::read_dir(dir.path()).expect("a directory").collect();
    assert_eq!(left.len(), cases.len() - 1, "only what was put there: {left:?}");
}

#[test]
fn results_are_shown_again_and_those_of_older_versions_refused() {
    let dir = TempDir::new();
    let (trace, out) = (corpus("bytes"), dir.join("out"));
    let words = ["compare", path(&trace), "--budget", "8MiB", "--schemes", "zram,clew", "--out"];
    let compared = run(&[&words[..], &[path(&out)]].concat());
    let text = String::from_utf8_lossy(&compared.stdout).into_owned();
    assert!(compared.status.success(), "{}", texts(&compared));
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    assert!(text.contains("modelled") && text.contains("clew lacks: "), "{text}");
    let file = out.join("compare.json");
    let again = run(&["report", path(&file)]);
    let again = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(again.len() > 300 && text.starts_with(&again), "{again}");
    let value = json(&["report", path(&file)]);
    assert_eq!(
        (&value["format"], &value["points"][0]["arms"][1]["name"]),
        (&2.into(), &"clew".into())
    );
    let page = fs::read_to_string(out.join("compare.html")).expect("a page");
    assert!(page.contains("<svg") && !page.contains("<script") && !page.contains("src="));
    fs::write(&file, "[{\"scheme\": \"zram\"}]").expect("room");
    refused(&run(&["report", path(&file)]), 2, &["compare.json", "no format", "reads format 2"]);
    refused(&run(&["report", path(&dir.join("missing"))]), 2, &["missing"]);
}

/// What `command` writes fits no file: 8 blocks of 512 bytes is the limit.
fn on_a_full_disk(words: &[&str]) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\""]);
    run_to_end(command.arg(env!("CARGO_BIN_EXE_clew")).args(words), LONG)
}

/// A directory of Ariadne's with so many pages.
fn ariadne(dir: &TempDir, pages: u64) -> PathBuf {
    let root = dir.join("traces");
    let leaf = root.join("youtube/round1/hot");
    fs::create_dir_all(&leaf).expect("a directory");
    let mut raw = Vec::new();
    let mut random = Random(1);
    for n in 0..pages {
        let mut record = format!("TEST^^^#10123,{},{}#^^^\n", 50 + n, 8 * n).into_bytes();
        record.resize(50, 0);
        record.extend((0..4096).map(|_| random.below(256) as u8));
        raw.extend(record);
    }
    raw.extend(b"TEST^^^#10123,1");
    fs::write(leaf.join("swapout_trace.txt"), raw).expect("room");
    fs::write(leaf.join("ttid_swapin_trace.txt"), "10123,8\n10123,0\nnone\n").expect("room");
    root
}

#[test]
fn ariadnes_traces_are_imported() {
    let dir = TempDir::new();
    let root = ariadne(&dir, 50);
    let out = dir.join("a.trace");
    let said = json(&["import", "ariadne", path(&root), "-o", path(&out)]);
    let one = &said["imported"][0];
    assert_eq!((&one["app"], &one["round"]), (&"youtube".into(), &"round1".into()));
    let numbers = ["pages", "hot", "cold", "bad_headers", "bad_lines"].map(|name| &one[name]);
    assert_eq!(numbers, [50, 2, 48, 1, 1], "{said}");
    let trace = json(&["trace", "verify", path(&out)]);
    assert_eq!(trace["different_contents"], 50);
    assert_eq!(trace["kinds"]["access-fault"], 2);
    use std::os::unix::fs::PermissionsExt;
    let mode = out.metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "somebody's memory");
    let text = run(&["import", "ariadne", path(&root), "-o", path(&out)]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("youtube/round1/hot"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let empty = dir.join("empty");
    fs::create_dir(&empty).expect("a directory");
    refused(&run(&["import", "ariadne", path(&empty)]), 2, &["no swap-out trace"]);
    refused(&run(&["import", "ariadne", "/no/such"]), 2, &["/no/such"]);
}

#[test]
fn a_full_disk_leaves_nothing() {
    let dir = TempDir::new();
    let root = ariadne(&dir, 300);
    let out = dir.join("out");
    let files = || fs::read_dir(dir.path()).expect("a directory").count();
    let before = files();
    let output = on_a_full_disk(&["import", "ariadne", path(&root), "-o", path(&out)]);
    refused(&output, 1, &["cannot write", path(&out)]);
    let whole = dir.join("whole");
    let words = ["import", "ariadne", path(&root), "-o", path(&whole)];
    assert!(run(&words).status.success());
    for words in [
        ["trace", "cut", path(&whole), "-o", path(&out)].as_slice(),
        &["trace", "export", "--csv", path(&whole), "-o", path(&out)],
    ] {
        refused(&on_a_full_disk(words), 1, &["cannot write", path(&out)]);
    }
    assert_eq!(files(), before + 1, "nothing but the whole one was left");
    refused(&run(&["trace", "cut", path(&whole), "-o", "/no/such/place"]), 1, &["/no/such/place"]);
    let full = run_to_end(
        Command::new("sh")
            .args(["-c", "exec \"$0\" trace export --csv \"$1\" >/dev/full"])
            .arg(env!("CARGO_BIN_EXE_clew"))
            .arg(&whole),
        LONG,
    );
    refused(&full, 1, &["cannot write", "standard output"]);
}

#[test]
fn generated_traces_are_whole_and_the_same_each_time() {
    let dir = TempDir::new();
    let (one, two) = (dir.join("one.trace"), dir.join("two.trace"));
    for file in [&one, &two] {
        let words = ["gen", "mobile-2025", "-o", path(file), "--seed", "3", "--scale", "0.0075"];
        let info = json(&[&words[..], &["--apps", "3", "--events", "20000"]].concat());
        assert_eq!(info["provenance"]["seed"], 3);
        assert_eq!(info["provenance"]["notes"]["profile"], "mobile-2025");
        assert!(info["records"].as_u64().expect("a count") >= 20_000, "{info}");
    }
    assert!(fs::read(&one).expect("a trace") == fs::read(&two).expect("a trace"));
    json(&["trace", "verify", path(&one)]);
    let statistics = json(&["trace", "stats", path(&one)]);
    assert_eq!(statistics["apps"].as_array().map(Vec::len), Some(3));
    assert_eq!(statistics["ratios"].as_array().map(Vec::len), Some(22));
    let text = run(&["trace", "stats", path(&one)]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("YouTube") && text.contains("zstd"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn senseless_workloads_leave_nothing_behind() {
    let dir = TempDir::new();
    let file = dir.join("no.trace");
    let cases: [(&[&str], &[&str]); 6] = [
        (&["mobile-1999"], &["mobile-1999", "mobile-2025", "mobile-2019"]),
        (&["mobile-2025", "--scale", "0"], &["--scale", "0.00"]),
        (&["mobile-2025", "--scale", "NaN"], &["--scale"]),
        (&["mobile-2025", "--apps", "11"], &["--apps", "1 to 10"]),
        (&["mobile-2025", "--events", "0"], &["--events"]),
        (&["mobile-2025", "--seed", "one"], &["--seed", "one"]),
    ];
    for (words, said) in cases {
        refused(&run(&[&["gen", "-o", path(&file)], words].concat()), 2, said);
    }
    let nowhere = dir.join("no/such/directory/x.trace");
    let words = ["gen", "mobile-2025", "--scale", "0.01", "-o", path(&nowhere)];
    refused(&run(&words), 1, &["x.trace", "nothing was left"]);
    refused(&run(&["trace", "stats", path(&file)]), 2, &["no.trace"]);
    refused(&run(&["gen", "mobile-2025"]), 2, &["--output"]);
    let left = fs::read_dir(dir.path()).expect("a directory").count();
    assert_eq!(left, 0, "something was left");
}
