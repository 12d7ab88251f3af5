//! `clew sweep` in shards: what each leaves, what is made of it, and what is refused.

use std::fs;
use std::path::Path;
use std::process::Output;

use clew_fixture::*;

/// A sweep of six rows, of which each takes a moment.
fn sweep(dir: &TempDir, budgets: &str) -> String {
    let trace = dir.join("day.trace");
    if !trace.exists() {
        let mut command = clew();
        command.args(["gen", "mobile-2025", "--scale", "0.03", "--apps", "3", "--events", "20000"]);
        let made = run_to_end(command.arg("-o").arg(&trace), LONG);
        assert!(made.status.success(), "{}", texts(&made));
    }
    let text = format!(
        "traces = [\"day.trace\"]\nschemes = [\"zram\", \"ariadne\"]\nbudgets = [{budgets}]\npages = \"weightless\"\n"
    );
    let file = dir.join(format!("sweep-{}.toml", budgets.len()));
    fs::write(&file, text).expect("written");
    file.to_str().expect("UTF-8").to_string()
}

fn run(words: &[&str]) -> Output {
    run_to_end(clew().arg("sweep").args(words), LONG)
}

#[track_caller]
fn done(words: &[&str], said: &str) {
    let output = run(words);
    assert!(output.status.success() && texts(&output).contains(said), "{}", texts(&output));
}

#[track_caller]
fn refused(words: &[&str], said: &str) {
    let output = run(words);
    assert_eq!(output.status.code(), Some(2), "{}", texts(&output));
    assert!(texts(&output).contains(said), "'{said}' is not said: {}", texts(&output));
}

#[test]
fn shards_are_put_together_to_what_one_command_writes() {
    let dir = TempDir::new();
    let file = sweep(&dir, "\"60%\", \"70%\", \"80%\"");
    let at = |name: &str| dir.join(name).to_str().expect("UTF-8").to_string();
    let (whole, out, parquet) = (at("whole"), at("out"), at("rows.parquet"));
    done(&[&file, "--out", &whole], "6 replays, 0 of them");
    refused(&["--merge", &at("nowhere")], "nowhere");
    for shard in ["1/4", "3/4"] {
        done(&[&file, "--out", &out, "--shard", shard], "replays, 0 of them");
    }
    refused(&["--merge", &out], "missing are 2/4, 4/4");
    assert!(!Path::new(&out).join("sweep.json").exists(), "half a table");
    // One that was interrupted when all its rows were there.
    done(&[&file, "--out", &out, "--shard", "2/4"], "2 replays, 0 of them");
    let result = Path::new(&out).join("results/2-of-4.json");
    let before = fs::read(&result).expect("it is there");
    fs::remove_file(&result).expect("it is there");
    refused(&["--merge", &out], "2/4 (begun), 4/4");
    done(&[&file, "--out", &out, "--shard", "2/4"], "2 replays, 2 of them");
    assert!(fs::read(&result).expect("again") == before, "found rows are others");
    done(&[&file, "--out", &out, "--shard", "4/4"], "2 replays, 0 of them");
    done(&["--merge", &out, "--parquet", &parquet], "6 replays");
    for name in ["sweep.json", "sweep.csv"] {
        let read = |out: &str| fs::read_to_string(Path::new(out).join(name)).expect("a table");
        assert_eq!(read(&out), read(&whole), "{name}");
    }
    let parquet = fs::read(parquet).expect("a file");
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

/// The same trace under two names, and the same budget said in two ways: each row is called what was asked for.
#[test]
fn rows_that_come_to_the_same_keep_their_names() {
    let dir = TempDir::new();
    let file = sweep(&dir, "\"60%\"");
    fs::copy(dir.join("day.trace"), dir.join("copy.trace")).expect("a copy");
    let rows = |out: &str| {
        let text = fs::read_to_string(dir.join(out).join("sweep.csv")).expect("a table");
        let names = text.lines().skip(1).map(|line| line.split(',').take(3).collect::<Vec<_>>());
        names.map(|cells| cells.join(" ")).collect::<Vec<_>>()
    };
    let run_with = |traces: &str, budgets: &str, jobs: &str, said: &str| {
        let text = fs::read_to_string(&file).expect("written");
        let text = text.replace("[\"day.trace\"]", traces).replace("[\"60%\"]", budgets);
        let other = dir.join("other.toml");
        fs::write(&other, text).expect("written");
        let out = dir.join(jobs).to_str().expect("UTF-8").to_string();
        let other = other.to_str().expect("UTF-8").to_string();
        done(&[&other, "--out", &out, "--jobs", jobs], said);
    };
    run_with("[\"day.trace\"]", "[\"60%\"]", "1", "2 replays, 0 of them");
    let json = fs::read_to_string(dir.join("1/sweep.json")).expect("a table");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let bytes = json[0]["budget_bytes"].as_u64().expect("a number");
    let budgets = format!("[\"60%\", \"{bytes}\"]");
    let traces = "[\"day.trace\", \"copy.trace\"]";
    run_with(traces, &budgets, "1", "8 replays, 8 of them");
    run_with(traces, &budgets, "2", "8 replays");
    let (first, second) = (rows("1"), rows("2"));
    assert_eq!(first, second);
    let named = |name: &str| first.iter().filter(|row| row.starts_with(name)).count();
    assert_eq!((named("day.trace"), named("copy.trace")), (4, 4), "{first:?}");
    assert_eq!(first.iter().filter(|row| row.ends_with(" 60%")).count(), 4, "{first:?}");
}

#[test]
fn what_does_not_belong_together_is_refused_by_name() {
    let dir = TempDir::new();
    let (one, other) = (sweep(&dir, "\"60%\", \"70%\""), sweep(&dir, "\"60%\""));
    let out = dir.join("out").to_str().expect("UTF-8").to_string();
    done(&[&one, "--out", &out, "--shard", "1/2"], "2 replays");
    done(&[&other, "--out", &out, "--shard", "2/2"], "1 replays");
    refused(&["--merge", &out], "2-of-2.json: it is of another sweep");
    done(&[&one, "--out", &out, "--shard", "2/2"], "2 replays");
    done(&[&one, "--out", &out, "--shard", "2/3"], "1 replays");
    refused(&["--merge", &out], "one of 3 shards");
    fs::remove_file(Path::new(&out).join("results/2-of-3.json")).expect("it is there");
    let result = Path::new(&out).join("results/1-of-2.json");
    let text = fs::read_to_string(&result).expect("a result");
    fs::write(&result, text.replace("\"of_rows\": 4", "\"of_rows\": 400")).expect("written");
    refused(&["--merge", &out], "1-of-2.json: its rows are not those of its shard");
    fs::write(&result, &text[..text.len() / 2]).expect("written");
    refused(&["--merge", &out], "1-of-2.json: these are no results");
    for words in [["--shard", "3/2"], ["--shard", "0/2"], ["--shard", "half"]] {
        refused(&[&[one.as_str(), "--out", &out][..], &words].concat(), "I/N");
    }
    let measured = dir.join("measured.toml");
    let text = fs::read_to_string(&one).expect("a sweep") + "time = \"measured\"\n";
    fs::write(&measured, text).expect("written");
    let measured = measured.to_str().expect("UTF-8");
    refused(&[measured, "--out", &out, "--shard", "1/2"], "modelled");
}
