PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.built-for
ARGS ?=

.PHONY: help env env-system demo demo-logs test verl check bench

help:  ## what each target does
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: $(STAMP)  ## build .venv with what was tested (constraints.txt); does nothing when it is up to date

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "gradwatch needs Python 3.11 or newer; name one with make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

# A browser for the page's tests, and what reads /metrics for those of the alerts.
SYSTEM := prometheus prometheus-alertmanager chromium fonts-dejavu-core

env-system:  ## install the Debian packages that some tests need
	dpkg -s $(SYSTEM) >/dev/null 2>&1 || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(SYSTEM); }

demo: env  ## train a small solver and verifier in another process, and watch them live
	@$(BIN)/python examples/demo.py $(ARGS)

demo-logs: env  ## diagnose logs of our own training, and three real ones where ../shared/corpus lies beside the checkout
	@$(BIN)/python examples/diagnose_logs.py $(ARGS)

test: env  ## run the tests, three files at a time: many of them wait for processes
	$(BIN)/python -m pytest --numprocesses 3 --dist loadfile $(ARGS)

# verl wants other versions than ours. Some of its imports warn.
VERL := verl==0.9.1 transformers>=5.5.3,!=5.6.0,<5.11 $(shell grep '^torch==' constraints.txt)

verl:  ## test the hooks for verl against verl itself, in an environment of its own (.venv/verl)
	test -x $(VENV)/verl/bin/python || $(PYTHON) -m venv $(VENV)/verl
	$(VENV)/verl/bin/python -m pip install --quiet --quiet --disable-pip-version-check --editable '.[server]' pytest hypothesis $(foreach one,$(VERL),'$(one)')
	$(VENV)/verl/bin/python -m pytest -W default tests/hooks/verl_real $(ARGS)

check: env  ## format, lint, types, floors
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: env  ## run every benchmark in its quick form
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file --quick; done
