# Every target makes or refreshes .venv by itself; none needs root.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

# transformers lies in a folder of its own: wherever Lightning finds it, it imports it, which takes a second. The rest of
# what it needs comes with the other packages.
TRANSFORMERS := regex shellingham tokenizers transformers typer

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-failed test-slow check bench drill horovod-env clean

# what a first run needs
$(VENV)/.demo: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[torch]'
	touch $@

# and what the tests, the checks and the benchmarks need besides
$(VENV)/.ready: $(VENV)/.demo
	$(PIP) -e '.[torch,lightning,keras,report,mlflow,wandb,dev]'
	$(PIP) --no-deps --upgrade --target $(VENV)/transformers $(TRANSFORMERS)
	touch $@

demo: $(VENV)/.demo  ## train something real on two ranks
	$(BIN)/rampup run digits --tasks-per-node 2

test: $(VENV)/.ready  ## the whole test suite
	$(BIN)/python -m pytest

test-failed: $(VENV)/.ready  ## once more what failed in the last `make test`, one test at a time
	$(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none

test-slow: $(VENV)/.ready  ## the tests that take minutes: faults at random moments, many times
	$(BIN)/python -m pytest -n 0 -m slow -s

check: $(VENV)/.ready  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.ready  ## ratios, measured side by side; the table goes into docs/performance.md
	$(BIN)/python -m benchmarks.run --docs

drill: $(VENV)/.ready  ## 200 kills, every fault on sandboxes, 300 rounds of signals, about an hour; the tables go into docs/reliability.md
	$(BIN)/python -m benchmarks.drill --docs

horovod-env: .venv-horovod/.ready  ## the real Horovod with a TensorFlow of its own; built from source, some minutes

.venv-horovod/.ready: tools/horovod-env.sh pyproject.toml
	tools/horovod-env.sh $(PYTHON) .venv-horovod

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache
