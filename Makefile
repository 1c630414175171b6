# Elbowroom: everything a developer or the continuous integration runs. `make help` lists it.
PREFIX ?= /usr/local
CARGO ?= cargo
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
ELBOW := $(TARGET)/release/elbow
# libba: where it was built, where it goes, and what programs ask for (clients/c/build.rs): libba.so.0.1, libba.so.1, ...
LIBBA ?= $(TARGET)/release
LIBLOCK ?= $(TARGET)/release
LIBDIR ?= $(PREFIX)/lib
STRIP ?= strip
# Where gdb(1) and perf(1) look for what was stripped, by build id.
DEBUGDIR ?= /usr/lib/debug
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
ABI := $(shell echo $(VERSION) | sed -E 's/^(0\.[0-9]+|[0-9]+)\..*/\1/')
# What `make bare` runs, and where.
SUITES ?= bookworm trixie
DO_AS ?= root sudo user
DO ?= make demo

# Everything that `make install` installs, in one command: what several of them use is built once.
BUILT := -p elbow -p elbow-mpi -p elbow-fcntl -p elbow-c -p elbow-c-lock
INSTALLED := $(ELBOW) $(TARGET)/release/libelbow_mpi.so $(TARGET)/release/libelbow_fcntl.so \
    $(LIBBA)/libba.so $(LIBBA)/libba.a $(LIBLOCK)/libelbow_lock_c.so $(LIBLOCK)/libelbow_lock_c.a

.PHONY: help build demo test bare soak fire-locks fuzz coverage docs bench-run bench-sort bench-locks bench-mpi bench-disk bench-emulated bench-bark figures-holes figures-disk fmt packages try-packages install install-debug install-libba install-liblock clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 12

build: ## build target/release/elbow and the libraries; needs Rust and a C compiler, neither root nor FUSE
	@scripts/setup.sh
	$(CARGO) build --release --locked $(BUILT)

demo: ## a real job on slow storage, directly and through elbow run
	@bench/demo.sh

# Where this is started in the background or by nohup, signals are ignored by all that it starts, and what is tested is also
# Ctrl-C. What only makes a second build faster would double what this takes of the disk.
test: ## the whole gate, as the continuous integration runs it
	@scripts/setup.sh test
	CARGO_INCREMENTAL=0 env --default-signal $(CARGO) xtask ci

bare: ## `make demo` on a bare Debian, as three users; needs root and mmdebstrap; SUITES, DO and DO_AS choose others
	@for suite in $(SUITES); do for user in $(DO_AS); do scripts/bare.sh $$suite $$user $(DO) || exit 1; done; done

soak: ## the random tests with a hundred times as many cases as in `make test` (random system calls: 100,000), and the test suites of others (PJDFSTEST=DIR, LTPROOT=DIR: those too); or ROUNDS=n
	@scripts/setup.sh soak
	$(CARGO) build --release --locked -p elbow-python
	SOAK=1 $(CARGO) test --release --workspace --locked

fire-locks: ## real clients of a lock service, and all that is killed, stopped, restarted and moved meanwhile: a minute; SOAK=1: ten; SEED=n repeats a schedule
	$(CARGO) build --locked -p elbow-c-lock -p elbow-fcntl -p elbow-python
	env --default-signal $(CARGO) test --locked -p elbow --test fire -- --nocapture

coverage: ## how many lines of floors 0 to 2 their tests run through, by crate and file; pages in target/llvm-cov/html
	@scripts/setup.sh coverage
	scripts/coverage.sh

fuzz: ## search for bytes that break a decoder, a minute per target; needs nightly and cargo-fuzz
	cd fuzz && for target in $$(cargo +nightly fuzz list); do \
	    cargo +nightly fuzz run $$target -- -max_total_time=60 -max_len=400 -rss_limit_mb=1024 || exit 1; \
	done

# Laid out as the repository is, so that links between pages hold.
docs: ## the manual as one book, in target/book/html
	@scripts/setup.sh docs
	rm -rf $(TARGET)/book && mkdir -p $(TARGET)/book/src
	git ls-files '*.md' 'LICENSE-*' docs | xargs cp --parents --target-directory $(TARGET)/book/src
	sed -e 's#](\.\./#](#' -e 's#](\(src\|design\)/#](docs/\1/#' docs/SUMMARY.md > $(TARGET)/book/src/SUMMARY.md
	cp docs/book.toml $(TARGET)/book
	mdbook build $(TARGET)/book

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

bench-emulated: build ## an emulated drive in real time beside its simulation, request by request; needs root; TRACE=FILE: a measured trace of the HP C2247A too; results in bench/out/emulated
	bench/emulated.py $(if $(TRACE),--trace $(TRACE))

bench-bark: build ## an ext4 journal on a write-ahead region beside a plain emulated disk and none, under TPC-B; needs root; results in bench/out/bark
	@scripts/setup.sh bench
	bench/bark.py

