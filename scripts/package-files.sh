#!/bin/sh
# Makes what a package has besides the command, from the command itself: man pages, completions, units that
# name the place where packages put it.
# Usage: scripts/package-files.sh CLEW DIRECTORY
set -eu

clew=$1 out=$2
rm -rf "$out"
mkdir -p "$out/man" "$out/completions" "$out/systemd" "$out/doc"
"$clew" man "$out/man"
gzip -9n "$out"/man/*
"$clew" completions bash > "$out/completions/clew"
"$clew" completions zsh > "$out/completions/_clew"
"$clew" completions fish > "$out/completions/clew.fish"
cd "$(dirname "$0")/.."
for unit in contrib/systemd/*; do
    sed 's,/usr/local/bin/,/usr/bin/,' "$unit" > "$out/systemd/$(basename "$unit")"
done
gzip -9nc CHANGELOG.md > "$out/doc/changelog.gz"
