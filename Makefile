# Everything a person or a machine does with a checkout. `make run` and `make test` are the two to know.
#
#   make run      set up .venv and do the main job          make check    all that .ci/run runs
#   make test     set up .venv and run the tests            make figures  draw the figures of the paper
#   make slow     the tests that take minutes               make bench    the benchmarks
#   make lint | types | layers | docs                       make torch    install PyTorch, so that its tests run too
#   make kill     kill training processes 200 times         make clean    remove what the others made
#   make corrupt  damage 108 run folders, ask about them
#   make sanitize the kernel under sanitizers, in short     make fuzz     the same at length: an hour
#   make no-compiler   install without a compiler on the path, and test that
#
# PYTHON=python3.12 picks the interpreter, VENV=.venv/312 another environment, ARGS="-k bridge" what pytest is to run.

VENV ?= .venv
ARGS ?=
# Compiling takes most of the time of the tests, and one process compiles on one core.
WORKERS ?= auto
BIN := $(VENV)/bin

.PHONY: help run test slow corrupt kill sanitize fuzz no-compiler torch lint types layers docs check figures bench clean
.DEFAULT_GOAL := help

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

run: $(VENV)/package.stamp
	$(BIN)/tiltwalk train mnist2048 $(ARGS)

test: $(VENV)/tools.stamp
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

slow: $(VENV)/tools.stamp
	$(BIN)/python -m pytest -m slow $(ARGS)

corrupt: $(VENV)/tools.stamp
	$(BIN)/python scripts/corrupt_runs.py $(ARGS)

kill: $(VENV)/tools.stamp
	$(BIN)/python scripts/kill_runs.py $(ARGS)

# Random layer programs: the targets against each other under sanitizers, and each against the definition.
sanitize: $(VENV)/tools.stamp
	scripts/sanitize-native 40
	$(BIN)/python scripts/fuzz_native.py --programs 20 --against definition

# The kernel's tests under sanitizers too, and 1,000 programs against plain JAX.
fuzz: $(VENV)/tools.stamp
	PYTHON=$(BIN)/python scripts/sanitize-native 1000
	$(BIN)/python scripts/fuzz_native.py --programs 1000 --against plain $(ARGS)

no-compiler:
	PYTHON=$(or $(PYTHON),$(BIN)/python) scripts/no-compiler $(ARGS)

torch: $(VENV)/torch.stamp

lint: $(VENV)/tools.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/tools.stamp
	$(BIN)/mypy

layers: $(VENV)/tools.stamp
	$(BIN)/lint-imports

docs: $(VENV)/tools.stamp
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Read docs/_build/html/index.html"

check: test lint types layers docs

figures: $(VENV)/package.stamp
	$(BIN)/tiltwalk reproduce linear
	$(BIN)/tiltwalk reproduce annealing
	$(BIN)/tiltwalk reproduce landscape
	$(BIN)/tiltwalk reproduce mnist --quick

bench: $(VENV)/package.stamp
	@for script in $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)); do \
		echo "$$script"; $(BIN)/python "$$script" $(ARGS) || exit 1; \
	done

clean:
	if [ -e $(VENV)/pyvenv.cfg ]; then rm -rf $(VENV); fi
	rm -rf build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# The environment. A stamp says that an install was finished; a change of pyproject.toml makes it again.

PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

$(VENV)/package.stamp: pyproject.toml
	@PYTHON="$(PYTHON)" scripts/make-venv "$(VENV)"
	@echo "Installing tiltwalk into $(VENV) (once; about a minute)."
	@$(PIP) install --editable '.[all]'
	@touch $@

$(VENV)/tools.stamp: $(VENV)/package.stamp
	@echo "Installing the tools of development into $(VENV) (once)."
	@$(PIP) install --group dev
	@touch $@

$(VENV)/torch.stamp: $(VENV)/tools.stamp
	@echo "Installing PyTorch into $(VENV) (once)."
	@$(PIP) install --group torch
	@touch $@
