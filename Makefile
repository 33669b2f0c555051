# What CI runs is what a person runs. `make` alone says what there is.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Containers often forbid Python to keep what it has compiled. Half of a start would then be spent on compiling it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help install demo test test-core test-long faults soak readers docs check format lock bench profile wheel clean

help:
	@echo "make demo       events from a broker into tables, on this machine, in a minute (KEEP=1 leaves it running)"
	@echo "make test       the tests, on real engines that it starts and stops itself; their long forms are below"
	@echo "make test-core  the tests that need no server"
	@echo "make test-long  what takes longer: 2,000 landings with 600 partitions, every moment of a pause, all kills behind locks"
	@echo "make faults     KILLS=200 kills at every fail point and at any moment while 600 events a second flow; a store that fails"
	@echo "make soak       MINUTES=60 of kills, failing neighbours and company at random; then memory, threads and files"
	@echo "make readers    what we write, read back by Trino and ClickHouse as well (720 MB to fetch, Java 24 or later); the matrix"
	@echo "make docs       the pages of docs/reference, from the code"
	@echo "make check      ruff, formatting, mypy, and who may import whom"
	@echo "make bench      ours beside Kafka Connect and others, on this machine; QUICK=1 in ten minutes; ONLY=ours,connect;"
	@echo "                WHAT=telemetry: what traces and metrics cost"
	@echo "make profile    where the processor time of a run goes, as flame graphs in build/profile; CASE=... of make bench"
	@echo "make wheel      what is installed elsewhere, into dist/"
	@echo "make lock       resolve the locked versions anew"
	@echo "make clean      remove the virtual environment; lakehouse-ingest clean removes the downloaded jars"

# The lock names every package with its hashes; uv reads it many times faster than pip. By default uv compiles nothing,
# and a user who may not write into the environment would compile half of it at each start.
$(VENV)/.installed: requirements.lock pyproject.toml
	@echo "Installing the locked Python packages (about 700 MB, most of it Spark) into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.8
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	@touch $@

install: $(VENV)/.installed

demo: install
	@$(BIN)/lakehouse-ingest demo $(if $(KEEP),--keep)

# Four at a time, file by file: each with a broker, a catalog and a Spark of its own. Half of a test is waiting.
# In the order of their folders, where the longest (tests/faults) come first, not last and alone.
# With LAKEHOUSE_TEST_COSTS=build/costs.jsonl each test writes what it costs; `python -m tests.services.costs` adds it up.
# A worker that crashes ends the run and is named: xdist 3.8 would go on with another one, and then wait for ever.
# Three at a time took two minutes more on two cores. Each takes about 2 GB: WORKERS=2 on a small machine.
test: install
	$(BIN)/python -m pytest -n $(or $(WORKERS),4) --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -m "not long"

test-core: install
	$(BIN)/python -m pytest tests/unit tests/stages tests/properties

test-long: install
	LAKEHOUSE_TEST_LONG=1 LAKEHOUSE_TEST_LANDINGS=2000 LAKEHOUSE_TEST_TOPICS=100 $(BIN)/python -m pytest -s \
		tests/faults/test_kill_secured.py \
		tests/faults/test_pause.py \
		tests/live/test_ledger.py::TestLedger::test_loses_no_commit_of_a_busy_neighbour \
		tests/live/test_bounded_history.py::TestExpiry::test_keeps_the_metadata_of_a_table_small \
		tests/live/test_plan.py::TestPlan::test_of_all_records_is_what_a_run_then_does \
		tests/live/test_demo.py::TestDemo::test_with_keep_serves_until_ctrl_c \
		tests/live/test_direct.py::TestCatalogWithoutBranches::test_gets_everything_once_though_answers_are_lost \
		tests/live/test_direct.py::TestOlderStart::test_adds_nothing_after_its_replacement_has_committed_everything \
		tests/live/test_class_names.py::TestLocationProviderOfJava::test_is_refused_before_spark_opens_the_table

# A report of it in build/faults.json; LAKEHOUSE_TEST_SEED repeats the decisions of a run.
faults: install
	LAKEHOUSE_TEST_KILLS=$(or $(KILLS),200) LAKEHOUSE_TEST_REPORT=build/faults.json \
		$(BIN)/python -m pytest -s tests/faults/test_kill.py tests/faults/test_kill_main_only.py \
		tests/faults/test_catalog_faults.py tests/faults/test_lost_and_late.py tests/faults/test_store_faults.py \
		tests/faults/test_broker.py tests/faults/test_company.py tests/faults/test_scratch.py \
		tests/faults/test_progress.py

# A report of it in build/soak.json.
soak: install
	LAKEHOUSE_TEST_SOAK_MINUTES=$(or $(MINUTES),60) LAKEHOUSE_TEST_SOAK_REPORT=build/soak.json \
		$(BIN)/python -m pytest -s tests/faults/test_soak.py

# ClickHouse as a Python package (560 MB unpacked) and Trino's client: a lock of their own, beyond what the tests need.
$(VENV)/.readers: tests/readers/requirements.lock $(VENV)/.installed
	@echo "Installing ClickHouse (180 MB) and Trino's client into $(VENV); Trino itself (540 MB) goes into the cache"
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r tests/readers/requirements.lock
	@touch $@

# Who reads what we write, each engine on each store; writes the matrix and the table in docs/concepts/limits.md.
readers: $(VENV)/.readers
	LAKEHOUSE_TEST_MATRIX=tests/readers/matrix.json $(BIN)/python -m pytest -s tests/readers
	$(BIN)/python -m tests.readers.matrix

# The pages of docs/reference, from the code; a test fails when one of them is not what this writes.
docs: install
	$(BIN)/python -m tests.docs.reference_pages

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# A report in build/bench.json and build/bench.html; `python -m tests.benchmarks.table` puts it into docs/development/speed.md.
bench: install
	$(BIN)/python -m tests.benchmarks$(if $(WHAT),.$(WHAT), $(if $(QUICK),--quick) $(if $(ONLY),--only "$(ONLY)") $(if $(EVENTS),--events $(EVENTS)))

profile: install
	$(BIN)/python -m tests.benchmarks.profile $(if $(CASE),--case "$(CASE)") $(if $(EVENTS),--events $(EVENTS))

wheel: install
	$(BIN)/uv build --quiet --wheel
	@ls dist/*.whl

lock:
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --all-extras \
		--python-version 3.11 pyproject.toml -o requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --group readers \
		--constraint requirements.lock --python-version 3.11 -o tests/readers/requirements.lock
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --group quix \
		--python-version 3.11 -o tests/benchmarks/peers/quix.lock

clean:
	rm -rf $(VENV)
