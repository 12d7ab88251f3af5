#!/usr/bin/env python3
"""Whether each promise of docs/guarantees.md has a test that notices when it is broken.

    scripts/promises.py [--check] [--unrun] [--only NAME]... [--again] [--unchecked]

scripts/promises.toml has a defect (a mutant) for each tag `m:name` of that page: a text of a file and what
stands there instead, and the one test that must fail then. Each is built and run in a worktree of the
last commit, target/promises/tree; every test has to pass there without any mutant first. Verdicts are
kept in target/promises/verdicts.json, and count until the entry, its file or its test's file change: a
run that was stopped goes on where it was. The worktree and what is built there stay, so that a mutant
costs what depends on the file that it changes. What is cheap to build comes first.

scripts/promises-caught.csv says when each mutant was last caught, and with which commit (none: of those
of that day). It counts until the mutant or its test is another; a defect that comes into the test or
elsewhere later is not seen by it. --unrun runs those that are not in it as they are.

--check builds nothing: it compares page, entries, files and tests as they are now.
"""

import argparse
import csv
import ctypes
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENTRIES = ROOT / "scripts/promises.toml"
CAUGHT_WHEN = ROOT / "scripts/promises-caught.csv"
PAGE = ROOT / "docs/guarantees.md"
STATE = ROOT / "target/promises"
TREE = STATE / "tree"
VERDICTS = STATE / "verdicts.json"
LOG = STATE / "log"
BUILD_SECONDS = 1500
# Built four to eight times as fast, which counts more than what their tests take. What each byte goes through
# is built as always.
UNOPTIMISED = "agent bench clew fixture govern lab live mount remote report session"
# Several times what most tests take on a busy machine.
TEST_SECONDS = 240
# How long tests with real programs wait for what comes at once without a mutant, and with one never.
PATIENCE = ROOT / "crates/fixture/src/lib.rs"
PATIENT, HERE = "LONG: Duration = Duration::from_secs(120)", "LONG: Duration = Duration::from_secs(40)"
CAUGHT, HUNG, MISSED, UNVIABLE, SKIPPED = "caught", "hung", "missed", "unviable", "skipped"
# Of a test without any mutant: it passes; and of a mutant whose test does not.
PASSED, BROKEN = "passed", "no test"
# Whoever ends has its orphans, daemons and agents, end with it.
PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Entry:
    """A mutant and the test that has to notice it."""

    name: str
    file: str
    find: str
    put: str
    # Package, target ("lib", or a file of tests), test.
    run: str
    seconds: int = TEST_SECONDS
    # The test would not end, and that is how it is noticed.
    hangs: bool = False
    env: dict[str, str] = field(default_factory=dict)
    # Built as always, however long that takes: its test says how large something of ours is.
    as_always: bool = False

    @property
    def package(self) -> str:
        return self.run.split()[0]

    @property
    def target(self) -> str:
        return self.run.split()[1]

    @property
    def test(self) -> str:
        return self.run.split()[2]

    def cargo(self) -> list[str]:
        target = ["--lib"] if self.target == "lib" else ["--test", self.target]
        quickly: list[str] = []
        for name in () if self.as_always else UNOPTIMISED.split():
            crate = name if name == "clew" else f"clew-{name}"
            quickly += ["--config", f"profile.dev.package.{crate}.opt-level=0"]
        return ["cargo", "test", "--quiet", *quickly, "-p", self.package, *target]

    def tests_files(self, root: Path) -> list[Path]:
        """Where the test can be."""
        crate = root / directory(self.package).relative_to(ROOT)
        if self.target == "lib":
            return sorted((crate / "src").rglob("*.rs"))
        single = crate / "tests" / f"{self.target}.rs"
        return [single] if single.exists() else sorted((crate / "tests" / self.target).rglob("*.rs"))

    def modules(self, root: Path) -> Iterator[str]:
        """What the test's name can begin with: where a test of its last name is."""
        for path in self.tests_files(root):
            if self.function().search(path.read_text()):
                inside = path.parts[path.parts.index("src") + 1 :] if self.target == "lib" else ()
                yield "::".join(inside).removesuffix(".rs").removesuffix("::mod").removesuffix("lib")

    def mutant(self) -> str:
        """What is broken and who has to notice, wherever that lies."""
        return hashlib.sha256(repr((self.find, self.put, self.test.split("::")[-1])).encode()).hexdigest()[:8]

    def function(self) -> re.Pattern[str]:
        return re.compile(rf"\bfn {self.test.split('::')[-1]}\(")

    def key(self, root: Path) -> str:
        """What a verdict is about."""
        known = hashlib.sha256(repr(self).encode())
        files = [path for path in self.tests_files(root) if self.function().search(path.read_text())]
        for path in [root / self.file, *files]:
            known.update(path.read_bytes())
        return known.hexdigest()[:16]


