# Shunt's targets. `make` alone lists them.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

GO ?= go
BIN := $(CURDIR)/bin
VENV := $(CURDIR)/.venv
CALLS := python/shunt/_calls.abi3.so
PYTHON ?= python3

GOLANGCI_VERSION := v2.15.0

# Everything is compiled as libshunt.so is, position-independent too, so that nothing is compiled twice. But the race
# detector wants programs that are not.
export GOFLAGS := $(filter-out -trimpath -buildmode=%,$(shell $(GO) env GOFLAGS)) -trimpath \
  -buildmode=$(if $(filter -race,$(TEST_FLAGS)),default,pie)

# With -trimpath, Go's cache hands out what cgo wrote for another checkout, with the
# paths of that one's sources, which vet and linters then open. A flag that names this checkout
# is a part of the cache's key.
export CGO_CFLAGS = -g -O2 -ffile-prefix-map=$(CURDIR)=.

# How long each fuzzer of `make fuzz` runs.
FUZZTIME ?= 30s
# Packages of the Go tests; `make test PKG=./host/selector` runs one. The longest begins first, so that it is not left
# alone in the end. The emulator only computes, so it runs behind the others, which often wait.
PKG ?= ./tests/conformance $$($(GO) list ./... | grep -v '/internal/emulate$$')
behind := $(if $(filter file,$(origin PKG)),./transports/cudaipc/internal/emulate)
emulate = $(GO) test -vet=off -timeout 60m $(TEST_FLAGS) ./transports/cudaipc/internal/emulate
detect = -race -buildmode=default
# What else `go test` gets, as in `make test TEST_FLAGS=-v`.
TEST_FLAGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the shunt command, libshunt.so and the NCCL-compatible library, into bin/
	$(GO) build -ldflags "$$(sh scripts/release.sh)" -o $(BIN)/ ./cmd/shunt
	sh capi/build.sh $(BIN)/libshunt.so
	sh capi/nccl/build.sh $(BIN)/nccl/libnccl.so.2

.PHONY: install
install: build ## libshunt.so, headers, pkg-config and CMake files, under DESTDIR and PREFIX
	sh capi/install.sh $(BIN)/libshunt.so

# The tests run two packages at a time: many of them wait, and more of their ranks, which
# are processes, would only compete for the CPUs. So that they are not compiled two at a
# time too, they are compiled before, in the same way: these are the flags and packages.
# `make lint` vets.
compile = $(GO) list -e -test -deps -export -f '' $(1) >/dev/null

# A failing test in Go must not hide one in Python.
.PHONY: test
test: build python-calls deps-ucx ## every test: Go, C and Python
	$(call compile,$(PKG) $(behind))
	@status=0; log=$$(mktemp); trap 'rm -f "$$log"' EXIT; set -x; \
	$(if $(behind),nice -n 19 $(emulate) >"$$log" 2>&1 & behind=$$!;) \
	$(sum) $(built) TEST_PYTHON=$(VENV)/bin/python \
	$(GO) test -p 2 -vet=off -timeout 15m $(TEST_FLAGS) $(PKG) || status=1; \
	($(pytest)) || status=1; \
	$(if $(behind),wait $$behind || status=1; cat "$$log";) exit $$status

# Tests use what build has built: libshunt.so takes long, as go build compiles the C
# of a shared library anew each time. By the sum Go knows which results it may keep.
built = SHUNT_LIBRARY=$(BIN)/libshunt.so SHUNT_COMMAND=$(BIN)/shunt
# Outside a git repository Go may keep none: the sum is of an error that names the time.
sum = SOURCES_SUM=$$({ git ls-files -z --cached --others --exclude-standard -- ':!*.md' 2>/dev/null || \
	date +%s%N; } | xargs -0 sha256sum 2>&1 | sha256sum | cut -c1-64)
