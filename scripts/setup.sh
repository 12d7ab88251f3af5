#!/bin/sh
# Makes sure that the named programs are there: installs their Debian packages when run as root,
# says what is missing otherwise. The Rust toolchain is not a Debian matter and is only checked.
set -eu

# Programs by the name of their command; `cpython-tests` is no command, and others may be off the path.
is_there() {
    case $1 in
        cpython-tests) /usr/bin/python3 -c 'import test.test_dict, test.test_asyncio' 2>/dev/null ;;
        python3-venv) /usr/bin/python3 -c 'import ensurepip, venv' 2>/dev/null ;;
        soffice) command -v soffice >/dev/null && /usr/bin/python3 -c 'import uno' 2>/dev/null ;;
        postgres) command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 ;;
        liblzo2) /sbin/ldconfig -p | grep -q 'liblzo2\.so\.2' ;; # A library, that a benchmark looks for.
        *) command -v "$1" >/dev/null ;;
    esac
}

package_of() {
    case $1 in
        cc) echo "gcc libc6-dev" ;;
        node) echo nodejs ;;
        redis-benchmark) echo redis-tools ;;
        unshare) echo util-linux ;;
        ip) echo iproute2 ;;
        perf) echo linux-perf ;;
        setpriv) echo util-linux ;;
        setcap) echo libcap2-bin ;;
        soffice) echo "libreoffice-calc-nogui libreoffice-writer-nogui python3-uno" ;;
        chromium) echo "chromium chromium-sandbox" ;;
        postgres) echo postgresql ;;
        cpython-tests) # Its name has the version in it.
            echo "python3 $(apt-cache search --names-only '^libpython3\.[0-9]+-testsuite$' 2>/dev/null |
                cut -d ' ' -f 1 | tail -n 1)" ;;
        liblzo2) echo liblzo2-2 ;;
        java) echo default-jdk-headless ;;
        dbus-send) echo dbus-bin ;;
        musl-gcc) echo musl-tools ;;
        Xvfb) echo xvfb ;;
        i3) echo i3-wm ;;
        dpkg-shlibdeps) echo dpkg-dev ;;
        *) echo "$1" ;;
    esac
}

command -v cargo >/dev/null || {
    echo "setup: cargo is missing: install Rust 1.95 or later (https://rustup.rs)" >&2
    exit 3
}

missing=
for program in "$@"; do
    is_there "$program" && continue
    case $program in
        cargo-*) # No Debian matter either.
            if [ "$(id -u)" = 0 ]; then
                echo "setup: building $program" >&2
                cargo install --quiet --locked "$program"
            else
                echo "setup: missing: $program; run 'cargo install --locked $program'" >&2
            fi ;;
        *) missing="$missing $program" ;;
    esac
done
[ -n "$missing" ] || exit 0
packages() { for program in $missing; do package_of "$program"; done | tr '\n' ' '; }

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "setup: installing what is needed for$missing" >&2
    # A service of a package's own is not wanted here: the tests start what they need.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' > "$policy"
        chmod +x "$policy"
        trap 'rm -f "$policy"' EXIT
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >/dev/null
    # shellcheck disable=SC2046
    apt-get install -q -y --no-install-recommends $(packages) >/dev/null
else
    echo "setup: missing:$missing" >&2
    echo "setup: run 'apt-get install $(packages)' as root; what needs them is skipped" >&2
fi
