# `make` lists the targets. They work in the project's own .venv, which they create if it is missing.
PYTHON ?= python3
# Processes that run the whole test suite. Each has its own Spark and broker, and needs about 4 GB.
PROCESSES ?= 2
VENV := .venv
BIN := $(VENV)/bin
SUPERSET := .superset
# The tests start hundreds of Python processes. Where nothing may write bytecode, each compiles every
# module that it imports again.
export PYTHONDONTWRITEBYTECODE :=

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/ready ## Run the whole pipeline on generated data and print the result
	$(BIN)/lakehouse demo

test: $(VENV)/ready ## Run all tests except the long ones
	$(BIN)/python -m pytest -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder

test-fast: $(VENV)/ready ## Run the tests that need no Java, PostgreSQL or dbt
	$(BIN)/python -m pytest -m "not jvm and not programs and not nightly" \
		-n $(PROCESSES) --dist loadgroup --no-loadscope-reorder

test-kills: $(VENV)/ready ## Kill the driver at 50 seeded points
	TEST_KILLS=50 $(BIN)/python -m pytest -m "" tests/bronze/test_kills.py

mutations: $(VENV)/ready ## Plant known faults one by one, each of which a test must catch
	$(BIN)/python tests/mutate.py

chaos: $(VENV)/ready ## Kill broker, driver, workers and dbt at random for ten minutes, under load
	TEST_CHAOS=600 $(BIN)/python -m pytest tests/e2e/test_chaos.py

soak: $(VENV)/ready ## Run `lakehouse up` under load for an hour, and check that nothing grows
	TEST_SOAK=3600 $(BIN)/python -m pytest -s tests/e2e/test_soak.py

test-s3: $(VENV)/ready ## Test a lake in a bucket of a real S3 server: kills, cluster, metastore, forget
	$(BIN)/python -m pytest -m s3

test-compose: $(VENV)/ready ## Run docker-compose.yaml with kills and a restart; needs Docker and root
	$(BIN)/python -m pytest -m nightly tests/e2e/test_compose_run.py

nightly: $(VENV)/ready ## Run all tests, also the long ones: every crash point, 200 kills, chaos, S3
	TEST_CRASH_POINTS=all TEST_ROUNDS=20 TEST_KILLS=200 TEST_CHAOS=600 \
		TEST_TRIGGERS=600 $(BIN)/python -m pytest -m "" \
		-n $(PROCESSES) --dist loadgroup --no-loadscope-reorder
	$(MAKE) mutations

bench-check: $(VENV)/ready ## Compare the short benchmarks with the commit in benchmarks/baseline
	$(BIN)/python -m benchmarks.check

keep-release: $(VENV)/ready ## Store a small lake of this version, from which later versions must continue
	TEST_KEEP_RELEASE=1 $(BIN)/python -m pytest tests/e2e/test_releases.py -k kept

superset: $(SUPERSET)/ready ## Show gold on a dashboard; needs a running `lakehouse up`
	$(BIN)/python deploy/superset/serve.py $(SUPERSET)

test-superset: $(SUPERSET)/ready ## Run Superset on a real lake, and compare the data of its charts
	TEST_SUPERSET=$(SUPERSET) $(BIN)/python -m pytest tests/e2e/test_superset.py

lint: $(VENV)/ready ## Check style, types, import direction and SQL, and scan for secrets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy deploy
	$(BIN)/mypy docs
	$(BIN)/lint-imports
	$(BIN)/sqlfluff lint dbt_project examples
	git ls-files -z | xargs -0 $(BIN)/detect-secrets-hook

docs: $(VENV)/ready ## Build the site of the documentation in dist/docs; a broken link is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs . dist/docs

reference: $(VENV)/ready ## Write docs/reference from commands, settings and declarations
	$(BIN)/python docs/write_reference.py

sbom: $(VENV)/ready ## Write a bill of materials of the locked packages to dist/sbom.json
	@mkdir -p dist
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml requirements.lock -o dist/sbom.json

audit: $(VENV)/ready ## Look up known vulnerabilities of the locked packages on pypi.org
	$(BIN)/pip-audit --strict --disable-pip --no-deps -r requirements.lock

lock: $(VENV)/ready ## Resolve the lock files again, of the project, its images and Superset
	$(BIN)/uv pip compile --universal --python-version 3.10 --generate-hashes --all-extras \
		--no-annotate --no-header pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --universal --python-version 3.10 --generate-hashes --extra lineage \
		--extra postgres --constraint requirements.lock --no-annotate --no-header \
		pyproject.toml -o requirements-image.lock
	$(BIN)/uv pip compile --universal --python-version 3.10 --generate-hashes \
		--exclude-newer 2026-06-01 --no-annotate --no-header \
		deploy/superset/requirements.in -o deploy/superset/requirements.lock

clean: ## Delete the environments and the caches of tools
	rm -rf $(VENV) $(SUPERSET) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(VENV)/ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
		{ echo "Python 3.10 to 3.13 is needed; name one: make PYTHON=python3.13 ..." >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.lock
	$(BIN)/uv pip sync --python $(BIN)/python --require-hashes requirements.lock
	$(BIN)/uv pip install --python $(BIN)/python --no-deps --editable .
	@touch $@

# Superset needs other package versions than we do, so it has its own environment.
$(SUPERSET)/ready: deploy/superset/requirements.lock $(VENV)/ready
	$(PYTHON) -m venv $(SUPERSET)
	$(BIN)/uv pip sync --python $(SUPERSET)/bin/python --require-hashes $<
	@touch $@

.PHONY: help demo test test-fast test-kills mutations chaos soak test-s3 test-compose nightly bench-check keep-release superset test-superset lint docs reference sbom audit lock clean
