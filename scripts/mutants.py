#!/usr/bin/env python3
"""How many small defects the tests of their own crate notice: a seeded sample of mutants of what
must not be wrong (the mover, the store, what decides who leaves).

    scripts/mutants.py [--seed N] [--viable N] [--again missed|all]

cargo-mutants says which mutants there are; they are drawn until so many compile. Those within
functions are woven into one copy of the last commit, each function with all its variants, and an
environment variable tells a test program which one is meant: one build serves all of them. Where that
cannot be (constants, `const fn`, functions that return `impl Trait`), cargo-mutants builds and runs
the mutant by itself.

What is known is kept in target/mutants: a run that was stopped goes on where it was. A verdict counts
as long as its file is the same; a mutant that was missed runs again when a file of its crate changed.
Mutants that change nothing anybody could see are listed, with the reason, in .cargo/mutants.toml.

A mutant that makes a test hang counts as caught: `make test` would not end.
"""

import argparse
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STATE = os.path.join(ROOT, "target", "mutants")
PLAIN, WOVEN = os.path.join(STATE, "tree"), os.path.join(STATE, "woven")
FILES = ["crates/engine/src/mover/**", "crates/store/src/**", "crates/policy/src/reclaim/**"]
PACKAGES = ["clew-store", "clew-engine", "clew-policy"]
CAUGHT, MISSED, TIMEOUT, UNVIABLE = "caught", "missed", "timeout", "unviable"
# What a crate's tests may take: many times what they take on a machine that does nothing else.
TEST_SECONDS = {"clew-engine": 150, "clew-store": 240, "clew-policy": 100}
# Tests that take longest run last.
LONGEST = {
    "clew-store": ["adopt::tests::killed", "behaves_as_a_map_of_blocks", "threads_learn_store_and_free"],
}

# Part of each crate in the copy: which of its variants a function is.
ACTIVE = """
#[doc(hidden)]
pub mod mutant {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    static ACTIVE: AtomicU32 = AtomicU32::new(0);
    extern "C" fn read() {
        let word = std::env::var("CLEW_MUTANT").ok().and_then(|word| word.parse().ok());
        ACTIVE.store(word.unwrap_or(0), Relaxed);
    }
    #[used]
    #[unsafe(link_section = ".init_array")]
    static READ: extern "C" fn() = read;
    #[inline(always)]
    pub fn active() -> u32 {
        ACTIVE.load(Relaxed)
    }
}
"""


def environment(**besides):
    """What is drawn at random in tests is the same each time, and is not made smaller."""
    fixed = {
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_TARGET_DIR": os.path.join(STATE, "build"),
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
        "PROPTEST_MAX_SHRINK_ITERS": "0",
        "PROPTEST_RNG_SEED": "1",
    }
    return {**os.environ, **fixed, **besides}


def write(path, content):
    """Writes a file only where it changes, so that nothing is built for nothing."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            if file.read() == content:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def last_commit():
    """Its files, by name."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        members = [member for member in files.getmembers() if member.isfile()]
        return {member.name: files.extractfile(member).read() for member in members}


def make_copy(tree, files):
    """Makes `tree` hold these files, also where a run was stopped in the middle of its work."""
    for directory, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.relpath(path, tree) not in files:
                os.remove(path)
    for name, content in files.items():
        write(os.path.join(tree, name), content)


def draw(seed):
    """All mutants in the order in which this seed draws them. Lines and columns have no part in it,
    so that a change of a file moves no other mutant."""
    command = ["cargo", "mutants", "--list", "--json"]
    for pattern in FILES:
        command += ["--file", pattern]
    found = subprocess.run(command, cwd=PLAIN, check=True, capture_output=True, text=True)
    mutants = json.loads(found.stdout)
    seen = {}
    for number, mutant in enumerate(mutants, 1):
        what = mutant["name"].split(": ", 1)[1]
        key = f"{mutant['file']}: {what}"
        seen[key] = seen.get(key, 0) + 1
        mutant["key"], mutant["number"] = f"{key} #{seen[key]}", number
    return sorted(
        mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant['key']}".encode()).digest()
    )


class Text:
    """A source file, and where its lines begin."""

    def __init__(self, content):
        self.text = content.decode()
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def at(self, place):
        return self.starts[place["line"] - 1] + place["column"] - 1

    def span(self, span):
        return self.at(span["start"]), self.at(span["end"])

    def body(self, mutant):
        """Where the body of the mutant's function is, braces and all; None if it cannot be woven."""
        if not mutant.get("function"):
            return None
        start, end = self.span(mutant["function"]["span"])
        depth, at = 0, start
        while at < end and not (self.text[at] == "{" and depth == 0):
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(self.text[at], 0)
            at += 1
        signature = self.text[start:at]
        inside = self.span(mutant["span"])
        if re.search(r"\bconst fn\b|-> *impl\b", signature) or inside[0] < at or at == end:
            return None
        return at, end


