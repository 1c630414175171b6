# Elbowroom: everything a developer or the continuous integration runs. `make help` lists it.
PREFIX ?= /usr/local
CARGO ?= cargo
# Cases of each random test in `make soak`.
ROUNDS ?= 20000
TARGET := $(if $(CARGO_TARGET_DIR),$(CARGO_TARGET_DIR),target)
ELBOW := $(TARGET)/release/elbow

.PHONY: help build demo test soak bench-run bench-sort figures-holes fmt install clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## */\t/' | expand -t 12

build: ## build target/release/elbow
	@scripts/setup.sh
	$(CARGO) build --release --locked -p elbow

demo: build ## a real job on slow storage, directly and through elbow run
	@bench/demo.sh

test: ## the whole gate, as the continuous integration runs it
	@scripts/setup.sh test
	$(CARGO) xtask ci

soak: ## the random tests with many more cases than in `make test`
	@scripts/setup.sh test
	SOAK=1 ROUNDS=$(ROUNDS) $(CARGO) test --release --workspace --locked

bench-run: build ## all measurements of the README; results in bench/out
	@scripts/setup.sh bench
	bench/run.py

bench-sort: build ## elbow sort beside GNU sort, TPIE, STXXL, DuckDB, Polars; needs root; results in bench/out/sort
	@scripts/setup.sh bench
	bench/sort.py

figures-holes: build ## Figures 1 to 4 of "A Holesome File System"; needs root; results in bench/out/holes
	@scripts/setup.sh bench
	bench/figures_holes.py

fmt: ## format the source
	$(CARGO) fmt --all

install: build ## install elbow, its man pages and completions below PREFIX (/usr/local)
	install -D -m 755 $(ELBOW) $(DESTDIR)$(PREFIX)/bin/elbow
	mkdir -p $(DESTDIR)$(PREFIX)/share/man/man1
	$(ELBOW) man $(DESTDIR)$(PREFIX)/share/man/man1
	for pair in bash:bash-completion/completions/elbow zsh:zsh/site-functions/_elbow fish:fish/vendor_completions.d/elbow.fish; do \
	    file=$(DESTDIR)$(PREFIX)/share/$${pair#*:}; mkdir -p "$${file%/*}"; \
	    $(ELBOW) completions $${pair%%:*} > "$$file" || exit 1; \
	done

clean: ## remove what was built
	$(CARGO) clean
