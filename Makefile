# BigSAP: `make demo` and `make test` need only Python >= 3.11 (with venv) and make.
# Each creates .venv on its first run; a second run finds its stamp and starts at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The first interpreter that is new enough; override with `make PYTHON=/path/to/python test`.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo "$$p" && break; \
	done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
PYTEST_ARGS ?= -q

.PHONY: help demo test lint format bench clean distclean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## match two photographs pixel by pixel; writes demo-out/
	@echo "==> bigsap demo"
	$(BIN)/bigsap demo --out demo-out

test: lint ## lint, types, layers, tests: what CI runs
	@echo "==> tests"
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev ## ruff, mypy, import-linter
	@echo "==> ruff check";  $(BIN)/ruff check .
	@echo "==> ruff format --check"; $(BIN)/ruff format --check .
	@echo "==> mypy"; $(BIN)/mypy
	@echo "==> lint-imports"; $(BIN)/lint-imports --no-cache

format: $(VENV)/.installed-dev ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## benchmarks (minutes to hours; not part of test)
	@echo "==> benchmarks"
	@if [ -f tests/bench/requirements.txt ]; then $(PIP) install -r tests/bench/requirements.txt; fi
	$(BIN)/python tests/bench/run.py

clean: ## remove what runs leave behind, keep .venv
	rm -rf build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf ./*.egg-info
	find bigsap tests examples server -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## also remove .venv
	rm -rf $(VENV)

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then \
		echo "BigSAP needs Python 3.11 or newer, and none was found on PATH." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3.12 test" >&2; exit 1; fi
	@echo "==> creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "" >&2; \
		echo "Python could not create a virtual environment. On Debian and Ubuntu the module lives in" >&2; \
		echo "a package of its own: sudo apt install python3-venv   (or python3.X-venv), then try again." >&2; \
		exit 1; }

# pyproject.toml decides what is installed: the stamps follow it.
$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	@echo '==> installing bigsap[demo]'
	$(PIP) install -e ".[demo]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo '==> installing bigsap[dev]'
	$(PIP) install -e ".[dev]"
	@touch $@
