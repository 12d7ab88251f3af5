# Two commands do everything on a fresh machine: `make demo` and `make test`.

CARGO ?= cargo
CLEW := target/release/clew

.PHONY: demo demo-full test soak bench build lint install clean

## Swap real programs out and back, beside the kernel's zram; three minutes, as root.
demo: build
	scripts/setup.sh redis-server node python3 sqlite3
	$(CLEW) demo

## Every arm at several totals and similarities, with intervals: about an hour, as root. What is
## finished is kept: the same command goes on after an interruption.
demo-full: build
	scripts/setup.sh redis-server node python3 sqlite3 perl java memcached
	$(CLEW) demo --full --ablations

## All tests; what .ci/run calls.
test:
	scripts/setup.sh cc redis-server redis-benchmark node python3 sqlite3 perl java memcached \
		stress-ng unshare
	scripts/test.sh

## The long form of the tests that can be long, three to four hours: the stress program, stress-ng, 200
## daemons killed under real programs, a daemon killed at each step 20 times, every system call that can
## fail (two hours of it), fuzzing.
soak:
	scripts/setup.sh cc redis-server redis-benchmark node python3 sqlite3 stress-ng unshare
	CLEW_SHADOW_SECONDS=1200 CLEW_STRESS_SECONDS=60 CLEW_KILLS=200 CLEW_FUZZ_SECONDS=120 \
	CLEW_POINT_TIMES=20 CLEW_FAULT_SECONDS=0 \
	$(CARGO) test --release -p clew -p clew-live --no-fail-fast --test shadow --test stress_ng \
		--test soak --test survive --test kill_points --test faults --test 'fuzz_*' -- --nocapture

## Every micro-benchmark beside its peer in the kernel, as root.
bench: build
	scripts/setup.sh node python3
	$(CLEW) bench all

build:
	scripts/setup.sh cc
	$(CARGO) build --release --bin clew

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

PREFIX ?= /usr/local
install: build
	install -D -m 755 $(CLEW) $(DESTDIR)$(PREFIX)/bin/clew
	$(CLEW) man $(DESTDIR)$(PREFIX)/share/man/man1
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(CLEW) completions bash > $(DESTDIR)$(PREFIX)/share/bash-completion/completions/clew

clean:
	$(CARGO) clean