figures-holes: build ## Figures 1 to 4 of "A Holesome File System"; needs root; results in bench/out/holes
	@scripts/setup.sh bench
	bench/figures_holes.py

figures-disk: build ## Figures 4 to 12 and Table 2 of "Range Writes", each with its claims judged; SVG, PNG, CSV in bench/out/figures-disk; FULL=--full: with the whole tree; TRACES="--listing ...": with real traces
	$(ELBOW) disk figure all $(FULL) $(TRACES) --out bench/out/figures-disk

fmt: ## format the source
	$(CARGO) fmt --all

packages: build ## what is given to people who do not build, in dist: .deb, archive, Python wheel and sources, their parts and checksums
	@scripts/setup.sh packages
	scripts/packages.sh

try-packages: ## what is in dist, installed and used on bare Debians by root, by who may sudo and by who may not; needs root and mmdebstrap
	@for suite in $(SUITES); do for user in root sudo alone; do \
	    BARE_DIST=dist scripts/bare.sh $$suite $$user packaging/try.sh || exit 1; \
	done; done

# It builds nothing: root has no Rust, and must not own what lies in the target directory. Debug information stays there: it is
# seven times as large as the program.
install: ## install what `make build` built: elbow, man pages, completions and libraries, below PREFIX (/usr/local)
	@for file in $(INSTALLED); do [ -e "$$file" ] || { echo "$$file is missing: run \"make build\" first"; exit 1; } >&2; done
	$(MAKE) install-libba install-liblock
	install -D -s -m 755 $(ELBOW) $(DESTDIR)$(PREFIX)/bin/elbow
	install -D -s -m 755 $(TARGET)/release/libelbow_mpi.so $(DESTDIR)$(PREFIX)/lib/elbow/libelbow_mpi.so
	install -D -s -m 755 $(TARGET)/release/libelbow_fcntl.so $(DESTDIR)$(PREFIX)/lib/elbow/libelbow_fcntl.so
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1
	$(ELBOW) man $(DESTDIR)$(PREFIX)/share/man/man1
	for pair in bash:bash-completion/completions/elbow zsh:zsh/site-functions/_elbow fish:fish/vendor_completions.d/elbow.fish; do \
	    file=$(DESTDIR)$(PREFIX)/share/$${pair#*:}; mkdir -p "$${file%/*}"; \
	    $(ELBOW) completions $${pair%%:*} > "$$file" || exit 1; \
	done

install-debug: ## install the debug information of what `make install` installs, for gdb and perf, below DEBUGDIR
	@for file in $(filter-out %.a,$(INSTALLED)); do \
	    id=$$(readelf -n "$$file" | sed -n 's/.*Build ID: //p'); \
	    [ -n "$$id" ] || { echo "$$file has no build id: it cannot be found by one"; exit 1; } >&2; \
	    place=$(DESTDIR)$(DEBUGDIR)/.build-id/$$(echo "$$id" | cut -c 1-2); mkdir -p "$$place"; \
	    objcopy --only-keep-debug "$$file" "$$place/$$(echo "$$id" | cut -c 3-).debug" || exit 1; \
	done

install-libba: ## install the C library from LIBBA, where it was built: shared, static, header, pkg-config file, man page
	install -D -s -m 755 $(LIBBA)/libba.so $(DESTDIR)$(LIBDIR)/libba.so.$(VERSION)
	ln -sf libba.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libba.so.$(ABI)
	ln -sf libba.so.$(ABI) $(DESTDIR)$(LIBDIR)/libba.so
	install -D -m 644 $(LIBBA)/libba.a $(DESTDIR)$(LIBDIR)/libba.a
	$(STRIP) --strip-debug $(DESTDIR)$(LIBDIR)/libba.a
	install -D -m 644 clients/c/include/ba.h $(DESTDIR)$(PREFIX)/include/ba.h
	install -D -m 644 clients/c/man/ba.3 $(DESTDIR)$(PREFIX)/share/man/man3/ba.3
	mkdir -p $(DESTDIR)$(LIBDIR)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' clients/c/ba.pc.in \
	    > $(DESTDIR)$(LIBDIR)/pkgconfig/ba.pc

install-liblock: ## install the C lock client from LIBLOCK, where it was built, as install-libba does
	install -D -s -m 755 $(LIBLOCK)/libelbow_lock_c.so $(DESTDIR)$(LIBDIR)/libelbow_lock.so.$(VERSION)
	ln -sf libelbow_lock.so.$(VERSION) $(DESTDIR)$(LIBDIR)/libelbow_lock.so.$(ABI)
	ln -sf libelbow_lock.so.$(ABI) $(DESTDIR)$(LIBDIR)/libelbow_lock.so
	install -D -m 644 $(LIBLOCK)/libelbow_lock_c.a $(DESTDIR)$(LIBDIR)/libelbow_lock.a
	$(STRIP) --strip-debug $(DESTDIR)$(LIBDIR)/libelbow_lock.a
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
