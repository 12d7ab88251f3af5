//! Builds the shared object that is preloaded into programs, so that the daemon can carry it.

use std::path::Path;
use std::process::Command;

fn main() {
    let source = Path::new("../agent/src");
    println!("cargo::rerun-if-changed={}", source.display());
    let out =
        Path::new(&std::env::var_os("OUT_DIR").expect("set by cargo")).join("libclew_agent.so");
    let rustc = std::env::var_os("RUSTC").expect("set by cargo");
    let status = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "clew_agent"])
        .args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=debuginfo"])
        .args(["--cfg", "clew_preload", "--check-cfg", "cfg(clew_preload)"])
        .args(["-C", "link-arg=-nostartfiles", "-C", "link-arg=-nostdlib"])
        // Everything is bound when the program is loaded: the agent may not enter the loader. And it needs nobody: what is
        // weak is called in the program's own threads.
        .args(["-C", "link-arg=-Wl,-z,now,-z,relro,--gc-sections,--no-undefined"])
        .arg("--target")
        .arg(std::env::var("TARGET").expect("set by cargo"))
        .arg("-o")
        .arg(&out)
        .arg(source.join("lib.rs"))
        .status()
        .expect("rustc runs");
    assert!(status.success(), "the preloaded agent does not build");
    println!("cargo::rustc-env=CLEW_AGENT_OBJECT={}", out.display());
}
