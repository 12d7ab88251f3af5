# Two commands do everything on a fresh machine: `make demo` and `make test`.

CARGO ?= cargo
CLEW := target/release/clew

.PHONY: demo demo-full scenarios test soak properties mining mutants promises bench build lint install deb package python clean

## Natural programs (an editor's language server, a notebook, redis) in turn and beside each other, with Clew
## and with the kernel's zram; three minutes, as root. Fetches some 100 MB from npm and PyPI once.
demo: build
	scripts/setup.sh redis-server
	scripts/natural.sh tsserver jupyter
	$(CLEW) demo --scenario return --programs tsserver,jupyter --switches 12
	$(CLEW) demo --scenario pressure --programs jupyter,tsserver,redis --switches 4

## Every arm at several totals and similarities, with intervals: about an hour, as root. What is
## finished is kept: the same command goes on after an interruption.
demo-full: build
	scripts/setup.sh redis-server node python3 sqlite3 perl java memcached
	$(CLEW) demo --full --ablations

## Every scenario with all its programs: natural ones in turn, beside one in front, one more after the other, and
## synthetic requests at random; half an hour, as root. Fetches some 170 MB from npm, PyPI and crates once, and what Debian has.
scenarios: build
	scripts/setup.sh redis-server node python3 sqlite3
	scripts/natural.sh tsserver jupyter pyright clangd chromium libreoffice compile
	$(CLEW) demo --scenario return
	$(CLEW) demo --scenario pressure
	$(CLEW) demo --scenario growth
	$(CLEW) demo --scenario scatter

## All tests; what .ci/run calls.
test:
	scripts/setup.sh cc redis-server redis-benchmark node python3 python3-venv sqlite3 perl java memcached \
		stress-ng unshare strace gdb perf setpriv setcap cpython-tests fio chromium postgres \
		tmux dbus-daemon dbus-send musl-gcc Xvfb xterm i3 ip
	scripts/natural.sh tsserver jupyter chromium libreoffice compile
	scripts/test.sh

## The long form of the tests that can be long, four to five hours: the Python module as maturin builds it, the stress program, stress-ng, 200
## daemons killed under real programs, CPython's suite, gcc, Chromium, fio and PostgreSQL ten times over,
## a daemon killed at each step 20 times, every system call that can fail (two hours of it), fuzzing, links to
## donors cut 1,000 times, fifty-two programs of four users, a thousand machines simulated for an hour, an hour of operations by chance on a mount whose server is
## killed.
soak:
	scripts/setup.sh cc redis-server redis-benchmark node python3 sqlite3 stress-ng unshare setpriv \
		cpython-tests fio chromium postgres ip
	$(MAKE) python
	CLEW_SHADOW_SECONDS=1200 CLEW_STRESS_SECONDS=60 CLEW_KILLS=200 CLEW_FUZZ_SECONDS=120 \
	CLEW_POINT_TIMES=20 CLEW_FAULT_SECONDS=0 CLEW_PROGRAM_ROUNDS=10 CLEW_CUTS=1000 CLEW_SIMULATED_MINUTES=60 \
	CLEW_MOUNT_SECONDS=3600 CLEW_USER_PROGRAMS=52 CLEW_DONOR_ARMS=clew+donor,clew-mobileswap,clew-remoteswap,clew-cloudswap \
	$(CARGO) test --release -p clew -p clew-live -p clew-mount --no-fail-fast --test random --test shadow --test stress_ng \
		--test soak --test survive --test kill_points --test faults --test 'fuzz_*' \
		--test cpython --test compiler --test browser --test io_uring --test postgres --test cuts --test simulate --test users \
		--test demo_donors -- --nocapture

## Random tests of policies, engine and traces with a hundred times as many cases as in `make test`, seven minutes.
properties:
	PROPTEST_CASES=30000 $(CARGO) test -p clew-core -p clew-trace -p clew-policy -p clew-engine --no-fail-fast

## The miner of Archer's association groups against a library in Python; seconds. Fetches 40 KB from PyPI once.
mining:
	scripts/setup.sh cc python3 python3-venv
	scripts/mining.sh

## How many small defects the tests notice: 100 mutants of mover, store and reclaim, a quarter of an hour.
## A run that was stopped goes on where it was. Needs `cargo install cargo-mutants --locked`.
mutants:
	scripts/mutants.py

## Whether each promise of docs/guarantees.md has a test that notices when it is broken: some ninety
## defects, one after the other, two hours as root. A run that was stopped goes on where it was.
promises:
	scripts/setup.sh cc redis-server python3 java stress-ng unshare strace setpriv fio postgres musl-gcc
	scripts/promises.py

## Every micro-benchmark beside its peer in the kernel, as root.
bench: build
	scripts/setup.sh node python3 fio iperf3 ip redis-server liblzo2
	$(CLEW) bench all

## The Python module (crates/python), built by maturin and tested in target/python. Fetches some 70 MB from
## PyPI once.
python:
	scripts/setup.sh cc python3 python3-venv
	$(CARGO) build --bin clew
	scripts/python.sh target/debug/clew

build:
	scripts/setup.sh cc
	$(CARGO) build --release --bin clew

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

PREFIX ?= /usr/local
install: build
	install -D -m 755 $(CLEW) $(DESTDIR)$(PREFIX)/bin/clew
	scripts/package-files.sh $(CLEW) target/package
	install -d $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/bash-completion/completions \
		$(DESTDIR)$(PREFIX)/share/zsh/site-functions $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
	install -m 644 target/package/man/* $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 644 target/package/completions/clew $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	install -m 644 target/package/completions/_clew $(DESTDIR)$(PREFIX)/share/zsh/site-functions
	install -m 644 target/package/completions/clew.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d

## A Debian package with all that `make install` brings, and units: target/debian/clew_VERSION_amd64.deb.
deb: build
	scripts/setup.sh dpkg-shlibdeps cargo-deb
	scripts/package-files.sh $(CLEW) target/package
	$(CARGO) deb --quiet --package clew --no-build

## The package in a clean root: installed, first managed program, upgraded under it, removed, purged; two
## minutes, as root. Fetches some 40 MB from the configured Debian mirror.
package: deb
	scripts/setup.sh mmdebstrap
	scripts/package-test.sh

clean:
	$(CARGO) clean
