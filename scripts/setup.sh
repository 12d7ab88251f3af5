#!/bin/sh
# Makes sure that the named programs are there: installs their Debian packages when run as root,
# says what is missing otherwise. The Rust toolchain is not a Debian matter and is only checked.
set -eu

package_of() {
    case $1 in
        cc) echo "gcc libc6-dev" ;;
        node) echo nodejs ;;
        redis-benchmark) echo redis-tools ;;
        unshare) echo util-linux ;;
        java) echo default-jdk-headless ;;
        *) echo "$1" ;;
    esac
}

command -v cargo >/dev/null || {
    echo "setup: cargo is missing: install Rust 1.95 or later (https://rustup.rs)" >&2
    exit 3
}

missing=
for program in "$@"; do
    command -v "$program" >/dev/null || missing="$missing $(package_of "$program")"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing$missing" >&2
    # A service of a package's own is not wanted here: the tests start what they need.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >/dev/null
    # shellcheck disable=SC2086
    apt-get install -q -y --no-install-recommends $missing >/dev/null
else
    echo "setup: missing packages:$missing" >&2
    echo "setup: run 'apt-get install$missing' as root; what needs them is skipped" >&2
fi
