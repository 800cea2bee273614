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

# Everything is compiled as libshunt.so is, so that nothing is compiled twice.
export GOFLAGS := $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath

# How long each fuzzer of `make fuzz` runs.
FUZZTIME ?= 30s
# Packages of the Go tests; `make test PKG=./host/selector` runs one.
PKG ?= ./...
# What else `go test` gets, as in `make test TEST_FLAGS=-v`.
TEST_FLAGS ?=

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## the shunt command and libshunt.so, into bin/
	$(GO) build -o $(BIN)/ ./cmd/shunt
	sh capi/build.sh $(BIN)/libshunt.so

.PHONY: install
install: build ## libshunt.so, headers, pkg-config and CMake files, under DESTDIR and PREFIX
	sh capi/install.sh $(BIN)/libshunt.so

# The tests run one package at a time: their ranks are processes that compete for
# the CPUs, and some tests look for what processes leave behind. So that they are
# not compiled one at a time too, they are compiled before, in the same way: these
# are the flags and packages. `make check` vets.
compile = $(GO) list -e -test -deps -export -f '' $(1) >/dev/null

# A failing test in Go must not hide one in Python.
.PHONY: test
test: build python-calls ## every test: Go, C and Python
	$(call compile,$(PKG))
	@status=0; set -x; \
	$(built) SHUNT_PYTHON=$(VENV)/bin/python $(GO) test -p 1 -vet=off -timeout 15m $(TEST_FLAGS) $(PKG) || status=1; \
	($(pytest)) || status=1; exit $$status

# Tests use what build has built: libshunt.so takes long, as go build compiles the C
# of a shared library anew each time.
built = SHUNT_LIBRARY=$(BIN)/libshunt.so SHUNT_COMMAND=$(BIN)/shunt
pytest = cd python && $(built) $(VENV)/bin/python -m pytest -q

.PHONY: test-python
test-python: build python-calls ## the tests of the Python package
	$(pytest)

.PHONY: race
race: ## the Go tests under the race detector
	$(call compile,-race $(PKG))
	$(GO) test -p 1 -race -vet=off -timeout 25m $(TEST_FLAGS) $(PKG)

# What runs on GPUs, on the driver in memory; the emulator of kernels is C++. `make race`
# has the faults and the rules too, which take as long again.
RACE_CUDA = ./cuda/... ./host/... $$($(GO) list ./transports/cudaipc/... | grep -v /emulate) ./tests/internal/device

.PHONY: race-cuda
race-cuda: race-cuda-compile ## the GPUs' host side under the race detector, without a GPU
	$(GO) test -p 1 -race -vet=off -timeout 15m $(RACE_CUDA)
	$(GO) test -race -vet=off -timeout 10m -run Cudaipc ./tests/conformance

.PHONY: race-cuda-compile
race-cuda-compile:
	$(call compile,-race $(RACE_CUDA) ./tests/conformance)

.PHONY: check
check: fmt-check width-check mod-check vet lint generate-check images-check python-calls ## format, width of lines, modules, vet, linters, generated code and images, warnings of the extension

.PHONY: fmt
fmt: ## format the Go code in place
	gofmt -w $$(git ls-files '*.go')

.PHONY: fmt-check
fmt-check: ## list Go files that are not formatted
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi

.PHONY: width-check
width-check: ## list lines of Go and Markdown of more than 120 characters
	sh scripts/check-width.sh

.PHONY: mod-check
mod-check: ## fail when go.mod and go.sum are not what go mod tidy writes
	$(GO) mod tidy -diff

.PHONY: vet
vet: ## go vet
	$(GO) vet -unsafeptr=false ./...

.PHONY: lint
lint: $(BIN)/golangci-lint ## golangci-lint, staticcheck included
	$(BIN)/golangci-lint run ./...

.PHONY: generate
generate: proto notices ## write every generated file
	$(GO) run ./internal/gentables
	$(GO) run ./internal/gendocs

.PHONY: notices
notices: ## write THIRD_PARTY_NOTICES, the licenses of what is linked
	$(GO) run ./internal/gennotices

.PHONY: proto
proto: deps-proto ## write the Go code of plugin/proto
	sh scripts/proto.sh

.PHONY: generate-check
generate-check: generate ## fail when a generated file is not what the generators write
	@changed=$$(git status --porcelain -- plugin/tables_gen.go plugin/shunt_tables.h python/shunt/_tables.py plugin/proto docs/options.md docs/transport-author.md THIRD_PARTY_NOTICES); \
	if [ -n "$$changed" ]; then echo "generated files differ (commit what make generate wrote):"; echo "$$changed"; exit 1; fi

# Minutes for all images, so a few stand for them: what has the sums of its sources
# was made of them, or of none. `transports/cudaipc/kernels/compile --check` is all.
.PHONY: images-check
images-check: python-deps ## fail when the images of kernels are not what the compiler makes of their sources
	transports/cudaipc/kernels/compile --sums
	transports/cudaipc/kernels/compile --check float32
	cmd/shunt/internal/bench/kernels/compile --check