def weave(files, mutants):
    """A copy in which each function is all of its mutants; what lines of it are whose."""
    woven, lines = dict(files), {}
    by_file = {}
    for mutant in mutants:
        by_file.setdefault(mutant["file"], []).append(mutant)
    for name, of_file in by_file.items():
        text = Text(files[name])
        by_body = {}
        for mutant in of_file:
            by_body.setdefault(text.body(mutant), []).append(mutant)
        out, done, line = [], 0, 1

        def add(piece):
            nonlocal line
            out.append(piece)
            line += piece.count("\n")

        for (start, end), variants in sorted(by_body.items()):
            add(text.text[done:start] + "{ match crate::mutant::active() {\n")
            for mutant in variants:
                begin, stop = text.span(mutant["span"])
                first = line
                add(f"{mutant['number']} => ")
                add(text.text[start:begin] + mutant["replacement"] + text.text[stop:end] + "\n")
                lines.setdefault(name, []).append((first, line, mutant))
            add("_ => " + text.text[start:end] + "\n} }")
            done = end
        add(text.text[done:])
        woven[name] = "".join(out).encode()
    for package in PACKAGES:
        name = f"crates/{package.removeprefix('clew-')}/src/lib.rs"
        woven[name] = woven[name].replace(b"#![forbid(unsafe_code)]\n", b"") + ACTIVE.encode()
    return woven, lines


def build(files, mutants):
    """Weaves and builds, without those that do not compile: (test programs by package, these)."""
    refused = []
    while True:
        woven, lines = weave(files, [m for m in mutants if m not in refused])
        make_copy(WOVEN, woven)
        programs, culprits, said = {name: [] for name in PACKAGES}, [], []
        for package in PACKAGES:
            for command in (["check", "--lib"], ["test", "--no-run", "--lib", "--tests"]):
                done = subprocess.run(
                    ["cargo", command[0], "-p", package, *command[1:], "--message-format", "json"],
                    cwd=WOVEN, env=environment(), capture_output=True, text=True,
                )
                for message in map(json.loads, done.stdout.splitlines()):
                    if message.get("executable") and message["profile"]["test"]:
                        programs[package].append(message["executable"])
                    inner = message.get("message") or {}
                    if message["reason"] != "compiler-message" or inner.get("level") != "error":
                        continue
                    said.append(inner.get("rendered") or "")
                    places = [span for span in inner["spans"] if span["is_primary"]]
                    for span in places:
                        for first, last, mutant in lines.get(span["file_name"], []):
                            if first <= span["line_start"] <= last and mutant not in culprits:
                                culprits.append(mutant)
                if done.returncode != 0:
                    break
            if done.returncode != 0:
                break
        if done.returncode == 0:
            return programs, refused
        if not culprits:
            sys.exit("mutants: the copy does not compile:\n" + "".join(said) + done.stderr)
        refused += culprits


