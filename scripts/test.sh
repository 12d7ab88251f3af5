#!/bin/sh
# Format, circles of imports, lints, what docs/guarantees.md names, every test in two streams, those of the Python
# module, and half a minute of fuzzing for each target (CLEW_FUZZ_SECONDS). Ends with one line that counts what passed,
# failed and was skipped.
set -eu
cd "$(dirname "$0")/.."

CLEW_SKIP_LOG=$(mktemp)
log=$(mktemp)
logs=$(mktemp -d)
export CLEW_SKIP_LOG
trap 'rm -rf "$CLEW_SKIP_LOG" "$log" "$logs"' EXIT

cargo fmt --all --check
scripts/circles.py
scripts/promises.py --check
cargo clippy --workspace --all-targets --quiet -- -D warnings

status=0
cargo test --workspace --no-run --quiet
# The Python module, too, with the features that dependencies have in tests, so that they need not be built again.
cargo build --workspace --all-targets --quiet

# Tests by the first letters of their files, so that both streams take as long. What the second says
# is shown after the first.
tests() { cargo test --workspace --no-fail-fast "$@" 2>&1 || echo "cargo test exits $?"; }
tests --test '[r-z]*' >"$logs/tests" &
tests --lib --bins --test '[a-q]*' | tee "$log"
wait
tee -a "$log" <"$logs/tests"
rm "$logs/tests"

{ scripts/python.sh target/debug/clew target/debug/lib_clew.so 2>&1 || echo "cargo test exits $?"; } | tee -a "$log"

fuzz() {
    {
        CLEW_FUZZ_SECONDS=${CLEW_FUZZ_SECONDS:-30} cargo test --workspace --quiet "$@" -- --nocapture ||
            echo "cargo test exits $?"
    } >"$logs/$2" 2>&1
}
for target in control config trace; do fuzz --test "fuzz_$target" & done
# The rest of them has run already.
fuzz --test fuzz_agents the_daemon_outlives_hostile_agents &
fuzz --lib adopting_garbage &
wait
cat "$logs"/* | tee -a "$log"
grep -q '^cargo test exits' "$log" && status=1

count() { awk -v word="$1" '/^test result:/ { for (i = 2; i <= NF; i++) if ($i == word ";") n += $(i - 1) } END { print n + 0 }' "$log"; }
skipped=$(sort -u "$CLEW_SKIP_LOG" | wc -l)
if [ "$skipped" -gt 0 ]; then
    echo
    echo "skipped here:"
    sort -u "$CLEW_SKIP_LOG"
fi
echo
echo "$(($(count passed) - skipped)) passed, $(count failed) failed, $skipped skipped"
exit $status
