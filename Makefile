# Two commands do everything, each with its own set-up: `make demo` and `make test`.
# PYTHON chooses the interpreter (3.11 or newer); OUT chooses where the demo's report goes.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   := .venv
BIN    := $(VENV)/bin
OUT    ?=
BOUNDED ?= tests/simulation
RUN_IN_PARALLEL ?= -n 2

.PHONY: demo test test-all lint types test-bounds clean

demo: $(VENV)/.installed
	$(BIN)/skidpad demo $(if $(OUT),--out $(OUT))

test: lint types
	$(BIN)/pytest $(RUN_IN_PARALLEL) -m "not slow"

test-all: lint types
	$(BIN)/pytest $(RUN_IN_PARALLEL)
	$(MAKE) test-bounds

# Compiled kernels read out of range without a word; here every index is checked, in a kernel cache of its own.
# BOUNDED chooses the tests: all of the simulator's by default, which compiles every kernel once more.
test-bounds: $(VENV)/.installed-dev
	NUMBA_BOUNDSCHECK=1 $(BIN)/pytest $(RUN_IN_PARALLEL) -m "not slow" $(BOUNDED)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests scripts
	$(BIN)/ruff format --check src tests scripts

types: $(VENV)/.installed-dev
	$(BIN)/mypy

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Skidpad needs Python 3.11 or newer: make PYTHON=/path/to/python"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Skidpad needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	@echo "installing Skidpad and what it needs into $(VENV), once (a few minutes, mostly torch)"
	$(BIN)/pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml
	@echo "installing Skidpad and its development tools into $(VENV), once"
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
