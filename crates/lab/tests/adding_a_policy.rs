//! docs/adding-a-policy.md shows what is compiled, and its last step runs: the scheme is compared.

mod support;

use std::fs;
use std::path::Path;

use clew_lab::{Input, Settings, compare};
use clew_policy::Scheme;
use support::{Plan, trace};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The blocks of `language` in a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let blocks = page.split(&fence).skip(1);
    blocks.map(|rest| rest.split("```").next().expect("a closed block").to_string()).collect()
}

#[test]
fn the_walk_is_what_is_compiled() {
    let page = read("docs/adding-a-policy.md");
    let files: Vec<String> = [
        "crates/policy/src/prefetch/cluster.rs",
        "crates/policy/tests/cluster.rs",
        "crates/policy/src/prefetch/mod.rs",
        "crates/policy/src/schemes/mod.rs",
        "crates/policy/src/schemes/read.rs",
    ]
    .map(read)
    .into();
    let shown = blocks(&page, "rust");
    assert_eq!(shown.len(), 7, "blocks of code");
    for block in &shown {
        assert!(files.iter().any(|file| file.contains(block)), "no file has\n{block}");
    }
    // Policy and test are shown whole, and all that is shown is short.
    assert!(shown.contains(&files[0]) && shown.contains(&files[1]));
    let lines: usize = shown.iter().map(|block| block.lines().count()).sum();
    assert!(lines < 100, "{lines} lines");
    let said = format!("It is {lines} lines");
    assert!(page.contains(&said), "the page does not say '{said}'");
}

#[test]
fn its_scheme_is_compared() {
    let page = read("docs/adding-a-policy.md");
    let column = blocks(&page, "toml").remove(0);
    let zram = Scheme::preset("zram").expect("a preset");
    let text = zram.to_toml();
    let before = "[scheme.prefetch]\nkind = \"none\"\n";
    assert!(text.contains(before), "{text}");
    let text = text.replace(before, &column);
    let cluster = Scheme::from_toml(&text.replace("\"zram\"", "\"cluster\"")).expect("a scheme");

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("day.clew");
    trace(&path, Plan { apps: 3, rounds: 3, ..Plan::small(5) });
    let input = Input::open(&path).expect("a trace");
    let settings = Settings::new(zram.clone(), 16 << 20);
    let compared = compare(&input, &[zram, cluster], &settings, 2, &|_, _, _| {});
    let outcomes = compared.expect("two replays").outcomes;
    assert_eq!(outcomes[1].scheme, "cluster");
    assert_eq!(outcomes[0].prefetch.pages, 0);
    assert!(outcomes[1].prefetch.used > 100, "{:?}", outcomes[1].prefetch);
    assert!(outcomes[1].faults < outcomes[0].faults);
}