def entries() -> list[Entry]:
    with ENTRIES.open("rb") as file:
        return [Entry(**entry) for entry in tomllib.load(file)["promise"]]


def promises() -> Iterator[tuple[int, str]]:
    """Rows of tables and items of lists that promise something, each with the number of its line."""
    at, text, is_header = 0, "", True
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("## What is not promised"):
            break
        is_row = line.startswith("|")
        begins = is_row or line.lstrip().startswith("- ")
        if begins or not line.startswith("  "):
            if text:
                yield at, text
            text = ""
        if begins and not (is_row and (is_header or set(line) <= set("|- "))):
            at, text = number, line.strip()
        elif text:
            text += " " + line.strip()
        is_header = not is_row
    if text:
        yield at, text


def check(all_entries: list[Entry]) -> list[str]:
    """What does not fit."""
    wrong: list[str] = []
    names = [entry.name for entry in all_entries]
    wrong += [f"two entries are named {name}" for name in {n for n in names if names.count(n) > 1}]
    by_name = {entry.name: entry for entry in all_entries}
    promised: set[str] = set()
    for line, text in promises():
        here = re.findall(r"`m:([a-z0-9-]+)`", text)
        promised.update(here)
        where = f"{PAGE.relative_to(ROOT)}:{line}"
        if not here:
            wrong.append(f"{where}: no mutant is named: {text[:60]}")
        for name in here:
            entry = by_name.get(name)
            if entry is None:
                wrong.append(f"{where}: there is no entry {name}")
                continue
            short = entry.test.split("::")[-1]
            parts = entry.test.split("::")[:-1]
            whole = "::".join(parts) if entry.target == "lib" else "::".join([*parts[-1:]] or [entry.target])
            if short not in text and f"`{whole}::*`" not in text and f"`{whole}`" not in text:
                wrong.append(f"{where}: {name} is run by {entry.test}, which is not named here")
    wrong += [f"{PAGE.name} does not name {name}" for name in names if name not in promised]
    for entry in all_entries:
        path = ROOT / entry.file
        found = path.read_text().count(entry.find) if path.is_file() else 0
        if found != 1:
            wrong.append(f"{entry.name}: the text to be replaced is {found} times in {entry.file}")
        if entry.find == entry.put:
            wrong.append(f"{entry.name}: nothing is changed")
        if not any(entry.test.startswith(module) for module in entry.modules(ROOT)):
            wrong.append(f"{entry.name}: there is no test {entry.run}")
    if PATIENT not in PATIENCE.read_text():
        wrong.append(f"{PATIENCE.relative_to(ROOT)}: there is no {PATIENT}")
    everything = "\n".join(path.read_text() for path in ROOT.glob("crates/*/**/*.rs"))
    for name in sorted(set(re.findall(r"`([a-z_0-9]+(?:::[a-z_0-9]+)+)`", PAGE.read_text()))):
        last = name.split("::")[-1]
        if last != "tests" and not re.search(rf"\b(fn|mod) {last}\b", everything):
            wrong.append(f"{PAGE.name}: there is no test {name}")
    for name in sorted(set(re.findall(r"`([a-z_0-9]+)::\*`", PAGE.read_text()))):
        if not any(ROOT.glob(f"crates/*/tests/**/{name}.rs")):
            wrong.append(f"{PAGE.name}: there are no tests {name}")
    return wrong


def directory(package: str) -> Path:
    return ROOT / "crates" / {"clew": "cli"}.get(package, package.removeprefix("clew-"))


