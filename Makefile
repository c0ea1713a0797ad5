# Everything that a newcomer needs: `make run`, `make test`.
.DELETE_ON_ERROR:
.SUFFIXES:

export CARGO_TARGET_DIR ?= $(CURDIR)/target
RELEASE := $(CARGO_TARGET_DIR)/release
PREFIX ?= /usr/local
# The archive's own `__register_atfork` gives way to libc's in a program that libc is linked into: that is the one `fork` knows.
WEAKEN := objcopy --weaken-symbol=__register_atfork $(patsubst %,--localize-symbol=%,setuid seteuid setreuid setresuid \
	setgid setegid setregid setresgid setgroups initgroups capset)
VERSION := 0.1.0
# Tests of the crate that say something else where no C allocator is built in.
WITHOUT_C := counters early limit modes monitor process_mode
# Each is built by itself, with the features of its own.
LIBRARIES := spandrel-capi spandrel-capi-heap spandrel-capi-durable spandrel-capi-program

.PHONY: help run test build setup setup-run setup-bench locks check unit integration tsan soak bench world peers install clean

help:
	@echo 'make run      set up, build, and show real programs on Spandrel beside the system allocator'
	@echo 'make test     set up, and pass all tests'
	@echo 'make tsan     the tests of several threads under the thread sanitizer (nightly compiler)'
	@echo 'make soak     heaps and durable states are killed 10,000 times, a million crash images, all faults of the disk in Rust and C, code translated at random, large programs in every mode (hours)'
	@echo 'make build    the libraries, the command and the benchmarks'
	@echo 'make bench    Spandrel beside every allocator that is installed (two hours; see spandrel bench --help)'
	@echo 'make world    servers, interpreters, data systems and desktop programs, and their memory at rest (an hour, 2 GB of packages)'
	@echo 'make peers    build the allocators and the programs to compare with'
	@echo 'make install  into PREFIX ($(PREFIX)): libraries, headers, pkg-config, CMake, command'

# What `make run` needs beside Rust.
setup-run:
	@scripts/setup run

# What `make bench` and `make peers` need beside that.
setup-bench:
	@scripts/setup bench

# What `make test` needs beside that.
setup:
	@scripts/setup test

build:
	cargo build --release --locked -p spandrel-capi
	cargo build --release --locked -p spandrel-capi-heap
	cargo build --release --locked -p spandrel-capi-durable
	cargo build --release --locked -p spandrel-capi-program
	cargo build --release --locked
	$(WEAKEN) $(RELEASE)/libspandrel.a
	@ln -sf libspandrel.so $(RELEASE)/libspandrel.so.0
	@ln -sf libspandrel_heap.so $(RELEASE)/libspandrel_heap.so.0
	@ln -sf libspandrel_durable.so $(RELEASE)/libspandrel_durable.so.0

run: setup-run build
	$(RELEASE)/spandrel bench apps

test: setup locks check build unit integration

# The lock file of each workspace is what its manifests say.
locks:
	for lock in $$(find . -name Cargo.lock -not -path '*/target/*'); do \
		cargo metadata --locked --format-version 1 --manifest-path $${lock%lock}toml > /dev/null || exit; \
	done

check:
	cargo fmt --all --check
	cargo clippy --locked -p spandrel-capi --no-default-features -- -D warnings
	cargo clippy --locked -p spandrel-capi-heap -- -D warnings
	cargo clippy --locked -p spandrel-capi-durable -- -D warnings
	cargo clippy --locked -p spandrel-capi-program -- -D warnings
	cargo clippy --locked --workspace $(LIBRARIES:%=--exclude %) --all-targets \
		--features spandrel/jemalloc,spandrel/mimalloc -- -D warnings
	cargo xtask tidy

unit:
	cargo test --locked --no-fail-fast --workspace --exclude spandrel-tests $(LIBRARIES:%=--exclude %) \
		--features spandrel/jemalloc,spandrel/mimalloc
	cargo test --locked --no-fail-fast -p spandrel-backends
	cargo test --locked --no-fail-fast -p spandrel --lib $(WITHOUT_C:%=--test %)
	cargo run --locked -p spandrel --features simulator --example transactions
	cargo run --locked -p spandrel --features simulator --example word_count -- --power-failure
	RUSTFLAGS='--cfg loom' CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/loom \
		cargo test --locked --release -p spandrel-sync -p spandrel-durable --test loom
	RUSTFLAGS='--cfg shuttle' CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/shuttle \
		cargo test --locked --release -p spandrel-slabs --test shuttle

integration: build
	cargo test --locked --no-fail-fast -p spandrel-tests -- --test-threads 2

# The tests of what several threads do, under the thread sanitizer: needs a nightly compiler, and minutes.
# Its shadow leaves less address space, too little for the largest alignment and for a slice among few tebibytes,
# and it is too slow for what a cache learns from how soon it is full again.
TSAN := TSAN_OPTIONS='suppressions=$(CURDIR)/tests/tsan.supp' CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/tsan \
	RUSTFLAGS='-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg tsan' \
	cargo +nightly test --locked --target x86_64-unknown-linux-gnu

