# Zirconia. On a bare Debian 12 machine with git, make and network: `make demo`, `make test`.
SHELL := /bin/bash
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
# The programs that tools/demo.sh runs.
DEMO := zirconia zirconiad zpool zfs

.PHONY: all build test demo deps install interop torture suites bench clean help

all: build

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

deps: ## install what is missing (Debian packages, a Rust toolchain, the OpenZFS oracle)
	@tools/deps.sh

build: deps ## release programs in target/release
	$(CARGO) build --release --locked --bins

install: build ## programs, manual pages, completions and systemd units below PREFIX (default /usr/local)
	@packaging/install.sh

test: deps ## every test, lint and check (the whole gate)
	$(CARGO) run --quiet --locked --package xtask -- ci

demo: deps ## from nothing to a mounted, scrubbed, exported and verified raidz2 pool
	$(CARGO) build --release --locked $(DEMO:%=-p %)
	@tools/demo.sh

interop: build ## the whole interoperability matrix against OpenZFS (slow)
	$(CARGO) xtask interop write --all
	$(CARGO) xtask interop read --all
	$(CARGO) xtask interop crashed

bench: ## speed against the peer, in one run (slow; installs fio and tgt)
	ZIRCONIA_FIO=1 ZIRCONIA_TGT=1 tools/deps.sh
	$(CARGO) build --release --locked --bins
	tools/bench.sh

torture: build ## power cuts, faults, direct I/O and lives of devices against models; kills and dead devices under the commands (slow)
	ZIRCONIA_DATABASES=1 ZIRCONIA_GLUSTER=1 tools/deps.sh
	$(CARGO) xtask torture
	$(CARGO) xtask torture log
	$(CARGO) xtask torture volumes
	$(CARGO) xtask torture nbd
	$(CARGO) xtask torture receives
	$(CARGO) xtask campaign
	$(CARGO) xtask kills
	$(CARGO) xtask takeover
	$(CARGO) xtask targets
	$(CARGO) xtask bounds
	examples/gluster/run.sh
	$(CARGO) xtask torture direct
	$(CARGO) xtask torture lives
	$(CARGO) xtask torture zia

suites: build ## test suites of others: pjdfstest, fsx, go-zfs, OpenZFS's own; its verbs, options and properties (slow; fetches them)
	tools/suites.sh
	$(CARGO) xtask cli-table
	ZIRCONIA_ZTS=1 tools/deps.sh
	$(CARGO) xtask zts

clean: ## remove build output
	$(CARGO) clean