def needs(package: str) -> set[str]:
    """The crates of ours that have to be built before this one's tests."""
    with (directory(package) / "Cargo.toml").open("rb") as file:
        manifest = tomllib.load(file)
    named = {**manifest.get("dependencies", {}), **manifest.get("dev-dependencies", {})}
    ours = {name for name in named if name.startswith("clew-")}
    return ours.union(*(needs(name) for name in ours))


def cheap_first(all_entries: list[Entry]) -> list[Entry]:
    """Those that need few crates first; beside each other what needs the same ones built anew."""
    many = {package: len(needs(package)) for package in {entry.package for entry in all_entries}}

    def key(entry: Entry) -> tuple[bool, int, str, str, str]:
        crate = entry.file.split("/")[1]
        return entry.as_always, many[entry.package], entry.package, crate, entry.target

    return sorted(all_entries, key=key)


class CaughtWhen:
    """When each mutant was last caught."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, str]] = {}
        if CAUGHT_WHEN.exists():
            with CAUGHT_WHEN.open(newline="") as file:
                self.rows = {row["name"]: row for row in csv.DictReader(file)}

    def holds(self, entry: Entry) -> bool:
        return self.rows.get(entry.name, {}).get("mutant") == entry.mutant()

    def add(self, entry: Entry, commit: str) -> None:
        today = time.strftime("%Y-%m-%d", time.gmtime())
        self.rows[entry.name] = {
            "name": entry.name,
            "commit": commit[:7],
            "date": today,
            "mutant": entry.mutant(),
        }

    def save(self, all_entries: list[Entry]) -> None:
        with CAUGHT_WHEN.open("w", newline="") as file:
            table = csv.DictWriter(file, ["name", "commit", "date", "mutant"], lineterminator="\n")
            table.writeheader()
            table.writerows(self.rows[entry.name] for entry in all_entries if entry.name in self.rows)

    def summary(self, all_entries: list[Entry]) -> str:
        never = [entry.name for entry in all_entries if entry.name not in self.rows]
        changed = [entry.name for entry in all_entries if entry.name in self.rows and not self.holds(entry)]
        caught = len(all_entries) - len(never) - len(changed)
        said = f"{caught} of {len(all_entries)} mutants were caught as they are"
        for what, names in [("never caught", never), ("changed since they were caught", changed)]:
            said += f"\n{len(names)} {what}: {', '.join(names)}" if names else ""
        return said


def children_of_ours() -> list[int]:
    """All that this process has started, and what was left to it."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = [os.getpid()]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def run(command: list[str], seconds: int, extra: dict[str, str]) -> int | None:
    """Runs it in the worktree, what it says goes to the log; its exit code, `None` if it did not end.
    Nothing of it is left afterwards."""
    place = Path(tempfile.mkdtemp(prefix="clew-promises-"))
    place.chmod(0o755)
    fixed = {
        "TMPDIR": str(place),
        "CARGO_TARGET_DIR": str(STATE / "build"),
        "PROPTEST_DISABLE_FAILURE_PERSISTENCE": "1",
        "PROPTEST_RNG_SEED": "1",
        **extra,
    }
    with LOG.open("w") as log:
        process = subprocess.Popen(
            command, cwd=TREE, env={**os.environ, **fixed}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        until, code = time.monotonic() + seconds, None
        while code is None and time.monotonic() < until:
            # Orphans are reaped at once, as elsewhere: tests look whether they are gone.
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == process.pid:
                process.returncode = code = os.waitstatus_to_exitcode(status)
            elif pid == 0:
                time.sleep(0.01)
        while left := children_of_ours():
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                pass
            time.sleep(0.01)
        if code is None:
            process.returncode = -signal.SIGKILL
    shutil.rmtree(place, ignore_errors=True)
    return code


def one_test(entry: Entry) -> str:
    """Builds and runs the test of an entry in the worktree as it is."""
    if run([*entry.cargo(), "--no-run"], BUILD_SECONDS, {}) != 0:
        return UNVIABLE
    skips = STATE / "skips"
    skips.write_text("")
    command = [*entry.cargo(), "--", "--exact", entry.test]
    code = run(command, entry.seconds, {**entry.env, "CLEW_SKIP_LOG": str(skips)})
    said = LOG.read_text(errors="replace")
    if code is None:
        return HUNG
    if skips.read_text():
        return SKIPPED
    if "running 1 test" not in said:
        return UNVIABLE
    if code != 0:
        return CAUGHT
    return MISSED


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def sync() -> str:
    """Makes the worktree what the last commit is, also where a run was stopped in a mutated file; that
    commit."""
    STATE.mkdir(parents=True, exist_ok=True)
    head = git("rev-parse", "HEAD")
    if not (TREE / ".git").exists():
        git("worktree", "prune")
        git("worktree", "add", "--force", "--detach", str(TREE), head)
    git("-C", str(TREE), "checkout", "--quiet", "--force", "--detach", head)
    patience = TREE / PATIENCE.relative_to(ROOT)
    patience.write_text(patience.read_text().replace(PATIENT, HERE))
    return head


def prove(entry: Entry) -> str:
    path = TREE / entry.file
    text = path.read_text()
    path.write_text(text.replace(entry.find, entry.put))
    try:
        verdict = one_test(entry)
    finally:
        path.write_text(text)
    return CAUGHT if verdict == HUNG and entry.hangs else verdict


class Known:
    """What is known from runs before."""

    def __init__(self) -> None:
        known = json.loads(VERDICTS.read_text()) if VERDICTS.exists() else {}
        self.verdicts: dict[str, dict[str, str]] = known.get("mutants", {})
        # The commit with which each test has passed without any mutant.
        self.passed: dict[str, str] = known.get("passed", {})

    def save(self) -> None:
        known = {"mutants": self.verdicts, "passed": self.passed}
        VERDICTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="compare page, entries and tests only")
    parser.add_argument("--only", metavar="NAME", action="append", help="this one (again and again)")
    parser.add_argument("--unrun", action="store_true", help="those that were not caught as they are")
    parser.add_argument("--again", action="store_true", help="also what is known already")
    parser.add_argument(
        "--unchecked", action="store_true", help="do not run each test without any mutant first"
    )
    options = parser.parse_args()
    all_entries = entries()
    wrong = check(all_entries)
    for what in wrong:
        print(f"promises: {what}", file=sys.stderr)
    caught_when = CaughtWhen()
    if options.check or wrong:
        print(caught_when.summary(all_entries))
        return 1 if wrong else 0
    os.nice(5)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    head, known = sync(), Known()
    wanted = [entry for entry in all_entries if not options.only or entry.name in options.only]
    if options.unrun:
        wanted = [entry for entry in wanted if not caught_when.holds(entry)]
    wanted = cheap_first(wanted)
    keys = {entry.name: entry.key(TREE) for entry in wanted}

    def is_known(entry: Entry) -> bool:
        before = known.verdicts.get(entry.name, {})
        return before.get("key") == keys[entry.name] and before["verdict"] == CAUGHT

    is_all = options.again or options.only or options.unrun
    to_do = [entry for entry in wanted if is_all or not is_known(entry)]

    def say(began: float, verdict: str, what: str) -> None:
        known.save()
        print(f"{time.monotonic() - began:5.0f} s  {verdict:9} {what}", flush=True)
        if verdict != PASSED:
            (STATE / f"log.{what.split()[-1]}").write_bytes(LOG.read_bytes())

    broken = set[str]()
    for entry in {entry.run: entry for entry in to_do}.values():
        if options.unchecked or known.passed.get(entry.run) == head:
            continue
        began, verdict = time.monotonic(), one_test(entry)
        verdict = PASSED if verdict == MISSED else verdict
        if verdict == PASSED:
            known.passed[entry.run] = head
        else:
            broken.add(entry.run)
        say(began, verdict, entry.run)
    for entry in to_do:
        began = time.monotonic()
        verdict = BROKEN if entry.run in broken else prove(entry)
        known.verdicts[entry.name] = {"key": keys[entry.name], "verdict": verdict}
        if verdict == CAUGHT:
            caught_when.add(entry, head)
            caught_when.save(all_entries)
        say(began, verdict, entry.name)
    print()
    for entry in wanted:
        print(f"{known.verdicts[entry.name]['verdict']:9} {entry.name:26} {entry.target}::{entry.test}")
    count = sum(known.verdicts[entry.name]["verdict"] == CAUGHT for entry in wanted)
    print(f"\n{count} of {len(wanted)} mutants are caught\n{caught_when.summary(all_entries)}")
    return 0 if count == len(wanted) else 1


if __name__ == "__main__":
    sys.exit(main())
