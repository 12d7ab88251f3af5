#!/bin/sh
# The Python module: built by maturin into a virtual environment under target/, and tested there beside the command.
# Ends with a line in the form of cargo's tests, which scripts/test.sh counts.
# Usage: scripts/python.sh CLEW [OPTIONS OF MATURIN]
set -eu

clew=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
venv=$PWD/target/python
if [ ! -e "$venv/.complete" ]; then
    echo "python: fetching maturin, pytest, polars, dask into $venv" >&2
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check \
        'maturin>=1.8,<2' pytest polars dask || {
        why="python: pip could not install them: is there a package index?"
        echo "$why" >&2
        [ -n "${CLEW_SKIP_LOG:-}" ] || exit 3
        # As a test that is skipped: it counts as passed, and is taken off again.
        echo "$why" >> "$CLEW_SKIP_LOG"
        echo "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"
        exit 0
    }
    touch "$venv/.complete"
fi
cd crates/python
VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH maturin develop --quiet "$@"
said=$venv/pytest.log
status=0
CLEW=$clew "$venv/bin/python" -m pytest -q > "$said" 2>&1 || status=$?
cat "$said"
count() { tail -n 1 "$said" | grep -o "[0-9]* $1" | cut -d ' ' -f 1 || true; }
passed=$(count passed) failed=$(count failed) errors=$(count error)
failed=$((${failed:-0} + ${errors:-0}))
[ "$status" = 0 ] && word=ok || word=FAILED
echo "test result: $word. ${passed:-0} passed; $failed failed; 0 ignored; 0 measured; 0 filtered out"
exit "$status"
