# make help lists the targets.
PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
# STRIP=: leaves the debug information in what is installed.
STRIP ?= strip
# Below PREFIX: where the libraries go.
LIBRARIES ?= lib
LDCONFIG ?= ldconfig
FUZZ_SECONDS ?= 60
TARGET := $(or $(CARGO_TARGET_DIR),target)
RELEASE := $(TARGET)/release
BIN := $(DESTDIR)$(PREFIX)/bin
LIB := $(DESTDIR)$(PREFIX)/lib/famio
DOC := $(DESTDIR)$(PREFIX)/share/doc/famio
LIBDIR := $(DESTDIR)$(PREFIX)/$(LIBRARIES)
CMAKE := $(LIBDIR)/cmake/famio
UP := $(subst $() ,/,$(patsubst %,..,$(subst /, ,$(LIBRARIES)/cmake/famio)))
MAJOR = $(firstword $(subst ., ,$(VERSION)))
INCLUDE := $(DESTDIR)$(PREFIX)/include
MAN := $(DESTDIR)$(PREFIX)/share/man
VERSION := $(shell sed -n '/^\[workspace.package\]/,/^$$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
COMPLETIONS := $(addprefix $(DESTDIR)$(PREFIX)/share/,bash-completion/completions/famio zsh/site-functions/_famio fish/vendor_completions.d/famio.fish)
SHARED := libfamio.so libfamio.so.$(firstword $(subst ., ,$(VERSION))) libfamio.so.$(VERSION)

.PHONY: all build built demo programs posix hostile check test test-built test-crates test-programs test-long test-install model model-long mutants fuzz power-cuts sanitize lint bench install uninstall clean help

all: build

build: need-cc ## Release build of the command, the library and the test programs
	$(CARGO) build --release --workspace --lib --bins --examples
	scripts/link-libfamio $(RELEASE)/libfamio_c.a $(RELEASE)/libfamio

demo: build need-sqlite3 ## Import this machine's package database into SQLite, with 20 kills, with and without Famio
	$(RELEASE)/famio-demo

# Takes 25 to 75 seconds after a change of the library; the rest of make test is for a complete change.
check: need-cc ## The daily loop: format, the library's own tests, and 5,000 crash states of the simulator
	$(CARGO) fmt --all --check
	$(CARGO) test --profile daily -p famio --lib
	$(CARGO) build --profile daily -p famio-simulate
	$(TARGET)/daily/famio-simulate run --states 5000

# With link-time optimization each of a hundred test programs takes five times as long to link, and calls the same code.
test test-built: export CARGO_PROFILE_RELEASE_LTO = off
test: test-built need-sqlite3 need-python3 need-valgrind model ## All tests, the kill test in its short form
	$(RELEASE)/famio-counts
	scripts/at-once test-crates test-programs
	@echo "make test: all passed"

test-built: build
	$(CARGO) test --release --workspace --no-run

# Two parts of make test. Cargo's tests wait half of their time: for the disk, or for other processes. The longest that
# does not, `generated`, is in the other part.
test-crates:
	$(CARGO) test --release --workspace -- --skip every_crash_is_legal

test-programs:
	$(RELEASE)/famio-simulate run --states 100000
	$(RELEASE)/famio-simulate every --maps --length 2 --machine page-cache
	$(RELEASE)/famio-simulate every --maps --length 2 --machine emulated
	$(RELEASE)/famio-kill --without-famio --kills 30
	$(RELEASE)/famio-kill --kills 42
	$(RELEASE)/famio-kill --kills 6 --on tmpfs --emulated
	$(KILL_TIERED) --kills 6 $(TIERED)
	$(KILL_TIERED) --kills 6 $(TIGHT)
	$(RELEASE)/famio-programs --short --kills 12
	$(RELEASE)/famio-posix cases
	@# Always the same calls, so that what fails here is due to the change; test-long tries new ones.
	$(RELEASE)/famio-posix calls --steps 400 --rounds 5 --seed 20261124
	@# What a campaign found once: a kill in a far write, which left a size that recovery did not know.
	$(RELEASE)/famio-posix calls --mode kills --on tmpfs --options '--domain emulated --policy alternate' --seed 872726769844 --steps 1500 --rounds 12
	@# Another: a map of the kernel's file in a process that had handed its session over, which was not notified of a writer.
	$(RELEASE)/famio-posix calls --mode turns --on disk --options '--durability process --policy alternate' --seed 92773523531 --steps 1500 --rounds 12
	@# Another: a read-only process that maps a file while another process changes it waited for a session that was never ended.
	$(RELEASE)/famio-posix calls --mode turns --on tmpfs --options '--domain emulated --policy alternate' --seed 115529368675 --steps 400 --rounds 5
	@# Another: a stat by name while the file, which had grown, got a session for a rename in another process.
	$(RELEASE)/famio-posix calls --mode turns --on disk --options '--durability process --policy redo' --seed 994024483855 --steps 400 --rounds 12
	@# Twins alone: a difference found here is a defect of the test.
	$(RELEASE)/famio-hostile program --without-famio --without kill --for 3s
	$(RELEASE)/famio-hostile neighbour --for 15s
	$(RELEASE)/famio-hostile program --for 15s --seed 20261123 --without "$(HOSTILE_WITHOUT)"
	@# Descriptors closed unseen: a stat by name that never came back, and a checkpoint that set the size of another file.
	$(RELEASE)/famio-hostile program --cases 1 --on tmpfs --with inline --seed 183336071049
	$(RELEASE)/famio-hostile program --cases 1 --on tmpfs --with inline --seed 489160797646
	@# Set-user-id bits: after an unaligned direct write, which fails; and when a growing file gets a session.
	$(RELEASE)/famio-hostile program --cases 1 --on disk --with inline --seed 1016661871106
	$(RELEASE)/famio-hostile program --cases 1 --on disk --with inline --seed 325116292615
	$(RELEASE)/famio-power --cuts 4 --fs ext4
	$(RELEASE)/famio-power --cuts 2 --fs xfs
	$(RELEASE)/famio-power --cuts 2 --tiered
	tests/power/cache/campaign --cuts 40
	tests/power/cache/campaign --cuts 20 --fs xfs
	tests/power/cache/campaign --cuts 10 --fs btrfs
	tests/power/cache/campaign --cuts 5 --broken flush
	tests/power/growing/campaign 2 ext4
	tests/power/joint/campaign 2 disk
	scripts/test-install
	tests/tour/tour
	$(CARGO) test --release --workspace --test generated

# A separate build, in which a test hook decides before each check and before each step whose order matters.
mutants: need-cc ## Leave out each flush, fence, sync and check of the library in turn, and reverse each order: the crash simulator has to find each
	RUSTFLAGS="$(RUSTFLAGS) --cfg famio_mutants" $(CARGO) build --release -p famio-simulate --target-dir $(TARGET)/mutants
	$(TARGET)/mutants/release/famio-simulate mutants

# Cheap steps first, so that failures show early.
test-long: test-long-says build need-cc need-sqlite3 need-python3 need-valgrind need-programs ## All long tests: 1600 kills, 290 power cuts, millions of crash states, an hour of random calls, each fuzz target for 10 minutes (hours)
	@$(STEP) 1 "the installation, the Python package, what would be published, and the models' quick form"
	scripts/test-install
	scripts/python-wheel test
	$(MAKE) publish-check
	tests/protocol-model/model.py --quick
	@$(STEP) 2 "all tests, with the long ones (about 25 minutes)"
	FAMIO_DIFFERENTIAL_CALLS=200000 FAMIO_KILLS=100 FAMIO_INTERLEAVINGS=20 FAMIO_HISTORIES=600 FAMIO_FILES=10000 $(CARGO) test --release --workspace -- --include-ignored
	@$(STEP) 3 "kills, of SQLite, of other programs, and in containers with one pool (about 50 minutes)"
	$(RELEASE)/famio-kill --without-famio --kills 60
	$(RELEASE)/famio-kill --kills 420
	$(RELEASE)/famio-kill --kills 90 --on tmpfs --emulated
	$(KILL_TIERED) --kills 60 $(TIERED)
	$(KILL_TIERED) --kills 60 $(TIGHT)
	$(RELEASE)/famio-programs --kills 60
	@# 77: there can be no containers here, which it says.
	$(RELEASE)/famio-kill containers --for 10m || test $$? = 77
	$(RELEASE)/famio-kill containers --for 2m --write-back 30:10 --pause 0 || test $$? = 77
	@$(STEP) 4 "the same answers as a plain file (an hour)"
	$(RELEASE)/famio-posix cases
	$(RELEASE)/famio-posix calls --for $(POSIX_LONG)
	@$(STEP) 5 "a hostile program and a hostile neighbour (half an hour)"
	$(RELEASE)/famio-hostile program --without-famio --without kill --for 1m
	$(RELEASE)/famio-hostile all --for $(HOSTILE_LONG) --without "$(HOSTILE_WITHOUT)"
	@$(STEP) 6 "sanitizers (about 20 minutes)"
	scripts/sanitize
	@$(STEP) 7 "power cuts (about 45 minutes)"
	$(RELEASE)/famio-power --cuts 12 --broken fence
	$(RELEASE)/famio-power --cuts 8 --broken flush
	$(RELEASE)/famio-power --cuts 8 --broken fdatasync
	$(RELEASE)/famio-power --cuts 50 --fs ext4
	$(RELEASE)/famio-power --cuts 50 --fs xfs
	$(RELEASE)/famio-power --cuts 8 --tiered --broken fence
	$(RELEASE)/famio-power --cuts 8 --tiered --broken write-back
	$(RELEASE)/famio-power --cuts 50 --tiered
	for round in 1 2 3 4 5; do tests/power/cache/campaign --cuts 400 && tests/power/cache/campaign --cuts 200 --fs xfs || exit 1; done
	for round in 1 2 3 4 5; do tests/power/cache/campaign --cuts 100 --fs btrfs || exit 1; done
	tests/power/growing/campaign 20 ext4
	tests/power/growing/campaign 20 xfs
	tests/power/joint/campaign 20 disk
	tests/power/joint/campaign 20 pmem
	tests/power/joint/campaign 20 xfs
	@$(STEP) 8 "each fuzz target for $(FUZZ_LONG) s"
	scripts/fuzz $(FUZZ_LONG)
	@$(STEP) 9 "the protocol model, longer, and with each rule taken away (about 3 minutes)"
	$(MAKE) model-long
	@$(STEP) 10 "the crash simulator (two hours), then with each flush and fence left out (4 minutes; beside other work, hours)"
	$(RELEASE)/famio-simulate every
	$(RELEASE)/famio-simulate every --turns
	$(RELEASE)/famio-simulate every --maps
	$(RELEASE)/famio-simulate every --maps --turns
	$(RELEASE)/famio-simulate every --passes
	$(RELEASE)/famio-simulate run --machine tiered --states $(or $(FAMIO_TIERED_STATES),1000000)
	$(RELEASE)/famio-simulate run --states $(or $(FAMIO_STATES),4000000)
	$(MAKE) mutants
	@echo "make test-long: all passed"

.PHONY: test-long-says
test-long-says:
	@echo "make test-long: begins at $$(date +%H:%M); takes about five hours on two cores, of which the last step, the simulator, has the most"

# Files on a disk with their journals in memory; and the same with continuous write-back.
KILL_TIERED = mkdir -p /dev/shm/famio-kill-pool && $(RELEASE)/famio-kill --on disk --durability process --policy auto
TIERED = -- --pool /dev/shm/famio-kill-pool --tier auto
TIGHT = $(TIERED) --journal-limit 16MiB --write-back 10:1

FUZZ_LONG ?= 600
POSIX_LONG ?= 60m
HOSTILE_LONG ?= 30m
# Classes of steps that still fail (famio-hostile all --without list): should become empty.
HOSTILE_WITHOUT ?=
STEP = printf '== test-long, step %s of 10: %s\n'

model: need-python3 ## Check the protocols with every short sequence of calls and every crash
	tests/protocol-model/model.py --quick
	tests/protocol-model/hand_over.py --quick
	tests/protocol-model/growing.py --depth 3
	tests/protocol-model/joint.py --depth 2
	tests/protocol-model/tiered.py --depth 5 --after 0

model-long: need-python3 ## The same with longer sequences, and with each rule removed
	tests/protocol-model/model.py
	tests/protocol-model/model.py --holes --quick
	tests/protocol-model/hand_over.py
	tests/protocol-model/hand_over.py --holes
	tests/protocol-model/growing.py
	tests/protocol-model/joint.py --depth 3
	tests/protocol-model/tiered.py --depth 6
	tests/protocol-model/growing.py --mutants
	tests/protocol-model/joint.py --mutants --depth 3
	tests/protocol-model/tiered.py --mutants --depth 6 --after 0

# Uses the build of make test: the counts of another build cannot be compared with those that are checked in.
counts counts-bless: export CARGO_PROFILE_RELEASE_LTO = off
counts: build need-valgrind ## Instructions of hot paths, against those in tests/counts/counts.txt: fails where one grows by more than 5 %
	$(RELEASE)/famio-counts

counts-bless: build need-valgrind ## Update tests/counts/counts.txt
	$(RELEASE)/famio-counts --bless --rounds 3

.PHONY: counts counts-bless

fuzz: need-cc ## Each fuzz target for FUZZ_SECONDS (60), on the nightly toolchain
	scripts/fuzz $(FUZZ_SECONDS)

posix: build ## A table of POSIX cases and random calls, on atomic files and on plain ones, with several processes and kills
	$(RELEASE)/famio-posix cases
	$(RELEASE)/famio-posix calls

hostile: build ## A program that misuses its descriptors, rights and limits, beside a plain twin; a hostile user beside a victim and root
	$(RELEASE)/famio-hostile all --for 5m

programs: build need-sqlite3 need-python3 need-programs ## Unmodified programs on atomic files, killed and checked: sqlite3 and its own tests, Python, coreutils, tar, git, fio, Redis, LMDB, LevelDB, RocksDB, PostgreSQL, MariaDB, DuckDB, Kyoto Cabinet, Java, Node, stress-ng
	$(RELEASE)/famio-programs

power-cuts: build need-sqlite3 ## A few power cuts of a virtual machine with persistent memory (needs dax-vm, see FAMIO_DAX_VM)
	$(RELEASE)/famio-power --cuts 4 --fs ext4
	$(RELEASE)/famio-power --cuts 2 --fs xfs
	$(RELEASE)/famio-power --cuts 2 --tiered

sanitize: need-cc ## AddressSanitizer and ThreadSanitizer over the library's tests (nightly toolchain), both and UBSan over the C code
	scripts/sanitize

lint: need-python3 ## Formatting, modules that name each other in a circle, clippy and rustdoc, warnings denied
	$(CARGO) fmt --all --check
	scripts/cycles
	$(CARGO) clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --release --no-deps --lib -p famio --document-private-items

bench: build need-sqlite3 ## File calls, calls on plain files, SQLite, several processes and mapped files, with Famio and plain
	$(RELEASE)/famio bench io --folder /dev/shm --domain emulated
	$(RELEASE)/famio bench io --folder $(TARGET)
	$(RELEASE)/famio bench plain --folder /dev/shm
	$(RELEASE)/famio bench region --folder /dev/shm
	$(RELEASE)/famio bench sqlite --folder /dev/shm
	$(RELEASE)/famio bench sqlite --folder $(TARGET)
	$(RELEASE)/famio bench processes --folder /dev/shm --domain emulated
	$(RELEASE)/famio bench processes --folder $(TARGET)
	$(RELEASE)/famio bench map --folder /dev/shm
	$(RELEASE)/famio bench map --folder $(TARGET)

tour: build need-python3 ## A new user's tour: what a new user tries first, each step with a failure that was once seen there
	tests/tour/tour --all

.PHONY: tour
test-install: build need-sqlite3 ## Install into a separate folder, and use the result
	scripts/test-install

# Builds nothing: root may have no toolchain or a different one, and would leave root's files in the target folder.
install: built ## Install under PREFIX (/usr/local) what `make` has built
	install -d $(BIN) $(LIB) $(DOC)/docs
	install -m 755 $(RELEASE)/famio $(BIN)/famio
	install -m 755 $(RELEASE)/libfamio_preload.so $(RELEASE)/libfamio_trace.so $(LIB)
	install -m 644 LICENSE-APACHE LICENSE-MIT $(DOC)
	for page in README.md CHANGELOG.md SECURITY.md $(wildcard docs/*.md); do \
		$(LINKS) $$page >$(DOC)/$$page && chmod 644 $(DOC)/$$page || exit 1; \
	done
	install -d $(INCLUDE) $(LIBDIR)/pkgconfig $(MAN)/man1 $(MAN)/man3 $(MAN)/man5 $(MAN)/man7 $(DOC)/examples $(dir $(COMPLETIONS))
	install -m 644 include/famio.h include/famio_vnvml.h $(INCLUDE)
	install -m 644 $(RELEASE)/libfamio/libfamio.a $(LIBDIR)
	install -m 755 $(RELEASE)/libfamio/libfamio.so.$(VERSION) $(LIBDIR)
	cp -Pf $(addprefix $(RELEASE)/libfamio/,$(wordlist 1,2,$(SHARED))) $(LIBDIR)
	install -d $(CMAKE) $(DOC)/systemd $(DOC)/container
	for file in famio-config famio-config-version; do \
		sed 's|@UP@|$(UP)|g; s|@LIBRARIES@|$(LIBRARIES)|g; s|@VERSION@|$(VERSION)|g; s|@MAJOR@|$(MAJOR)|g' \
			packaging/cmake/$$file.cmake.in >$(CMAKE)/$$file.cmake; \
	done
	for file in $(notdir $(wildcard packaging/systemd/*)); do \
		sed 's|/usr/bin/famio|$(PREFIX)/bin/famio|' packaging/systemd/$$file >$(DOC)/systemd/$$file && chmod 644 $(DOC)/systemd/$$file || exit 1; \
	done
	install -m 644 $(wildcard packaging/container/*) $(DOC)/container
	sed 's|@PREFIX@|$(PREFIX)|; s|@VERSION@|$(VERSION)|; s|@LIBRARIES@|$(LIBRARIES)|' famio.pc.in >$(LIBDIR)/pkgconfig/famio.pc
	install -m 644 $(wildcard man/*.3) $(MAN)/man3
	install -m 644 $(wildcard man/*.5) $(MAN)/man5
	install -m 644 $(wildcard man/*.7) $(MAN)/man7
	$(RELEASE)/famio man $(MAN)/man1
	$(RELEASE)/famio completions bash >$(word 1,$(COMPLETIONS))
	$(RELEASE)/famio completions zsh >$(word 2,$(COMPLETIONS))
	$(RELEASE)/famio completions fish >$(word 3,$(COMPLETIONS))
	install -m 644 $(wildcard examples/*) $(DOC)/examples
	@[ "$(STRIP)" = : ] || $(MAKE) --no-print-directory strip-installed
	@$(REFRESH_LOADER)

# As `install`, which strips debug information by default; `install STRIP=:` keeps it.
install-strip: install ## The same as install, under the name that packagers expect

.PHONY: install-strip strip-installed
strip-installed:
	$(STRIP) --strip-unneeded $(BIN)/famio $(LIB)/libfamio_preload.so $(LIB)/libfamio_trace.so $(LIBDIR)/libfamio.so.$(VERSION)
	$(STRIP) --strip-debug $(LIBDIR)/libfamio.a

built:
	@for file in $(BUILT); do \
		[ -e "$$file" ] || { echo "make install: $$file is not there: run 'make' first, as the user who has the Rust toolchain" >&2; exit 1; }; \
	done

# Links of installed pages: those to packaging/ lead to where it is installed, and those to what is not become text.
LINKS := sed -Ez 's|\]\(\.\./packaging/|](../|g; s!\[([^]]*)\]\((\.\./)?(CONTRIBUTING\.md|python/|tests/)[^)]*\)!\1!g'
BUILT := $(addprefix $(RELEASE)/,famio libfamio_preload.so libfamio_trace.so libfamio/libfamio.a libfamio/libfamio.so.$(VERSION))
# Updates the loader's cache if it covers the folder: otherwise programs do not find the new library, or find a removed one.
REFRESH_LOADER = [ -n "$(DESTDIR)" ] || ! $(LDCONFIG) -NXv 2>/dev/null | grep -q "^$(LIBDIR):" || $(LDCONFIG)

uninstall: ## Remove what install put under PREFIX
	rm -f $(BIN)/famio $(LIB)/libfamio_preload.so $(LIB)/libfamio_trace.so
	rm -f $(addprefix $(DOC)/,README.md CHANGELOG.md SECURITY.md LICENSE-APACHE LICENSE-MIT $(wildcard docs/*.md))
	rm -f $(INCLUDE)/famio.h $(INCLUDE)/famio_vnvml.h $(LIBDIR)/libfamio.a $(addprefix $(LIBDIR)/,$(SHARED)) $(LIBDIR)/pkgconfig/famio.pc
	rm -f $(MAN)/man1/famio.1 $(MAN)/man1/famio-*.1 $(addprefix $(MAN)/man5/,$(notdir $(wildcard man/*.5))) $(COMPLETIONS)
	rm -f $(addprefix $(MAN)/man3/,$(notdir $(wildcard man/*.3))) $(addprefix $(MAN)/man7/,$(notdir $(wildcard man/*.7)))
	rm -f $(addprefix $(DOC)/examples/,$(notdir $(wildcard examples/*))) $(addprefix $(DOC)/systemd/,$(notdir $(wildcard packaging/systemd/*)))
	rm -f $(addprefix $(DOC)/container/,$(notdir $(wildcard packaging/container/*))) $(CMAKE)/famio-config.cmake $(CMAKE)/famio-config-version.cmake
	-rmdir $(CMAKE) $(LIB) $(DOC)/docs $(DOC)/examples $(DOC)/systemd $(DOC)/container $(DOC) 2>/dev/null
	@$(REFRESH_LOADER)

deb: built ## Debian packages in target/deb, of what `make` has built: famio, libfamio0, libfamio-dev (needs debhelper)
	@scripts/need dh=debhelper
	scripts/make-deb

python: built need-python3 ## The wheel of the Python package, in python/dist
	scripts/python-wheel

test-python: built need-python3 ## The wheel, its tests in a fresh environment, and the type checker
	scripts/python-wheel test

.PHONY: deb python test-python
.PHONY: publish-check
publish-check: need-cc ## Package and build the Rust crates as they would be published
	$(CARGO) publish --dry-run --allow-dirty -p famio -p famio-cli --target-dir $(TARGET)/publish

clean: ## Remove everything that was built
	$(CARGO) clean

help: ## This list
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' Makefile | expand -t 16

# Packages that a fresh machine may lack.
.PHONY: need-valgrind need-cc need-sqlite3 need-python3 need-programs
need-programs:
	@scripts/need git=git fio=fio redis-server=redis-server mdb_load=lmdb-utils ldb=rocksdb-tools pgbench=postgresql stress-ng=stress-ng \
		/usr/sbin/mariadbd=mariadb-server /usr/include/kchashdb.h=libkyotocabinet-dev kchashtest=kyotocabinet-utils c++=build-essential \
		node=nodejs javac=default-jdk-headless python:duckdb=duckdb python:plyvel=plyvel || \
		echo "programs: what could not be installed is skipped"
	@scripts/sqlite-suite >/dev/null || echo "programs: SQLite's own tests are skipped"
need-valgrind:
	@scripts/need valgrind=valgrind || echo "valgrind could not be installed: what runs under it is skipped"
need-cc:
	@scripts/need cc=build-essential c++=build-essential readelf=binutils objcopy=binutils
need-sqlite3:
	@scripts/need sqlite3=sqlite3
need-python3:
	@scripts/need python3=python3
