#!/usr/bin/env python3
"""Takes the golden transcripts anew: what the policies were told, asked and answered in three short
runs of real programs, one a scheme. Only after a change of decisions that is meant.

    scripts/golden.py [SCHEME ...]

Needs target/release/clew (or CLEW), root, python3 and zstd. Writes crates/engine/tests/golden.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CLEW = os.environ.get("CLEW", str(ROOT / "target/release/clew"))
GOLDEN = ROOT / "crates/engine/tests/golden"
SCHEMES = ["zram", "ariadne", "clew"]
APPS = 4
RELAUNCHES = 24
BUDGET = "72MiB"

# Builds some megabytes of objects, then uses a part of them for each line that it reads: mostly the
# same part, as after a relaunch, and some that it has not used for long. Frees and builds some anew.
PROGRAM = """
import random, sys
seed = int(sys.argv[1])
choose = random.Random(seed)
rows = [[choose.random(), "row %d of %d" % (n, seed), list(range(n % 17))] for n in range(36000)]
print("ready", flush=True)
for line in sys.stdin:
    first = choose.randrange(len(rows) // 2)
    usual = range(seed * 997 % 9000, seed * 997 % 9000 + 9000)
    rare = range(first, first + 1500)
    total = sum(len(rows[n][1]) for part in (usual, rare) for n in part)
    gone = choose.randrange(len(rows) - 2000)
    rows[gone:gone + 2000] = [[n, "new %d" % n, []] for n in range(2000)]
    print(total, flush=True)
"""


class Daemon:
    """A daemon of a scheme, and what is asked of it."""

    def __init__(self, scheme: str, directory: Path):
        self.socket = directory / "clew.sock"
        self.transcript = directory / f"{scheme}.jsonl"
        self.process = subprocess.Popen(
            [CLEW, "--socket", self.socket, "daemon", "--scheme", scheme, "--budget", BUDGET,
             "--transcript", self.transcript],
            stderr=subprocess.DEVNULL,
        )
        while not self.socket.exists():
            if self.process.poll() is not None:
                sys.exit(f"the daemon has ended ({self.process.returncode})")
            time.sleep(0.05)

    def ask(self, verb: str, **words) -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(self.socket))
            client.sendall((json.dumps({"verb": verb, **words}) + "\n").encode())
            answer = json.loads(client.makefile().readline())
        if answer["result"] != "ok":
            sys.exit(f"{verb}: {answer['message']}")

    def start(self, number: int) -> subprocess.Popen:
        return subprocess.Popen(
            [CLEW, "--socket", self.socket, "run", "--app", f"app{number}", "--",
             "python3", "-c", PROGRAM, str(number)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )


def take(scheme: str, directory: Path) -> None:
    daemon = Daemon(scheme, directory)
    programs = [daemon.start(number) for number in range(APPS)]
    for program in programs:
        assert program.stdout.readline() == "ready\n", "the program has ended"
    for relaunch in range(RELAUNCHES):
        number = relaunch * 7 % APPS if relaunch % 5 else 0
        daemon.ask("fg", app=f"app{number}")
        began = time.monotonic_ns()
        programs[number].stdin.write("use\n")
        programs[number].stdin.flush()
        assert programs[number].stdout.readline().strip().isdigit(), "the program has ended"
        response_ns = time.monotonic_ns() - began
        daemon.ask("responded", app=f"app{number}", response_ns=response_ns)
        time.sleep(0.3)
        daemon.ask("bg", app=f"app{number}")
        if relaunch == RELAUNCHES // 2:
            daemon.ask("swap-out", app="app1")
        if relaunch == RELAUNCHES - 4:
            programs[2].stdin.close()
            programs[2].wait()
        time.sleep(0.3)
        if relaunch == RELAUNCHES - 4:
            programs[2] = daemon.start(2)
            assert programs[2].stdout.readline() == "ready\n", "the program has ended"
    for program in programs:
        program.stdin.close()
        program.wait()
    daemon.ask("stop")
    daemon.process.wait()
    GOLDEN.mkdir(exist_ok=True)
    golden = GOLDEN / f"{scheme}.jsonl.zst"
    subprocess.run(["zstd", "-q", "-19", "-f", daemon.transcript, "-o", golden], check=True)
    with open(daemon.transcript) as lines:
        count = sum(1 for _ in lines)
    print(f"{golden.relative_to(ROOT)}: {count} inputs, {golden.stat().st_size} bytes")


def main() -> None:
    for scheme in sys.argv[1:] or SCHEMES:
        with tempfile.TemporaryDirectory() as directory:
            take(scheme, Path(directory))


if __name__ == "__main__":
    main()
