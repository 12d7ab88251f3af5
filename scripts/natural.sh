#!/bin/sh
# Makes sure that the natural programs of the demo are there: what Debian has, and, in pinned versions,
# what npm, PyPI and crates have, which go into ${XDG_CACHE_HOME:-~/.cache}/clew/programs.
# What cannot be had is said, and is left out of the demo.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/clew/programs
mkdir -p "$cache"

# ask NAME LIST COMMAND...: runs COMMAND in the directory NAME, unless it has run with this list already.
ask() {
    name=$1 list=$2
    shift 2
    directory=$cache/$name
    cmp -s "$list" "$directory/installed" && return
    echo "natural: fetching what $name needs into $directory" >&2
    rm -rf "$directory"
    mkdir -p "$directory"
    cp "$list" "$directory/"
    if (cd "$directory" && "$@" >"$directory/log" 2>&1); then
        cp "$list" "$directory/installed"
    else
        echo "natural: $name will be missing: $(tail -n 1 "$directory/log")" >&2
    fi
}

npm_install() { npm install --ignore-scripts --no-audit --no-fund --no-package-lock; }
pip_install() { /usr/bin/python3 -m venv . && bin/pip install --no-input -r requirements.txt; }
sources() { cargo vendor --quiet sources; }

for program in "$@"; do
    case $program in
        tsserver)
            "$here/setup.sh" node npm
            ask tsserver "$here/natural/package.json" npm_install
            ;;
        jupyter)
            "$here/setup.sh" python3-venv
            ask python "$here/natural/requirements.txt" pip_install
            ;;
        pyright)
            "$here/setup.sh" node npm python3-venv
            ask python "$here/natural/requirements.txt" pip_install
            ask pyright "$here/natural/pyright/package.json" npm_install
            ;;
        clangd)
            "$here/setup.sh" clangd
            ask clangd "$here/natural/clangd/Cargo.toml" sources
            ;;
        chromium)
            "$here/setup.sh" chromium node npm
            ask tsserver "$here/natural/package.json" npm_install
            ask chromium "$here/natural/chromium/package.json" npm_install
            ;;
        libreoffice)
            "$here/setup.sh" soffice
            ;;
        compile)
            "$here/setup.sh" cc
            ask sources "$here/natural/Cargo.toml" sources
            ;;
        *)
            echo "natural: nothing is known of '$program'" >&2
            exit 2
            ;;
    esac
done