# They wait most of the time: four at once. PYTEST_FLAGS=--every-python: a program's life under every Python.
PYTEST_FLAGS ?=
pytest = cd python && $(built) $(VENV)/bin/python -m pytest -q -n 4 $(PYTEST_FLAGS)

.PHONY: test-python
test-python: build python-calls ## the tests of the Python package
	$(pytest)

# Real torch has an environment of its own, outside the checkout and by its version: 4.7 GB.
# make torch-test TORCH_VERSION=2.15.0 tries another.
TORCH_VERSION ?= $(shell sed -n 's/^torch==//p' python/requirements-torch.txt)
TORCH_VENV ?= $(HOME)/.cache/shunt/torch-$(TORCH_VERSION)
# What else the tests get, as in make torch-test TORCH_FLAGS='--slow -k p2p'.
TORCH_FLAGS ?=
torch = cd python && $(built) PYTHONPATH=$(CURDIR)/python $(TORCH_VENV)/bin/python -m

.PHONY: torch-env
torch-env: ## PyTorch from PyPI, for torch-test: 3 minutes the first time
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call install,python3-venv); }
	@PYTHON=$(PYTHON) sh scripts/torch-env.sh $(TORCH_VENV) $(TORCH_VERSION)

.PHONY: torch-build
torch-build: build torch-env
	@$(call python-headers,$(TORCH_VENV)/bin/python)
	$(torch) shunt.torch.build

.PHONY: torch-test
torch-test: torch-build ## the tests of shunt.torch with PyTorch, on CPU tensors, against gloo
	$(torch) pytest -q torch_tests $(TORCH_FLAGS)

.PHONY: torch-own-tests
torch-own-tests: torch-build ## PyTorch's own tests of torch.distributed over Shunt: none that has passed may fail
	$(torch) torch_tests.own --check torch_tests/own_results.tsv

.PHONY: emulate
emulate: ## the kernels on the emulator
	$(emulate)

.PHONY: race
race: ## the Go tests under the race detector
	$(call compile,$(detect) $(PKG))
	$(sum) $(GO) test -p 1 $(detect) -vet=off -timeout 25m $(TEST_FLAGS) $(PKG)

# What runs on GPUs, on the driver in memory; the emulator of kernels is C++. `make race`
# has the faults and the rules too, which take as long again. Package host, whose tests mostly wait, is run in halves.
half = ^Test(Device|R)
RACE_CUDA = $$($(GO) list ./cuda/... ./host/... ./transports/cudaipc/... | grep -vE '/emulate$$|/host$$') \
  ./tests/internal/device

.PHONY: race-cuda
race-cuda: race-cuda-compile ## the GPUs' host side under the race detector, without a GPU
	@status=0; set -x; \
	export $(sum); \
	$(GO) test $(detect) -vet=off -timeout 15m -run Cudaipc ./tests/conformance & suite=$$!; \
	$(GO) test $(detect) -vet=off -timeout 15m -run '$(half)' ./host & half=$$!; \
	$(GO) test $(detect) -vet=off -timeout 15m -skip '$(half)' ./host & other=$$!; \
	$(GO) test -p 1 $(detect) -vet=off -timeout 15m $(RACE_CUDA) || status=1; \
	for part in $$suite $$half $$other; do wait $$part || status=1; done; exit $$status

.PHONY: race-cuda-compile
race-cuda-compile:
	$(call compile,$(detect) $(RACE_CUDA) ./host ./tests/conformance)

.PHONY: check
check: fmt-check width-check mod-check lint lint-python arm64-check generate-check images-check warnings-check
check: ## format, width, modules, linters (vet among them), arm64, generated code and images, warnings of compilers

.PHONY: house
house: ## lines, files and imports of each room of package host, the longest file and function
	@$(GO) run ./internal/house

.PHONY: fmt
fmt: ## format the Go code in place
	gofmt -w $$(git ls-files '*.go')

