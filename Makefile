# Everything runs in .venv, made on first use from constraints.txt. `make` alone lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
.DEFAULT_GOAL := help
.PHONY: help setup browser demo test test-all test-robust test-kernels test-mutants coverage lint lock wheel clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

$(VENV)/ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: '$(PYTHON)' was not found; install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "make: saccade needs Python 3.11 or newer, got $$($(PYTHON) -V); choose another: make PYTHON=python3.12 demo"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: '$(PYTHON)' comes without venv; install it (Debian: apt-get install python3-venv)"; exit 1; }
	@echo "Setting up $(VENV) (once; a few minutes, most of it PyTorch)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]' || { echo "make: the installation failed; the lines above say why (no network? no space?). Run make again to continue."; exit 1; }
	@touch $@

setup: $(VENV)/ready ## set up .venv

browser: $(VENV)/ready ## a Chromium for the tests of pages, where there is none yet
	@{ command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null || $(BIN)/playwright install chromium || echo "make: no Chromium could be fetched; the tests of pages are skipped (Debian: apt-get install chromium)"

demo: $(VENV)/ready ## train two translators, compare them, draw where one looks (about two minutes)
	@$(BIN)/saccade demo

test: browser ## the tests (under 8 minutes on 2 cores)
	@echo "Running the tests (a few minutes on 2 cores)"
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q

test-all: browser ## the slow tests too
	@$(BIN)/python -m pytest -n 2 --dist worksteal -q -m 'not robust'

test-robust: $(VENV)/ready ## kills, failing disks, hostile files (15 minutes on 2 cores); the counts go to benchmarks/results/robust.json
	@counts=$$(mktemp) && { ROBUST_COUNTS=$$counts $(BIN)/python -m pytest -n 2 --dist worksteal -q -m 'robust or not robust' tests/robust; code=$$?; \
	$(BIN)/python tests/robust/record.py $$counts; rm -f $$counts; exit $$code; }

test-kernels: $(VENV)/ready ## the Triton kernels against eager, on a GPU or in Triton's interpreter; the counts go to benchmarks/results/
	@$(BIN)/python tests/kernels/record.py

test-mutants: $(VENV)/ready ## does a test fail when a line is wrong? (about an hour; continues where it was stopped; writes benchmarks/results/mutants.json)
	@$(BIN)/python tests/mutants/run.py

coverage: $(VENV)/ready ## run the tests and print which share of each package's lines they run (about twice as long as `make test`)
	@rm -rf .coverage; mkdir .coverage; code=0; $(BIN)/python -m pytest -n 2 --dist worksteal -q --cov --cov-report= $(TESTS) || code=$$?; \
	$(BIN)/python scripts/coverage_table.py && exit $$code

lint: $(VENV)/ready ## the linter and the type checker
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

lock: $(VENV)/ready ## write uv.lock after pyproject.toml has changed, and export constraints.txt, requirements.lock, serve.lock, sbom.json (needs the network)
	@$(BIN)/python scripts/lock.py

wheel: $(VENV)/ready ## build the wheel into dist/, the same bytes from the same commit
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -c "from setuptools import build_meta; print('dist/' + build_meta.build_wheel('dist'))"

clean: ## remove .venv and caches (runs/ stays)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info
