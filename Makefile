# Every target sets up what it needs: a machine with Python >= 3.11, git and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test lint docs bench paper clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("zerovar needs Python 3.11 or newer; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup
	$(BIN)/zerovar demo

# One worker a core, each with one thread: two thread pools that share cores are slower than none. What takes longest is
# compiling: workers share what they have compiled, and XLA's older code generator compiles in two thirds of the time.
test: setup
	JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.03 \
	OPENBLAS_NUM_THREADS=1 XLA_FLAGS='--xla_cpu_multi_thread_eigen=false --xla_cpu_use_fusion_emitters=false' \
	$(BIN)/python -m pytest --durations 60 --numprocesses auto --maxprocesses 8 --dist worksteal

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs
	@echo "build/docs/index.html"

bench: setup
	$(BIN)/python -m benchmarks

# The paper's experiments in a few minutes; the committed results are those of `python -m experiments.paper`
paper: setup
	$(BIN)/python -m experiments.paper --quick --out build/paper

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