.PHONY: fmt-check
fmt-check: ## list Go files that are not formatted
	@files=$$(git ls-files '*.go'); unformatted=$$(gofmt -l $$files </dev/null); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi

.PHONY: width-check
width-check: ## list lines of more than 120 characters
	sh scripts/check-width.sh

.PHONY: mod-check
mod-check: ## fail when go.mod and go.sum are not what go mod tidy writes
	$(GO) mod tidy -diff

.PHONY: vet
vet: ## go vet
	$(GO) vet -unsafeptr=false ./...

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint, staticcheck included
	$(BIN)/golangci-lint run --allow-parallel-runners ./...

# Not a part of lint, which .ci/run begins with beside what makes the environment.
.PHONY: lint-python
lint-python: $(VENV)/.ready ## ruff: unused and undefined names in every Python source
	$(VENV)/bin/ruff check -q --no-cache $$(git ls-files '*.py')

# Compilers differ in their warnings, so that users' builds go on.
.PHONY: warnings-check
warnings-check: $(VENV)/.ready ## fail when cc, or clang where it is, warns of the libraries or the Python extension
	@$(call python-headers,$(VENV)/bin/python)
	@build=$$(mktemp -d) && trap 'rm -rf "$$build"' EXIT && export CFLAGS=-Werror && set -x && \
	(cd python && $(VENV)/bin/python setup.py -q build_ext --force --build-temp "$$build" --build-lib "$$build") && \
	for CC in $${CC:-cc} clang; do \
	  command -v $$CC >/dev/null || { echo "skipped: $$CC is not installed"; continue; }; export CC; \
	  sh capi/nccl/build.sh "$$build/libnccl.so.2" && \
	  CGO_CFLAGS="$$CGO_CFLAGS -Werror" $(GO) list -deps -export -f '' ./capi || exit 1; \
	done

# What make wheel ARCH=aarch64 compiles, and the tests.
.PHONY: arm64-check
arm64-check: ## compile everything for arm64, where make portable has installed zig
	@if ! $(WHEEL)/bin/python -m ziglang version >/dev/null 2>&1; then \
	  echo "skipped: arm64-check: $(WHEEL) has no zig, which make portable installs"; exit; fi; \
	set -x; PYTHON=$(WHEEL)/bin/python PORTABLE_ARCH=aarch64 scripts/portable-go.sh \
	  $(GO) list -tags portable -test -deps -export -f '' ./... >/dev/null

# Emulation takes minutes, so no check of every change has it.
.PHONY: arm64-test
arm64-test: ## try the arm64 build in QEMU's virtual machine: the command, bench, and conformance for ARM64_SECONDS
	$(call debian,qemu-system-aarch64 --version && cpio --version,qemu-system-arm cpio)
	$(MAKE) portable ARCH=aarch64
	sh scripts/arm64-test.sh build/portable-aarch64

.PHONY: generate
generate: proto notices ## write every generated file
	$(GO) run ./internal/gentables
	$(GO) run ./internal/genimages
	$(GO) run ./internal/gendocs
	$(GO) run ./internal/gennccl
	$(GO) run ./internal/gencosts
	$(GO) run ./internal/genpeers

.PHONY: notices
notices: ## write THIRD_PARTY_NOTICES, the licenses of what is linked
	$(GO) run ./internal/gennotices

.PHONY: proto
proto: deps-proto ## write the Go code of plugin/proto
	sh scripts/proto.sh

GENERATED := plugin/tables_gen.go plugin/shunt_tables.h python/shunt/_tables.py plugin/proto docs/options.md \
  docs/transport-author.md docs/benchmarks.md THIRD_PARTY_NOTICES capi/nccl host/selector/builtin.json \
  transports/cudaipc/images_gen.go

.PHONY: generate-check
generate-check: generate ## fail when a generated file, or the table of bench/plot.py, is not what its source gives
	@changed=$$(git status --porcelain -- $(GENERATED)); if [ -n "$$changed" ]; then \
	echo "generated files differ (commit what make generate wrote):"; echo "$$changed"; exit 1; fi
	$(PYTHON) bench/plot.py --check

