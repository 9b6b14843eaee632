# make demo: install, then run the main job on real input.   make test: install, then every check.
# FLAGS goes to `ancre start`, as in make demo FLAGS='--seeds 0'.
# PYTHON picks the interpreter; the first of these that is 3.11 or newer is taken where it is not given.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN := .venv/bin
INSTALLED := .venv/installed
export OMP_NUM_THREADS ?= 1

.PHONY: install demo test lint types benchmarks

install: $(INSTALLED)

# A torch that is already in .venv is kept, so a GPU build can be installed there first.
$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "ancre needs Python 3.11 or newer: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (about 3 GB, a few minutes)"
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/pip install -q torch==2.13.0
	@$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(INSTALLED)
	$(BIN)/ancre start demo demo_linear $(FLAGS)
	$(BIN)/ancre query best demo --top 5
	$(BIN)/ancre query topology demo
	$(BIN)/ancre report demo demo_linear

test: $(INSTALLED) lint types
	$(BIN)/pytest

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(INSTALLED)
	$(BIN)/mypy
