# Every target sets up what it needs: a machine with Python >= 3.11, git and make is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIGHT := $(VENV)/.light
STAMP := $(VENV)/.ready

# What Python compiles it keeps, whatever the shell says: else each of a hundred processes of the tests takes seconds to import
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test whole lint docs drawing pictures dist extras lowest highest fuzz bench paper clean

setup: $(STAMP)

# What zerovar and its pictures need: all that the demonstration takes
$(LIGHT): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("zerovar needs Python 3.11 or newer; try: make PYTHON=python3.12") if sys.version_info < (3, 11) else None'
	$(PYTHON) scripts/install.py $(VENV) plots
	@touch $@

$(STAMP): $(LIGHT)
	$(PYTHON) scripts/install.py $(VENV) dev
	@touch $@

# With XLA's older code generator, which compiles faster, it took 52 s of processor time in place of 75, on a busy machine
demo: $(LIGHT)
	PYTHONPATH=src XLA_FLAGS='--xla_cpu_use_fusion_emitters=false' $(BIN)/python -m zerovar demo

# One worker a core, each with one thread: two thread pools that share cores are slower than none. What takes longest is
# compiling: workers share what they have compiled, and XLA's older code generator compiles in two thirds of the time.
WORKER := JAX_COMPILATION_CACHE_DIR=$(CURDIR)/$(VENV)/compiled JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.03 \
	OPENBLAS_NUM_THREADS=1 XLA_FLAGS='--xla_cpu_multi_thread_eigen=false --xla_cpu_use_fusion_emitters=false'

test: setup
	$(WORKER) $(BIN)/python -m pytest -m 'not whole' --numprocesses auto --maxprocesses 8 --dist worksteal

# The demonstration, the notebook, long pages, quick benchmarks and studies, other numbers of threads, and combinations of which
# `make test` has some: each runs for up to a minute
whole: setup
	$(WORKER) $(BIN)/python -m pytest -m whole --numprocesses auto --maxprocesses 8

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going docs build/docs
	$(BIN)/python scripts/site.py
	@echo "build/docs/index.html"

# Which part imports which, for DESIGN.md, from the imports themselves
drawing:
	$(PYTHON) scripts/drawing.py

# Runs what the documentation shows and writes its pictures and its notebook anew, compiled as for the tests that compare gains
pictures: setup
	$(WORKER) PYTHONPATH=tests $(BIN)/python scripts/pictures.py

# The source archive and the wheel in dist/, and the wheel in an environment of its own: the README's lines, the demonstration
dist: setup
	$(WORKER) PYTHONPATH=tests $(BIN)/python scripts/dist.py

# An environment for each extra, and in it what the documentation shows with that extra
extras: setup
	$(WORKER) PYTHONPATH=tests $(BIN)/python scripts/extras.py

# The core of the tests on the oldest versions of what zerovar needs (lowest.txt), and on the newest of the day
lowest:
	$(PYTHON) scripts/versions.py lowest

highest:
	$(PYTHON) scripts/versions.py highest

bench: setup
	$(BIN)/python -m benchmarks

# The paper's experiments in a few minutes; the committed results are those of `python -m experiments.paper`
paper: setup
	$(BIN)/python -m experiments.paper --quick --out build/paper

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

# The seeded tests of files and properties, many times as long: ZEROVAR_FUZZ=N
fuzz: setup
	ZEROVAR_FUZZ=$${ZEROVAR_FUZZ:-50} $(BIN)/python -m pytest tests/test_fuzz_files.py tests/test_properties.py
