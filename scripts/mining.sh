#!/bin/sh
# The miner of association groups against an implementation in another language, from PyPI (40 KB, into target/mining).
set -eu
cd "$(dirname "$0")/.."
venv=$PWD/target/mining
if [ ! -e "$venv/.complete" ]; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'efficient-apriori==2.0.6' || {
        echo "mining: pip could not install efficient-apriori: is there a package index?" >&2
        exit 3
    }
    touch "$venv/.complete"
fi
CLEW_MINER="$venv/bin/python $PWD/scripts/mining.py" \
    cargo test -p clew-policy --lib -- --ignored --nocapture fp_tree::tests::an_implementation_in_another_language