tsan:
	$(TSAN) --lib --tests -p spandrel-sync -p spandrel-recorder -p spandrel-slabs \
		-- --skip what_ebbs_and_floods_stays_in_the_cache
	$(TSAN) --lib --test stress -p spandrel-durable
	$(TSAN) -p spandrel-backends --test remap --test remap_early --test remap_keeps_books \
		-- --skip alignment_up_to_a_gibibyte
	$(TSAN) --lib -p spandrel-os -p spandrel-adaptive \
		-- --skip a_slice_is_claimed_among_the_usable_tebibytes_or_not_at_all
	$(TSAN) -p spandrel --test modes --test process_mode --test monitor --test limit --test early --test counters

soak: setup build
	SPANDREL_SOAK=10000 cargo test --locked --profile soak -p spandrel-pheap --test soak
	SPANDREL_SOAK=10000 cargo test --locked --profile soak -p spandrel-durable --lib -- --nocapture crash::seeded
	SPANDREL_SOAK=10000 cargo test --locked --profile soak -p spandrel --test durable -- --nocapture histories:: injected:: power::
	SPANDREL_SOAK=10000 cargo test --locked --profile soak -p spandrel --test plain --test translated kills_leave
	SPANDREL_SOAK=1 cargo test --locked -p spandrel-tests --test real_programs -- --include-ignored --test-threads 2
	SPANDREL_SOAK=1 cargo test --locked --release -p spandrel --test translated what_commands
	SPANDREL_SOAK=50 cargo test --locked -p spandrel-tests --test durable_translated -- --nocapture --test-threads 1
	SPANDREL_SOAK=100 cargo test --locked --release -p spandrel-capture --lib random_programs
	SPANDREL_SOAK=10 cargo test --locked --release -p spandrel-capture --lib -- --nocapture second:: rewritten:: executed:: strings::
	SPANDREL_SOAK=10000 cargo test --locked --profile soak -p spandrel-kvserver --test histories -- --nocapture
	SPANDREL_SOAK=2500 cargo test --locked -p spandrel-tests --test durable_abi -- --nocapture kills_leave
	SPANDREL_SOAK=1 cargo test --locked -p spandrel-tests --test durable_faults -- --nocapture
	SPANDREL_SOAK=1000 cargo test --locked -p spandrel-tests --test durable_program -- --nocapture --test-threads 1

peers: setup-bench
	$(MAKE) -C bench/peers

bench: setup-bench build peers
	cargo build --release --locked -p spandrel-kvserver
	SPANDREL_PEERS=$(CURDIR)/bench/peers/lib SPANDREL_PROGRAMS=$(CURDIR)/bench/peers/lib/programs \
		SPANDREL_PAPER=$(CURDIR)/bench/peers/lib/paper \
		$(RELEASE)/spandrel bench all --out $(CARGO_TARGET_DIR)/hugepages.svg

# Programs of a distribution on the usual allocators and on Spandrel: half an hour.
world: build
	sh scripts/setup world $(CARGO_TARGET_DIR)/world
	SPANDREL_PYTHON=$(CARGO_TARGET_DIR)/world/bin/python3 $(RELEASE)/spandrel bench world

install: build
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/lib/cmake/Spandrel
	install -d $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/bin
	for name in spandrel spandrel_heap spandrel_durable; do \
		install -m 755 $(RELEASE)/lib$$name.so $(DESTDIR)$(PREFIX)/lib/lib$$name.so.$(VERSION) && \
		ln -sf lib$$name.so.$(VERSION) $(DESTDIR)$(PREFIX)/lib/lib$$name.so.0 && \
		ln -sf lib$$name.so.0 $(DESTDIR)$(PREFIX)/lib/lib$$name.so || exit; \
	done
	install -m 755 $(RELEASE)/libspandrel_program.so $(DESTDIR)$(PREFIX)/lib/
	install -m 644 $(RELEASE)/libspandrel.a $(RELEASE)/libspandrel_heap.a $(DESTDIR)$(PREFIX)/lib/
	$(WEAKEN) $(DESTDIR)$(PREFIX)/lib/libspandrel.a
	install -m 644 include/*.h include/*.hpp $(DESTDIR)$(PREFIX)/include/
	install -m 755 $(RELEASE)/spandrel $(DESTDIR)$(PREFIX)/bin/
	install -d $(DESTDIR)$(PREFIX)/lib/spandrel
	install -m 755 $(RELEASE)/spandrel-bench-worker $(RELEASE)/spandrel-bench-plain $(DESTDIR)$(PREFIX)/lib/spandrel/
	for name in spandrel spandrel-heap spandrel-durable; do \
		sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' packaging/$$name.pc.in \
			> $(DESTDIR)$(PREFIX)/lib/pkgconfig/$$name.pc || exit; \
	done
	install -m 644 packaging/SpandrelConfig.cmake $(DESTDIR)$(PREFIX)/lib/cmake/Spandrel/
	sed -e 's|@VERSION@|$(VERSION)|' packaging/SpandrelConfigVersion.cmake.in \
		> $(DESTDIR)$(PREFIX)/lib/cmake/Spandrel/SpandrelConfigVersion.cmake

clean:
	cargo clean
