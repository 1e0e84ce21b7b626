# Every target installs the Debian packages it needs (scripts/setup).

PREFIX ?= /usr/local
CARGO := scripts/cargo
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
TARGET := $(or $(CARGO_TARGET_DIR),target)
# where programs are, and where their man pages and completions go
BUILT := $(TARGET)/release
PAGES := $(TARGET)
FREEWAY := $(BUILT)/freeway
BENCH := $(BUILT)/freeway-bench
ENGINE := $(BUILT)/freeway-engine
# ARCH=arm64: build for that machine (scripts/cross)
CROSS := $(if $(ARCH),scripts/cross $(ARCH))
# what runs a program of that machine here
RUN :=
# the last two where they are built
PROGRAMS = $(FREEWAY) $(wildcard $(BENCH) $(ENGINE))

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the release programs, freeway and freeway-bench; ARCH=arm64: for another machine
	@scripts/setup build $(if $(ARCH),cross)
	$(CROSS) $(CARGO) build --release -p freeway -p freeway-bench

.PHONY: engine
engine: ## build freeway-engine, which forwards on cores of its own with DPDK
	@scripts/setup build engine $(if $(ARCH),cross)
	$(CROSS) $(CARGO) build --release -p freeway-engine

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
	@$(MAKE) --no-print-directory pages

# freeway-bench(1) and freeway-engine(1) are the pages of these programs where they are built, and else those of the commands
# `freeway bench` and `freeway engine`.
.PHONY: pages
pages:
	rm -rf $(PAGES)/man $(PAGES)/completions
	for program in $(PROGRAMS); do $(RUN) $$program man $(PAGES)/man || exit 1; done
	for program in $(filter-out $(ENGINE),$(PROGRAMS)); do $(RUN) $$program completions $(PAGES)/completions || exit 1; done

.PHONY: install
install: build ## install, freeway-engine too where it was built, below DESTDIR and PREFIX (/usr/local)
	@$(MAKE) --no-print-directory stage

.PHONY: uninstall
uninstall: ## remove what install put there; the configuration and the group stay
	@root=$$(mktemp -d) && trap 'rm -rf "$$root"' EXIT && \
		$(MAKE) --no-print-directory stage DESTDIR="$$root" >/dev/null && \
		find "$$root" ! -type d -printf '$(DESTDIR)/%P\0' | xargs -0 rm -fv

# The same without building: packages are made of what this installs. The link is for members of the group freeway, in whose
# PATH sbin need not be.
.PHONY: stage
stage: pages
	install -d $(addprefix $(DESTDIR)$(PREFIX)/,bin sbin share/man/man1 lib/systemd/system)
	install -m 0755 $(PROGRAMS) $(DESTDIR)$(PREFIX)/sbin/
	[ $(DESTDIR)$(PREFIX)/bin -ef $(DESTDIR)$(PREFIX)/sbin ] || ln -sf ../sbin/freeway $(DESTDIR)$(PREFIX)/bin/freeway
	install -m 0644 $(PAGES)/man/*.1 $(DESTDIR)$(PREFIX)/share/man/man1/
	for name in $(notdir $(filter-out $(ENGINE),$(PROGRAMS))); do \
		install -D -m 0644 $(PAGES)/completions/$$name.bash \
			$(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name && \
		install -D -m 0644 $(PAGES)/completions/_$$name \
			$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_$$name && \
		install -D -m 0644 $(PAGES)/completions/$$name.fish \
			$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/$$name.fish || exit 1; \
	done
	for name in $(notdir $(filter-out $(BENCH),$(PROGRAMS))); do \
		sed 's|/usr/sbin/freeway|$(PREFIX)/sbin/freeway|' packaging/$$name.service | \
			install -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/$$name.service || exit 1; \
	done
	sed 's|/usr/sbin/freeway|$(PREFIX)/sbin/freeway|' packaging/freeway-web.service | \
		install -m 0644 /dev/stdin $(DESTDIR)$(PREFIX)/lib/systemd/system/freeway-web.service
	install -D -m 0644 packaging/freeway.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/freeway.conf
	install -D -m 0644 packaging/freeway.toml $(DESTDIR)$(PREFIX)/share/doc/freeway/freeway.toml
	install -D -m 0644 packaging/grafana/freeway.json $(DESTDIR)$(PREFIX)/share/freeway/grafana/freeway.json
	install -D -m 0644 packaging/prometheus/freeway.rules.yml $(DESTDIR)$(PREFIX)/share/freeway/prometheus/freeway.rules.yml

.PHONY: deb
deb: build engine ## Debian packages, in target/deb; ARCH=arm64: for another machine
	@scripts/setup package
	@$(CROSS) scripts/deb

.PHONY: archive
archive: ## the router's program, linked statically, as a tar.gz in target/archive; ARCH as with deb
	@scripts/setup build package $(if $(ARCH),cross)
	@$(CROSS) scripts/archive

.PHONY: try-packages
try-packages: deb archive ## install, use and purge them in systems of their own; needs the network
	@$(SUDO) scripts/try-deb
	@$(SUDO) scripts/try-archive
	@$(SUDO) scripts/try-oci
	@$(SUDO) scripts/try-openwrt

.PHONY: try-arch
try-arch: ## tests of the native data plane for arm64, armhf and s390x, under qemu-user; needs the network
	@scripts/setup build cross
	@scripts/try-arch

.PHONY: docs
docs: ## the documents as a book, in target/book; builds mdBook the first time
	@scripts/links
	@scripts/book

.PHONY: clean
clean: ## remove what was built
	$(CARGO) clean