def run_program(program, package, arguments, mutant, limit):
    """One test program with one mutant, until its first failure; the verdict."""
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            [program, *arguments],
            cwd=os.path.join(WOVEN, "crates", package.removeprefix("clew-")),
            env=environment(CLEW_MUTANT=str(mutant), RUST_BACKTRACE="0"),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
            text=True, start_new_session=True,
        )
        late = threading.Event()

        def end():
            late.set()
            os.killpg(child.pid, signal.SIGKILL)

        timer = threading.Timer(max(limit, 1), end)
        timer.start()
        failed = False
        for line in child.stdout:
            if line.rstrip().endswith("... FAILED"):
                failed = True
                break
        timer.cancel()
        if failed:
            os.killpg(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()
        if failed:
            return CAUGHT
        if late.is_set():
            return TIMEOUT
        return MISSED if child.returncode == 0 else CAUGHT


def run_woven(mutant, programs, package):
    """Runs the tests of a package with one mutant (0: with none); the verdict."""
    until = time.monotonic() + TEST_SECONDS[package]
    longest = LONGEST.get(package, [])
    skipped = [word for name in longest for word in ("--skip", name)]
    rounds = [skipped] + ([longest] if longest else [])
    for arguments in rounds:
        for program in programs[package]:
            verdict = run_program(
                program, package, arguments, mutant, until - time.monotonic()
            )
            if verdict != MISSED:
                return verdict
    return MISSED


def run_alone(mutant):
    """Has cargo-mutants build and test one mutant; the verdict."""
    out = os.path.join(STATE, "out")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    command = ["cargo", "mutants", "--in-place", "--baseline", "skip", "--colors", "never"]
    command += ["--timeout", str(TEST_SECONDS[mutant["package"]]), "--build-timeout", "900"]
    command += ["--output", out, "--file", mutant["file"]]
    command += ["--re", "^" + re.escape(mutant["name"]) + "$", "--", "--lib", "--tests"]
    done = subprocess.run(command, cwd=PLAIN, env=environment(), capture_output=True, text=True)
    for verdict in (CAUGHT, MISSED, TIMEOUT, UNVIABLE):
        path = os.path.join(out, "mutants.out", f"{verdict}.txt")
        if os.path.exists(path) and os.path.getsize(path) > 0:
            return verdict
    sys.exit(f"cargo mutants came to no verdict:\n{done.stdout}{done.stderr}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--viable", type=int, default=100, help="mutants that compile (100)")
    parser.add_argument("--again", choices=["missed", "all"], help="run these again in any case")
    options = parser.parse_args()
    if subprocess.run(["cargo", "mutants", "--version"], capture_output=True).returncode != 0:
        sys.exit("mutants: cargo-mutants is missing: cargo install cargo-mutants --locked")
    os.nice(5)
    os.makedirs(STATE, exist_ok=True)
    files = last_commit()
    make_copy(PLAIN, files)
    commit = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(commit, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    digests = {}
    for package in PACKAGES:
        of_crate = f"crates/{package.removeprefix('clew-')}/"
        parts = [content for name, content in sorted(files.items()) if name.startswith(of_crate)]
        digests[package] = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    known, path = {}, os.path.join(STATE, "verdicts.jsonl")
    if os.path.exists(path):
        with open(path) as lines:
            known = {entry["key"]: entry for entry in map(json.loads, lines)}
    began = time.monotonic()

    def verdict_of(mutant):
        entry = known.get(mutant["key"])
        if entry is None or entry["file"] != mutant["digest"]:
            return None
        if entry["verdict"] == MISSED and entry["crate"] != digests[mutant["package"]]:
            return None
        return entry["verdict"]

    def note(mutant, verdict):
        entry = {"key": mutant["key"], "verdict": verdict, "file": mutant["digest"]}
        known[mutant["key"]] = {**entry, "crate": digests[mutant["package"]]}
        with open(path, "a") as log:
            log.write(json.dumps(known[mutant["key"]]) + "\n")
        seconds = int(time.monotonic() - began)
        print(f"{seconds:5d} s  {verdict:8}  {mutant['name']}", flush=True)

    drawn = draw(options.seed)
    for mutant in drawn:
        mutant["digest"] = hashlib.sha256(files[mutant["file"]]).hexdigest()[:16]
    if options.again:
        forgotten = [MISSED] if options.again == "missed" else [CAUGHT, MISSED, TIMEOUT, UNVIABLE]
        known = {key: entry for key, entry in known.items() if entry["verdict"] not in forgotten}
    sample = []
    while len(sample) < len(drawn):
        # As many as are still wanted; some of them do not compile.
        viable = sum(verdict_of(mutant) != UNVIABLE for mutant in sample)
        if viable >= options.viable:
            break
        sample = drawn[: len(sample) + options.viable - viable]
        todo = [mutant for mutant in sample if verdict_of(mutant) is None]
        woven = [m for m in todo if Text(files[m["file"]]).body(m) is not None]
        if woven:
            programs, refused = build(files, woven)
            for mutant in refused:
                note(mutant, UNVIABLE)
            for package in {m["package"] for m in woven if m not in refused}:
                if run_woven(0, programs, package) != MISSED:
                    sys.exit(f"mutants: the tests of {package} fail without any mutant")
            for mutant in woven:
                if mutant not in refused:
                    note(mutant, run_woven(mutant["number"], programs, mutant["package"]))
        for mutant in todo:
            if mutant not in woven:
                note(mutant, run_alone(mutant))
    verdicts = (CAUGHT, MISSED, TIMEOUT, UNVIABLE)
    found = {word: [m for m in sample if verdict_of(m) == word] for word in verdicts}
    if found[MISSED]:
        print("\nmissed:")
        for mutant in found[MISSED]:
            print(f"  {mutant['name']}")
    noticed = len(found[CAUGHT]) + len(found[TIMEOUT])
    viable = noticed + len(found[MISSED])
    print(
        f"\nseed {options.seed}, commit {commit.strip()}: {len(found[CAUGHT])} caught, "
        f"{len(found[TIMEOUT])} timed out, {len(found[MISSED])} missed, "
        f"{len(found[UNVIABLE])} not viable; score {noticed} of {viable} "
        f"({100 * noticed / max(viable, 1):.0f} %), drawn from {len(drawn)}"
    )


if __name__ == "__main__":
    main()
