# The verbs of this project; `make` lists them. Meson does the building (meson.build).

BUILD     ?= build
CC        ?= gcc
SUDO      := $(shell [ "$$(id -u)" = 0 ] || echo sudo)
JOBS      := $(shell nproc)
FUZZ_TIME ?= 600
CRASH_STATES ?= 20000

# Tools that build, libraries that are linked, and what tests and the demo use.
PACKAGES := gcc clang meson ninja-build pkg-config make binutils \
            libfuse3-dev fuse3 liburing-dev libisal-dev libutf8proc-dev libblkid-dev \
            libjansson-dev libcmocka-dev \
            e2fsprogs util-linux mount fdisk zstd strace xfsprogs python3 attr acl fio clang-format clang-tidy \
            libclang-rt-14-dev

.DEFAULT_GOAL := help
.PHONY: help deps build demo check asan tsan fuzz crash tidy install clean

help: ## list the verbs
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

deps: ## install what building, testing and the demo need (Debian 12)
	@missing=$$(scripts/missing-packages $(PACKAGES)); \
	if [ -n "$$missing" ]; then \
	    $(SUDO) apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing; \
	fi

build: deps ## build the command and the libraries into ./build
	@scripts/configure $(BUILD) -Dlock_order_check=false
	@meson compile -C $(BUILD)

demo: build ## make an image of a real tree, mount it, compare it, unmount it
	@scripts/demo $(BUILD)

check: deps ## build in a debug form and run the tests; ends with "N passed, N failed"
	@scripts/configure $(BUILD) -Dlock_order_check=false
	@meson compile -C $(BUILD)
	@scripts/run-tests $(BUILD)

asan: deps ## run the tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@scripts/configure build-asan -Db_sanitize=address,undefined -Db_lundef=false \
	    -Dlock_order_check=true
	@meson compile -C build-asan
	@scripts/run-tests build-asan

tsan: deps ## run the tests under ThreadSanitizer
	@scripts/configure build-tsan -Db_sanitize=thread -Db_lundef=false -Dlock_order_check=true
	@meson compile -C build-tsan
	@scripts/run-tests build-tsan

fuzz: deps ## run every libFuzzer target for FUZZ_TIME seconds (default 600)
	@CC=clang scripts/configure build-fuzz -Dfuzzers=true -Db_sanitize=address,undefined \
	    -Db_lundef=false
	@meson compile -C build-fuzz
	@scripts/run-fuzzers build-fuzz $(FUZZ_TIME)

crash: build ## cut the power CRASH_STATES times (default 20000) and check what recovery makes of it
	@scripts/crash $(BUILD) $(CRASH_STATES)

tidy: deps ## clang build without a warning, clang-format, clang-tidy
	@CC=clang scripts/configure build-clang
	@meson compile -C build-clang
	@scripts/tidy build-clang

install: build ## install the command, the libraries, the header and the manual pages
	@$(SUDO) meson install -C $(BUILD) --no-rebuild

clean: ## remove the build folders
	@rm -rf build build-asan build-tsan build-fuzz build-clang
