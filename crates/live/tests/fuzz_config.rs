//! Spoiled clew.toml and scheme files: never a panic, and what is refused is named, by its field or
//! by its place.

#[path = "../../../tests/fuzz/mod.rs"]
mod fuzz;

use std::fs;

use clew_live::config::{Config, ConfigError, Overrides, load_scheme};
use clew_policy::Scheme;
use fuzz::{Run, corpus, spoiled};

const FIELDS: [&str; 8] = [
    "budget",
    "scheme",
    "min-process",
    "watermark-low",
    "watermark-high",
    "workers",
    "max-short-lives",
    "rule",
];
const WORDS: [&str; 36] = [
    "budget",
    "scheme",
    "min-process",
    "watermark-low",
    "watermark-high",
    "workers",
    "rule",
    "max-short-lives",
    "program",
    "never",
    "protect",
    "[scheme]",
    "[[rule]]",
    "[rule]",
    "name",
    "on_full",
    "pool",
    "\"size-classes\"",
    "reclaim",
    "packing",
    "chunk",
    "codec",
    "kind",
    "pages",
    "mem_limit_bytes",
    "disksize_pages",
    "= ",
    "\n",
    "\"",
    "{",
    "}",
    "true",
    "\"1GiB\"",
    "\"99999999T\"",
    "\u{1F9F6}",
    "[[[[[[[[[[[[[[[[[[[[",
];

/// A place in the text ("line 3, column 7") or one of the fields.
fn names_something(error: &str) -> bool {
    error.contains("line ") || FIELDS.iter().any(|field| error.contains(field))
}

#[test]
fn a_spoiled_config_is_refused_by_name() {
    let mut run = Run::start("config");
    let seeds = corpus("config");
    let file = std::env::temp_dir().join(format!("clew-fuzz-config-{}.toml", std::process::id()));
    let mut taken = 0;
    while run.goes_on() {
        let bytes = spoiled(&mut run.random, &seeds, &WORDS);
        fs::write(&file, &bytes).expect("a file");
        let shown = || format!("seed {}, {:?}", run.seed, String::from_utf8_lossy(&bytes));
        match Config::load(Some(&file), &Overrides::default()) {
            Ok(config) => {
                taken += 1;
                let budget = config.budget(4096);
                assert!(budget.low_bytes < budget.high_bytes && config.workers > 0, "{}", shown());
            }
            Err(error @ ConfigError::Read { .. }) => {
                // Another file may be named as the scheme.
                let named = error.to_string();
                let whole = std::str::from_utf8(&bytes).is_ok();
                assert!(!whole || !named.contains("clew-fuzz-config"), "{named}: {}", shown());
            }
            Err(error) => {
                // Its path is no name of a field.
                let said = error.to_string().replace(&file.display().to_string(), "");
                assert!(names_something(&said), "'{said}': {}", shown());
            }
        }
    }
    let _ = fs::remove_file(&file);
    println!("fuzz config: {} cases, {taken} of them valid", run.cases);
    assert!(taken > 0);
}

#[test]
fn a_spoiled_scheme_is_refused_by_name() {
    let mut run = Run::start("scheme");
    let mut seeds = corpus("scheme");
    seeds.extend(clew_policy::schemes::all().iter().map(|scheme| scheme.to_toml().into_bytes()));
    let mut taken = 0;
    while run.goes_on() {
        let bytes = spoiled(&mut run.random, &seeds, &WORDS);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match Scheme::from_toml(&text) {
            Ok(scheme) => {
                taken += 1;
                let again = Scheme::from_toml(&scheme.to_toml());
                assert_eq!(again.as_ref(), Ok(&scheme), "seed {}, {text:?}", run.seed);
                let _ = scheme.build();
            }
            Err(error) => {
                let said = error.to_string();
                assert!(
                    said.contains("line ") || said.contains("scheme"),
                    "'{said}': seed {}, {text:?}",
                    run.seed
                );
            }
        }
    }
    assert!(load_scheme("/no/such/scheme.toml").is_err());
    println!("fuzz scheme: {} cases, {taken} of them valid", run.cases);
    assert!(taken > 0);
}
