//! What the Debian package is made of, as far as that can be seen without making it; `make package` tries it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clew_fixture::*;
use clew_live::config::{Config, Overrides};

const GENERATED: &str = "../../target/package/";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Sources and places of `[package.metadata.deb]`.
fn assets() -> Vec<(String, String)> {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    let manifest: toml::Table = manifest.expect("a manifest").parse().expect("TOML");
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().expect("a list");
    let text = |asset: &toml::Value, at: usize| asset[at].as_str().expect("text").to_string();
    assets.iter().map(|asset| (text(asset, 0), text(asset, 1))).collect()
}

/// Files below a directory, by their paths in it.
fn files(directory: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("it")) {
        let name = entry.file_name().into_string().expect("UTF-8");
        match entry.file_type().expect("known").is_dir() {
            true => found.extend(files(&entry.path()).iter().map(|file| format!("{name}/{file}"))),
            false => _ = found.insert(name),
        }
    }
    found
}

#[test]
fn the_package_has_all_that_is_generated_and_nothing_else() {
    let dir = TempDir::new();
    let out = dir.join("package");
    let mut command = Command::new(root().join("scripts/package-files.sh"));
    let made = run_to_end(command.arg(env!("CARGO_BIN_EXE_clew")).arg(&out), LONG);
    assert!(made.status.success(), "{}", texts(&made));
    let mut left = files(&out);
    assert!(left.contains("man/clew-run.1.gz") && left.contains("completions/_clew"), "{left:?}");
    for (source, _) in assets() {
        let Some(generated) = source.strip_prefix(GENERATED) else {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&source);
            assert!(source == "target/release/clew" || path.is_file(), "{source} is not there");
            continue;
        };
        let (before, after) = generated.split_once('*').unwrap_or((generated, ""));
        let mine = |file: &String| match generated.contains('*') {
            true => file.starts_with(before) && file.ends_with(after),
            false => file == generated,
        };
        let count = left.len();
        left.retain(|file| !mine(file));
        assert!(left.len() < count, "nothing is generated for {source}");
    }
    assert!(left.is_empty(), "generated, and not in the package: {left:?}");
    for unit in ["clew.service", "clew-user.service"] {
        let unit = fs::read_to_string(out.join("systemd").join(unit)).expect("a unit");
        assert!(unit.contains("ExecStart=/usr/bin/clew daemon"), "{unit}");
    }
}

#[test]
fn places_of_the_package_are_those_of_debian() {
    let places: Vec<String> = assets().into_iter().map(|(_, place)| place).collect();
    for wanted in [
        "usr/bin/",
        "etc/",
        "usr/lib/systemd/system/",
        "usr/share/man/man1/",
        "usr/share/bash-completion/completions/",
        "usr/share/zsh/vendor-completions/",
        "usr/share/fish/vendor_completions.d/",
    ] {
        assert!(places.iter().any(|place| place == wanted), "{wanted}: {places:?}");
    }
}

#[test]
fn what_the_package_does_beside_copying_is_a_script_that_can_be_read() {
    let directory = root().join("contrib/debian");
    for name in ["postinst", "prerm", "postrm"] {
        let read = run_to_end(Command::new("sh").arg("-n").arg(directory.join(name)), LONG);
        assert!(read.status.success(), "{name}: {}", texts(&read));
    }
}

/// With the comments taken away.
#[test]
fn the_configuration_that_is_installed_makes_sense() {
    let text = fs::read_to_string(root().join("contrib/clew.toml")).expect("a file");
    let dir = TempDir::new();
    let file = dir.join("clew.toml");
    let is_setting = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    let bare: Vec<&str> = text.lines().filter(is_setting).map(|line| &line[1..]).collect();
    assert!(bare.len() > 5, "{bare:?}");
    // The group of those who are served need not be there; root's is.
    let settings = bare.join("\n").replace("group = \"clew\"", "group = \"root\"");
    fs::write(&file, settings).expect("written");
    let config = Config::load(Some(&file), &Overrides::default()).expect("it makes sense");
    assert_eq!(config.budget.0, 2 << 30);
    // As it is it says nothing.
    fs::write(&file, &text).expect("written");
    let config = Config::load(Some(&file), &Overrides::default()).expect("it makes sense");
    let usual = Config::load(None, &Overrides::default()).expect("it makes sense");
    assert_eq!((config.budget, config.scheme_name), (usual.budget, usual.scheme_name));
}
