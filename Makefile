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
# Tests start hundreds of processes: without kept bytecode each would compile the package's sources,
# and pytest rewrite all of its modules. Some containers set this.
unexport PYTHONDONTWRITEBYTECODE
# Given, plain pytest is run with them: make test PYTEST_ARGS="-q tests/client/test_cli.py -k json"
PYTEST_ARGS ?=
# Each file runs in one of a few processes, in their order; all of the page (a browser and the service), and all of
# the cluster, in the same one (tests/support/process_groups.py). Many tests wait for a process: one process
# of tests more than there are cores, five at most.
PROCESSES = $(shell $(BIN)/python -c 'import os; print(min(5, 1 + (os.cpu_count() or 1)))')
# Processes that compile kernels, half a gigabyte each.
CORES = $(shell $(BIN)/python -c 'import os; print(min(4, os.cpu_count() or 1))')
SHARED = -n $(PROCESSES) --dist loadfile --no-loadscope-reorder
BENCH_ARGS ?=
# How long the searches of test-all last: random expressions, minutes of random requests, kills.
# Those of test-deep are short; tests/conftest.py says how short.
TEXTS ?= 1000000
API_MINUTES ?= 2
KILLS ?= 24

FROZEN ?= .build/frozen.json

# Levels of processors of make wheel-kernels; what is built of them, for trials ("points, euclidean").
LEVELS ?= all
KINDS ?=

.PHONY: help demo test test-deep test-all test-image frozen browser lint format bench results docs clean distclean \
	wheel wheel-kernels

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## match two photographs pixel by pixel; writes demo-out/
	@echo "==> bigsap demo"
	$(BIN)/bigsap demo --out demo-out

test: $(VENV)/.installed-dev browser ## lint, types, layers, all tests that are not slow
	@echo "==> compiling the kernels, beside the linters (a minute or two the first time, then nothing)"
	@mkdir -p .build; $(BIN)/bigsap warmup --processes $(CORES) >.build/warmup.log 2>&1 & warmup=$$!; \
	$(MAKE) --no-print-directory lint || { wait $$warmup; exit 1; }; \
	wait $$warmup || { cat .build/warmup.log; exit 1; }; tail -n 1 .build/warmup.log
ifdef PYTEST_ARGS
	@echo "==> tests"
	$(BIN)/python -m pytest $(PYTEST_ARGS)
else
	@echo "==> tests, side by side"
	$(BIN)/python -m pytest -q $(SHARED) -m "not slow"
endif

test-deep: $(VENV)/.installed-dev browser ## the slow tests: more cases, kills, loads
	@echo "==> mypy --platform darwin and win32, whole, side by side"; \
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/whole-darwin & darwin=$$!; \
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/whole-win32 || { wait $$darwin; exit 1; }; \
	wait $$darwin
	@echo "==> slow tests, side by side"
	$(BIN)/bigsap warmup
	$(BIN)/python -m pytest -q $(SHARED) -m slow

test-all: lint browser ## all tests with other random examples in each run, long searches, mutations (hours)
	$(BIN)/bigsap warmup
	BIGSAP_TEST_PROFILE=random $(BIN)/python -m pytest -q --api-minutes=$(API_MINUTES) --kills=$(KILLS) \
		$(SHARED)
	$(BIN)/python tests/support/expression_fuzz.py --texts $(TEXTS)
	$(BIN)/python tests/support/mutations.py

# make frozen on main, then on a branch: a refactoring says what it changed of these, and why.
frozen: $(VENV)/.installed-dev ## freeze what 1,000 solves give and count; later compare with that
	@mkdir -p .build; how=write; [ ! -e $(FROZEN) ] || how=compare; \
	echo "==> $$how $(FROZEN)"; $(BIN)/python tests/support/frozen.py $$how $(FROZEN)

