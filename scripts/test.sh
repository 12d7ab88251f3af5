#!/bin/sh
# Format, lints, and every test. Ends with one line that counts what passed, failed and was skipped.
set -eu
cd "$(dirname "$0")/.."

CLEW_SKIP_LOG=$(mktemp)
log=$(mktemp)
export CLEW_SKIP_LOG
trap 'rm -f "$CLEW_SKIP_LOG" "$log"' EXIT

cargo fmt --all --check
cargo clippy --workspace --all-targets --quiet -- -D warnings

status=0
{ cargo test --workspace --no-fail-fast 2>&1 || echo "cargo test exits $?" ; } | tee "$log"
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
