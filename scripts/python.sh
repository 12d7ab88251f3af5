#!/bin/sh
# The Python module, tested in a virtual environment under target/ beside the command: as maturin builds it, or as
# cargo has built it already. Ends with a line in the form of cargo's tests, which scripts/test.sh counts.
# Usage: scripts/python.sh CLEW [MODULE]
set -eu

clew=$(realpath "$1")
built=${2:+$(realpath "$2")}
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
if [ -n "$built" ]; then
    # What maturin would put into a wheel.
    rm -rf "$venv/wheel"
    mkdir "$venv/wheel"
    cp -R python/clew "$venv/wheel"
    cp "$built" "$venv/wheel/clew/_clew.abi3.so"
    export PYTHONPATH="$venv/wheel"
else
    VIRTUAL_ENV=$venv PATH=$venv/bin:$PATH maturin develop --quiet
fi
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