# Needs no Docker and no daemon: buildah builds, unshare and chroot run. Root, since both do.
test-image: $(VENV)/.installed-dev ## both images really built and run; buildah, root, ten minutes
	@if ! command -v buildah >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "==> installing buildah and debootstrap"; \
			apt-get update -q && DEBIAN_FRONTEND=noninteractive \
				apt-get install -y -q --no-install-recommends buildah debootstrap; \
		else echo "make test-image needs buildah, and there is none" \
			"(sudo apt-get install buildah debootstrap)" >&2; exit 1; fi; fi
	@[ "$$(id -u)" = 0 ] || { echo "make test-image must be run by root (sudo make test-image)" >&2; exit 1; }
	BIGSAP_TEST_IMAGE=built $(BIN)/python -m pytest -s -v tests/docs/test_images.py

# The page's tests drive a real browser; where none can be had they are skipped, saying so.
browser: ## Debian's chromium, installed when absent and permitted
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
		|| command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "==> installing chromium"; \
		{ apt-get update -q && DEBIAN_FRONTEND=noninteractive \
			apt-get install -y -q --no-install-recommends chromium; } \
			|| echo "no chromium: the tests of the web page will be skipped" >&2; \
	else echo "no chromium: the tests of the web page will be skipped" \
		"(sudo apt-get install chromium)" >&2; fi

lint: $(VENV)/.installed-dev ## ruff, mypy, import-linter, codespell, rules of English
	@echo "==> ruff check";  $(BIN)/ruff check .
	@echo "==> ruff format --check"; $(BIN)/ruff format --check .
	@echo "==> mypy"; $(BIN)/mypy --platform linux --cache-dir .mypy_cache/linux
	@for system in darwin win32; do \
		echo "==> mypy --platform $$system, for what exists on some systems only"; \
		$(BIN)/mypy --platform $$system --cache-dir .mypy_cache/$$system \
			--config-file tests/support/platforms.ini || exit 1; done
	@echo "==> lint-imports"; $(BIN)/lint-imports --no-cache
	@echo "==> codespell"; $(BIN)/codespell
	@echo "==> plain English"; $(BIN)/python tests/support/plain_english.py

format: $(VENV)/.installed-dev ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev ## benchmarks (an hour and a half; not part of test)
	@echo "==> benchmarks"
	$(PIP) install -r tests/bench/peers.txt
	$(BIN)/python -m benchmarks --out .build/bench $(BENCH_ARGS)

results: $(VENV)/.installed-dev ## all tables of tests/bench/RESULTS.md (an hour and a half, a quiet machine)
	$(PIP) install -r tests/bench/peers.txt
	$(BIN)/bigsap warmup
	$(BIN)/python -m benchmarks --out .build/results --to tests/bench --stamp $(BENCH_ARGS)

wheel: $(VENV)/bin/python ## a pure wheel in dist/: any system, kernels compile at the first solve
	$(PIP) wheel --no-deps --wheel-dir dist .

wheel-kernels: $(VENV)/.installed-dev ## a wheel with kernels in dist/, for this Python, numba and x86-64 Linux
	@rm -rf .build/wheel
	BIGSAP_WHEEL_KERNELS=$(LEVELS) BIGSAP_WHEEL_KINDS="$(KINDS)" \
		$(PIP) wheel --no-deps --wheel-dir .build/wheel .
	$(BIN)/python .ci/tag_wheel.py .build/wheel/*.whl --to dist

docs: $(VENV)/.installed-dev ## the site, in .build/site (open index.html); warnings are errors
	@echo "==> docs"
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs .build/site

clean: ## remove what runs leave behind, keep .venv
	rm -rf build dist demo-out bigsap-bench .build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf ./*.egg-info
	find bigsap benchmarks tests examples server -name __pycache__ -type d -prune -exec rm -rf {} +

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
	# Bytecode of what is imported comes with its import: that is a third of what installing takes.
	$(PIP) install --no-compile -e ".[demo]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo '==> installing bigsap[dev]'
	$(PIP) install -e ".[dev]"
	@touch $@
