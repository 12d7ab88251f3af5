//! docs/adding-a-policy.md shows what is compiled, and its last step runs: the scheme is compared.

#[allow(dead_code, reason = "an example is a program")]
#[path = "../../policy/examples/stride.rs"]
mod stride;
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
    let file = read("crates/policy/examples/stride.rs");
    let shown = blocks(&page, "rust");
    assert_eq!(shown.len(), 5, "blocks of code");
    assert_eq!(shown.join("\n"), file, "the page shows all of it");
    let said = format!("It is {} lines", file.lines().count());
    assert!(page.contains(&said), "the page does not say '{said}'");
}

#[test]
fn its_policy_conforms() {
    let kind = stride::registry().prefetch.read("prefetch", Some("stride".into()), |_| true);
    let kind = kind.expect("a kind");
    clew_conformance::prefetch(|| kind.build()).expect("it keeps the rules");
}

#[test]
fn its_refusals_are_what_the_page_shows() {
    let page = read("docs/adding-a-policy.md");
    let text = Scheme::preset("zram").expect("a preset").to_toml();
    for wrong in ["ahead = 99", "behind = 1"] {
        let column = format!("[scheme.prefetch]\nkind = \"stride\"\n{wrong}\n");
        let text = text.replace("[scheme.prefetch]\nkind = \"none\"\n", &column);
        let error = stride::registry().read(&text);
        let said = error.expect_err("it makes no sense").to_string();
        assert!(page.contains(&format!("    {said}\n")), "the page does not show: {said}");
    }
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
    let text = text.replace("\"zram\"", "\"strides\"");
    let strides = stride::registry().read(&text).expect("a scheme");
    assert_eq!(stride::registry().read(&strides.to_toml()).as_ref(), Ok(&strides));
    let unknown = Scheme::from_toml(&text).expect_err("nobody else knows it").to_string();
    assert!(unknown.contains("scheme.prefetch.kind = \"stride\""), "{unknown}");

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("day.clew");
    trace(&path, Plan { apps: 3, rounds: 3, ..Plan::small(5) });
    let input = Input::open(&path).expect("a trace");
    let settings = Settings::new(zram.clone(), 16 << 20);
    let compared = compare(&input, &[zram, strides], &settings, 2, &|_, _, _| {});
    let compared = compared.expect("two replays");
    let arms = compared.base_arms();
    assert_eq!(arms[1].name, "strides");
    let early = [0, 1].map(|at: usize| arms[at].replay.as_ref().expect("replayed").prefetch);
    assert_eq!(early[0].pages, 0);
    assert!(early[1].used > 100, "{:?}", early[1]);
    assert!(arms[1].faults < arms[0].faults);
}