.PHONY: images-check
images-check: python-deps ## fail when the images of kernels are not what the compiler makes of their sources
	sh scripts/images-check.sh

# OLDEST=DIR,NEWEST=DIR: versions of NCCL, and nvidia/nccl of their unpacked packages (nvidia-nccl-cu13 on PyPI).
.PHONY: nccl-symbols
nccl-symbols: ## read the functions of NCCL anew, of the packages that NCCL_PACKAGES names
	$(GO) run ./internal/gennccl -refresh $(NCCL_PACKAGES)

.PHONY: nccl-sanitize
nccl-sanitize: build
nccl-sanitize: ## the tests of the NCCL-compatible library under the sanitizers of addresses and undefined behaviour
	$(built) SHUNT_NCCL_SANITIZE=1 $(GO) test -count=1 -vet=off $(TEST_FLAGS) ./capi/nccl/test

.PHONY: fuzz
fuzz: ## run every fuzzer for FUZZTIME
	GO="$(GO)" bash scripts/fuzz.sh $(FUZZTIME)

# Faults of the storm; `make test` has 16. 500 take three quarters of an hour.
STORM ?= 500
.PHONY: storm
storm: ## STORM faults in each phase of random worlds, of which every survivor must name the cause
	$(GO) test -vet=off -timeout 120m -run '^TestStorm$$' -v ./tests/internal/faults -faults.storm=$(STORM)

# Seeds of the delays that each mutant is run with; `make test` has two.
DELAYS ?= 20
.PHONY: delays
delays: ## DELAYS seeds of delays, with each of which every mutant of a plan must be found
	$(GO) test -vet=off -timeout 60m -v ./tests/internal/fragile -fragile.seeds=$(DELAYS)

.PHONY: network
network: ## every outage between hosts, which are network namespaces: as root
	$(GO) test -vet=off -timeout 60m -v ./tests/internal/network -network.long

.PHONY: bench
bench: ## every collective over 4 ranks, 8 B to 64 MiB, checked
	$(GO) run ./cmd/shunt bench

.PHONY: bench-peers
bench-peers: deps-mpi ## against Open MPI in one run: bench/data/open_mpi.json and the tables of docs/benchmarks.md
	$(GO) build -o $(BIN)/ ./cmd/shunt
	$(BIN)/shunt bench-peers --rounds 7 --write bench/data/open_mpi.json
	$(GO) run ./internal/genpeers

# Where there is no GPU these build only: build/device holds all that a machine
# with GPUs needs, and DEVICE_STEPS are what its run.sh is asked for. Its session.sh
# does the same in parts of less than ten minutes: check, table, faults, loads, tune, diagnose.
DEVICE_STEPS ?=
.PHONY: device-build
device-build: python-calls
device-build: ## everything for a machine with GPUs, into build/device: run.sh, session.sh and their programs
	GO="$(GO)" bash scripts/device-build.sh

define device
	@if nvidia-smi -L 2>/dev/null | grep '^GPU ' >/dev/null; then bash build/device/run.sh $(1); \
	else echo "no GPU here: take build/device to a machine that has some and run there:" \
	  "bash build/device/run.sh $(strip $(1))"; fi
endef

.PHONY: device-test
device-test: device-build ## build the tests for GPUs into build/device, and run them if there is a GPU
	$(call device,$(or $(DEVICE_STEPS),smoke conformance tests graphs faults fuzz kernels))

.PHONY: device-bench
device-bench: device-build
device-bench: ## the same for the benchmarks: against NCCL and torch, the carriers beside each other, counters
	$(call device,$(or $(DEVICE_STEPS),smoke bench carriers counters))

# The quick calls of the Python package, in C, for tests and whoever imports it from here.
.PHONY: python-calls
python-calls: $(CALLS) ## the extension module of the Python package, into python/shunt/

