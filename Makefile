# One command per chore. `make help` lists them; each sets up what it needs.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PLAIN := $(VENV)/.plain
TOOLS := $(VENV)/audit/bin
DEMO := demo-out
JOBS ?= $(shell env -u OMP_NUM_THREADS nproc 2>/dev/null || echo 2)

.DEFAULT_GOAL := help
.PHONY: help install demo browser test test-slow test-at test-faults fuzz check audit format bench figures evidence verify-published report-example site docs clean

help: ## List the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## Create .venv and install rankscope in it, with the pinned versions

$(PLAIN): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "rankscope needs Python 3.10 or newer: make PYTHON=python3.11 …")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $(PLAIN)

$(STAMP): $(PLAIN)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

demo: $(PLAIN) ## Measure, compress, evaluate and forecast with a bundled model (2 minutes after the install)
	rm -rf $(DEMO)
	$(BIN)/rankscope spectrum bundled-bolt --eps 0.1 --sites q,encoder --figures $(DEMO)/figures
	$(BIN)/rankscope compress bundled-bolt --ratio 0.3 --out $(DEMO)/small
	$(BIN)/rankscope eval $(DEMO)/small --baseline bundled-bolt --out $(DEMO)/scores.csv
	$(BIN)/rankscope forecast $(DEMO)/small --input docs/data/series.csv --horizon 2 --quantiles 0.1,0.5,0.9
	@echo 'Figures, the smaller checkpoint and its scores are in $(DEMO)/'

browser: ## Install Debian's Chromium for the browser tests, where root and apt-get are there
	@if command -v chromium >/dev/null || command -v google-chrome >/dev/null; then echo 'Chromium is there'; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq >/dev/null 2>&1 && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null 2>&1; \
	then echo 'Chromium is installed'; \
	else echo 'no Chromium here, and none could be installed: the browser tests will be skipped'; fi

test test-slow: export OMP_NUM_THREADS ?= 1
test: $(STAMP) ## Run the quick tests, a process per core (5 to 15 minutes on two, by processor)
	$(BIN)/python -m pytest -m 'not slow' -n $(JOBS) --dist worksteal --durations=10 -q

test-slow: $(STAMP) ## Run the slow ones: processes, kills, training, Ray, Chromium (10 to 25 minutes)
	$(BIN)/python -m pytest -m slow -n $(JOBS) --dist worksteal --durations=10 -q

test-at: $(STAMP) ## Run all tests of one place: make test-at AT=tests/rankscope/numerics
	$(BIN)/python -m pytest -q -x $(AT)

fuzz: export OMP_NUM_THREADS ?= 1
fuzz: $(STAMP) ## Feed damaged files to everything that reads: make fuzz SECONDS=600 SEED=1
	$(BIN)/python -m tests.fuzz --seconds $(or $(SECONDS),600) --seed $(or $(SEED),0)

test-faults: $(STAMP) ## Let every write, fsync and rename of every verb fail in turn: make test-faults ONLY=compress,eval SAMPLE=20
	$(BIN)/python -m tests.faults $(if $(ONLY),--only $(ONLY)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(KILLS),--kills $(KILLS))

check: $(STAMP) ## Lint, types, import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

audit: ## Bill of materials and licences of the wheel and what it needs to run, known vulnerabilities of all pinned versions, into audit/
	test -x $(TOOLS)/python || $(PYTHON) -m venv $(VENV)/audit
	$(TOOLS)/python -m pip install --quiet cyclonedx-bom==7.5.0 pip-audit==2.10.1 pip-licenses==5.5.5
	rm -rf audit/venv audit/wheel
	$(TOOLS)/python -m pip wheel --quiet --no-deps --wheel-dir audit/wheel .
	$(TOOLS)/python -m venv --without-pip audit/venv
	$(TOOLS)/python -m pip --python audit/venv/bin/python install --quiet --constraint constraints.txt audit/wheel/rankscope-*.whl
	$(TOOLS)/cyclonedx-py environment audit/venv/bin/python --output-file audit/sbom.json
	$(TOOLS)/pip-licenses --python audit/venv/bin/python --format markdown --order license --output-file audit/licences.md --partial-match --fail-on 'GPL;GNU'
	rm -rf audit/venv audit/wheel
	$(TOOLS)/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict

format: $(STAMP) ## Format the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(STAMP) ## Time spectrum against bare LAPACK and WeightWatcher (needs the extra "bench")
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python benchmarks/spectrum.py

figures: $(STAMP) ## Draw all figures into figures/out
	$(BIN)/rankscope figures --all --out figures/out --force
	$(BIN)/rankscope figures 5a -m bundled-bolt --out figures/out/bundled-bolt --force
	$(BIN)/python benchmarks/draw.py

evidence: $(STAMP) ## Measure again what is stale, and write every printed number anew (hours; goes on where it was stopped)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python benchmarks/evidence.py

verify-published: $(STAMP) ## With a network: reproduce the published scores of two Chronos models, measure and shrink them
	$(BIN)/python benchmarks/published.py --folder verify-published

report-example: $(STAMP) ## Make the example report again (5 minutes)
	PATH="$(abspath $(BIN)):$$PATH" docs/examples/make_report.sh demo-report

site: $(STAMP) ## Build the docs into site/; a dead link is an error
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs: site ## Build the site, then run all code blocks of the docs (8 minutes)
	$(BIN)/python docs/run_blocks.py

clean: ## Remove the demo's output and the caches
	rm -rf $(DEMO) demo-report verify-published audit site .mypy_cache .ruff_cache .coverage htmlcov
