# Every target makes or refreshes .venv by itself; none needs root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test check bench clean

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[torch,report,dev]'
	touch $@

demo: $(VENV)/.ready  ## train something real on two ranks
	$(BIN)/rampup run digits --tasks-per-node 2

test: $(VENV)/.ready  ## the whole test suite
	$(BIN)/python -m pytest

check: $(VENV)/.ready  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready  ## ratios, measured side by side
	$(BIN)/python -m benchmarks.run

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
