# Everything a person or CI runs. `make help` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CODE := plnt workflows activities bridge
PYTEST := $(BIN)/pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo up down status test format lint types imports unit e2e extended charts flags chaos record bench lock build clean

help: ## show this list
	@grep -E '^[a-z0-9]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | column -t -s "$$(printf '\t')"

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "plnt needs Python 3.11 or newer; set PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

setup: $(STAMP) ## make the virtual environment from the lock file

demo: $(STAMP) ## the example from kubectl apply to Ready, on real servers on loopback
	$(BIN)/plnt demo

up: $(STAMP) ## keep the sandbox running until Ctrl-C
	$(BIN)/plnt up

down: $(STAMP) ## stop a sandbox that was left behind
	$(BIN)/plnt down

status: $(STAMP) ## show the sandbox's components
	$(BIN)/plnt status

test: lint types imports unit e2e ## everything that CI runs

format: $(STAMP) ## rewrite the code in the project's form
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP) ## form, lint, dead code, YAML, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/vulture
	$(BIN)/yamllint --strict .
	$(BIN)/codespell

types: $(STAMP) ## strict types
	$(BIN)/mypy

imports: $(STAMP) ## import layers
	$(BIN)/lint-imports

unit: $(STAMP) ## unit, workflow, replay, activity, bridge, chart and distribution tests
	$(BIN)/plnt build --sources
	$(PYTEST) tests --ignore tests/e2e --ignore tests/chaos -n 2 --dist loadfile

e2e: $(STAMP) ## the whole path on the sandbox
	$(BIN)/plnt build
	$(PYTEST) tests/e2e -m "not extended"

extended: $(STAMP) ## every scenario on the sandbox: edits, all sources, autoscaling, more of the chaos
	$(BIN)/plnt build --metrics --sources
	$(PYTEST) tests/e2e

charts: $(STAMP) ## chart tests alone
	$(BIN)/plnt build
	$(PYTEST) tests/charts

flags: $(STAMP) ## read vLLM's and SGLang's options anew from their wheels (375 MB); WHEELS="vllm==0.34.0" for another
	$(BIN)/python -m plnt.sandbox.engine.read_flags $(WHEELS)

chaos: $(STAMP) ## kills of every process at every moment, long outages, random walks: an hour or more
	$(BIN)/plnt build
	$(PYTEST) tests/chaos --timeout 7200

record: $(STAMP) ## write the recorded histories under tests/replay anew
	$(BIN)/python -m tests.replay.record

bench: $(STAMP) ## ratios against named peers
	$(BIN)/python -m benchmarks.weights
	$(BIN)/python -m benchmarks.rollout

lock: ## resolve the lock file anew (needs uv)
	uv pip compile --universal --generate-hashes --python-version 3.11 --extra sandbox --group dev \
	  --no-emit-index-url --no-annotate --custom-compile-command "make lock" \
	  --quiet -o requirements.lock pyproject.toml

build: $(STAMP) ## source distribution and wheel
	$(BIN)/python -m build --no-isolation

clean: ## remove what was made here
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
