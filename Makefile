# Two commands matter: `make demo` and `make test`. Both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := skymesh asdi dcp xmlswitch dht peer pipeline demo bench tests

# Tests of processes and sockets mostly wait: three workers keep two cores busy.
WORKERS ?= 3
# The versions that were tested. `make CONSTRAINTS= test` takes the newest that pyproject.toml allows.
CONSTRAINTS ?= -c constraints.txt
PIP := $(BIN)/pip install --quiet --disable-pip-version-check

DEMO_ARGS ?=
# Commands start from compiled files, whatever the shell says: tests and the demo start many.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check lint types unit soak fuzz bench format api wheel sbom lock clean
help:
	@echo 'make demo    a mesh of real processes on this machine, with a live page'
	@echo 'make test    lint, types and tests (minutes)'
	@echo 'make soak    the long seeded campaigns (an hour or more)'
	@echo 'make fuzz    coverage-guided fuzzing of every decoder (FUZZ_SECONDS each, 60)'
	@echo 'make bench   every benchmark, printed as tables'
	@echo 'make format  rewrite the source in the house format, and what is generated from it'
	@echo 'make api     the API reference as HTML, in build/api'
	@echo 'make wheel   build dist/*.whl, install it in an empty environment and run it'
	@echo 'make sbom    list what an install brings (CycloneDX JSON, build/sbom.json)'
	@echo 'make lock    write constraints.txt again, with the newest versions allowed'
	@echo 'make clean   remove the virtual environment and caches'

$(VENV)/.dev: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skymesh needs Python 3.11 or later; call make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade pip
	$(PIP) $(CONSTRAINTS) -e '.[dev]'
	touch $@

# Only what the demo needs: a stranger waits for no Spark. Where the developer's set-up is, it has all that, too.
$(VENV)/.demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "skymesh needs Python 3.11 or later; call make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(CONSTRAINTS) -e '.[demo]'
	touch $@

demo: $(VENV)/.demo
	@$(BIN)/python -m demo $(DEMO_ARGS) || test $$? -eq 130  # Ctrl-C is how it ends

lint: $(VENV)/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

types: $(VENV)/.dev
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/python -m pytest -m 'not soak' -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

check: lint types
test: check unit

soak: $(VENV)/.dev
	$(BIN)/python -m pytest -m soak -n 2 --timeout 0 $(PYTEST_ARGS)

FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.dev
	$(PIP) $(CONSTRAINTS) -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ_SECONDS) $(FUZZ_TARGETS)

bench: $(VENV)/.dev
	$(BIN)/python -m bench --all

format: $(VENV)/.dev
	$(BIN)/python -m peer.cli.reference
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

api: $(VENV)/.dev
	$(BIN)/python docs/reference.py build/api
	@echo 'open build/api/index.html'

wheel: $(VENV)/.dev
	$(PIP) build
	rm -rf dist build/wheel
	$(BIN)/python -m build --wheel --sdist --outdir dist .
	$(PYTHON) -m venv build/wheel
	build/wheel/bin/pip install --quiet --disable-pip-version-check $(CONSTRAINTS) dist/*.whl
	cd build/wheel && bin/skymesh --version && bin/skymesh query check '/flight/id'

sbom: wheel
	$(PIP) cyclonedx-bom
	$(BIN)/cyclonedx-py environment --output-format JSON --output-file build/sbom.json build/wheel
	@echo build/sbom.json

lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/pip install --quiet --disable-pip-version-check -e '.[dev]'
	{ head -2 constraints.txt; build/lock/bin/pip freeze --exclude-editable; } > build/lock/constraints.txt
	mv build/lock/constraints.txt constraints.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
