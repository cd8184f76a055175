# Every target makes .venv when it is missing or out of date, and costs nothing when it is there.
PYTHON ?= python3.11
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types bench clean

help:  ## show this list
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

# python3.11 by name where there is one, else whatever python3 is (pip checks the version).
$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -m venv .venv || python3 -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

demo: $(READY)  ## fly a flock under two controllers, write films and runs/demo/report.html
	$(BIN)/equiflock demo --out runs/demo

test: $(READY)  ## run the tests
	$(BIN)/python -m pytest

lint: $(READY)  ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy: types
	$(BIN)/mypy

check: lint types test  ## everything that CI runs

bench: $(READY)  ## ns per agent-step, beside dense NumPy and a k-d tree
	$(BIN)/python benchmarks/messages.py

clean:  ## remove the virtual environment and all caches
	rm -rf .venv build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
