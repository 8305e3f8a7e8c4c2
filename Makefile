# Two commands matter: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := asdi dcp xmlswitch dht peer pipeline demo bench tests

DEMO_ARGS ?=
# Commands start from compiled files, whatever the shell says: tests and the demo start many.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint types unit soak fuzz bench format clean
help:
	@echo 'make demo    a mesh of real processes on this machine, with a live page'
	@echo 'make test    lint, types and tests (minutes)'
	@echo 'make soak    the long seeded campaigns (an hour or more)'
	@echo 'make fuzz    coverage-guided fuzzing of every decoder (FUZZ_SECONDS each, 60)'
	@echo 'make bench   every benchmark, printed as tables'
	@echo 'make format  rewrite the source in the house format'
	@echo 'make clean   remove the virtual environment and caches'

$(VENV)/.dev: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skymesh needs Python 3.11 or later; call make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

# Only what the demo needs: a stranger waits for no Spark. Where the developer's set-up is, it has all that, too.
$(VENV)/.demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skymesh needs Python 3.11 or later; call make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[demo]'
	touch $@

demo: $(VENV)/.demo
	@$(BIN)/python -m demo $(DEMO_ARGS) || test $$? -eq 130  # Ctrl-C is how it ends

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

FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

bench: $(VENV)/.dev
	$(BIN)/python -m bench --all

format: $(VENV)/.dev
	$(BIN)/python -m peer.cli.reference
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