.PHONY: fuzz
fuzz: ## run every fuzzer for FUZZTIME
	GO="$(GO)" bash scripts/fuzz.sh $(FUZZTIME)

# Faults of the storm; `make test` has 16.
STORM ?= 500
.PHONY: storm
storm: ## STORM random faults in random worlds, of which every survivor must name the cause
	$(GO) test -vet=off -timeout 60m -run '^TestStorm$$' -v ./tests/internal/faults -faults.storm=$(STORM)

# Seeds of the delays that each mutant is run with; `make test` has two.
DELAYS ?= 20
.PHONY: delays
delays: ## DELAYS seeds of delays, with each of which every mutant of a plan must be found
	$(GO) test -vet=off -timeout 60m -v ./tests/internal/fragile -fragile.seeds=$(DELAYS)

.PHONY: bench
bench: ## every collective over 4 ranks, 8 B to 64 MiB, checked
	$(GO) run ./cmd/shunt bench

.PHONY: bench-peers
bench-peers: deps-mpi ## against Open MPI in one run; rewrites the table of docs/benchmarks.md
	$(GO) build -o $(BIN)/ ./cmd/shunt
	$(BIN)/shunt bench-peers --rounds 7 --write docs/benchmarks.md

# Where there is no GPU these build only: build/device holds all that a machine
# with GPUs needs, and DEVICE_STEPS are what its run.sh is asked for. Its session.sh
# does the same in parts of less than ten minutes: check, table, faults, loads, tune, diagnose.
DEVICE_STEPS ?=
.PHONY: device-build
device-build: python-calls ## everything for a machine with GPUs, into build/device: run.sh, session.sh and their programs
	GO="$(GO)" bash scripts/device-build.sh

define device
	@if nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then bash build/device/run.sh $(1); \
	else echo "no GPU here: take build/device to a machine that has some and run there: bash build/device/run.sh $(strip $(1))"; fi
endef

.PHONY: device-test
device-test: device-build ## build the tests for GPUs into build/device, and run them if there is a GPU
	$(call device,$(or $(DEVICE_STEPS),smoke conformance tests graphs faults fuzz kernels))

.PHONY: device-bench
device-bench: device-build ## the same for the benchmarks: against NCCL and torch, the carriers beside each other, counters
	$(call device,$(or $(DEVICE_STEPS),smoke bench carriers counters))

# The quick calls of the Python package, in C, for tests and whoever imports it from here.
.PHONY: python-calls
python-calls: $(CALLS) ## the extension module of the Python package, into python/shunt/

$(CALLS): python/shunt/_calls.c python/setup.py $(VENV)/.ready
	@$(VENV)/bin/python -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null || { $(call install,python3-dev); }
	cd python && CFLAGS=-Werror $(VENV)/bin/python setup.py -q build_ext --inplace --force

.PHONY: conformance
conformance: ## the conformance suite over builtin:shm
	$(GO) run ./cmd/shunt conformance

# The site and its pictures are made in an environment of their own.
DOCS := $(CURDIR)/.venv-docs

.PHONY: docs
docs: build $(DOCS)/.ready ## the site, into build/site; a broken link is an error
	$(GO) run ./internal/gendocs -reference docs/reference -shunt $(BIN)/shunt
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build -q

.PHONY: plots
plots: $(DOCS)/.ready ## the pictures and the table of docs/benchmarks-cuda.md, from bench/data
	$(DOCS)/bin/python bench/plot.py

$(DOCS)/.ready: docs/requirements.txt
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call install,python3-venv); }
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install -q -r docs/requirements.txt
	touch $@

.PHONY: wheel
wheel: build python-deps ## the Python wheel, into dist/
	SHUNT_LIBRARY=$(BIN)/libshunt.so $(VENV)/bin/python -m build --wheel --no-isolation --outdir dist python

.PHONY: clean
clean: ## remove what was built
	rm -rf bin build dist $(CALLS)

# ---- what the targets need ---------------------------------------------------

.PHONY: deps
deps: deps-mpi deps-proto python-deps python-calls $(BIN)/golangci-lint ## install everything that the other targets need

# install installs Debian packages; debian does where something does not work: $(call debian,COMMAND LINE,packages).
# What is tried is what is used: a compiler may be there without its headers.
install = echo "installing $(1)"; if [ "$$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi; \
  $$sudo apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive $$sudo apt-get install -y -q --no-install-recommends $(1) >/dev/null
debian = @{ $(1); } >/dev/null 2>&1 || { $(call install,$(2)); }

.PHONY: deps-mpi
deps-mpi:
	$(call debian,echo '#include <mpi.h>' | mpicc -x c -fsyntax-only - && mpirun --version,openmpi-bin libopenmpi-dev)

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