$(CALLS): python/shunt/_calls.c python/setup.py $(VENV)/.ready
	@$(call python-headers,$(VENV)/bin/python)
	cd python && $(VENV)/bin/python setup.py -q build_ext --inplace --force

.PHONY: conformance
conformance: ## the conformance suite over builtin:shm
	$(GO) run ./cmd/shunt conformance

# What `make test` and `make race-cuda` have a part of: other worlds for the carriers beside builtin, every type with
# every op at several sizes, and all types under the race detector (make conformance-full TEST_FLAGS=-race).
.PHONY: conformance-full
conformance-full: build ## the whole matrix of the conformance suite, over every transport that the tests have
	$(built) $(GO) test -count=1 -vet=off -timeout 12h $(TEST_FLAGS) ./tests/conformance -conformance.full

# The site and its pictures are made in an environment of their own.
DOCS := $(CURDIR)/.venv-docs

.PHONY: docs
docs: build $(DOCS)/.ready ## the site, into build/site; a broken link is an error
	$(GO) run ./internal/gendocs -reference docs/reference -shunt $(BIN)/shunt
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build -q

# A browser runs the search only on pages that a server sends, not on files.
.PHONY: docs-serve
docs-serve: build $(DOCS)/.ready ## the site with its search at http://127.0.0.1:8000, built anew when a page changes
	$(GO) run ./internal/gendocs -reference docs/reference -shunt $(BIN)/shunt
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs serve

.PHONY: plots
plots: $(DOCS)/.ready ## the pictures and the table of docs/benchmarks-cuda.md, from bench/data
	$(DOCS)/bin/python bench/plot.py

$(DOCS)/.ready: docs/requirements.txt
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call install,python3-venv); }
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install -q -r docs/requirements.txt
	touch $@

# What users install is built for glibc 2.28 and newer, by an environment of its own: a C compiler of the machine's,
# and zig as the linker.
WHEEL := $(CURDIR)/.venv-wheel
# For which processor: make wheel ARCH=aarch64 also builds on x86-64, and the other way round.
ARCH := $(shell uname -m)
# Versions of torch for which the wheel has the extension of shunt.torch: none, or with make release one of each minor
# version. Of each the headers and libraries are kept beside the environments: 0.5 GB.
TORCH_VERSIONS ?=
TORCH_HEADERS := $(HOME)/.cache/shunt/torch-headers
# And for which versions of CPython: unset, the one of PYTHON. PYTHONS has interpreters, or folders of their headers, of
# those that are not found by themselves (scripts/pythons.sh); Debian's and Ubuntu's headers are kept in PYTHON_HEADERS.
PYTHON_VERSIONS ?=
PYTHONS ?=
PYTHON_HEADERS ?= $(HOME)/.cache/shunt/python-headers

.PHONY: release
release: TORCH_VERSIONS = 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0
release: PYTHON_VERSIONS = 3.10 3.11 3.12 3.13 3.14 3.15
release: wheel tarball
release: ## what is published, into dist/: the archive, and the wheel with shunt.torch for each torch and CPython

.PHONY: portable
portable: $(WHEEL)/.ready ## bin/ and lib/ for other machines, glibc 2.28 or newer, into build/portable-ARCH
	PYTHON=$(WHEEL)/bin/python PORTABLE_ARCH=$(ARCH) sh scripts/portable.sh build/portable-$(ARCH)

.PHONY: wheel
wheel: portable ## the Python wheel, into dist/: package, libshunt.so, headers, command, plugins (ARCH=aarch64)
	@$(call python-headers,$(PYTHON))
	for version in $(TORCH_VERSIONS); do \
	  PYTHON=$(PYTHON) sh scripts/torch-headers.sh $(TORCH_HEADERS) $$version || exit 1; done
	PYTHON=$(WHEEL)/bin/python PORTABLE_ARCH=$(ARCH) PYTHON_VERSIONS="$(PYTHON_VERSIONS)" PYTHONS="$(PYTHONS)" \
	PYTHON_HEADERS=$(PYTHON_HEADERS) \
	  bash scripts/wheel.sh dist $(TORCH_VERSIONS:%=$(TORCH_HEADERS)/%)

