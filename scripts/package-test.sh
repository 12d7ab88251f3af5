#!/bin/sh
# The Debian package in a clean root: installed, a first managed program, upgraded under it, removed, purged.
# Everything runs in mount and pid namespaces of its own, and ends with them. To be run as root, after
# `make deb`; the root's packages come from the mirror that apt is configured with.
set -eu

cd "$(dirname "$0")/.."
work=$PWD/target/package-test
[ "$(id -u)" = 0 ] || { echo "package-test: root is needed: a root of its own, namespaces" >&2; exit 3; }
missing=
for program in mmdebstrap unshare dpkg-deb cargo-deb; do
    command -v "$program" > /dev/null || missing="$missing $program"
done
[ -z "$missing" ] || { echo "package-test: missing:$missing" >&2; exit 3; }
deb=$(ls -t target/debian/clew_*.deb 2> /dev/null | head -n 1)
[ -n "$deb" ] || { echo "package-test: no package in target/debian: run 'make deb'" >&2; exit 3; }

rm -rf "$work/tree"
mkdir -p "$work"
cp "$deb" "$work/first.deb"
# The same files, as a version that comes later. (What was in target/debian goes with it.)
cargo deb --quiet --fast --package clew --no-build --deb-version 99.0-1 --output "$work/later.deb" > /dev/null
cp "$work/first.deb" "$deb"

if [ ! -e "$work/base.tar" ]; then
    sources=
    for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
        if [ -s "$file" ]; then sources=$file; break; fi
    done
    [ -n "$sources" ] || { echo "package-test: apt is configured with no Debian mirror" >&2; exit 3; }
    suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
    echo "package-test: making a clean root of $suite" >&2
    mmdebstrap --quiet --variant=essential "$suite" "$work/base.part" "$sources" --format=tar ||
        { echo "package-test: mmdebstrap could not make a root from $sources" >&2; exit 3; }
    mv "$work/base.part" "$work/base.tar"
fi
mkdir "$work/tree"
tar -C "$work/tree" --exclude='./dev/*' -xf "$work/base.tar"
mv "$work/first.deb" "$work/later.deb" "$work/tree"
cp scripts/package-steps.sh "$work/tree/steps"

# The end of the first process of the pid namespace is the end of all in it.
unshare --mount --pid --fork --kill-child sh -eu -c '
    root=$1
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=755 run "$root/run"
    mount -t tmpfs tmp "$root/tmp"
    exec chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 HOME=/root sh /steps
' sh "$work/tree"
rm -rf "$work/tree"
