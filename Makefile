# `make run` does the product's main job on a fresh machine; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= configs/laptop.toml
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check $(addprefix --constraint ,$(CONSTRAINTS))
APT := apt-get install -y python3-venv python3-dev make gcc libc6-dev

.PHONY: help install run test test-slow lint bench docs schema constraints sbom clean
.DELETE_ON_ERROR:

help:
	@echo "make install    .venv with what make run needs"
	@echo "make run        collect, release, open and report on this machine (CONFIG=$(CONFIG))"
	@echo "make lint       ruff, codespell, mypy, layer contracts"
	@echo "make test       the fast tests      make test-slow  the rest"
	@echo "make bench      every benchmark, JSON lines in out/bench/"
	@echo "make docs       the documentation site, out/site/docs/index.html"
	@echo "make sbom       what .venv holds, CycloneDX, out/sbom.json"
	@echo "make constraints, make schema   constraints.txt and configs/schema/, after a change"

$(VENV)/bin/python:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON). Install it: $(APT)"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "$(PYTHON) is older than 3.11. Use PYTHON=/path/to/python3.11 or newer."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
	  || { echo "$(PYTHON) has no venv. Install it: $(APT)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable '.[opencl,analysis]'
	$(BIN)/python scripts/check_pocl.py
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.run
	$(PIP) --editable '.[dev]'
	@touch $@

$(VENV)/.bench: pyproject.toml $(VENV)/.dev
	$(PIP) --editable '.[bench]'
	@touch $@

install: $(VENV)/.run

run: install
	$(BIN)/penrose run $(CONFIG)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/mypy tests/typing/api.py
	$(BIN)/lint-imports

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

bench: $(VENV)/.bench
	mkdir -p out/bench
	for file in benchmarks/[a-z]*.py; do \
	  name=$$(basename $$file .py); \
	  [ $$name != harness ] || continue; \
	  $(BIN)/python -m benchmarks.$$name --json >out/bench/$$name.json || exit 1; \
	  tail -n 1 out/bench/$$name.json; \
	done

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -W --keep-going -q -c docs -b html -d out/doctrees . out/site
	@echo "out/site/docs/index.html"

constraints: $(VENV)/.dev
	{ echo "# Versions that the tests ran with: make install CONSTRAINTS=constraints.txt; made by make constraints"; \
	  $(BIN)/python -m pip freeze --disable-pip-version-check --exclude-editable; } >constraints.txt

sbom: $(VENV)/.dev
	@mkdir -p out
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file out/sbom.json \
	  $(BIN)/python
	@echo "out/sbom.json"

schema: $(VENV)/.dev
	for kind in service simulation policy enrolment; do \
	  $(BIN)/penrose config schema $$kind >configs/schema/$$kind.json || exit 1; \
	done

clean:
	rm -rf $(VENV) out build dist *.egg-info
