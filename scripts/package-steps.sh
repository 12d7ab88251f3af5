#!/bin/sh
# What scripts/package-test.sh does inside of the clean root, as its first process. Each step that fails ends
# it, and says which it was.
set -eu

step="nothing"
trap 'echo "package-test: FAILED at: $step" >&2' EXIT
begin() { step=$1; echo "package-test: $step" >&2; }
fail() { echo "package-test: $*" >&2; exit 1; }
# Waits up to 30 s until a command succeeds.
until_true() {
    for _ in $(seq 300); do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    fail "waited in vain for: $*"
}
answers() { clew ps > /dev/null 2>&1; }
daemon() { read -r pid _ < /run/clew/clew.pid && echo "$pid"; }
is_another() { now=$(daemon 2> /dev/null) && [ "$now" != "$1" ] && answers; }
is_gone() { ! [ -e "/proc/$1" ]; }
# A field of the program's app, from the status.
of_app() { clew ps --format json | tr -d ' ,"' | sed -n "s/^$1://p" | head -n 1; }
is_stored() { [ "$(of_app stored_pages)" -gt 8000 ]; }
# Asks the program for the sum of all it has, and checks it.
check_sum() {
    echo sum >&3
    read -r sum <&4
    [ "$sum" = "$first_sum" ] || fail "the program's memory has changed: $sum, it was $first_sum"
}

begin "install"
dpkg --install /first.deb
for file in /usr/bin/clew /etc/clew.toml /usr/lib/systemd/system/clew.service \
    /usr/lib/systemd/system/clew.socket /usr/share/man/man1/clew-run.1.gz \
    /usr/share/bash-completion/completions/clew /usr/share/zsh/vendor-completions/_clew \
    /usr/share/fish/vendor_completions.d/clew.fish; do
    [ -e "$file" ] || fail "$file is not there"
done
clew --version

begin "first managed program"
clew daemon --supervise --budget 256MiB &
until_true answers
mkfifo /tmp/in /tmp/out
cat > /tmp/program.pl <<'END'
$| = 1;
my @blocks = map { my $n = $_; pack("N*", map { $_ * $n } 1 .. 16384) x 4 } 1 .. 256;
while (<STDIN>) { my $sum = 0; $sum += unpack("%32N*", $_) for @blocks; print $sum % 4294967296, "\n"; }
END
clew run --app first -- perl /tmp/program.pl < /tmp/in > /tmp/out &
program=$!
exec 3> /tmp/in 4< /tmp/out
echo sum >&3
read -r first_sum <&4
until_true clew swap-out first
until_true is_stored
echo "package-test: $(of_app stored_pages) pages of it are stored" >&2
check_sum

begin "upgrade under the running program"
clew swap-out first
before=$(daemon)
dpkg --install /later.deb
until_true is_another "$before"
[ "$(readlink "/proc/$(daemon)/exe")" = /usr/bin/clew ] || fail "the daemon is still of the version before"
check_sum
clew swap-out first
until_true is_stored

begin "remove"
last=$(daemon)
dpkg --remove clew
until_true is_gone "$last"
if pgrep=$(grep -l '^Name:.clew' /proc/[0-9]*/status 2> /dev/null); then
    fail "processes of Clew are left: $pgrep"
fi
[ ! -e /usr/bin/clew ] && [ ! -e /run/clew/clew.sock ] || fail "files are left"
[ -e /etc/clew.toml ] || fail "the configuration is gone before a purge"
# Every page is back, and nobody serves it any more.
check_sum

begin "purge"
mkdir -p /var/lib/clew/keys
dpkg --purge clew
for place in /etc/clew.toml /var/lib/clew /run/clew; do
    [ ! -e "$place" ] || fail "$place is left"
done
check_sum
exec 3>&-
wait "$program" || fail "the program ended with $?"
trap - EXIT
echo "package-test: passed" >&2
