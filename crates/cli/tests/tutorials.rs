//! docs/tutorials.md, command by command: each tutorial is one shell, and what follows a piece of it is what
//! that piece prints, but for numbers.

use std::path::Path;
use std::process::Command;

use clew_fixture::*;

/// A piece of a page between fences, and its kind.
struct Block {
    kind: String,
    text: String,
}

/// Tutorials by their titles, as blocks.
fn tutorials() -> Vec<(String, Vec<Block>)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorials.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let mut found: Vec<(String, Vec<Block>)> = Vec::new();
    let mut open: Option<Block> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```"), line.strip_prefix("## ")) {
            (Some(_), Some(_), _) => {
                let (_, blocks) = found.last_mut().expect("a title comes first");
                blocks.extend(open.take());
            }
            (None, Some(kind), _) => {
                open = Some(Block { kind: kind.to_string(), text: String::new() });
            }
            (Some(block), None, _) => block.text += &format!("{line}\n"),
            (None, None, Some(title)) => found.push((title.to_string(), Vec::new())),
            (None, None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    found
}

/// Words, without numbers and their units: what has to be the same.
fn words(line: &str) -> Vec<&str> {
    let is_word = |word: &&str| !word.starts_with(|c: char| c.is_ascii_digit());
    line.split_whitespace()
        .filter(is_word)
        .filter(|word| !["MiB", "B", "KiB"].contains(word))
        .collect()
}

/// A line that stands before what a piece prints.
const MARK: &str = "@@ piece\n";

#[test]
fn every_command_of_the_tutorials_prints_what_is_said() {
    if !can_run("tutorials::every_command", &["python3"]) {
        return;
    }
    let found = tutorials();
    assert_eq!(found.len(), 3, "tutorials");
    for (title, blocks) in &found {
        let dir = TempDir::new();
        // What still runs when the shell ends is ended with it.
        let mut script =
            "set -eu\ntrap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT\n".to_string();
        for block in blocks.iter().filter(|block| block.kind == "sh") {
            script += &format!("printf '%s' '{MARK}'\n{}", block.text);
        }
        let binary = Path::new(env!("CARGO_BIN_EXE_clew")).parent().expect("a directory");
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(dir.path()).env("PATH", path);
        let output = run_to_end(&mut shell, LONG);
        assert!(output.status.success(), "{title}: {}", texts(&output));
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut pieces = printed.split(MARK).skip(1);
        let (mut piece, mut compared) = ("", 0);
        for block in blocks {
            match block.kind.as_str() {
                "sh" => piece = pieces.next().expect("each block was begun"),
                "text" => {
                    for line in block.text.lines() {
                        let wanted = words(line);
                        let is_there = piece.lines().any(|line| words(line).starts_with(&wanted));
                        let exact = wanted.is_empty().then(|| line.trim());
                        let is_exact =
                            exact.is_none_or(|text| piece.lines().any(|line| line.trim() == text));
                        assert!(is_there && is_exact, "{title}: '{line}' is not in\n{piece}");
                        compared += 1;
                    }
                }
                other => panic!("{title}: a block of kind '{other}'"),
            }
        }
        assert!(compared > 2, "{title}: nothing was compared");
    }
}
