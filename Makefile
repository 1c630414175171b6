# Elbowroom: everything a developer or the continuous integration runs. `make help` lists it.
PREFIX ?= /usr/local
CARGO ?= cargo
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
ELBOW := $(TARGET)/release/elbow
# libba: where it was built, where it goes, and what programs ask for (clients/c/build.rs): libba.so.0.1, libba.so.1, ...
LIBBA ?= $(TARGET)/release
LIBLOCK ?= $(TARGET)/release
LIBDIR ?= $(PREFIX)/lib
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ABI := $(shell echo $(VERSION) | sed -E 's/^(0\.[0-9]+|[0-9]+)\..*/\1/')

.PHONY: help build demo test soak fuzz bench-run bench-sort bench-locks bench-mpi bench-disk figures-holes fmt install install-libba install-liblock clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 12

build: ## build target/release/elbow
	@scripts/setup.sh
	$(CARGO) build --release --locked -p elbow -p elbow-mpi -p elbow-fcntl

demo: build ## a real job on slow storage, directly and through elbow run
	@bench/demo.sh

test: ## the whole gate, as the continuous integration runs it
	@scripts/setup.sh test
	$(CARGO) xtask ci

soak: ## the random tests with a hundred times as many cases as in `make test`, or ROUNDS=n
	@scripts/setup.sh test
	SOAK=1 $(CARGO) test --release --workspace --locked

fuzz: ## search for bytes that break a decoder, a minute per target; needs nightly and cargo-fuzz
	cd fuzz && for target in $$(cargo +nightly fuzz list); do \
	    cargo +nightly fuzz run $$target -- -max_total_time=60 -max_len=400 -rss_limit_mb=1024 || exit 1; \
	done

bench-run: build ## all measurements of the README; results in bench/out
	@scripts/setup.sh bench
	bench/run.py

bench-sort: build ## elbow sort beside GNU sort, TPIE, STXXL, DuckDB, Polars; needs root; results in bench/out/sort
	@scripts/setup.sh bench
	bench/sort.py

bench-locks: build ## elbow lockd beside kernel locks, Redis and etcd; results in bench/out/locks
	@scripts/setup.sh bench
	bench/locks.py

bench-mpi: build ## atomic MPI-IO by list locks beside no locks and the MPI libraries' own; results in bench/out/mpi
	@scripts/setup.sh bench
	bench/mpi.py

bench-disk: build ## how fast elbow disk simulates, beside DiskSim where DISKSIM names its tree; results in bench/out/disk
	@scripts/setup.sh bench
	bench/disk.py

figures-holes: build ## Figures 1 to 4 of "A Holesome File System"; needs root; results in bench/out/holes
	@scripts/setup.sh bench
	bench/figures_holes.py

fmt: ## format the source
	$(CARGO) fmt --all

install: build ## install elbow, its man pages and completions, and libba, below PREFIX (/usr/local)
	$(CARGO) build --release --locked -p elbow-c
	$(CARGO) build --release --locked -p elbow-c-lock
	$(MAKE) install-libba install-liblock
	install -D -m 755 $(ELBOW) $(DESTDIR)$(PREFIX)/bin/elbow
	install -D -m 755 $(TARGET)/release/libelbow_mpi.so $(DESTDIR)$(PREFIX)/lib/elbow/libelbow_mpi.so
	install -D -m 755 $(TARGET)/release/libelbow_fcntl.so $(DESTDIR)$(PREFIX)/lib/elbow/libelbow_fcntl.so
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1
	$(ELBOW) man $(DESTDIR)$(PREFIX)/share/man/man1
	for pair in bash:bash-completion/completions/elbow zsh:zsh/site-functions/_elbow fish:fish/vendor_completions.d/elbow.fish; do \
	    file=$(DESTDIR)$(PREFIX)/share/$${pair#*:}; mkdir -p "$${file%/*}"; \
	    $(ELBOW) completions $${pair%%:*} > "$$file" || exit 1; \
	done

install-libba: ## install the C library from LIBBA, where it was built: shared, static, header, pkg-config file, man page
	install -D -m 755 $(LIBBA)/libba.so $(DESTDIR)$(LIBDIR)/libba.so.$(VERSION)
	ln -sf libba.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libba.so.$(ABI)
	ln -sf libba.so.$(ABI) $(DESTDIR)$(LIBDIR)/libba.so
	install -D -m 644 $(LIBBA)/libba.a $(DESTDIR)$(LIBDIR)/libba.a
	install -D -m 644 clients/c/include/ba.h $(DESTDIR)$(PREFIX)/include/ba.h
	install -D -m 644 clients/c/man/ba.3 $(DESTDIR)$(PREFIX)/share/man/man3/ba.3
	mkdir -p $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' clients/c/ba.pc.in \
	    > $(DESTDIR)$(LIBDIR)/pkgconfig/ba.pc

install-liblock: ## install the C lock client from LIBLOCK, where it was built, as install-libba does
	install -D -m 755 $(LIBLOCK)/libelbow_lock_c.so $(DESTDIR)$(LIBDIR)/libelbow_lock.so.$(VERSION)
	ln -sf libelbow_lock.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libelbow_lock.so.$(ABI)
	ln -sf libelbow_lock.so.$(ABI) $(DESTDIR)$(LIBDIR)/libelbow_lock.so
	install -D -m 644 $(LIBLOCK)/libelbow_lock_c.a $(DESTDIR)$(LIBDIR)/libelbow_lock.a
	install -D -m 644 clients/c-lock/include/elbow_lock.h $(DESTDIR)$(PREFIX)/include/elbow_lock.h
	install -D -m 644 clients/c-lock/man/elbow_lock.3 $(DESTDIR)$(PREFIX)/share/man/man3/elbow_lock.3
	mkdir -p $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' clients/c-lock/elbow_lock.pc.in \
	    > $(DESTDIR)$(LIBDIR)/pkgconfig/elbow_lock.pc

clean: ## remove what was built
	$(CARGO) clean

.PHONY: recording
recording: ## the recording of the README, docs/src/images/elbow-run.svg, made again; needs tmux
	@scripts/setup.sh demo
	bench/recording.py
