# `make` lists the targets. All of them work in the project's own .venv, which they create.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/ready ## Run the whole pipeline on generated data and print what came out
	$(BIN)/lakehouse demo

test: $(VENV)/ready ## Run all tests
	$(BIN)/python -m pytest

test-fast: $(VENV)/ready ## Run the tests that need no Java
	$(BIN)/python -m pytest -m "not jvm"

test-kills: $(VENV)/ready ## Kill the driver at 50 seeded points
	LAKEHOUSE_KILLS=50 $(BIN)/python -m pytest tests/bronze/test_kills.py

nightly: $(VENV)/ready ## Run all tests, and kill the driver at 200 points
	LAKEHOUSE_KILLS=200 $(BIN)/python -m pytest

lint: $(VENV)/ready ## Check style, types, the direction of imports, SQL
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/sqlfluff lint dbt_project

lock: $(VENV)/ready ## Resolve requirements.lock again from pyproject.toml
	$(BIN)/uv pip compile --universal --python-version 3.10 --generate-hashes --all-extras \
		--no-annotate --no-header pyproject.toml -o requirements.lock

clean: ## Delete the environment and what tools have left
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 12))' || \
		{ echo "Python 3.10, 3.11 or 3.12 is needed; name one: make PYTHON=python3.12 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip sync --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --editable .
	@touch $@

.PHONY: help demo test test-fast test-kills nightly lint lock clean
