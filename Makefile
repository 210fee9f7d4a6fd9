# `make` alone lists what can be done. All of it happens in .venv, which the first target that needs it creates; with
# PYTHON=python3.12, where .venv has another version, in .venv-3.12.

PYTHON ?= python3
ARGS   ?=
VENV   := .venv

# The version of a Python, such as 3.12; nothing where it does not run or is older than what Holdfast needs.
version_of = $(shell $(1) -c 'import sys; v = sys.version_info; v < (3, 11) or print("%d.%d" % v[:2])' 2>/dev/null)
ifneq ($(PYTHON),python3)
  ASKED := $(call version_of,$(PYTHON))
  USUAL := $(or $(call version_of,$(or $(wildcard .venv/bin/python),python3)),$(ASKED))
  ifneq ($(ASKED),$(USUAL))
    VENV := .venv-$(or $(ASKED),of-no-usable-python)
  endif
endif

BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# The tests that need no server: no Valkey, no mongod, no Node, no gateway in a process of its own. What takes long there
# is marked `slow`, and left out.
FAST := tests/unit tests/api tests/conformance/test_sqlite.py

# Tests with real processes wait much of their time: two test processes more than two cores would need.
TEST_PROCESSES ?= 4

# Tests write small files and wait until they are on the disk, as the program does. In memory there is nothing to wait
# for. A process that is killed loses nothing there either. /dev/shm is used where it has room for all of them.
TEST_FOLDER ?= $(shell test -w /dev/shm && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 6000000 { print "/dev/shm" }')
PYTEST := $(if $(TEST_FOLDER),PYTEST_DEBUG_TEMPROOT=$(TEST_FOLDER)) $(BIN)/python -m pytest -o tmp_path_retention_count=1

# How many rounds each crash point gets in `make chaos`; the test suite itself runs few.
HOLDFAST_CHAOS_ROUNDS ?= 25

# How often each attack is repeated in `make attack`; the test suite itself runs each once.
HOLDFAST_ATTACK_ROUNDS ?= 10

# How many requests `make fuzz` sends; the test suite itself sends a few thousand. HOLDFAST_FUZZ_SEED repeats a run.
HOLDFAST_FUZZ_CASES ?= 500000

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Programs are started hundreds of times here: they should find their bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo demo-cluster test test-fast check format bench bench-cluster bench-documents bench-peers bench-growth mutants chaos attack fuzz audit clean

help: ## Show this list
	@echo "Holdfast. Usage: make <target> [ARGS='...'] [PYTHON=python3.12]"
	@echo
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(STAMP) ## Create .venv with Holdfast and the development tools; quick when nothing changed

# The stamp is newer than both files exactly when .venv holds what they ask for.
$(STAMP): pyproject.toml hashes.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Holdfast needs Python 3.11 or newer, and '$(PYTHON)' is not: $$($(PYTHON) --version 2>&1 | head -n 1)." >&2; \
	  echo "Name another one: make $(or $(MAKECMDGOALS),install) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV) || { \
	  echo "Could not create $(VENV); on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }; }
	@echo "Installing Holdfast and its tools into $(VENV) (about a minute the first time)"
	@# Our distribution was called holdfast before: two names for one package would be in each other's way.
	@$(BIN)/python -m pip uninstall --quiet --yes holdfast 2>/dev/null || true
	@# Only files whose hash we know. Holdfast itself is built with the hatchling that came with them.
	@$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement hashes.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check
	@touch $@

demo: $(STAMP) ## Take a narrated tour: the whole lives of events, emails and documents (about a minute)
	@$(BIN)/holdfast demo $(ARGS)

demo-cluster: $(STAMP) ## The same tour on a real Valkey and MongoDB, with three worker processes
	@$(BIN)/holdfast demo --cluster $(ARGS)

test: $(STAMP) ## Run the tests; ARGS goes to pytest, e.g. make test ARGS='tests/unit -k retry'
	$(PYTEST) -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

test-fast: $(STAMP) ## Run the tests that need no server (two minutes); PYTHON=python3.12 has a .venv-3.12 of its own
	$(PYTEST) -n $(TEST_PROCESSES) --dist loadfile -m 'not slow' $(FAST) $(ARGS)

check: $(STAMP) ## Check style, formatting, types and the import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## Format the code and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## Measure intake and end-to-end throughput on this machine
	$(BIN)/python -m bench $(ARGS)

bench-cluster: $(STAMP) ## Measure the cluster on Valkey and MongoDB, and its queue beside Node's BullMQ
	$(BIN)/python -m bench.cluster $(ARGS)

bench-documents: $(STAMP) ## Measure how well and how fast pages and speech are read; ARGS='--quick' for a minute
	$(BIN)/python -m bench.documents $(ARGS)

bench-peers: $(STAMP) ## Measure Holdfast beside Celery, Dramatiq, arq, SAQ, Huey, Procrastinate, PGQueuer, BullMQ (15 minutes)
	@$(BIN)/python -m bench.peers.libraries
	$(BIN)/python -m bench.peers $(ARGS)

bench-growth: $(STAMP) ## Measure the cost of a job, of lists and of the disk as the ledger grows; ARGS='--quick' for a minute
	$(BIN)/python -m bench.growth $(ARGS)

mutants: $(STAMP) ## Break the engine on purpose and see that the simulation notices every time
	$(BIN)/python -m tests.mutants $(ARGS)

chaos: $(STAMP) ## Kill and stop real processes for a long time; HOLDFAST_CHAOS_ROUNDS sets how long
	HOLDFAST_CHAOS_ROUNDS=$(HOLDFAST_CHAOS_ROUNDS) $(PYTEST) -m chaos --timeout 3600 $(ARGS)

attack: $(STAMP) ## Attack a running gateway for a long time; HOLDFAST_ATTACK_ROUNDS sets how long
	HOLDFAST_ATTACK_ROUNDS=$(HOLDFAST_ATTACK_ROUNDS) $(PYTEST) tests/attack --timeout 3600 $(ARGS)

fuzz: $(STAMP) ## Send half a million spoiled requests to a running API (half an hour); HOLDFAST_FUZZ_CASES sets how many
	HOLDFAST_FUZZ_CASES=$(HOLDFAST_FUZZ_CASES) $(PYTEST) tests/attack/test_fuzz.py --timeout 7200 $(ARGS)

audit: $(STAMP) ## Ask whether a version that we install has a known weakness; says so where nobody can be asked
	@test -x .venv-audit/bin/pip-audit || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install --quiet pip-audit; }
	@.venv-audit/bin/pip-audit --requirement hashes.txt --disable-pip --require-hashes --strict --progress-spinner off $(ARGS) \
	  || { echo "make audit: a weakness is named above; or the database of weaknesses was out of reach, if there is an" \
	  "error of the connection above. Nothing was checked then." >&2; exit 1; }

clean: ## Remove .venv, .venv-3.12 and its like, and everything the tools left behind; data folders and holdfast.toml stay
	rm -rf .venv .venv-* build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache .schemathesis .coverage
	rm -rf tests/interop/node/node_modules tests/interop/node/.installing
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
