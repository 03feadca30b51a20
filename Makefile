# Every target does all of its own set-up, on Debian 12+ and Ubuntu 24.04+, as root or with sudo: system packages, .venv, build.
#   make build   BPF objects and native module, in place; `.venv/bin/tracehound` then runs this checkout
#   make demo    trace a small shop of several processes
#   make test    all tests; TESTS=tests/protocols for some
#   make compiled  build/compiled: the package with its parsers compiled, as in a wheel
#   make check   formats, lints, types, layers, spelling
#   make vm      programs and rows on kernels from 5.10 to the newest, emulated
#   make bench   every claim of speed, as ratios and gates
#   make soak    10,000 times points attached and detached, then 10 million seeded inputs for parsers, streams, drain
#   make wheel   dist/*.whl that needs no compiler and no libbpf where it is installed

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := build
.PHONY: build demo test test-compiled compiled check ruff mypy layers clang-format codespell vm bench soak wheel try-wheel clean build-packages test-packages bench-packages vm-packages

PYTHON ?= /usr/bin/python3
VENV ?= .venv
TESTS ?= tests
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)
BIN := $(VENV)/bin

NATIVE := src/tracehound/native/_native.abi3.so
NATIVE_C := $(filter-out %/_native.c,$(wildcard src/tracehound/native/*.[ch]))
BPF_C := $(wildcard bpf/*.c bpf/include/*.h bpf/l7/*.h)
PYTHON_CODE := src tests bench demo docs release setup.py
CREATED := $(VENV)/.created
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip install -q --disable-pip-version-check

build: $(INSTALLED)

# .venv with what the build needs, then BPF objects and native module in place, then the rest and .venv/bin/tracehound.
$(CREATED): | build-packages
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: make PYTHON=/path/to/python3"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) 'setuptools>=77' 'cffi>=1.16'
	touch $@

$(NATIVE): $(NATIVE_C) $(BPF_C) setup.py src/tracehound/native/build.py | $(CREATED)
	CFLAGS=-Werror $(BIN)/python setup.py -q build_ext --inplace --force
	touch $@

$(INSTALLED): pyproject.toml | $(NATIVE)
	$(PIP) --no-build-isolation -e '.[dev]'
	touch $@

build-packages:
	@.ci/packages build

test-packages:
	@.ci/packages build test

bench-packages:
	@.ci/packages build bench

vm-packages:
	@.ci/packages build vm

DEMO_QUERY := select service, peer_service, status, count(*) as requests, \
	round(quantile_cont(duration_ns, 0.95) / 1e6, 1) as p95_ms, sum(response_bytes)::bigint as bytes_in \
	from requests where role = 'client' group by all order by requests desc

demo: build
	$(SUDO) $(BIN)/tracehound run -- $(BIN)/python demo/shop.py
	@echo "$$ tracehound query last \"$(DEMO_QUERY)\""
	@$(BIN)/tracehound query last "$(DEMO_QUERY)"

# Without root, tests/live is run a second time through sudo: as the user it skips, with the reason.
test: build compiled test-packages
	$(BIN)/python -m pytest $(TESTS)
ifeq ($(TESTS),tests)
	@$(MAKE) --no-print-directory test-compiled
endif
ifneq ($(SUDO),)
	$(SUDO) env PYTHONDONTWRITEBYTECODE=1 $(BIN)/python -m pytest -p no:cacheprovider tests/live
endif

# The package as a wheel has it, parsers compiled by mypyc, and the tests of what is compiled.
COMPILED := build/compiled/.built
PARSERS := $(wildcard src/tracehound/*.py src/tracehound/protocols/*.py src/tracehound/decode/*.py)

compiled: $(COMPILED)

$(COMPILED): $(PARSERS) $(NATIVE) setup.py | $(INSTALLED)
	rm -rf build/compiled
	$(BIN)/python setup.py -q build --build-lib build/compiled
	touch $@

test-compiled: compiled
	TRACEHOUND_FORM=compiled PYTHONPATH=build/compiled $(BIN)/python -m pytest -p no:cacheprovider tests/test_forms.py tests/protocols tests/decode

# Kernels are fetched from the archives that apt knows here, cached in build/vm; VM="6.1 newest" runs some only.
vm: build vm-packages
	$(SUDO) env PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 $(BIN)/python -m tests.vm $(VM)

# A padding hole in a record, or a warning of clang, fails `build`.
check: build ruff mypy layers clang-format codespell

ruff: build
	$(BIN)/ruff check $(PYTHON_CODE)
	$(BIN)/ruff format --check $(PYTHON_CODE)

mypy: build
	$(BIN)/mypy

layers: build
	$(BIN)/lint-imports

clang-format: build
	$(BIN)/clang-format --dry-run -Werror $(BPF_C) $(NATIVE_C)

codespell: build
	$(BIN)/codespell $(wildcard *.md) Makefile pyproject.toml .ci bpf docs demo release src tests bench

bench: build compiled bench-packages
	$(SUDO) $(BIN)/python -m bench

# SOAK="--minutes 5 --seed 2" for another run than that to 10 million.
soak: build
	$(SUDO) nice -n 19 $(BIN)/python -m tests.soak.attach_cycles
	nice -n 19 $(BIN)/python -m tests.soak --jobs $$(nproc) $(SOAK)

wheel: build
	$(BIN)/python release/wheel.py

# The wheel of `make wheel` alone: an empty environment, compilers, headers and libbpf hidden.
try-wheel: wheel
	$(BIN)/python release/try_wheel.py

# What was built and cached; .venv stays.
clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	rm -f src/tracehound/native/*.so src/tracehound/native/*.o src/tracehound/native/_native.c src/tracehound/bpf/*.bpf.o
	find src tests bench demo docs release -name __pycache__ -type d -prune -exec rm -rf {} +
