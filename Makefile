# Two commands for a fresh machine with Python >= 3.10: `make build`, `make test`.
#
#   PYTHON       the Python to build the environment with (the tool chain itself needs 3.10 or 3.11)
#   TORCH_INDEX  an extra package index to take torch from, such as one with CPU-only wheels
#   JOBS         parallel test processes
#   PYTEST_ARGS  more arguments for pytest

PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
TORCH_INDEX ?=
PYTEST_ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
SPECS := $(wildcard specs/*.yaml)

.DEFAULT_GOAL := build
.PHONY: build test check lint types fast drift toolchain peers all-tests format clean distclean

build: $(VENV)/.core
	$(BIN)/kgen build specs/gdn.yaml

# The cheap answers first: a typo shouldn't cost a compile of every kernel.
test:
	$(MAKE) check
	$(MAKE) toolchain
	$(MAKE) peers
	$(MAKE) all-tests

# Everything that needs no tool chain.
check: $(VENV)/.test
	$(MAKE) lint
	$(MAKE) types
	$(MAKE) drift
	$(MAKE) fast

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.test
	$(BIN)/mypy

drift: $(VENV)/.core
	@set -e; for spec in $(SPECS); do echo "kgen build --check $$spec"; $(BIN)/kgen build --check $$spec; done

fast: $(VENV)/.test
	$(BIN)/pytest -m "not toolchain and not slow" -n $(JOBS) $(PYTEST_ARGS)

toolchain: $(VENV)/.core
	$(BIN)/kgen doctor --fix

# torch and fla-core beside the tool chain: what benches compare with, and a test of the timeline takes as input.
peers: $(VENV)/.core
	$(BIN)/kgen doctor --fix --peers $(if $(TORCH_INDEX),--torch-index $(TORCH_INDEX))

all-tests: $(VENV)/.test
	KGEN_REQUIRE_TOOLCHAIN=1 KGEN_REQUIRE_PEERS=1 $(BIN)/pytest -m "toolchain or slow" -n $(JOBS) $(PYTEST_ARGS)

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Stamps, so that a second run installs nothing. An install that was cut short leaves no stamp and starts again.
$(VENV)/.core: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "kgen needs Python >= 3.10; $(PYTHON) is older: make PYTHON=python3.11"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.core
	$(PIP) install $(INDEX) --editable '.[test,dev]'
	@touch $@

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
