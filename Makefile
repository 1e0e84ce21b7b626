# Every target installs the Debian packages it needs (scripts/setup).

PREFIX ?= /usr/local
CARGO := scripts/cargo
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
TARGET := $(or $(CARGO_TARGET_DIR),target)
FREEWAY := $(TARGET)/release/freeway
BENCH := $(TARGET)/release/freeway-bench
ENGINE := $(TARGET)/release/freeway-engine

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the release programs, freeway and freeway-bench
	@scripts/setup build
	$(CARGO) build --release -p freeway -p freeway-bench

.PHONY: engine
engine: ## build freeway-engine, which forwards on cores of its own with DPDK
	@scripts/setup build engine
	$(CARGO) build --release -p freeway-engine

.PHONY: demo
demo: ## build, then show the same traffic without and with the fast path
	@scripts/setup build test
	$(CARGO) build --release -p freeway -p freeway-bench
	$(SUDO) $(FREEWAY) demo

.PHONY: test
test: ## everything: formatting, lints, tests as user, as root and in VMs
	@scripts/setup build engine test vm
	@scripts/test fmt lint unit root fuzz vm

.PHONY: test-long
test-long: ## the same, each test in its long form: hours
	@scripts/setup build engine test vm
	@FREEWAY_LONG=1 FUZZ_SECONDS=$(or $(FUZZ_SECONDS),60) \
		scripts/test fmt lint unit root fuzz vm

.PHONY: test-unit
test-unit: ## tests as the calling user
	@scripts/setup build engine test
	@scripts/test unit

.PHONY: test-root
test-root: ## tests as root
	@scripts/setup build engine test
	@scripts/test root

.PHONY: test-vm
test-vm: ## tests on Debian's 6.1 and 6.12 kernels in virtual machines
	@scripts/setup build engine test vm
	@scripts/test vm

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZ_SECONDS (10), with sanitizers
	@scripts/setup build engine test
	@scripts/test fuzz

.PHONY: baseline
baseline: ## compare the speed of this build with docs/report
	@scripts/setup build engine test
	@$(SUDO) scripts/baseline

.PHONY: lint
lint: ## formatting and lints, changes nothing
	@scripts/setup build engine test
	@scripts/test fmt lint

.PHONY: fmt
fmt: ## format Rust and C
	@scripts/setup build engine test
	$(CARGO) fmt --all
	git ls-files -z -- 'dataplane/*.[ch]' 'engine/*.[ch]' 'crates/*/native/*.[ch]' 'crates/*/bpf/*.[ch]' | xargs -0 -r clang-format-19 -i

.PHONY: man
man: build ## man pages and completions, in target/man and target/completions
	$(FREEWAY) man $(TARGET)/man
	$(BENCH) man $(TARGET)/man
	$(FREEWAY) completions $(TARGET)/completions
	$(BENCH) completions $(TARGET)/completions

.PHONY: install
install: man ## install, freeway-engine too where it was built, below DESTDIR and PREFIX (/usr/local)
	install -D -m 0755 $(FREEWAY) $(DESTDIR)$(PREFIX)/sbin/freeway
	install -D -m 0755 $(BENCH) $(DESTDIR)$(PREFIX)/sbin/freeway-bench
	install -d $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 0644 $(TARGET)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	for name in freeway freeway-bench; do \
		install -D -m 0644 $(TARGET)/completions/$$name.bash \
			$(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name && \
		install -D -m 0644 $(TARGET)/completions/_$$name \
			$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$name && \
		install -D -m 0644 $(TARGET)/completions/$$name.fish \
			$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$name.fish || exit 1; \
	done
	sed 's|/usr/sbin/freeway|$(PREFIX)/sbin/freeway|' packaging/freeway.service | \
		install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/freeway.service
	if [ -x $(ENGINE) ]; then \
		install -D -m 0755 $(ENGINE) $(DESTDIR)$(PREFIX)/sbin/freeway-engine && \
		$(ENGINE) man $(TARGET)/man && \
		install -m 0644 $(TARGET)/man/freeway-engine*.1 $(DESTDIR)$(PREFIX)/share/man/man1/ && \
		sed 's|/usr/sbin/freeway|$(PREFIX)/sbin/freeway|' packaging/freeway-engine.service | \
			install -D -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/freeway-engine.service || exit 1; \
	fi
	install -D -m 0644 packaging/freeway.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/freeway.conf
	install -D -m 0644 packaging/freeway.toml $(DESTDIR)$(PREFIX)/share/doc/freeway/freeway.toml

.PHONY: docs
docs: ## the documents as a book, in target/book; builds mdBook the first time
	@scripts/links
	@scripts/book

.PHONY: clean
clean: ## remove what was built
	$(CARGO) clean
