# Two commands matter: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := dcp xmlswitch dht peer pipeline demo bench tests

.PHONY: help test check lint types unit soak bench format clean
help:
	@echo 'make test    lint, types and tests (minutes)'
	@echo 'make soak    the long seeded campaigns (an hour or more)'
	@echo 'make bench   every benchmark, printed as tables'
	@echo 'make format  rewrite the source in the house format'
	@echo 'make clean   remove the virtual environment and caches'

$(VENV)/.dev: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skymesh needs Python 3.11 or later; call make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -m 'not soak' -n 2 --dist loadgroup $(PYTEST_ARGS)

check: lint types
test: check unit

soak: $(VENV)/.dev
	$(BIN)/python -m pytest -m soak -n 2 --timeout 0 $(PYTEST_ARGS)

bench: $(VENV)/.dev
	$(BIN)/python -m bench --all

format: $(VENV)/.dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