# As root it also makes a Debian of another glibc in a directory and installs the wheel there (5 minutes).
.PHONY: wheel-test
wheel-test: TORCH_VERSIONS = $(TORCH_VERSION)
wheel-test: wheel ## install the wheel into fresh environments (venv, uv, other Debians) and use all of it
	TORCH_PYTHON=$(wildcard $(TORCH_VENV)/bin/python) PYTHON=$(PYTHON) UV=$(WHEEL)/bin/uv bash scripts/wheel-test.sh dist

# Each environment has the libraries of torch as links to one copy: 10 GB while it runs.
.PHONY: release-test
release-test: PYTHON_VERSIONS = 3.10 3.11 3.12 3.13 3.14
release-test: release ## install the release's wheel beside PyPI's torch under every CPython, with no compiler in reach
	PYTHONS="$(PYTHONS)" UV=$(WHEEL)/bin/uv bash scripts/wheel-test-torch.sh dist $(TORCH_VERSION) $(PYTHON_VERSIONS)

.PHONY: tarball
tarball: portable ## the archive for C and the command line, into dist/: prefix, manual pages, completion, install.sh
	PYTHON=$(WHEEL)/bin/python PORTABLE_ARCH=$(ARCH) sh scripts/tarball.sh dist

.PHONY: tarball-test
tarball-test: tarball ## install the archive, build against it by pkg-config and CMake, and remove it
	bash scripts/tarball-test.sh dist/shunt-*-linux-$(shell uname -m).tar.gz

$(WHEEL)/.ready: python/requirements-wheel.txt
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call install,python3-venv); }
	$(PYTHON) -m venv $(WHEEL)
	$(WHEEL)/bin/pip install -q -r python/requirements-wheel.txt
	touch $@

.PHONY: clean
clean: ## remove what was built
	rm -rf bin build dist $(CALLS)

# ---- what the targets need ---------------------------------------------------

.PHONY: deps
deps: deps-mpi deps-proto python-deps python-calls $(BIN)/golangci-lint
deps: ## install everything that the other targets need

# install installs Debian packages; debian does where something does not work: $(call debian,COMMAND LINE,packages).
# What is tried is what is used: a compiler may be there without its headers.
install = echo "installing $(1)"; if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
  $$sudo apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive \
  $$sudo apt-get install -o DPkg::Lock::Timeout=300 -y -q --no-install-recommends $(1) >/dev/null
python-headers = $(1) -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || \
  { $(call install,python3-dev); }
debian = @{ $(1); } >/dev/null 2>&1 || { $(call install,$(2)); }

.PHONY: deps-mpi
deps-mpi:
	$(call debian,echo '#include <mpi.h>' | mpicc -x c -fsyntax-only - && mpirun --version,openmpi-bin libopenmpi-dev)

# Without it tests of transports/ucx are skipped, by name. Not grep -q, which ends while ldconfig still writes: that
# fails the pipe.
.PHONY: deps-ucx
deps-ucx:
	@ldconfig -p | grep 'libucp\.so\.0' >/dev/null || { $(call install,libucx0); } || true

.PHONY: deps-proto
deps-proto:
	$(call debian,protoc --version,protobuf-compiler)

.PHONY: deps-lint
deps-lint: $(BIN)/golangci-lint

$(BIN)/golangci-lint:
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

.PHONY: python-deps
python-deps: $(VENV)/.ready

# The venv module of Debian's Python is a package of its own.
$(VENV)/.ready: python/requirements-dev.txt
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call install,python3-venv); }
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q -r python/requirements-dev.txt
	touch $@
