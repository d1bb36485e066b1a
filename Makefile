# Every target sets up what it needs: a virtual environment in $(VENV), from pyproject.toml.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=
# One thread a process, one process a core: the tests are many and small.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

# A path in site-packages and no import hook, through which type checkers do not see.
EDITABLE := --config-settings editable_mode=compat -e

# Compiled modules are kept between the many processes, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test slow thorough test-flower flower-demo docs lint types dist notebooks pair check clean

run: $(VENV)/.installed  ## the first run: eight sites of the embedded data set join, search, tune, train, are audited
	$(BIN)/panas run $(ARGS)

test: $(VENV)/.installed-dev  ## the quick tests
	$(PYTEST) -m "not slow and not thorough and not flower" $(ARGS)

slow: $(VENV)/.installed-dev  ## the tests that the quick ones leave out
	SHAPES=unchecked $(PYTEST) -m "slow and not thorough and not flower" $(ARGS)

thorough: $(VENV)/.installed-dev  ## long tests and further cases, which CI leaves out
	SHAPES=unchecked $(PYTEST) -m "thorough and not flower" $(ARGS)

test-flower: $(VENV)/.installed-dev  ## a federation of real processes on this machine, over Flower
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m flower tests/flower $(ARGS)

flower-demo: $(VENV)/.installed-dev  ## a hub and three sites with processes of their own, over TLS
	OMP_NUM_THREADS=1 $(BIN)/panas deploy demo

docs: $(VENV)/.installed-dev  ## the documentation site, into build/site; any warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

lint: $(VENV)/.installed-dev  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/hadolint --failure-threshold warning docker/Dockerfile

types: $(VENV)/.installed-dev  ## static types
	$(BIN)/mypy

dist: $(VENV)/.installed-dev  ## a source distribution, and the wheel made of it
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

notebooks: $(VENV)/.installed-dev  ## execute the notebooks
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --nbmake --nbmake-timeout=600 --timeout=900 notebooks

pair: $(VENV)/.installed-dev  ## after editing a notebook's script: make and execute the notebook
	$(BIN)/jupytext --to ipynb --set-kernel python3 notebooks/*.py
	$(BIN)/python -m pytest --nbmake --overwrite --nbmake-timeout=600 --timeout=900 notebooks

check: lint types test slow notebooks  ## all of it

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("panas needs Python >= 3.11, this is " + sys.version) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet $(EDITABLE) .
	touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet $(EDITABLE) ".[dev,notebooks]"
	touch $@ $(VENV)/.installed

clean:  ## remove the environment and the caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist *.egg-info
